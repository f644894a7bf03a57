//! Conversion between Rust types and values, with serde by way of `serde_dynamo`.

use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_dynamo::AttributeValue;

use crate::error::{Error, Result};
use crate::number::Number;
use crate::value::{Set, Value};

/// Converts any serializable type to a value.
///
/// NaN, a number that a table cannot store exactly, and an empty set are errors.
///
/// ```
/// use tabletheory::{Value, to_value};
///
/// assert_eq!(to_value(&60)?, Value::from(60));
/// assert_eq!(to_value(&["news", "sport"])?, Value::L(vec!["news".into(), "sport".into()]));
/// assert_eq!(to_value(&None::<String>)?, Value::Null);
/// assert!(to_value(&f64::NAN).is_err());
/// # Ok::<(), tabletheory::Error>(())
/// ```
///
/// # Panics
/// If the type contains a map whose keys are lists, maps or bytes: `serde_dynamo` panics on such types.
pub fn to_value<T: Serialize + ?Sized>(value: &T) -> Result<Value> {
    let attribute = serde_dynamo::to_attribute_value::<_, AttributeValue>(value).map_err(|cause| {
        Error::invalid("the type cannot be stored as an attribute's value").caused_by(cause)
    })?;
    Value::try_from(attribute)
}

/// Converts a value to any deserializable type.
///
/// ```
/// use tabletheory::{Value, from_value};
///
/// assert_eq!(from_value::<u32>(Value::from(60))?, 60);
/// assert_eq!(from_value::<Option<String>>(Value::Null)?, None);
/// let error = from_value::<u32>(Value::from("sixty")).unwrap_err();
/// assert_eq!(error.to_string(), "a value of type S cannot be read as u32");
/// # Ok::<(), tabletheory::Error>(())
/// ```
pub fn from_value<T: DeserializeOwned>(value: Value) -> Result<T> {
    let type_name = value.type_name();
    serde_dynamo::from_attribute_value(AttributeValue::from(value)).map_err(|cause| {
        let wanted = std::any::type_name::<T>();
        Error::invalid(format!("a value of type {type_name} cannot be read as {wanted}")).caused_by(cause)
    })
}

/// Implements the conversions between [`Value`] and an `AttributeValue`: that of `serde_dynamo` or that of the SDK, which
/// differ only in their type for bytes.
macro_rules! convert_attribute_value {
    ($to_bytes:expr, $from_bytes:expr) => {
        impl TryFrom<AttributeValue> for Value {
            type Error = Error;

            fn try_from(attribute: AttributeValue) -> Result<Value> {
                Ok(match attribute {
                    AttributeValue::S(text) => Value::S(text),
                    AttributeValue::N(text) => Value::N(text.parse()?),
                    AttributeValue::B(bytes) => Value::B($from_bytes(bytes)),
                    AttributeValue::Bool(flag) => Value::Bool(flag),
                    AttributeValue::Null(_) => Value::Null,
                    AttributeValue::L(list) => {
                        Value::L(list.into_iter().map(Value::try_from).collect::<Result<_>>()?)
                    }
                    AttributeValue::M(map) => {
                        let members = map.into_iter().map(|(name, value)| Ok((name, Value::try_from(value)?)));
                        Value::M(members.collect::<Result<_>>()?)
                    }
                    AttributeValue::Ss(members) => Value::Ss(Set::new(members)?),
                    AttributeValue::Ns(members) => {
                        let numbers = members.iter().map(|text| text.parse()).collect::<Result<Vec<Number>>>()?;
                        Value::Ns(Set::new(numbers)?)
                    }
                    AttributeValue::Bs(members) => Value::Bs(Set::new(members.into_iter().map($from_bytes))?),
                    #[allow(unreachable_patterns, reason = "the SDK may add types")]
                    other => {
                        return Err(Error::invalid(format!(
                            "the value {other:?} has a type that this version does not support; update the program"
                        )));
                    }
                })
            }
        }

        impl From<Value> for AttributeValue {
            fn from(value: Value) -> AttributeValue {
                match value {
                    Value::S(text) => AttributeValue::S(text),
                    Value::N(number) => AttributeValue::N(number.to_string()),
                    Value::B(bytes) => AttributeValue::B($to_bytes(bytes)),
                    Value::Bool(flag) => AttributeValue::Bool(flag),
                    Value::Null => AttributeValue::Null(true),
                    Value::L(list) => AttributeValue::L(list.into_iter().map(AttributeValue::from).collect()),
                    Value::M(map) => {
                        AttributeValue::M(map.into_iter().map(|(name, value)| (name, value.into())).collect())
                    }
                    Value::Ss(members) => AttributeValue::Ss(members.into_iter().collect()),
                    Value::Ns(members) => {
                        AttributeValue::Ns(members.into_iter().map(|number| number.to_string()).collect())
                    }
                    Value::Bs(members) => AttributeValue::Bs(members.into_iter().map($to_bytes).collect()),
                }
            }
        }
    };
}

#[cfg(feature = "dynamodb")]
pub(crate) use convert_attribute_value;

convert_attribute_value!(|bytes: Vec<u8>| bytes, |bytes: Vec<u8>| bytes);

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use serde_dynamo::{binary_set, number_set, string_set};

    use super::*;

    fn round_trip(value: &Value) -> Value {
        Value::try_from(AttributeValue::from(value.clone())).unwrap()
    }

    #[test]
    fn every_type_survives_a_round_trip() {
        let values = [
            Value::from(""),
            Value::N("-1.5E-20".parse().unwrap()),
            Value::B(vec![0, 255]),
            Value::Bool(false),
            Value::Null,
            Value::L(vec![Value::Null, Value::L(vec![])]),
            Value::M(BTreeMap::from([("a".to_owned(), Value::M(BTreeMap::new()))])),
            Value::Ss(Set::new(["a".to_owned(), String::new()]).unwrap()),
            Value::Ns(Set::new([Number::from(2), "0.5".parse().unwrap()]).unwrap()),
            Value::Bs(Set::new([vec![], vec![1]]).unwrap()),
        ];
        for value in values {
            assert_eq!(round_trip(&value), value);
        }
    }

    #[test]
    fn the_smallest_and_largest_integers_survive_a_round_trip() {
        assert_eq!(from_value::<i64>(to_value(&i64::MIN).unwrap()).unwrap(), i64::MIN);
        assert_eq!(from_value::<u64>(to_value(&u64::MAX).unwrap()).unwrap(), u64::MAX);
        // Other languages write whole numbers with a decimal point.
        assert_eq!(from_value::<i64>(Value::N("60.0".parse().unwrap())).unwrap(), 60);
        assert!(from_value::<i64>(Value::N("60.5".parse().unwrap())).is_err());
        assert!(from_value::<u8>(Value::from(256)).is_err());
    }

    #[test]
    fn values_that_a_table_cannot_store_are_rejected() {
        for number in [f64::NAN, f64::INFINITY, 1e300] {
            assert!(to_value(&number).is_err(), "{number}");
        }
        assert!(to_value(&i128::MAX).is_err(), "serde_dynamo has no such number");
        assert!(to_value(&BTreeMap::from([((1, 2), 3)])).is_err(), "a map's keys are strings");
        assert!(to_value(&string_set::StringSet(["a", "a"])).is_err(), "a set has no member twice");
        assert!(to_value(&string_set::StringSet([1])).is_err(), "a string set is of strings");
    }

    #[test]
    fn sets_are_stored_as_sets_and_read_as_lists() {
        let value = to_value(&number_set::NumberSet([2, 1])).unwrap();
        assert_eq!(value.type_name(), "NS");
        assert_eq!(from_value::<Vec<u8>>(value).unwrap(), [1, 2]);
        let empty = to_value(&binary_set::BinarySet(Vec::<Vec<u8>>::new()));
        assert_eq!(empty.unwrap_err().to_string(), "a set is empty; leave the attribute out instead");
    }
}
