//! A point in time by two clocks, since neither is enough to measure how old something is.

use std::time::Duration;

use tabletheory::Timestamp;
use tokio::time::Instant;

/// A point in time by the wall clock, which may be set, and by the monotonic clock, which nobody can set, but which may stand
/// still while a machine is suspended.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Moment {
    pub(crate) wall: Timestamp,
    pub(crate) monotonic: Instant,
}

impl Moment {
    /// This time by the wall clock, and now by the other one.
    pub(crate) fn now(wall: Timestamp) -> Self {
        Moment { wall, monotonic: Instant::now() }
    }

    /// Whether less than `max_age` has passed since then by both clocks. If the wall clock was set back since, that is unknown.
    ///
    /// The monotonic clock is read only if the wall clock leaves the question open: hits call this.
    pub(crate) fn is_recent(self, now: Timestamp, max_age: Duration) -> bool {
        let is_recent = self.wall <= now && now < self.wall + max_age;
        is_recent && (max_age == Duration::MAX || self.monotonic.elapsed() < max_age)
    }

    /// Whether this moment is less than `max_age` after an earlier one by both clocks, or before it.
    pub(crate) fn is_within(self, earlier: Moment, max_age: Duration) -> bool {
        let passed = self.monotonic.saturating_duration_since(earlier.monotonic);
        self.wall < earlier.wall + max_age && passed < max_age
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const AT: Timestamp = Timestamp::from_seconds(1_700_000_000);
    const SECOND: Duration = Duration::from_secs(1);

    #[tokio::test(start_paused = true)]
    async fn a_moment_is_recent_only_by_both_clocks() {
        let moment = Moment::now(AT);
        assert!(moment.is_recent(AT, SECOND));
        assert!(
            !moment.is_recent(AT + SECOND, SECOND),
            "the machine was suspended, or the clock was set forward"
        );
        assert!(!moment.is_recent(AT - SECOND, SECOND), "the clock was set back");
        tokio::time::advance(SECOND).await;
        assert!(!moment.is_recent(AT, SECOND), "the clock was set back by as much as has passed");
    }
}
