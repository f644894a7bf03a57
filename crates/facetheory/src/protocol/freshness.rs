//! Whether a page is fresh, stale, or must not be served: pure functions of rows and the time.

use std::time::Duration;

use tabletheory::Timestamp;

use crate::protocol::{Epoch, InvalidationMode, Lock, Meta, Tag};

/// Whether a page may be served at a given time.
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
    /// It may be served.
    Fresh,
    /// It may be served while it is regenerated.
    Stale,
    /// It must not be served.
    MustNotServe,
}

impl Meta {
    /// The freshness of the page without regard to its tags, which [`freshness_with`](Meta::freshness_with) considers.
    ///
    /// A page whose `generated_at` is further in the future than its interval is stale.
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
        // Clocks differ a little. A clock that is further ahead than the interval is wrong, or does not count in seconds, and
        // its pages would be fresh until all other clocks get there.
        let from_the_future = generated_at.saturating_sub(now) > interval;
        let fresh = now < generated_at.saturating_add(interval) && !from_the_future;
        if fresh { Freshness::Fresh } else { Freshness::Stale }
    }

    /// The freshness of the page, given all its tags with their epochs. A tag without an epoch row was never invalidated.
    ///
    /// The page is stale if one of its tags was invalidated since its render began: if the count of the tag is not the one that the
    /// [render saw](crate::protocol::Generation::epochs). If the page or the epoch has no count, times are compared: then the page is stale if it
    /// was generated at most `skew` after the invalidation, since the clocks of two hosts differ. If the tag was hard invalidated since
    /// then, the page must not be served. A soft invalidation of a tag does not affect a pinned page.
    ///
    /// ```
    /// use facetheory::Tag;
    /// use facetheory::protocol::{Epoch, Freshness, Generation, Meta, SeenEpochs};
    /// use std::time::Duration;
    /// use tabletheory::Timestamp;
    ///
    /// let mut meta = Meta::of(Generation::new("a.html", 1_700_000_000, 60));
    /// let (now, skew) = (Timestamp::from_seconds(1_700_000_010), Duration::from_secs(2));
    /// let mut epoch = Epoch::at(1_699_999_998);
    /// assert_eq!(meta.freshness_with(&[(Tag::everything(), Some(epoch))], now, skew), Freshness::Stale);
    ///
    /// (epoch.seq, epoch.seq_at) = (Some(5), Some(1_699_999_998));
    /// let mut seen = SeenEpochs::of_render_at(1_700_000_000);
    /// seen.insert(&Tag::everything(), 5);
    /// meta.generation.epochs = Some(seen);
    /// assert_eq!(meta.freshness_with(&[(Tag::everything(), Some(epoch))], now, skew), Freshness::Fresh);
    /// ```
    #[must_use]
    pub fn freshness_with(
        &self,
        epochs: &[(Tag, Option<Epoch>)],
        now: Timestamp,
        skew: Duration,
    ) -> Freshness {
        let own = self.freshness(now);
        let of_tag = |(tag, epoch): &(Tag, Option<Epoch>)| {
            self.generation.invalidation_by(tag, epoch.as_ref(), now, skew)
        };
        let mut modes = epochs.iter().filter_map(of_tag).peekable();
        let is_outdated = modes.peek().is_some() && !self.is_pinned(now);
        if modes.any(|mode| mode == InvalidationMode::Hard) {
            Freshness::MustNotServe
        } else if own == Freshness::Fresh && is_outdated {
            Freshness::Stale
        } else {
            own
        }
    }

    /// Whether one of these tags was invalidated since the render of the page began.
    pub(crate) fn is_outdated(&self, epochs: &[(Tag, Option<Epoch>)], skew: Duration) -> bool {
        epochs.iter().any(|(tag, epoch)| self.generation.is_outdated_by(tag, epoch.as_ref(), skew))
    }
}

impl Lock {
    /// Whether the lease is held now.
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
    fn a_page_that_must_not_be_served_is_not_served_however_fresh() {
        let mut page = meta(100, 60);
        page.must_not_serve = true;
        assert_eq!(page.freshness(Timestamp::from_seconds(100)), Freshness::MustNotServe);
    }

    #[test]
    fn a_pinned_page_is_fresh_in_spite_of_its_tags_until_the_pin_ends() {
        let mut page = meta(100, 60);
        page.pinned_until = Some(150);
        let epochs = [(Tag::everything(), Some(Epoch::at(120)))];
        let at = |now| page.freshness_with(&epochs, Timestamp::from_seconds(now), Duration::ZERO);
        assert_eq!(at(149), Freshness::Fresh);
        assert_eq!(at(150), Freshness::Stale);
    }

    #[test]
    fn a_hard_invalidation_that_another_language_wrote_applies_once_its_time_has_come() {
        let mut epoch = Epoch::at(120);
        epoch.expired_at = Some(150);
        let at = |generated_at: i64, now: i64| {
            let epochs = [(Tag::everything(), Some(epoch))];
            let page = meta(generated_at, 600);
            page.freshness_with(&epochs, Timestamp::from_seconds(now), Duration::from_secs(2))
        };
        assert_eq!(at(100, 149), Freshness::Stale, "it has not come");
        assert_eq!(at(100, 150), Freshness::MustNotServe);
        assert_eq!(at(122, 150), Freshness::MustNotServe, "within the skew");
        assert_eq!(at(123, 150), Freshness::Fresh, "it was rendered after the invalidation");
    }

    #[test]
    fn a_page_may_be_served_that_was_rendered_between_a_hard_and_a_soft_invalidation() {
        let mut epoch = Epoch::at(300);
        epoch.expired_at = Some(100);
        let at = |generated_at: i64| {
            let epochs = [(Tag::everything(), Some(epoch))];
            meta(generated_at, 600).freshness_with(&epochs, Timestamp::from_seconds(400), Duration::ZERO)
        };
        assert_eq!(
            [at(100), at(200), at(301)],
            [Freshness::MustNotServe, Freshness::Stale, Freshness::Fresh]
        );
    }

    #[test]
    fn a_pin_ends_with_a_hard_invalidation_of_a_tag() {
        let mut page = meta(100, 60);
        page.pinned_until = Some(150);
        let mut epoch = Epoch::at(120);
        epoch.expired_at = Some(120);
        let epochs = [(Tag::everything(), Some(epoch))];
        let freshness = page.freshness_with(&epochs, Timestamp::from_seconds(130), Duration::ZERO);
        assert_eq!(freshness, Freshness::MustNotServe);
    }

    #[test]
    fn the_ttl_does_not_affect_freshness() {
        let mut page = meta(100, 60);
        for ttl in [None, Some(0), Some(i64::MAX)] {
            page.ttl = ttl;
            assert_eq!(page.freshness(Timestamp::from_seconds(159)), Freshness::Fresh);
            assert_eq!(page.freshness(Timestamp::from_seconds(160)), Freshness::Stale);
        }
    }

    proptest! {
        #[test]
        fn times_and_intervals_do_not_overflow(generated_at: i64, interval in 0..=i64::MAX, now: i64, epoch: i64) {
            let page = meta(generated_at, interval);
            let now = Timestamp::from_seconds(now);
            let _ = page.freshness_with(&[(Tag::everything(), Some(Epoch::at(epoch)))], now, Duration::MAX);
            // A wrong clock never makes a page fresh for longer than twice its interval from now.
            if page.freshness(now) == Freshness::Fresh && interval < 1 << 40 {
                let interval = Duration::from_secs(interval.unsigned_abs());
                let most = if generated_at <= now.seconds() { interval } else { 2 * interval };
                prop_assert_eq!(page.freshness(now + most), Freshness::Stale);
            }
        }
    }
}
