//! The values of attributes.

use std::collections::BTreeMap;
use std::fmt;

use crate::error::{Result, ensure};
use crate::number::Number;

/// The value of an attribute, of one of DynamoDB's ten types.
///
/// ```
/// use tabletheory::Value;
///
/// let value = Value::from("text/html");
/// assert_eq!(value, Value::S("text/html".into()));
/// assert_eq!(Value::from(60), Value::N(60.into()));
/// ```
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Value {
    /// A string, which may be empty.
    S(String),
    /// An exact decimal.
    N(Number),
    /// Bytes, which may be empty.
    B(Vec<u8>),
    /// True or false.
    Bool(bool),
    /// The null value, which differs from an absent attribute.
    Null,
    /// A list of values of any type.
    L(Vec<Value>),
    /// A map of values of any type.
    M(BTreeMap<String, Value>),
    /// A set of strings.
    Ss(Set<String>),
    /// A set of numbers.
    Ns(Set<Number>),
    /// A set of byte strings.
    Bs(Set<Vec<u8>>),
}

impl Value {
    /// Returns DynamoDB's name of the type, as in `{"S": "…"}`.
    ///
    /// ```
    /// assert_eq!(tabletheory::Value::from(true).type_name(), "BOOL");
    /// ```
    #[must_use]
    pub fn type_name(&self) -> &'static str {
        match self {
            Value::S(_) => "S",
            Value::N(_) => "N",
            Value::B(_) => "B",
            Value::Bool(_) => "BOOL",
            Value::Null => "NULL",
            Value::L(_) => "L",
            Value::M(_) => "M",
            Value::Ss(_) => "SS",
            Value::Ns(_) => "NS",
            Value::Bs(_) => "BS",
        }
    }

    /// Returns the text of a string, `None` for other types.
    ///
    /// ```
    /// assert_eq!(tabletheory::Value::from("a").as_str(), Some("a"));
    /// assert_eq!(tabletheory::Value::from(1).as_str(), None);
    /// ```
    #[must_use]
    pub fn as_str(&self) -> Option<&str> {
        match self {
            Value::S(text) => Some(text),
            _ => None,
        }
    }

    /// Returns the number of a value of type `N`, `None` for other types.
    ///
    /// ```
    /// use tabletheory::{Number, Value};
    ///
    /// assert_eq!(Value::from(7).as_number(), Some(&Number::from(7)));
    /// ```
    #[must_use]
    pub fn as_number(&self) -> Option<&Number> {
        match self {
            Value::N(number) => Some(number),
            _ => None,
        }
    }

    /// Returns the number as an `i64`, `None` if it is not a whole number that fits, or not a number at all.
    ///
    /// ```
    /// use tabletheory::Value;
    ///
    /// assert_eq!(Value::from(1_700_000_000).as_i64(), Some(1_700_000_000));
    /// assert_eq!(Value::N("1.5".parse()?).as_i64(), None);
    /// # Ok::<(), tabletheory::Error>(())
    /// ```
    #[must_use]
    pub fn as_i64(&self) -> Option<i64> {
        i64::try_from(self.as_number()?).ok()
    }
}

/// A set of distinct members, never empty, as in DynamoDB.
///
/// ```
/// use tabletheory::{Set, Value};
///
/// let tags = Set::new(["news".to_string(), "sport".to_string()])?;
/// assert_eq!(Value::from(tags.clone()), Value::Ss(tags));
/// assert!(Set::new(["a".to_string(), "a".to_string()]).is_err());
/// assert!(Set::<String>::new([]).is_err());
/// # Ok::<(), tabletheory::Error>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Set<T>(
    /// Sorted, so that equality does not depend on the order of insertion.
    Vec<T>,
);

impl<T: Ord> Set<T> {
    /// Creates a set of these members. It is an error if there are none, or if one occurs twice.
    ///
    /// ```
    /// use tabletheory::Set;
    ///
    /// assert_eq!(Set::new([2, 1])?, Set::new([1, 2])?);
    /// # Ok::<(), tabletheory::Error>(())
    /// ```
    pub fn new(members: impl IntoIterator<Item = T>) -> Result<Self> {
        let mut members: Vec<T> = members.into_iter().collect();
        ensure!(!members.is_empty(), "a set is empty; leave the attribute out instead");
        members.sort_unstable();
        ensure!(members.windows(2).all(|pair| pair[0] != pair[1]), "a set has the same member twice");
        Ok(Set(members))
    }

    /// Whether the set contains this member.
    ///
    /// ```
    /// assert!(tabletheory::Set::new([1, 2])?.contains(&2));
    /// # Ok::<(), tabletheory::Error>(())
    /// ```
    pub fn contains(&self, member: &T) -> bool {
        self.0.binary_search(member).is_ok()
    }

    /// Returns the members, smallest first.
    ///
    /// ```
    /// assert_eq!(tabletheory::Set::new([2, 1])?.members(), [1, 2]);
    /// # Ok::<(), tabletheory::Error>(())
    /// ```
    pub fn members(&self) -> &[T] {
        &self.0
    }

    /// Returns all members of both sets.
    pub(crate) fn union(&self, other: &Set<T>) -> Set<T>
    where
        T: Clone,
    {
        let mut members = self.0.clone();
        members.extend(other.0.iter().filter(|member| !self.contains(member)).cloned());
        members.sort_unstable();
        Set(members)
    }
}

impl<T> IntoIterator for Set<T> {
    type Item = T;
    type IntoIter = std::vec::IntoIter<T>;

    fn into_iter(self) -> Self::IntoIter {
        self.0.into_iter()
    }
}

macro_rules! from {
    ($($source:ty => |$name:ident| $value:expr),* $(,)?) => {$(
        impl From<$source> for Value {
            fn from($name: $source) -> Self {
                $value
            }
        }
    )*};
}

from! {
    &str => |text| Value::S(text.to_owned()),
    String => |text| Value::S(text),
    Number => |number| Value::N(number),
    bool => |flag| Value::Bool(flag),
    Vec<u8> => |bytes| Value::B(bytes),
    Vec<Value> => |values| Value::L(values),
    Vec<String> => |texts| Value::L(texts.into_iter().map(Value::S).collect()),
    BTreeMap<String, Value> => |map| Value::M(map),
    Set<String> => |set| Value::Ss(set),
    Set<Number> => |set| Value::Ns(set),
    Set<Vec<u8>> => |set| Value::Bs(set),
}

/// Human-readable form for messages and logs; byte strings show only their length.
impl fmt::Display for Value {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Value::S(text) => write!(f, "{text:?}"),
            Value::N(number) => write!(f, "{number}"),
            Value::B(bytes) => write!(f, "<{} bytes>", bytes.len()),
            Value::Bool(flag) => write!(f, "{flag}"),
            Value::Null => f.write_str("null"),
            Value::L(values) => f.debug_list().entries(values.iter().map(DebugAsDisplay)).finish(),
            Value::M(map) => {
                f.debug_map().entries(map.iter().map(|(name, value)| (name, DebugAsDisplay(value)))).finish()
            }
            Value::Ss(set) => f.debug_set().entries(set.members()).finish(),
            Value::Ns(set) => f.debug_set().entries(set.members()).finish(),
            Value::Bs(set) => write!(f, "<{} byte strings>", set.members().len()),
        }
    }
}

/// Makes the list and map formatters of the standard library use `Display`.
struct DebugAsDisplay<'a>(&'a Value);

impl fmt::Debug for DebugAsDisplay<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self.0, f)
    }
}
