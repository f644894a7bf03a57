//! Simulated time, and the clocks of workers, which are ahead of it or behind.

use tabletheory::{Clock, Timestamp};

/// When every simulation begins, in epoch seconds.
const BEGINNING: i64 = 1_700_000_000;

/// The time of a paused runtime, so many milliseconds ahead (or behind, where negative).
#[derive(Clone, Copy, Debug)]
pub(crate) struct SimulatedClock {
    start: tokio::time::Instant,
    ahead: i64,
}

impl SimulatedClock {
    /// Begins now, on a paused runtime.
    pub(crate) fn start() -> Self {
        SimulatedClock { start: tokio::time::Instant::now(), ahead: 0 }
    }

    pub(crate) fn ahead_by(self, millis: i64) -> Self {
        SimulatedClock { ahead: millis, ..self }
    }

    /// Milliseconds since the simulation began.
    pub(crate) fn elapsed(&self) -> i64 {
        i64::try_from(self.start.elapsed().as_millis()).expect("a short simulation")
    }
}

impl Clock for SimulatedClock {
    fn now(&self) -> Timestamp {
        Timestamp::from_millis(BEGINNING * 1000 + self.elapsed() + self.ahead)
    }
}
