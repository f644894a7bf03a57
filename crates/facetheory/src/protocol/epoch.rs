//! Tag epochs: one row per tag counts its invalidations, however many pages have the tag.

use std::time::Duration;

use crate::protocol::row::codec;

codec::row! {
    "TAG"
    /// The row of a tag: a page with the tag that has not [seen](crate::protocol::SeenEpochs) its current count is stale.
    ///
    /// Rows of other languages may have `invalidated_at` alone: then a page is stale that was generated at or before this time.
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
        /// When the tag was last invalidated, in epoch seconds. It never falls.
        pub invalidated_at: i64 = INVALIDATED_AT,
        /// How often the tag was invalidated since the row began to count.
        pub seq: Option<u64> = SEQ,
        /// A random number, chosen when the row begins to count: so no count occurs twice, even if another language has
        /// replaced the row, or it was deleted.
        pub seq_base: Option<u64> = SEQ_BASE,
        /// The `invalidated_at` that was written with a count. If it is another one, another language has written that.
        pub seq_at: Option<i64> = SEQ_AT,
        /// When the tag was last hard invalidated, in epoch seconds: from then on, no page may be served that was generated before.
        /// Another language may write a time that is still to come.
        pub expired_at: Option<i64> = EXPIRED_AT,
        /// The `seq` that the last hard invalidation has counted.
        pub expired_seq: Option<u64> = EXPIRED_SEQ,
        /// The `expired_at` that was written with this count. If it is another one, another language has written that.
        pub expired_seq_at: Option<i64> = EXPIRED_SEQ_AT,
    }
}

impl Epoch {
    /// The epoch of a tag that another language invalidated at this time, in epoch seconds.
    ///
    /// ```
    /// assert_eq!(facetheory::protocol::Epoch::at(1).invalidated_at, 1);
    /// ```
    #[must_use]
    pub fn at(invalidated_at: i64) -> Self {
        Epoch { invalidated_at, ..Epoch::default() }
    }

    /// The count of the invalidations of the tag, which is compared with the count that a page has seen. Zero if there is none.
    ///
    /// ```
    /// let mut epoch = facetheory::protocol::Epoch::at(1_700_000_000);
    /// assert_eq!(epoch.count(), 0);
    /// (epoch.seq, epoch.seq_base) = (Some(2), Some(1000));
    /// assert_eq!(epoch.count(), 1002);
    /// ```
    #[must_use]
    pub fn count(&self) -> u64 {
        self.seq.map_or(0, |seq| self.seq_base.unwrap_or(0).saturating_add(seq))
    }

    /// The [count](Epoch::count) of the last hard invalidation; `None` if none was counted.
    pub(crate) fn expired_count(&self) -> Option<u64> {
        self.seq?;
        self.expired_seq.map(|seq| self.seq_base.unwrap_or(0).saturating_add(seq))
    }

    /// Whether another language has written the time of the last hard invalidation, so that the count does not show it.
    pub(crate) fn has_uncounted_expiry(&self) -> bool {
        self.expired_count().is_none() || self.expired_seq_at != self.expired_at
    }

    /// Whether another language has written the time, so that the count does not show this invalidation.
    pub(crate) fn has_uncounted_time(&self) -> bool {
        self.seq.is_none() || self.seq_at != Some(self.invalidated_at)
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
    /// Where times are compared, a page that was generated at most this long after an invalidation is stale too, since clocks
    /// of hosts differ.
    pub skew: Duration,
}

impl Default for EpochTerms {
    fn default() -> Self {
        EpochTerms { max_age: Duration::from_secs(1), skew: Duration::from_secs(2) }
    }
}
