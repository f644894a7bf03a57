//! Typed attributes: the words from which conditions and updates are made.

use std::borrow::Cow;
use std::fmt;
use std::marker::PhantomData;

use crate::cond::{Comparison, Cond, Test};
use crate::update::{Action, Change};
use crate::value::Value;

/// An attribute by name, with the type that it holds.
///
/// The type keeps `generated_at` from being compared with a string by mistake; the wire does not know it.
///
/// ```
/// use tabletheory::{Attr, Cond};
///
/// const LEASE_TOKEN: Attr<String> = Attr::new("lease_token");
/// const LEASE_EXPIRES_AT: Attr<i64> = Attr::new("lease_expires_at");
///
/// let held: Cond = LEASE_TOKEN.is("t-1").and(LEASE_EXPIRES_AT.gt(1_700_000_000));
/// assert_eq!(held.to_string(), r#"lease_token = "t-1" AND lease_expires_at > 1700000000"#);
/// ```
pub struct Attr<T> {
    name: Cow<'static, str>,
    holds: PhantomData<fn() -> T>,
}

impl<T> Attr<T> {
    /// The attribute of this name; meant for constants.
    ///
    /// ```
    /// const ETAG: tabletheory::Attr<String> = tabletheory::Attr::new("etag");
    /// assert_eq!(ETAG.name(), "etag");
    /// ```
    #[must_use]
    pub const fn new(name: &'static str) -> Self {
        Attr { name: Cow::Borrowed(name), holds: PhantomData }
    }

    /// The attribute of a name that is known only when the program runs.
    ///
    /// ```
    /// let attr = tabletheory::Attr::<String>::named(format!("field_{}", 1));
    /// assert_eq!(attr.name(), "field_1");
    /// ```
    pub fn named(name: impl Into<String>) -> Self {
        Attr { name: Cow::Owned(name.into()), holds: PhantomData }
    }

    /// Its name on the wire.
    ///
    /// ```
    /// assert_eq!(tabletheory::Attr::<i64>::new("ttl").name(), "ttl");
    /// ```
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The same attribute for any value, such as one that [`to_value`](crate::to_value) made of a struct.
    ///
    /// ```
    /// use tabletheory::{Attr, to_value};
    ///
    /// let price = Attr::<f64>::new("price").any();
    /// assert_eq!(price.gt(to_value(&1.5)?).to_string(), "price > 1.5");
    /// # Ok::<(), tabletheory::Error>(())
    /// ```
    #[must_use]
    pub fn any(&self) -> Attr<Value> {
        Attr { name: self.name.clone(), holds: PhantomData }
    }

    fn test(&self, test: Test) -> Cond {
        Cond::test(self.name.clone(), test)
    }

    fn change(&self, action: Action) -> Change {
        Change::new(self.name.clone(), action)
    }

    /// The row has no such attribute; an absent row has none.
    ///
    /// ```
    /// let cond = tabletheory::Attr::<String>::new("pk").absent();
    /// assert_eq!(cond.to_string(), "attribute_not_exists(pk)");
    /// ```
    pub fn absent(&self) -> Cond {
        self.test(Test::Absent)
    }

    /// The row has this attribute, of whatever type.
    ///
    /// ```
    /// let cond = tabletheory::Attr::<String>::new("pk").exists();
    /// assert_eq!(cond.to_string(), "attribute_exists(pk)");
    /// ```
    pub fn exists(&self) -> Cond {
        self.test(Test::Exists)
    }

    /// A string or byte string that starts so.
    ///
    /// ```
    /// let cond = tabletheory::Attr::<String>::new("current_sk").begins_with("VER#");
    /// assert_eq!(cond.to_string(), r#"begins_with(current_sk, "VER#")"#);
    /// ```
    pub fn begins_with(&self, prefix: impl Into<Value>) -> Cond {
        self.test(Test::BeginsWith(prefix.into()))
    }

    /// A string with this part, or a list or set with this member.
    ///
    /// ```
    /// let cond = tabletheory::Attr::<String>::new("tags").contains("news");
    /// assert_eq!(cond.to_string(), r#"contains(tags, "news")"#);
    /// ```
    pub fn contains(&self, part: impl Into<Value>) -> Cond {
        self.test(Test::Contains(part.into()))
    }

    /// Its size: the length of a string or byte string, the number of members of a list, map or set.
    ///
    /// ```
    /// let cond = tabletheory::Attr::<String>::new("etag").size().le(64);
    /// assert_eq!(cond.to_string(), "size(etag) <= 64");
    /// ```
    #[must_use]
    pub fn size(&self) -> Size {
        Size { name: self.name.clone() }
    }

    /// Takes the attribute away, if it is there.
    ///
    /// ```
    /// use tabletheory::{Attr, Update};
    ///
    /// let update = Update::new([Attr::<i64>::new("ttl").remove()]);
    /// assert_eq!(update.to_string(), "REMOVE ttl");
    /// ```
    pub fn remove(&self) -> Change {
        self.change(Action::Remove)
    }

    /// Puts these values at the end of the list, which is made if it is absent.
    ///
    /// ```
    /// use tabletheory::{Attr, Update, Value};
    ///
    /// let update = Update::new([Attr::<Vec<Value>>::new("log").append(["started"])]);
    /// assert_eq!(update.to_string(), r#"SET log = list_append(log, ["started"])"#);
    /// ```
    pub fn append<V: Into<Value>>(&self, values: impl IntoIterator<Item = V>) -> Change {
        self.change(Action::Append(values.into_iter().map(Into::into).collect()))
    }
}

/// The comparisons, which each take a value of the attribute's type.
macro_rules! comparisons {
    ($($(#[$doc:meta])* $method:ident => $comparison:ident),* $(,)?) => {
        impl<T: Into<Value>> Attr<T> {
            $($(#[$doc])*
            pub fn $method(&self, value: impl Into<T>) -> Cond {
                self.test(Test::Compare(Comparison::$comparison, value.into().into()))
            })*
        }

        impl Size {
            $($(#[$doc])*
            pub fn $method(&self, size: u32) -> Cond {
                Cond::test(self.name.clone(), Test::Size(Comparison::$comparison, size))
            })*
        }
    };
}

comparisons! {
    /// Equal; false when it is absent or of another type.
    ///
    /// ```
    /// use tabletheory::Attr;
    ///
    /// assert_eq!(Attr::<i64>::new("n").is(1).to_string(), "n = 1");
    /// assert_eq!(Attr::<String>::new("n").size().is(1).to_string(), "size(n) = 1");
    /// ```
    is => Equal,
    /// Not equal; true when it is absent or of another type.
    ///
    /// ```
    /// use tabletheory::Attr;
    ///
    /// assert_eq!(Attr::<i64>::new("n").is_not(1).to_string(), "n <> 1");
    /// assert_eq!(Attr::<String>::new("n").size().is_not(1).to_string(), "size(n) <> 1");
    /// ```
    is_not => NotEqual,
    /// Less; false when it is absent or of another type.
    ///
    /// ```
    /// use tabletheory::Attr;
    ///
    /// assert_eq!(Attr::<i64>::new("n").lt(1).to_string(), "n < 1");
    /// assert_eq!(Attr::<String>::new("n").size().lt(1).to_string(), "size(n) < 1");
    /// ```
    lt => Less,
    /// Less or equal; false when it is absent or of another type.
    ///
    /// ```
    /// use tabletheory::Attr;
    ///
    /// assert_eq!(Attr::<i64>::new("n").le(1).to_string(), "n <= 1");
    /// assert_eq!(Attr::<String>::new("n").size().le(1).to_string(), "size(n) <= 1");
    /// ```
    le => LessOrEqual,
    /// Greater; false when it is absent or of another type.
    ///
    /// ```
    /// use tabletheory::Attr;
    ///
    /// assert_eq!(Attr::<i64>::new("n").gt(1).to_string(), "n > 1");
    /// assert_eq!(Attr::<String>::new("n").size().gt(1).to_string(), "size(n) > 1");
    /// ```
    gt => Greater,
    /// Greater or equal; false when it is absent or of another type.
    ///
    /// ```
    /// use tabletheory::Attr;
    ///
    /// assert_eq!(Attr::<i64>::new("n").ge(1).to_string(), "n >= 1");
    /// assert_eq!(Attr::<String>::new("n").size().ge(1).to_string(), "size(n) >= 1");
    /// ```
    ge => GreaterOrEqual,
}

impl<T: Into<Value>> Attr<T> {
    /// At least `low` and at most `high`.
    ///
    /// ```
    /// let cond = tabletheory::Attr::<i64>::new("version").between(2, 4);
    /// assert_eq!(cond.to_string(), "version BETWEEN 2 AND 4");
    /// ```
    pub fn between(&self, low: impl Into<T>, high: impl Into<T>) -> Cond {
        self.test(Test::Between(low.into().into(), high.into().into()))
    }

    /// Equal to one of these.
    ///
    /// ```
    /// let cond = tabletheory::Attr::<String>::new("status").is_in(["STARTED", "FAILED"]);
    /// assert_eq!(cond.to_string(), r#"status IN ("STARTED", "FAILED")"#);
    /// ```
    pub fn is_in<V: Into<T>>(&self, values: impl IntoIterator<Item = V>) -> Cond {
        self.test(Test::In(values.into_iter().map(|value| value.into().into()).collect()))
    }

    /// Gives it this value.
    ///
    /// ```
    /// use tabletheory::{Attr, Update};
    ///
    /// let update = Update::new([Attr::<i64>::new("revalidate_seconds").set(0)]);
    /// assert_eq!(update.to_string(), "SET revalidate_seconds = 0");
    /// ```
    pub fn set(&self, value: impl Into<T>) -> Change {
        self.change(Action::Set(value.into().into()))
    }

    /// Gives it this value unless it has one.
    ///
    /// ```
    /// use tabletheory::{Attr, Update};
    ///
    /// let update = Update::new([Attr::<i64>::new("created_at").set_if_absent(5)]);
    /// assert_eq!(update.to_string(), "SET created_at = if_not_exists(created_at, 5)");
    /// ```
    pub fn set_if_absent(&self, value: impl Into<T>) -> Change {
        self.change(Action::SetIfAbsent(value.into().into()))
    }

    /// Adds to a number (absent counts as 0) or to a set (absent counts as empty).
    ///
    /// ```
    /// use tabletheory::{Attr, Update};
    ///
    /// let update = Update::new([Attr::<i64>::new("version").add(1)]);
    /// assert_eq!(update.to_string(), "ADD version 1");
    /// ```
    pub fn add(&self, value: impl Into<T>) -> Change {
        self.change(Action::Add(value.into().into()))
    }
}

impl<T> Clone for Attr<T> {
    fn clone(&self) -> Self {
        Attr { name: self.name.clone(), holds: PhantomData }
    }
}

impl<T> fmt::Debug for Attr<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Attr({})", self.name)
    }
}

/// The size of an attribute, to be compared; made by [`Attr::size`].
///
/// ```
/// let cond = tabletheory::Attr::<String>::new("etag").size().gt(0);
/// assert_eq!(cond.to_string(), "size(etag) > 0");
/// ```
#[derive(Clone, Debug)]
pub struct Size {
    name: Cow<'static, str>,
}

/// What an attribute holds whose form only a `with` module of its model knows: it can be asked for and removed,
/// and [`Attr::any`] takes values in that form.
///
/// ```
/// let attr = tabletheory::Attr::<tabletheory::Encoded>::new("blob");
/// assert_eq!(attr.exists().to_string(), "attribute_exists(blob)");
/// ```
#[derive(Clone, Copy, Debug)]
pub enum Encoded {}
