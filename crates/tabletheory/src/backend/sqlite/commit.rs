//! The transactions of a table, as the writer thread applies them.

use rusqlite::{Transaction, params};

use super::error::BackendError;
use super::writer::{ApplyError, Work};
use super::{reader, row, token};
use crate::backend::token_reused;
use crate::clock::Timestamp;
use crate::eval::{Effect, evaluate};
use crate::item::{Item, Key};
use crate::ttl;
use crate::txn::{ClientToken, Commit, Txn};
use crate::use_order;

/// A transaction with a precomputed digest, because the single writer thread is the bottleneck.
pub(super) struct PreparedTxn {
    txn: Txn,
    /// The client token and the digest of the writes.
    token: Option<(ClientToken, [u8; 32])>,
}

impl PreparedTxn {
    pub(super) fn new(txn: &Txn) -> Self {
        let token = txn.token.as_ref().map(|token| (token.clone(), txn.digest()));
        PreparedTxn { txn: txn.clone(), token }
    }
}

impl Work for PreparedTxn {
    type Outcome = Commit;

    fn is_durable(&self) -> bool {
        self.txn.is_durable
    }

    fn apply(&self, transaction: &Transaction<'_>, now: Timestamp) -> Result<Commit, ApplyError> {
        let PreparedTxn { txn, token } = self;
        if let Some((token, digest)) = token
            && let Some(used_for) =
                token::lookup(transaction, token, now).map_err(ApplyError::BeforeWriting)?
        {
            let reused = || ApplyError::BeforeWriting(token_reused().into());
            return (used_for == *digest).then_some(Commit::Done).ok_or_else(reused);
        }
        // Also damaged rows, which count as absent in conditions.
        let mut found = Vec::new();
        let read = |key: &Key| {
            let row = reader::get(transaction, key)?;
            found.extend(row.is_some().then(|| key.clone()));
            Ok(row)
        };
        let effect = evaluate(txn, read).map_err(ApplyError::BeforeWriting)?;
        let rows = match effect {
            Effect::Refuse { index, seen } => return Ok(Commit::Refused { index, seen }),
            Effect::Apply(rows) => rows,
        };
        let write = || -> Result<(), BackendError> {
            for (key, after) in rows {
                let was_found = found.contains(key);
                match after {
                    Some(item) if was_found => replace(transaction, key, &item)?,
                    Some(item) => put(transaction, key, &item)?,
                    None if was_found => delete_found(transaction, key)?,
                    None => drop(delete(transaction, key)?),
                }
            }
            match token {
                Some((token, digest)) => token::record(transaction, token, digest, now),
                None => Ok(()),
            }
        };
        write().map_err(ApplyError::WhileWriting)?;
        Ok(Commit::Done)
    }
}

/// Writes a row that may exist.
fn put(transaction: &Transaction<'_>, key: &Key, item: &Item) -> Result<(), BackendError> {
    // Unlike REPLACE, this does not touch the indexes on `ttl` and `used_at` if the values are unchanged.
    let sql = "INSERT INTO item (pk, sk, ttl, used_at, item, crc) VALUES (?1, ?2, ?3, ?4, ?5, ?6)
               ON CONFLICT (pk, sk) DO UPDATE
               SET ttl = excluded.ttl, used_at = excluded.used_at, item = excluded.item, crc = excluded.crc";
    write(transaction, sql, key, item).map(drop)
}

/// Writes a row in place of one that was found in the same transaction.
///
/// The conditions with `+` are tested for the row that the search has found, which may be another one: see
/// [`row::decode_found`].
pub(super) fn replace(transaction: &Transaction<'_>, key: &Key, item: &Item) -> Result<(), BackendError> {
    let sql = "UPDATE item SET ttl = ?3, used_at = ?4, item = ?5, crc = ?6
               WHERE pk = ?1 AND sk = ?2 AND +pk = ?1 AND +sk = ?2";
    check_one(write(transaction, sql, key, item)?, key)
}

/// Deletes a row that was found in the same transaction.
pub(super) fn delete_found(transaction: &Transaction<'_>, key: &Key) -> Result<(), BackendError> {
    check_one(delete(transaction, key)?, key)
}

fn write(transaction: &Transaction<'_>, sql: &str, key: &Key, item: &Item) -> Result<usize, BackendError> {
    let (text, crc) = row::encode(key, item);
    let mut statement = transaction.prepare_cached(sql)?;
    Ok(statement.execute(params![key.pk, key.sk, ttl::of(item), use_order::of(item), text, crc])?)
}

fn delete(transaction: &Transaction<'_>, key: &Key) -> Result<usize, BackendError> {
    let mut statement =
        transaction.prepare_cached("DELETE FROM item WHERE pk = ?1 AND sk = ?2 AND +pk = ?1 AND +sk = ?2")?;
    Ok(statement.execute([&key.pk, &key.sk])?)
}

/// Fails if a row that was found cannot be found any more. In an index whose keys are not in their order, the search for a key
/// ends elsewhere after another key was inserted. A lease that is not deleted would be held by nobody.
fn check_one(written: usize, key: &Key) -> Result<(), BackendError> {
    if written == 1 { Ok(()) } else { Err(row::mismatch(key)) }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::backend::sqlite::TABLE;
    use crate::backend::sqlite::file::{OnCorruption, SqliteFile, begin};

    #[test]
    fn a_row_that_was_found_and_cannot_be_written_is_damage_of_the_file() {
        let directory = tempfile::tempdir().expect("a directory");
        let file = SqliteFile::new(directory.path().join("table.db"), &TABLE, OnCorruption::Refuse);
        let connection = file.open_to_write(Duration::ZERO).expect("a new file").connection;
        let transaction = begin(&connection, Duration::ZERO).expect("a transaction");
        let (key, item) = (Key::new("CACHE#1", "LOCK"), Item::new());
        put(&transaction, &key, &item).expect("a put");
        replace(&transaction, &key, &item).expect("the row is there");
        delete_found(&transaction, &key).expect("the row is there");
        for result in [replace(&transaction, &key, &item), delete_found(&transaction, &key)] {
            assert!(result.is_err_and(|error| error.is_damage()));
        }
    }
}
