//! A limit on log lines that repeat: a failing store or origin concerns every request, and one line for each of them would
//! hide all others and fill the disk.

use std::time::Duration;

use parking_lot::Mutex;
use tokio::time::Instant;

/// The lines of one place in the code that are logged within [`INTERVAL`].
const MAX_LINES: u64 = 10;
const INTERVAL: Duration = Duration::from_secs(10);

/// Limits how often a line is logged: ten times in ten seconds. The first line after that says how many were left out.
///
/// [`warn_limited!`](crate::warn_limited) has one for each place where it is written.
///
/// ```
/// use tabletheory::LogLimit;
///
/// let limit = LogLimit::new();
/// let logged = (0..100).filter(|_| limit.permit().is_some()).count();
/// assert_eq!(logged, 10);
/// ```
#[derive(Debug, Default)]
pub struct LogLimit {
    window: Mutex<Option<Window>>,
}

#[derive(Clone, Copy, Debug)]
struct Window {
    began: Instant,
    logged: u64,
    omitted: u64,
}

impl LogLimit {
    /// A limit that no line has counted for yet.
    #[must_use]
    pub const fn new() -> Self {
        LogLimit { window: Mutex::new(None) }
    }

    /// Returns how many lines were left out before this one, or `None` if this one has to be left out too.
    ///
    /// ```
    /// assert_eq!(tabletheory::LogLimit::new().permit(), Some(0));
    /// ```
    pub fn permit(&self) -> Option<u64> {
        let now = Instant::now();
        let mut window = self.window.lock();
        match &mut *window {
            Some(current) if now.saturating_duration_since(current.began) < INTERVAL => {
                if current.logged < MAX_LINES {
                    current.logged += 1;
                    return Some(0);
                }
                current.omitted += 1;
                None
            }
            before => {
                let omitted = before.map_or(0, |before| before.omitted);
                *before = Some(Window { began: now, logged: 1, omitted: 0 });
                Some(omitted)
            }
        }
    }
}

/// Logs a warning with the arguments of `tracing::warn!`, ten times in ten seconds at most for each place where it is
/// written. The field `omitted` has the number of lines that were left out before.
///
/// ```
/// for request in 0..1000 {
///     tabletheory::warn_limited!(request, "the origin is unreachable");
/// }
/// ```
#[macro_export]
macro_rules! warn_limited {
    ($($arguments:tt)*) => {{
        static LIMIT: $crate::LogLimit = $crate::LogLimit::new();
        if let Some(omitted) = LIMIT.permit() {
            let omitted = (omitted > 0).then_some(omitted);
            ::tracing::warn!(omitted, $($arguments)*);
        }
    }};
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn lines_that_repeat_are_counted_and_left_out_until_the_interval_is_over() {
        let limit = LogLimit::new();
        for _ in 0..MAX_LINES {
            assert_eq!(limit.permit(), Some(0));
        }
        for _ in 0..7 {
            assert_eq!(limit.permit(), None);
        }
        tokio::time::advance(INTERVAL).await;
        assert_eq!(limit.permit(), Some(7), "the first line of the next interval has the count");
        assert_eq!(limit.permit(), Some(0));
    }
}
