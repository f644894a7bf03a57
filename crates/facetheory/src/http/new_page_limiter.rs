//! Pages that were not kept before: how many of them may be, in a second.

use std::sync::{Mutex, PoisonError};

use tabletheory::Timestamp;

/// Counts new pages, second by second.
#[derive(Debug)]
pub(crate) struct NewPageLimiter {
    most: u32,
    /// The second that is counted in, and how many came in it.
    counted: Mutex<(i64, u32)>,
}

impl NewPageLimiter {
    /// At most so many in a second.
    pub(crate) fn new(most: u32) -> Self {
        NewPageLimiter { most, counted: Mutex::new((i64::MIN, 0)) }
    }

    /// Whether one more may be kept.
    pub(crate) fn welcomes(&self, now: Timestamp) -> bool {
        let mut counted = self.counted.lock().unwrap_or_else(PoisonError::into_inner);
        let (second, count) = &mut *counted;
        // A clock that was set back does not stop the count for as long.
        if *second != now.seconds() {
            (*second, *count) = (now.seconds(), 0);
        }
        let welcome = *count < self.most;
        *count = count.saturating_add(u32::from(welcome));
        welcome
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn so_many_are_welcome_in_each_second() {
        let newcomers = NewPageLimiter::new(2);
        let at = |second: i64| Timestamp::from_seconds(second);
        let welcome: Vec<bool> = [1, 1, 1, 2, 2, 2, 1].map(|second| newcomers.welcomes(at(second))).to_vec();
        assert_eq!(welcome, [true, true, false, true, true, false, true]);
    }
}
