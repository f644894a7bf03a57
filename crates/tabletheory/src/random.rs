//! Random bits, from an injected [`Random`], so that tests and simulations control them. Only this file asks the operating
//! system for any.

use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};

/// A source of random bits, for client tokens and for the jitter of retries.
///
/// ```
/// use tabletheory::{Random, SeededRandom};
///
/// let (one, other) = (SeededRandom::new(1), SeededRandom::new(1));
/// assert_eq!(one.next_u64(), other.next_u64());
/// ```
pub trait Random: Send + Sync + fmt::Debug {
    /// Returns the next 64 random bits.
    fn next_u64(&self) -> u64;

    /// Returns a number from 0 (included) to 1 (excluded).
    fn fraction(&self) -> f64 {
        #[expect(clippy::cast_precision_loss, reason = "53 bits fit in a float's mantissa")]
        let bits = (self.next_u64() >> 11) as f64;
        bits / (1_u64 << 53) as f64
    }
}

/// The random number generator of the operating system, suitable for tokens that must not be guessable.
///
/// ```
/// use tabletheory::{Random, SystemRandom};
///
/// assert_ne!(SystemRandom.next_u64(), SystemRandom.next_u64());
/// ```
#[derive(Clone, Copy, Debug, Default)]
pub struct SystemRandom;

impl Random for SystemRandom {
    /// # Panics
    /// If the operating system cannot provide random bits. Supported systems always can once they have booted.
    #[expect(clippy::disallowed_methods, reason = "the only place that asks the system for random bits")]
    fn next_u64(&self) -> u64 {
        getrandom::u64().expect("the operating system gives random bits")
    }
}

/// A deterministic generator for tests and simulations: equal seeds give equal bits. Never use it for tokens in production.
///
/// ```
/// use tabletheory::{Random, SeededRandom};
///
/// let random = SeededRandom::new(42);
/// let first = random.next_u64();
/// assert_ne!(first, random.next_u64());
/// assert_eq!(first, SeededRandom::new(42).next_u64());
/// ```
#[derive(Debug)]
pub struct SeededRandom {
    state: AtomicU64,
}

impl SeededRandom {
    /// Creates a generator with this seed.
    ///
    /// ```
    /// use tabletheory::{Random, SeededRandom};
    ///
    /// assert_ne!(SeededRandom::new(1).next_u64(), SeededRandom::new(2).next_u64());
    /// ```
    #[must_use]
    pub fn new(seed: u64) -> Self {
        SeededRandom { state: AtomicU64::new(seed) }
    }
}

impl Random for SeededRandom {
    /// `SplitMix64`: small, well distributed, and identical on every machine.
    fn next_u64(&self) -> u64 {
        const STEP: u64 = 0x9E37_79B9_7F4A_7C15;
        let mut bits = self.state.fetch_add(STEP, Ordering::SeqCst).wrapping_add(STEP);
        bits = (bits ^ (bits >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        bits = (bits ^ (bits >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        bits ^ (bits >> 31)
    }
}
