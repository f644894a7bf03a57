//! Keeps the store within its quota: looks at its size, and evicts pages, on one gateway at a time.

use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context as _, Result};
use facetheory::{Demand, EvictionReport, FileSystem, Pages, Quota, StoreUsage};
use metrics::{counter, gauge};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::store::{self, Stores};
use crate::config::Store;

/// The limit of the embedded store, unless one is configured.
const DEFAULT_MAX_BYTES: u64 = 10 << 30;
/// How often the size of the store is looked at, ...
const INTERVAL: Duration = Duration::from_millis(500);
/// ... and how often while it is near its limit.
const SHORT_INTERVAL: Duration = Duration::from_millis(200);
/// How long after the store came near its limit the first page is evicted. Until then, all gateways have noticed that, and have
/// recorded which pages are used.
const NOTICE: Duration = Duration::from_secs(1);
/// Eviction has ended once no page was evicted for this long. It is logged only when it begins and when it has ended.
const QUIET: Duration = Duration::from_secs(600);

/// The background task that keeps the quota.
#[derive(Debug)]
pub(crate) struct QuotaTask {
    pages: Pages,
    quota: Quota,
    /// A directory of the embedded store.
    directory: Option<PathBuf>,
    /// Since when the store is near its limit.
    near_since: Option<Instant>,
    log: StateLog,
}

impl QuotaTask {
    /// Returns the task for a store, or `None` for one that has no quota and deletes expired pages by itself.
    ///
    /// # Errors
    /// If the store cannot keep the quota that is configured.
    pub(crate) async fn new(store: &Store, pages: &Pages) -> Result<Option<Self>> {
        let is_embedded = store::is_embedded(store)?;
        let mut quota = Quota::default();
        quota.max_bytes = store.max_bytes.or(is_embedded.then_some(DEFAULT_MAX_BYTES));
        quota.max_pages = store.max_pages;
        let directory = Stores::of(store)?.directory();
        match pages.usage(&quota, None).await {
            // The size is looked at again and again, so a store that is down for a moment does not matter.
            Err(error) if error.kind() == facetheory::Kind::Invalid => {
                let is_needed = quota != Quota::default();
                if is_needed { Err(error).context("the quota of [store] cannot be kept") } else { Ok(None) }
            }
            _ => {
                let (near_since, log) = (None, StateLog::default());
                Ok(Some(QuotaTask { pages: pages.clone(), quota, directory, near_since, log }))
            }
        }
    }

    /// Runs until `stop` is cancelled. Returns when the lease of the eviction is released.
    pub(crate) async fn run(mut self, stop: CancellationToken) {
        let mut delay = SHORT_INTERVAL;
        while stop.run_until_cancelled(tokio::time::sleep(delay)).await.is_some() {
            delay = match self.look(&stop).await {
                Ok(true) => SHORT_INTERVAL,
                Ok(false) => INTERVAL,
                Err(error) => {
                    self.log.failed(&format!("{:#}", anyhow::Error::new(error)));
                    INTERVAL
                }
            };
        }
    }

    /// Looks at the size of the store, and evicts pages if necessary. Returns whether the store is near its limit.
    async fn look(&mut self, stop: &CancellationToken) -> facetheory::Result<bool> {
        let file_system = || self.directory.as_deref().and_then(space);
        let usage = self.pages.usage(&self.quota, file_system()).await?;
        let demand = self.pages.heed(&self.quota, &usage).await?;
        let is_near = self.quota.is_near(&usage);
        self.near_since = self.near_since.filter(|_| is_near).or_else(|| is_near.then(Instant::now));
        let is_noticed = self.near_since.is_some_and(|since| since.elapsed() >= NOTICE);
        let report = if demand == Demand::Nothing || is_noticed {
            self.pages.evict(&self.quota, file_system, stop.cancelled()).await?
        } else {
            None
        };
        let usage = self.pages.usage(&self.quota, file_system()).await?;
        self.pages.heed(&self.quota, &usage).await?;
        record(&self.quota, &usage);
        self.log.looked(demand, report.as_ref());
        Ok(self.quota.is_near(&usage))
    }
}

/// The space of the file system of a directory; `None` if the system does not tell.
fn space(directory: &Path) -> Option<FileSystem> {
    let found = rustix::fs::statvfs(directory).ok()?;
    Some(FileSystem::new(found.f_frsize * found.f_blocks, found.f_frsize * found.f_bavail))
}

#[expect(clippy::cast_precision_loss, reason = "none of these numbers reaches 2^53")]
fn record(quota: &Quota, usage: &StoreUsage) {
    gauge!("facetheory_store_pages").set(usage.pages as f64);
    gauge!("facetheory_store_bytes").set(usage.disk_bytes() as f64);
    gauge!("facetheory_store_max_bytes").set(quota.byte_limit(usage).unwrap_or(0) as f64);
    gauge!("facetheory_store_max_pages").set(quota.max_pages.unwrap_or(0) as f64);
}

/// Logs when the state changes, and counts.
#[derive(Debug, Default)]
struct StateLog {
    /// When a page was evicted last, if eviction goes on, and how many were evicted since it began.
    evicting: Option<(Instant, u64)>,
    is_full: bool,
    is_failing: bool,
}

impl StateLog {
    fn looked(&mut self, demand: Demand, report: Option<&EvictionReport>) {
        if std::mem::take(&mut self.is_failing) {
            tracing::info!("the size of the store is known again");
        }
        let is_full = demand == Demand::Full;
        // Once per eviction, however often the store reaches its limit meanwhile.
        if is_full && !self.is_full {
            self.is_full = true;
            tracing::warn!(
                "the store has reached its quota; new pages are not stored until pages are evicted"
            );
        }
        if let Some(report) = report {
            counter!("facetheory_evicted_pages_total").increment(report.evicted);
            counter!("facetheory_expired_pages_total").increment(report.expired);
            if let Some(error) = &report.failure {
                tracing::warn!(error, failed = report.failed, "some pages could not be evicted");
            }
            if report.evicted > 0 {
                let before = self.evicting.map_or(0, |(_, evicted)| evicted);
                if before == 0 {
                    tracing::info!("the store is near its quota; the least recently used pages are evicted");
                }
                self.evicting = Some((Instant::now(), before + report.evicted));
            }
        }
        if let Some((last, evicted)) = self.evicting
            && last.elapsed() >= QUIET
        {
            tracing::info!(evicted, "the store is within its quota; no pages are evicted any more");
            (self.evicting, self.is_full) = (None, false);
        }
    }

    fn failed(&mut self, error: &str) {
        if !std::mem::replace(&mut self.is_failing, true) {
            tracing::warn!(
                error,
                "the store may exceed its quota: its size is not known, or pages cannot be evicted"
            );
        }
    }
}
