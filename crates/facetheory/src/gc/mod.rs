//! Garbage collection: versions that are not retained, orphaned bodies, and expired rows.
//!
//! # Why no body is deleted that a row names or may come to name
//!
//! All rows are read before any body is deleted; if the scan fails, no body is deleted. The scan is not a snapshot, so consider
//! a body that was stored before it began. There are two ways in which a row comes to name it:
//!
//! - *A publish* deletes `LOCK` by its token. The worker acquired that lock before it stored the body, so the row exists from
//!   then until the publish, and never returns with the same token. Within a partition `LOCK` is read first, then `META`,
//!   then the other rows. If `LOCK` exists, held or expired, no body of the page is deleted. If it is gone or has another token,
//!   either the publish has happened, and the rows that are read afterwards name the body unless a later publish replaced it; or
//!   the publish will be refused.
//! - *A rollback* points `META` at a version whose row exists. The row of the version is read after `META`, so its body is
//!   live whatever `META` said. The row can be gone by then only because its `ttl` expired, which a rollback removes, or because a
//!   garbage collection deleted it, in a transaction that is refused once `META` points at the version. A version that was
//!   deleted cannot be rolled back to. So that transaction decides whether a version is current; what the scan saw only saves
//!   transactions.
//!
//! The S3 key of a body is new for each attempt, so a body that no row names and nobody can publish stays an orphan.
//!
//! A body that was stored after the scan began is younger than the grace period, by the clock of the store and by the time in its
//! key, and is not deleted. The grace period also protects readers that read `META` a while ago, and services in other languages
//! that publish in other ways: a body that was stored within it is not deleted, nor is a body that the next body of the page
//! replaced within it.

mod eviction;
mod live_set;
mod options;
mod orphans;
mod replaced;
mod run;
mod scan;

use std::ops::ControlFlow;
use std::time::Duration;

pub use self::eviction::EvictionReport;
use self::options::READER_LAG;
pub use self::options::{GcOptions, GcReport};
use self::run::Run;
use crate::bodies::s3_key::S3Key;
use crate::error::{Error, Result};
use crate::pages::Pages;

/// The most versions of a page that can be retained, since they are held in memory.
const MAX_RETAINED_VERSIONS: usize = 10_000;
/// How long after its `ttl` an expired row is deleted, since clocks differ.
const EXPIRY_LAG: Duration = Duration::from_secs(60);

impl Pages {
    /// Deletes versions that are not retained, orphaned bodies, incomplete files and expired rows, and reports how many.
    ///
    /// Reads all rows, then lists all bodies, with constant memory. `progress` is called after each batch and at the end, and may
    /// stop the run.
    ///
    /// A run that was stopped or failed has to read the rows again, but can skip the bodies up to [`GcReport::resume`]. Files are
    /// not listed in order, so their listing always starts over; bodies that were deleted before are not listed again.
    ///
    /// Returns [`Kind::Invalid`](crate::Kind::Invalid) if the grace period is too short to be safe.
    ///
    /// ```
    /// use facetheory::{Bodies, GcOptions, PageStore, Pages};
    /// use std::{ops::ControlFlow, sync::Arc};
    ///
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> facetheory::Result<()> {
    /// let pages = Pages::new(PageStore::new(Arc::new(tabletheory::MemoryTable::new())), Bodies::memory());
    /// let report = pages.gc(&GcOptions::default(), |_so_far| ControlFlow::Continue(())).await?;
    /// assert!(report.finished);
    /// # Ok(()) }
    /// ```
    pub async fn gc(
        &self,
        options: &GcOptions,
        progress: impl FnMut(&GcReport) -> ControlFlow<()>,
    ) -> Result<GcReport> {
        self.check(options)?;
        // A body that is stored from now on is too young, whatever the scan finds.
        let cutoff = self.store.now() - options.grace;
        let mut run = Run::new(self, options, progress);
        let Some(live) = run.scan_rows().await? else { return Ok(run.report) };
        if run.delete_orphans(&live, cutoff).await?.is_break() {
            return Ok(run.report);
        }
        run.report.incomplete = self.bodies.delete_staged(cutoff, options.dry_run).await?;
        // Last, so that a dry run reads the same rows. Their bodies are deleted by the next run.
        let table = self.store.table();
        run.report.expired =
            if options.dry_run { table.expired(EXPIRY_LAG).await? } else { table.sweep(EXPIRY_LAG).await? };
        Ok(run.finish())
    }

    fn check(&self, options: &GcOptions) -> Result<()> {
        let least = GcOptions::shortest_grace(self.store.lease_terms());
        if options.grace < least {
            return Err(Error::invalid(format!(
                "a grace period of {} s is too short: it must be at least {} s, for a lease of {} s, and readers and \
                 requests that are delayed by up to {} s",
                options.grace.as_secs(),
                least.as_secs(),
                least.saturating_sub(READER_LAG).as_secs(),
                READER_LAG.as_secs(),
            )));
        }
        if options.retention.is_some_and(|retention| retention.versions > MAX_RETAINED_VERSIONS) {
            return Err(Error::invalid(format!(
                "at most {MAX_RETAINED_VERSIONS} versions of a page can be retained; set no retention to retain all"
            )));
        }
        let prefix = &self.bodies.prefix;
        match &options.resume {
            Some(key) if S3Key::parse(prefix, key).is_none() => Err(Error::invalid(format!(
                "garbage collection cannot resume after {key:?}: it is not the S3 key of a body under {prefix}"
            ))),
            _ => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests;
