//! Items as DynamoDB-JSON: `{"etag": {"S": "…"}, "version": {"N": "3"}}`.
//!
//! SQLite files store rows in this form, so that the `sqlite3` tool can query them, and test vectors are written in it.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::fmt;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde::de::{self, MapAccess, Visitor};
use serde::ser::SerializeMap;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use crate::error::{Error, Result};
use crate::item::{Excerpt, Item};
use crate::number::Number;
use crate::value::{Set, Value};

impl Item {
    /// Returns the item as DynamoDB-JSON, with attributes sorted by name.
    ///
    /// ```
    /// use tabletheory::{Item, Value};
    ///
    /// let item = Item::from([("version", Value::from(3)), ("etag", "\"a\"".into())]);
    /// assert_eq!(item.to_json(), r#"{"etag":{"S":"\"a\""},"version":{"N":"3"}}"#);
    /// ```
    #[must_use]
    pub fn to_json(&self) -> String {
        encode(self.iter())
    }

    /// Parses an item from DynamoDB-JSON.
    ///
    /// ```
    /// use tabletheory::Item;
    ///
    /// let item = Item::from_json(r#"{"version": {"N": "3.0"}}"#)?;
    /// assert_eq!(item.get("version"), Some(&3.into()));
    /// assert!(Item::from_json(r#"{"version": {"N": "three"}}"#).is_err());
    /// # Ok::<(), tabletheory::Error>(())
    /// ```
    pub fn from_json(text: &str) -> Result<Item> {
        let Attributes(attributes) = serde_json::from_str(text)
            .map_err(|cause| Error::invalid("invalid DynamoDB-JSON of an item").caused_by(cause))?;
        Ok(Item::of(attributes))
    }

    /// Like [`to_json`](Item::to_json), without `pk` and `sk`, which have columns of their own.
    #[cfg(feature = "sqlite")]
    pub(crate) fn to_json_without_key(&self) -> String {
        use crate::item::{PK, SK};
        encode(self.iter().filter(|(name, _)| *name != PK && *name != SK))
    }
}

fn encode<'i>(attributes: impl Iterator<Item = (&'i str, &'i Value)>) -> String {
    let mut text = Vec::with_capacity(256);
    let mut serializer = serde_json::Serializer::new(&mut text);
    let written = serializer.collect_map(attributes.map(|(name, value)| (name, Tagged(value))));
    debug_assert!(written.is_ok(), "strings, maps and lists always have a JSON form");
    String::from_utf8(text).unwrap_or_default()
}

/// Serializes a value under the name of its type.
struct Tagged<'a>(&'a Value);

impl Serialize for Tagged<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut tagged = serializer.serialize_map(Some(1))?;
        let tag = self.0.type_name();
        match self.0 {
            Value::S(text) => tagged.serialize_entry(tag, text)?,
            Value::N(number) => tagged.serialize_entry(tag, &NumberText(number))?,
            Value::B(bytes) => tagged.serialize_entry(tag, &STANDARD.encode(bytes))?,
            Value::Bool(flag) => tagged.serialize_entry(tag, flag)?,
            Value::Null => tagged.serialize_entry(tag, &true)?,
            Value::L(values) => tagged.serialize_entry(tag, &collect(values, Tagged))?,
            Value::M(map) => {
                let members: BTreeMap<&str, Tagged<'_>> =
                    map.iter().map(|(name, value)| (name.as_str(), Tagged(value))).collect();
                tagged.serialize_entry(tag, &members)?;
            }
            Value::Ss(set) => tagged.serialize_entry(tag, set.members())?,
            Value::Ns(set) => tagged.serialize_entry(tag, &collect(set.members(), NumberText))?,
            Value::Bs(set) => {
                tagged.serialize_entry(tag, &collect(set.members(), |bytes| STANDARD.encode(bytes)))?;
            }
        }
        tagged.end()
    }
}

struct NumberText<'a>(&'a Number);

impl Serialize for NumberText<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self.0)
    }
}

fn collect<'v, T, U>(members: &'v [T], map: impl Fn(&'v T) -> U) -> Vec<U> {
    members.iter().map(map).collect()
}

/// The attributes of an item or the members of a map.
struct Attributes(BTreeMap<String, Value>);

impl<'de> Deserialize<'de> for Attributes {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_map(AttributesVisitor).map(Attributes)
    }
}

struct AttributesVisitor;

impl<'de> Visitor<'de> for AttributesVisitor {
    type Value = BTreeMap<String, Value>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a map of attribute names to values")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut members: A) -> Result<Self::Value, A::Error> {
        let mut attributes = Self::Value::new();
        while let Some((name, value)) = members.next_entry::<String, Parsed<'_>>()? {
            let value = value.into_value().map_err(de::Error::custom)?;
            match attributes.entry(name) {
                Entry::Vacant(vacant) => {
                    vacant.insert(value);
                }
                Entry::Occupied(occupied) => {
                    let name = Excerpt(occupied.key());
                    return Err(de::Error::custom(format_args!("duplicate attribute `{name}`")));
                }
            }
        }
        Ok(attributes)
    }
}

/// A value as it appears in DynamoDB-JSON, which is how serde represents an enum. Numbers are text, bytes are base 64.
#[derive(Deserialize)]
#[serde(rename_all = "UPPERCASE")]
enum Parsed<'t> {
    S(String),
    #[serde(borrow)]
    N(Cow<'t, str>),
    #[serde(borrow)]
    B(Cow<'t, str>),
    Bool(bool),
    Null(bool),
    L(Vec<Parsed<'t>>),
    M(Attributes),
    Ss(Vec<String>),
    Ns(Vec<String>),
    Bs(Vec<String>),
}

impl Parsed<'_> {
    fn into_value(self) -> Result<Value> {
        let decode = |text: &str| {
            STANDARD.decode(text).map_err(|cause| Error::invalid(format!("{text:?} is not base 64: {cause}")))
        };
        Ok(match self {
            Parsed::S(text) => Value::S(text),
            Parsed::N(text) => Value::N(text.parse()?),
            Parsed::B(text) => Value::B(decode(&text)?),
            Parsed::Bool(flag) => Value::Bool(flag),
            Parsed::Null(true) => Value::Null,
            Parsed::Null(false) => return Err(Error::invalid("NULL must be true")),
            Parsed::L(values) => Value::L(values.into_iter().map(Parsed::into_value).collect::<Result<_>>()?),
            Parsed::M(Attributes(map)) => Value::M(map),
            Parsed::Ss(members) => Value::Ss(Set::new(members)?),
            Parsed::Ns(members) => Value::Ns(Set::new(parse_each(&members, str::parse)?)?),
            Parsed::Bs(members) => Value::Bs(Set::new(parse_each(&members, decode)?)?),
        })
    }
}

fn parse_each<T>(members: &[String], parse: impl Fn(&str) -> Result<T>) -> Result<Vec<T>> {
    members.iter().map(|member| parse(member)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_type_survives_a_round_trip() {
        let text = r#"{"a":{"S":"é\n\""},"b":{"N":"-1.5"},"c":{"B":"AAH/"},"d":{"BOOL":true},"e":{"NULL":true},"f":{"L":[{"S":""},{"L":[]}]},"g":{"M":{"x":{"N":"1"}}},"h":{"SS":["a","b"]},"i":{"NS":["1","2"]},"j":{"BS":["AA==","AQ=="]}}"#;
        let item = Item::from_json(text).expect("valid");
        assert_eq!(item.len(), 10);
        assert_eq!(item.to_json(), text);
    }

    #[test]
    fn invalid_items_are_rejected() {
        for text in [
            "",
            "[]",
            "{",
            r#"{"a":1}"#,
            r#"{"a":{}}"#,
            r#"{"a":{"X":"1"}}"#,
            r#"{"a":{"N":1}}"#,
            r#"{"a":{"N":"one"}}"#,
            r#"{"a":{"B":"*"}}"#,
            r#"{"a":{"NULL":false}}"#,
            r#"{"a":{"S":"x","N":"1"}}"#,
            r#"{"a":{"SS":[]}}"#,
            r#"{"a":{"SS":["x","x"]}}"#,
            r#"{"a":{"NS":["1","1.0"]}}"#,
            r#"{"a":{"BOOL":"true"}}"#,
            // Duplicate names are ambiguous.
            r#"{"a":{"S":"x"},"b":{"S":"x"},"a":{"S":"y"}}"#,
            r#"{"m":{"M":{"a":{"N":"1"},"a":{"N":"1"}}}}"#,
        ] {
            assert!(Item::from_json(text).is_err(), "{text}");
        }
        let deep = format!("{{\"a\":{}{}}}", "{\"L\":[".repeat(10_000), "]}".repeat(10_000));
        assert!(Item::from_json(&deep).is_err());
    }
}
