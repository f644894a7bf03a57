//! The timeouts of HTTP/1 connections, measured by one coarse clock for all of them.

use std::collections::HashMap;
use std::ops::Deref;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering::Relaxed};
use std::task::{Context, Waker};
use std::time::Duration;

use parking_lot::Mutex;
use tokio::time::{Instant, MissedTickBehavior, interval};

use super::MinRate;
use crate::wire::connection_state::ConnectionState;
use crate::wire::rejection::RequestLimits;
use crate::wire::stream::CheckedStream;

/// The open HTTP/1 connections, and the coarse clock that times them.
///
/// A timer for each request would cost more than all checks of the request together. With the ticker a request costs a
/// few relaxed stores, and four times a second all connections are checked.
#[derive(Debug, Default)]
pub(crate) struct DeadlineTicker {
    clock: Arc<AtomicU32>,
    next_id: AtomicU64,
    connections: Mutex<HashMap<u64, Arc<ConnectionState>>>,
}

impl DeadlineTicker {
    /// A ticker without connections. Its clock stands still until [`run`](DeadlineTicker::run) is polled.
    pub(crate) fn new() -> Arc<Self> {
        Arc::default()
    }

    /// Wraps a connection, and applies the timeouts to it until the returned stream is dropped.
    pub(crate) fn register<IO>(
        self: &Arc<Self>,
        io: IO,
        limits: RequestLimits,
        timeouts: &ClientTimeouts,
    ) -> CheckedStream<IO> {
        let clock = TimeoutClock { clock: self.clock.clone(), timeouts: *timeouts };
        let state = Arc::new(ConnectionState::new(clock));
        let id = self.next_id.fetch_add(1, Relaxed);
        self.connections.lock().insert(id, state.clone());
        CheckedStream::new(io, limits, RegisteredConnection { ticker: self.clone(), id, state, waker: None })
    }

    /// The number of open connections.
    #[cfg(test)]
    pub(crate) fn connections(&self) -> usize {
        self.connections.lock().len()
    }

    /// Runs the clock for as long as it is polled, and wakes connections whose deadline has passed.
    pub(crate) async fn run(&self) {
        let start = Instant::now();
        let mut ticker = interval(TICK);
        ticker.set_missed_tick_behavior(MissedTickBehavior::Skip);
        loop {
            ticker.tick().await;
            // Skipped ticks count too.
            self.clock.store(ticks(start.elapsed()), Relaxed);
            let is_late =
                |state: &&Arc<ConnectionState>| state.overdue().is_some() || state.is_write_overdue();
            let late: Vec<_> = self.connections.lock().values().filter(is_late).cloned().collect();
            // Each of them checks its deadline again: bytes may have arrived since.
            late.iter().for_each(|state| state.wake());
        }
    }
}

/// The state of a connection that the ticker watches, until this is dropped.
#[derive(Debug)]
pub(in crate::wire) struct RegisteredConnection {
    ticker: Arc<DeadlineTicker>,
    id: u64,
    pub(in crate::wire) state: Arc<ConnectionState>,
    /// The waker that the state has.
    waker: Option<Waker>,
}

impl RegisteredConnection {
    /// Lets the ticker and the service wake the current task.
    pub(in crate::wire) fn register_waker(&mut self, cx: &Context<'_>) {
        if !self.waker.as_ref().is_some_and(|waker| waker.will_wake(cx.waker())) {
            self.waker = Some(cx.waker().clone());
            *self.state.waker.lock() = self.waker.clone();
        }
    }
}

impl Deref for RegisteredConnection {
    type Target = ConnectionState;

    fn deref(&self) -> &ConnectionState {
        &self.state
    }
}

impl Drop for RegisteredConnection {
    fn drop(&mut self) {
        self.ticker.connections.lock().remove(&self.id);
        self.state.close();
    }
}

/// The time between two ticks. A timeout fires up to two ticks too late, and never too early.
const TICK: Duration = Duration::from_millis(250);

/// How long the gateway waits for a client.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ClientTimeouts {
    /// For a whole request head, from its first byte on: the limit on slow headers (slowloris).
    pub(crate) head: Duration,
    /// For the next request, from the end of the last response on.
    pub(crate) idle: Duration,
    /// For more of a request body, from the last byte that arrived on.
    pub(crate) body: Duration,
    /// For the client to read more of a response: the limit on slow readers.
    pub(crate) write: MinRate,
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

/// The time between two ticks, of which the first does not count, as in [`TimeoutClock::is_past`].
pub(in crate::wire) fn time_between(since: u32, now: u32) -> Duration {
    TICK * now.wrapping_sub(since).saturating_sub(1)
}

/// A duration in ticks, rounded up.
fn ticks(duration: Duration) -> u32 {
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
