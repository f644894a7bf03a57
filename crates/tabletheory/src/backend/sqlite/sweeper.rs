//! The thread that asks the writer, now and then, to delete expired rows.

use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, TryRecvError, channel};
use std::thread::JoinHandle;

use tokio::sync::oneshot;

use super::SweepSettings;
use super::writer::{Queue, Work};
use crate::error::{Error, Result};

/// Runs until it is dropped.
#[derive(Debug)]
pub(super) struct Sweeper {
    /// Dropping it wakes and ends the thread.
    stop: Option<Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl Sweeper {
    pub(super) fn start(queue: Queue, settings: SweepSettings) -> Result<Self> {
        let (stop, stopped) = channel();
        let run = move || {
            while let Err(RecvTimeoutError::Timeout) = stopped.recv_timeout(settings.every) {
                if let Err(error) = sweep(&queue, &settings, &stopped) {
                    // Expired rows that stay change no result, so the next round may try again.
                    tracing::warn!(%error, "expired rows were not deleted");
                }
            }
        };
        let thread = std::thread::Builder::new()
            .name("tabletheory-sweeper".into())
            .spawn(run)
            .map_err(|cause| Error::unavailable("the sweeper's thread cannot be started").caused_by(cause))?;
        Ok(Sweeper { stop: Some(stop), thread: Some(thread) })
    }
}

/// One round: a few rows at a time, so that committers in between do not wait for long.
fn sweep(queue: &Queue, settings: &SweepSettings, stopped: &Receiver<()>) -> Result<()> {
    /// The most rounds at once; what is left over waits for the next time.
    const ROUNDS: usize = 10_000;
    let gone = || Error::unavailable("the writer has stopped");
    for _ in 0..ROUNDS {
        let (answer, answered) = oneshot::channel();
        let lag = settings.lag;
        queue.blocking_send(Work::Sweep { lag, answer }).map_err(|_| gone())?;
        let more = answered.blocking_recv().map_err(|_| gone())??.more;
        // Whoever drops the table waits for this thread, but not for all that has expired.
        if !more || stopped.try_recv() == Err(TryRecvError::Disconnected) {
            break;
        }
    }
    Ok(())
}

impl Drop for Sweeper {
    fn drop(&mut self) {
        self.stop = None;
        if let Some(thread) = self.thread.take()
            && thread.join().is_err()
        {
            tracing::error!("the thread that deletes expired rows ended in a panic");
        }
    }
}
