//! Conversion between the fields of a model and the attributes of a row; public only for derived code.

use serde_dynamo::{AttributeValue, Deserializer, Serializer};

use crate::error::{Error, Kind, Result};
use crate::item::{Item, Key};
use crate::number::Number;
use crate::time_form::TimeForm;
use crate::value::Value;

/// Collects the fields of one row into an item.
#[derive(Debug)]
pub struct RowWriter {
    row: RowLabel,
    item: Item,
}

impl RowWriter {
    /// Creates an item with the key attributes.
    #[must_use]
    pub fn new(model: &'static str, key: Key) -> Self {
        RowWriter { item: Item::new().with_key(&key), row: RowLabel { model, key } }
    }

    /// Sets an attribute from a field. Nulls are left out, because an absent attribute is the only form of "none"; with
    /// `omit_empty` so are zero, `false`, and values without content.
    pub fn set<T>(
        &mut self,
        attribute: &'static str,
        field: &T,
        omit_empty: bool,
        serialize: impl FnOnce(&T, Serializer) -> Result<AttributeValue, serde_dynamo::Error>,
    ) -> Result<()> {
        let error = || self.row.error(Kind::Invalid, attribute, "cannot be written");
        let value = serialize(field, Serializer).map_err(|cause| error().caused_by(cause))?;
        if omit_empty && is_empty(&value) {
            return Ok(());
        }
        match Value::try_from(value).map_err(|cause| error().caused_by(cause))? {
            Value::Null => {}
            value => self.item.set(attribute, value),
        }
        Ok(())
    }

    /// Returns the item with all attributes.
    #[must_use]
    pub fn finish(self) -> Item {
        self.item
    }
}

/// Whether `omitempty` leaves the value out. Takes serde's form, because a [`Value`] cannot be an empty set.
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

/// Reads the fields of one row from its attributes; ignores other attributes.
#[derive(Debug)]
pub struct RowReader {
    row: RowLabel,
    item: Item,
}

impl RowReader {
    /// Reads the key attributes, without which an item is not a row.
    pub fn new(model: &'static str, item: Item) -> Result<Self> {
        let key = item.key().map_err(|error| Error::new(Kind::Corrupt, format!("{model}: {error}")))?;
        if item.is_damaged() {
            let context = format!("{model}: the row {key} is damaged; write it again, or delete it");
            return Err(Error::new(Kind::Corrupt, context));
        }
        Ok(RowReader { row: RowLabel { model, key }, item })
    }

    /// Returns the partition key.
    #[must_use]
    pub fn pk(&self) -> String {
        self.row.key.pk.clone()
    }

    /// Returns the sort key.
    #[must_use]
    pub fn sk(&self) -> String {
        self.row.key.sk.clone()
    }

    /// Converts a time that is stored in the other form, as other programs may store it, to the form of the model.
    pub fn convert_time(&mut self, attribute: &'static str, form: TimeForm) {
        if let Some(value) = self.item.get(attribute).and_then(|stored| form.convert(stored)) {
            self.item.set(attribute, value);
        }
    }

    /// Reads a field. An absent attribute is read as null, for types that accept null without being an `Option`.
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
            Some(found) => {
                let problem = format_args!("is of type {found} and cannot be read as {ty}");
                self.row.error(Kind::Corrupt, attribute, problem).caused_by(cause)
            }
            None => self.row.error(Kind::Corrupt, attribute, "is missing"),
        })
    }

    /// Reads a field, or returns its default if the attribute is absent or null.
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

/// Names a row in messages.
#[derive(Debug)]
struct RowLabel {
    model: &'static str,
    key: Key,
}

impl RowLabel {
    fn error(&self, kind: Kind, attribute: &str, problem: impl std::fmt::Display) -> Error {
        Error::new(kind, format!("{} {}: attribute `{attribute}` {problem}", self.model, self.key))
    }
}

/// Fields of type `Vec<u8>` or `Option<Vec<u8>>` as values of type B; serde itself would write a list of numbers.
pub mod bytes {
    use std::fmt;

    use serde::de::{Deserializer, Error, SeqAccess, Visitor};
    use serde::ser::Serializer;

    /// Writes a field.
    pub fn serialize<S: Serializer>(bytes: &[u8], serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_bytes(bytes)
    }

    /// Reads a field. Also accepts a list of numbers, which other programs may have written.
    pub fn deserialize<'de, T: From<Vec<u8>>, D: Deserializer<'de>>(deserializer: D) -> Result<T, D::Error> {
        deserializer.deserialize_any(BytesVisitor).map(T::from)
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

        fn visit_seq<A: SeqAccess<'de>>(self, mut numbers: A) -> Result<Vec<u8>, A::Error> {
            std::iter::from_fn(|| numbers.next_element().transpose()).collect()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashMap;

    #[test]
    fn every_type_has_an_empty_value_that_is_left_out() {
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
