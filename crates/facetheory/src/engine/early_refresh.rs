//! Early refresh: a popular page is regenerated at random times shortly before it goes stale, so that it never does.

use tabletheory::{Random, Timestamp};

use super::memory::Entry;
use crate::Policy;

/// Whether this request regenerates a page that is still fresh. The probability grows as the end of its freshness comes
/// nearer, and with the time that a render takes. Drawn once for each request.
pub(super) fn draw(entry: &Entry, policy: &Policy, now: Timestamp, random: &dyn Random) -> bool {
    window(entry, policy, now).is_some_and(|(left, scale)| left < -scale * (1.0 - random.fraction()).ln())
}

/// The time for which a page is still fresh, and the scale of the random time before its end, both in milliseconds; `None`
/// if the page is not refreshed early now.
pub(super) fn window(entry: &Entry, policy: &Policy, now: Timestamp) -> Option<(f64, f64)> {
    /// The random time exceeds this many times the scale with a probability of 2 in 10⁹.
    const MAX_SCALES: f64 = 20.0;
    let eagerness = policy.early_refresh?;
    if entry.page.meta().is_pinned(now) {
        return None;
    }
    let page = entry.page.generation();
    let end = page.expires_at().saturating_mul(1000);
    let left = end.saturating_sub(now.millis()) as f64;
    let scale = entry.render_time.as_secs_f64() * 1000.0 * eagerness;
    (left < scale * MAX_SCALES).then_some((left, scale))
}
