//! The least rate at which a client must read a response or send a body.

use std::time::Duration;

/// The least rate of a transfer. A client may be behind it for as long as `grace`: a pause uses that time up, and each byte earns
/// some of it back. So a client that does nothing is disconnected after `grace`, and one that is always too slow a little later.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct MinRate {
    /// 0 means that each byte earns all of the time back.
    pub(crate) bytes_per_second: u64,
    pub(crate) grace: Duration,
}

impl MinRate {
    /// Limits the pauses only.
    pub(crate) const fn none(grace: Duration) -> Self {
        MinRate { bytes_per_second: 0, grace }
    }

    /// How much longer a client may do nothing, from how long it could before, after it was waited for so long until it
    /// transferred these bytes.
    pub(crate) fn time_left(&self, before: Duration, waited: Duration, bytes: u64) -> Duration {
        let micros = bytes.saturating_mul(1_000_000).checked_div(self.bytes_per_second);
        let Some(earned) = micros.map(Duration::from_micros) else { return self.grace };
        match before.saturating_sub(waited) {
            // Bytes that arrive too late earn nothing.
            Duration::ZERO => Duration::ZERO,
            left => left.saturating_add(earned).min(self.grace),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const RATE: MinRate = MinRate { bytes_per_second: 1000, grace: Duration::from_secs(60) };

    /// How long a client is served that transfers these bytes after each pause.
    fn served(rate: MinRate, pause: Duration, bytes: u64) -> Option<Duration> {
        let (mut left, mut served) = (rate.grace, Duration::ZERO);
        for _ in 0..100_000 {
            if pause >= left {
                return Some(served + left);
            }
            served += pause;
            left = rate.time_left(left, pause, bytes);
        }
        None
    }

    #[test]
    fn a_client_that_is_always_too_slow_is_not_served_for_long() {
        let second = Duration::from_secs(1);
        assert_eq!(served(RATE, second, 1000), None, "fast enough");
        assert_eq!(served(RATE, 10 * second, 10_000), None, "fast enough, with pauses");
        assert_eq!(served(RATE, 61 * second, 1_000_000), Some(60 * second), "the pause is too long");
        let half = served(RATE, second, 500).expect("too slow");
        assert!((115 * second..125 * second).contains(&half), "{half:?}");
        let nothing = served(RATE, second, 1).expect("too slow");
        assert!((60 * second..62 * second).contains(&nothing), "{nothing:?}");
    }

    #[test]
    fn bytes_that_were_transferred_fast_do_not_pay_for_a_long_pause_later() {
        assert_eq!(RATE.time_left(RATE.grace, Duration::ZERO, u64::MAX), RATE.grace);
    }

    #[test]
    fn without_a_rate_only_pauses_are_limited() {
        let rate = MinRate::none(Duration::from_secs(60));
        assert_eq!(served(rate, Duration::from_secs(59), 1), None);
        assert_eq!(served(rate, Duration::from_secs(61), 1), Some(rate.grace));
    }
}
