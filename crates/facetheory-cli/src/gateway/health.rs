//! Whether the origin can be reached: one that cannot is left alone for a while, instead of making every visitor wait.

use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use tokio::time::Instant;

/// So many attempts in a row must fail before the origin counts as down.
const FAILURES: u32 = 3;
/// For how long it is left alone at first; this doubles with each failed attempt.
const FIRST_PAUSE: Duration = Duration::from_secs(1);
/// For how long it is left alone at most.
const LONGEST_PAUSE: Duration = Duration::from_secs(15);

/// What is known of the origin's health. Only whether it can be reached counts: an answer is a sign of life, whatever it says.
#[derive(Debug, Default)]
pub(crate) struct Health {
    failing: Mutex<Option<Failing>>,
}

#[derive(Clone, Copy, Debug)]
struct Failing {
    failures: u32,
    /// Until then nobody tries, once the origin counts as down.
    until: Instant,
}

impl Health {
    /// Whether the origin may be asked now. Of an origin that is down, one request at a time finds out how it is.
    pub(crate) fn admits(&self, now: Instant) -> bool {
        let mut failing = self.lock();
        match failing.as_mut() {
            Some(known) if known.failures >= FAILURES => {
                let may = known.until <= now;
                if may {
                    known.until = now + pause(known.failures);
                }
                may
            }
            _ => true,
        }
    }

    /// Whether the origin counts as down.
    pub(crate) fn is_down(&self) -> bool {
        self.lock().is_some_and(|known| known.failures >= FAILURES)
    }

    /// It could be reached.
    pub(crate) fn reached(&self) {
        let mut failing = self.lock();
        if failing.take().is_some_and(|known| known.failures >= FAILURES) {
            tracing::info!("the origin can be reached again");
        }
    }

    /// It could not be reached.
    pub(crate) fn unreachable(&self, now: Instant) {
        let mut failing = self.lock();
        let failures = failing.map_or(0, |known| known.failures).saturating_add(1);
        *failing = Some(Failing { failures, until: now + pause(failures) });
        if failures == FAILURES {
            tracing::warn!(failures, "the origin cannot be reached; it is asked now and then only");
        }
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Option<Failing>> {
        self.failing.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn pause(failures: u32) -> Duration {
    let doubled = FIRST_PAUSE.saturating_mul(1 << failures.saturating_sub(FAILURES).min(8));
    doubled.min(LONGEST_PAUSE)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn an_origin_that_is_down_is_asked_now_and_then_only() {
        let (health, now) = (Health::default(), Instant::now());
        for _ in 0..FAILURES {
            assert!(health.admits(now));
            health.unreachable(now);
        }
        assert!(!health.admits(now));
        let later = now + FIRST_PAUSE;
        assert!(health.admits(later), "somebody has to find out");
        assert!(!health.admits(later), "and nobody else meanwhile");
        health.unreachable(later);
        assert!(!health.admits(later + FIRST_PAUSE), "the second pause is longer");
        health.reached();
        assert!(health.admits(later));
    }

    #[tokio::test(start_paused = true)]
    async fn a_single_failure_says_little() {
        let (health, now) = (Health::default(), Instant::now());
        health.unreachable(now);
        assert!(health.admits(now));
    }

    #[test]
    fn pauses_grow_up_to_a_limit() {
        assert_eq!([pause(3), pause(4), pause(5)].map(|pause| pause.as_secs()), [1, 2, 4]);
        assert_eq!(pause(u32::MAX), LONGEST_PAUSE);
    }
}
