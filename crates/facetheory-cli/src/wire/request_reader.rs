//! The read half of a connection: which of the received bytes hyper may read.

use std::io::{self, ErrorKind};
use std::ops::ControlFlow;
use std::task::{Context, Poll};

use bytes::{Buf as _, BytesMut};
use http::{Method, StatusCode};
use tokio::io::ReadBuf;

use super::connection_state::{ConnectionState, Expected, Upgrade};
use super::fast_path::{self, FastPath, RawResponse};
use super::rejection::{
    BODY_TIMEOUT, RejectedRequest, Rejection, RequestLimits, SUBSTITUTE, SUBSTITUTE_OF_HEAD,
};
use super::scanner::{Next, Scanned, Scanner};
use super::slow_client::RegisteredConnection;

const HEAD_TIMEOUT: Rejection =
    Rejection::new(StatusCode::REQUEST_TIMEOUT, "timed out waiting for the request headers");

/// Checks received bytes, and delivers the valid ones to hyper.
///
/// Bytes are read straight into hyper's buffer and checked there. Only incomplete parts are copied and held back: a head
/// that has not ended, or bytes after an upgrade request.
#[derive(Debug)]
pub(super) struct RequestReader {
    scanner: Scanner,
    pub(super) mode: Mode,
    held: BytesMut,
    /// How many of the held bytes may be delivered.
    ready: usize,
    pub(super) fast_path: Option<Box<dyn FastPath>>,
    /// hyper was given requests, and may not have read all of them or not have written all of its responses.
    pub(super) hyper_is_busy: bool,
}

/// The content of a connection.
#[derive(Clone, Copy, Debug)]
pub(super) enum Mode {
    /// Requests, which are checked.
    Requests,
    /// A request with an `Upgrade` header, on which the service has not decided.
    UpgradeRequested,
    /// Another protocol.
    Tunnel,
    /// A rejected request. Nothing more is read.
    Rejected,
    /// A body whose rest was rejected or timed out.
    BodyFailed(ErrorKind, Rejection),
}

/// `Continue` to go on reading, or `Break` with the result of the read.
pub(super) type ReadStep = ControlFlow<Poll<io::Result<()>>>;

impl RequestReader {
    pub(super) fn new(limits: RequestLimits) -> Self {
        RequestReader {
            scanner: Scanner::new(limits),
            mode: Mode::Requests,
            held: BytesMut::new(),
            ready: 0,
            fast_path: None,
            hyper_is_busy: false,
        }
    }

    /// Whether the client is in the middle of a request body.
    pub(super) fn is_in_body(&self) -> bool {
        self.scanner.expected() == Expected::Body
    }

    /// Whether the client may be sending bytes that are not read.
    pub(super) fn has_unread(&self) -> bool {
        matches!(self.mode, Mode::Rejected | Mode::BodyFailed(..))
            || self.scanner.expected() != Expected::Request
    }

    /// Puts back bytes that were delivered, before those that are held.
    pub(super) fn put_back(&mut self, bytes: &[u8]) {
        let rest = std::mem::replace(&mut self.held, BytesMut::from(bytes));
        self.held.unsplit(rest);
        self.ready += bytes.len();
    }

    /// Moves bytes that are ready into the buffer, as far as there is room.
    pub(super) fn deliver(&mut self, buffer: &mut ReadBuf<'_>) {
        if self.ready == 0 {
            return;
        }
        let count = self.ready.min(buffer.remaining());
        buffer.put_slice(&self.held[..count]);
        self.held.advance(count);
        self.ready -= count;
        if self.held.is_empty() {
            // An idle connection needs no buffer.
            self.held = BytesMut::new();
        }
    }

    /// Checks the bytes that were read into the buffer from `start` on, and leaves the deliverable ones there. Returns
    /// the response if the fast path has one: then hyper gets nothing.
    pub(super) fn check(
        &mut self,
        connection: &ConnectionState,
        buffer: &mut ReadBuf<'_>,
        start: usize,
    ) -> Option<RawResponse> {
        let bytes = &buffer.filled()[start..];
        if !self.held.is_empty() {
            self.held.extend_from_slice(bytes);
            buffer.set_filled(start);
            self.check_held(connection);
            return None;
        }
        let begins_with_head = self.scanner.expected() == Expected::Request;
        let scanned = self.scanner.read(bytes);
        if begins_with_head && let Some(response) = self.get_fresh(&scanned, bytes) {
            connection.deliver(1);
            connection.expect(Expected::Request);
            buffer.set_filled(start);
            return Some(response);
        }
        let rejected = scanned.rejected_request(bytes);
        if matches!(scanned.next, Next::More | Next::Upgrade) {
            self.held.extend_from_slice(&bytes[scanned.accepted..]);
        }
        buffer.set_filled(start + scanned.accepted);
        self.follow(connection, &scanned, rejected);
        None
    }

    /// Returns the response of the fast path, if the bytes, which begin with a head, are exactly one request without a body,
    /// and hyper has no earlier request whose response must come first.
    fn get_fresh(&self, scanned: &Scanned, bytes: &[u8]) -> Option<RawResponse> {
        let is_one_head = scanned.heads == 1 && scanned.accepted == bytes.len() && scanned.next == Next::More;
        if !is_one_head || self.scanner.expected() != Expected::Request || self.hyper_is_busy {
            return None;
        }
        let fast_path = self.fast_path.as_ref()?;
        fast_path.get_fresh(fast_path::parse_request(bytes)?)
    }

    /// Checks the held bytes.
    fn check_held(&mut self, connection: &ConnectionState) {
        let scanned = self.scanner.read(&self.held);
        self.ready = scanned.accepted;
        let rejected = scanned.rejected_request(&self.held);
        if matches!(scanned.next, Next::Rejected(_) | Next::BodyRejected(_)) {
            self.held.truncate(scanned.accepted);
        }
        self.follow(connection, &scanned, rejected);
    }

    fn follow(&mut self, connection: &ConnectionState, scanned: &Scanned, rejected: RejectedRequest) {
        if scanned.heads > 0 {
            self.hyper_is_busy = true;
            connection.deliver(scanned.heads);
            // A head that follows another one has its own timeout.
            connection.expect(Expected::Request);
        }
        match scanned.next {
            Next::More => connection.expect(match self.scanner.expected() {
                // The timeout of a body runs only while there is nothing to read.
                Expected::Body => Expected::Request,
                expected => expected,
            }),
            Next::Upgrade => {
                connection.expect(Expected::Request);
                connection.request_upgrade();
                self.mode = Mode::UpgradeRequested;
            }
            Next::Rejected(rejection) => self.reject(connection, rejection, rejected),
            Next::BodyRejected(rejection) => self.fail_body(connection, ErrorKind::InvalidData, rejection),
        }
    }

    /// Delivers the substitute request after the bytes that are ready, and nothing more.
    fn reject(&mut self, connection: &ConnectionState, rejection: Rejection, rejected: RejectedRequest) {
        let is_head = rejected.method == Some(Method::HEAD);
        connection.reject(rejection, rejected);
        connection.expect(Expected::Request);
        self.hyper_is_busy = true;
        connection.deliver(1);
        self.held.truncate(self.ready);
        self.held.extend_from_slice(if is_head { SUBSTITUTE_OF_HEAD } else { SUBSTITUTE });
        self.ready = self.held.len();
        self.mode = Mode::Rejected;
    }

    fn fail_body(&mut self, connection: &ConnectionState, kind: ErrorKind, rejection: Rejection) {
        // The service already has the head of this request, so there is nothing more to log about it.
        connection.reject(rejection, RejectedRequest::default());
        connection.expect(Expected::Request);
        (self.held, self.ready) = (BytesMut::new(), 0);
        self.mode = Mode::BodyFailed(kind, rejection);
    }

    /// Follows the decision of the service on an upgrade request.
    pub(super) fn poll_upgrade(
        &mut self,
        connection: &mut RegisteredConnection,
        cx: &Context<'_>,
    ) -> ReadStep {
        // Registered before the decision is read, or a decision in between would be missed.
        connection.register_waker(cx);
        match connection.take_upgrade() {
            Upgrade::Accepted => {
                self.mode = Mode::Tunnel;
                self.ready = self.held.len();
                connection.expect(Expected::Nothing);
            }
            Upgrade::Declined => {
                self.mode = Mode::Requests;
                self.check_held(connection);
            }
            Upgrade::None | Upgrade::Requested => return self.wait(connection, cx),
        }
        ControlFlow::Continue(())
    }

    /// There is nothing to read: waits, or applies a timeout that has passed.
    pub(super) fn wait(&mut self, connection: &mut RegisteredConnection, cx: &Context<'_>) -> ReadStep {
        connection.register_waker(cx);
        if self.is_in_body() {
            connection.expect(Expected::Body);
        }
        match connection.overdue() {
            None | Some(Expected::Nothing) => return ControlFlow::Break(Poll::Pending),
            // As if the client had closed the connection.
            Some(Expected::Request) => return ControlFlow::Break(Poll::Ready(Ok(()))),
            Some(Expected::Head) => {
                let rejected = RejectedRequest::parse(&self.held[self.ready..]);
                self.reject(connection, HEAD_TIMEOUT, rejected);
            }
            Some(Expected::Body) => self.fail_body(connection, ErrorKind::TimedOut, BODY_TIMEOUT),
        }
        ControlFlow::Continue(())
    }
}
