//! Bodies that were replaced, and wait until nobody can be reading them: a queue, without I/O and without a clock.
//!
//! `gc/replaced.rs` deletes them, and says why that is safe.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::time::Instant;

use super::Pages;
use crate::bodies::s3_key::{S3Key, page_directory};
use crate::error::{Error, Result};
use crate::protocol::{Generation, Lease, Meta, PageKey, Published};

/// The most bytes of keys that wait. Beyond that, bodies are left to the full garbage collection.
const MAX_BYTES: usize = 16 * 1024 * 1024;
/// The size of an entry besides its keys.
const ENTRY_BYTES: usize = size_of::<Waiting>() + 32;

/// A body to which no row refers any more, as far as the process knows that replaced it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ReplacedBody {
    /// The partition of its page.
    pub(crate) pk: Box<str>,
    /// Its S3 key, as rows name it.
    pub(crate) s3_key: Box<str>,
    /// The token of the lease whose publish has an unknown outcome, or was superseded: a row may come to name this body.
    pub(crate) token: Option<Box<str>>,
    /// How long it stays after it was replaced: never shorter than a lease of its page.
    pub(crate) delay: Duration,
    /// How often its deletion has failed.
    pub(crate) failures: u8,
}

impl ReplacedBody {
    fn bytes(&self) -> usize {
        ENTRY_BYTES + self.pk.len() + self.s3_key.len() + self.token.as_ref().map_or(0, |token| token.len())
    }
}

#[derive(Debug)]
struct Waiting {
    due: Instant,
    body: ReplacedBody,
}

/// The queue that all clones of [`Pages`](crate::Pages) share.
#[derive(Debug)]
pub(crate) struct ReplacedBodies {
    /// How long a body stays at least after it was replaced.
    retention: Duration,
    queue: Mutex<Queue>,
}

#[derive(Debug, Default)]
struct Queue {
    /// In the order in which they were replaced. A body is never due before one that precedes it.
    waiting: VecDeque<Waiting>,
    bytes: usize,
    rejected: u64,
}

impl ReplacedBodies {
    pub(crate) fn new(retention: Duration) -> Self {
        ReplacedBodies { retention, queue: Mutex::default() }
    }

    /// Adds a body that was replaced now, or may have been, unless the queue is full.
    pub(crate) fn add(&self, body: ReplacedBody, now: Instant) {
        let mut queue = self.queue.lock();
        let bytes = queue.bytes + body.bytes();
        if bytes > MAX_BYTES {
            queue.rejected += 1;
            return;
        }
        queue.bytes = bytes;
        let due = now + body.delay;
        let due = queue.waiting.back().map_or(due, |last| last.due.max(due));
        queue.waiting.push_back(Waiting { due, body });
    }

    /// How many bodies were not added since the last call, because the queue was full.
    pub(crate) fn take_rejected(&self) -> u64 {
        std::mem::take(&mut self.queue.lock().rejected)
    }

    /// When the next body is due; `None` if none waits.
    pub(crate) fn next_due(&self) -> Option<Instant> {
        self.queue.lock().waiting.front().map(|next| next.due)
    }

    /// Removes at most this many bodies that are due.
    pub(crate) fn take_due(&self, most: usize, now: Instant) -> Vec<ReplacedBody> {
        let mut queue = self.queue.lock();
        let due = queue.waiting.iter().take(most).take_while(|next| next.due <= now).count();
        let taken: Vec<ReplacedBody> = queue.waiting.drain(..due).map(|waiting| waiting.body).collect();
        queue.bytes -= taken.iter().map(ReplacedBody::bytes).sum::<usize>();
        taken
    }
}

/// The outcomes of replaced bodies.
#[derive(Debug, Default)]
pub(crate) struct ReplacedReport {
    /// Bodies that were deleted.
    pub(crate) deleted: u64,
    /// Bodies that a row names.
    pub(crate) named: u64,
    /// Bodies that are left to the full garbage collection.
    pub(crate) left: u64,
    /// Why a body was not deleted. It waits once more, unless that has happened too often.
    pub(crate) error: Option<Error>,
}

/// A body that a publish has left unused, as far as the publisher knows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Unused<'a> {
    pub(crate) s3_key: &'a str,
    /// Whether a row may name it later: the publish may still be applied, or has been and a rollback may return to it.
    pub(crate) in_doubt: bool,
}

/// The bodies that a publish with this outcome has left unused. `seen` is `META` as it was read before.
///
/// The body of a version is not among them: the row of the version names it.
pub(crate) fn unused<'a>(
    outcome: &Result<Published>,
    page: &'a Generation,
    seen: Option<&'a Meta>,
) -> impl Iterator<Item = Unused<'a>> {
    let is_unchanged = seen.is_some_and(|seen| seen.generation.s3_key == page.s3_key);
    let (is_replaced, is_own_unused) = match outcome {
        Ok(Published::Done) => (true, false),
        Ok(Published::Lost) => (false, true),
        Ok(Published::Superseded) | Err(_) => (true, true),
    };
    let replaced = seen.filter(|seen| is_replaced && seen.current_sk.is_none());
    let own = is_own_unused.then_some(page);
    let bodies = replaced.map(|seen| &seen.generation).into_iter().chain(own).filter(move |_| !is_unchanged);
    let in_doubt = !matches!(outcome, Ok(Published::Done | Published::Lost));
    bodies.map(move |body| Unused { s3_key: &body.s3_key, in_doubt })
}

impl Pages {
    /// Sets how long bodies stay after they were replaced; `None` leaves them all to garbage collection.
    #[must_use]
    pub(crate) fn with_replaced_retention(mut self, retention: Option<Duration>) -> Self {
        self.replaced = retention.map(|retention| Arc::new(ReplacedBodies::new(retention)));
        self
    }

    /// Adds the bodies to the queue that a publish under this lease has left unused.
    pub(crate) fn queue_unused(
        &self,
        lease: &Lease,
        page: &Generation,
        seen: Option<&Meta>,
        outcome: &Result<Published>,
    ) {
        for Unused { s3_key, in_doubt } in unused(outcome, page, seen) {
            self.queue_replaced(lease.page(), s3_key, in_doubt.then(|| lease.token()));
        }
    }

    /// Adds a body of this page to the queue, if its S3 key is one of ours. `token` is that of the lease after whose publish
    /// a row may come to name the body.
    pub(crate) fn queue_replaced(&self, page: &PageKey, s3_key: &str, token: Option<&str>) {
        let Some(replaced) = &self.replaced else { return };
        let directory = page_directory(page.cache_key());
        let is_of_page = |key: &String| {
            S3Key::parse(&self.bodies.prefix, key).is_some_and(|key| key.directory == directory)
        };
        if self.bodies.own_key(s3_key).is_some_and(|key| is_of_page(&key)) {
            let terms = self.store.lease_terms();
            let delay = replaced.retention.max(terms.term().saturating_add(terms.skew));
            let (pk, s3_key, token) = (page.pk().into(), s3_key.into(), token.map(Into::into));
            replaced.add(ReplacedBody { pk, s3_key, token, delay, failures: 0 }, Instant::now());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Kind;

    const MINUTE: Duration = Duration::from_secs(60);

    fn body(number: usize) -> ReplacedBody {
        let s3_key = format!("isr/{number}.html").into();
        ReplacedBody { pk: "CACHE#1".into(), s3_key, token: None, delay: MINUTE, failures: 0 }
    }

    #[test]
    fn a_body_waits_for_its_delay_and_for_those_before_it() {
        let (bodies, now) = (ReplacedBodies::new(MINUTE), Instant::now());
        assert_eq!(bodies.next_due(), None);
        let slow = ReplacedBody { delay: 3 * MINUTE, ..body(2) };
        bodies.add(body(1), now);
        bodies.add(slow.clone(), now);
        bodies.add(body(3), now + MINUTE);
        assert_eq!(bodies.next_due(), Some(now + MINUTE));
        assert_eq!(bodies.take_due(10, now + MINUTE - Duration::from_millis(1)), []);
        assert_eq!(bodies.take_due(10, now + MINUTE), [body(1)]);
        assert_eq!(
            bodies.take_due(10, now + 2 * MINUTE),
            [],
            "the third one is due, and waits behind the second"
        );
        assert_eq!(bodies.take_due(1, now + 3 * MINUTE), [slow]);
        assert_eq!(bodies.take_due(1, now + 3 * MINUTE), [body(3)]);
        assert_eq!((bodies.next_due(), bodies.queue.lock().bytes), (None, 0));
    }

    #[test]
    fn the_bytes_of_the_queue_are_limited_however_long_keys_are() {
        let (bodies, now) = (ReplacedBodies::new(MINUTE), Instant::now());
        let long = ReplacedBody { pk: "k".repeat(2048).into(), ..body(1) };
        let fit = MAX_BYTES / long.bytes();
        (0..fit + 3).for_each(|_| bodies.add(long.clone(), now));
        assert_eq!((bodies.take_rejected(), bodies.take_rejected()), (3, 0));
        assert_eq!(bodies.take_due(1, now + MINUTE).len(), 1);
        bodies.add(long, now);
        assert_eq!(bodies.take_rejected(), 0, "there is room again");
    }

    #[test]
    fn a_publish_leaves_the_body_unused_that_it_replaces_or_that_it_could_not_publish() {
        let (page, seen) = (Generation::new("new", 2, 60), Meta::of(Generation::new("old", 1, 60)));
        let of = |outcome: Result<Published>, seen: Option<&Meta>| -> Vec<(String, bool)> {
            let unused = unused(&outcome, &page, seen);
            unused.map(|unused| (unused.s3_key.to_owned(), unused.in_doubt)).collect()
        };
        let (old, new) = (|in_doubt| ("old".to_owned(), in_doubt), |in_doubt| ("new".to_owned(), in_doubt));
        let unknown = || Err(Error::new(Kind::Unknown, "no response"));
        assert_eq!(of(Ok(Published::Done), Some(&seen)), [old(false)]);
        assert_eq!(of(Ok(Published::Done), None), []);
        assert_eq!(of(Ok(Published::Lost), Some(&seen)), [new(false)]);
        assert_eq!(of(Ok(Published::Superseded), Some(&seen)), [old(true), new(true)]);
        assert_eq!(of(unknown(), Some(&seen)), [old(true), new(true)]);
        let version = Meta { current_sk: Some("VER#1".into()), ..seen };
        assert_eq!(of(Ok(Published::Done), Some(&version)), [], "the row of the version names it");
        let unchanged = Meta::of(page.clone());
        for outcome in [Ok(Published::Done), Ok(Published::Lost), unknown()] {
            assert_eq!(of(outcome, Some(&unchanged)), [], "an unchanged page stored no body");
        }
    }
}
