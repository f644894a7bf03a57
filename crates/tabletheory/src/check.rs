//! Validation of keys, transactions and reads against the [limits](crate::limit), before a backend sends anything.

use std::collections::HashSet;

use crate::cond::{Comparison, Cond, Node, Test};
use crate::error::{Error, Result, ensure};
use crate::item::{Excerpt, Item, Key, PK, SK};
use crate::limit::{
    MAX_CHANGES, MAX_COND_BYTES, MAX_DEPTH, MAX_ITEM_BYTES, MAX_NAME_BYTES, MAX_PK_BYTES, MAX_SK_BYTES,
    MAX_TERMS, MAX_TXN_BYTES, MAX_WRITES,
};
use crate::query::{Query, Scan, Sort};
use crate::size;
use crate::txn::{Op, Txn, Write};
use crate::update::{Action, Change, Update};
use crate::value::Value;

/// Upper bound for the text of one term in an expression, placeholders and connective included.
const TERM_TEXT: usize = 45;
/// Upper bound for the text of one change in an expression, placeholders included.
const CHANGE_TEXT: usize = 50;

impl Key {
    /// Returns an error if a part of the key is empty or too long.
    ///
    /// ```
    /// use tabletheory::Key;
    ///
    /// assert!(Key::new("CACHE#1", "META").check().is_ok());
    /// let error = Key::new("CACHE#1", "").check().unwrap_err();
    /// assert_eq!(error.to_string(), "the sort key is empty");
    /// ```
    pub fn check(&self) -> Result<()> {
        check_pk(&self.pk)?;
        check_sk(&self.sk)
    }
}

fn check_pk(pk: &str) -> Result<()> {
    check_key_part("partition", pk, MAX_PK_BYTES)
}

fn check_sk(sk: &str) -> Result<()> {
    check_key_part("sort", sk, MAX_SK_BYTES)
}

fn check_key_part(which: &str, text: &str, most: usize) -> Result<()> {
    ensure!(!text.is_empty(), "the {which} key is empty");
    let bytes = text.len();
    ensure!(bytes <= most, "the {which} key has {bytes} bytes; the limit is {most}");
    Ok(())
}

fn check_most(what: &str, count: usize, unit: &str, most: usize) -> Result<()> {
    ensure!(count <= most, "{what} has {count} {unit}; the limit is {most}");
    Ok(())
}

impl Txn {
    /// Returns an error if the transaction is invalid. Every backend calls this before it writes.
    ///
    /// ```
    /// use tabletheory::{Key, Txn, Write};
    ///
    /// let key = Key::new("CACHE#1", "LOCK");
    /// let twice = Txn::new([Write::delete(key.clone()), Write::delete(key)]);
    /// assert_eq!(
    ///     twice.check().unwrap_err().to_string(),
    ///     "writes 0 and 1 both name LOCK of CACHE#1; a transaction may name a row once, \
    ///      so put the condition on the write itself"
    /// );
    /// ```
    pub fn check(&self) -> Result<()> {
        ensure!(!self.writes.is_empty(), "the transaction has no writes");
        check_most("the transaction", self.writes.len(), "writes", MAX_WRITES)?;
        let mut bytes = 0;
        for (index, write) in self.writes.iter().enumerate() {
            bytes +=
                check_write(write).map_err(|error| error.within(WriteLabel { index, key: &write.key }))?;
        }
        check_most("the transaction", bytes, "bytes", MAX_TXN_BYTES)?;
        self.check_rows_are_distinct()
    }

    fn check_rows_are_distinct(&self) -> Result<()> {
        // There are few writes.
        let before =
            |index: usize| self.writes[..index].iter().position(|write| write.key == self.writes[index].key);
        let repeated = (0..self.writes.len()).find_map(|index| Some((before(index)?, index)));
        let Some((first, second)) = repeated else { return Ok(()) };
        let key = &self.writes[second].key;
        Err(Error::invalid(format!(
            "writes {first} and {second} both name {key}; a transaction may name a row once, \
             so put the condition on the write itself"
        )))
    }
}

/// Names a write of a transaction in messages.
pub(crate) struct WriteLabel<'a> {
    pub(crate) index: usize,
    pub(crate) key: &'a Key,
}

impl std::fmt::Display for WriteLabel<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "write {} ({})", self.index, self.key)
    }
}

/// Returns the size of the write within its transaction, never less than DynamoDB counts.
fn check_write(write: &Write) -> Result<usize> {
    write.key.check()?;
    let cond_bytes = write.cond.as_ref().map_or(Ok(0), check_condition)?;
    let op_bytes = match &write.op {
        Op::Put(item) => check_item(&write.key, item)?,
        Op::Update(update) => size::of_key(&write.key) + check_update(update)?,
        Op::Delete | Op::Check => size::of_key(&write.key),
    };
    Ok(cond_bytes + op_bytes)
}

fn check_item(key: &Key, item: &Item) -> Result<usize> {
    for (name, part) in [(PK, &key.pk), (SK, &key.sk)] {
        let is_same = item.get(name).is_none_or(|value| value.as_str() == Some(part));
        ensure!(is_same, "the item has another `{name}` than the key of the write");
    }
    for (name, value) in item.iter() {
        check_name(name)?;
        check_value(value, 1).map_err(|error| error.within_attribute(name))?;
    }
    let bytes = size::of_item(key, item);
    check_item_bytes(bytes)?;
    Ok(bytes)
}

pub(crate) fn check_item_bytes(bytes: usize) -> Result<()> {
    check_most("the item", bytes, "bytes", MAX_ITEM_BYTES)
}

fn check_name(name: &str) -> Result<()> {
    ensure!(!name.is_empty(), "an attribute's name is empty");
    check_most("an attribute's name", name.len(), "bytes", MAX_NAME_BYTES)
}

/// Checks the depth of lists and maps. Numbers and sets are valid by construction.
fn check_value(value: &Value, depth: usize) -> Result<()> {
    match value {
        Value::L(_) | Value::M(_) if depth == MAX_DEPTH => {
            Err(Error::invalid(format!("lists and maps are nested deeper than {MAX_DEPTH} levels")))
        }
        Value::L(values) => values.iter().try_for_each(|value| check_value(value, depth + 1)),
        Value::M(map) => map.values().try_for_each(|value| check_value(value, depth + 1)),
        _ => Ok(()),
    }
}

fn checked_size(value: &Value, depth: usize) -> Result<usize> {
    check_value(value, depth)?;
    Ok(size::of_value(value))
}

/// Returns the size of the condition's text, names and values, never less than DynamoDB counts.
fn check_condition(cond: &Cond) -> Result<usize> {
    let mut terms = 0;
    let bytes = check_cond(cond, 1, &mut terms)? + terms * TERM_TEXT;
    check_most("the condition", bytes, "bytes", MAX_COND_BYTES)?;
    Ok(bytes)
}

/// Returns the size of the names and values; counts the terms.
fn check_cond(cond: &Cond, depth: usize, terms: &mut usize) -> Result<usize> {
    ensure!(depth <= MAX_DEPTH, "the condition is nested deeper than {MAX_DEPTH} levels");
    *terms += match &cond.0 {
        Node::Test { test: Test::In(values), .. } => values.len(),
        _ => 1,
    };
    ensure!(*terms <= MAX_TERMS, "the condition has more than {MAX_TERMS} terms");
    match &cond.0 {
        Node::Test { name, test } => {
            check_name(name)?;
            let bytes = check_test(test)
                .map_err(|error| error.within(format_args!("the condition on `{}`", Excerpt(name))))?;
            Ok(name.len() + bytes)
        }
        Node::All(conds) | Node::Any(conds) => {
            ensure!(!conds.is_empty(), "an AND or OR has no conditions");
            conds.iter().map(|cond| check_cond(cond, depth + 1, terms)).sum()
        }
        Node::Not(cond) => check_cond(cond, depth + 1, terms),
    }
}

/// Returns the size of the values.
fn check_test(test: &Test) -> Result<usize> {
    const ORDERED: &str = "S, N or B";
    match test {
        Test::Absent | Test::Exists | Test::Size(..) => Ok(0),
        Test::Compare(Comparison::Equal | Comparison::NotEqual, value) | Test::Contains(value) => {
            checked_size(value, 1)
        }
        Test::Compare(comparison, value) => check_type(comparison.symbol(), ORDERED, value),
        Test::Between(low, high) => {
            let bytes = check_type("BETWEEN", ORDERED, low)? + check_type("BETWEEN", ORDERED, high)?;
            let (low_type, high_type) = (low.type_name(), high.type_name());
            ensure!(low_type == high_type, "BETWEEN has bounds of two types, {low_type} and {high_type}");
            check_bounds(low, high)?;
            Ok(bytes)
        }
        Test::In(values) => {
            ensure!(!values.is_empty(), "IN has no values");
            values.iter().map(|value| checked_size(value, 1)).sum()
        }
        Test::BeginsWith(prefix) => check_type("begins_with", "S or B", prefix),
    }
}

fn check_bounds<T: Ord>(low: &T, high: &T) -> Result<()> {
    ensure!(low <= high, "BETWEEN has a lower bound that is greater than its upper bound");
    Ok(())
}

/// Checks that an operator takes a value of this type; returns the size of the value.
fn check_type(operator: &str, types: &str, value: &Value) -> Result<usize> {
    let found = value.type_name();
    ensure!(types.split([',', ' ']).any(|name| name == found), "{operator} takes {types}, not {found}");
    Ok(size::of_value(value))
}

/// Returns the size of the update's text, names and values.
fn check_update(update: &Update) -> Result<usize> {
    ensure!(!update.changes.is_empty(), "the update changes nothing");
    check_most("the update", update.changes.len(), "changes", MAX_CHANGES)?;
    let mut names = HashSet::with_capacity(update.changes.len());
    let mut bytes = 0;
    for Change { name, action } in &update.changes {
        check_name(name)?;
        ensure!(
            name != PK && name != SK,
            "the update changes the key attribute `{name}`; put a new row and delete the old one instead"
        );
        ensure!(names.insert(name), "the update changes `{}` twice", Excerpt(name));
        bytes += name.len() + check_action(action).map_err(|error| error.within_attribute(name))?;
    }
    check_item_bytes(bytes)?;
    Ok(bytes + update.changes.len() * CHANGE_TEXT)
}

fn check_action(action: &Action) -> Result<usize> {
    match action {
        Action::Set(value) | Action::SetIfAbsent(value) => checked_size(value, 1),
        Action::Append(values) => values.iter().map(|value| checked_size(value, 2)).sum(),
        Action::Remove => Ok(0),
        Action::Add(value) => check_type("ADD", "N, SS, NS or BS", value),
    }
}

impl Query {
    /// Returns an error if the request is invalid. Every backend calls this before it reads.
    ///
    /// ```
    /// use tabletheory::Query;
    ///
    /// assert!(Query::of("CACHE#1").check().is_ok());
    /// assert_eq!(Query::of("CACHE#1").limit(0).check().unwrap_err().to_string(), "the limit is 0 rows; it must be at least 1");
    /// ```
    pub fn check(&self) -> Result<()> {
        check_pk(&self.pk)?;
        check_limit(self.limit)?;
        match &self.sort {
            Sort::All => {}
            Sort::Compare(_, sk) | Sort::BeginsWith(sk) => check_sk(sk)?,
            Sort::Between(low, high) => {
                check_sk(low)?;
                check_sk(high)?;
                check_bounds(low, high)?;
            }
        }
        let Some(cursor) = &self.after else { return Ok(()) };
        cursor.0.check()?;
        let is_same = cursor.0.pk == self.pk && self.sort.matches(&cursor.0.sk);
        ensure!(is_same, "the cursor belongs to another query");
        Ok(())
    }
}

impl Scan {
    /// Returns an error if the request is invalid. Every backend calls this before it reads.
    ///
    /// ```
    /// assert!(tabletheory::Scan::new().check().is_ok());
    /// assert!(tabletheory::Scan::new().limit(0).check().is_err());
    /// ```
    pub fn check(&self) -> Result<()> {
        check_limit(self.limit)?;
        self.after.as_ref().map_or(Ok(()), |cursor| cursor.0.check())
    }
}

fn check_limit(limit: Option<usize>) -> Result<()> {
    ensure!(limit != Some(0), "the limit is 0 rows; it must be at least 1");
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::attr::Attr;

    #[test]
    fn the_size_of_a_change_includes_its_text() {
        let txn = |room: usize| {
            let changes = || (10..90).map(|n| Attr::<String>::named(n.to_string()).set("x".repeat(room)));
            Txn::new(
                (100..200).map(|sk| Write::update(Key::new("p", sk.to_string()), Update::new(changes()))),
            )
        };
        assert!(txn(472).check().is_ok());
        let bytes = 100 * ("pkpsk123".len() + 80 * (2 + 473 + CHANGE_TEXT));
        let message = format!("the transaction has {bytes} bytes; the limit is 4194304");
        assert_eq!(txn(473).check().expect_err("too large").to_string(), message);
    }
}
