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

/// The use of the store, as this process knows it. All clones of a [`PageStore`] share it.
#[derive(Debug)]
pub(crate) struct UseState {
    /// After how many seconds another use of a page is recorded: few if pages are evicted soon after their last use.
    record_after: AtomicI64,
    is_full: AtomicBool,
}

impl Default for UseState {
    fn default() -> Self {
        UseState { record_after: AtomicI64::new(i64::MAX), is_full: AtomicBool::new(false) }
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

    /// Records that pages are evicted from now on. Must happen before the first of them is.
    pub(crate) async fn record_eviction(&self) -> Result<()> {
        let ttl = after(self.now(), KNOWN_FOR);
        let row = Item::from([(name::TTL.name(), tabletheory::Value::from(ttl))]);
        self.persist(&Txn::from(Write::put(eviction_row(), row))).await.map(drop)
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
