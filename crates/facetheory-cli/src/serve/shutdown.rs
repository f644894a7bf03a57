//! Graceful shutdown.

use std::time::Duration;

use tokio_util::sync::CancellationToken;

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
}
