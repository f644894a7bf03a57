//! Versions and times that saves add to rows, as pure functions of the row and the current time.

use crate::attr::Attr;
use crate::clock::Timestamp;
use crate::cond::Cond;
use crate::error::{Error, Result};
use crate::item::{Item, Key, PK};
use crate::model::Model;
use crate::number::Number;
use crate::time_form::TimeForm;
use crate::txn::Write;
use crate::update::Update;
use crate::value::Value;

/// Saves a row. If the model has a version, the stored version must be the one that was read, and there must be no row if this
/// one was never saved.
///
/// Returns the write, and the row as it will be stored.
pub(crate) fn put<M: Model>(row: &M, now: Timestamp) -> Result<(Write, M)> {
    let (mut write, saved, seen) = prepare(row, now)?;
    if let Some(version) = M::ROLES.version {
        write = write.when(seen.map_or_else(row_is_absent, |seen| is_at(version, seen)));
    }
    Ok((write, saved))
}

/// Saves a row if there is none.
pub(crate) fn put_new<M: Model>(row: &M, now: Timestamp) -> Result<(Write, M)> {
    let (write, saved, _) = prepare(row, now)?;
    Ok((write.when(row_is_absent()), saved))
}

/// Updates a row, increments its version and sets its times.
pub(crate) fn update<M: Model>(key: &Key, mut update: Update, now: Timestamp) -> Result<Write> {
    let changes = |update: &Update, name: &str| update.changes.iter().any(|change| change.name() == name);
    if let Some(name) = M::ROLES.version {
        if changes(&update, name) {
            return Err(Error::invalid(format!(
                "{} {key}: the update changes the version `{name}`, which every update increments; \
                 to require a version, use a condition",
                M::NAME
            )));
        }
        update = update.with(Attr::<i64>::new(name).add(1));
    }
    // Callers may set the times themselves, for example to copy rows.
    if let Some(name) = M::ROLES.created_at.filter(|name| !changes(&update, name)) {
        update = update.with(Attr::<Value>::new(name).set_if_absent(M::ROLES.time_form.value(now)));
    }
    if let Some(name) = M::ROLES.updated_at.filter(|name| !changes(&update, name)) {
        update = update.with(Attr::<Value>::new(name).set(M::ROLES.time_form.value(now)));
    }
    Ok(Write::update(key.clone(), update))
}

/// Deletes a row. If the model has a version, the stored version must be the one that was read.
pub(crate) fn delete<M: Model>(row: &M) -> Result<Write> {
    let write = Write::delete(row.key());
    let Some(name) = M::ROLES.version else { return Ok(write) };
    let seen = version::<M>(&row.to_item()?, name)?;
    // Other writers may store rows without a version.
    Ok(write.when(seen.map_or_else(|| has_no_version(name), |seen| is_at(name, seen))))
}

/// Returns the write of the row with its next version and its times, that row, and the version that it had.
fn prepare<M: Model>(row: &M, now: Timestamp) -> Result<(Write, M, Option<Number>)> {
    let mut item = row.to_item()?;
    let mut seen = None;
    if let Some(name) = M::ROLES.version {
        seen = version::<M>(&item, name)?;
        let first = if M::ROLES.optional_version { Number::ZERO } else { Number::from(1) };
        item.set(name, seen.map_or(Ok(first), |seen| seen.checked_add(&Number::from(1)))?);
    }
    let now = M::ROLES.time_form.value(now);
    if let Some(name) = M::ROLES.created_at
        && TimeForm::is_unset(item.get(name))
    {
        item.set(name, now.clone());
    }
    if let Some(name) = M::ROLES.updated_at {
        item.set(name, now);
    }
    // Fails before anything is written if the version no longer fits in its field.
    let saved = M::from_item(item.clone())?;
    Ok((Write::put(row.key(), item), saved, seen))
}

/// Returns the version that a row was read with, `None` if it was never saved.
fn version<M: Model>(item: &Item, name: &str) -> Result<Option<Number>> {
    let counts = |number: &Number| M::ROLES.optional_version || *number != Number::ZERO;
    match item.get(name) {
        None => Ok(None),
        Some(Value::N(number)) => Ok(Some(*number).filter(counts)),
        Some(other) => Err(Error::invalid(format!(
            "the version `{name}` is of type {}; it must be N",
            other.type_name()
        ))),
    }
}

fn is_at(name: &'static str, version: Number) -> Cond {
    Attr::<Number>::new(name).is(version)
}

/// Matches rows of writers that store no version, and of writers whose versions start at zero.
fn has_no_version(name: &'static str) -> Cond {
    let version = Attr::<Number>::new(name);
    version.absent().or(version.is(Number::ZERO))
}

fn row_is_absent() -> Cond {
    Attr::<String>::new(PK).absent()
}
