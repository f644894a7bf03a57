//! A clock that follows the time of the tokio runtime.

use tabletheory::{Clock, Timestamp};

/// Wall-clock time that advances with the runtime, so that a test with paused time controls it.
#[derive(Clone, Copy, Debug)]
pub struct RuntimeClock {
    start: Timestamp,
    started: tokio::time::Instant,
    ahead_millis: i64,
}

impl RuntimeClock {
    /// A clock that shows this time, in epoch seconds, at the moment of the call.
    #[must_use]
    pub fn starting_at(seconds: i64) -> Self {
        let start = Timestamp::from_seconds(seconds);
        RuntimeClock { start, started: tokio::time::Instant::now(), ahead_millis: 0 }
    }

    /// A copy of this clock that is ahead of it by so many milliseconds; behind it if negative.
    #[must_use]
    pub fn ahead_by(self, millis: i64) -> Self {
        RuntimeClock { ahead_millis: millis, ..self }
    }

    /// Milliseconds since the clock was created.
    ///
    /// # Panics
    /// After 292 million years.
    #[must_use]
    pub fn elapsed_millis(&self) -> i64 {
        i64::try_from(self.started.elapsed().as_millis()).expect("a test is short")
    }
}

impl Clock for RuntimeClock {
    fn now(&self) -> Timestamp {
        Timestamp::from_millis(self.start.millis() + self.elapsed_millis() + self.ahead_millis)
    }
}
