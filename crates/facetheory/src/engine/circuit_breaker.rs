//! A circuit breaker for a store: while it is unreachable, about one request per second tries it.

use std::time::Duration;

use parking_lot::Mutex;
use tabletheory::{Backoff, Random, Timestamp};

use super::FailedStore;

/// The longest delay is short, so that a store that is back is noticed soon.
const BACKOFF: Backoff = Backoff::new(Duration::from_millis(100), Duration::from_secs(1));

/// How long after its last failure a store that nobody has tried since does not count as failing any more.
const FORGOTTEN_AFTER: Duration = Duration::from_secs(10);

/// Whether a store may be called.
#[derive(Debug, Default)]
pub(super) struct CircuitBreaker {
    state: Mutex<Circuit>,
}

/// Whether a call of a store is allowed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Permit {
    Granted,
    /// The store failed a moment ago, and this call tries it again.
    Trial,
    Denied,
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
    /// Whether the store may be called now. While the circuit is open, one call is allowed after each backoff. All other
    /// calls are denied until this call has reported success or failure. If it has reported neither within a second, another
    /// one is allowed.
    pub(super) fn allows_call(&self, now: Timestamp) -> bool {
        self.permit(now) != Permit::Denied
    }

    /// Like [`allows_call`](Self::allows_call), and tells a trial from a usual call.
    pub(super) fn permit(&self, now: Timestamp) -> Permit {
        let mut state = self.state.lock();
        let Circuit::Open { failures, retry_at } = *state else { return Permit::Granted };
        // A clock that was set back must not prolong the wait.
        if now < retry_at && retry_at <= now + BACKOFF.longest() {
            return Permit::Denied;
        }
        *state = Circuit::Open { failures, retry_at: now + BACKOFF.longest() };
        // Nobody has tried for a while, so the store is most likely back.
        if retry_at + FORGOTTEN_AFTER <= now { Permit::Granted } else { Permit::Trial }
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

/// Whether pages can be published: both stores have to accept writes. Reads may succeed meanwhile.
#[derive(Debug, Default)]
pub(super) struct WriteBreakers {
    table: CircuitBreaker,
    bodies: CircuitBreaker,
}

impl WriteBreakers {
    /// Returns the store that must not be written now, because it failed a moment ago; `None` if a page may be published.
    pub(super) fn blocked(&self, now: Timestamp) -> Option<FailedStore> {
        if !self.bodies.allows_call(now) {
            return Some(FailedStore::Bodies);
        }
        (!self.table.allows_call(now)).then_some(FailedStore::Table)
    }

    /// Records that a page was published. Only if its body was stored as well is it known that the bodies accept writes.
    pub(super) fn record_published(&self, stored_body: bool) {
        self.table.record_success();
        if stored_body {
            self.bodies.record_success();
        }
    }

    pub(super) fn record_failure(&self, store: FailedStore, now: Timestamp, random: &dyn Random) {
        match store {
            FailedStore::Table => self.table.record_failure(now, random),
            FailedStore::Bodies => self.bodies.record_failure(now, random),
        }
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
    fn a_failure_of_long_ago_does_not_make_a_call_a_trial() {
        let (breaker, random) = (CircuitBreaker::default(), SeededRandom::new(1));
        breaker.record_failure(at(0), &random);
        assert_eq!(breaker.permit(at(1000)), Permit::Trial);
        breaker.record_failure(at(1000), &random);
        assert_eq!(breaker.permit(at(60_000)), Permit::Granted);
        assert_eq!(breaker.permit(at(60_001)), Permit::Denied, "until it has reported its result");
    }

    #[test]
    fn a_page_that_was_published_without_a_body_does_not_show_that_bodies_can_be_stored() {
        let (breakers, random) = (WriteBreakers::default(), SeededRandom::new(1));
        for store in [FailedStore::Bodies, FailedStore::Table] {
            breakers.record_failure(store, at(0), &random);
        }
        breakers.record_published(false);
        assert_eq!(breakers.blocked(at(0)), Some(FailedStore::Bodies));
        breakers.record_published(true);
        assert_eq!(breakers.blocked(at(0)), None);
    }

    #[test]
    fn a_clock_that_was_set_back_does_not_prolong_the_wait() {
        let (breaker, random) = (CircuitBreaker::default(), SeededRandom::new(1));
        breaker.record_failure(at(0), &random);
        assert!(breaker.allows_call(at(-3_600_000)));
    }
}
