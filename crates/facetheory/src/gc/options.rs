//! The options of a garbage collection.

use std::time::Duration;

use crate::protocol::{LeaseTerms, Retention};

/// The largest and default [`GcOptions::batch`].
pub(super) const MAX_BATCH: usize = 1000;
/// The longest time that a reader uses a row after reading it, and that a request to the store is under way.
pub(super) const READER_LAG: Duration = Duration::from_secs(600);

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
    /// assert_eq!(GcOptions::shortest_grace(&LeaseTerms::default()).as_secs(), 630);
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
