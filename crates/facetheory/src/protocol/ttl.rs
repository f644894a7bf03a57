//! When rows may be deleted by TTL. The `ttl` of a row is garbage collection only: no decision reads it.

use std::time::Duration;

use tabletheory::Timestamp;

use crate::protocol::Meta;

/// How long rows are stored before they may be deleted by TTL.
///
/// ```
/// let ttls = facetheory::protocol::Ttls::default();
/// assert_eq!(ttls.page.map(|month| month.as_secs()), Some(30 * 86_400));
/// assert_eq!(ttls.superseded, ttls.page);
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Ttls {
    /// A page that is no longer used, at least as long as it is fresh; `None` stores it without a `ttl`. A [`Policy`] can set
    /// another one.
    ///
    /// A page that was deleted starts to count its versions again.
    ///
    /// [`Policy`]: crate::Policy
    pub page: Option<Duration>,
    /// A version, counted from when another one replaced it; `None` stores it without a `ttl`.
    pub superseded: Option<Duration>,
    /// The row of a tag, counted from its last invalidation; `None` stores it without a `ttl`. It must be at least the
    /// default, 100 days, because older pages are stale.
    pub epoch: Option<Duration>,
}

/// How long the row of a tag is stored.
const EPOCH: Duration = Duration::from_secs(100 * 86_400);
/// A page that was generated this long ago may be older than an invalidation that is not stored any more.
const OUTLIVES_EPOCHS: Duration = Duration::from_secs(99 * 86_400);
/// The `ttl` of a page is later by this part of its retention, so that it need not be moved at each use.
const USE_SLACK: i64 = 10;

impl Default for Ttls {
    fn default() -> Self {
        const MONTH: Duration = Duration::from_secs(30 * 86_400);
        Ttls { page: Some(MONTH), superseded: Some(MONTH), epoch: Some(EPOCH) }
    }
}

impl Ttls {
    /// The `ttl` of `META` if a page that is fresh for so many seconds is published now, in epoch seconds.
    pub(crate) fn of_page(&self, revalidate_seconds: i64, now: Timestamp) -> Option<i64> {
        let retention = seconds(self.page?).max(revalidate_seconds);
        Some(now.seconds().saturating_add(retention).saturating_add(retention / USE_SLACK))
    }

    /// The `ttl` of the row of a tag that is invalidated at this time, in epoch seconds.
    pub(crate) fn of_epoch(&self, invalidated_at: i64) -> Option<i64> {
        self.epoch.map(|ttl| invalidated_at.saturating_add(seconds(ttl)))
    }

    /// The `ttl` of a version that is superseded now, in epoch seconds.
    pub(crate) fn of_superseded(&self, now: Timestamp) -> Option<i64> {
        self.superseded.map(|ttl| after(now, ttl))
    }
}

impl Meta {
    /// Whether the page may be older than an invalidation of one of its tags that is not stored any more. Such a page is stale.
    pub(crate) fn outlives_epochs(&self, now: Timestamp) -> bool {
        now.seconds().saturating_sub(self.generation.generated_at) >= seconds(OUTLIVES_EPOCHS)
    }

    /// After how many seconds without a use the row has to be told of the next one, so that the page is not deleted within its
    /// retention; `None` if the page has no `ttl`.
    pub(crate) fn use_slack(&self) -> Option<i64> {
        let stored_for = self.ttl?.saturating_sub(self.used_at?);
        Some((stored_for / (USE_SLACK + 1)).max(1))
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
