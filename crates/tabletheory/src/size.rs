//! The size of items in bytes as DynamoDB counts it, determined by testing DynamoDB Local at its limits.

use crate::item::{Item, Key, PK, SK};
use crate::number::Number;
use crate::value::Value;

/// Returns the size of an item with its key, which counts once.
pub(crate) fn of_item(key: &Key, item: &Item) -> usize {
    let attributes = item.iter().filter(|(name, _)| *name != PK && *name != SK);
    of_key(key) + attributes.map(|(name, value)| name.len() + of_value(value)).sum::<usize>()
}

/// Returns the size of a row that has only its key.
pub(crate) fn of_key(key: &Key) -> usize {
    PK.len() + key.pk.len() + SK.len() + key.sk.len()
}

/// Returns the size of a value without its name.
pub(crate) fn of_value(value: &Value) -> usize {
    const CONTAINER: usize = 3;
    const MEMBER: usize = 1;
    match value {
        Value::S(text) => text.len(),
        Value::N(number) => number.size(),
        Value::B(bytes) => bytes.len(),
        Value::Bool(_) | Value::Null => 1,
        Value::L(values) => CONTAINER + values.iter().map(|value| MEMBER + of_value(value)).sum::<usize>(),
        Value::M(map) => {
            let member = |(name, value): (&String, &Value)| MEMBER + name.len() + of_value(value);
            CONTAINER + map.iter().map(member).sum::<usize>()
        }
        Value::Ss(set) => set.members().iter().map(String::len).sum(),
        Value::Ns(set) => set.members().iter().map(Number::size).sum(),
        Value::Bs(set) => set.members().iter().map(Vec::len).sum(),
    }
}
