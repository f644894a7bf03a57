//! Evaluates the conditions and updates of a transaction, as pure functions, for the embedded backends. DynamoDB does this
//! on the server.

use std::borrow::Cow;
use std::cmp::Ordering;

use crate::check::{self, WriteLabel};
use crate::cond::{Comparison, Cond, Node, Test};
use crate::error::{Error, Result};
use crate::item::{Item, Key, PK, SK};
use crate::size;
use crate::txn::{Op, Txn};
use crate::update::{Action, Update};
use crate::value::Value;

/// The effect of a transaction.
pub(crate) enum Effect<'t> {
    /// Put each of these rows, or delete it if `None`. A borrowed item is that of the transaction, which may lack its key:
    /// [`Item::stored_at`] adds it.
    Apply(Vec<(&'t Key, Option<Cow<'t, Item>>)>),
    /// Write nothing, because the condition of the write at `index` is false for the row `seen`.
    Refuse { index: usize, seen: Option<Item> },
}

/// Evaluates a valid transaction. Calls `read` only for rows that conditions or updates depend on.
///
/// A damaged row counts as absent, so a write whose condition requires that there is no row replaces it.
///
/// A write that is impossible, such as adding a number to a string, is an error even if another write is refused.
pub(crate) fn evaluate<E: From<Error>>(
    txn: &Txn,
    mut read: impl FnMut(&Key) -> Result<Option<Item>, E>,
) -> Result<Effect<'_>, E> {
    let mut rows = Vec::with_capacity(txn.writes.len());
    let mut refusal = None;
    for (index, write) in txn.writes.iter().enumerate() {
        let needs_row = write.cond.is_some() || matches!(write.op, Op::Update(_));
        let before = if needs_row { read(&write.key)? } else { None }.filter(|row| !row.is_damaged());
        if let Some(cond) = &write.cond
            && !holds(cond, before.as_ref())
        {
            refusal.get_or_insert(Effect::Refuse { index, seen: before });
            continue;
        }
        let after = match &write.op {
            Op::Put(item) => Some(Cow::Borrowed(item)),
            Op::Update(update) => {
                let after = updated(&write.key, before, update);
                Some(Cow::Owned(after.map_err(|error| error.within(WriteLabel { index, key: &write.key }))?))
            }
            Op::Delete => None,
            Op::Check => continue,
        };
        rows.push((&write.key, after));
    }
    Ok(refusal.unwrap_or(Effect::Apply(rows)))
}

/// Whether a condition is true for a row. An absent row counts as one without attributes.
pub(crate) fn holds(cond: &Cond, row: Option<&Item>) -> bool {
    match &cond.0 {
        Node::Test { name, test } => passes(test, row.and_then(|row| row.get(name))),
        Node::All(conds) => conds.iter().all(|cond| holds(cond, row)),
        Node::Any(conds) => conds.iter().any(|cond| holds(cond, row)),
        Node::Not(cond) => !holds(cond, row),
    }
}

fn passes(test: &Test, value: Option<&Value>) -> bool {
    let Some(value) = value else {
        use Comparison::NotEqual;
        return matches!(test, Test::Absent | Test::Compare(NotEqual, _) | Test::Size(NotEqual, _));
    };
    match test {
        Test::Absent => false,
        Test::Exists => true,
        Test::Compare(Comparison::Equal, other) => value == other,
        Test::Compare(Comparison::NotEqual, other) => value != other,
        Test::Compare(comparison, other) => {
            order(value, other).is_some_and(|order| comparison.accepts(order))
        }
        Test::Between(low, high) => {
            order(value, low).is_some_and(Ordering::is_ge) && order(value, high).is_some_and(Ordering::is_le)
        }
        Test::In(values) => values.contains(value),
        Test::BeginsWith(prefix) => match (value, prefix) {
            (Value::S(text), Value::S(prefix)) => text.starts_with(prefix.as_str()),
            (Value::B(bytes), Value::B(prefix)) => bytes.starts_with(prefix),
            _ => false,
        },
        Test::Contains(part) => contains(value, part),
        Test::Size(comparison, bound) => match size(value) {
            Some(size) => comparison.accepts(size.cmp(&(*bound as usize))),
            None => *comparison == Comparison::NotEqual,
        },
    }
}

/// Compares two strings, numbers or byte strings; `None` for other types and for two types.
fn order(left: &Value, right: &Value) -> Option<Ordering> {
    match (left, right) {
        (Value::S(left), Value::S(right)) => Some(left.cmp(right)),
        (Value::N(left), Value::N(right)) => Some(left.cmp(right)),
        (Value::B(left), Value::B(right)) => Some(left.cmp(right)),
        _ => None,
    }
}

impl Comparison {
    pub(crate) fn accepts(self, order: Ordering) -> bool {
        match self {
            Comparison::Equal => order.is_eq(),
            Comparison::NotEqual => order.is_ne(),
            Comparison::Less => order.is_lt(),
            Comparison::LessOrEqual => order.is_le(),
            Comparison::Greater => order.is_gt(),
            Comparison::GreaterOrEqual => order.is_ge(),
        }
    }
}

fn contains(value: &Value, part: &Value) -> bool {
    match (value, part) {
        (Value::S(text), Value::S(part)) => text.contains(part.as_str()),
        (Value::B(bytes), Value::B(part)) => {
            part.is_empty() || bytes.windows(part.len()).any(|window| window == part.as_slice())
        }
        (Value::L(values), part) => values.contains(part),
        (Value::Ss(set), Value::S(member)) => set.contains(member),
        (Value::Ns(set), Value::N(member)) => set.contains(member),
        (Value::Bs(set), Value::B(member)) => set.contains(member),
        _ => false,
    }
}

fn size(value: &Value) -> Option<usize> {
    match value {
        // DynamoDB Local counts UTF-16 units.
        Value::S(text) => Some(text.encode_utf16().count()),
        Value::B(bytes) => Some(bytes.len()),
        Value::L(values) => Some(values.len()),
        Value::M(map) => Some(map.len()),
        Value::Ss(set) => Some(set.members().len()),
        Value::Ns(set) => Some(set.members().len()),
        Value::Bs(set) => Some(set.members().len()),
        Value::N(_) | Value::Bool(_) | Value::Null => None,
    }
}

/// Returns the row after an update, which creates it if absent.
fn updated(key: &Key, before: Option<Item>, update: &Update) -> Result<Item> {
    let mut after = before.unwrap_or_default().with_key(key);
    for change in &update.changes {
        let name = change.name.as_ref();
        let value = match &change.action {
            Action::SetIfAbsent(_) if after.get(name).is_some() => continue,
            Action::Set(value) | Action::SetIfAbsent(value) => Ok(value.clone()),
            Action::Append(values) => appended(after.remove(name), values),
            Action::Add(value) => added(after.remove(name), value),
            Action::Remove => {
                after.remove(name);
                continue;
            }
        };
        after.set(name, value.map_err(|error| error.within_attribute(name))?);
    }
    debug_assert!(after.get(PK).is_some() && after.get(SK).is_some());
    check::check_item_bytes(size::of_item(key, &after))?;
    Ok(after)
}

fn appended(list: Option<Value>, values: &[Value]) -> Result<Value> {
    match list {
        None => Ok(Value::L(values.to_vec())),
        Some(Value::L(mut list)) => {
            list.extend_from_slice(values);
            Ok(Value::L(list))
        }
        Some(other) => Err(mismatch("a list cannot be appended to", &other)),
    }
}

fn added(before: Option<Value>, value: &Value) -> Result<Value> {
    match (before, value) {
        (None, value) => Ok(value.clone()),
        (Some(Value::N(before)), Value::N(more)) => Ok(Value::N(before.checked_add(more)?)),
        (Some(Value::Ss(before)), Value::Ss(more)) => Ok(Value::Ss(before.union(more))),
        (Some(Value::Ns(before)), Value::Ns(more)) => Ok(Value::Ns(before.union(more))),
        (Some(Value::Bs(before)), Value::Bs(more)) => Ok(Value::Bs(before.union(more))),
        (Some(before), more) => {
            Err(mismatch(&format!("a value of type {} cannot be added to", more.type_name()), &before))
        }
    }
}

fn mismatch(what: &str, found: &Value) -> Error {
    Error::invalid(format!("{what} an attribute of type {}", found.type_name()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::attr::Attr;
    use crate::txn::Write;

    #[test]
    fn the_error_of_an_impossible_update_names_its_write_and_attribute() {
        let add = Update::new([Attr::<i64>::new("n").add(1)]);
        let txn =
            Txn::new([Write::delete(Key::new("p", "other")), Write::update(Key::new("p", "text"), add)]);
        let Err(error) = evaluate::<Error>(&txn, |_| Ok(Some(Item::from([("n", "one".into())])))) else {
            panic!("adding a number to a string is an error");
        };
        assert!(error.to_string().starts_with("write 1 (text of p): `n`: "), "{error}");
    }
}
