//! Typed attributes, from which conditions and updates are built.

use std::borrow::Cow;
use std::marker::PhantomData;

use crate::cond::{Comparison, Cond, Test};
use crate::update::{Action, Change};
use crate::value::Value;

/// The name of an attribute, with the Rust type of its value.
///
/// The type prevents mistakes such as comparing `generated_at` with a string. It is not stored.
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
#[derive(Clone, Debug)]
pub struct Attr<T> {
    name: Cow<'static, str>,
    value_type: PhantomData<fn() -> T>,
}

impl<T> Attr<T> {
    /// Creates an attribute with a static name; meant for constants.
    ///
    /// ```
    /// const ETAG: tabletheory::Attr<String> = tabletheory::Attr::new("etag");
    /// assert_eq!(ETAG.name(), "etag");
    /// ```
    #[must_use]
    pub const fn new(name: &'static str) -> Self {
        Attr { name: Cow::Borrowed(name), value_type: PhantomData }
    }

    /// Creates an attribute whose name is known only at run time.
    ///
    /// ```
    /// let attr = tabletheory::Attr::<String>::named(format!("field_{}", 1));
    /// assert_eq!(attr.name(), "field_1");
    /// ```
    pub fn named(name: impl Into<String>) -> Self {
        Attr { name: Cow::Owned(name.into()), value_type: PhantomData }
    }

    /// Returns the attribute's name as stored.
    ///
    /// ```
    /// assert_eq!(tabletheory::Attr::<i64>::new("ttl").name(), "ttl");
    /// ```
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Returns this attribute untyped, for any [`Value`], such as the [`to_value`](crate::to_value) of a struct.
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
        Attr { name: self.name.clone(), value_type: PhantomData }
    }

    fn test(&self, test: Test) -> Cond {
        Cond::test(self.name.clone(), test)
    }

    fn change(&self, action: Action) -> Change {
        Change { name: self.name.clone(), action }
    }

    /// True if the row lacks this attribute, or if there is no row.
    ///
    /// ```
    /// let cond = tabletheory::Attr::<String>::new("pk").absent();
    /// assert_eq!(cond.to_string(), "attribute_not_exists(pk)");
    /// ```
    pub fn absent(&self) -> Cond {
        self.test(Test::Absent)
    }

    /// True if the row has this attribute, with any type.
    ///
    /// ```
    /// let cond = tabletheory::Attr::<String>::new("pk").exists();
    /// assert_eq!(cond.to_string(), "attribute_exists(pk)");
    /// ```
    pub fn exists(&self) -> Cond {
        self.test(Test::Exists)
    }

    /// True if the value is a string or byte string with this prefix.
    ///
    /// ```
    /// let cond = tabletheory::Attr::<String>::new("current_sk").begins_with("VER#");
    /// assert_eq!(cond.to_string(), r#"begins_with(current_sk, "VER#")"#);
    /// ```
    pub fn begins_with(&self, prefix: impl Into<Value>) -> Cond {
        self.test(Test::BeginsWith(prefix.into()))
    }

    /// True if the value is a string with this substring, or a list or set with this member.
    ///
    /// ```
    /// let cond = tabletheory::Attr::<String>::new("tags").contains("news");
    /// assert_eq!(cond.to_string(), r#"contains(tags, "news")"#);
    /// ```
    pub fn contains(&self, part: impl Into<Value>) -> Cond {
        self.test(Test::Contains(part.into()))
    }

    /// Returns the size for a comparison: the length of a string or byte string, the number of members of a list, map or set.
    ///
    /// ```
    /// let cond = tabletheory::Attr::<String>::new("etag").size().le(64);
    /// assert_eq!(cond.to_string(), "size(etag) <= 64");
    /// ```
    #[must_use]
    pub fn size(&self) -> Size {
        Size { name: self.name.clone() }
    }

    /// Removes the attribute, if present.
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

    /// Appends these values to the list, which is created if absent.
    ///
    /// ```
    /// use tabletheory::{Attr, Update, Value};
    ///
    /// let update = Update::new([Attr::<Vec<Value>>::new("log").append(["started"])]);
    /// assert_eq!(update.to_string(), r#"SET log = list_append(if_not_exists(log,[]),["started"])"#);
    /// ```
    pub fn append<V: Into<Value>>(&self, values: impl IntoIterator<Item = V>) -> Change {
        self.change(Action::Append(values.into_iter().map(Into::into).collect()))
    }
}

/// Defines each comparison for attributes and for their sizes.
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
    /// True if the value is equal; false if it is absent or of another type.
    ///
    /// ```
    /// use tabletheory::Attr;
    ///
    /// assert_eq!(Attr::<i64>::new("n").is(1).to_string(), "n = 1");
    /// assert_eq!(Attr::<String>::new("n").size().is(1).to_string(), "size(n) = 1");
    /// ```
    is => Equal,
    /// True if the value is not equal, also if it is absent or of another type.
    ///
    /// ```
    /// use tabletheory::Attr;
    ///
    /// assert_eq!(Attr::<i64>::new("n").is_not(1).to_string(), "n <> 1");
    /// assert_eq!(Attr::<String>::new("n").size().is_not(1).to_string(), "size(n) <> 1");
    /// ```
    is_not => NotEqual,
    /// True if the value is less; false if it is absent or of another type.
    ///
    /// ```
    /// use tabletheory::Attr;
    ///
    /// assert_eq!(Attr::<i64>::new("n").lt(1).to_string(), "n < 1");
    /// assert_eq!(Attr::<String>::new("n").size().lt(1).to_string(), "size(n) < 1");
    /// ```
    lt => Less,
    /// True if the value is less or equal; false if it is absent or of another type.
    ///
    /// ```
    /// use tabletheory::Attr;
    ///
    /// assert_eq!(Attr::<i64>::new("n").le(1).to_string(), "n <= 1");
    /// assert_eq!(Attr::<String>::new("n").size().le(1).to_string(), "size(n) <= 1");
    /// ```
    le => LessOrEqual,
    /// True if the value is greater; false if it is absent or of another type.
    ///
    /// ```
    /// use tabletheory::Attr;
    ///
    /// assert_eq!(Attr::<i64>::new("n").gt(1).to_string(), "n > 1");
    /// assert_eq!(Attr::<String>::new("n").size().gt(1).to_string(), "size(n) > 1");
    /// ```
    gt => Greater,
    /// True if the value is greater or equal; false if it is absent or of another type.
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
    /// True if the value is at least `low` and at most `high`.
    ///
    /// ```
    /// let cond = tabletheory::Attr::<i64>::new("version").between(2, 4);
    /// assert_eq!(cond.to_string(), "version BETWEEN 2 AND 4");
    /// ```
    pub fn between(&self, low: impl Into<T>, high: impl Into<T>) -> Cond {
        self.test(Test::Between(low.into().into(), high.into().into()))
    }

    /// True if the value equals one of these.
    ///
    /// ```
    /// let cond = tabletheory::Attr::<String>::new("status").is_in(["STARTED", "FAILED"]);
    /// assert_eq!(cond.to_string(), r#"status IN ("STARTED", "FAILED")"#);
    /// ```
    pub fn is_in<V: Into<T>>(&self, values: impl IntoIterator<Item = V>) -> Cond {
        self.test(Test::In(values.into_iter().map(|value| value.into().into()).collect()))
    }

    /// Sets the attribute to this value.
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

    /// Sets the attribute to this value if it is absent.
    ///
    /// ```
    /// use tabletheory::{Attr, Update};
    ///
    /// let update = Update::new([Attr::<i64>::new("created_at").set_if_absent(5)]);
    /// assert_eq!(update.to_string(), "SET created_at = if_not_exists(created_at,5)");
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

/// The size of an attribute's value, for comparisons; created by [`Attr::size`].
///
/// ```
/// let cond = tabletheory::Attr::<String>::new("etag").size().gt(0);
/// assert_eq!(cond.to_string(), "size(etag) > 0");
/// ```
#[derive(Clone, Debug)]
pub struct Size {
    name: Cow<'static, str>,
}

/// The type of an attribute whose stored form is defined by a `with` module of its model.
///
/// Such an attribute can be tested for existence and removed; [`Attr::any`] takes values in the stored form.
///
/// ```
/// let attr = tabletheory::Attr::<tabletheory::Encoded>::new("blob");
/// assert_eq!(attr.exists().to_string(), "attribute_exists(blob)");
/// ```
#[derive(Clone, Copy, Debug)]
pub enum Encoded {}
