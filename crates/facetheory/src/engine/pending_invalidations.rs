//! Arrears: invalidations that the table could not be told of when they came. They hold in this process at once, and the table is
//! told as soon as it can be.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use super::metrics::Phase;
use super::{Engine, Isr};
use crate::error::{Error, Kind, Result};
use crate::protocol::epoch::{Epoch, Tag};
use crate::protocol::key::PageKey;

/// The first pause before the table is told again; it doubles with each failure.
const FIRST_PAUSE: Duration = Duration::from_millis(100);
/// But it is never longer than this.
const LONGEST_PAUSE: Duration = Duration::from_secs(10);
/// For how long the table is told again and again of one invalidation.
const LONGEST: Duration = Duration::from_secs(3600);

impl Isr {
    /// Makes all that is stored of an address stale, because a visitor has changed it: in this process whether or not the table
    /// can be told, which is repeated in the background.
    ///
    /// Visitors send requests that change something all the time, so no other page is looked up again for that.
    pub(crate) async fn invalidate_target(&self, page: &PageKey) {
        let (engine, tag) = (&self.engine, Tag::target(page.address()).key(page.tenant()));
        let store = engine.pages.store();
        let owed = store.owe(&tag);
        engine.memory.mark_unverified(page);
        let epoch = owed.unwrap_or(Epoch { invalidated_at: engine.now().seconds() });
        let told = async {
            // Visitors must not fill the table with what nothing is to be told of.
            if store.may_have_entries(page).await? {
                store.pay(&tag, epoch).await
            } else {
                store.write_off(&tag, epoch);
                Ok(())
            }
        };
        if let Err(error) = engine.in_time(told).await {
            engine.observer.incident(Phase::Table, page, &error);
            if owed.is_some() {
                engine.pay_later();
            } else {
                tracing::error!(page = %page.redacted(), "a change is lost: too many are waiting for the table");
            }
        }
    }
}

impl Engine {
    async fn in_time(&self, telling: impl Future<Output = Result<()>>) -> Result<()> {
        let limit = self.settings.table_timeout;
        tokio::time::timeout(limit, telling).await.unwrap_or_else(|_| {
            Err(Error::new(Kind::Unavailable, format!("the table did not answer within {limit:?}")))
        })
    }

    /// Tells the table in the background what it is owed, until nothing is or the process ends.
    fn pay_later(self: &Arc<Self>) {
        if self.paying.swap(true, Ordering::AcqRel) {
            return;
        }
        let engine = self.clone();
        self.spawn(Box::pin(async move {
            tokio::select! {
                biased;
                () = engine.pay_all() => {}
                () = engine.abandon.cancelled() => {
                    let changes = engine.pages.store().owed().len();
                    tracing::warn!(changes, "the table could not be told of some changes in time");
                }
            }
        }));
    }

    async fn pay_all(&self) {
        let store = self.pages.store();
        let mut pause = FIRST_PAUSE;
        loop {
            // Processes that lost the table together must not come back together.
            tokio::time::sleep(pause.mul_f64(0.5 + self.random.fraction() / 2.0)).await;
            pause = (pause * 2).min(LONGEST_PAUSE);
            for (tag, epoch) in store.owed() {
                let age = self.now().seconds().saturating_sub(epoch.invalidated_at);
                if u64::try_from(age).is_ok_and(|age| age > LONGEST.as_secs()) {
                    tracing::error!("a change is lost: the table could not be told of it for too long");
                    store.write_off(&tag, epoch);
                } else if self.in_time(store.pay(&tag, epoch)).await.is_err() {
                    break;
                }
            }
            if store.owed().is_empty() {
                self.paying.store(false, Ordering::Release);
                // Somebody may have come to owe something just before, and relied on this one.
                if store.owed().is_empty() || self.paying.swap(true, Ordering::AcqRel) {
                    return;
                }
            }
        }
    }
}
