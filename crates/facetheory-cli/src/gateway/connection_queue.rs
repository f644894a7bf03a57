//! The limit on connections to the origin, and the queue of the requests that wait for one.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::time::Duration;

use metrics::counter;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::Instant;

/// The part of the connections, and of the places in the queue, for requests whose body is still arriving: a half. A client
/// that sends slowly holds a connection for as long as it likes, so such clients must not hold all of them.
const UPLOAD_SHARE: usize = 2;

/// Lets a limited number of requests use a connection to the origin at the same time. The others wait in order of arrival.
#[derive(Debug)]
pub(crate) struct ConnectionQueue {
    all: Places,
    uploads: Places,
    timeout: Duration,
}

/// Permits, and a limit on how many requests may wait for one.
#[derive(Debug)]
struct Places {
    permits: Arc<Semaphore>,
    max: usize,
    waiting: AtomicUsize,
    max_waiting: usize,
}

/// The permit to use one connection to the origin, returned when it is dropped.
#[derive(Debug)]
pub(crate) struct ConnectionPermit {
    _any: OwnedSemaphorePermit,
    _upload: Option<OwnedSemaphorePermit>,
}

/// Why a request did not get a connection to the origin.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Busy {
    /// Too many requests wait already.
    QueueFull,
    /// The request has waited too long.
    QueueTimeout,
}

impl ConnectionQueue {
    /// A queue for this many connections. Further requests wait, at most `max_waiting` of them and no longer than `timeout`.
    pub(crate) fn new(connections: usize, max_waiting: usize, timeout: Duration) -> Self {
        let connections = connections.min(Semaphore::MAX_PERMITS);
        let uploads = Places::new(connections.div_ceil(UPLOAD_SHARE), max_waiting.div_ceil(UPLOAD_SHARE));
        ConnectionQueue { all: Places::new(connections, max_waiting), uploads, timeout }
    }

    /// Waits for a permit. `is_upload` is for requests whose body has not arrived completely.
    pub(crate) async fn acquire(&self, is_upload: bool) -> Result<ConnectionPermit, Busy> {
        let deadline = Instant::now() + self.timeout;
        let acquired = async {
            let upload = if is_upload { Some(self.uploads.acquire(deadline).await?) } else { None };
            Ok(ConnectionPermit { _any: self.all.acquire(deadline).await?, _upload: upload })
        };
        acquired.await.inspect_err(|busy| {
            let reason = match busy {
                Busy::QueueFull => "queue-full",
                Busy::QueueTimeout => "queue-timeout",
            };
            counter!("facetheory_gateway_origin_queue_rejected_total", "reason" => reason).increment(1);
        })
    }

    /// The number of connections in use.
    pub(crate) fn in_use(&self) -> usize {
        self.all.max - self.all.permits.available_permits()
    }

    /// The number of requests that wait for a connection.
    pub(crate) fn waiting(&self) -> usize {
        self.all.waiting.load(Relaxed) + self.uploads.waiting.load(Relaxed)
    }
}

impl Places {
    fn new(max: usize, max_waiting: usize) -> Self {
        Places { permits: Arc::new(Semaphore::new(max)), max, waiting: AtomicUsize::new(0), max_waiting }
    }

    async fn acquire(&self, deadline: Instant) -> Result<OwnedSemaphorePermit, Busy> {
        // Never overtakes: a permit that is returned goes to the request that waits longest.
        if let Ok(permit) = self.permits.clone().try_acquire_owned() {
            return Ok(permit);
        }
        let _waiting = Waiting::count(&self.waiting, self.max_waiting).ok_or(Busy::QueueFull)?;
        match tokio::time::timeout_at(deadline, self.permits.clone().acquire_owned()).await {
            Ok(Ok(permit)) => Ok(permit),
            // The semaphore is never closed.
            Ok(Err(_)) | Err(_) => Err(Busy::QueueTimeout),
        }
    }
}

/// Counts a request that waits, until it is dropped: its client may leave at any time.
struct Waiting<'a>(&'a AtomicUsize);

impl<'a> Waiting<'a> {
    fn count(waiting: &'a AtomicUsize, max: usize) -> Option<Self> {
        let counted = waiting.fetch_update(Relaxed, Relaxed, |count| (count < max).then_some(count + 1));
        counted.is_ok().then(|| Waiting(waiting))
    }
}

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use std::pin::pin;

    use futures_util::FutureExt as _;

    use super::*;

    const TIMEOUT: Duration = Duration::from_secs(5);

    #[tokio::test(start_paused = true)]
    async fn requests_wait_in_order_until_a_connection_is_free() {
        let queue = ConnectionQueue::new(1, 2, TIMEOUT);
        let first = queue.acquire(false).await.expect("a connection");
        let (mut second, mut third) = (pin!(queue.acquire(false)), pin!(queue.acquire(false)));
        assert!(second.as_mut().now_or_never().is_none() && third.as_mut().now_or_never().is_none());
        assert_eq!((queue.in_use(), queue.waiting()), (1, 2));
        assert_eq!(queue.acquire(false).await.expect_err("a full queue"), Busy::QueueFull);
        drop(first);
        assert!(third.as_mut().now_or_never().is_none(), "the second request is before it");
        let second = second.await.expect("a connection");
        assert_eq!((queue.in_use(), queue.waiting()), (1, 1));
        drop(second);
        third.await.expect("a connection");
        assert_eq!((queue.in_use(), queue.waiting()), (0, 0));
    }

    #[tokio::test(start_paused = true)]
    async fn no_request_waits_longer_than_the_timeout() {
        let queue = ConnectionQueue::new(1, 1, TIMEOUT);
        let _held = queue.acquire(false).await.expect("a connection");
        let began = Instant::now();
        assert_eq!(queue.acquire(false).await.expect_err("no connection"), Busy::QueueTimeout);
        assert_eq!((began.elapsed(), queue.waiting()), (TIMEOUT, 0));
    }

    #[tokio::test(start_paused = true)]
    async fn a_client_that_leaves_the_queue_makes_room_for_another() {
        let queue = ConnectionQueue::new(1, 1, TIMEOUT);
        let held = queue.acquire(false).await.expect("a connection");
        let mut left = Box::pin(queue.acquire(false));
        assert!(left.as_mut().now_or_never().is_none());
        drop(left);
        let mut next = pin!(queue.acquire(false));
        assert!(next.as_mut().now_or_never().is_none(), "it waits");
        drop(held);
        next.await.expect("a connection");
    }

    #[tokio::test(start_paused = true)]
    async fn uploads_use_at_most_half_of_the_connections_and_of_the_queue() {
        let queue = ConnectionQueue::new(4, 4, TIMEOUT);
        let _uploads = [queue.acquire(true).await, queue.acquire(true).await];
        let mut waiting = [Box::pin(queue.acquire(true)), Box::pin(queue.acquire(true))];
        assert!(waiting.iter_mut().all(|upload| upload.now_or_never().is_none()));
        assert_eq!(queue.acquire(true).await.expect_err("too many uploads"), Busy::QueueFull);
        assert!(queue.acquire(false).await.is_ok(), "other requests have the other half");
    }
}
