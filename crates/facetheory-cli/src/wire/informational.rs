//! Interim answers: what may be said before the head of an answer, and never later.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Arc, Mutex};

use bytes::Bytes;
use http::Version;
use tokio::sync::oneshot;

use super::connection_state::{ConnectionState, lock};

/// How many interim answers wait to be written at most; more are dropped.
const MAX_INTERIMS: usize = 16;

/// The time before the head of an answer, while its visitor may be told something. It ends when this is dropped, which has to
/// be before the head is given to hyper: what was not written by then never is, or it would stand in the middle of an answer.
#[derive(Debug)]
pub(crate) struct InformationalWindow {
    state: Arc<ConnectionState>,
    number: u64,
}

/// Whoever may send interim answers during a informational, and nothing once that has ended.
#[derive(Clone, Debug)]
pub(crate) struct InformationalSender {
    state: Arc<ConnectionState>,
    number: u64,
}

impl InformationalWindow {
    /// The informational to the next answer of a connection, which gives its answers one after the other.
    pub(super) fn begin(state: &Arc<ConnectionState>) -> Self {
        InformationalWindow { state: state.clone(), number: state.interims.begin() }
    }

    /// Who may speak in it.
    pub(crate) fn sender(&self) -> InformationalSender {
        InformationalSender { state: self.state.clone(), number: self.number }
    }
}

impl Drop for InformationalWindow {
    fn drop(&mut self) {
        self.state.interims.end(self.number);
    }
}

impl InformationalSender {
    /// Sends an interim answer, such as `103 Early Hints`, whole with its empty line; returns once it is on its way, or is not
    /// going to be.
    ///
    /// The final answer has to wait for that, or it would come first. Nothing is sent to clients before HTTP/1.1,
    /// which do not know of interim answers. hyper's `pipeline_flush` has to be off: it does not flush while further
    /// requests are there, and this waits for it to flush.
    pub(crate) async fn send(&self, version: Version, bytes: Bytes) {
        if version < Version::HTTP_11 {
            return;
        }
        let Some(is_written) = self.state.interims.push(self.number, bytes) else { return };
        self.state.wake();
        // A informational or a connection that has ended wakes nobody, and there is nobody to be told.
        let _ = is_written.await;
    }
}

/// An answer before the answer, and who waits until it is written.
#[derive(Debug)]
pub(super) struct InformationalResponse {
    pub(super) bytes: Bytes,
    pub(super) written: oneshot::Sender<()>,
}

/// The interim answers of a connection that are not written yet.
#[derive(Debug, Default)]
pub(super) struct InformationalQueue {
    /// Whether there are any, for those who come often.
    are_there: AtomicBool,
    queue: Mutex<Queue>,
}

#[derive(Debug, Default)]
struct Queue {
    /// How many preludes there were.
    preludes: u64,
    /// Which of them has not ended.
    open: Option<u64>,
    /// The connection is gone.
    has_ended: bool,
    waiting: VecDeque<InformationalResponse>,
}

impl InformationalQueue {
    fn begin(&self) -> u64 {
        let mut queue = lock(&self.queue);
        queue.preludes += 1;
        queue.open = Some(queue.preludes);
        queue.preludes
    }

    fn end(&self, number: u64) {
        let mut queue = lock(&self.queue);
        if queue.open == Some(number) {
            queue.open = None;
            queue.waiting.clear();
        }
    }

    /// Lets one wait to be written; none if it is not going to be.
    fn push(&self, number: u64, bytes: Bytes) -> Option<oneshot::Receiver<()>> {
        let mut queue = lock(&self.queue);
        queue.waiting.retain(|interim| !interim.written.is_closed());
        if queue.has_ended || queue.open != Some(number) || queue.waiting.len() >= MAX_INTERIMS {
            return None;
        }
        let (written, is_written) = oneshot::channel();
        queue.waiting.push_back(InformationalResponse { bytes, written });
        self.are_there.store(true, Relaxed);
        Some(is_written)
    }

    /// The next one that somebody still waits for.
    pub(super) fn next(&self) -> Option<InformationalResponse> {
        if !self.are_there.load(Relaxed) {
            return None;
        }
        let mut queue = lock(&self.queue);
        queue.waiting.retain(|interim| !interim.written.is_closed());
        let next = queue.waiting.pop_front();
        self.are_there.store(!queue.waiting.is_empty(), Relaxed);
        next
    }

    /// The connection is gone: nobody waits any longer for what can no longer be written, nor begins to.
    pub(super) fn end_all(&self) {
        let mut queue = lock(&self.queue);
        queue.has_ended = true;
        queue.waiting.clear();
    }
}

#[cfg(test)]
mod tests {
    use std::task::{Context, Poll, Waker};

    use super::super::ClientTimeouts;
    use super::super::timeouts::TimeoutTicks;
    use super::*;

    fn state() -> Arc<ConnectionState> {
        Arc::new(ConnectionState::new(TimeoutTicks::new(Arc::default(), &ClientTimeouts::default())))
    }

    /// What somebody waits for who tells this.
    fn told(sender: &InformationalSender, text: &'static str) -> std::pin::Pin<Box<dyn Future<Output = ()>>> {
        let sender = sender.clone();
        Box::pin(async move { sender.send(Version::HTTP_11, Bytes::from_static(text.as_bytes())).await })
    }

    fn poll(telling: &mut std::pin::Pin<Box<dyn Future<Output = ()>>>) -> Poll<()> {
        telling.as_mut().poll(&mut Context::from_waker(Waker::noop()))
    }

    #[test]
    fn an_interim_answer_that_nobody_waits_for_any_longer_is_not_sent() {
        let state = state();
        let informational = state.informational();
        let (mut first, mut second) =
            (told(&informational.sender(), "first"), told(&informational.sender(), "second"));
        assert!(poll(&mut first).is_pending());
        assert!(poll(&mut second).is_pending());
        drop(first);
        let next = state.next_interim().expect("the second");
        assert_eq!(&next.bytes[..], b"second");
        assert!(state.next_interim().is_none());
        // The connection has ended.
        drop(next);
        assert!(poll(&mut second).is_ready());
    }

    #[test]
    fn once_the_answer_begins_nothing_is_said_before_it() {
        let state = state();
        let informational = state.informational();
        let sender = informational.sender();
        let mut waiting = told(&sender, "waiting");
        assert!(poll(&mut waiting).is_pending());
        drop(informational);
        assert!(state.next_interim().is_none());
        assert!(poll(&mut waiting).is_ready(), "nobody waits for what is not going to be written");
        let next = state.informational();
        assert!(poll(&mut told(&sender, "late")).is_ready());
        assert!(state.next_interim().is_none(), "it is not said before another answer either");
        let mut own = told(&next.sender(), "own");
        assert!(poll(&mut own).is_pending());
        assert!(state.next_interim().is_some());
    }

    #[test]
    fn nobody_waits_for_a_connection_that_has_ended() {
        let state = state();
        let informational = state.informational();
        let mut early = told(&informational.sender(), "early");
        assert!(poll(&mut early).is_pending());
        state.end();
        assert!(poll(&mut early).is_ready());
        assert!(poll(&mut told(&informational.sender(), "late")).is_ready());
        let next = state.informational();
        assert!(poll(&mut told(&next.sender(), "too late")).is_ready());
    }
}
