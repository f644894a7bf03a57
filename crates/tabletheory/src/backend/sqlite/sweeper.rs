//! Deletes expired rows periodically.

use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, TryRecvError, channel};

use tokio::sync::oneshot;

use super::SweepSettings;
use super::worker::Worker;
use super::writer::{Job, Queue};
use crate::error::{Error, Result};

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
    let writer_stopped = || Error::unavailable("the writer has stopped");
    for _ in 0..MAX_BATCHES {
        let (sender, result) = oneshot::channel();
        let job = Job::Sweep { lag: settings.lag, result: sender };
        queue.blocking_send(job).map_err(|_| writer_stopped())?;
        let more = result.blocking_recv().map_err(|_| writer_stopped())??.more;
        // Dropping the table waits for this thread, but not for all expired rows.
        if !more || stopped.try_recv() == Err(TryRecvError::Disconnected) {
            break;
        }
    }
    Ok(())
}
