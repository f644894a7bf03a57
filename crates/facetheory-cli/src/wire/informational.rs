//! Informational responses (1xx): written before the head of the final response, and never later.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

use bytes::Bytes;
use http::Version;
use parking_lot::Mutex;
use tokio::sync::{mpsc, oneshot};

use super::connection_state::ConnectionState;

/// The limit on informational responses that wait to be written; more are dropped.
const MAX_WAITING: usize = 16;

/// The time before the head of a response, in which informational responses may be sent.
///
/// It must be dropped before the head is given to hyper. An informational response that has not been written by then is
/// dropped: it would end up in the middle of the final response.
#[derive(Debug)]
pub(crate) struct InformationalWindow(InformationalSender);

/// Sends informational responses while its [`InformationalWindow`] is open.
#[derive(Clone, Debug)]
pub(crate) struct InformationalSender {
    state: Arc<ConnectionState>,
    queue: mpsc::Sender<InformationalResponse>,
}

impl InformationalWindow {
    /// Allows informational responses until the window is dropped. A connection has one window at a time, because
    /// responses are written one after the other. `None` before HTTP/1.1: such clients do not know these responses.
    pub(crate) fn open(state: &Arc<ConnectionState>, version: Version) -> Option<Self> {
        if version < Version::HTTP_11 {
            return None;
        }
        let (sender, receiver) = mpsc::channel(MAX_WAITING);
        state.informational.replace(Some(receiver));
        Some(InformationalWindow(InformationalSender { state: state.clone(), queue: sender }))
    }

    pub(crate) fn sender(&self) -> InformationalSender {
        self.0.clone()
    }
}

impl Drop for InformationalWindow {
    fn drop(&mut self) {
        self.0.state.informational.replace(None);
    }
}

impl InformationalSender {
    /// Sends an informational response such as `103 Early Hints`, given with its empty line. Returns once it is written
    /// or dropped: the final response must wait for that.
    ///
    /// hyper's `pipeline_flush` must be off: this waits for a flush, and with it hyper does not flush while further
    /// requests are waiting.
    pub(crate) async fn send(&self, bytes: Bytes) {
        let (written, is_written) = oneshot::channel();
        let response = InformationalResponse { bytes, written };
        if self.queue.try_send(response).is_ok() {
            self.state.informational.has_entries.store(true, Relaxed);
            self.state.wake();
            // An error means that the window or the connection was closed, and the response dropped.
            let _ = is_written.await;
        }
    }
}

/// An informational response that waits to be written.
#[derive(Debug)]
pub(super) struct InformationalResponse {
    pub(super) bytes: Bytes,
    /// Notified when all bytes are written.
    pub(super) written: oneshot::Sender<()>,
}

/// The informational responses of a connection that are not written yet.
#[derive(Debug, Default)]
pub(super) struct InformationalQueue {
    /// Whether the window may have entries: saves the lock on every flush.
    has_entries: AtomicBool,
    connection_is_closed: AtomicBool,
    /// The window that is open.
    window: Mutex<Option<mpsc::Receiver<InformationalResponse>>>,
}

impl InformationalQueue {
    /// Opens a window, or closes the one that is open and drops its entries.
    fn replace(&self, window: Option<mpsc::Receiver<InformationalResponse>>) {
        let mut current = self.window.lock();
        *current = window.filter(|_| !self.connection_is_closed.load(Relaxed));
    }

    /// The next response whose sender still waits.
    pub(super) fn next(&self) -> Option<InformationalResponse> {
        if !self.has_entries.swap(false, Relaxed) {
            return None;
        }
        let mut window = self.window.lock();
        while let Ok(response) = window.as_mut()?.try_recv() {
            if !response.written.is_closed() {
                self.has_entries.store(true, Relaxed);
                return Some(response);
            }
        }
        None
    }

    /// The connection is closed: senders neither wait nor add.
    pub(super) fn close(&self) {
        let mut window = self.window.lock();
        self.connection_is_closed.store(true, Relaxed);
        *window = None;
    }
}

#[cfg(test)]
mod tests {
    use std::pin::Pin;
    use std::task::{Context, Poll, Waker};

    use super::super::slow_client::{ClientTimeouts, TimeoutClock};
    use super::*;

    type Sending = Pin<Box<dyn Future<Output = ()>>>;

    fn state() -> Arc<ConnectionState> {
        Arc::new(ConnectionState::new(TimeoutClock {
            clock: Arc::default(),
            timeouts: ClientTimeouts::default(),
        }))
    }

    fn open(state: &Arc<ConnectionState>) -> InformationalWindow {
        InformationalWindow::open(state, Version::HTTP_11).expect("a window")
    }

    fn send(sender: &InformationalSender, text: &'static str) -> Sending {
        let sender = sender.clone();
        Box::pin(async move { sender.send(Bytes::from_static(text.as_bytes())).await })
    }

    fn poll(sending: &mut Sending) -> Poll<()> {
        sending.as_mut().poll(&mut Context::from_waker(Waker::noop()))
    }

    #[test]
    fn a_response_whose_sender_no_longer_waits_is_dropped() {
        let state = state();
        let window = open(&state);
        let (mut first, mut second) = (send(&window.sender(), "first"), send(&window.sender(), "second"));
        assert!(poll(&mut first).is_pending());
        assert!(poll(&mut second).is_pending());
        drop(first);
        let next = state.informational.next().expect("the second");
        assert_eq!(&next.bytes[..], b"second");
        assert!(state.informational.next().is_none());
        // The connection fails.
        drop(next);
        assert!(poll(&mut second).is_ready());
    }

    #[test]
    fn nothing_is_sent_once_the_final_response_has_begun() {
        let state = state();
        let window = open(&state);
        let sender = window.sender();
        let mut waiting = send(&sender, "waiting");
        assert!(poll(&mut waiting).is_pending());
        drop(window);
        assert!(state.informational.next().is_none());
        assert!(poll(&mut waiting).is_ready(), "the response was dropped");
        let next = open(&state);
        assert!(poll(&mut send(&sender, "late")).is_ready());
        assert!(state.informational.next().is_none(), "it is not sent before another response either");
        let mut own = send(&next.sender(), "own");
        assert!(poll(&mut own).is_pending());
        assert!(state.informational.next().is_some());
    }

    #[test]
    fn no_sender_waits_for_a_closed_connection() {
        let state = state();
        let window = open(&state);
        let mut early = send(&window.sender(), "early");
        assert!(poll(&mut early).is_pending());
        state.close();
        assert!(poll(&mut early).is_ready());
        assert!(poll(&mut send(&window.sender(), "late")).is_ready());
        let next = open(&state);
        assert!(poll(&mut send(&next.sender(), "too late")).is_ready());
    }
}
