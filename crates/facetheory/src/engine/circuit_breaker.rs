//! A circuit breaker for a store: while it is unreachable, about one request per second tries it.

use std::time::Duration;

use parking_lot::Mutex;
use tabletheory::{Backoff, Random, Timestamp};

/// The longest delay is short, so that a store that is back is noticed soon.
const BACKOFF: Backoff = Backoff::new(Duration::from_millis(100), Duration::from_secs(1));

/// Whether a store may be called.
#[derive(Debug, Default)]
pub(super) struct CircuitBreaker {
    state: Mutex<Circuit>,
}

#[derive(Clone, Copy, Debug, Default)]
enum Circuit {
    /// The store responds.
    #[default]
    Closed,
    /// The store failed this many times in a row, and is not called before that time.
    Open { failures: u32, retry_at: Timestamp },
}

impl CircuitBreaker {
    /// Whether the store may be called now. While the circuit is open, one request may try the store after each backoff;
    /// the others get `false` until it has reported its result, but for no longer than a second.
    pub(super) fn allows_call(&self, now: Timestamp) -> bool {
        let mut state = self.state.lock();
        let Circuit::Open { failures, retry_at } = *state else { return true };
        // A clock that was set back must not prolong the wait.
        if now < retry_at && retry_at <= now + BACKOFF.longest() {
            return false;
        }
        *state = Circuit::Open { failures, retry_at: now + BACKOFF.longest() };
        true
    }

    pub(super) fn record_success(&self) {
        *self.state.lock() = Circuit::Closed;
    }

    pub(super) fn record_failure(&self, now: Timestamp, random: &dyn Random) {
        let mut state = self.state.lock();
        let failures = if let Circuit::Open { failures, .. } = *state { failures } else { 0 };
        let delay = BACKOFF.delay(failures, random).max(Duration::from_millis(1));
        *state = Circuit::Open { failures: failures.saturating_add(1), retry_at: now + delay };
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tabletheory::SeededRandom;

    fn at(millis: i64) -> Timestamp {
        Timestamp::from_millis(1_700_000_000_000 + millis)
    }

    #[test]
    fn while_the_circuit_is_open_one_request_per_second_tries_the_store() {
        let (breaker, random) = (CircuitBreaker::default(), SeededRandom::new(1));
        assert!(breaker.allows_call(at(0)) && breaker.allows_call(at(0)));
        breaker.record_failure(at(0), &random);
        assert!(!breaker.allows_call(at(10)));
        assert!(breaker.allows_call(at(1000)), "one request tries");
        assert!(!breaker.allows_call(at(1999)), "the others wait for its result");
        assert!(breaker.allows_call(at(2000)), "but for no longer than a second");
        breaker.record_success();
        assert!(breaker.allows_call(at(2001)) && breaker.allows_call(at(2001)));
    }

    #[test]
    fn the_store_is_tried_again_within_a_second_however_often_it_failed() {
        let (breaker, random) = (CircuitBreaker::default(), SeededRandom::new(1));
        for failure in 0..100 {
            breaker.record_failure(at(failure * 10_000), &random);
            assert!(breaker.allows_call(at(failure * 10_000 + 1000)));
        }
    }

    #[test]
    fn a_clock_that_was_set_back_does_not_prolong_the_wait() {
        let (breaker, random) = (CircuitBreaker::default(), SeededRandom::new(1));
        breaker.record_failure(at(0), &random);
        assert!(breaker.allows_call(at(-3_600_000)));
    }
}
