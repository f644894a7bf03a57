//! Whether a page may be served, and whether it should be renewed: pure functions of rows and the time.

use std::time::Duration;

use tabletheory::Timestamp;

use crate::protocol::epoch::Epoch;
use crate::protocol::row::{Lock, Meta};
use crate::protocol::ttl::seconds;

/// What a page is good for at a moment.
///
/// ```
/// use facetheory::protocol::{Freshness, Generation, Meta};
/// use tabletheory::Timestamp;
///
/// let meta = Meta::of(Generation::new("a.html", 1_700_000_000, 60));
/// assert_eq!(meta.freshness(Timestamp::from_seconds(1_700_000_059)), Freshness::Fresh);
/// assert_eq!(meta.freshness(Timestamp::from_seconds(1_700_000_060)), Freshness::Stale);
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Freshness {
    /// Serve it.
    Fresh,
    /// It may be served while it is renewed.
    Stale,
    /// It may not be served any more.
    MustNotServe,
}

impl Meta {
    /// What it is good for now, by itself: tags are looked at by [`freshness_with`](Meta::freshness_with).
    ///
    /// A `generated_at` that is further ahead than the interval never makes it fresh.
    ///
    /// ```
    /// use facetheory::protocol::{Freshness, Generation, Meta};
    /// use tabletheory::Timestamp;
    ///
    /// let ahead = Meta::of(Generation::new("a.html", 2_000_000_000, 60));
    /// assert_eq!(ahead.freshness(Timestamp::from_seconds(1_700_000_000)), Freshness::Stale);
    /// ```
    #[must_use]
    pub fn freshness(&self, now: Timestamp) -> Freshness {
        if self.must_not_serve {
            return Freshness::MustNotServe;
        }
        let now = now.seconds();
        let (generated_at, interval) = (self.generation.generated_at, self.generation.revalidate_seconds);
        // Clocks differ a little. One that is further ahead than the interval is wrong, or does not count in seconds,
        // and what it has rendered would be fresh until everyone gets there.
        let from_the_future = generated_at.saturating_sub(now) > interval;
        let fresh = now < generated_at.saturating_add(interval) && !from_the_future;
        if fresh { Freshness::Fresh } else { Freshness::Stale }
    }

    /// What it is good for now, given the epochs of all its tags.
    ///
    /// It is stale if it was generated before any of them, or so shortly after that the clocks of two hosts may
    /// disagree about it. A pinned page is left alone.
    ///
    /// ```
    /// use facetheory::protocol::{Epoch, Freshness, Generation, Meta};
    /// use std::time::Duration;
    /// use tabletheory::Timestamp;
    ///
    /// let meta = Meta::of(Generation::new("a.html", 1_700_000_000, 60));
    /// let (now, skew) = (Timestamp::from_seconds(1_700_000_010), Duration::from_secs(2));
    /// let epoch = |invalidated_at| [Epoch::at(invalidated_at)];
    /// assert_eq!(meta.freshness_with(&epoch(1_699_999_997), now, skew), Freshness::Fresh);
    /// assert_eq!(meta.freshness_with(&epoch(1_699_999_998), now, skew), Freshness::Stale);
    /// ```
    #[must_use]
    pub fn freshness_with(&self, epochs: &[Epoch], now: Timestamp, skew: Duration) -> Freshness {
        let own = self.freshness(now);
        let outdated = self.is_outdated(epochs, skew) && !self.is_pinned(now);
        if own == Freshness::Fresh && outdated { Freshness::Stale } else { own }
    }

    /// Whether it was generated before any of these epochs, or so shortly after that clocks may disagree about it.
    pub(crate) fn is_outdated(&self, epochs: &[Epoch], skew: Duration) -> bool {
        let skew = seconds(skew);
        let mut until = epochs.iter().map(|epoch| epoch.invalidated_at.saturating_add(skew));
        until.any(|until| self.generation.generated_at <= until)
    }
}

impl Lock {
    /// Whether somebody holds it now.
    ///
    /// ```
    /// use facetheory::protocol::Lock;
    /// use tabletheory::Timestamp;
    ///
    /// let lock = Lock::new("t", 100);
    /// assert!(lock.is_held(Timestamp::from_seconds(99)));
    /// assert!(!lock.is_held(Timestamp::from_seconds(100)));
    /// ```
    #[must_use]
    pub fn is_held(&self, now: Timestamp) -> bool {
        self.lease_expires_at > now.seconds()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::protocol::generation::Generation;
    use proptest::prelude::*;

    fn meta(generated_at: i64, revalidate_seconds: i64) -> Meta {
        Meta::of(Generation::new("a.html", generated_at, revalidate_seconds))
    }

    #[test]
    fn what_must_not_be_served_is_not_however_fresh() {
        let mut page = meta(100, 60);
        page.must_not_serve = true;
        assert_eq!(page.freshness(Timestamp::from_seconds(100)), Freshness::MustNotServe);
    }

    #[test]
    fn a_pinned_page_outlives_its_tags_but_not_its_pin() {
        let mut page = meta(100, 60);
        page.pinned_until = Some(150);
        let epochs = [Epoch { invalidated_at: 120 }];
        let at = |now| page.freshness_with(&epochs, Timestamp::from_seconds(now), Duration::ZERO);
        assert_eq!(at(149), Freshness::Fresh);
        assert_eq!(at(150), Freshness::Stale);
    }

    #[test]
    fn the_time_to_live_decides_nothing() {
        let mut page = meta(100, 60);
        for ttl in [None, Some(0), Some(i64::MAX)] {
            page.ttl = ttl;
            assert_eq!(page.freshness(Timestamp::from_seconds(159)), Freshness::Fresh);
            assert_eq!(page.freshness(Timestamp::from_seconds(160)), Freshness::Stale);
        }
    }

    proptest! {
        #[test]
        fn no_time_and_no_interval_overflow(generated_at: i64, interval in 0..=i64::MAX, now: i64, epoch: i64) {
            let page = meta(generated_at, interval);
            let now = Timestamp::from_seconds(now);
            let _ = page.freshness_with(&[Epoch { invalidated_at: epoch }], now, Duration::MAX);
            // Clocks that are wrong never make a page fresh for longer than twice its interval from now.
            if page.freshness(now) == Freshness::Fresh && interval < 1 << 40 {
                let interval = Duration::from_secs(interval.unsigned_abs());
                let most = if generated_at <= now.seconds() { interval } else { 2 * interval };
                prop_assert_eq!(page.freshness(now + most), Freshness::Stale);
            }
        }
    }
}
