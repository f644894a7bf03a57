//! The limit on new pages per second.

use parking_lot::Mutex;
use tabletheory::Timestamp;

/// Limits how many pages are cached for the first time in a second.
#[derive(Debug)]
pub(crate) struct NewPageLimiter {
    limit: u32,
    /// The current second, and how many pages were counted in it.
    window: Mutex<(i64, u32)>,
}

impl NewPageLimiter {
    pub(crate) fn new(pages_per_second: u32) -> Self {
        NewPageLimiter { limit: pages_per_second, window: Mutex::new((i64::MIN, 0)) }
    }

    /// Counts one more page, and returns whether it may be cached.
    pub(crate) fn allows(&self, now: Timestamp) -> bool {
        let mut window = self.window.lock();
        // Any other second starts a new window, so that a clock that was set back does not block new pages.
        if window.0 != now.seconds() {
            *window = (now.seconds(), 0);
        }
        let is_allowed = window.1 < self.limit;
        window.1 += u32::from(is_allowed);
        is_allowed
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn new_pages_are_limited_per_second() {
        let limiter = NewPageLimiter::new(2);
        let at = |second: i64| Timestamp::from_seconds(second);
        let allowed: Vec<bool> = [1, 1, 1, 2, 2, 2, 1].map(|second| limiter.allows(at(second))).to_vec();
        assert_eq!(allowed, [true, true, false, true, true, false, true]);
    }
}
