//! Conditions on the attributes of a row.

use std::borrow::Cow;
use std::fmt;
use std::ops::Not;

use crate::expression::{self, Literal};
use crate::value::Value;

/// A condition for a write: a tree of tests on the row as it is before the write.
///
/// Tests are created by [`Attr`](crate::Attr). On a missing attribute or one of another type every test is false (so its
/// negation is true), except [`is_not`](crate::Attr::is_not), which is true.
///
/// ```
/// use tabletheory::Attr;
///
/// const PK: Attr<String> = Attr::new("pk");
/// const EXPIRES: Attr<i64> = Attr::new("lease_expires_at");
///
/// let free = PK.absent().or(EXPIRES.le(1_700_000_000));
/// assert_eq!(free.to_string(), "attribute_not_exists(pk) OR lease_expires_at <= 1700000000");
/// assert_eq!((!free).to_string(), "NOT (attribute_not_exists(pk) OR lease_expires_at <= 1700000000)");
/// ```
#[derive(Clone, Debug, PartialEq, Hash)]
#[must_use = "a condition has no effect until it is used in a write"]
pub struct Cond(pub(crate) Node);

#[derive(Clone, Debug, PartialEq, Hash)]
pub(crate) enum Node {
    Test { name: Cow<'static, str>, test: Test },
    All(Vec<Cond>),
    Any(Vec<Cond>),
    Not(Box<Cond>),
}

#[derive(Clone, Debug, PartialEq, Hash)]
pub(crate) enum Test {
    Absent,
    Exists,
    Compare(Comparison, Value),
    Between(Value, Value),
    In(Vec<Value>),
    BeginsWith(Value),
    Contains(Value),
    Size(Comparison, u32),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Comparison {
    Equal,
    NotEqual,
    Less,
    LessOrEqual,
    Greater,
    GreaterOrEqual,
}

impl Comparison {
    pub(crate) fn symbol(self) -> &'static str {
        match self {
            Comparison::Equal => "=",
            Comparison::NotEqual => "<>",
            Comparison::Less => "<",
            Comparison::LessOrEqual => "<=",
            Comparison::Greater => ">",
            Comparison::GreaterOrEqual => ">=",
        }
    }
}

impl Cond {
    pub(crate) fn test(name: Cow<'static, str>, test: Test) -> Cond {
        Cond(Node::Test { name, test })
    }

    /// True if all of these are true. An empty list is rejected on commit.
    ///
    /// ```
    /// use tabletheory::{Attr, Cond};
    ///
    /// let both = Cond::all([Attr::<i64>::new("a").is(1), Attr::<i64>::new("b").is(2)]);
    /// assert_eq!(both.to_string(), "a = 1 AND b = 2");
    /// ```
    pub fn all(conds: impl IntoIterator<Item = Cond>) -> Cond {
        Cond(Node::All(conds.into_iter().collect()))
    }

    /// True if at least one of these is true. An empty list is rejected on commit.
    ///
    /// ```
    /// use tabletheory::{Attr, Cond};
    ///
    /// let either = Cond::any([Attr::<i64>::new("a").is(1), Attr::<i64>::new("b").is(2)]);
    /// assert_eq!(either.to_string(), "a = 1 OR b = 2");
    /// ```
    pub fn any(conds: impl IntoIterator<Item = Cond>) -> Cond {
        Cond(Node::Any(conds.into_iter().collect()))
    }

    /// True if both conditions are true.
    ///
    /// ```
    /// use tabletheory::Attr;
    ///
    /// let cond = Attr::<i64>::new("a").gt(1).and(Attr::<i64>::new("a").lt(9));
    /// assert_eq!(cond.to_string(), "a > 1 AND a < 9");
    /// ```
    pub fn and(self, other: Cond) -> Cond {
        match self.0 {
            Node::All(conds) => Cond::all(conds.into_iter().chain([other])),
            node => Cond::all([Cond(node), other]),
        }
    }

    /// True if at least one of the two conditions is true.
    ///
    /// ```
    /// use tabletheory::Attr;
    ///
    /// let cond = Attr::<i64>::new("a").absent().or(Attr::<i64>::new("a").lt(9));
    /// assert_eq!(cond.to_string(), "attribute_not_exists(a) OR a < 9");
    /// ```
    pub fn or(self, other: Cond) -> Cond {
        match self.0 {
            Node::Any(conds) => Cond::any(conds.into_iter().chain([other])),
            node => Cond::any([Cond(node), other]),
        }
    }
}

impl Not for Cond {
    type Output = Cond;

    fn not(self) -> Cond {
        Cond(Node::Not(Box::new(self)))
    }
}

/// Human-readable form, with literal values, for messages and logs.
impl fmt::Display for Cond {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&expression::of_cond(self, &mut Literal))
    }
}
