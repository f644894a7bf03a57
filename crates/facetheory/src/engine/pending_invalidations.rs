//! Invalidations, and announcements of changes, that the table has not received yet because it was unreachable. They apply in
//! this process at once, and are written to the table in the background until that succeeds.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use futures_util::{StreamExt as _, stream};
use tabletheory::{Backoff, Key};

use super::{Engine, Isr, Phase};
use crate::store::Pending;
use crate::{Error, Kind, PageKey, Result, Tag};

const BACKOFF: Backoff = Backoff::new(Duration::from_millis(100), Duration::from_secs(10));
/// How long the response to an unsafe request waits for the table. A healthy table responds sooner. The invalidation applies in
/// this process before the response, and other processes learn about it a moment later anyway.
const RESPONSE_DELAY: Duration = Duration::from_millis(250);
/// How long the table is tried for one write before it is dropped.
const MAX_AGE: Duration = Duration::from_secs(3600);
/// How many pending writes are sent at the same time. Their announcements share entries of the change feed.
const MAX_CONCURRENT: usize = 64;
/// How long the place of a write that failed is not used for another one. It limits the calls of a table that fails at once.
const FAILURE_PAUSE: Duration = Duration::from_secs(1);

impl Isr {
    /// Makes everything stale that is stored for the target of an unsafe request (RFC 9111 §4.4), with all variants. It
    /// applies in this process even while the table is unreachable.
    ///
    /// Clients send unsafe requests all the time, so other pages are not read again because of one.
    pub(crate) async fn invalidate_target(&self, page: &PageKey) {
        let (engine, tag) = (&self.engine, Tag::target(page.address()).key(page.tenant()));
        let store = engine.pages.store();
        let write = Pending::invalidation_of(page);
        let write = store.add_pending(&tag, &write).unwrap_or(write);
        engine.memory.mark_unverified(page);
        let writing = store.write_pending(&tag, write.clone());
        // The client waits for its response. A table that fails or is slow gets the invalidation in the background.
        let outcome = if engine.table_breaker.allows_call(engine.now()) {
            let limit = engine.table_timeout.min(RESPONSE_DELAY);
            tokio::time::timeout(limit, writing).await.unwrap_or_else(|_| {
                Err(Error::new(Kind::Unavailable, format!("the table did not respond within {limit:?}")))
            })
        } else {
            Err(Error::new(Kind::Unavailable, "the table was unreachable a moment ago"))
        };
        if let Err(error) = outcome {
            engine.metrics.incident(Phase::Table, page, &error);
            // Another request may have found out that there was nothing to invalidate yet, and removed it.
            if store.add_pending(&tag, &write).is_some() {
                engine.write_pending_in_background();
            } else {
                tracing::error!(page = %page.redacted(), "an invalidation was lost: too many are pending");
            }
        }
    }
}

impl Engine {
    /// Writes what is pending in the background, until nothing is left or the process shuts down.
    pub(super) fn write_pending_in_background(self: &Arc<Self>) {
        if self.writing_pending.swap(true, Ordering::AcqRel) {
            return;
        }
        let engine = self.clone();
        self.spawn(Box::pin(async move {
            if engine.abandon_token().run_until_cancelled(engine.write_all_pending()).await.is_none() {
                engine.writing_pending.store(false, Ordering::Release);
                let pending = engine.pages.store().count_pending();
                tracing::warn!(
                    pending,
                    "stopped with invalidations or announcements that the table has not received"
                );
            }
        }));
    }

    async fn write_all_pending(&self) {
        let store = self.pages.store();
        let mut retry = 0;
        loop {
            tokio::time::sleep(BACKOFF.delay(retry, &*self.random)).await;
            retry = if self.write_pending().await { 0 } else { retry.saturating_add(1) };
            if !store.has_pending() {
                self.writing_pending.store(false, Ordering::Release);
                // A request may have added one in between, and seen that this task was still running.
                if !store.has_pending() || self.writing_pending.swap(true, Ordering::AcqRel) {
                    return;
                }
            }
        }
    }

    /// Sends the pending writes to the table. Returns whether each of them succeeded.
    async fn write_pending(&self) -> bool {
        let writes = stream::iter(self.pages.store().pending());
        let outcomes =
            writes.map(|(key, write)| self.write_or_drop(key, write)).buffer_unordered(MAX_CONCURRENT);
        outcomes.fold(true, |succeeded, outcome| async move { succeeded && outcome }).await
    }

    /// Sends a pending write to the table, and drops it if that fails for too long. Returns whether it succeeded.
    async fn write_or_drop(&self, key: Key, write: Pending) -> bool {
        let Err(error) = self.write_one(&key, write.clone()).await else { return true };
        if write.since().elapsed() > MAX_AGE {
            let lost = match write {
                Pending::Epoch { .. } => "an invalidation was lost",
                Pending::Announcement { .. } => "other processes were not told that a page was invalidated",
            };
            tracing::error!(%error, "{lost}: it could not be written for {MAX_AGE:?}");
            self.pages.store().remove_pending(&key, &write);
        }
        tokio::time::sleep(FAILURE_PAUSE).await;
        false
    }

    async fn write_one(&self, key: &Key, write: Pending) -> Result<()> {
        let store = self.pages.store();
        // An announcement waits for others, and has limits of its own.
        match self.within_table_timeout(store.write_pending_row(key, write)).await? {
            Some(announcement) => store.announce_pending(key, &announcement).await,
            None => Ok(()),
        }
    }
}
