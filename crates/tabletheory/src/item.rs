//! A row: its key and its attributes.

use std::collections::BTreeMap;
use std::fmt;

use crate::error::{Error, Result};
use crate::value::Value;

/// The attribute that holds the partition key, in every table.
pub(crate) const PK: &str = "pk";
/// The attribute that holds the sort key, in every table.
pub(crate) const SK: &str = "sk";
/// The attribute that holds the time after which a row may be collected, in every table.
pub(crate) const TTL: &str = "ttl";

/// Where a row lives: its partition, and its place in the partition's order (by bytes).
///
/// ```
/// use tabletheory::Key;
///
/// let meta = Key::new("CACHE#1", "META");
/// assert_eq!(meta.sibling("LOCK"), Key::new("CACHE#1", "LOCK"));
/// assert_eq!(meta.to_string(), "META of CACHE#1");
/// ```
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Key {
    /// The partition key.
    pub pk: String,
    /// The sort key.
    pub sk: String,
}

impl Key {
    /// The key of these two parts; what is wrong with them is said when it is used.
    ///
    /// ```
    /// assert_eq!(tabletheory::Key::new("CACHE#1", "META").sk, "META");
    /// ```
    pub fn new(pk: impl Into<String>, sk: impl Into<String>) -> Self {
        Key { pk: pk.into(), sk: sk.into() }
    }

    /// Another row of the same partition.
    ///
    /// ```
    /// use tabletheory::Key;
    ///
    /// assert_eq!(Key::new("CACHE#1", "META").sibling("LOCK").pk, "CACHE#1");
    /// ```
    #[must_use]
    pub fn sibling(&self, sk: impl Into<String>) -> Key {
        Key::new(self.pk.clone(), sk)
    }
}

impl fmt::Display for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} of {}", Excerpt(&self.sk), Excerpt(&self.pk))
    }
}

/// A text from outside, cut to a length that fits in a message.
pub(crate) struct Excerpt<'a>(pub(crate) &'a str);

impl fmt::Display for Excerpt<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        const MOST: usize = 80;
        match self.0.char_indices().nth(MOST) {
            Some((end, _)) => write!(f, "{}…", self.0[..end].escape_debug()),
            None => write!(f, "{}", self.0.escape_debug()),
        }
    }
}

/// The attributes of a row, by name; an item that was read has its `pk` and `sk` among them.
///
/// ```
/// use tabletheory::{Item, Value};
///
/// let item = Item::from([("etag", Value::from("\"abc\"")), ("version", 3.into())]);
/// assert_eq!(item.get("etag").and_then(Value::as_str), Some("\"abc\""));
/// assert_eq!(item.get("ttl"), None);
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Item(BTreeMap<String, Value>);

impl Item {
    /// An item without attributes.
    ///
    /// ```
    /// assert!(tabletheory::Item::new().is_empty());
    /// ```
    #[must_use]
    pub fn new() -> Self {
        Item::default()
    }

    /// The value of an attribute; an absent attribute has none.
    ///
    /// ```
    /// assert_eq!(tabletheory::Item::new().get("etag"), None);
    /// ```
    #[must_use]
    pub fn get(&self, name: &str) -> Option<&Value> {
        self.0.get(name)
    }

    /// Gives an attribute a value, whatever it had before.
    ///
    /// ```
    /// let mut item = tabletheory::Item::new();
    /// item.set("revalidate_seconds", 60);
    /// assert_eq!(item.len(), 1);
    /// ```
    pub fn set(&mut self, name: impl Into<String>, value: impl Into<Value>) {
        self.0.insert(name.into(), value.into());
    }

    /// Takes an attribute away and returns what it had.
    ///
    /// ```
    /// use tabletheory::{Item, Value};
    ///
    /// let mut item = Item::from([("a", Value::from(1))]);
    /// assert_eq!(item.remove("a"), Some(1.into()));
    /// assert_eq!(item.remove("a"), None);
    /// ```
    pub fn remove(&mut self, name: &str) -> Option<Value> {
        self.0.remove(name)
    }

    /// How many attributes it has.
    ///
    /// ```
    /// assert_eq!(tabletheory::Item::new().len(), 0);
    /// ```
    #[must_use]
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Whether it has no attribute at all.
    ///
    /// ```
    /// assert!(tabletheory::Item::new().is_empty());
    /// ```
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Its attributes, in the order of their names.
    ///
    /// ```
    /// use tabletheory::{Item, Value};
    ///
    /// let item = Item::from([("b", Value::from(2)), ("a", 1.into())]);
    /// let names: Vec<_> = item.iter().map(|(name, _)| name).collect();
    /// assert_eq!(names, ["a", "b"]);
    /// ```
    pub fn iter(&self) -> impl Iterator<Item = (&str, &Value)> {
        self.0.iter().map(|(name, value)| (name.as_str(), value))
    }

    /// Where the row lives, from its `pk` and `sk`.
    ///
    /// ```
    /// use tabletheory::{Item, Key, Value};
    ///
    /// let item = Item::from([("pk", Value::from("CACHE#1")), ("sk", "META".into())]);
    /// assert_eq!(item.key()?, Key::new("CACHE#1", "META"));
    /// assert!(Item::new().key().is_err());
    /// # Ok::<(), tabletheory::Error>(())
    /// ```
    pub fn key(&self) -> Result<Key> {
        let part = |name: &str| match self.get(name) {
            Some(Value::S(text)) => Ok(text.clone()),
            Some(other) => Err(Error::invalid(format!(
                "the key attribute `{name}` is of type {}; it must be S",
                other.type_name()
            ))),
            None => Err(Error::invalid(format!("the item has no `{name}`"))),
        };
        Ok(Key { pk: part(PK)?, sk: part(SK)? })
    }

    /// The same item with its key among the attributes.
    pub(crate) fn with_key(mut self, key: &Key) -> Item {
        self.set(PK, key.pk.as_str());
        self.set(SK, key.sk.as_str());
        self
    }
}

impl<N: Into<String>, const LENGTH: usize> From<[(N, Value); LENGTH]> for Item {
    fn from(attributes: [(N, Value); LENGTH]) -> Self {
        attributes.into_iter().collect()
    }
}

impl From<BTreeMap<String, Value>> for Item {
    fn from(attributes: BTreeMap<String, Value>) -> Self {
        Item(attributes)
    }
}

impl<N: Into<String>> FromIterator<(N, Value)> for Item {
    fn from_iter<I: IntoIterator<Item = (N, Value)>>(attributes: I) -> Self {
        Item(attributes.into_iter().map(|(name, value)| (name.into(), value)).collect())
    }
}

impl IntoIterator for Item {
    type Item = (String, Value);
    type IntoIter = std::collections::btree_map::IntoIter<String, Value>;

    fn into_iter(self) -> Self::IntoIter {
        self.0.into_iter()
    }
}
