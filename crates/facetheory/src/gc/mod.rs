//! GcOptions: versions past the retention, bodies that nothing names, and rows that have expired.
//!
//! # Why nothing is deleted that is named, or can come to be
//!
//! All rows are read before any body is deleted; a scan that fails deletes none. The scan is no snapshot, so
//! consider a body that was stored before it began. It comes to be named in two ways only.
//!
//! - *A publish* deletes `LOCK` on its own token. The worker took that lock before it stored the body, so the row is
//!   there from then on until the publish, and never comes back with the same token. Within a partition `LOCK` is
//!   read first, then `META`, then the others. If `LOCK` is still there, held or expired, all bodies of the page
//!   stay. If it is gone or another's, the publish has happened, and the rows that are read after it name the body
//!   unless a later publish has replaced it; or it will be refused.
//! - *A rollback* moves `META` to a version whose row exists. The version's row is read after `META`, so the body
//!   stays whatever `META` said: the row can be gone by then only if its `ttl` ran out, and a rollback removes that,
//!   or by a collection, whose transaction is refused once `META` points at the version. A version that was deleted
//!   cannot be rolled back to. Whether a version is served is therefore asked in the transaction that deletes it;
//!   what the scan saw only saves transactions.
//!
//! A body's name is new for each attempt, so what no row names and nobody can publish stays an orphan for ever.
//!
//! A body that was stored after the scan began is younger than the grace period, by the clock of the store and by the
//! time in its name, and stays. The grace is also for readers who looked at `META` a while ago, and for services in
//! other languages that publish in ways of their own: what was stored within it stays, and so does what the next
//! body of the page replaced within it.

mod live_set;
mod orphans;
mod scan;

use std::collections::HashMap;
use std::ops::ControlFlow;
use std::time::Duration;

use futures_util::{StreamExt as _, future, stream};
use object_store::path::Path;
use tabletheory::{Scan, Timestamp};

use self::live_set::References;
use self::orphans::{Found, Name, Siblings};
use self::scan::{Rows, Superfluous};
use crate::bodies::unavailable;
use crate::error::{Error, Kind, Result};
use crate::pages::Pages;
use crate::protocol::lease::LeaseTerms;
use crate::protocol::retention::Retention;

/// Versions that are deleted at the same time.
const VERSIONS_AT_ONCE: usize = 32;
/// Rows that are read, bodies that are listed until the caller hears of it, and bodies that are deleted at once, unless it
/// is to be fewer.
const BATCH: usize = 1000;
/// After so many failures the run ends: the next ones would fail too.
const MOST_FAILURES: u64 = 1000;
/// Of so many failures it is kept what was the matter.
const FAILURES_TOLD: usize = 10;
/// The most versions of a page that can be retained, since they are held in memory.
const MOST_VERSIONS: usize = 10_000;
/// The longest that a reader goes by a row that it has read, and that a request is under way.
const READERS: Duration = Duration::from_secs(600);
/// How long after its `ttl` a row is left alone, since clocks differ.
const EXPIRY_LAG: Duration = Duration::from_secs(60);
/// With a greater chance of keeping an orphan by mistake the set of names is too small.
const FALSE_KEEPS: f64 = 0.05;

/// What is collected, and how.
///
/// ```
/// use facetheory::{GcOptions, Retention};
/// use std::time::Duration;
///
/// let mut options = GcOptions::default();
/// options.retention = Some(Retention::newest(5));
/// options.grace = Duration::from_secs(6 * 3600);
/// options.dry_run = true;
/// assert!(!GcOptions::default().dry_run);
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct GcOptions {
    /// How much of a page's history stays; none leaves all versions.
    pub retention: Option<Retention>,
    /// Bodies that nothing names stay for this long, a day by default. It must be longer than a lease and ten minutes
    /// together.
    pub grace: Duration,
    /// Deletes nothing, and says what would go.
    pub dry_run: bool,
    /// The size of the set of all names, 16 MiB by default: enough for ten million bodies. A set that is too small
    /// keeps orphans by mistake, others in each run; with 16 MiB and a million bodies one in a thousand million.
    pub memory: usize,
    /// Where a run that did not finish ended: [`GcReport::resume`].
    pub resume: Option<String>,
    /// Rows that are read, bodies that are listed and bodies that are deleted at once: 1000 by default, which is the most.
    pub batch: usize,
    /// The rest between two batches, so that whoever else uses the stores is not disturbed; none by default.
    pub pause: Duration,
}

impl Default for GcOptions {
    fn default() -> Self {
        GcOptions {
            retention: None,
            grace: Duration::from_secs(86_400),
            dry_run: false,
            memory: 16 * 1024 * 1024,
            resume: None,
            batch: BATCH,
            pause: Duration::ZERO,
        }
    }
}

impl GcOptions {
    /// The shortest grace period that is safe where leases are given on these terms: readers and requests may be as far
    /// behind as a lease and ten minutes.
    ///
    /// ```
    /// use facetheory::protocol::LeaseTerms;
    /// use facetheory::GcOptions;
    ///
    /// assert_eq!(GcOptions::shortest_grace(&LeaseTerms::default()).as_secs(), 630);
    /// ```
    #[must_use]
    pub fn shortest_grace(terms: &LeaseTerms) -> Duration {
        terms.term().saturating_add(terms.skew).saturating_add(READERS)
    }

    fn at_once(&self) -> usize {
        self.batch.clamp(1, BATCH)
    }

    async fn rest(&self) {
        if !self.pause.is_zero() {
            tokio::time::sleep(self.pause).await;
        }
    }
}

/// What a collection has done so far, or would do.
///
/// ```
/// let nothing = facetheory::GcReport::default();
/// assert_eq!((nothing.versions, nothing.orphans, nothing.bytes), (0, 0, 0));
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct GcReport {
    /// Rows that were read.
    pub rows: u64,
    /// Versions that were deleted.
    pub versions: u64,
    /// Bodies in the store.
    pub objects: u64,
    /// Bodies that were deleted, because nothing names them.
    pub orphans: u64,
    /// How many bytes those had.
    pub bytes: u64,
    /// Bodies that a row names.
    pub named: u64,
    /// Bodies that were stored or replaced within the grace period.
    pub young: u64,
    /// Bodies of pages that are being rendered, or whose rows are damaged.
    pub protected: u64,
    /// Objects that are not bodies by their names, and are left alone.
    pub foreign: u64,
    /// Rows that do not say which body they name.
    pub damaged: u64,
    /// Expired rows that were deleted, where the table does not do so by itself.
    pub expired: u64,
    /// Versions and bodies that could not be deleted.
    pub failed: u64,
    /// What was the matter with the first of them.
    pub failures: Vec<String>,
    /// Where another run can go on; none where it has to begin from the beginning.
    pub resume: Option<String>,
    /// Whether it came to its end.
    pub finished: bool,
}

impl Pages {
    /// Deletes what is no longer needed, and says how much it was.
    ///
    /// Reads all rows, and then lists all bodies, in memory that does not grow with either. In between and in the end
    /// the caller is told how far it has come, and may stop it.
    ///
    /// A run that was stopped, or failed, has to read the rows again, but need not list the bodies again that came
    /// before [`GcReport::resume`]. Files are listed in no order, so there is no such place among them; what was
    /// deleted before is then not met again.
    ///
    /// Fails with [`Kind::Invalid`](crate::Kind::Invalid) where the grace period is too short to be safe.
    ///
    /// ```
    /// use facetheory::{Bodies, GcOptions, Pages, PageStore};
    /// use std::{ops::ControlFlow, sync::Arc};
    ///
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> facetheory::Result<()> {
    /// let pages = Pages::new(PageStore::new(Arc::new(tabletheory::MemoryTable::new())), Bodies::memory());
    /// let how = GcOptions::default();
    /// let collected = pages.gc(&how, |_so_far| ControlFlow::Continue(())).await?;
    /// assert!(collected.finished);
    /// # Ok(()) }
    /// ```
    pub async fn gc(
        &self,
        how: &GcOptions,
        mut progress: impl FnMut(&GcReport) -> ControlFlow<()>,
    ) -> Result<GcReport> {
        self.check(how)?;
        // What is stored from now on is too young, whatever the scan finds.
        let cut_off = self.store.now() - how.grace;
        let mut collected = GcReport { resume: how.resume.clone(), ..GcReport::default() };
        let Some(references) = self.collect_versions(how, &mut collected, &mut progress).await? else {
            return Ok(collected);
        };
        if !self.collect_orphans(how, &references, cut_off, &mut collected, &mut progress).await? {
            return Ok(collected);
        }
        // Last of all, so that a dry run finds the same rows; what they name goes with the next run.
        let table = self.store.table();
        collected.expired =
            if how.dry_run { table.expired(EXPIRY_LAG).await? } else { table.sweep(EXPIRY_LAG).await? };
        (collected.finished, collected.resume) = (true, None);
        // There is nothing left to stop.
        let _finished = progress(&collected);
        Ok(collected)
    }

    fn check(&self, how: &GcOptions) -> Result<()> {
        let terms = self.store.terms();
        let least = GcOptions::shortest_grace(terms);
        if how.grace < least {
            return Err(Error::invalid(format!(
                "a grace period of {} s is too short: a lease of {} s, and readers and requests that are {} s behind, \
                 need at least {} s",
                how.grace.as_secs(),
                least.saturating_sub(READERS).as_secs(),
                READERS.as_secs(),
                least.as_secs()
            )));
        }
        if how.retention.is_some_and(|retention| retention.versions > MOST_VERSIONS) {
            return Err(Error::invalid(format!(
                "at most {MOST_VERSIONS} versions of a page can be retained; without a retention all of them are"
            )));
        }
        let prefix = &self.bodies.prefix;
        match &how.resume {
            Some(key) if Name::parse(prefix, key).is_none() => Err(Error::invalid(format!(
                "a collection cannot go on after {key:?}, which is no body under {prefix}"
            ))),
            _ => Ok(()),
        }
    }

    /// Reads all rows, deletes the versions past the retention, and returns what is named; none if it was stopped.
    async fn collect_versions(
        &self,
        how: &GcOptions,
        collected: &mut GcReport,
        progress: &mut impl FnMut(&GcReport) -> ControlFlow<()>,
    ) -> Result<Option<References>> {
        let mut rows = Rows::new(References::new(how.memory, &*self.random), how.retention);
        let mut scan = Scan::new().limit(how.at_once());
        loop {
            let page = self.store.table().scan(&scan).await?;
            page.items.iter().try_for_each(|item| rows.note(item))?;
            collected.rows += page.items.len() as u64;
            collected.damaged = rows.damaged;
            let superfluous = rows.take_superfluous();
            if how.dry_run {
                collected.versions += superfluous.len() as u64;
            } else {
                self.delete_versions(&superfluous, &mut rows, collected).await;
            }
            if collected.failed > MOST_FAILURES || progress(collected).is_break() {
                return Ok(None);
            }
            match page.next {
                Some(cursor) => scan = Scan::new().limit(how.at_once()).after(cursor),
                None => break,
            }
            how.rest().await;
        }
        rows.finish();
        let false_keeps = rows.references.false_keeps();
        if false_keeps > FALSE_KEEPS {
            tracing::warn!(
                false_keeps,
                "so many orphans are kept by mistake; give the collection more memory"
            );
        }
        Ok(Some(rows.references))
    }

    async fn delete_versions(&self, versions: &[Superfluous], rows: &mut Rows, collected: &mut GcReport) {
        for some in versions.chunks(VERSIONS_AT_ONCE) {
            let deletes = some.iter().map(|version| self.store.delete_version(&version.meta, &version.sk));
            for (version, outcome) in some.iter().zip(future::join_all(deletes).await) {
                match outcome {
                    Ok(true) => collected.versions += 1,
                    // A rollback has come in between.
                    Ok(false) => rows.keep(version),
                    // It may be there, or not: either way its body can wait.
                    Err(error) => {
                        rows.keep(version);
                        collected.fail(1, &error);
                    }
                }
            }
        }
    }

    /// Lists all bodies, and deletes those that nothing names. False if it was stopped.
    async fn collect_orphans(
        &self,
        how: &GcOptions,
        references: &References,
        cut_off: Timestamp,
        collected: &mut GcReport,
        progress: &mut impl FnMut(&GcReport) -> ControlFlow<()>,
    ) -> Result<bool> {
        let bodies = &self.bodies;
        let prefix = Path::from(bodies.prefix.as_str());
        let mut listed = match &how.resume {
            Some(key) if bodies.lists_in_order => {
                bodies.objects.list_with_offset(Some(&prefix), &Path::from(key.as_str()))
            }
            _ => bodies.objects.list(Some(&prefix)),
        };
        let mut siblings = Siblings::new(references, &bodies.prefix, cut_off);
        let (mut orphans, mut unheard) = (Vec::new(), 0);
        loop {
            let next = listed.next().await;
            let is_end = next.is_none();
            match next {
                Some(Ok(object)) => siblings.add(object, collected, &mut orphans),
                Some(Err(cause)) => return Err(unavailable("bodies cannot be listed", cause)),
                None => siblings.finish(collected, &mut orphans),
            }
            unheard += 1;
            if orphans.len() < how.at_once() && unheard < how.at_once() && !is_end {
                continue;
            }
            unheard = 0;
            // The bodies of a page are decided upon together, so these can be many more than one batch.
            while !orphans.is_empty() {
                let some = orphans.drain(..orphans.len().min(how.at_once())).collect();
                self.delete_orphans(some, how.dry_run, collected).await;
                how.rest().await;
            }
            if bodies.lists_in_order {
                collected.resume = siblings.through.clone().or(collected.resume.take());
            }
            if collected.failed > MOST_FAILURES || progress(collected).is_break() {
                return Ok(false);
            }
            if is_end {
                return Ok(true);
            }
            how.rest().await;
        }
    }

    async fn delete_orphans(&self, orphans: Vec<Found>, dry_run: bool, collected: &mut GcReport) {
        let mut gone = |size: u64| {
            collected.orphans += 1;
            collected.bytes += size;
        };
        if dry_run {
            return orphans.iter().for_each(|orphan| gone(orphan.size));
        }
        let mut sizes: HashMap<Path, u64> =
            orphans.iter().map(|orphan| (orphan.path().clone(), orphan.size)).collect();
        let paths = stream::iter(orphans).map(|orphan| Ok(orphan.path().clone()));
        let mut deleted = self.bodies.objects.delete_stream(paths.boxed());
        let (mut missing, mut last_error) = (0, None);
        while let Some(outcome) = deleted.next().await {
            match outcome {
                Ok(path) => sizes.remove(&path).into_iter().for_each(&mut gone),
                // Somebody else has deleted it.
                Err(object_store::Error::NotFound { .. }) => missing += 1,
                Err(cause) => last_error = Some(unavailable("a body cannot be deleted", cause)),
            }
        }
        // A request for many bodies fails with one error.
        let failed = (sizes.len() as u64).saturating_sub(missing);
        if failed > 0 {
            let silent = || Error::new(Kind::Unavailable, "the store did not say what became of a body");
            collected.fail(failed, &last_error.unwrap_or_else(silent));
        }
    }
}

impl GcReport {
    fn fail(&mut self, times: u64, error: &Error) {
        tracing::warn!(%error, times, "something could not be collected");
        self.failed += times;
        if self.failures.len() < FAILURES_TOLD {
            let cause = std::error::Error::source(error).map(|cause| format!(": {cause}"));
            self.failures.push(format!("{error}{}", cause.unwrap_or_default()));
        }
    }
}

#[cfg(test)]
mod tests;
