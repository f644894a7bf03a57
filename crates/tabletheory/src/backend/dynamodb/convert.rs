//! Conversion of values and items to and from the types of the SDK.

use std::collections::HashMap;

use aws_sdk_dynamodb::primitives::Blob;
use aws_sdk_dynamodb::types::AttributeValue;

use crate::convert::convert_attribute_value;
use crate::error::{Error, Result};
use crate::item::{Excerpt, Item, Key, PK, SK};
use crate::number::Number;
use crate::value::{Set, Value};

/// The attributes of a row, including its key, in the types of the SDK.
pub(super) type Attributes = HashMap<String, AttributeValue>;

pub(super) fn from_item(key: &Key, item: &Item) -> Attributes {
    let mut attributes = from_key(key);
    attributes.extend(item.iter().map(|(name, value)| (name.to_owned(), value.clone().into())));
    attributes
}

pub(super) fn from_key(key: &Key) -> Attributes {
    let part = |name: &str, text: &str| (name.to_owned(), AttributeValue::S(text.to_owned()));
    HashMap::from([part(PK, &key.pk), part(SK, &key.sk)])
}

convert_attribute_value!(Blob::new, Blob::into_inner);

pub(super) fn to_item(attributes: Attributes) -> Result<Item> {
    attributes
        .into_iter()
        .map(|(name, value)| match Value::try_from(value) {
            Ok(value) => Ok((name, value)),
            Err(error) => {
                let context = format!("attribute `{}` is damaged: {error}", Excerpt(&name));
                Err(Error::corrupt(context).caused_by(error))
            }
        })
        .collect()
}

/// Converts a row. One with a value that no table can store counts as damaged.
pub(super) fn to_row(attributes: Attributes) -> Result<Item> {
    let part = |name: &str| attributes.get(name).and_then(|value| value.as_s().ok()).cloned();
    let key = part(PK).zip(part(SK)).map(|(pk, sk)| Key { pk, sk });
    to_item(attributes).or_else(|error| key.map(|key| Item::damaged(&key)).ok_or(error))
}

/// Converts the key at which a page ended.
pub(super) fn to_key(attributes: Attributes) -> Result<Key> {
    let key = to_item(attributes)?.key();
    key.map_err(|error| Error::corrupt("the last key of a page is invalid").caused_by(error))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::Kind;
    use std::collections::BTreeMap;

    #[test]
    fn every_type_survives_a_round_trip() {
        let key = Key::new("CACHE#1", "META");
        let item = Item::from([
            ("s", Value::from("")),
            ("n", Value::N("-12.5".parse().expect("a number"))),
            ("b", Value::B(vec![0, 255])),
            ("bool", Value::Bool(true)),
            ("null", Value::Null),
            ("l", Value::L(vec![Value::from(1), Value::L(vec![])])),
            ("m", Value::M(BTreeMap::from([("inner".to_string(), Value::Null)]))),
            ("ss", Value::Ss(Set::new(["b".to_string(), "a".to_string()]).expect("a set"))),
            ("ns", Value::Ns(Set::new([Number::from(2), Number::from(1)]).expect("a set"))),
            ("bs", Value::Bs(Set::new([vec![1], vec![]]).expect("a set"))),
        ]);
        let back = to_item(from_item(&key, &item)).expect("a valid item");
        assert_eq!(back, item.with_key(&key));
    }

    #[test]
    fn the_error_of_a_damaged_value_names_its_attribute() {
        for broken in [
            AttributeValue::N("twelve".into()),
            AttributeValue::Ss(vec![]),
            AttributeValue::Ns(vec!["1".into(), "1.0".into()]),
            AttributeValue::L(vec![AttributeValue::N(String::new())]),
        ] {
            let error = to_item(HashMap::from([("version".into(), broken)])).expect_err("a damaged value");
            assert_eq!(error.kind(), Kind::Corrupt);
            assert!(error.to_string().starts_with("attribute `version` is damaged"), "{error}");
        }
    }
}
