//! Graceful shutdown.

use std::time::Duration;

use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

/// How long the lease of garbage collection may take to be released after everything else was aborted. Leases of renders have as
/// long, at the same time.
const GC_RELEASE_TIMEOUT: Duration = Duration::from_secs(2);

/// The state of a shutdown. The first request stops accepting connections and waits for work in progress, up to one
/// timeout for everything together. A second request, or the timeout, ends the waiting.
#[derive(Debug)]
pub(super) struct Shutdown {
    pub(super) timeout: Duration,
    /// Cancelled by the first request: nothing new is started.
    pub(super) requested: CancellationToken,
    /// Cancelled by the second request or the timeout: work in progress is aborted.
    pub(super) forced: CancellationToken,
}

impl Shutdown {
    pub(super) fn new(timeout: Duration) -> Self {
        Shutdown { timeout, requested: CancellationToken::new(), forced: CancellationToken::new() }
    }

    /// Requests the shutdown, or forces it if it was requested before.
    pub(super) fn request(&self) {
        if self.requested.is_cancelled() {
            self.forced.cancel();
            return;
        }
        self.requested.cancel();
        let (timeout, forced) = (self.timeout, self.forced.clone());
        tokio::spawn(async move {
            tokio::time::sleep(timeout).await;
            forced.cancel();
        });
    }

    /// Waits until the task of garbage collection has released its lease, which it does as soon as a shutdown is requested. If it
    /// panics, that is logged at once, and serving goes on.
    pub(super) async fn wait_for_gc(&self, gc: JoinHandle<()>) {
        let given_up = async {
            self.forced.cancelled().await;
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

    const TIMEOUT: Duration = Duration::from_secs(30);

    #[tokio::test(start_paused = true)]
    async fn the_timeout_starts_with_the_first_request() {
        let shutdown = Shutdown::new(TIMEOUT);
        tokio::time::sleep(TIMEOUT * 2).await;
        assert!(!shutdown.forced.is_cancelled(), "no shutdown was requested");
        let requested = Instant::now();
        shutdown.request();
        assert!(shutdown.requested.is_cancelled());
        tokio::time::sleep(TIMEOUT / 2).await;
        assert!(!shutdown.forced.is_cancelled());
        shutdown.forced.cancelled().await;
        let waited = requested.elapsed();
        assert!(waited >= TIMEOUT && waited < TIMEOUT + Duration::from_secs(1), "{waited:?}");
    }

    #[tokio::test(start_paused = true)]
    async fn the_second_request_forces_the_shutdown() {
        let shutdown = Shutdown::new(TIMEOUT);
        shutdown.request();
        assert!(!shutdown.forced.is_cancelled());
        shutdown.request();
        assert!(shutdown.forced.is_cancelled());
    }

    #[tokio::test(start_paused = true)]
    async fn a_slow_release_of_the_gc_lease_shares_the_timeout() {
        let shutdown = Shutdown::new(TIMEOUT);
        let (requested, released) = (shutdown.requested.clone(), CancellationToken::new());
        let release = released.clone();
        let gc = tokio::spawn(async move {
            requested.cancelled().await;
            tokio::time::sleep(TIMEOUT - Duration::from_secs(1)).await;
            release.cancel();
        });
        shutdown.request();
        shutdown.wait_for_gc(gc).await;
        assert!(released.is_cancelled() && !shutdown.forced.is_cancelled());
    }

    #[tokio::test(start_paused = true)]
    async fn a_second_request_or_the_timeout_ends_the_wait_for_the_gc_lease() {
        for (requests, limit) in [(1, TIMEOUT + GC_RELEASE_TIMEOUT), (2, GC_RELEASE_TIMEOUT)] {
            let shutdown = Shutdown::new(TIMEOUT);
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
        let shutdown = Shutdown::new(TIMEOUT);
        shutdown.wait_for_gc(tokio::spawn(async { panic!("a defect in gc") })).await;
        assert!(!shutdown.requested.is_cancelled());
    }
}
