//! Eviction: deletes the least recently used pages of a store that reaches its quota, and pages whose retention has ended, each
//! with its rows and bodies.
//!
//! Nothing is listed or scanned: the table knows the order of use, and rows name their bodies. One process evicts at a time, by
//! the lease of a page that is never published. If it dies, another one continues once the lease has expired; a page whose rows
//! it had deleted, but not its bodies, leaves those to garbage collection.

use std::time::Duration;

use futures_util::{StreamExt as _, stream};
use tabletheory::Item;

use crate::bodies::s3_key::{directory_of_hash, page_directory};
use crate::error::{Error, Kind, Result};
use crate::pages::Pages;
use crate::protocol::quota::{Demand, FileSystem, Quota, StoreUsage};
use crate::protocol::{Acquire, PageKey};
use crate::store::Evicted;

/// The page whose lease elects the process that evicts. Cache keys of requests contain `::`, so no request reaches it.
const PAGE: &str = "facetheory/eviction";
/// Pages that are read from the order of use at once.
const BATCH: usize = 256;
/// Pages that are evicted at the same time, whose commits share writes to the disk.
const CONCURRENT: usize = 64;
/// The most batches of one run. The next run continues.
const MAX_BATCHES: usize = 400;
/// How long after its `ttl` a page is deleted, since clocks differ: before the table deletes its row, which leaves the bodies.
const EXPIRY_LAG: Duration = Duration::from_secs(5);
/// How many bytes the file of bodies returns to the disk at once, before other writers continue.
const SHRINK_BYTES: u64 = 8 << 20;

/// The result of one run of [`Pages::evict`].
///
/// ```
/// let report = facetheory::EvictionReport::default();
/// assert_eq!((report.evicted, report.expired), (0, 0));
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct EvictionReport {
    /// Pages that were evicted because of the quota.
    pub evicted: u64,
    /// Pages that were deleted because their retention had ended.
    pub expired: u64,
    /// Pages that were in use, and count as used now.
    pub deferred: u64,
    /// Pages and bodies that could not be deleted.
    pub failed: u64,
    /// The first error.
    pub failure: Option<String>,
}

/// Why a page is deleted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Cause {
    Quota,
    Expiry,
}

impl Pages {
    /// How much the stores hold. Fails if they cannot tell: with [`Kind::Invalid`] for a quota that they cannot keep.
    ///
    /// `file_system` is the space of the file system of the embedded store, if it is known.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// use facetheory::{Bodies, PageStore, Pages, Quota};
    /// use std::sync::Arc;
    ///
    /// let directory = tempfile::tempdir()?;
    /// let table = tabletheory::SqliteTable::open(directory.path().join("table.db"))?;
    /// let pages = Pages::new(PageStore::new(Arc::new(table)), Bodies::files(directory.path())?);
    /// let mut quota = Quota::default();
    /// quota.max_bytes = Some(1 << 30);
    /// assert_eq!(pages.usage(&quota, None).await?.pages, 0);
    /// # Ok(()) }
    /// ```
    pub async fn usage(&self, quota: &Quota, file_system: Option<FileSystem>) -> Result<StoreUsage> {
        let Some(table) = self.store.table_usage().await? else {
            return Err(Error::invalid(
                "the table does not know which pages were used least recently, so neither `max_bytes` nor `max_pages` can be \
                 kept; remove them, or use the embedded store",
            ));
        };
        let mut usage = StoreUsage { pages: table.used_rows, file_system, ..StoreUsage::default() };
        let bodies = self.bodies.usage().await?;
        match (table.file, bodies) {
            (Some(table), Some((bodies, large))) => {
                (usage.table, usage.bodies, usage.large_bodies) = (table, bodies, large);
            }
            _ if quota.max_bytes.is_some() => {
                return Err(Error::invalid(
                    "the size of this store is not known, so `max_bytes` cannot be kept; set `max_pages`, or use the \
                     embedded store",
                ));
            }
            _ => {}
        }
        Ok(usage)
    }

    /// Tells this process how full the store is: whether it may store new pages, and how soon it records their next use.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> facetheory::Result<()> {
    /// use facetheory::{Bodies, Demand, PageStore, Pages, Quota};
    /// use std::sync::Arc;
    ///
    /// let pages = Pages::new(PageStore::new(Arc::new(tabletheory::MemoryTable::new())), Bodies::memory());
    /// let mut quota = Quota::default();
    /// quota.max_pages = Some(1000);
    /// let usage = pages.usage(&quota, None).await?;
    /// assert_eq!(pages.heed(&quota, &usage).await?, Demand::Nothing);
    /// # Ok(()) }
    /// ```
    pub async fn heed(&self, quota: &Quota, usage: &StoreUsage) -> Result<Demand> {
        let demand = quota.demand(usage);
        self.store.set_full(demand == Demand::Full);
        let oldest = if quota.is_near(usage) { self.store.least_recently_used(1).await? } else { Vec::new() };
        let used_at = oldest.first().and_then(|row| row.get(tabletheory::USED_AT)?.as_i64());
        // A page that was used in the younger half of that time is not evicted soon.
        let half = used_at.map(|used_at| (self.store.now().seconds().saturating_sub(used_at) / 2).max(1));
        self.store.record_uses_after(half);
        Ok(demand)
    }

    /// Evicts the least recently used pages until the store is well within its quota, and deletes pages whose retention has
    /// ended. Returns `None` if there is nothing to do, or another process does it. When `stop` ends, the run ends early.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> facetheory::Result<()> {
    /// use facetheory::{Bodies, PageKey, PageStore, Pages, Policy, Quota, Rendered};
    /// use std::{sync::Arc, time::Duration};
    ///
    /// let pages = Pages::new(PageStore::new(Arc::new(tabletheory::MemoryTable::new())), Bodies::memory());
    /// for path in ["/a", "/b"] {
    ///     let policy = Policy::every(Duration::from_secs(60));
    ///     pages.regenerate(&PageKey::new(path)?, &policy, |_| async { Ok(Rendered::html("a page")) }).await?;
    /// }
    /// let mut quota = Quota::default();
    /// quota.max_pages = Some(2);
    /// let report = pages.evict(&quota, || None, std::future::pending()).await?.expect("the store is full");
    /// assert!(report.evicted > 0);
    /// # Ok(()) }
    /// ```
    pub async fn evict(
        &self,
        quota: &Quota,
        file_system: impl Fn() -> Option<FileSystem>,
        stop: impl Future<Output = ()>,
    ) -> Result<Option<EvictionReport>> {
        let usage = self.usage(quota, file_system()).await?;
        let is_needed = quota.demand(&usage) != Demand::Nothing || quota.surplus(&usage) > 0;
        if !is_needed && self.store.expired_pages(EXPIRY_LAG, 1).await?.is_empty() {
            return Ok(None);
        }
        let page = PageKey::new(PAGE)?;
        let Acquire::Granted(lease) = self.store.try_acquire(&page).await? else { return Ok(None) };
        let mut report = EvictionReport::default();
        let ended = tokio::select! {
            biased;
            ended = self.evict_all(quota, &file_system, &mut report) => ended,
            () = stop => Ok(()),
            () = self.store.heartbeat(&lease) => {
                Err(Error::new(Kind::Unavailable, "the lease of the eviction was lost; another process continues"))
            }
        };
        self.store.release(&lease).await?;
        ended.map(|()| Some(report))
    }

    async fn evict_all(
        &self,
        quota: &Quota,
        file_system: &impl Fn() -> Option<FileSystem>,
        report: &mut EvictionReport,
    ) -> Result<()> {
        self.store.record_eviction().await?;
        for _ in 0..MAX_BATCHES {
            let rows = self.store.expired_pages(EXPIRY_LAG, BATCH).await?;
            if rows.is_empty() || !self.evict_batch(rows, Cause::Expiry, report).await {
                break;
            }
        }
        if quota.demand(&self.usage(quota, file_system()).await?) == Demand::Nothing {
            return self.shrink(quota, file_system).await;
        }
        for _ in 0..MAX_BATCHES {
            let usage = self.usage(quota, file_system()).await?;
            self.heed(quota, &usage).await?;
            if quota.is_satisfied(&usage) {
                break;
            }
            let few = quota.max_pages.map_or(BATCH, |most| usize::try_from(most / 10 + 1).unwrap_or(BATCH));
            let rows = self.store.least_recently_used(BATCH.min(few)).await?;
            if rows.is_empty() || !self.evict_batch(rows, Cause::Quota, report).await {
                break;
            }
        }
        self.shrink(quota, file_system).await
    }

    /// Evicts some pages at the same time. Returns whether any of them is done with.
    async fn evict_batch(&self, rows: Vec<Item>, cause: Cause, report: &mut EvictionReport) -> bool {
        let before = (report.evicted + report.expired, report.deferred);
        let evictions = rows.into_iter().map(|row| async move { self.evict_row(&row).await });
        let mut outcomes = stream::iter(evictions).buffer_unordered(CONCURRENT);
        while let Some(outcome) = outcomes.next().await {
            match outcome {
                Ok(Evicted::Deleted { .. }) if cause == Cause::Quota => report.evicted += 1,
                Ok(Evicted::Deleted { .. }) => report.expired += 1,
                Ok(Evicted::Deferred) => report.deferred += 1,
                Ok(Evicted::Changed) => {}
                Err(error) => {
                    report.failed += 1;
                    report.failure.get_or_insert_with(|| error.to_string());
                }
            }
        }
        before != (report.evicted + report.expired, report.deferred)
    }

    /// Evicts one page, unless it is in use.
    pub(crate) async fn evict_page(&self, page: &PageKey) -> Result<()> {
        let Some(row) = self.store.meta_row(page).await? else { return Ok(()) };
        self.store.record_eviction().await?;
        self.evict_row(&row).await.map(drop)
    }

    async fn evict_row(&self, row: &Item) -> Result<Evicted> {
        let evicted = self.store.evict(row).await?;
        if let Evicted::Deleted { s3_keys } = &evicted {
            let pk = row.key()?.pk;
            let own = s3_keys.iter().filter(|s3_key| self.is_own_body(s3_key, &pk));
            let deletes = own.map(|s3_key| self.bodies.delete(s3_key));
            futures_util::future::try_join_all(deletes).await?;
        }
        Ok(evicted)
    }

    /// Whether an S3 key is that of a body which was stored for the page of this partition, and for no other.
    fn is_own_body(&self, s3_key: &str, pk: &str) -> bool {
        let Some(directory) = self.bodies.directory_of(s3_key) else { return false };
        let hash = pk.rsplit('#').next().unwrap_or_default();
        let is_hashed = hash.len() == 64 && hash.bytes().all(|byte| byte.is_ascii_hexdigit());
        let cache_key = || self.store.key_scheme().cache_key_of(pk);
        if is_hashed {
            directory_of_hash(hash) == directory
        } else {
            cache_key().is_some_and(|cache_key| page_directory(cache_key) == directory)
        }
    }

    /// Makes the file of bodies shorter if the store takes more of the disk than its limit.
    async fn shrink(&self, quota: &Quota, file_system: &impl Fn() -> Option<FileSystem>) -> Result<()> {
        for _ in 0..MAX_BATCHES {
            let surplus = quota.surplus(&self.usage(quota, file_system()).await?);
            if surplus == 0 {
                break;
            }
            self.bodies.shrink(surplus.min(SHRINK_BYTES)).await?;
        }
        Ok(())
    }
}
