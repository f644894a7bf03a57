//! Deletes expired rows periodically.

use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, TryRecvError, channel};
use std::time::Duration;

use rusqlite::{Transaction, params};

use super::SweepSettings;
use super::worker::Worker;
use super::writer::{ApplyError, Queue, Work};
use crate::clock::Timestamp;
use crate::error::Result;
use crate::ttl;

/// Number of expired rows that are deleted in one transaction, before other writers continue.
const SWEEP_ROWS: u32 = 200;

/// The deletion of some rows that expired at least this long ago.
pub(super) struct Sweep {
    pub(super) lag: Duration,
}

/// The result of one sweep.
#[derive(Clone, Copy, Debug)]
pub(super) struct Swept {
    pub(super) rows: u64,
    /// Whether more rows may have expired.
    pub(super) more: bool,
}

impl Work for Sweep {
    type Outcome = Swept;

    fn apply(&self, transaction: &Transaction<'_>, now: Timestamp) -> Result<Swept, ApplyError> {
        let expired = ttl::Expired::at(now, self.lag);
        let delete = || {
            let mut statement = transaction.prepare_cached(
                "DELETE FROM item WHERE (pk, sk) IN
                 (SELECT pk, sk FROM item WHERE ttl > ?1 AND ttl <= ?2 LIMIT ?3)",
            )?;
            statement.execute(params![expired.after, expired.until, SWEEP_ROWS])
        };
        let rows = delete().map_err(|error: rusqlite::Error| ApplyError::WhileWriting(error.into()))?;
        tracing::debug!(rows, "deleted expired rows");
        Ok(Swept { rows: rows as u64, more: rows == SWEEP_ROWS as usize })
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
        let run = move || {
            while let Err(RecvTimeoutError::Timeout) = stopped.recv_timeout(settings.interval) {
                if let Err(error) = sweep(&queue, &settings, &stopped) {
                    // No result depends on expired rows, so the next round may retry.
                    tracing::warn!(%error, "expired rows were not deleted");
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
