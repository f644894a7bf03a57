//! Exponential backoff with jitter.

use std::time::Duration;

use crate::random::Random;

/// How long to wait before each retry: a delay that grows by a constant factor up to a maximum, with random jitter.
///
/// Jitter keeps clients that failed together from retrying together. By default the delay doubles with each retry, and
/// half of it is random ("equal jitter").
///
/// ```
/// use std::time::Duration;
/// use tabletheory::{Backoff, SystemRandom};
///
/// const BACKOFF: Backoff = Backoff::new(Duration::from_millis(100), Duration::from_secs(1));
///
/// let delay = BACKOFF.delay(2, &SystemRandom);
/// assert!(Duration::from_millis(200) <= delay && delay < Duration::from_millis(400));
/// ```
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Backoff {
    pub(crate) first: Duration,
    longest: Duration,
    factor: f64,
    jitter: f64,
}

impl Backoff {
    /// A backoff that waits `first` before the first retry, doubles with each further one, and never exceeds `longest`.
    ///
    /// ```
    /// use std::time::Duration;
    /// use tabletheory::Backoff;
    ///
    /// let backoff = Backoff::new(Duration::from_secs(1), Duration::from_secs(15));
    /// let seconds = [0, 1, 2, 3, 4, u32::MAX].map(|retry| backoff.delay_without_jitter(retry).as_secs());
    /// assert_eq!(seconds, [1, 2, 4, 8, 15, 15]);
    /// ```
    #[must_use]
    pub const fn new(first: Duration, longest: Duration) -> Self {
        Backoff { first, longest, factor: 2.0, jitter: 0.5 }
    }

    /// Sets the factor by which the delay grows with each retry. A factor below 1 counts as 1: delays never shrink.
    ///
    /// ```
    /// use std::time::Duration;
    /// use tabletheory::Backoff;
    ///
    /// let backoff = Backoff::new(Duration::from_millis(100), Duration::from_secs(1)).with_factor(1.5);
    /// assert_eq!(backoff.delay_without_jitter(2), Duration::from_millis(225));
    /// ```
    #[must_use]
    pub const fn with_factor(mut self, factor: f64) -> Self {
        self.factor = factor.max(1.0);
        self
    }

    /// Sets the part of each delay that is random: 0 for no jitter, 0.5 (the default) for a delay between half and the
    /// whole, 1 for a delay between zero and the whole ("full jitter"). Values outside 0 to 1 are clamped.
    ///
    /// ```
    /// use std::time::Duration;
    /// use tabletheory::{Backoff, SystemRandom};
    ///
    /// let backoff = Backoff::new(Duration::from_millis(100), Duration::from_secs(1)).with_jitter(0.0);
    /// assert_eq!(backoff.delay(1, &SystemRandom), Duration::from_millis(200));
    /// ```
    #[must_use]
    pub const fn with_jitter(mut self, jitter: f64) -> Self {
        // `max` first: it turns NaN into 0, where `clamp` would keep it.
        self.jitter = jitter.max(0.0).min(1.0);
        self
    }

    /// Returns the delay before a retry, with jitter. `retry` counts from 0: the first retry waits for the first delay.
    ///
    /// ```
    /// use std::time::Duration;
    /// use tabletheory::{Backoff, SystemRandom};
    ///
    /// let delay = Backoff::new(Duration::from_secs(2), Duration::from_secs(60)).delay(0, &SystemRandom);
    /// assert!(Duration::from_secs(1) <= delay && delay < Duration::from_secs(2));
    /// ```
    #[must_use]
    pub fn delay(&self, retry: u32, random: &dyn Random) -> Duration {
        self.scale(self.delay_without_jitter(retry), 1.0 - self.jitter + self.jitter * random.fraction())
    }

    /// Returns the longest delay that [`delay`](Self::delay) can give before a retry, which counts from 0.
    ///
    /// ```
    /// use std::time::Duration;
    /// use tabletheory::Backoff;
    ///
    /// let backoff = Backoff::new(Duration::from_secs(2), Duration::from_secs(60));
    /// assert_eq!(backoff.delay_without_jitter(1), Duration::from_secs(4));
    /// ```
    #[must_use]
    pub fn delay_without_jitter(&self, retry: u32) -> Duration {
        if self.first.is_zero() {
            return Duration::ZERO;
        }
        self.scale(self.first, self.factor.powi(i32::try_from(retry).unwrap_or(i32::MAX)))
    }

    /// Multiplies without the panic of `Duration::mul_f64`: a product that no `Duration` can hold exceeds `longest` too.
    fn scale(&self, delay: Duration, by: f64) -> Duration {
        let scaled = Duration::try_from_secs_f64(delay.as_secs_f64() * by);
        scaled.map_or(self.longest, |delay| delay.min(self.longest))
    }

    /// The longest delay before any retry.
    ///
    /// ```
    /// use std::time::Duration;
    /// use tabletheory::Backoff;
    ///
    /// assert_eq!(Backoff::new(Duration::from_secs(2), Duration::from_secs(60)).longest().as_secs(), 60);
    /// ```
    #[must_use]
    pub const fn longest(&self) -> Duration {
        self.longest
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::random::SeededRandom;

    const BACKOFF: Backoff = Backoff::new(Duration::from_millis(10), Duration::from_millis(100));

    fn millis(backoff: Backoff, retry: u32) -> u128 {
        backoff.delay_without_jitter(retry).as_millis()
    }

    #[test]
    fn delays_double_up_to_the_longest() {
        assert_eq!(
            [0, 1, 2, 3, 4, 39, u32::MAX].map(|retry| millis(BACKOFF, retry)),
            [10, 20, 40, 80, 100, 100, 100]
        );
    }

    #[test]
    fn the_growth_factor_can_be_set_but_delays_never_shrink() {
        assert_eq!([0, 1, 2].map(|retry| millis(BACKOFF.with_factor(3.0), retry)), [10, 30, 90]);
        for factor in [1.0, 0.5, 0.0, -2.0, f64::NAN] {
            assert_eq!(millis(BACKOFF.with_factor(factor), 7), 10, "{factor}");
        }
    }

    #[test]
    fn jitter_spreads_delays_over_its_part_of_the_whole_delay() {
        let random = SeededRandom::new(7);
        for (jitter, shortest) in [(0.5, 20), (1.0, 0), (9.0, 0)] {
            let backoff = BACKOFF.with_jitter(jitter);
            let (shortest, longest) = (Duration::from_millis(shortest), Duration::from_millis(40));
            let delays: Vec<_> = (0..100).map(|_| backoff.delay(2, &random)).collect();
            assert!(delays.iter().all(|delay| (shortest..longest).contains(delay)));
            let quarter = (longest - shortest) / 4;
            assert!(delays.iter().any(|delay| *delay < shortest + quarter));
            assert!(delays.iter().any(|delay| *delay > longest - quarter));
        }
    }

    #[test]
    fn without_jitter_delays_are_exact() {
        for jitter in [0.0, -1.0, f64::NAN] {
            assert_eq!(
                BACKOFF.with_jitter(jitter).delay(1, &SeededRandom::new(7)),
                Duration::from_millis(20)
            );
        }
    }

    #[test]
    fn extreme_delays_neither_panic_nor_exceed_the_longest() {
        let huge = Backoff::new(Duration::MAX, Duration::MAX).with_factor(f64::INFINITY);
        assert_eq!(huge.delay_without_jitter(3), Duration::MAX);
        assert_eq!(huge.with_jitter(0.0).delay(3, &SeededRandom::new(7)), Duration::MAX);
        let none = Backoff::new(Duration::ZERO, Duration::MAX);
        assert_eq!(none.delay_without_jitter(u32::MAX), Duration::ZERO);
        let inverted = Backoff::new(Duration::from_secs(9), Duration::from_secs(1));
        assert_eq!(inverted.delay_without_jitter(0), Duration::from_secs(1));
    }
}
