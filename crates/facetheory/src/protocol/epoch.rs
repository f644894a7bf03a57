//! Tag epochs: one row per tag says when it was last invalidated, however many pages have the tag.

use std::time::Duration;

use crate::protocol::row::codec;

codec::row! {
    "TAG"
    /// The row of a tag: every page with the tag that was generated at or before this time is stale.
    ///
    /// ```
    /// use facetheory::protocol::Epoch;
    ///
    /// let epoch = Epoch::at(1_700_000_000);
    /// assert_eq!(Epoch::read(&epoch.to_item())?, epoch);
    /// # Ok::<(), facetheory::Error>(())
    /// ```
    #[derive(Copy)]
    pub struct Epoch {
        /// When the tag was last invalidated, in epoch seconds.
        pub invalidated_at: i64 = INVALIDATED_AT,
    }
}

impl Epoch {
    /// The epoch of a tag that was last invalidated at this time, in epoch seconds.
    ///
    /// ```
    /// assert_eq!(facetheory::protocol::Epoch::at(1).invalidated_at, 1);
    /// ```
    #[must_use]
    pub fn at(invalidated_at: i64) -> Self {
        Epoch { invalidated_at }
    }
}

/// How a process caches tag epochs, and how much clocks may differ.
///
/// ```
/// let terms = facetheory::protocol::EpochTerms::default();
/// assert_eq!((terms.max_age.as_secs(), terms.skew.as_secs()), (1, 2));
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct EpochTerms {
    /// How long an epoch that was read is used before it is read again; zero reads it every time.
    pub max_age: Duration,
    /// A page that was generated at most this long after an invalidation is stale too, since clocks of hosts differ.
    pub skew: Duration,
}

impl Default for EpochTerms {
    fn default() -> Self {
        EpochTerms { max_age: Duration::from_secs(1), skew: Duration::from_secs(2) }
    }
}
