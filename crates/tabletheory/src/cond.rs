//! Conditions: trees of tests on a row's attributes.

use std::borrow::Cow;
use std::fmt;
use std::ops::Not;

use crate::value::Value;

/// When a write may happen: a tree of tests on the row as it is before the write.
///
/// Tests come from [`Attr`](crate::Attr). With a missing attribute or one of another type every
/// test is false (so its negation is true), except [`is_not`](crate::Attr::is_not), which is true.
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
#[derive(Clone, Debug, PartialEq)]
#[must_use = "it does nothing until it is used in a call"]
pub struct Cond(pub(crate) Node);

#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Node {
    Test { name: Cow<'static, str>, test: Test },
    All(Vec<Cond>),
    Any(Vec<Cond>),
    Not(Box<Cond>),
}

#[derive(Clone, Debug, PartialEq)]
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

impl Test {
    /// The values that it compares with.
    pub(crate) fn values(&self) -> impl Iterator<Item = &Value> {
        let (pair, list): ([Option<&Value>; 2], &[Value]) = match self {
            Test::Absent | Test::Exists | Test::Size(..) => ([None, None], &[]),
            Test::Compare(_, value) | Test::BeginsWith(value) | Test::Contains(value) => {
                ([Some(value), None], &[])
            }
            Test::Between(low, high) => ([Some(low), Some(high)], &[]),
            Test::In(values) => ([None, None], values),
        };
        pair.into_iter().flatten().chain(list)
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
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

    /// All of these hold. Of none at all is refused when it is used.
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

    /// At least one of these holds. Of none at all is refused when it is used.
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

    /// Both hold.
    ///
    /// ```
    /// use tabletheory::Attr;
    ///
    /// let cond = Attr::<i64>::new("a").gt(1).and(Attr::<i64>::new("a").lt(9));
    /// assert_eq!(cond.to_string(), "a > 1 AND a < 9");
    /// ```
    pub fn and(self, other: Cond) -> Cond {
        match self.0 {
            Node::All(mut conds) => {
                conds.push(other);
                Cond(Node::All(conds))
            }
            node => Cond::all([Cond(node), other]),
        }
    }

    /// At least one of the two holds.
    ///
    /// ```
    /// use tabletheory::Attr;
    ///
    /// let cond = Attr::<i64>::new("a").absent().or(Attr::<i64>::new("a").lt(9));
    /// assert_eq!(cond.to_string(), "attribute_not_exists(a) OR a < 9");
    /// ```
    pub fn or(self, other: Cond) -> Cond {
        match self.0 {
            Node::Any(mut conds) => {
                conds.push(other);
                Cond(Node::Any(conds))
            }
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

/// The condition as people read it, with its values in place, for messages and logs.
impl fmt::Display for Cond {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.0 {
            Node::Test { name, test } => write_test(f, name, test),
            Node::All(conds) => join(f, conds, " AND "),
            Node::Any(conds) => join(f, conds, " OR "),
            Node::Not(cond) => write!(f, "NOT ({cond})"),
        }
    }
}

fn join(f: &mut fmt::Formatter<'_>, conds: &[Cond], word: &str) -> fmt::Result {
    for (index, cond) in conds.iter().enumerate() {
        if index > 0 {
            f.write_str(word)?;
        }
        match cond.0 {
            Node::All(_) | Node::Any(_) => write!(f, "({cond})")?,
            Node::Test { .. } | Node::Not(_) => write!(f, "{cond}")?,
        }
    }
    Ok(())
}

fn write_test(f: &mut fmt::Formatter<'_>, name: &str, test: &Test) -> fmt::Result {
    match test {
        Test::Absent => write!(f, "attribute_not_exists({name})"),
        Test::Exists => write!(f, "attribute_exists({name})"),
        Test::Compare(comparison, value) => write!(f, "{name} {} {value}", comparison.symbol()),
        Test::Between(low, high) => write!(f, "{name} BETWEEN {low} AND {high}"),
        Test::In(values) => {
            let values: Vec<String> = values.iter().map(ToString::to_string).collect();
            write!(f, "{name} IN ({})", values.join(", "))
        }
        Test::BeginsWith(prefix) => write!(f, "begins_with({name}, {prefix})"),
        Test::Contains(part) => write!(f, "contains({name}, {part})"),
        Test::Size(comparison, size) => write!(f, "size({name}) {} {size}", comparison.symbol()),
    }
}
