//! Rows: keys and attributes.

use std::collections::BTreeMap;
use std::fmt;

use crate::error::{Error, Result};
use crate::value::Value;

/// Name of the partition key attribute, in every table.
pub(crate) const PK: &str = "pk";
/// Name of the sort key attribute, in every table.
pub(crate) const SK: &str = "sk";
/// Name of the attribute with the time after which a row may be deleted, in every table.
pub(crate) const TTL: &str = "ttl";

/// The key of a row: its partition key, and its sort key, by whose bytes the rows of a partition are ordered.
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
    /// Creates a key. It is validated when it is used, or by [`check`](Key::check).
    ///
    /// ```
    /// assert_eq!(tabletheory::Key::new("CACHE#1", "META").sk, "META");
    /// ```
    pub fn new(pk: impl Into<String>, sk: impl Into<String>) -> Self {
        Key { pk: pk.into(), sk: sk.into() }
    }

    /// Returns the key of another row in the same partition.
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

/// Displays untrusted text in a message: escaped, and truncated if long.
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

/// The attributes of a row by name. Items that a table returns include `pk` and `sk`.
///
/// ```
/// use tabletheory::{Item, Value};
///
/// let item = Item::from([("etag", Value::from("\"abc\"")), ("version", 3.into())]);
/// assert_eq!(item.get("etag").and_then(Value::as_str), Some("\"abc\""));
/// assert_eq!(item.get("ttl"), None);
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Item {
    attributes: BTreeMap<String, Value>,
    is_damaged: bool,
}

impl Item {
    /// Creates an item without attributes.
    ///
    /// ```
    /// assert!(tabletheory::Item::new().is_empty());
    /// ```
    #[must_use]
    pub fn new() -> Self {
        Item::default()
    }

    /// Returns the value of an attribute, `None` if it is absent.
    ///
    /// ```
    /// assert_eq!(tabletheory::Item::new().get("etag"), None);
    /// ```
    #[must_use]
    pub fn get(&self, name: &str) -> Option<&Value> {
        self.attributes.get(name)
    }

    /// Sets an attribute, replacing any earlier value.
    ///
    /// ```
    /// let mut item = tabletheory::Item::new();
    /// item.set("revalidate_seconds", 60);
    /// assert_eq!(item.len(), 1);
    /// ```
    pub fn set(&mut self, name: impl Into<String>, value: impl Into<Value>) {
        self.attributes.insert(name.into(), value.into());
    }

    /// Removes an attribute and returns its value.
    ///
    /// ```
    /// use tabletheory::{Item, Value};
    ///
    /// let mut item = Item::from([("a", Value::from(1))]);
    /// assert_eq!(item.remove("a"), Some(1.into()));
    /// assert_eq!(item.remove("a"), None);
    /// ```
    pub fn remove(&mut self, name: &str) -> Option<Value> {
        self.attributes.remove(name)
    }

    /// Returns the number of attributes.
    ///
    /// ```
    /// assert_eq!(tabletheory::Item::new().len(), 0);
    /// ```
    #[must_use]
    pub fn len(&self) -> usize {
        self.attributes.len()
    }

    /// Whether there are no attributes.
    ///
    /// ```
    /// assert!(tabletheory::Item::new().is_empty());
    /// ```
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.attributes.is_empty()
    }

    /// Iterates over the attributes, sorted by name.
    ///
    /// ```
    /// use tabletheory::{Item, Value};
    ///
    /// let item = Item::from([("b", Value::from(2)), ("a", 1.into())]);
    /// let names: Vec<_> = item.iter().map(|(name, _)| name).collect();
    /// assert_eq!(names, ["a", "b"]);
    /// ```
    pub fn iter(&self) -> impl Iterator<Item = (&str, &Value)> {
        self.attributes.iter().map(|(name, value)| (name.as_str(), value))
    }

    /// Returns the key of the row, from its attributes `pk` and `sk`.
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

    /// Returns the row that a table returns in place of one that is stored and cannot be read: `pk` and `sk`, and no other
    /// attributes.
    ///
    /// ```
    /// use tabletheory::{Item, Key};
    ///
    /// let row = Item::damaged(&Key::new("CACHE#1", "META"));
    /// assert!(row.is_damaged());
    /// assert_eq!(row.key()?, Key::new("CACHE#1", "META"));
    /// # Ok::<(), tabletheory::Error>(())
    /// ```
    #[must_use]
    pub fn damaged(key: &Key) -> Self {
        Item { is_damaged: true, ..Item::new().with_key(key) }
    }

    /// Whether the row is stored and cannot be read, for example because its checksum does not match.
    ///
    /// In the conditions and updates of a transaction, such a row counts as absent: a put under the condition that there is
    /// no row replaces it, and a condition on any of its attributes refuses. So it can be deleted and overwritten like any
    /// other row. DynamoDB, which evaluates conditions itself, never returns such a row.
    ///
    /// ```
    /// assert!(!tabletheory::Item::new().is_damaged());
    /// ```
    #[must_use]
    pub fn is_damaged(&self) -> bool {
        self.is_damaged
    }

    pub(crate) fn of(attributes: BTreeMap<String, Value>) -> Item {
        Item { attributes, is_damaged: false }
    }

    /// Returns the row after a put of this item, which is whole even if the item was read from a damaged row.
    pub(crate) fn stored_at(&self, key: &Key) -> Item {
        Item::of(self.attributes.clone()).with_key(key)
    }

    /// Sets `pk` and `sk`.
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

impl<N: Into<String>> FromIterator<(N, Value)> for Item {
    fn from_iter<I: IntoIterator<Item = (N, Value)>>(attributes: I) -> Self {
        Item::of(attributes.into_iter().map(|(name, value)| (name.into(), value)).collect())
    }
}
