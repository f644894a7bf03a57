//! Waiting for background work: before the process ends, or before it is suspended.

use std::time::Duration;

use tokio_util::sync::CancellationToken;

use super::{Engine, Isr};

/// How long releasing the leases of cancelled work may take.
const RELEASE: Duration = Duration::from_secs(2);

/// Cancels the background work that is running.
#[derive(Debug, Default)]
pub(super) struct Cancellation {
    /// Makes work stop and release its leases.
    abandon: CancellationToken,
    /// Stops work at once, even if a store does not respond.
    pub(super) abort: CancellationToken,
}

impl Isr {
    /// Waits up to `limit` until no background work is running: renders, writes and compressions. After that, the rest is
    /// cancelled and its leases are released. Returns `false` if something was cancelled. The engine remains usable.
    ///
    /// Call it before a process that may be suspended for any time, such as a serverless function, becomes idle. While
    /// it waits there must be no requests, since it would also wait for their work.
    ///
    /// ```
    /// # use facetheory::{Bodies, Isr, PageKey, Pages, PageStore, Policy, Rendered};
    /// # use std::{sync::Arc, time::Duration};
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> facetheory::Result<()> {
    /// # let pages = Pages::new(PageStore::new(Arc::new(tabletheory::MemoryTable::new())), Bodies::memory());
    /// let isr = Isr::new(pages);
    /// for path in ["/", "/about"] {
    ///     let render = |_| async { Ok(Rendered::html("hello")) };
    ///     isr.get(&PageKey::new(path)?, &Policy::every(Duration::from_secs(60)), render).await?;
    ///     assert!(isr.settle(Duration::from_secs(10)).await);
    /// }
    /// # Ok(()) }
    /// ```
    pub async fn settle(&self, limit: Duration) -> bool {
        let engine = &self.engine;
        // An earlier call may have cancelled the writes.
        if engine.pages.store().has_pending() {
            engine.write_pending_in_background();
        }
        let is_done = engine.drain(limit).await;
        *engine.cancellation.lock() = Cancellation::default();
        engine.tasks.reopen();
        is_done
    }
}

impl Engine {
    /// Waits up to `limit` for background work, then cancels it. Returns `false` if something was cancelled.
    pub(super) async fn drain(&self, limit: Duration) -> bool {
        self.tasks.close();
        if tokio::time::timeout(limit, self.tasks.wait()).await.is_ok() {
            return true;
        }
        self.cancellation.lock().abandon.cancel();
        if tokio::time::timeout(RELEASE, self.tasks.wait()).await.is_err() {
            tracing::warn!("some leases were not released in time; they expire by themselves");
            self.cancellation.lock().abort.cancel();
            self.tasks.wait().await;
        }
        false
    }

    /// Returns the token that cancels the background work that starts now.
    pub(super) fn abandon_token(&self) -> CancellationToken {
        self.cancellation.lock().abandon.clone()
    }
}
