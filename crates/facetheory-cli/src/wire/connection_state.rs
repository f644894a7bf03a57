//! The state that the stream of an HTTP/1 connection shares with the service that responds on it.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering::Relaxed};
use std::task::Waker;
use std::time::Duration;

use http::{HeaderMap, Method};
use parking_lot::Mutex;

use super::informational::InformationalQueue;
use super::rejection::{RejectedRequest, Rejection, is_substitute};
use super::slow_client::{TimeoutClock, time_between};

/// The state that a [`CheckedStream`](super::stream::CheckedStream) shares with the service of its connection.
#[derive(Debug)]
pub(crate) struct ConnectionState {
    clock: TimeoutClock,
    expected: ExpectedSince,
    /// One more than the tick in which the socket first did not take a write, or 0 if it has taken one since.
    write_stalled: AtomicU32,
    /// How long the socket may take nothing, in microseconds.
    write_time_left: AtomicU64,
    /// How many requests hyper or the fast path was given.
    delivered: AtomicU32,
    /// How many of those have a complete response.
    completed: AtomicU32,
    /// When a response was last completed, or a stalled write went on.
    quiet_since: AtomicU32,
    upgrade: Mutex<Upgrade>,
    rejection: Mutex<Option<(Rejection, RejectedRequest)>>,
    pub(super) informational: InformationalQueue,
    /// Wakes the task of the connection.
    pub(super) waker: Mutex<Option<Waker>>,
}

/// Whether the connection leaves HTTP after a request with an `Upgrade` header.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Upgrade {
    /// No request that waits for a decision has an `Upgrade` header.
    #[default]
    None,
    /// The stream holds back the bytes after the request until the service decides.
    Requested,
    Declined,
    Accepted,
}

/// For the service.
impl ConnectionState {
    /// Marks a request as active until the returned guard is dropped, with the end of the response body.
    ///
    /// Every request needs a guard, including rejected ones: a connection is idle once as many responses are complete as
    /// requests were delivered.
    pub(crate) fn begin_request(self: &Arc<Self>) -> ActiveRequest {
        ActiveRequest(self.clone())
    }

    /// The rejection to respond with, if hyper read the substitute of a rejected request.
    pub(crate) fn rejected(
        &self,
        method: &Method,
        headers: &HeaderMap,
    ) -> Option<(Rejection, RejectedRequest)> {
        is_substitute(method, headers).then(|| self.rejection.lock().clone()).flatten()
    }

    /// Why a request or the rest of a body was rejected. If a request body fails and there is a rejection, the client
    /// caused the failure and gets this rejection as the response.
    pub(crate) fn rejection(&self) -> Option<Rejection> {
        self.rejection.lock().as_ref().map(|(rejection, _)| *rejection)
    }

    /// Turns the connection into a tunnel after the current request: bytes are no longer checked. Call this before a 101
    /// response. Returns false if the client has not requested an upgrade; then a 101 response is not allowed.
    #[must_use]
    pub(crate) fn accept_upgrade(&self) -> bool {
        self.decide_upgrade(Upgrade::Accepted)
    }

    /// Returns false if no request waits for a decision.
    fn decide_upgrade(&self, decision: Upgrade) -> bool {
        let mut upgrade = self.upgrade.lock();
        if *upgrade != Upgrade::Requested {
            return false;
        }
        *upgrade = decision;
        drop(upgrade);
        self.wake();
        true
    }
}

/// For the stream.
impl ConnectionState {
    /// The state of a new connection.
    pub(super) fn new(clock: TimeoutClock) -> Self {
        let now = clock.now();
        let write_time_left = AtomicU64::new(micros(clock.timeouts.write.grace));
        ConnectionState {
            write_time_left,
            clock,
            expected: ExpectedSince::new(Expected::Request, now),
            write_stalled: AtomicU32::new(0),
            delivered: AtomicU32::new(0),
            completed: AtomicU32::new(0),
            quiet_since: AtomicU32::new(now),
            upgrade: Mutex::default(),
            rejection: Mutex::default(),
            informational: InformationalQueue::default(),
            waker: Mutex::default(),
        }
    }

    /// Counts requests that are given to hyper or to the fast path.
    pub(super) fn deliver(&self, requests: u32) {
        // Only the stream writes this counter.
        self.delivered.store(self.delivered.load(Relaxed).wrapping_add(requests), Relaxed);
    }

    /// Sets the part of a request that the client has to send next. The timeout of a head runs from its first byte on, the timeout of a body
    /// from the last time there was nothing to read.
    pub(super) fn expect(&self, expected: Expected) {
        self.expected.set(expected, self.clock.now());
    }

    /// Whether the connection has switched to another protocol.
    pub(super) fn is_tunnel(&self) -> bool {
        self.expected.get().0 == Expected::Nothing
    }

    /// The socket did not take a write.
    pub(super) fn write_stalled(&self) {
        if self.write_stalled.load(Relaxed) == 0 {
            self.write_stalled.store(self.clock.now().wrapping_add(1), Relaxed);
        }
    }

    /// The socket took this many bytes.
    pub(super) fn write_resumed(&self, bytes: u64) {
        let (since, left, rate) =
            (self.write_stalled.load(Relaxed), self.write_time_left(), &self.clock.timeouts.write);
        if since == 0 && left == rate.grace {
            return;
        }
        let mut waited = Duration::ZERO;
        if since != 0 {
            let now = self.clock.now();
            waited = time_between(since.wrapping_sub(1), now);
            self.quiet_since.store(now, Relaxed);
            self.write_stalled.store(0, Relaxed);
        }
        self.write_time_left.store(micros(rate.time_left(left, waited, bytes)), Relaxed);
    }

    fn write_time_left(&self) -> Duration {
        Duration::from_micros(self.write_time_left.load(Relaxed))
    }

    /// The part of a request that the client should have sent by now, if its timeout has passed.
    pub(super) fn overdue(&self) -> Option<Expected> {
        let ((expected, since), timeouts) = (self.expected.get(), &self.clock.timeouts);
        let (since, timeout) = match expected {
            Expected::Head => (since, timeouts.head),
            Expected::Body => (since, timeouts.body),
            Expected::Request if self.is_idle() && self.write_stalled.load(Relaxed) == 0 => {
                (since.max(self.quiet_since.load(Relaxed)), timeouts.idle)
            }
            Expected::Request | Expected::Nothing => return None,
        };
        self.clock.is_past(since, timeout).then_some(expected)
    }

    /// Whether the write timeout has passed: the client does not read its response, or reads it too slowly.
    pub(super) fn is_write_overdue(&self) -> bool {
        let since = self.write_stalled.load(Relaxed);
        since != 0 && self.clock.is_past(since.wrapping_sub(1), self.write_time_left())
    }

    /// A response is complete.
    pub(super) fn complete_request(&self) {
        self.quiet_since.store(self.clock.now(), Relaxed);
        self.completed.fetch_add(1, Relaxed);
    }

    /// Whether all responses are complete. Bytes that hyper has accepted may still be unsent.
    pub(super) fn is_idle(&self) -> bool {
        self.delivered.load(Relaxed) == self.completed.load(Relaxed)
    }

    /// Records why a request or the rest of a body is rejected, and the request for the log. The first rejection counts.
    pub(super) fn reject(&self, rejection: Rejection, request: RejectedRequest) {
        self.rejection.lock().get_or_insert((rejection, request));
    }

    /// Lets the service decide whether the connection switches protocols.
    pub(super) fn request_upgrade(&self) {
        *self.upgrade.lock() = Upgrade::Requested;
    }

    /// The decision of the service, or whether there is one to be made. A decision is returned once.
    pub(super) fn take_upgrade(&self) -> Upgrade {
        let mut upgrade = self.upgrade.lock();
        if *upgrade == Upgrade::Requested { Upgrade::Requested } else { std::mem::take(&mut *upgrade) }
    }

    /// Wakes the task of the connection.
    pub(super) fn wake(&self) {
        let waker = self.waker.lock().clone();
        if let Some(waker) = waker {
            waker.wake();
        }
    }

    /// The connection is closed: nothing more is written.
    pub(super) fn close(&self) {
        self.informational.close();
        *self.waker.lock() = None;
    }
}

fn micros(duration: Duration) -> u64 {
    u64::try_from(duration.as_micros()).unwrap_or(u64::MAX)
}

/// A request whose response is not complete. Dropping it completes the response.
#[derive(Debug)]
pub(crate) struct ActiveRequest(Arc<ConnectionState>);

impl Drop for ActiveRequest {
    fn drop(&mut self) {
        self.0.complete_request();
        // An upgrade can only be requested by the last request, so it was this one, and the service did not accept.
        if self.0.is_idle() {
            self.0.decide_upgrade(Upgrade::Declined);
        }
    }
}

/// The part of a request that the client has to send next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Expected {
    /// A request, of which nothing has arrived.
    Request,
    /// The rest of a request head.
    Head,
    /// The rest of a request body.
    Body,
    /// Nothing: the connection is a tunnel.
    Nothing,
}

/// An [`Expected`] and the tick since when it is expected. One word, so that no reader sees one without the other. Relaxed
/// ordering is enough: it is compared with itself only, or read by the ticker, which reads again a moment later.
#[derive(Debug)]
pub(super) struct ExpectedSince(AtomicU64);

impl ExpectedSince {
    pub(super) fn new(expected: Expected, tick: u32) -> Self {
        ExpectedSince(AtomicU64::new(Self::pack(expected, tick)))
    }

    const fn pack(expected: Expected, tick: u32) -> u64 {
        (expected as u64) << 32 | tick as u64
    }

    pub(super) fn get(&self) -> (Expected, u32) {
        let word = self.0.load(Relaxed);
        let expected = match word >> 32 {
            0 => Expected::Request,
            1 => Expected::Head,
            2 => Expected::Body,
            _ => Expected::Nothing,
        };
        #[expect(clippy::cast_possible_truncation, reason = "the lower half is the tick")]
        (expected, word as u32)
    }

    /// Changes the expected part. The tick stays if the part does not change.
    pub(super) fn set(&self, expected: Expected, now: u32) {
        if self.0.load(Relaxed) >> 32 != expected as u64 {
            self.0.store(Self::pack(expected, now), Relaxed);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::slow_client::ClientTimeouts;
    use super::*;

    #[test]
    fn an_upgrade_is_decided_once_and_only_if_requested() {
        let clock = TimeoutClock { clock: Arc::default(), timeouts: ClientTimeouts::default() };
        let state = ConnectionState::new(clock);
        assert!(!state.accept_upgrade());
        state.request_upgrade();
        assert_eq!(state.take_upgrade(), Upgrade::Requested);
        assert!(state.accept_upgrade());
        assert!(!state.decide_upgrade(Upgrade::Declined), "it is decided once");
        assert_eq!(state.take_upgrade(), Upgrade::Accepted);
        assert!(!state.accept_upgrade());
    }

    #[test]
    fn every_expected_state_is_read_as_it_was_written() {
        let cell = ExpectedSince::new(Expected::Request, 3);
        for expected in [Expected::Head, Expected::Body, Expected::Nothing, Expected::Request] {
            cell.set(expected, u32::MAX);
            assert_eq!(cell.get(), (expected, u32::MAX));
            cell.set(expected, 9);
            assert_eq!(cell.get(), (expected, u32::MAX), "the wait began earlier");
        }
    }
}
