//! Random bits, from an injected [`Random`], so that tests and simulations control them. Only this file asks the operating
//! system for any.

use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};

/// Gives random bits: for client tokens, and for the jitter of retries.
///
/// ```
/// use tabletheory::{Random, SeededRandom};
///
/// let (one, other) = (SeededRandom::new(1), SeededRandom::new(1));
/// assert_eq!(one.next_u64(), other.next_u64());
/// ```
pub trait Random: Send + Sync + fmt::Debug {
    /// The next 64 random bits.
    fn next_u64(&self) -> u64;

    /// A fraction from 0 up to, not including, 1.
    fn fraction(&self) -> f64 {
        // 53 bits are what a float holds exactly.
        #[expect(clippy::cast_precision_loss, reason = "53 bits fit in a float's mantissa")]
        let bits = (self.next_u64() >> 11) as f64;
        bits / (1_u64 << 53) as f64
    }
}

/// The machine's own randomness, fit for tokens that nobody may guess.
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
    /// Where the operating system has no randomness to give, which no supported one lacks once it runs.
    #[expect(clippy::disallowed_methods, reason = "this is the one place that asks for random bits")]
    fn next_u64(&self) -> u64 {
        getrandom::u64().expect("the operating system gives random bits")
    }
}

/// The same bits for the same seed, for tests and simulations; never for tokens in production.
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
    /// The sequence of this seed.
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
    /// `SplitMix64`: tiny, well distributed, and the same on every machine.
    fn next_u64(&self) -> u64 {
        const STEP: u64 = 0x9E37_79B9_7F4A_7C15;
        let mut bits = self.state.fetch_add(STEP, Ordering::SeqCst).wrapping_add(STEP);
        bits = (bits ^ (bits >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        bits = (bits ^ (bits >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        bits ^ (bits >> 31)
    }
}
