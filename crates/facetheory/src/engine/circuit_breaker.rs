//! Outages of a store: while it cannot be reached, it is asked now and then, and not by every visitor.

use std::sync::atomic::{AtomicI64, AtomicU32, Ordering};
use std::time::Duration;

use tabletheory::{Random, Timestamp};

/// The store is left alone for this long after the first failure; this doubles with each further one.
const FIRST: Duration = Duration::from_millis(100);
/// But never for longer than this, so that its return is noticed soon.
const LONGEST: Duration = Duration::from_secs(1);

/// Whether a store can be reached, as far as is known.
#[derive(Debug, Default)]
pub(super) struct CircuitBreaker {
    /// Until when it is not asked, in milliseconds; 0 while it answers.
    until: AtomicI64,
    failures: AtomicU32,
}

impl CircuitBreaker {
    /// Whether the store may be asked now. During an outage one visitor at a time finds out whether it is over.
    pub(super) fn lets_ask(&self, now: Timestamp) -> bool {
        let until = self.until.load(Ordering::Acquire);
        if until == 0 {
            return true;
        }
        // A clock that was set back must not prolong an outage.
        let left = until - now.millis();
        if left > 0 && left <= millis(LONGEST) {
            return false;
        }
        let later = now.millis() + millis(LONGEST);
        self.until.compare_exchange(until, later, Ordering::AcqRel, Ordering::Acquire).is_ok()
    }

    pub(super) fn ended(&self) {
        if self.until.load(Ordering::Acquire) != 0 {
            self.until.store(0, Ordering::Release);
            self.failures.store(0, Ordering::Release);
        }
    }

    pub(super) fn failed(&self, now: Timestamp, random: &dyn Random) {
        const MOST_DOUBLINGS: u32 = 10;
        let failures = self.failures.fetch_add(1, Ordering::AcqRel).min(MOST_DOUBLINGS);
        let pause = (FIRST * 2_u32.pow(failures)).min(LONGEST);
        // Processes that lost the store together must not come back together.
        let pause = pause.mul_f64(0.5 + random.fraction() / 2.0);
        self.until.store(now.millis() + millis(pause).max(1), Ordering::Release);
    }
}

fn millis(duration: Duration) -> i64 {
    i64::try_from(duration.as_millis()).unwrap_or(i64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;
    use tabletheory::SeededRandom;

    fn at(millis: i64) -> Timestamp {
        Timestamp::from_millis(1_700_000_000_000 + millis)
    }

    #[test]
    fn during_an_outage_one_visitor_at_a_time_asks() {
        let (outage, random) = (CircuitBreaker::default(), SeededRandom::new(1));
        assert!(outage.lets_ask(at(0)) && outage.lets_ask(at(0)));
        outage.failed(at(0), &random);
        assert!(!outage.lets_ask(at(10)));
        assert!(outage.lets_ask(at(1000)), "one finds out");
        assert!(!outage.lets_ask(at(1001)), "the others wait for what it finds");
        outage.ended();
        assert!(outage.lets_ask(at(1002)) && outage.lets_ask(at(1002)));
    }

    #[test]
    fn the_table_is_asked_again_within_a_second_however_often_it_failed() {
        let (outage, random) = (CircuitBreaker::default(), SeededRandom::new(1));
        for failure in 0..100 {
            outage.failed(at(failure * 10_000), &random);
            assert!(outage.lets_ask(at(failure * 10_000 + 1000)));
        }
    }

    #[test]
    fn a_clock_that_was_set_back_does_not_prolong_an_outage() {
        let (outage, random) = (CircuitBreaker::default(), SeededRandom::new(1));
        outage.failed(at(0), &random);
        assert!(outage.lets_ask(at(-3_600_000)));
    }
}
