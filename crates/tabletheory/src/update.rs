//! Updates: lists of changes to a row's attributes.

use std::borrow::Cow;
use std::fmt;

use crate::value::Value;

/// What to change in a row, which is made if it is absent. Changes come from [`Attr`](crate::Attr).
///
/// Every change sees the row as it was before the update, and an attribute is named once.
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
#[derive(Clone, Debug, Default, PartialEq)]
#[must_use = "it does nothing until it is used in a call"]
pub struct Update {
    pub(crate) changes: Vec<Change>,
}

impl Update {
    /// An update of these changes. One of none at all is refused when it is used.
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

    /// The same update with one more change.
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

/// One change to one attribute; made by [`Attr`](crate::Attr).
///
/// ```
/// let change = tabletheory::Attr::<i64>::new("ttl").remove();
/// assert_eq!(change.name(), "ttl");
/// ```
#[derive(Clone, Debug, PartialEq)]
#[must_use = "it does nothing until it is used in a call"]
pub struct Change {
    pub(crate) name: Cow<'static, str>,
    pub(crate) action: Action,
}

impl Change {
    pub(crate) fn new(name: Cow<'static, str>, action: Action) -> Self {
        Change { name, action }
    }

    /// The attribute that it changes.
    ///
    /// ```
    /// assert_eq!(tabletheory::Attr::<i64>::new("hits").add(1).name(), "hits");
    /// ```
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }
}

#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Action {
    Set(Value),
    SetIfAbsent(Value),
    Append(Vec<Value>),
    Remove,
    Add(Value),
}

/// The update as people read it, with its values in place, for messages and logs.
impl fmt::Display for Update {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let clause = |word: &str, pick: &dyn Fn(&Change) -> Option<String>| {
            let parts: Vec<String> = self.changes.iter().filter_map(pick).collect();
            (!parts.is_empty()).then(|| format!("{word} {}", parts.join(", ")))
        };
        let set = clause("SET", &|Change { name, action }| match action {
            Action::Set(value) => Some(format!("{name} = {value}")),
            Action::SetIfAbsent(value) => Some(format!("{name} = if_not_exists({name}, {value})")),
            Action::Append(values) => {
                Some(format!("{name} = list_append({name}, {})", Value::L(values.clone())))
            }
            Action::Remove | Action::Add(_) => None,
        });
        let remove = clause("REMOVE", &|Change { name, action }| {
            matches!(action, Action::Remove).then(|| name.to_string())
        });
        let add = clause("ADD", &|Change { name, action }| match action {
            Action::Add(value) => Some(format!("{name} {value}")),
            _ => None,
        });
        let clauses: Vec<String> = [set, remove, add].into_iter().flatten().collect();
        f.write_str(&clauses.join(" "))
    }
}
