//! The connection as hyper sees it: requests that are well formed, and nothing else.

use std::future::poll_fn;
use std::io::{self, ErrorKind, IoSlice};
use std::mem::MaybeUninit;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker, ready};

use bytes::{Buf, BytesMut};
use http::{Method, StatusCode};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use super::connection_state::{ConnectionState, Decision};
use super::deadline_ticker::Registration;
use super::fast_path::{self, FastPath, RawResponse};
use super::informational::InformationalResponse;
use super::limits::RequestLimits;
use super::lingering_close::LingeringClose;
use super::rejected_request::RejectedRequest;
use super::rejection::{Rejection, SUBSTITUTE, SUBSTITUTE_OF_HEAD};
use super::scanner::{Pause, Scanned, Scanner, Then};
use super::timeouts::Overdue;

/// How much is read at once before hyper reads: it begins with as much.
const ROOM: usize = 8192;

/// A connection whose requests are checked before they are passed on.
///
/// What comes is read straight into the reader's buffer and looked at there. Only what is not whole is copied and held
/// back: a head that has not ended, or what follows a request for another protocol.
#[derive(Debug)]
pub(crate) struct CheckedStream<IO> {
    io: IO,
    state: Arc<ConnectionState>,
    scan: Scanner,
    mode: Mode,
    held: BytesMut,
    /// How many of the bytes held may be passed on.
    ready: usize,
    /// Who was told to the state as the one to be woken.
    waker: Option<Waker>,
    is_blocked: bool,
    /// The interim answer that is being written.
    interim: Option<InformationalResponse>,
    /// Where some answers are at hand.
    shelf: Option<Box<dyn FastPath>>,
    /// The answer from there that is being written.
    parcel: Option<RawResponse>,
    /// hyper was given requests, and may not have read all of them, or not have written all of its answers.
    is_handed: bool,
    closing: Closing,
    _seat: Registration,
}

#[derive(Debug)]
enum Mode {
    /// Requests come and are checked.
    Requests,
    /// A request has asked for another protocol.
    Asked,
    /// Another protocol is spoken.
    Tunnel,
    /// A request was refused: nothing more is read, and nothing said, until the answer is there.
    Rejected,
    /// The rest of a body was refused, or did not come.
    Broken(ErrorKind, Rejection),
}

#[derive(Debug)]
enum Closing {
    No,
    Lingering(LingeringClose),
    Done,
}

impl<IO> CheckedStream<IO> {
    /// A connection of which nothing has been read.
    pub(super) fn new(
        io: IO,
        limits: RequestLimits,
        state: Arc<ConnectionState>,
        seat: Registration,
    ) -> Self {
        CheckedStream {
            io,
            state,
            scan: Scanner::new(limits),
            mode: Mode::Requests,
            held: BytesMut::new(),
            ready: 0,
            waker: None,
            is_blocked: false,
            interim: None,
            shelf: None,
            parcel: None,
            is_handed: false,
            closing: Closing::No,
            _seat: seat,
        }
    }

    /// Answers from this shelf what is there.
    pub(crate) fn set_fast_path(&mut self, shelf: Box<dyn FastPath>) {
        self.shelf = Some(shelf);
    }

    /// What is shared with the service.
    pub(crate) fn state(&self) -> &Arc<ConnectionState> {
        &self.state
    }

    /// Takes what came straight into the reader's buffer, from `start` on, and leaves there what may be passed on.
    fn take(&mut self, buffer: &mut ReadBuf<'_>, start: usize) {
        if !self.held.is_empty() {
            self.held.extend_from_slice(&buffer.filled()[start..]);
            buffer.set_filled(start);
            return self.take_held();
        }
        let begins_with_head = self.scan.pause() == Pause::Between;
        let scanned = self.scan.read(&buffer.filled()[start..]);
        if begins_with_head && self.is_at_hand(&scanned, &buffer.filled()[start..]) {
            buffer.set_filled(start);
            return;
        }
        let end = start + scanned.passed;
        let seen = scanned.rejected_request(&buffer.filled()[start..]);
        match scanned.then {
            Then::More | Then::Upgrade => self.held.extend_from_slice(&buffer.filled()[end..]),
            Then::Refused(_) | Then::Broken(_) => {}
        }
        buffer.set_filled(end);
        self.follow(&scanned, seen);
    }

    /// Takes the answer from the shelf, if these bytes, which begin with a head, are one request whose answer is there, and its
    /// turn has come: hyper has nothing more to read or to write.
    fn is_at_hand(&mut self, scanned: &Scanned, bytes: &[u8]) -> bool {
        let is_one = scanned.heads == 1 && scanned.passed == bytes.len() && scanned.then == Then::More;
        let is_whole = is_one && self.scan.pause() == Pause::Between;
        if !is_whole || self.is_handed {
            return false;
        }
        let Some(shelf) = &self.shelf else { return false };
        self.parcel = fast_path::request(bytes).and_then(|request| shelf.get_fresh(request));
        if self.parcel.is_none() {
            return false;
        }
        self.state.deliver(1);
        self.state.wait_for(Pause::Between);
        true
    }

    /// Finds out how much of what is held may be passed on.
    fn take_held(&mut self) {
        let scanned = self.scan.read(&self.held);
        self.ready = scanned.passed;
        let seen = scanned.rejected_request(&self.held);
        if matches!(scanned.then, Then::Refused(_) | Then::Broken(_)) {
            self.held.truncate(scanned.passed);
        }
        self.follow(&scanned, seen);
    }

    fn follow(&mut self, scanned: &Scanned, seen: RejectedRequest) {
        if scanned.heads > 0 {
            self.is_handed = true;
            self.state.deliver(scanned.heads);
            // A head that begins behind another has its own time.
            self.state.wait_for(Pause::Between);
        }
        match scanned.then {
            Then::More => self.state.wait_for(match self.scan.pause() {
                // It is waited for only when there was nothing to read.
                Pause::Body => Pause::Between,
                pause => pause,
            }),
            Then::Upgrade => {
                self.state.wait_for(Pause::Between);
                self.state.ask();
                self.mode = Mode::Asked;
            }
            Then::Refused(rejection) => self.refuse(rejection, seen),
            Then::Broken(rejection) => self.break_off(ErrorKind::InvalidData, rejection),
        }
    }

    /// Puts the substitute behind what may still be passed on.
    fn refuse(&mut self, rejection: Rejection, seen: RejectedRequest) {
        let is_head = seen.method == Some(Method::HEAD);
        self.state.refuse(rejection, seen);
        self.state.wait_for(Pause::Between);
        self.is_handed = true;
        self.state.deliver(1);
        self.held.truncate(self.ready);
        self.held.extend_from_slice(if is_head { SUBSTITUTE_OF_HEAD } else { SUBSTITUTE });
        self.ready = self.held.len();
        self.mode = Mode::Rejected;
    }

    fn break_off(&mut self, kind: ErrorKind, rejection: Rejection) {
        // What was asked for is known to those who answer it.
        self.state.refuse(rejection, RejectedRequest::default());
        self.state.wait_for(Pause::Between);
        (self.held, self.ready) = (BytesMut::new(), 0);
        self.mode = Mode::Broken(kind, rejection);
    }

    /// Passes on what is ready, as far as there is room.
    fn hand_over(&mut self, buffer: &mut ReadBuf<'_>) {
        let here = self.ready.min(buffer.remaining());
        buffer.put_slice(&self.held[..here]);
        self.held.advance(here);
        self.ready -= here;
        if self.held.is_empty() {
            // A connection that waits for its next request holds no memory.
            self.held = BytesMut::new();
        }
    }

    /// Sees to it that the state can wake this task.
    fn be_woken(&mut self, cx: &Context<'_>) {
        if !self.waker.as_ref().is_some_and(|waker| waker.will_wake(cx.waker())) {
            self.waker = Some(cx.waker().clone());
            self.state.register(cx.waker().clone());
        }
    }

    /// There is nothing to read. Says whether to wait for it, or whether that is what ends the connection.
    fn wait(&mut self, cx: &Context<'_>) -> Waiting {
        self.be_woken(cx);
        if self.scan.pause() == Pause::Body {
            self.state.wait_for(Pause::Body);
        }
        match self.state.overdue() {
            None => Waiting::On,
            Some(Overdue::Request) => Waiting::End,
            Some(Overdue::Head) => {
                let late = Rejection::new(StatusCode::REQUEST_TIMEOUT, "the request did not come in time");
                self.refuse(late, RejectedRequest::of(&self.held[self.ready..]));
                Waiting::Over
            }
            Some(Overdue::Body) => {
                let text = "the rest of the request did not come in time";
                self.break_off(ErrorKind::TimedOut, Rejection::new(StatusCode::REQUEST_TIMEOUT, text));
                Waiting::Over
            }
        }
    }

    /// Whether the client may be sending something that nobody reads.
    fn has_unread(&self) -> bool {
        matches!(self.mode, Mode::Rejected | Mode::Broken(..)) || self.scan.pause() != Pause::Between
    }

    /// Notes whether the client takes what is written, and ends it if it has not done so for too long. In a tunnel it may
    /// rest: how long is for those who dug it to say.
    fn watch_write<T>(&mut self, cx: &Context<'_>, outcome: Poll<io::Result<T>>) -> Poll<io::Result<T>> {
        if matches!(self.mode, Mode::Tunnel) {
            return outcome;
        }
        if outcome.is_ready() {
            if self.is_blocked {
                self.is_blocked = false;
                self.state.unblock();
            }
            return outcome;
        }
        self.be_woken(cx);
        if !self.is_blocked {
            self.is_blocked = true;
            self.state.block();
        }
        if self.state.is_stuck() {
            return Poll::Ready(Err(io::Error::new(
                ErrorKind::TimedOut,
                "the client does not read its answer",
            )));
        }
        Poll::Pending
    }
}

/// What a connection has come to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum FastPathEnd {
    /// Something came that is not at hand: hyper is to read it.
    Asked,
    /// Nothing more comes.
    Ended,
}

/// What to do when there is nothing to read.
enum Waiting {
    /// Wait on.
    On,
    /// As if the client had closed the connection.
    End,
    /// Something else is to be passed on.
    Over,
}

impl<IO: AsyncRead + AsyncWrite + Unpin> CheckedStream<IO> {
    /// Answers from the shelf for as long as all that is asked for is there: many connections never need hyper, which costs
    /// them time and memory.
    pub(crate) async fn serve_fast_path(&mut self) -> io::Result<FastPathEnd> {
        poll_fn(|cx| {
            let mut room = [MaybeUninit::uninit(); ROOM];
            let mut buffer = ReadBuf::uninit(&mut room);
            ready!(Pin::new(&mut *self).poll_read(cx, &mut buffer))?;
            let passed = buffer.filled();
            if passed.is_empty() {
                return Poll::Ready(Ok(FastPathEnd::Ended));
            }
            // What has been held back comes after it.
            let rest = std::mem::replace(&mut self.held, BytesMut::from(passed));
            self.held.unsplit(rest);
            self.ready += passed.len();
            Poll::Ready(Ok(FastPathEnd::Asked))
        })
        .await
    }

    /// Writes the interim answer that has been begun, if there is one, after an answer that was begun before it.
    fn poll_interim(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        ready!(self.poll_parcel(cx))?;
        let Some(mut interim) = self.interim.take() else { return Poll::Ready(Ok(())) };
        while interim.bytes.has_remaining() {
            let outcome = Pin::new(&mut self.io).poll_write(cx, &interim.bytes);
            match self.watch_write(cx, outcome)? {
                Poll::Ready(0) => return Poll::Ready(Err(ErrorKind::WriteZero.into())),
                Poll::Ready(written) => interim.bytes.advance(written),
                Poll::Pending => {
                    self.interim = Some(interim);
                    return Poll::Pending;
                }
            }
        }
        // Whoever waited for it may have gone away.
        let _ = interim.written.send(());
        Poll::Ready(Ok(()))
    }

    /// Writes the answer from the shelf that has been begun, if there is one. It has ended once it is flushed: what is
    /// encrypted may have been taken and not yet sent.
    fn poll_parcel(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        while let Some(parcel) = self.parcel.as_ref().filter(|parcel| !parcel.is_written()) {
            let outcome = Pin::new(&mut self.io).poll_write_vectored(cx, &parcel.pieces());
            let written = ready!(self.watch_write(cx, outcome))?;
            if written == 0 {
                return Poll::Ready(Err(ErrorKind::WriteZero.into()));
            }
            if let Some(parcel) = &mut self.parcel {
                parcel.advance(written);
            }
        }
        if self.parcel.is_some() {
            let outcome = Pin::new(&mut self.io).poll_flush(cx);
            ready!(self.watch_write(cx, outcome))?;
            self.parcel = None;
            self.state.answer();
        }
        Poll::Ready(Ok(()))
    }
}

impl<IO: AsyncRead + AsyncWrite + Unpin> AsyncRead for CheckedStream<IO> {
    fn poll_read(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let wire = self.get_mut();
        let start = buffer.filled().len();
        loop {
            ready!(wire.poll_parcel(cx))?;
            if wire.ready > 0 {
                wire.hand_over(buffer);
            }
            if buffer.filled().len() > start || buffer.remaining() == 0 {
                return Poll::Ready(Ok(()));
            }
            match wire.mode {
                Mode::Requests => {}
                Mode::Tunnel => return Pin::new(&mut wire.io).poll_read(cx, buffer),
                // Not the end either: hyper would give up the answer that is under way.
                Mode::Rejected => return Poll::Pending,
                Mode::Broken(kind, rejection) => {
                    return Poll::Ready(Err(io::Error::new(kind, rejection.text)));
                }
                Mode::Asked => {
                    // Before the question, or the answer could be missed.
                    wire.be_woken(cx);
                    match wire.state.decision() {
                        Decision::Tunnel => {
                            wire.mode = Mode::Tunnel;
                            wire.ready = wire.held.len();
                            wire.state.wait_for_nothing();
                        }
                        Decision::Stay => {
                            wire.mode = Mode::Requests;
                            wire.take_held();
                        }
                        Decision::None | Decision::Asked => match wire.wait(cx) {
                            Waiting::On => return Poll::Pending,
                            Waiting::End => return Poll::Ready(Ok(())),
                            Waiting::Over => {}
                        },
                    }
                    continue;
                }
            }
            match Pin::new(&mut wire.io).poll_read(cx, buffer)? {
                Poll::Ready(()) if buffer.filled().len() == start => return Poll::Ready(Ok(())),
                Poll::Ready(()) => wire.take(buffer, start),
                Poll::Pending => match wire.wait(cx) {
                    Waiting::On => return Poll::Pending,
                    Waiting::End => return Poll::Ready(Ok(())),
                    Waiting::Over => {}
                },
            }
        }
    }
}

impl<IO: AsyncRead + AsyncWrite + Unpin> AsyncWrite for CheckedStream<IO> {
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        let wire = self.get_mut();
        ready!(wire.poll_interim(cx))?;
        let outcome = Pin::new(&mut wire.io).poll_write(cx, bytes);
        wire.watch_write(cx, outcome)
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        pieces: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let wire = self.get_mut();
        ready!(wire.poll_interim(cx))?;
        let outcome = Pin::new(&mut wire.io).poll_write_vectored(cx, pieces);
        wire.watch_write(cx, outcome)
    }

    fn is_write_vectored(&self) -> bool {
        self.io.is_write_vectored()
    }

    /// hyper flushes when it has written all that it had. So this is the moment between two answers, and the service
    /// has not given its next one, since it waits for the interim answer that it wants to send.
    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let wire = self.get_mut();
        // While the service thinks, hyper may come here and not read, as it does where half-closed clients are served.
        wire.be_woken(cx);
        loop {
            ready!(wire.poll_interim(cx))?;
            wire.interim = wire.state.next_interim();
            if wire.interim.is_none() {
                break;
            }
        }
        // A body that is still coming is hyper's to read, also if its request was answered without it.
        let has_ended = wire.state.is_answered() && wire.scan.pause() != Pause::Body;
        let outcome = Pin::new(&mut wire.io).poll_flush(cx);
        if has_ended && matches!(outcome, Poll::Ready(Ok(()))) {
            wire.is_handed = false;
        }
        wire.watch_write(cx, outcome)
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let wire = self.get_mut();
        ready!(wire.poll_parcel(cx))?;
        loop {
            match &mut wire.closing {
                Closing::Done => return Poll::Ready(Ok(())),
                Closing::Lingering(linger) => {
                    ready!(linger.poll(&mut wire.io, cx));
                    wire.closing = Closing::Done;
                }
                Closing::No => {
                    let outcome = Pin::new(&mut wire.io).poll_shutdown(cx);
                    ready!(wire.watch_write(cx, outcome))?;
                    wire.closing = if wire.has_unread() {
                        Closing::Lingering(LingeringClose::new())
                    } else {
                        Closing::Done
                    };
                }
            }
        }
    }
}
