//! One timer for the deadlines of all HTTP/1 connections.

use std::collections::HashMap;
use std::ops::Deref;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering::Relaxed};
use std::task::{Context, Waker};

use parking_lot::Mutex;
use tokio::time::{Instant, MissedTickBehavior, interval};

use super::timeouts::{ClientTimeouts, TICK, TimeoutClock, ticks};
use crate::wire::connection_state::ConnectionState;
use crate::wire::limits::RequestLimits;
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

    /// Runs the clock for as long as it is polled.
    pub(crate) async fn run(&self) {
        let start = Instant::now();
        let mut ticker = interval(TICK);
        ticker.set_missed_tick_behavior(MissedTickBehavior::Skip);
        loop {
            ticker.tick().await;
            // Skipped ticks count too.
            self.clock.store(ticks(start.elapsed()), Relaxed);
            self.wake_overdue();
        }
    }

    /// Wakes the connections whose deadline has passed. Each of them checks again: bytes may have arrived meanwhile.
    fn wake_overdue(&self) {
        let is_late = |state: &&Arc<ConnectionState>| state.overdue().is_some() || state.is_write_overdue();
        let late: Vec<_> = self.connections.lock().values().filter(is_late).cloned().collect();
        for state in late {
            state.wake();
        }
    }
}

/// The state of a connection that the ticker watches, until this is dropped.
#[derive(Debug)]
pub(in crate::wire) struct RegisteredConnection {
    ticker: Arc<DeadlineTicker>,
    id: u64,
    state: Arc<ConnectionState>,
    /// The waker that the state has.
    waker: Option<Waker>,
}

impl RegisteredConnection {
    /// The state, to be shared with the service of the connection.
    pub(in crate::wire) fn state(&self) -> &Arc<ConnectionState> {
        &self.state
    }

    /// Lets the ticker and the service wake the current task.
    pub(in crate::wire) fn register_waker(&mut self, cx: &Context<'_>) {
        if !self.waker.as_ref().is_some_and(|waker| waker.will_wake(cx.waker())) {
            self.waker = Some(cx.waker().clone());
            self.state.set_waker(cx.waker().clone());
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
