//! Chance: every draw of a simulation comes from its seed.

use std::time::Duration;

use tabletheory::{Random, SeededRandom};

/// One stream of chance. Streams of a seed are independent, so that one worker's draws do not shift another's.
#[derive(Debug)]
pub(crate) struct Dice(SeededRandom);

impl Dice {
    pub(crate) fn new(seed: u64, stream: u64) -> Self {
        let (seed, stream) = (SeededRandom::new(seed).next_u64(), SeededRandom::new(!stream).next_u64());
        Dice(SeededRandom::new(seed ^ stream.rotate_left(32)))
    }

    /// A number below this one.
    pub(crate) fn below(&self, end: u64) -> u64 {
        self.0.next_u64() % end.max(1)
    }

    /// A number from the first to the last.
    pub(crate) fn between(&self, first: u64, last: u64) -> u64 {
        first + self.below(last - first + 1)
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

    /// A duration from a millisecond to this one.
    pub(crate) fn up_to(&self, longest: Duration) -> Duration {
        let millis = u64::try_from(longest.as_millis()).expect("a duration of this world");
        Duration::from_millis(1 + self.below(millis))
    }
}

impl Random for Dice {
    fn next_u64(&self) -> u64 {
        self.0.next_u64()
    }
}
