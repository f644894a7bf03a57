//! One budget for the bytes of all bodies in this process: pages in memory, renders that are being read, pages that are being
//! compressed, and responses that their clients have not read yet.
//!
//! A body in memory carries its [`MemoryPermit`] and gives it back when the last user drops it. So a page that was evicted counts
//! for as long as one slow client is still reading it. Whoever wants to read another body needs a permit first. If the budget
//! is full, it waits for a moment without holding any bytes, and then does without: the response is passed through.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use bytes::Bytes;
use metrics::{Counter, counter};
use tokio::sync::{Notify, Semaphore};
use tokio::time::Instant;

/// The longest wait for a permit.
const MAX_WAIT: Duration = Duration::from_millis(500);
/// The most bodies that wait for a permit. Further ones get none at once.
const MAX_WAITING: usize = 64;

/// The budget, and how much of it is used.
#[derive(Debug)]
pub(crate) struct MemoryBudget {
    limit: u64,
    used: AtomicU64,
    /// Permits to wait.
    waiting: Semaphore,
    /// Notified when a permit is given back.
    released: Notify,
    waits: Counter,
}

/// Bytes of the budget, which are given back when this is dropped.
#[derive(Debug)]
pub(crate) struct MemoryPermit {
    budget: Arc<MemoryBudget>,
    bytes: u64,
}

impl MemoryBudget {
    pub(crate) fn new(limit: u64) -> Arc<Self> {
        Arc::new(MemoryBudget {
            limit,
            used: AtomicU64::new(0),
            waiting: Semaphore::new(MAX_WAITING),
            released: Notify::new(),
            waits: counter!("facetheory_memory_waits_total"),
        })
    }

    /// The bytes that are used. They exceed the limit only by bodies that a renderer has made in memory by itself.
    pub(crate) fn used(&self) -> u64 {
        self.used.load(Relaxed)
    }

    pub(crate) fn limit(&self) -> u64 {
        self.limit
    }

    /// Returns a permit if that many bytes are free.
    pub(crate) fn try_acquire(self: &Arc<Self>, bytes: u64) -> Option<MemoryPermit> {
        let with_these = |used: u64| used.checked_add(bytes).filter(|used| *used <= self.limit);
        self.used.fetch_update(Relaxed, Relaxed, with_these).ok()?;
        Some(MemoryPermit { budget: self.clone(), bytes })
    }

    /// Returns a permit, and waits for it if necessary and possible. The caller must not hold another permit meanwhile, so that
    /// no two callers wait for each other.
    pub(crate) async fn acquire(self: &Arc<Self>, bytes: u64) -> Option<MemoryPermit> {
        if let Some(permit) = self.try_acquire(bytes) {
            return Some(permit);
        }
        let _waiting = if bytes <= self.limit { self.waiting.try_acquire().ok()? } else { return None };
        self.waits.increment(1);
        let deadline = Instant::now() + MAX_WAIT;
        loop {
            let mut released = std::pin::pin!(self.released.notified());
            // A permit that is given back from here on is noticed.
            released.as_mut().enable();
            if let Some(permit) = self.try_acquire(bytes) {
                return Some(permit);
            }
            tokio::time::timeout_at(deadline, released).await.ok()?;
        }
    }

    /// Counts bytes that are in memory already.
    pub(crate) fn count(self: &Arc<Self>, bytes: u64) -> MemoryPermit {
        self.used.fetch_add(bytes, Relaxed);
        MemoryPermit { budget: self.clone(), bytes }
    }

    /// Counts a body that is in memory already. It is copied unless it has a buffer of its own: a body that was read from a
    /// connection is often a slice of a larger buffer, and would keep all of that in memory.
    pub(crate) fn count_body(self: &Arc<Self>, body: Bytes) -> Bytes {
        let mut bytes = Vec::from(body);
        bytes.shrink_to_fit();
        self.count(bytes.len() as u64).attach(bytes)
    }
}

impl MemoryPermit {
    /// Gives back all but this many bytes.
    pub(crate) fn shrink(&mut self, bytes: u64) {
        let unused = self.bytes.saturating_sub(bytes);
        self.bytes -= unused;
        self.budget.release(unused);
    }

    /// Ties the permit to the bytes that it is for.
    pub(crate) fn attach(mut self, bytes: Vec<u8>) -> Bytes {
        self.shrink(bytes.capacity() as u64);
        if bytes.is_empty() { Bytes::new() } else { Bytes::from_owner(CountedBytes { bytes, _permit: self }) }
    }
}

impl MemoryBudget {
    fn release(&self, bytes: u64) {
        self.used.fetch_sub(bytes, Relaxed);
        self.released.notify_waiters();
    }
}

impl Drop for MemoryPermit {
    fn drop(&mut self) {
        self.budget.release(self.bytes);
    }
}

/// A body with its permit.
struct CountedBytes {
    bytes: Vec<u8>,
    _permit: MemoryPermit,
}

/// The size of a counted body besides its bytes: its buffer and permit, and the reference count.
pub(super) const COUNTED_BYTES_OVERHEAD: usize = size_of::<CountedBytes>() + 2 * size_of::<usize>();

impl AsRef<[u8]> for CountedBytes {
    fn as_ref(&self) -> &[u8] {
        &self.bytes
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_body_counts_until_its_last_user_drops_it() {
        let budget = MemoryBudget::new(100);
        let body = budget.try_acquire(80).expect("80 of 100 bytes").attach(b"sixty".to_vec());
        assert_eq!(budget.used(), 5, "the permit shrinks to the buffer");
        let slice = body.slice(1..2);
        drop(body);
        assert_eq!(budget.used(), 5, "a part of it is still used");
        assert!(budget.try_acquire(96).is_none());
        drop(slice);
        assert_eq!(budget.used(), 0);
        assert!(budget.try_acquire(96).is_some());
    }

    #[test]
    fn a_body_that_is_there_counts_even_if_it_exceeds_the_budget() {
        let budget = MemoryBudget::new(3);
        let read = Bytes::from(vec![b'x'; 1000]);
        let body = budget.count_body(read.slice(..4));
        assert_eq!((&*body, budget.used()), (&b"xxxx"[..], 4));
        assert!(budget.try_acquire(0).is_none());
    }

    #[tokio::test(start_paused = true)]
    async fn a_caller_waits_for_bytes_that_are_given_back_and_only_so_long() {
        let budget = MemoryBudget::new(100);
        let first = budget.try_acquire(60).expect("60 of 100 bytes");
        let start = Instant::now();
        assert!(budget.acquire(50).await.is_none());
        assert_eq!(start.elapsed(), MAX_WAIT);
        let (permit, ()) = tokio::join!(budget.acquire(50), async { drop(first) });
        assert!(permit.is_some());
        assert_eq!(start.elapsed(), MAX_WAIT, "the bytes were given back at once");
    }

    #[tokio::test(start_paused = true)]
    async fn what_can_never_fit_and_those_after_a_full_queue_do_not_wait() {
        let (budget, start) = (MemoryBudget::new(100), Instant::now());
        assert!(budget.acquire(101).await.is_none());
        assert_eq!(start.elapsed(), Duration::ZERO, "it never fits");
        let _all = budget.count(100);
        let waiting: Vec<_> = (0..MAX_WAITING)
            .map(|_| {
                let budget = budget.clone();
                tokio::spawn(async move { budget.acquire(1).await.is_some() })
            })
            .collect();
        // Less than they wait.
        tokio::time::sleep(MAX_WAIT / 2).await;
        let start = Instant::now();
        assert!(budget.acquire(1).await.is_none(), "too many wait already");
        assert_eq!(start.elapsed(), Duration::ZERO);
        for waiter in waiting {
            assert!(!waiter.await.expect("no panic"));
        }
    }
}
