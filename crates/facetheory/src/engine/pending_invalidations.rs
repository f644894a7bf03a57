//! Invalidations, and announcements of changes, that the table has not received yet because it was unreachable. They apply in
//! this process at once, and are written to the table in the background until that succeeds.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use tabletheory::Backoff;

use super::{Engine, Isr, Phase};
use crate::protocol::Epoch;
use crate::store::Pending;
use crate::{Error, Kind, PageKey, Tag};

const BACKOFF: Backoff = Backoff::new(Duration::from_millis(100), Duration::from_secs(10));
/// How long the response to an unsafe request waits for the table. A healthy table responds sooner. The invalidation applies in
/// this process before the response, and other processes learn about it a moment later anyway.
const RESPONSE_DELAY: Duration = Duration::from_millis(250);
/// How long the table is tried for one write before it is dropped.
const MAX_AGE: Duration = Duration::from_secs(3600);

impl Isr {
    /// Makes everything stale that is stored for the target of an unsafe request (RFC 9111 §4.4), with all variants. It
    /// applies in this process even while the table is unreachable.
    ///
    /// Clients send unsafe requests all the time, so other pages are not read again because of one.
    pub(crate) async fn invalidate_target(&self, page: &PageKey) {
        let (engine, tag) = (&self.engine, Tag::target(page.address()).key(page.tenant()));
        let store = engine.pages.store();
        let pending = store.add_pending(&tag);
        engine.memory.mark_unverified(page);
        let write = pending.unwrap_or(Pending::Epoch(Epoch::at(engine.now().seconds())));
        let writing = async {
            // Clients must not be able to fill the table with epochs of pages that do not exist.
            if store.may_have_entries(page).await? {
                store.write_pending(&tag, write).await
            } else {
                store.remove_pending(&tag, write);
                Ok(())
            }
        };
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
            if pending.is_some() {
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
        for retry in 0.. {
            tokio::time::sleep(BACKOFF.delay(retry, &*self.random)).await;
            self.write_pending().await;
            if !store.has_pending() {
                self.writing_pending.store(false, Ordering::Release);
                // A request may have added one in between, and seen that this task was still running.
                if !store.has_pending() || self.writing_pending.swap(true, Ordering::AcqRel) {
                    return;
                }
            }
        }
    }

    /// Sends the pending writes to the table, up to the first failure.
    async fn write_pending(&self) {
        let store = self.pages.store();
        for (key, write) in store.pending() {
            let age = self.now().seconds().saturating_sub(write.since());
            if u64::try_from(age).is_ok_and(|age| age > MAX_AGE.as_secs()) {
                let lost = match write {
                    Pending::Epoch(_) => "an invalidation was lost",
                    Pending::Announcement { .. } => {
                        "other processes were not told that a page was invalidated"
                    }
                };
                tracing::error!("{lost}: the table was unreachable for {MAX_AGE:?}");
                store.remove_pending(&key, write);
            } else if self.within_table_timeout(store.write_pending(&key, write)).await.is_err() {
                return;
            }
        }
    }
}
