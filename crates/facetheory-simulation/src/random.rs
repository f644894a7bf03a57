//! Random draws; all of a simulation come from its seed.

use std::time::Duration;

use tabletheory::{Random, SeededRandom};

/// An independent sequence of random numbers. Each task has its own, so that its draws do not shift those of others.
#[derive(Debug)]
pub(crate) struct RandomStream(SeededRandom);

impl RandomStream {
    pub(crate) fn new(seed: u64, stream: u64) -> Self {
        let (seed, stream) = (SeededRandom::new(seed).next_u64(), SeededRandom::new(!stream).next_u64());
        RandomStream(SeededRandom::new(seed ^ stream.rotate_left(32)))
    }

    /// A number less than `end`.
    pub(crate) fn below(&self, end: u64) -> u64 {
        self.0.next_u64() % end.max(1)
    }

    /// A number from `first` to `last`, inclusive.
    pub(crate) fn between(&self, first: u64, last: u64) -> u64 {
        first + self.below(last - first + 1)
    }

    /// A number of seconds from `first` to `last`, inclusive.
    pub(crate) fn seconds(&self, first: u64, last: u64) -> Duration {
        Duration::from_secs(self.between(first, last))
    }

    pub(crate) fn chance(&self, probability: f64) -> bool {
        self.0.fraction() < probability
    }

    pub(crate) fn fraction(&self) -> f64 {
        self.0.fraction()
    }

    pub(crate) fn pick<'a, T>(&self, things: &'a [T]) -> &'a T {
        let index = self.below(things.len() as u64);
        &things[usize::try_from(index).expect("an index of a slice")]
    }

    /// A duration between a millisecond and `longest`.
    pub(crate) fn up_to(&self, longest: Duration) -> Duration {
        let millis = u64::try_from(longest.as_millis()).expect("a short duration");
        Duration::from_millis(1 + self.below(millis))
    }
}

impl Random for RandomStream {
    fn next_u64(&self) -> u64 {
        self.0.next_u64()
    }
}
