//! The limits, which are DynamoDB's, held on every backend before anything is written.
//!
//! ```
//! use tabletheory::limit;
//!
//! assert_eq!(limit::MAX_WRITES, 100);
//! assert_eq!(limit::MAX_ITEM_BYTES, 409_600);
//! ```

use std::collections::HashSet;

use crate::cond::{Comparison, Cond, Node, Test};
use crate::error::{Error, Result};
use crate::item::{Excerpt, Item, Key, PK, SK};
use crate::query::{Query, Scan, Sort};
use crate::size;
use crate::txn::{Op, Txn, Write};
use crate::update::{Action, Change, Update};
use crate::value::Value;

/// The most writes in one transaction.
pub const MAX_WRITES: usize = 100;
/// The most bytes in one transaction.
pub const MAX_TXN_BYTES: usize = 4 * 1024 * 1024;
/// The most bytes in one item, names and values together.
pub const MAX_ITEM_BYTES: usize = 400 * 1024;
/// The most bytes in a partition key.
pub const MAX_PK_BYTES: usize = 2048;
/// The most bytes in a sort key.
pub const MAX_SK_BYTES: usize = 1024;
/// The most bytes in an attribute's name: the smallest of the limits that DynamoDB has for names.
pub const MAX_NAME_BYTES: usize = 255;
/// The deepest nesting: a value in lists and maps may be at this level, and a condition in conditions.
pub const MAX_DEPTH: usize = 32;
/// The most tests, values of an `IN`, and connectives in one condition: what fits in DynamoDB's 4 KB.
pub const MAX_TERMS: usize = 90;
/// The most bytes in one condition, its text, names and values together.
pub const MAX_COND_BYTES: usize = 1024 * 1024;
/// The most changes in one update: what fits in DynamoDB's 4 KB.
pub const MAX_CHANGES: usize = 80;
/// About how many bytes of rows a page holds before it ends.
pub const PAGE_BYTES: usize = 1024 * 1024;

/// More than the text of one term, placeholders and connective included.
const TERM_TEXT: usize = 45;
/// More than the text of one change, placeholders included.
const CHANGE_TEXT: usize = 50;

impl Key {
    /// Says what is wrong with it, if anything: an empty or an over-long part.
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
    if text.is_empty() {
        return Err(Error::invalid(format!("the {which} key is empty")));
    }
    if text.len() > most {
        return Err(Error::invalid(format!("the {which} key has {} bytes; the limit is {most}", text.len())));
    }
    Ok(())
}

impl Txn {
    /// Says what is wrong with it, if anything; every backend asks before it writes.
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
        if self.writes.is_empty() {
            return Err(Error::invalid("the transaction has no writes"));
        }
        if self.writes.len() > MAX_WRITES {
            return Err(Error::invalid(format!(
                "the transaction has {} writes; the limit is {MAX_WRITES}",
                self.writes.len()
            )));
        }
        let mut bytes = 0;
        for (index, write) in self.writes.iter().enumerate() {
            bytes += check_write(write).map_err(|error| error.within(Place { index, key: &write.key }))?;
        }
        if bytes > MAX_TXN_BYTES {
            return Err(Error::invalid(format!(
                "the transaction has {bytes} bytes; the limit is {MAX_TXN_BYTES}"
            )));
        }
        self.check_rows_are_distinct()
    }

    fn check_rows_are_distinct(&self) -> Result<()> {
        let mut seen = HashSet::with_capacity(self.writes.len());
        let Some(second) = self.writes.iter().position(|write| !seen.insert(&write.key)) else {
            return Ok(());
        };
        let key = &self.writes[second].key;
        let first = self.writes.iter().position(|write| &write.key == key).unwrap_or(second);
        Err(Error::invalid(format!(
            "writes {first} and {second} both name {key}; a transaction may name a row once, \
             so put the condition on the write itself"
        )))
    }
}

/// Which write of a transaction a message is about.
pub(crate) struct Place<'a> {
    pub(crate) index: usize,
    pub(crate) key: &'a Key,
}

impl std::fmt::Display for Place<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "write {} ({})", self.index, self.key)
    }
}

/// Returns the bytes that the write counts towards its transaction, never fewer than DynamoDB counts.
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
        match item.get(name) {
            None => {}
            Some(Value::S(text)) if text == part => {}
            Some(_) => {
                return Err(Error::invalid(format!(
                    "the item has another `{name}` than the row that is written"
                )));
            }
        }
    }
    for (name, value) in item.iter() {
        check_name(name)?;
        check_value(value, 1).map_err(|error| error.within(format_args!("`{}`", Excerpt(name))))?;
    }
    let bytes = size::of_item(key, item);
    check_item_bytes(bytes)?;
    Ok(bytes)
}

pub(crate) fn check_item_bytes(bytes: usize) -> Result<()> {
    if bytes > MAX_ITEM_BYTES {
        return Err(Error::invalid(format!("the item has {bytes} bytes; the limit is {MAX_ITEM_BYTES}")));
    }
    Ok(())
}

fn check_name(name: &str) -> Result<()> {
    if name.is_empty() {
        return Err(Error::invalid("an attribute's name is empty"));
    }
    if name.len() > MAX_NAME_BYTES {
        return Err(Error::invalid(format!(
            "an attribute's name has {} bytes; the limit is {MAX_NAME_BYTES}",
            name.len()
        )));
    }
    Ok(())
}

/// A number or a set is right by construction; what is left is how deep lists and maps go.
fn check_value(value: &Value, depth: usize) -> Result<()> {
    if depth == MAX_DEPTH && matches!(value, Value::L(_) | Value::M(_)) {
        return Err(Error::invalid(format!("lists and maps are nested deeper than {MAX_DEPTH} levels")));
    }
    match value {
        Value::L(values) => values.iter().try_for_each(|value| check_value(value, depth + 1)),
        Value::M(map) => map.values().try_for_each(|value| check_value(value, depth + 1)),
        _ => Ok(()),
    }
}

/// Returns the bytes of its text, names and values, never fewer than DynamoDB counts.
fn check_condition(cond: &Cond) -> Result<usize> {
    let mut tally = Tally::default();
    check_cond(cond, 1, &mut tally)?;
    let bytes = tally.bytes + tally.terms * TERM_TEXT;
    if bytes > MAX_COND_BYTES {
        return Err(Error::invalid(format!(
            "the condition has {bytes} bytes; the limit is {MAX_COND_BYTES}"
        )));
    }
    Ok(bytes)
}

/// What the tests of a condition add up to.
#[derive(Default)]
struct Tally {
    terms: usize,
    bytes: usize,
}

fn check_cond(cond: &Cond, depth: usize, tally: &mut Tally) -> Result<()> {
    if depth > MAX_DEPTH {
        return Err(Error::invalid(format!("the condition is nested deeper than {MAX_DEPTH} levels")));
    }
    tally.terms += match &cond.0 {
        Node::Test { test: Test::In(values), .. } => values.len(),
        _ => 1,
    };
    if tally.terms > MAX_TERMS {
        return Err(Error::invalid(format!("the condition has more than {MAX_TERMS} terms")));
    }
    match &cond.0 {
        Node::Test { name, test } => {
            check_name(name)?;
            tally.bytes += name.len() + test.values().map(size::of_value).sum::<usize>();
            check_test(test)
                .map_err(|error| error.within(format_args!("the condition on `{}`", Excerpt(name))))
        }
        Node::All(conds) | Node::Any(conds) => {
            if conds.is_empty() {
                return Err(Error::invalid("a condition joins no conditions at all"));
            }
            conds.iter().try_for_each(|cond| check_cond(cond, depth + 1, tally))
        }
        Node::Not(cond) => check_cond(cond, depth + 1, tally),
    }
}

fn check_test(test: &Test) -> Result<()> {
    match test {
        Test::Absent | Test::Exists | Test::Size(..) => Ok(()),
        Test::Compare(Comparison::Equal | Comparison::NotEqual, value) | Test::Contains(value) => {
            check_value(value, 1)
        }
        Test::Compare(comparison, value) => check_ordered(comparison.symbol(), value),
        Test::Between(low, high) => {
            check_ordered("BETWEEN", low)?;
            check_ordered("BETWEEN", high)?;
            if low.type_name() != high.type_name() {
                return Err(Error::invalid(format!(
                    "BETWEEN has bounds of two types, {} and {}",
                    low.type_name(),
                    high.type_name()
                )));
            }
            if low > high {
                return Err(Error::invalid("BETWEEN has a lower bound that is greater than its upper bound"));
            }
            Ok(())
        }
        Test::In(values) if values.is_empty() => Err(Error::invalid("IN has no values")),
        Test::In(values) => values.iter().try_for_each(|value| check_value(value, 1)),
        Test::BeginsWith(Value::S(_) | Value::B(_)) => Ok(()),
        Test::BeginsWith(other) => {
            Err(Error::invalid(format!("begins_with takes S or B, not {}", other.type_name())))
        }
    }
}

fn check_ordered(operator: &str, value: &Value) -> Result<()> {
    match value {
        Value::S(_) | Value::N(_) | Value::B(_) => Ok(()),
        other => Err(Error::invalid(format!("{operator} takes S, N or B, not {}", other.type_name()))),
    }
}

/// Returns the bytes of its names and values.
fn check_update(update: &Update) -> Result<usize> {
    if update.changes.is_empty() {
        return Err(Error::invalid("the update changes nothing"));
    }
    if update.changes.len() > MAX_CHANGES {
        return Err(Error::invalid(format!(
            "the update has {} changes; the limit is {MAX_CHANGES}",
            update.changes.len()
        )));
    }
    let mut names = HashSet::with_capacity(update.changes.len());
    let mut bytes = 0;
    for Change { name, action } in &update.changes {
        check_name(name)?;
        if name == PK || name == SK {
            return Err(Error::invalid(format!(
                "the update changes the key attribute `{name}`; put a new row and delete the old one instead"
            )));
        }
        if !names.insert(name) {
            return Err(Error::invalid(format!("the update changes `{}` twice", Excerpt(name))));
        }
        let size = check_action(action).map_err(|error| error.within(format_args!("`{}`", Excerpt(name))))?;
        bytes += name.len() + size;
    }
    check_item_bytes(bytes)?;
    Ok(bytes + update.changes.len() * CHANGE_TEXT)
}

fn check_action(action: &Action) -> Result<usize> {
    match action {
        Action::Set(value) | Action::SetIfAbsent(value) => {
            check_value(value, 1)?;
            Ok(size::of_value(value))
        }
        Action::Append(values) => {
            values.iter().try_for_each(|value| check_value(value, 2))?;
            Ok(values.iter().map(size::of_value).sum())
        }
        Action::Remove => Ok(0),
        Action::Add(value) => match value {
            Value::N(_) | Value::Ss(_) | Value::Ns(_) | Value::Bs(_) => Ok(size::of_value(value)),
            other => Err(Error::invalid(format!("ADD takes N, SS, NS or BS, not {}", other.type_name()))),
        },
    }
}

impl Query {
    /// Says what is wrong with it, if anything; every backend asks before it reads.
    ///
    /// ```
    /// use tabletheory::Query;
    ///
    /// assert!(Query::of("CACHE#1").check().is_ok());
    /// assert_eq!(Query::of("CACHE#1").limit(0).check().unwrap_err().to_string(), "the limit is 0 rows; ask for at least 1");
    /// ```
    pub fn check(&self) -> Result<()> {
        check_pk(&self.pk)?;
        check_limit(self.limit)?;
        match &self.sort {
            Sort::All => {}
            Sort::Is(sk)
            | Sort::Lt(sk)
            | Sort::Le(sk)
            | Sort::Gt(sk)
            | Sort::Ge(sk)
            | Sort::BeginsWith(sk) => {
                check_sk(sk)?;
            }
            Sort::Between(low, high) => {
                check_sk(low)?;
                check_sk(high)?;
                if low > high {
                    return Err(Error::invalid(
                        "BETWEEN has a lower bound that is greater than its upper bound",
                    ));
                }
            }
        }
        let Some(cursor) = &self.after else { return Ok(()) };
        cursor.0.check()?;
        if cursor.0.pk != self.pk || !self.sort.admits(&cursor.0.sk) {
            return Err(Error::invalid("the cursor is of another query"));
        }
        Ok(())
    }
}

impl Scan {
    /// Says what is wrong with it, if anything; every backend asks before it reads.
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
    match limit {
        Some(0) => Err(Error::invalid("the limit is 0 rows; ask for at least 1")),
        _ => Ok(()),
    }
}

impl Sort {
    /// Whether this sort key fits.
    pub(crate) fn admits(&self, sk: &str) -> bool {
        match self {
            Sort::All => true,
            Sort::Is(bound) => sk == bound,
            Sort::Lt(bound) => sk < bound.as_str(),
            Sort::Le(bound) => sk <= bound.as_str(),
            Sort::Gt(bound) => sk > bound.as_str(),
            Sort::Ge(bound) => sk >= bound.as_str(),
            Sort::Between(low, high) => (low.as_str()..=high.as_str()).contains(&sk),
            Sort::BeginsWith(prefix) => sk.starts_with(prefix.as_str()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::attr::Attr;

    #[test]
    fn a_change_counts_more_than_its_name_and_its_value() {
        let txn = |room: usize| {
            let changes = || (10..90).map(|n| Attr::<String>::named(n.to_string()).set("x".repeat(room)));
            Txn::new(
                (100..200).map(|sk| Write::update(Key::new("p", sk.to_string()), Update::new(changes()))),
            )
        };
        assert!(txn(472).check().is_ok());
        let bytes = 100 * ("pkpsk123".len() + 80 * (2 + 473 + CHANGE_TEXT));
        let said = format!("the transaction has {bytes} bytes; the limit is 4194304");
        assert_eq!(txn(473).check().expect_err("too large").to_string(), said);
    }
}
