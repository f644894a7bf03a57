//! What a connection and the service that answers it tell each other.

use std::sync::atomic::{AtomicU8, AtomicU32, AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::Waker;

use http::{HeaderMap, Method};

use super::informational::{InformationalQueue, InformationalResponse, InformationalWindow};
use super::rejected_request::RejectedRequest;
use super::rejection::{Rejection, is_substitute};
use super::scanner::Pause;
use super::timeouts::{Overdue, TimeoutTicks};

/// The state that a [`CheckedStream`](super::CheckedStream) shares with the service of its connection.
///
/// What is counted and timed here is only ever compared with itself or read by the ticker, which comes again: relaxed
/// stores are enough, and they cost nothing.
#[derive(Debug)]
pub(crate) struct ConnectionState {
    terms: TimeoutTicks,
    /// What the wire waits for, and since when: a [`Pause`] in the upper half and a tick in the lower.
    pause: AtomicU64,
    /// When a write was first turned away, as a tick plus one; zero if it was not.
    blocked: AtomicU32,
    delivered: AtomicU32,
    answered: AtomicU32,
    /// At which tick an answer last ended, or was last taken by the client after it had not been.
    quiet_since: AtomicU32,
    /// A [`Decision`].
    decision: AtomicU8,
    rejection: Mutex<Option<(Rejection, RejectedRequest)>>,
    pub(super) interims: InformationalQueue,
    waker: Mutex<Option<Waker>>,
}

/// Whether the connection goes on with HTTP after a request that asked for another protocol.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(super) enum Decision {
    /// Nobody has asked.
    None,
    /// The wire holds back what comes until it is told.
    Asked,
    Stay,
    Tunnel,
}

/// Stands in `pause` where a [`Pause`] does otherwise: in a tunnel nothing is waited for.
const TUNNEL: u64 = 3;

/// For the service.
impl ConnectionState {
    /// Says that a request is being answered, until what is returned is dropped: with the end of the response's body.
    ///
    /// Every request of the connection needs one, also one that is refused: a connection is idle once as many
    /// answers have ended as requests were delivered.
    pub(crate) fn answering(self: &Arc<Self>) -> ActiveRequest {
        ActiveRequest { state: self.clone() }
    }

    /// What to answer, if this is the request that stands in for one that was refused, and what that asked for.
    pub(crate) fn refused(
        &self,
        method: &Method,
        headers: &HeaderMap,
    ) -> Option<(Rejection, RejectedRequest)> {
        is_substitute(method, headers).then(|| lock(&self.rejection).clone()).flatten()
    }

    /// Why a request, or the rest of a body, was refused. A body that fails for this reason does so by the client's
    /// fault, and this is what to answer.
    pub(crate) fn rejection(&self) -> Option<Rejection> {
        lock(&self.rejection).as_ref().map(|(rejection, _)| *rejection)
    }

    /// Says that an answer is being made whose head is not there yet, until what is returned is dropped: interim answers may
    /// come before it.
    pub(crate) fn informational(self: &Arc<Self>) -> InformationalWindow {
        InformationalWindow::begin(self)
    }

    /// After the request that asked for another protocol, all bytes go through as they are, both ways. To be said
    /// before a 101 is returned; `false` means that the client has not asked, and that no 101 may be.
    #[must_use]
    pub(crate) fn tunnel(&self) -> bool {
        self.decide(Decision::Tunnel)
    }

    /// After the request that asked for another protocol, HTTP goes on. Said by itself when its answer ends.
    pub(crate) fn stay(&self) -> bool {
        self.decide(Decision::Stay)
    }

    fn decide(&self, decision: Decision) -> bool {
        let asked = Decision::Asked as u8;
        // What was held back is guarded by the wire's own state; this says only which way to go.
        let is_decided = self.decision.compare_exchange(asked, decision as u8, Relaxed, Relaxed).is_ok();
        if is_decided {
            self.wake();
        }
        is_decided
    }
}

/// For the wire.
impl ConnectionState {
    /// A connection that has just begun.
    pub(super) fn new(terms: TimeoutTicks) -> Self {
        let now = terms.now();
        ConnectionState {
            terms,
            pause: AtomicU64::new(u64::from(now)),
            blocked: AtomicU32::new(0),
            delivered: AtomicU32::new(0),
            answered: AtomicU32::new(0),
            quiet_since: AtomicU32::new(now),
            decision: AtomicU8::new(Decision::None as u8),
            rejection: Mutex::default(),
            interims: InformationalQueue::default(),
            waker: Mutex::default(),
        }
    }

    /// So many more requests are given to hyper, or answered from the shelf.
    pub(super) fn deliver(&self, heads: u32) {
        // Only the wire writes it.
        self.delivered.store(self.delivered.load(Relaxed).wrapping_add(heads), Relaxed);
    }

    /// Says what the client has to send next. A head is waited for from its first byte on, a body from the last moment
    /// at which there was something to read.
    pub(super) fn wait_for(&self, pause: Pause) {
        let kind = pause as u64;
        if self.pause.load(Relaxed) >> 32 != kind {
            self.pause.store(kind << 32 | u64::from(self.terms.now()), Relaxed);
        }
    }

    /// The connection is no longer one of HTTP: the client may be silent.
    pub(super) fn wait_for_nothing(&self) {
        self.pause.store(TUNNEL << 32, Relaxed);
    }

    /// A write was turned away.
    pub(super) fn block(&self) {
        self.blocked.store(self.terms.now().wrapping_add(1), Relaxed);
    }

    /// A write was accepted.
    pub(super) fn unblock(&self) {
        self.quiet_since.store(self.terms.now(), Relaxed);
        self.blocked.store(0, Relaxed);
    }

    /// What the client should have sent by now.
    pub(super) fn overdue(&self) -> Option<Overdue> {
        let pause = self.pause.load(Relaxed);
        let since = u32::try_from(pause & u64::from(u32::MAX)).unwrap_or(0);
        let is_past = |since, limit| self.terms.is_past(since, limit);
        const HEAD: u64 = Pause::Head as u64;
        const BODY: u64 = Pause::Body as u64;
        const BETWEEN: u64 = Pause::Between as u64;
        match pause >> 32 {
            HEAD => is_past(since, self.terms.head).then_some(Overdue::Head),
            BODY => is_past(since, self.terms.body).then_some(Overdue::Body),
            BETWEEN if self.is_answered() && self.blocked.load(Relaxed) == 0 => {
                let since = since.max(self.quiet_since.load(Relaxed));
                is_past(since, self.terms.idle).then_some(Overdue::Request)
            }
            _ => None,
        }
    }

    /// Whether the client should have taken by now what is written to it.
    pub(super) fn is_stuck(&self) -> bool {
        let blocked = self.blocked.load(Relaxed);
        blocked != 0 && self.terms.is_past(blocked.wrapping_sub(1), self.terms.write)
    }

    /// A request was answered.
    pub(super) fn answer(&self) {
        self.quiet_since.store(self.terms.now(), Relaxed);
        self.answered.fetch_add(1, Relaxed);
    }

    /// Nothing is being answered. What hyper has been given may still be on its way to the client.
    pub(super) fn is_answered(&self) -> bool {
        self.delivered.load(Relaxed) == self.answered.load(Relaxed)
    }

    /// Notes why a request, or the rest of a body, is refused, and what the request asked for.
    pub(super) fn refuse(&self, rejection: Rejection, seen: RejectedRequest) {
        lock(&self.rejection).get_or_insert((rejection, seen));
    }

    /// What comes next may not be HTTP: asks the service.
    pub(super) fn ask(&self) {
        self.decision.store(Decision::Asked as u8, Relaxed);
    }

    /// What the service has decided. An answer is given once.
    pub(super) fn decision(&self) -> Decision {
        const STAY: u8 = Decision::Stay as u8;
        const TUNNEL: u8 = Decision::Tunnel as u8;
        let decision = match self.decision.load(Relaxed) {
            STAY => Decision::Stay,
            TUNNEL => Decision::Tunnel,
            _ => return Decision::Asked,
        };
        self.decision.store(Decision::None as u8, Relaxed);
        decision
    }

    /// The next interim answer that somebody still waits for.
    pub(super) fn next_interim(&self) -> Option<InformationalResponse> {
        self.interims.next()
    }

    /// Remembers whom to wake.
    pub(super) fn register(&self, waker: Waker) {
        *lock(&self.waker) = Some(waker);
    }

    /// Wakes the connection's task.
    pub(super) fn wake(&self) {
        let waker = lock(&self.waker).clone();
        if let Some(waker) = waker {
            waker.wake();
        }
    }

    /// Nobody waits any longer for what can no longer be written.
    pub(super) fn end(&self) {
        self.interims.end_all();
        *lock(&self.waker) = None;
    }
}

/// A request that is being answered.
#[derive(Debug)]
pub(crate) struct ActiveRequest {
    state: Arc<ConnectionState>,
}

impl Drop for ActiveRequest {
    fn drop(&mut self) {
        let state = &self.state;
        state.answer();
        // It was the last request, so if one has asked for another protocol it was this, and it was not given.
        if state.decision.load(Relaxed) == Decision::Asked as u8 && state.is_answered() {
            state.stay();
        }
    }
}

pub(super) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // What is guarded is whole at any moment, so a poisoned lock guards nothing broken.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::super::ClientTimeouts;
    use super::*;

    fn state() -> ConnectionState {
        ConnectionState::new(TimeoutTicks::new(Arc::default(), &ClientTimeouts::default()))
    }

    #[test]
    fn nobody_decides_what_nobody_has_asked() {
        let state = state();
        assert!(!state.tunnel());
        state.ask();
        assert_eq!(state.decision(), Decision::Asked);
        assert!(state.tunnel());
        assert!(!state.stay(), "it is decided once");
        assert_eq!(state.decision(), Decision::Tunnel);
        assert!(!state.tunnel());
    }
}
