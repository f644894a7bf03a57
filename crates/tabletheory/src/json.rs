//! Items as DynamoDB-JSON: `{"etag": {"S": "…"}, "version": {"N": "3"}}`.
//!
//! It is what the SQLite file holds, so that anyone's `sqlite3` can read it, and what golden vectors are written in.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::fmt;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde::de::{self, MapAccess, SeqAccess, Visitor};
use serde::ser::{SerializeMap, SerializeSeq};
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use crate::error::{Error, Result};
use crate::item::{Excerpt, Item};
use crate::number::Number;
use crate::value::{Set, Value};

impl Item {
    /// The item as DynamoDB-JSON, its attributes in the order of their names.
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

    /// The item that this DynamoDB-JSON says.
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
            .map_err(|cause| Error::invalid("this is not an item in DynamoDB-JSON").caused_by(cause))?;
        Ok(attributes.into())
    }

    /// The same without the key, which has columns of its own.
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

/// A value under the name of its type.
struct Tagged<'a>(&'a Value);

impl Serialize for Tagged<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut tagged = serializer.serialize_map(Some(1))?;
        let tag = self.0.type_name();
        match self.0 {
            Value::S(text) => tagged.serialize_entry(tag, text)?,
            Value::N(number) => tagged.serialize_entry(tag, &Shown(number))?,
            Value::B(bytes) => tagged.serialize_entry(tag, &STANDARD.encode(bytes))?,
            Value::Bool(flag) => tagged.serialize_entry(tag, flag)?,
            Value::Null => tagged.serialize_entry(tag, &true)?,
            Value::L(values) => tagged.serialize_entry(tag, &Each(|| values.iter().map(Tagged)))?,
            Value::M(map) => {
                let members: BTreeMap<&str, Tagged<'_>> =
                    map.iter().map(|(name, value)| (name.as_str(), Tagged(value))).collect();
                tagged.serialize_entry(tag, &members)?;
            }
            Value::Ss(set) => tagged.serialize_entry(tag, set.members())?,
            Value::Ns(set) => tagged.serialize_entry(tag, &Each(|| set.members().iter().map(Shown)))?,
            Value::Bs(set) => {
                tagged.serialize_entry(
                    tag,
                    &Each(|| set.members().iter().map(|bytes| STANDARD.encode(bytes))),
                )?;
            }
        }
        tagged.end()
    }
}

struct Shown<'a>(&'a Number);

impl Serialize for Shown<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self.0)
    }
}

struct Each<F>(F);

impl<I: Iterator<Item: Serialize>, F: Fn() -> I> Serialize for Each<F> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut sequence = serializer.serialize_seq(None)?;
        for member in self.0() {
            sequence.serialize_element(&member)?;
        }
        sequence.end()
    }
}

/// The members of an item or a map.
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
        f.write_str("values by the names of their attributes")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut members: A) -> Result<Self::Value, A::Error> {
        let mut attributes = Self::Value::new();
        while let Some((name, Untagged(value))) = members.next_entry()? {
            match attributes.entry(name) {
                Entry::Vacant(vacant) => {
                    vacant.insert(value);
                }
                Entry::Occupied(occupied) => {
                    let name = Excerpt(occupied.key());
                    return Err(de::Error::custom(format_args!("`{name}` is there twice")));
                }
            }
        }
        Ok(attributes)
    }
}

/// A value read from under the name of its type.
struct Untagged(Value);

impl<'de> Deserialize<'de> for Untagged {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_map(UntaggedVisitor).map(Untagged)
    }
}

struct UntaggedVisitor;

impl<'de> Visitor<'de> for UntaggedVisitor {
    type Value = Value;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a value under one of S, N, B, BOOL, NULL, L, M, SS, NS, BS")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut tagged: A) -> Result<Value, A::Error> {
        let tag: Tag = tagged.next_key()?.ok_or_else(|| de::Error::invalid_length(0, &self))?;
        let value = match tag {
            Tag::S => Value::S(tagged.next_value()?),
            Tag::N => Value::N(tagged.next_value::<Text<Number>>()?.0),
            Tag::B => Value::B(tagged.next_value::<Text<Bytes>>()?.0.0),
            Tag::Bool => Value::Bool(tagged.next_value()?),
            Tag::Null => {
                if !tagged.next_value::<bool>()? {
                    return Err(de::Error::custom("NULL must be true"));
                }
                Value::Null
            }
            Tag::L => {
                let values: Vec<Untagged> = tagged.next_value()?;
                Value::L(values.into_iter().map(|Untagged(value)| value).collect())
            }
            Tag::M => Value::M(tagged.next_value::<Attributes>()?.0),
            Tag::Ss => Value::Ss(set(tagged.next_value::<Vec<String>>()?)?),
            Tag::Ns => Value::Ns(set(tagged.next_value::<Texts<Number>>()?.0)?),
            Tag::Bs => {
                let members = tagged.next_value::<Texts<Bytes>>()?.0;
                Value::Bs(set(members.into_iter().map(|Bytes(bytes)| bytes))?)
            }
        };
        match tagged.next_key::<de::IgnoredAny>()? {
            None => Ok(value),
            Some(_) => Err(de::Error::invalid_length(2, &self)),
        }
    }
}

fn set<T: Ord, E: de::Error>(members: impl IntoIterator<Item = T>) -> Result<Set<T>, E> {
    Set::new(members).map_err(E::custom)
}

#[derive(Deserialize)]
#[serde(rename_all = "UPPERCASE")]
enum Tag {
    S,
    N,
    B,
    Bool,
    Null,
    L,
    M,
    Ss,
    Ns,
    Bs,
}

/// Something that is written as a string: a number, or bytes in base 64.
struct Text<T>(T);

impl<'de, T: std::str::FromStr<Err: fmt::Display>> Deserialize<'de> for Text<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_str(TextVisitor(std::marker::PhantomData))
    }
}

struct TextVisitor<T>(std::marker::PhantomData<T>);

impl<T: std::str::FromStr<Err: fmt::Display>> Visitor<'_> for TextVisitor<T> {
    type Value = Text<T>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a string")
    }

    fn visit_str<E: de::Error>(self, text: &str) -> Result<Text<T>, E> {
        text.parse().map(Text).map_err(E::custom)
    }
}

/// Several of them.
struct Texts<T>(Vec<T>);

impl<'de, T: std::str::FromStr<Err: fmt::Display>> Deserialize<'de> for Texts<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_seq(TextsVisitor(std::marker::PhantomData))
    }
}

struct TextsVisitor<T>(std::marker::PhantomData<T>);

impl<'de, T: std::str::FromStr<Err: fmt::Display>> Visitor<'de> for TextsVisitor<T> {
    type Value = Texts<T>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a list of strings")
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut sequence: A) -> Result<Texts<T>, A::Error> {
        let mut members = Vec::new();
        while let Some(Text(member)) = sequence.next_element()? {
            members.push(member);
        }
        Ok(Texts(members))
    }
}

struct Bytes(Vec<u8>);

impl std::str::FromStr for Bytes {
    type Err = base64::DecodeError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        STANDARD.decode(text).map(Bytes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_type_survives_the_way_there_and_back() {
        let text = r#"{"a":{"S":"é\n\""},"b":{"N":"-1.5"},"c":{"B":"AAH/"},"d":{"BOOL":true},"e":{"NULL":true},"f":{"L":[{"S":""},{"L":[]}]},"g":{"M":{"x":{"N":"1"}}},"h":{"SS":["a","b"]},"i":{"NS":["1","2"]},"j":{"BS":["AA==","AQ=="]}}"#;
        let item = Item::from_json(text).expect("valid");
        assert_eq!(item.len(), 10);
        assert_eq!(item.to_json(), text);
    }

    #[test]
    fn what_is_no_item_is_refused() {
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
            // Of two values under one name, nobody knows which one was meant.
            r#"{"a":{"S":"x"},"b":{"S":"x"},"a":{"S":"y"}}"#,
            r#"{"m":{"M":{"a":{"N":"1"},"a":{"N":"1"}}}}"#,
        ] {
            assert!(Item::from_json(text).is_err(), "{text}");
        }
        let deep = format!("{{\"a\":{}{}}}", "{\"L\":[".repeat(10_000), "]}".repeat(10_000));
        assert!(Item::from_json(&deep).is_err());
    }
}
