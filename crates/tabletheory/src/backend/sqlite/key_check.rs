//! Compares the rows of a table with the index on their keys, a bounded number at a time.
//!
//! A flipped bit in a key of the index can hide rows: a search compares its key with some keys of the index, and goes on to the
//! wrong side of the one that was hit. A read cannot tell a hidden row from one that does not exist, so this searches every row.

use std::sync::mpsc::{Receiver, TryRecvError};

use rusqlite::{Transaction, params};

use super::error::BackendError;
use super::row;
use super::writer::{ApplyError, Queue, Work};
use crate::clock::Timestamp;
use crate::error::Result;
use crate::item::Key;

/// Number of rows that are compared in one transaction, before other writers continue: less than a millisecond.
const ROWS: u32 = 200;

/// Searches the keys of the rows that follow the row with this number. The outcome is the number of the last row; `None` at the
/// end of the table.
pub(super) struct KeyCheck {
    pub(super) after: i64,
}

impl KeyCheck {
    /// Begins with the first row.
    pub(super) const START: KeyCheck = KeyCheck { after: i64::MIN };
}

impl Work for KeyCheck {
    type Outcome = Option<i64>;

    fn apply(&self, transaction: &Transaction<'_>, _: Timestamp) -> Result<Option<i64>, ApplyError> {
        let check = || -> Result<Option<i64>, BackendError> {
            // In files of earlier versions, rows have no numbers: their keys are in no other place.
            let Ok(mut statement) = transaction.prepare_cached(
                "SELECT rowid, pk, sk, (SELECT found.rowid FROM item AS found WHERE pk = row.pk AND sk = row.sk)
                 FROM item AS row NOT INDEXED WHERE rowid > ?1 ORDER BY rowid LIMIT ?2",
            ) else {
                return Ok(None);
            };
            let mut rows = statement.query(params![self.after, ROWS])?;
            let (mut last, mut count) = (None, 0);
            while let Some(row) = rows.next()? {
                let number: i64 = row.get(0)?;
                if row.get::<_, Option<i64>>(3)? != Some(number) {
                    return Err(row::mismatch(&Key::new(row.get::<_, String>(1)?, row.get::<_, String>(2)?)));
                }
                (last, count) = (Some(number), count + 1);
            }
            Ok(last.filter(|_| count == ROWS))
        };
        check().map_err(ApplyError::BeforeWriting)
    }
}

/// Compares some rows in each round of the sweeper, beginning again at the end of the table.
#[derive(Debug)]
pub(super) struct KeyChecker {
    after: i64,
}

impl KeyChecker {
    /// Maximum number of transactions per round.
    const MAX_BATCHES: usize = 10;

    pub(super) fn new() -> Self {
        KeyChecker { after: KeyCheck::START.after }
    }

    pub(super) fn round(&mut self, queue: &Queue, stopped: &Receiver<()>) -> Result<()> {
        for _ in 0..Self::MAX_BATCHES {
            let last = queue.blocking_submit(KeyCheck { after: self.after })?;
            self.after = last.unwrap_or(KeyCheck::START.after);
            if last.is_none() || stopped.try_recv() == Err(TryRecvError::Disconnected) {
                break;
            }
        }
        Ok(())
    }
}
