//! The circuit breaker of the origin: while it is unreachable, requests fail at once instead of waiting for it.

use std::time::Duration;

use parking_lot::Mutex;
use tabletheory::Backoff;
use tokio::time::Instant;

/// After so many failed connection attempts in a row, the origin counts as down.
const MAX_FAILURES: u32 = 3;
/// The time between two attempts while the origin is down.
const BACKOFF: Backoff = Backoff::new(Duration::from_secs(1), Duration::from_secs(15));

/// Whether the origin is reachable. Any response counts as reachable, whatever its status.
#[derive(Debug, Default)]
pub(crate) struct Health {
    failing: Mutex<Option<Failing>>,
}

#[derive(Clone, Copy, Debug)]
struct Failing {
    failures: u32,
    /// When the next attempt is allowed, once the origin counts as down.
    retry_at: Instant,
}

impl Failing {
    fn after(failures: u32, now: Instant) -> Self {
        let retry = failures.saturating_sub(MAX_FAILURES);
        Failing { failures, retry_at: now + BACKOFF.delay_without_jitter(retry) }
    }

    fn is_down(&self) -> bool {
        self.failures >= MAX_FAILURES
    }
}

impl Health {
    /// Whether a request may be sent now. While the origin is down, one request per backoff delay tests it.
    pub(crate) fn allows_request(&self, now: Instant) -> bool {
        let mut failing = self.failing.lock();
        let Some(known) = failing.as_mut().filter(|known| known.is_down()) else { return true };
        let is_allowed = known.retry_at <= now;
        if is_allowed {
            *known = Failing::after(known.failures, now);
        }
        is_allowed
    }

    /// Whether the origin counts as down.
    pub(crate) fn is_down(&self) -> bool {
        self.failing.lock().is_some_and(|known| known.is_down())
    }

    /// A connection attempt succeeded.
    pub(crate) fn reachable(&self) {
        if self.failing.lock().take().is_some_and(|known| known.is_down()) {
            tracing::info!("the origin is reachable again");
        }
    }

    /// A connection attempt failed.
    pub(crate) fn unreachable(&self, now: Instant) {
        let mut failing = self.failing.lock();
        let failures = failing.map_or(0, |known| known.failures).saturating_add(1);
        *failing = Some(Failing::after(failures, now));
        if failures == MAX_FAILURES {
            tracing::warn!(failures, "the origin is unreachable; requests to it fail until it is back");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const FIRST_DELAY: Duration = Duration::from_secs(1);

    #[tokio::test(start_paused = true)]
    async fn while_the_origin_is_down_one_request_per_delay_tests_it() {
        let (health, now) = (Health::default(), Instant::now());
        for _ in 0..MAX_FAILURES {
            assert!(health.allows_request(now));
            health.unreachable(now);
        }
        assert!(!health.allows_request(now));
        let later = now + FIRST_DELAY;
        assert!(health.allows_request(later), "one request tests the origin");
        assert!(!health.allows_request(later), "no other request until the delay is over");
        health.unreachable(later);
        assert!(!health.allows_request(later + FIRST_DELAY), "the second delay is longer");
        health.reachable();
        assert!(health.allows_request(later));
    }

    #[tokio::test(start_paused = true)]
    async fn one_failure_does_not_make_the_origin_count_as_down() {
        let (health, now) = (Health::default(), Instant::now());
        health.unreachable(now);
        assert!(health.allows_request(now) && !health.is_down());
    }

    #[test]
    fn delays_double_up_to_a_limit() {
        let now = Instant::now();
        let delay = |failures| (Failing::after(failures, now).retry_at - now).as_secs();
        assert_eq!([3, 4, 5, u32::MAX].map(delay), [1, 2, 4, 15]);
    }
}
