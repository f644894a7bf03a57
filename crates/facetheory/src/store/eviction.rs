//! Executes evictions, and records the last use of pages.

use std::sync::atomic::{AtomicBool, AtomicI64, Ordering};
use std::time::Duration;

use tabletheory::{Consistency, Item, Key, Query, Table as _, TableExt as _, TableUsage, Txn, Write};

use super::PageStore;
use crate::error::Result;
use crate::protocol::eviction::{self, Eviction};
use crate::protocol::{Meta, PageKey, attribute as name, ttl::after};

/// The most rows of a page that are read; superseded versions beyond this are deleted by `ttl`.
const MAX_ROWS: usize = 1000;
/// How long it is known that pages were evicted: longer than a page that was not requested stays in memory unread.
const KNOWN_FOR: Duration = Duration::from_secs(31 * 86_400);
/// How often a process records that pages are evicted. Clients can cause an eviction by each request.
const RECORDED_EVERY: Duration = Duration::from_secs(3600);

/// The use of the store, as this process knows it. All clones of a [`PageStore`] share it.
#[derive(Debug)]
pub(crate) struct UseState {
    /// After how many seconds another use of a page is recorded: few if pages are evicted soon after their last use.
    record_after: AtomicI64,
    is_full: AtomicBool,
    /// When this process last recorded that pages are evicted, in seconds.
    eviction_recorded_at: AtomicI64,
}

impl Default for UseState {
    fn default() -> Self {
        UseState {
            record_after: AtomicI64::new(i64::MAX),
            is_full: AtomicBool::new(false),
            eviction_recorded_at: AtomicI64::new(i64::MIN),
        }
    }
}

/// The result of the eviction of a page.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Evicted {
    /// Its rows are deleted. Nothing names these bodies any more.
    Deleted { s3_keys: Vec<String> },
    /// It is rendered or pinned, and counts as used now.
    Deferred,
    /// It has changed, was used, or does not exist any more.
    Changed,
}

impl PageStore {
    /// Records that the page that was read as `seen` is used now. A page that has changed since is left as it is.
    pub(crate) async fn record_use(&self, page: &PageKey, seen: &Meta) -> Result<()> {
        if let Some(txn) = eviction::touch_seen(&page.meta(), seen, self.now()) {
            // A refusal means that there is nothing to record. A lost response is of no importance.
            let _ = self.table.commit(&txn).await?;
        }
        Ok(())
    }

    /// Reads the `META` row of a page.
    pub(crate) async fn meta_row(&self, page: &PageKey) -> Result<Option<Item>> {
        Ok(self.table.get(&page.meta(), Consistency::Strong).await?)
    }

    /// Evicts the page with this `META` row, unless it is in use.
    pub(crate) async fn evict(&self, row: &Item) -> Result<Evicted> {
        let meta = row.key()?;
        let rows = self.table.query_all(&Query::of(meta.pk.as_str()), MAX_ROWS).await?.items;
        let plan = eviction::plan(&meta, &rows, self.now());
        // A page that was used since it was found is not one of the least recently used any more.
        let used_at = |row: &Item| row.get(name::USED_AT.name()).cloned();
        let is_same = rows
            .iter()
            .any(|found| found.key().is_ok_and(|key| key == meta) && used_at(found) == used_at(row));
        match plan {
            Some(Eviction::Delete(deletion)) if is_same => {
                for sk in &deletion.before {
                    self.delete_version(&meta, sk).await?;
                }
                let done = self.persist(&self.once(deletion.txn)).await?.is_done();
                let s3_keys = deletion.s3_keys.into_iter().collect();
                Ok(if done { Evicted::Deleted { s3_keys } } else { Evicted::Changed })
            }
            Some(Eviction::Defer(touch)) => {
                let deferred = self.table.commit(&touch).await?.is_done();
                Ok(if deferred { Evicted::Deferred } else { Evicted::Changed })
            }
            _ => Ok(Evicted::Changed),
        }
    }

    /// The least recently used pages.
    pub(crate) async fn least_recently_used(&self, limit: usize) -> Result<Vec<Item>> {
        Ok(self.table.least_recently_used(limit).await?)
    }

    /// Pages whose `ttl` has passed, and which the table has not deleted yet.
    pub(crate) async fn expired_pages(&self, lag: Duration, limit: usize) -> Result<Vec<Item>> {
        Ok(self.table.expired_used(lag, limit).await?)
    }

    pub(crate) async fn table_usage(&self) -> Result<Option<TableUsage>> {
        Ok(self.table.usage().await?)
    }

    /// Records that pages are evicted from now on, unless this process has just done so. Must happen before the first of them is.
    pub(crate) async fn record_eviction(&self) -> Result<()> {
        let (now, recorded_at) = (self.now(), &self.uses.eviction_recorded_at);
        let age = now.seconds().saturating_sub(recorded_at.load(Ordering::Relaxed));
        // Also if the clock was set back.
        if (0..RECORDED_EVERY.as_secs().cast_signed()).contains(&age) {
            return Ok(());
        }
        let ttl = after(now, KNOWN_FOR + RECORDED_EVERY);
        let row = Item::from([(name::TTL.name(), tabletheory::Value::from(ttl))]);
        // Nothing refuses a write without conditions.
        let _ = self.persist(&Txn::from(Write::put(eviction_row(), row))).await?;
        recorded_at.store(now.seconds(), Ordering::Relaxed);
        Ok(())
    }

    /// Whether pages were evicted lately: then a page that has no row may still be in the memory of a process.
    pub(crate) async fn has_evicted(&self) -> Result<bool> {
        Ok(self.table.get(&eviction_row(), Consistency::Strong).await?.is_some())
    }

    /// Sets after how long another use of a page is recorded; `None` if only its `ttl` matters.
    pub(crate) fn record_uses_after(&self, seconds: Option<i64>) {
        self.uses.record_after.store(seconds.unwrap_or(i64::MAX), Ordering::Relaxed);
    }

    /// After how many seconds another use of a page is recorded.
    pub(crate) fn uses_recorded_after(&self) -> i64 {
        self.uses.record_after.load(Ordering::Relaxed)
    }

    pub(crate) fn set_full(&self, is_full: bool) {
        self.uses.is_full.store(is_full, Ordering::Relaxed);
    }

    /// Whether the store has reached its quota, so that no new page may be stored.
    pub(crate) fn is_full(&self) -> bool {
        self.uses.is_full.load(Ordering::Relaxed)
    }
}

/// The row that says that pages were evicted.
fn eviction_row() -> Key {
    Key::new("FACETHEORY#EVICTION", "EVICTION")
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use tabletheory::{ManualClock, MemoryTable, Timestamp};

    use super::*;

    #[tokio::test]
    async fn evictions_are_recorded_once_an_hour_or_if_the_clock_was_set_back() {
        let start = Timestamp::from_seconds(1_700_000_000);
        let clock = Arc::new(ManualClock::at(start));
        let table = Arc::new(MemoryTable::with_clock(clock.clone()));
        let store = PageStore::new(table.clone());
        let is_recorded_at = async |second: i64| {
            clock.set(Timestamp::from_seconds(start.seconds() + second));
            let _ = table.commit(&Txn::from(Write::delete(eviction_row()))).await.expect("in memory");
            store.record_eviction().await.expect("in memory");
            store.has_evicted().await.expect("in memory")
        };
        for (second, expected) in [(0, true), (1, false), (3599, false), (3600, true), (3599, true)] {
            assert_eq!(is_recorded_at(second).await, expected, "{second}");
        }
    }
}
