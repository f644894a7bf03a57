//! The options and the report of a garbage collection.

use std::time::Duration;

use crate::error::Error;
use crate::protocol::{LeaseTerms, Retention};

/// The largest and default [`GcOptions::batch`].
pub(super) const MAX_BATCH: usize = 1000;
/// The longest time that a reader uses a row after reading it, and that a request to the store is under way.
pub(super) const READER_LAG: Duration = Duration::from_secs(600);

/// How many failures are described in a report.
pub(super) const MAX_FAILURES_DESCRIBED: usize = 10;

/// The options of a garbage collection.
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
    /// How many versions of a page are retained; `None` retains all.
    pub retention: Option<Retention>,
    /// How long orphaned bodies are stored before they are deleted; a day by default. It must be longer than a lease plus ten
    /// minutes.
    pub grace: Duration,
    /// Deletes nothing, and reports what would be deleted.
    pub dry_run: bool,
    /// The size in bytes of the filter that holds the names of live bodies: 16 MiB by default, enough for ten million bodies.
    /// A filter that is too small misses orphans, different ones in each run; with 16 MiB and a million bodies one in 10⁹.
    pub memory: usize,
    /// Where to continue an unfinished run: its [`GcReport::resume`](crate::GcReport::resume).
    pub resume: Option<String>,
    /// How many rows are read, bodies listed and bodies deleted at once: 1000 by default, which is the maximum.
    pub batch: usize,
    /// The pause between two batches, to limit the load on the stores; zero by default.
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
            batch: MAX_BATCH,
            pause: Duration::ZERO,
        }
    }
}

impl GcOptions {
    /// The shortest safe grace period with these lease terms: a lease plus ten minutes, by which readers and requests may be
    /// delayed.
    ///
    /// ```
    /// use facetheory::GcOptions;
    /// use facetheory::protocol::LeaseTerms;
    ///
    /// assert_eq!(GcOptions::shortest_grace(&LeaseTerms::default()).as_secs(), 608);
    /// ```
    #[must_use]
    pub fn shortest_grace(terms: &LeaseTerms) -> Duration {
        terms.term().saturating_add(terms.skew).saturating_add(READER_LAG)
    }

    pub(super) fn batch(&self) -> usize {
        self.batch.clamp(1, MAX_BATCH)
    }

    pub(super) async fn pause(&self) {
        if !self.pause.is_zero() {
            tokio::time::sleep(self.pause).await;
        }
    }
}

/// The progress and result of a garbage collection.
///
/// ```
/// let report = facetheory::GcReport::default();
/// assert_eq!((report.versions, report.orphans, report.bytes), (0, 0, 0));
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
    /// Bodies that were deleted because no row refers to them.
    pub orphans: u64,
    /// The size of those bodies, in bytes.
    pub bytes: u64,
    /// Bodies to which a row refers.
    pub named: u64,
    /// Bodies that were stored or replaced within the grace period.
    pub young: u64,
    /// Bodies of pages that are being rendered, or whose rows are damaged.
    pub protected: u64,
    /// Objects whose keys are not those of bodies. They are never deleted.
    pub foreign: u64,
    /// Rows whose S3 key cannot be read.
    pub damaged: u64,
    /// Files of incomplete bodies, which killed processes have left, and which were deleted.
    pub incomplete: u64,
    /// Expired rows that were deleted, if the table does not do so itself.
    pub expired: u64,
    /// Versions and bodies that could not be deleted.
    pub failed: u64,
    /// The first errors.
    pub failures: Vec<String>,
    /// Where another run can continue; `None` if it has to start over.
    pub resume: Option<String>,
    /// Whether the run is complete.
    pub finished: bool,
}

impl GcReport {
    pub(super) fn add_failures(&mut self, count: u64, error: &Error) {
        tracing::warn!(%error, count, "garbage collection could not delete something");
        self.failed += count;
        if self.failures.len() < MAX_FAILURES_DESCRIBED {
            let cause = std::error::Error::source(error).map(|cause| format!(": {cause}"));
            self.failures.push(format!("{error}{}", cause.unwrap_or_default()));
        }
    }
}
