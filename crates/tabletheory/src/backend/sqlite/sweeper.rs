//! Deletes expired rows and client tokens periodically, and compares rows with the index on their keys.

use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, TryRecvError, channel};
use std::time::Duration;

use rusqlite::Transaction;

use super::error::BackendError;
use super::key_check::KeyChecker;
use super::worker::Worker;
use super::writer::{ApplyError, Queue, Work};
use super::{SweepSettings, commit, reader, token};
use crate::clock::Timestamp;
use crate::error::Result;
use crate::ttl;

/// Number of expired rows that are deleted in one transaction, before other writers continue.
const SWEEP_ROWS: u32 = 200;

/// The deletion of some rows that expired at least this long ago, and of some expired client tokens.
pub(super) struct Sweep {
    pub(super) lag: Duration,
}

/// The result of one sweep.
#[derive(Clone, Copy, Debug)]
pub(super) struct Swept {
    pub(super) rows: u64,
    /// Whether more rows or tokens may have expired.
    pub(super) more: bool,
}

impl Work for Sweep {
    type Outcome = Swept;

    fn apply(&self, transaction: &Transaction<'_>, now: Timestamp) -> Result<Swept, ApplyError> {
        let expired = ttl::Expired::at(now, self.lag);
        let found = reader::expired(transaction, expired, SWEEP_ROWS).map_err(ApplyError::BeforeWriting)?;
        let more = found.len() == SWEEP_ROWS as usize;
        let mut rows = 0;
        for item in found {
            let write = || -> Result<bool, BackendError> {
                let key = item.key()?;
                // The column `ttl` has no checksum: only a row that says so itself has expired, unless it cannot be read.
                let has_expired = item.is_damaged() || expired.includes(&item);
                if has_expired {
                    commit::delete_found(transaction, &key)?
                } else {
                    commit::replace(transaction, &key, &item)?
                }
                Ok(has_expired)
            };
            rows += u64::from(write().map_err(ApplyError::WhileWriting)?);
        }
        // Commits delete them too, but none comes while the table is idle.
        let tokens = token::delete_expired(transaction, now, SWEEP_ROWS).map_err(ApplyError::WhileWriting)?;
        tracing::debug!(rows, tokens, "deleted expired rows and client tokens");
        Ok(Swept { rows, more: more || tokens == SWEEP_ROWS as usize })
    }
}

/// Runs until dropped.
#[derive(Debug)]
pub(super) struct Sweeper {
    // Dropped first, which ends the thread.
    _stop: Sender<()>,
    _worker: Worker,
}

impl Sweeper {
    pub(super) fn start(queue: Queue, settings: SweepSettings) -> Result<Self> {
        let (stop, stopped) = channel();
        let mut keys = KeyChecker::new();
        let run = move || {
            while let Err(RecvTimeoutError::Timeout) = stopped.recv_timeout(settings.interval) {
                if let Err(error) = sweep(&queue, &settings, &stopped) {
                    // No result depends on expired rows, so the next round may retry.
                    tracing::warn!(%error, "expired rows were not deleted");
                }
                if let Err(error) = keys.round(&queue, &stopped) {
                    tracing::warn!(%error, "the rows were not compared with the index on their keys");
                }
            }
        };
        Ok(Sweeper { _stop: stop, _worker: Worker::spawn("tabletheory-sweeper", run)? })
    }
}

/// Deletes in small batches, so that commits in between do not wait long.
fn sweep(queue: &Queue, settings: &SweepSettings, stopped: &Receiver<()>) -> Result<()> {
    /// Maximum number of batches; further rows are deleted in the next round.
    const MAX_BATCHES: usize = 10_000;
    for _ in 0..MAX_BATCHES {
        let more = queue.blocking_submit(Sweep { lag: settings.lag })?.more;
        // Dropping the table waits for this thread, but not for all expired rows.
        if !more || stopped.try_recv() == Err(TryRecvError::Disconnected) {
            break;
        }
    }
    Ok(())
}
