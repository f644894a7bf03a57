//! What a transaction does to the rows that it names: the meaning of conditions and updates, as pure functions.
//!
//! The embedded backends read rows, ask here, and write what they are told; DynamoDB does the same by itself.

use std::cmp::Ordering;

use crate::cond::{Comparison, Cond, Node, Test};
use crate::error::{Error, Result};
use crate::item::{Excerpt, Item, Key, PK, SK};
use crate::limit::{self, Place};
use crate::size;
use crate::txn::{Op, Txn, Write};
use crate::update::{Action, Update};
use crate::value::Value;

/// What to do about a transaction.
pub(crate) enum Verdict<'t> {
    /// Make each of these rows so; none means delete it.
    Apply(Vec<(&'t Key, Option<Item>)>),
    /// Write nothing.
    Refuse { index: usize, seen: Option<Item> },
}

/// Decides a checked transaction. `read` is asked for a row only where the answer can matter.
///
/// A write that cannot be done at all, whatever the order, is an error even where another is refused.
pub(crate) fn decide(txn: &Txn, mut read: impl FnMut(&Key) -> Result<Option<Item>>) -> Result<Verdict<'_>> {
    let mut effects = Vec::with_capacity(txn.writes.len());
    let mut refusal = None;
    for (index, write) in txn.writes.iter().enumerate() {
        let before = if needs_row(write) { read(&write.key)? } else { None };
        if let Some(cond) = &write.cond
            && !holds(cond, before.as_ref())
        {
            refusal.get_or_insert(Verdict::Refuse { index, seen: before });
            continue;
        }
        let after = match &write.op {
            Op::Put(item) => Some(item.clone().with_key(&write.key)),
            Op::Update(update) => {
                let after = updated(&write.key, before, update);
                Some(after.map_err(|error| error.within(Place { index, key: &write.key }))?)
            }
            Op::Delete => None,
            Op::Check => continue,
        };
        effects.push((&write.key, after));
    }
    Ok(refusal.unwrap_or(Verdict::Apply(effects)))
}

fn needs_row(write: &Write) -> bool {
    write.cond.is_some() || matches!(write.op, Op::Update(_))
}

/// Whether a condition holds of a row; an absent row is one without attributes.
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
        Test::Compare(comparison, other) => order(value, other).is_some_and(|order| comparison.admits(order)),
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
            Some(size) => comparison.admits(size.cmp(&(*bound as usize))),
            None => *comparison == Comparison::NotEqual,
        },
    }
}

/// How two values of one ordered type compare; values of other types do not.
fn order(left: &Value, right: &Value) -> Option<Ordering> {
    match (left, right) {
        (Value::S(left), Value::S(right)) => Some(left.cmp(right)),
        (Value::N(left), Value::N(right)) => Some(left.cmp(right)),
        (Value::B(left), Value::B(right)) => Some(left.cmp(right)),
        _ => None,
    }
}

impl Comparison {
    fn admits(self, order: Ordering) -> bool {
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
        // As DynamoDB Local counts them.
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

/// The row after an update, which makes it where there was none.
fn updated(key: &Key, before: Option<Item>, update: &Update) -> Result<Item> {
    let mut after = before.unwrap_or_default().with_key(key);
    for change in &update.changes {
        let name = change.name.as_ref();
        match &change.action {
            Action::Set(value) => after.set(name, value.clone()),
            Action::SetIfAbsent(value) => {
                if after.get(name).is_none() {
                    after.set(name, value.clone());
                }
            }
            Action::Remove => {
                after.remove(name);
            }
            Action::Append(values) => {
                let list = appended(after.remove(name), values).map_err(|error| of(name, error))?;
                after.set(name, list);
            }
            Action::Add(value) => {
                let sum = added(after.remove(name), value).map_err(|error| of(name, error))?;
                after.set(name, sum);
            }
        }
    }
    debug_assert!(after.get(PK).is_some() && after.get(SK).is_some());
    limit::check_item_bytes(size::of_item(key, &after))?;
    Ok(after)
}

fn of(name: &str, error: Error) -> Error {
    error.within(format_args!("`{}`", Excerpt(name)))
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

    #[test]
    fn what_cannot_be_done_is_named_with_its_write_and_its_attribute() {
        let add = Update::new([Attr::<i64>::new("n").add(1)]);
        let txn =
            Txn::new([Write::delete(Key::new("p", "other")), Write::update(Key::new("p", "text"), add)]);
        let Err(error) = decide(&txn, |_| Ok(Some(Item::from([("n", "one".into())])))) else {
            panic!("a number cannot be added to a text");
        };
        assert!(error.to_string().starts_with("write 1 (text of p): `n`: "), "{error}");
    }
}
