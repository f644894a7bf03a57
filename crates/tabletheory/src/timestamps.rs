//! Versions and times: what a save adds to a row by itself, as pure functions of the row and the time.

use crate::attr::Attr;
use crate::clock::Timestamp;
use crate::cond::Cond;
use crate::error::{Error, Result};
use crate::item::{Item, Key, PK};
use crate::model::Model;
use crate::number::Number;
use crate::txn::Write;
use crate::update::Update;
use crate::value::Value;

/// A row that is about to be saved, and the write that saves it.
#[derive(Debug)]
pub(crate) struct Stamped<M> {
    pub(crate) write: Write,
    pub(crate) row: M,
}

/// Saves a row over the one that was read, where the model has a version; else over whatever is there.
pub(crate) fn put<M: Model>(row: &M, now: Timestamp) -> Result<Stamped<M>> {
    let (stamped, seen) = stamp(row, now)?;
    Ok(match M::ROLES.version {
        Some(version) => {
            let never_saved = || row_is_absent().or(has_no_version(version));
            stamped.when(seen.map_or_else(never_saved, |seen| is_at(version, seen)))
        }
        None => stamped,
    })
}

/// Saves a row where there is none.
pub(crate) fn put_new<M: Model>(row: &M, now: Timestamp) -> Result<Stamped<M>> {
    let (stamped, _) = stamp(row, now)?;
    Ok(stamped.when(row_is_absent()))
}

/// Changes a row, and counts the change.
pub(crate) fn update<M: Model>(key: &Key, mut update: Update, now: Timestamp) -> Result<Write> {
    let changes = |update: &Update, name: &str| update.changes.iter().any(|change| change.name() == name);
    if let Some(name) = M::ROLES.version {
        if changes(&update, name) {
            return Err(Error::invalid(format!(
                "{} {key}: the update changes the version `{name}`, which every update raises by itself; \
                 to require one, make it the update's condition",
                M::NAME
            )));
        }
        update = update.with(Attr::<i64>::new(name).add(1));
    }
    // A caller who sets a time has a reason to, as when rows are copied.
    if let Some(name) = M::ROLES.created_at.filter(|name| !changes(&update, name)) {
        update = update.with(Attr::<i64>::new(name).set_if_absent(now.seconds()));
    }
    if let Some(name) = M::ROLES.updated_at.filter(|name| !changes(&update, name)) {
        update = update.with(Attr::<i64>::new(name).set(now.seconds()));
    }
    Ok(Write::update(key.clone(), update))
}

/// Deletes the row that was read, where the model has a version; else whatever is there.
pub(crate) fn delete<M: Model>(row: &M) -> Result<Write> {
    let write = Write::delete(row.key());
    let Some(name) = M::ROLES.version else { return Ok(write) };
    let seen = version(&row.to_item()?, name)?;
    // A row of another writer may have no version at all; what has none is what was read.
    Ok(write.when(seen.map_or_else(|| has_no_version(name), |seen| is_at(name, seen))))
}

impl<M> Stamped<M> {
    fn when(mut self, cond: Cond) -> Self {
        self.write = self.write.when(cond);
        self
    }
}

/// The row with its next version and its times, and the version that it had.
fn stamp<M: Model>(row: &M, now: Timestamp) -> Result<(Stamped<M>, Option<Number>)> {
    let mut item = row.to_item()?;
    let mut seen = None;
    if let Some(name) = M::ROLES.version {
        seen = version(&item, name)?;
        item.set(name, seen.unwrap_or(Number::ZERO).checked_add(&Number::from(1))?);
    }
    if let Some(name) = M::ROLES.created_at
        && item.get(name).is_none_or(|at| *at == Value::N(Number::ZERO))
    {
        item.set(name, now.seconds());
    }
    if let Some(name) = M::ROLES.updated_at {
        item.set(name, now.seconds());
    }
    // A version that no longer fits in its field is found out here, before anything is written.
    let row_as_saved = M::from_item(item.clone())?;
    Ok((Stamped { write: Write::put(row.key(), item), row: row_as_saved }, seen))
}

/// The version that a row was read with; none when it was never saved.
fn version(item: &Item, name: &str) -> Result<Option<Number>> {
    match item.get(name) {
        None => Ok(None),
        Some(Value::N(number)) => Ok(Some(*number).filter(|number| *number != Number::ZERO)),
        Some(other) => Err(Error::invalid(format!(
            "the version `{name}` is of type {}; it must be N",
            other.type_name()
        ))),
    }
}

fn is_at(name: &'static str, version: Number) -> Cond {
    Attr::<Number>::new(name).is(version)
}

/// The row of a writer that keeps no versions, or of one that has begun to count at zero.
fn has_no_version(name: &'static str) -> Cond {
    let version = Attr::<Number>::new(name);
    version.absent().or(version.is(Number::ZERO))
}

fn row_is_absent() -> Cond {
    Attr::<String>::new(PK).absent()
}
