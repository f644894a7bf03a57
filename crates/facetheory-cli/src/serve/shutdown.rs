//! Graceful shutdown.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use tokio::task::JoinHandle;

use crate::gateway::Stopping;

/// How long the lease of garbage collection may take to be released after everything else was aborted. Leases of renders have as
/// long, at the same time.
const GC_RELEASE_TIMEOUT: Duration = Duration::from_secs(2);

/// The state of a shutdown. The first request, or a hand-over to another process, ends the accepting of connections, and work in
/// progress gets one timeout for everything together. A second request, or the timeout, aborts it.
#[derive(Debug)]
pub(super) struct Shutdown {
    /// How long work in progress may take, after the lame-duck period.
    pub(super) timeout: Duration,
    pub(super) stopping: Stopping,
    has_request: AtomicBool,
}

impl Shutdown {
    pub(super) fn new(timeout: Duration, lame_duck: Duration) -> Self {
        let stopping = Stopping { lame_duck, ..Stopping::default() };
        Shutdown { timeout, stopping, has_request: AtomicBool::new(false) }
    }

    /// Requests the shutdown, or forces it if it was requested before.
    pub(super) fn request(&self) {
        if self.has_request.swap(true, Ordering::Relaxed) {
            self.stopping.forced.cancel();
        } else {
            self.begin(self.stopping.lame_duck);
        }
    }

    /// Shuts down after another process took the listening sockets over. A later request does not force the shutdown: it is the
    /// first one, as far as the sender knows.
    pub(super) fn after_hand_over(&self) {
        tracing::info!("another process took the listening sockets over");
        self.begin(Duration::ZERO);
    }

    fn begin(&self, lame_duck: Duration) {
        if self.stopping.requested.is_cancelled() {
            return;
        }
        self.stopping.requested.cancel();
        let (timeout, forced) = (lame_duck.saturating_add(self.timeout), self.stopping.forced.clone());
        tokio::spawn(async move {
            tokio::time::sleep(timeout).await;
            forced.cancel();
        });
    }

    /// Waits until the task of garbage collection has released its lease, which it does as soon as a shutdown is requested. If it
    /// panics, that is logged at once, and serving goes on.
    pub(super) async fn wait_for_gc(&self, gc: JoinHandle<()>) {
        let given_up = async {
            self.stopping.forced.cancelled().await;
            tokio::time::sleep(GC_RELEASE_TIMEOUT).await;
        };
        tokio::select! {
            ended = gc => if let Err(error) = ended {
                tracing::error!(%error, "garbage collection panicked, and does not run before a restart");
            },
            () = given_up => tracing::warn!(
                "the lease of garbage collection was not released in time; it expires by itself"
            ),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tokio::time::Instant;
    use tokio_util::sync::CancellationToken;

    const TIMEOUT: Duration = Duration::from_secs(30);

    #[tokio::test(start_paused = true)]
    async fn the_timeout_starts_with_the_first_request() {
        let shutdown = Shutdown::new(TIMEOUT, Duration::ZERO);
        tokio::time::sleep(TIMEOUT * 2).await;
        assert!(!shutdown.stopping.forced.is_cancelled(), "no shutdown was requested");
        let requested = Instant::now();
        shutdown.request();
        assert!(shutdown.stopping.requested.is_cancelled());
        tokio::time::sleep(TIMEOUT / 2).await;
        assert!(!shutdown.stopping.forced.is_cancelled());
        shutdown.stopping.forced.cancelled().await;
        let waited = requested.elapsed();
        assert!(waited >= TIMEOUT && waited < TIMEOUT + Duration::from_secs(1), "{waited:?}");
    }

    #[tokio::test(start_paused = true)]
    async fn the_second_request_forces_the_shutdown() {
        let shutdown = Shutdown::new(TIMEOUT, Duration::ZERO);
        shutdown.request();
        assert!(!shutdown.stopping.forced.is_cancelled());
        shutdown.request();
        assert!(shutdown.stopping.forced.is_cancelled());
    }

    #[tokio::test(start_paused = true)]
    async fn the_lame_duck_period_does_not_shorten_the_timeout() {
        let shutdown = Shutdown::new(TIMEOUT, TIMEOUT);
        let requested = Instant::now();
        shutdown.request();
        shutdown.stopping.forced.cancelled().await;
        let waited = requested.elapsed();
        assert!(waited >= TIMEOUT * 2 && waited < TIMEOUT * 2 + Duration::from_secs(1), "{waited:?}");
    }

    #[tokio::test(start_paused = true)]
    async fn the_first_request_after_a_hand_over_does_not_force_the_shutdown() {
        let shutdown = Shutdown::new(TIMEOUT, TIMEOUT);
        let begun = Instant::now();
        shutdown.after_hand_over();
        assert!(shutdown.stopping.requested.is_cancelled());
        shutdown.request();
        assert!(!shutdown.stopping.forced.is_cancelled());
        shutdown.stopping.forced.cancelled().await;
        let waited = begun.elapsed();
        assert!(waited >= TIMEOUT && waited < TIMEOUT + Duration::from_secs(1), "{waited:?}");
        let shutdown = Shutdown::new(TIMEOUT, Duration::ZERO);
        shutdown.after_hand_over();
        shutdown.request();
        shutdown.request();
        assert!(shutdown.stopping.forced.is_cancelled(), "the second request");
    }

    #[tokio::test(start_paused = true)]
    async fn a_slow_release_of_the_gc_lease_shares_the_timeout() {
        let shutdown = Shutdown::new(TIMEOUT, Duration::ZERO);
        let (requested, released) = (shutdown.stopping.requested.clone(), CancellationToken::new());
        let release = released.clone();
        let gc = tokio::spawn(async move {
            requested.cancelled().await;
            tokio::time::sleep(TIMEOUT - Duration::from_secs(1)).await;
            release.cancel();
        });
        shutdown.request();
        shutdown.wait_for_gc(gc).await;
        assert!(released.is_cancelled() && !shutdown.stopping.forced.is_cancelled());
    }

    #[tokio::test(start_paused = true)]
    async fn a_second_request_or_the_timeout_ends_the_wait_for_the_gc_lease() {
        for (requests, limit) in [(1, TIMEOUT + GC_RELEASE_TIMEOUT), (2, GC_RELEASE_TIMEOUT)] {
            let shutdown = Shutdown::new(TIMEOUT, Duration::ZERO);
            let requested = Instant::now();
            for _ in 0..requests {
                shutdown.request();
            }
            shutdown.wait_for_gc(tokio::spawn(std::future::pending())).await;
            let waited = requested.elapsed();
            assert!(waited >= limit && waited < limit + Duration::from_secs(1), "{requests}: {waited:?}");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_panic_of_gc_ends_the_wait_without_a_shutdown() {
        let shutdown = Shutdown::new(TIMEOUT, Duration::ZERO);
        shutdown.wait_for_gc(tokio::spawn(async { panic!("a defect in gc") })).await;
        assert!(!shutdown.stopping.requested.is_cancelled());
    }
}
