//! Updates to the attributes of a row.

use std::borrow::Cow;
use std::fmt;

use crate::expression::{self, Literal};
use crate::value::Value;

/// A list of changes to a row, which is created if absent. Changes are created by [`Attr`](crate::Attr).
///
/// Every change sees the row as it was before the update. Each attribute may be changed once.
///
/// ```
/// use tabletheory::{Attr, Update};
///
/// const ETAG: Attr<String> = Attr::new("etag");
/// const VERSION: Attr<i64> = Attr::new("version");
///
/// let update = Update::new([ETAG.set("\"b\""), VERSION.add(1)]);
/// assert_eq!(update.to_string(), r#"SET etag = "\"b\"" ADD version 1"#);
/// ```
#[derive(Clone, Debug, Default, PartialEq, Hash)]
#[must_use = "an update has no effect until it is used in a write"]
pub struct Update {
    pub(crate) changes: Vec<Change>,
}

impl Update {
    /// Creates an update of these changes. An empty update is rejected on commit.
    ///
    /// ```
    /// use tabletheory::{Attr, Update};
    ///
    /// let update = Update::new([Attr::<i64>::new("hits").add(1)]);
    /// assert_eq!(update.to_string(), "ADD hits 1");
    /// ```
    pub fn new(changes: impl IntoIterator<Item = Change>) -> Self {
        Update { changes: changes.into_iter().collect() }
    }

    /// Adds a change.
    ///
    /// ```
    /// use tabletheory::{Attr, Update};
    ///
    /// let update = Update::default().with(Attr::<i64>::new("hits").add(1));
    /// assert_eq!(update, Update::new([Attr::<i64>::new("hits").add(1)]));
    /// ```
    pub fn with(mut self, change: Change) -> Self {
        self.changes.push(change);
        self
    }
}

/// A change to one attribute; created by [`Attr`](crate::Attr).
///
/// ```
/// let change = tabletheory::Attr::<i64>::new("ttl").remove();
/// assert_eq!(change.name(), "ttl");
/// ```
#[derive(Clone, Debug, PartialEq, Hash)]
#[must_use = "a change has no effect until it is used in an update"]
pub struct Change {
    pub(crate) name: Cow<'static, str>,
    pub(crate) action: Action,
}

impl Change {
    /// Returns the name of the changed attribute.
    ///
    /// ```
    /// assert_eq!(tabletheory::Attr::<i64>::new("hits").add(1).name(), "hits");
    /// ```
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }
}

#[derive(Clone, Debug, PartialEq, Hash)]
pub(crate) enum Action {
    Set(Value),
    SetIfAbsent(Value),
    Append(Vec<Value>),
    Remove,
    Add(Value),
}

/// Human-readable form, with literal values, for messages and logs.
impl fmt::Display for Update {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&expression::of_update(self, &mut Literal))
    }
}
