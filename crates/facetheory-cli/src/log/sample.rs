//! The share of requests that are logged.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use crate::config::LogSample;

/// Multiples of this odd number, 2^64 divided by the golden ratio, are spread evenly over all `u64`s.
const STEP: u64 = 0x9E37_79B9_7F4A_7C15;

/// Selects a share of requests, spread evenly among them. Needs no random numbers.
#[derive(Debug)]
pub(super) struct Sampler {
    /// Multiples of [`STEP`] below it are selected; `None` selects all requests.
    below: Option<u64>,
    count: AtomicU64,
}

impl Sampler {
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a share is from 0 to 1")]
    #[expect(clippy::cast_precision_loss, reason = "no share is that exact")]
    pub(super) fn new(LogSample(share): LogSample) -> Self {
        let below = (share < 1.0).then_some((share * u64::MAX as f64) as u64);
        Sampler { below, count: AtomicU64::new(0) }
    }

    /// Whether the next request is selected.
    pub(super) fn selects_next(&self) -> bool {
        self.below.is_none_or(|below| self.count.fetch_add(1, Relaxed).wrapping_mul(STEP) < below)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn any_number_of_requests_contains_about_the_share_of_them() {
        for (share, expected) in [(0.0, 0), (0.01, 10), (0.25, 250), (0.5, 500), (1.0, 1000)] {
            let sampler = Sampler::new(LogSample(share));
            for _ in 0..10 {
                let selected = (0..1000).filter(|_| sampler.selects_next()).count();
                assert!(selected.abs_diff(expected) <= 2, "{share}: {selected}");
            }
        }
    }
}
