//! Ttls: after how long rows may be collected by their `ttl`, which decides nothing else.

use std::time::Duration;

use tabletheory::Timestamp;

use crate::protocol::generation::Generation;

/// After how long rows may be collected.
///
/// ```
/// let lifetimes = facetheory::protocol::Ttls::default();
/// assert_eq!(lifetimes.page, None, "a page stays");
/// assert_eq!(lifetimes.superseded.map(|month| month.as_secs()), Some(30 * 86_400));
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Ttls {
    /// A page that nobody renews any more, counted from when it goes stale; none keeps it for ever.
    ///
    /// A page that was collected begins to count its versions anew.
    pub page: Option<Duration>,
    /// A version, counted from when another one took its place; none keeps it for ever.
    pub superseded: Option<Duration>,
}

impl Default for Ttls {
    fn default() -> Self {
        const MONTH: Duration = Duration::from_secs(30 * 86_400);
        Ttls { page: None, superseded: Some(MONTH) }
    }
}

impl Ttls {
    /// When the page that is served may be collected, in epoch seconds.
    pub(crate) fn of_page(&self, page: &Generation) -> Option<i64> {
        let stale = page.generated_at.saturating_add(page.revalidate_seconds);
        self.page.map(|lifetime| stale.saturating_add(seconds(lifetime)))
    }

    /// When a version that is superseded now may be collected, in epoch seconds.
    pub(crate) fn of_superseded(&self, now: Timestamp) -> Option<i64> {
        self.superseded.map(|lifetime| now.seconds().saturating_add(seconds(lifetime)))
    }
}

/// Whole seconds, as rows tell them; the most there are where a duration has more.
pub(crate) fn seconds(duration: Duration) -> i64 {
    i64::try_from(duration.as_secs()).unwrap_or(i64::MAX)
}
