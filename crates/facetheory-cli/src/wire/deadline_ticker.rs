//! One ticker for all connections: who has been waited for too long is woken, and ends.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::time::{Instant, MissedTickBehavior, interval};

use super::connection_state::ConnectionState;
use super::limits::RequestLimits;
use super::stream::CheckedStream;
use super::timeouts::{ClientTimeouts, TICK, TimeoutTicks, ticks};

/// The connections that are open, and the clock that they are timed by.
///
/// A timer for each request would cost more than all else that is done to check it. Here a request costs a few plain
/// stores, and four times a second somebody looks at all connections.
#[derive(Debug, Default)]
pub(crate) struct DeadlineTicker {
    clock: Arc<AtomicU32>,
    next: AtomicU64,
    connections: Mutex<HashMap<u64, Arc<ConnectionState>>>,
}

impl DeadlineTicker {
    /// A ticker over nobody; time stands still until it is [run](DeadlineTicker::run).
    pub(crate) fn new() -> Arc<Self> {
        Arc::default()
    }

    /// Puts a wire around a connection, and watches it until that is dropped.
    pub(crate) fn register<IO>(
        self: &Arc<Self>,
        io: IO,
        limits: RequestLimits,
        timeouts: &ClientTimeouts,
    ) -> CheckedStream<IO> {
        let state = Arc::new(ConnectionState::new(TimeoutTicks::new(self.clock.clone(), timeouts)));
        let id = self.next.fetch_add(1, Relaxed);
        self.lock().insert(id, state.clone());
        CheckedStream::new(io, limits, state, Registration { ticker: self.clone(), id })
    }

    /// How many connections are open.
    #[cfg(test)]
    pub(crate) fn connections(&self) -> usize {
        self.lock().len()
    }

    /// Lets time pass, for as long as it is polled.
    pub(crate) async fn run(&self) {
        let start = Instant::now();
        let mut ticker = interval(TICK);
        ticker.set_missed_tick_behavior(MissedTickBehavior::Skip);
        loop {
            ticker.tick().await;
            // A tick that was missed has passed all the same.
            self.clock.store(ticks(start.elapsed()), Relaxed);
            self.wake_overdue();
        }
    }

    /// The connection itself decides what to do about it: something may have come by then.
    fn wake_overdue(&self) {
        let is_late = |state: &&Arc<ConnectionState>| state.overdue().is_some() || state.is_stuck();
        let late: Vec<_> = self.lock().values().filter(is_late).cloned().collect();
        for state in late {
            state.wake();
        }
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<u64, Arc<ConnectionState>>> {
        // The map is whole at any moment, so a poisoned lock guards nothing broken.
        self.connections.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A place among the connections that are watched.
#[derive(Debug)]
pub(super) struct Registration {
    ticker: Arc<DeadlineTicker>,
    id: u64,
}

impl Drop for Registration {
    fn drop(&mut self) {
        if let Some(state) = self.ticker.lock().remove(&self.id) {
            state.end();
        }
    }
}
