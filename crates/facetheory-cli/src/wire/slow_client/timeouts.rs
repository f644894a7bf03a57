//! The timeouts of clients, measured by a coarse clock.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};
use std::time::Duration;

/// The time between two ticks. A timeout fires at most this much too late, and never too early.
pub(super) const TICK: Duration = Duration::from_millis(250);

/// How long the gateway waits for a client.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ClientTimeouts {
    /// For a whole request head, from its first byte on: the limit on slow headers (slowloris).
    pub(crate) head: Duration,
    /// For the next request, from the end of the last response on.
    pub(crate) idle: Duration,
    /// For more of a request body, from the last byte that arrived on.
    pub(crate) body: Duration,
    /// For the client to read more of a response, from the last time it read some on: the limit on slow readers.
    pub(crate) write: Duration,
}

/// The timeouts of a connection, and the clock that measures them in ticks.
#[derive(Clone, Debug)]
pub(in crate::wire) struct TimeoutClock {
    pub(in crate::wire) clock: Arc<AtomicU32>,
    pub(in crate::wire) timeouts: ClientTimeouts,
}

impl TimeoutClock {
    /// The current tick.
    pub(in crate::wire) fn now(&self) -> u32 {
        self.clock.load(Relaxed)
    }

    /// Whether a timeout that began in the tick `since` has passed. That tick does not count, since an unknown part of it
    /// was over already.
    pub(in crate::wire) fn is_past(&self, since: u32, timeout: Duration) -> bool {
        self.now().wrapping_sub(since).checked_sub(1).is_some_and(|ticks| TICK * ticks >= timeout)
    }
}

/// A duration in ticks, rounded up.
pub(super) fn ticks(duration: Duration) -> u32 {
    u32::try_from(duration.as_millis().div_ceil(TICK.as_millis())).unwrap_or(u32::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_timeout_never_fires_too_early() {
        let ticks = Arc::new(AtomicU32::new(7));
        let clock = TimeoutClock { clock: ticks.clone(), timeouts: ClientTimeouts::default() };
        let timeout = Duration::from_secs(1);
        // If the wait began at the end of tick 7, one second is over at the end of tick 11.
        ticks.store(11, Relaxed);
        assert!(!clock.is_past(7, timeout));
        assert!(clock.is_past(7, timeout - Duration::from_millis(250)));
        assert!(!clock.is_past(7, timeout - Duration::from_millis(249)));
        ticks.store(12, Relaxed);
        assert!(clock.is_past(7, timeout));
        assert!(!clock.is_past(12, Duration::ZERO), "the tick has just begun");
        assert!(!clock.is_past(0, Duration::MAX));
    }

    #[test]
    fn durations_are_rounded_up_and_bounded() {
        assert_eq!(ticks(Duration::from_millis(1)), 1);
        assert_eq!(ticks(Duration::from_secs(1)), 4);
        assert_eq!(ticks(Duration::MAX), u32::MAX);
    }
}
