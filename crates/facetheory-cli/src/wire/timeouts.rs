//! For how long a client is waited for, in ticks of a coarse clock.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};
use std::time::Duration;

/// How far apart ticks are. A deadline is met this much too late at most, and never too early.
pub(crate) const TICK: Duration = Duration::from_millis(250);

/// For how long a client is waited for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ClientTimeouts {
    /// For a head, from its first byte on.
    pub(crate) head: Duration,
    /// For the next request, from the end of the last answer on.
    pub(crate) idle: Duration,
    /// For more of a body, from the last moment at which there was some.
    pub(crate) body: Duration,
    /// For room to write, from the last moment at which there was some.
    pub(crate) write: Duration,
}

impl Default for ClientTimeouts {
    fn default() -> Self {
        let seconds = Duration::from_secs;
        ClientTimeouts { head: seconds(15), idle: seconds(60), body: seconds(30), write: seconds(30) }
    }
}

/// What a client should have sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Overdue {
    Head,
    Body,
    /// The next request, or the first.
    Request,
}

/// The same in ticks, with the clock.
#[derive(Clone, Debug)]
pub(super) struct TimeoutTicks {
    clock: Arc<AtomicU32>,
    pub(super) head: u32,
    pub(super) idle: u32,
    pub(super) body: u32,
    pub(super) write: u32,
}

impl TimeoutTicks {
    /// What is waited for on this clock.
    pub(super) fn new(clock: Arc<AtomicU32>, timeouts: &ClientTimeouts) -> Self {
        let ClientTimeouts { head, idle, body, write } = timeouts;
        let [head, idle, body, write] = [head, idle, body, write].map(|time| ticks(*time));
        TimeoutTicks { clock, head, idle, body, write }
    }

    /// The tick that it is.
    pub(super) fn now(&self) -> u32 {
        self.clock.load(Relaxed)
    }

    /// Whether more than a limit has passed since a tick, which may have been about to end.
    pub(super) fn is_past(&self, since: u32, limit: u32) -> bool {
        self.now().wrapping_sub(since) > limit
    }
}

/// A time in ticks, rounded up.
pub(super) fn ticks(time: Duration) -> u32 {
    u32::try_from(time.as_millis().div_ceil(TICK.as_millis())).unwrap_or(u32::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_deadline_is_never_met_too_early() {
        let clock = Arc::new(AtomicU32::new(7));
        let timeouts = ClientTimeouts { head: Duration::from_secs(1), ..ClientTimeouts::default() };
        let terms = TimeoutTicks::new(clock.clone(), &timeouts);
        // What began at the end of tick 7 may go on for a second: to the end of tick 11.
        clock.store(11, Relaxed);
        assert!(!terms.is_past(7, terms.head));
        clock.store(12, Relaxed);
        assert!(terms.is_past(7, terms.head));
    }

    #[test]
    fn times_are_rounded_up_and_bounded() {
        assert_eq!(ticks(Duration::from_millis(1)), 1);
        assert_eq!(ticks(Duration::from_secs(1)), 4);
        assert_eq!(ticks(Duration::MAX), u32::MAX);
    }
}
