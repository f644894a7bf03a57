//! The report of a garbage collection.

use crate::error::Error;

/// How many failures are described in a report.
pub(super) const MAX_FAILURES_DESCRIBED: usize = 10;

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
