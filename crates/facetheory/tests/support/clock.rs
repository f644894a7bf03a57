//! Time that passes only while everyone waits.

use tabletheory::{Clock, Timestamp};

/// The time of the paused runtime, which begins at this moment in epoch seconds.
#[derive(Debug)]
pub(crate) struct RuntimeClock {
    began: i64,
    since: tokio::time::Instant,
}

impl RuntimeClock {
    pub(crate) fn starting_at(began: i64) -> Self {
        RuntimeClock { began, since: tokio::time::Instant::now() }
    }
}

impl Clock for RuntimeClock {
    fn now(&self) -> Timestamp {
        Timestamp::from_seconds(self.began) + self.since.elapsed()
    }
}
