//! When rows may be deleted by TTL. The `ttl` of a row is garbage collection only: no decision reads it.

use std::time::Duration;

use tabletheory::Timestamp;

use crate::protocol::generation::Generation;

/// How long rows are stored before they may be deleted by TTL.
///
/// ```
/// let ttls = facetheory::protocol::Ttls::default();
/// assert_eq!(ttls.page, None, "a page has no ttl");
/// assert_eq!(ttls.superseded.map(|month| month.as_secs()), Some(30 * 86_400));
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Ttls {
    /// A page that is no longer regenerated, counted from when it goes stale; `None` stores it without a `ttl`.
    ///
    /// A page that was deleted starts to count its versions again.
    pub page: Option<Duration>,
    /// A version, counted from when another one replaced it; `None` stores it without a `ttl`.
    pub superseded: Option<Duration>,
}

impl Default for Ttls {
    fn default() -> Self {
        const MONTH: Duration = Duration::from_secs(30 * 86_400);
        Ttls { page: None, superseded: Some(MONTH) }
    }
}

impl Ttls {
    /// The `ttl` of `META` for this generation, in epoch seconds.
    pub(crate) fn of_page(&self, page: &Generation) -> Option<i64> {
        let stale = page.expires_at();
        self.page.map(|ttl| stale.saturating_add(seconds(ttl)))
    }

    /// The `ttl` of a version that is superseded now, in epoch seconds.
    pub(crate) fn of_superseded(&self, now: Timestamp) -> Option<i64> {
        self.superseded.map(|ttl| after(now, ttl))
    }
}

/// Whole seconds, saturated to 64 bits.
pub(crate) fn seconds(duration: Duration) -> i64 {
    i64::try_from(duration.as_secs()).unwrap_or(i64::MAX)
}

/// The time after a duration, in epoch seconds.
pub(crate) fn after(now: Timestamp, duration: Duration) -> i64 {
    now.seconds().saturating_add(seconds(duration))
}
