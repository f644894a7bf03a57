//! Ends the process after a shutdown that does not end by itself.
//!
//! A thread that waits for a disk that does not respond cannot be stopped: it can keep the runtime from ending, and even
//! from receiving signals. So a thread of its own, with a runtime of its own, receives the signals too, and exits.

use std::process;
use std::thread;
use std::time::Duration;

use anyhow::{Context as _, Result};
use tokio_util::sync::CancellationToken;

use crate::signals::{Signal, Signals};

/// How long the process may still run after the shutdown timeout, or after a second signal: longer than leases take to be
/// released.
const EXIT_GRACE: Duration = Duration::from_secs(5);
/// How long the last line of the log has to be written.
const LOG_TIME: Duration = Duration::from_millis(500);

/// Starts the thread. `timeout` is that of a shutdown, which a signal or a hand-over begins.
pub(super) fn start(handed_over: CancellationToken, timeout: Duration) -> Result<()> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let runtime = runtime.context("cannot start the watchdog of shutdowns")?;
    let watch = move || match runtime.block_on(async { Signals::install() }) {
        Ok(mut signals) => {
            runtime.block_on(overdue(async || signals.next().await, handed_over, timeout));
            exit();
        }
        Err(error) => tracing::warn!(%error, "a shutdown that does not end by itself is not ended"),
    };
    let thread = thread::Builder::new().name("shutdown-watchdog".to_owned());
    thread.spawn(watch).context("cannot start the watchdog of shutdowns")?;
    Ok(())
}

/// Waits until a shutdown should have ended.
async fn overdue(
    mut next_signal: impl AsyncFnMut() -> Signal,
    handed_over: CancellationToken,
    timeout: Duration,
) {
    let mut requests = 0;
    let mut requested = async |number| {
        while requests < number {
            requests += u32::from(next_signal().await == Signal::Shutdown);
        }
    };
    handed_over.run_until_cancelled(requested(1)).await;
    // A second request ends the wait for work in progress. After a hand-over, the first one does not.
    let _ = tokio::time::timeout(timeout, requested(2)).await;
    tokio::time::sleep(EXIT_GRACE).await;
}

fn exit() -> ! {
    tracing::error!(
        "the shutdown did not end in time: a thread waits for a disk or another part of the system that does not respond; \
         the process exits now"
    );
    thread::sleep(LOG_TIME);
    process::exit(1)
}

#[cfg(test)]
mod tests {
    use super::*;
    use tokio::time::{Instant, sleep};

    const TIMEOUT: Duration = Duration::from_secs(30);

    /// Returns when the process exits, after the start. Signals arrive after these pauses, and the hand-over is at that time.
    async fn exits_at(signals: &[(u64, Signal)], hand_over: Option<u64>) -> u64 {
        let (mut signals, handed_over, start) = (signals.iter(), CancellationToken::new(), Instant::now());
        let next = async || match signals.next() {
            Some((pause, signal)) => {
                sleep(Duration::from_secs(*pause)).await;
                *signal
            }
            None => std::future::pending().await,
        };
        let hand_over = async {
            if let Some(at) = hand_over {
                sleep(Duration::from_secs(at)).await;
                handed_over.cancel();
            }
        };
        tokio::join!(overdue(next, handed_over.clone(), TIMEOUT), hand_over);
        start.elapsed().as_secs()
    }

    #[tokio::test(start_paused = true)]
    async fn the_process_exits_soon_after_the_timeout_or_a_second_signal() {
        let (limit, grace) = (TIMEOUT.as_secs(), EXIT_GRACE.as_secs());
        let (shutdown, reload) = (Signal::Shutdown, Signal::Reload);
        assert_eq!(exits_at(&[(60, shutdown)], None).await, 60 + limit + grace);
        assert_eq!(exits_at(&[(60, shutdown), (3, shutdown)], None).await, 63 + grace);
        assert_eq!(exits_at(&[(3, reload), (60, shutdown), (3, reload)], None).await, 63 + limit + grace);
        assert_eq!(exits_at(&[], Some(60)).await, 60 + limit + grace);
        assert_eq!(exits_at(&[(63, shutdown)], Some(60)).await, 60 + limit + grace);
    }
}
