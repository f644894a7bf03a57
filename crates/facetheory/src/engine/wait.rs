//! Waits until another process has rendered a page.

use std::future::poll_fn;
use std::pin::pin;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use tabletheory::{Backoff, Random};
use tokio::time::Instant;

use super::Engine;
use super::body_lookup::BodyLookup;
use super::render::RegenerateResult;
use crate::protocol::Freshness;
use crate::{PageKey, RegenerateReason};

/// The pauses between two reads of a page that another process renders: 20 ms to 1 s on average, a quarter more or less.
const POLLING: Backoff =
    Backoff::new(Duration::from_millis(25), Duration::from_millis(1250)).with_factor(1.5).with_jitter(0.4);

/// An embedded table is read again after a twentieth of the time that the request has waited: a read takes microseconds
/// and is not billed.
const EMBEDDED_PAUSES: u32 = 20;
/// The shortest of these pauses.
const EMBEDDED_PAUSE: Duration = Duration::from_millis(15);

impl Engine {
    /// Reads a page from time to time until another process has rendered it. Returns `None` if the lease becomes free
    /// before that.
    pub(super) async fn wait(
        self: &Arc<Self>,
        page: &PageKey,
        reason: &RegenerateReason,
        mut leased_until: i64,
        limit: &mut WaitLimit,
    ) -> Option<RegenerateResult> {
        loop {
            let free_at = self.free_at(leased_until).saturating_mul(1000);
            let free_in = u64::try_from(free_at.saturating_sub(self.now().millis())).unwrap_or(0).max(1);
            let Some(pause) = limit.next_pause(Duration::from_millis(free_in), &*self.random, Instant::now())
            else {
                return Some(RegenerateResult::TimedOut);
            };
            tokio::time::sleep(pause).await;
            let mut read = pin!(tokio::time::timeout_at(limit.end, self.read(page)));
            let at_once = poll_fn(|context| Poll::Ready(read.as_mut().poll(context))).await;
            limit.is_embedded = matches!(&at_once, Poll::Ready(Ok(Ok(_))));
            let read = match at_once {
                Poll::Ready(read) => read,
                Poll::Pending => read.await,
            };
            // The wait continues if the table is unreachable for a moment.
            let Ok(Ok(found)) = read else { continue };
            if let (BodyLookup::Found(entry), Some(meta)) = (&found.body, &found.meta)
                && found.freshness == Freshness::Fresh
                && !reason.still_applies(meta, self.now())
            {
                return Some(RegenerateResult::Page { entry: entry.clone(), rendered_here: false });
            }
            if matches!(found.body, BodyLookup::MemoryFull) {
                return Some(RegenerateResult::MemoryFull);
            }
            leased_until = found.check.leased_until;
            if !self.is_held(leased_until) {
                return None;
            }
        }
    }

    /// Whether a request for a lease that ends at this time would be refused now.
    pub(super) fn is_held(&self, leased_until: i64) -> bool {
        self.free_at(leased_until) > self.now().seconds()
    }

    /// When a lease that ends at this time is free, in epoch seconds: once it has also ended by the clock of its holder.
    fn free_at(&self, leased_until: i64) -> i64 {
        let skew = self.pages.store().lease_terms().skew.as_secs();
        leased_until.saturating_add(i64::try_from(skew).unwrap_or(i64::MAX))
    }
}

/// How long a request still waits for another process.
pub(super) struct WaitLimit {
    began: Instant,
    end: Instant,
    polls: u32,
    /// Whether the last read was complete at once, as those of embedded tables are.
    is_embedded: bool,
}

impl WaitLimit {
    pub(super) fn new(wait: Duration) -> Self {
        // Later times may not be representable.
        const LONGEST: Duration = Duration::from_secs(365 * 86_400);
        let began = Instant::now();
        WaitLimit { began, end: began + wait.min(LONGEST), polls: 0, is_embedded: false }
    }

    /// The pause before the next read: longer than the last one, but neither past the time when the lease is free nor past
    /// the end of the wait. `None` at the end.
    fn next_pause(&mut self, free_in: Duration, random: &dyn Random, now: Instant) -> Option<Duration> {
        let left = self.end.saturating_duration_since(now);
        if left.is_zero() {
            return None;
        }
        let mut pause = POLLING.delay(self.polls, random);
        self.polls = self.polls.saturating_add(1);
        if self.is_embedded {
            let elapsed = now.saturating_duration_since(self.began);
            pause = pause.min((elapsed / EMBEDDED_PAUSES).max(EMBEDDED_PAUSE));
        }
        Some(pause.min(free_in).min(left))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tabletheory::SeededRandom;

    #[test]
    fn pauses_grow_but_not_past_a_free_lease_or_the_end_of_the_wait() {
        let (mut now, random) = (Instant::now(), SeededRandom::new(1));
        let limit =
            |now| WaitLimit { began: now, end: now + Duration::from_secs(5), polls: 0, is_embedded: false };
        let lease = Duration::from_secs(30);
        let mut pauses = Vec::new();
        let mut waiting = limit(now);
        while let Some(pause) = waiting.next_pause(lease, &random, now) {
            pauses.push(pause);
            now += pause;
        }
        assert_eq!(pauses.iter().sum::<Duration>(), Duration::from_secs(5));
        assert!(pauses.len() < 20, "{pauses:?}");
        assert!(pauses.iter().all(|pause| *pause <= POLLING.longest()));
        let free_in = Duration::from_millis(7);
        assert_eq!(limit(now).next_pause(free_in, &random, now), Some(free_in));
    }

    #[test]
    fn an_embedded_table_is_read_often_and_not_without_a_limit() {
        let (began, random) = (Instant::now(), SeededRandom::new(1));
        let (end, wait) = (began + Duration::from_secs(10), Duration::from_secs(30));
        let mut waiting = WaitLimit { began, end, polls: 0, is_embedded: true };
        let (mut now, mut reads) = (began, 0);
        while let Some(pause) = waiting.next_pause(wait, &random, now) {
            let elapsed = now - began;
            assert!(pause <= EMBEDDED_PAUSE.max(elapsed / 20), "{pause:?} after {elapsed:?}");
            now += pause;
            reads += 1;
        }
        assert!(reads < 120, "{reads} reads in 10 s");
    }
}
