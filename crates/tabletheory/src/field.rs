//! What derived code calls to write and read the fields of a row; public only for that code.

use serde_dynamo::{AttributeValue, Deserializer, Serializer};

use crate::error::{Error, Kind, Result};
use crate::item::{Item, Key};
use crate::number::Number;
use crate::value::Value;

/// Gathers the fields of one row into an item.
#[derive(Debug)]
pub struct RowWriter {
    place: Place,
    item: Item,
}

impl RowWriter {
    /// Begins with the key, which every row has.
    #[must_use]
    pub fn new(model: &'static str, key: Key) -> Self {
        RowWriter { item: Item::new().with_key(&key), place: Place { model, key } }
    }

    /// Sets an attribute. What has the form of a null is left out: absent is the one way to say "none".
    pub fn set<T>(
        &mut self,
        attribute: &'static str,
        field: &T,
        serialize: impl FnOnce(&T, Serializer) -> Result<AttributeValue, serde_dynamo::Error>,
    ) -> Result<()> {
        let value = self.serialized(attribute, field, serialize)?;
        self.set_value(attribute, value)
    }

    /// Sets an attribute unless its value is zero, false or without members.
    pub fn set_unless_empty<T>(
        &mut self,
        attribute: &'static str,
        field: &T,
        serialize: impl FnOnce(&T, Serializer) -> Result<AttributeValue, serde_dynamo::Error>,
    ) -> Result<()> {
        let value = self.serialized(attribute, field, serialize)?;
        if is_empty(&value) { Ok(()) } else { self.set_value(attribute, value) }
    }

    /// All that was set.
    #[must_use]
    pub fn finish(self) -> Item {
        self.item
    }

    fn serialized<T>(
        &self,
        attribute: &str,
        field: &T,
        serialize: impl FnOnce(&T, Serializer) -> Result<AttributeValue, serde_dynamo::Error>,
    ) -> Result<AttributeValue> {
        serialize(field, Serializer)
            .map_err(|cause| self.place.error(Kind::Invalid, attribute, "cannot be written").caused_by(cause))
    }

    fn set_value(&mut self, attribute: &'static str, value: AttributeValue) -> Result<()> {
        match Value::try_from(value) {
            Ok(Value::Null) => Ok(()),
            Ok(value) => {
                self.item.set(attribute, value);
                Ok(())
            }
            Err(error) => {
                Err(self.place.error(Kind::Invalid, attribute, "cannot be written").caused_by(error))
            }
        }
    }
}

/// Whether `omitempty` leaves it out. It is asked of the form before it is a [`Value`], for an empty set is none.
fn is_empty(value: &AttributeValue) -> bool {
    match value {
        AttributeValue::S(text) => text.is_empty(),
        AttributeValue::N(text) => text.parse::<Number>().is_ok_and(|number| number == Number::ZERO),
        AttributeValue::Bool(flag) => !flag,
        AttributeValue::Null(_) => true,
        AttributeValue::B(bytes) => bytes.is_empty(),
        AttributeValue::L(list) => list.is_empty(),
        AttributeValue::M(map) => map.is_empty(),
        AttributeValue::Ss(members) | AttributeValue::Ns(members) => members.is_empty(),
        AttributeValue::Bs(members) => members.is_empty(),
    }
}

/// Hands out the attributes of one row to its fields; what no field asks for is ignored.
#[derive(Debug)]
pub struct RowReader {
    place: Place,
    item: Item,
}

impl RowReader {
    /// Begins with the key, without which there is no row.
    pub fn new(model: &'static str, item: Item) -> Result<Self> {
        let key = item.key().map_err(|error| Error::new(Kind::Corrupt, format!("{model}: {error}")))?;
        Ok(RowReader { place: Place { model, key }, item })
    }

    /// The partition key.
    #[must_use]
    pub fn pk(&self) -> String {
        self.place.key.pk.clone()
    }

    /// The sort key.
    #[must_use]
    pub fn sk(&self) -> String {
        self.place.key.sk.clone()
    }

    /// The field of an attribute. An absent one is read as null, so that types which know one need no option.
    pub fn get<T>(
        &mut self,
        attribute: &'static str,
        ty: &'static str,
        deserialize: impl FnOnce(Deserializer) -> Result<T, serde_dynamo::Error>,
    ) -> Result<T> {
        let value = self.item.remove(attribute);
        let found = value.as_ref().map(Value::type_name);
        let value = AttributeValue::from(value.unwrap_or(Value::Null));
        deserialize(Deserializer::from_attribute_value(value)).map_err(|cause| match found {
            Some(found) => self
                .place
                .error(
                    Kind::Corrupt,
                    attribute,
                    format_args!("is of type {found} and cannot be read as {ty}"),
                )
                .caused_by(cause),
            None => self.place.error(Kind::Corrupt, attribute, "is missing"),
        })
    }

    /// The field of an attribute, or its default when it is absent or null.
    pub fn get_or_default<T: Default>(
        &mut self,
        attribute: &'static str,
        ty: &'static str,
        deserialize: impl FnOnce(Deserializer) -> Result<T, serde_dynamo::Error>,
    ) -> Result<T> {
        match self.item.get(attribute) {
            None | Some(Value::Null) => Ok(T::default()),
            Some(_) => self.get(attribute, ty, deserialize),
        }
    }
}

/// Which row a message is about.
#[derive(Debug)]
struct Place {
    model: &'static str,
    key: Key,
}

impl Place {
    fn error(&self, kind: Kind, attribute: &str, what: impl std::fmt::Display) -> Error {
        Error::new(kind, format!("{} {}: attribute `{attribute}` {what}", self.model, self.key))
    }
}

/// Bytes as a value of type B; serde itself takes a `Vec<u8>` for a list of numbers.
pub mod bytes {
    use std::fmt;

    use serde::de::{Deserializer, Error, SeqAccess, Visitor};
    use serde::ser::Serializer;

    /// What a field of bytes may be.
    pub trait Bytes: Sized {
        /// The bytes; none at all has none.
        fn as_bytes(&self) -> &[u8];
        /// The field of these bytes.
        fn from_bytes(bytes: Vec<u8>) -> Self;
    }

    impl Bytes for Vec<u8> {
        fn as_bytes(&self) -> &[u8] {
            self
        }

        fn from_bytes(bytes: Vec<u8>) -> Self {
            bytes
        }
    }

    impl Bytes for Option<Vec<u8>> {
        fn as_bytes(&self) -> &[u8] {
            self.as_deref().unwrap_or_default()
        }

        fn from_bytes(bytes: Vec<u8>) -> Self {
            Some(bytes)
        }
    }

    /// Writes a field.
    pub fn serialize<T: Bytes, S: Serializer>(value: &T, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_bytes(value.as_bytes())
    }

    /// Reads a field; a list of numbers, as other programs may have written it, is read as well.
    pub fn deserialize<'de, T: Bytes, D: Deserializer<'de>>(deserializer: D) -> Result<T, D::Error> {
        deserializer.deserialize_any(BytesVisitor).map(T::from_bytes)
    }

    struct BytesVisitor;

    impl<'de> Visitor<'de> for BytesVisitor {
        type Value = Vec<u8>;

        fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            f.write_str("bytes")
        }

        fn visit_bytes<E: Error>(self, bytes: &[u8]) -> Result<Vec<u8>, E> {
            Ok(bytes.to_vec())
        }

        fn visit_byte_buf<E: Error>(self, bytes: Vec<u8>) -> Result<Vec<u8>, E> {
            Ok(bytes)
        }

        fn visit_seq<A: SeqAccess<'de>>(self, mut numbers: A) -> Result<Vec<u8>, A::Error> {
            let mut bytes = Vec::new();
            while let Some(byte) = numbers.next_element()? {
                bytes.push(byte);
            }
            Ok(bytes)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashMap;

    #[test]
    fn every_type_has_a_value_that_is_left_out() {
        use AttributeValue::{B, Bool, Bs, L, M, N, Ns, Null, S, Ss};
        for empty in [
            S(String::new()),
            N("0".into()),
            N("-0".into()),
            N("0.0".into()),
            B(vec![]),
            Bool(false),
            Null(true),
            L(vec![]),
            M(HashMap::new()),
            Ss(vec![]),
            Ns(vec![]),
            Bs(vec![]),
        ] {
            assert!(is_empty(&empty), "{empty:?}");
        }
        for full in [
            S(" ".into()),
            N("-1".into()),
            N("1E-130".into()),
            B(vec![0]),
            Bool(true),
            L(vec![Null(true)]),
            M(HashMap::from([(String::new(), Null(true))])),
            Ss(vec![String::new()]),
            Ns(vec!["0".into()]),
            Bs(vec![vec![]]),
        ] {
            assert!(!is_empty(&full), "{full:?}");
        }
    }
}
