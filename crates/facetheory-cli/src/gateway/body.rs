//! The bodies that stream through the gateway in both directions, with size limits and timeouts.

use std::collections::VecDeque;
use std::convert::Infallible;
use std::future::poll_fn;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::Bytes;
use http_body::{Body, Frame, SizeHint};
use http_body_util::{Either, Full};
use hyper::body::Incoming;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, oneshot};
use tokio::time::{Instant, Sleep};

use super::client::ClientContext;
use super::failure::causes;
use super::forwarded_headers;
use crate::wire::MinRate;
use crate::wire::rejection::{BODY_TIMEOUT, BODY_TOO_LARGE, Rejection};

/// The error of a body.
pub(crate) type BodyError = Box<dyn std::error::Error + Send + Sync>;

/// The result of polling a body.
pub(super) type Polled = Poll<Option<Result<Frame<Bytes>, BodyError>>>;

/// The body of a response, from the origin or from the gateway itself.
pub(crate) type OriginBody = Either<LimitedBody, Full<Bytes>>;

/// How large a body may be, and how slowly it may arrive.
#[derive(Clone, Copy, Debug)]
pub(crate) struct BodyLimits {
    pub(crate) bytes: u64,
    /// The limit on slow bodies.
    pub(crate) min_rate: MinRate,
}

/// An incoming body with limits.
#[derive(Debug)]
pub(crate) struct LimitedBody {
    body: Incoming,
    /// How many bytes may follow.
    bytes_left: u64,
    min_rate: MinRate,
    /// How much longer the body may be waited for, if nothing more arrives.
    wait_left: Duration,
    /// Since when the next piece is awaited.
    waiting_since: Option<Instant>,
    /// When the body must have ended, if ever.
    deadline: Option<Instant>,
    /// Runs while the next piece is awaited.
    timer: Option<Pin<Box<Sleep>>>,
}

/// A limit that a body exceeds.
#[derive(Clone, Copy, Debug)]
enum LimitExceeded {
    Bytes,
    TooSlow,
    Deadline,
}

impl std::fmt::Display for LimitExceeded {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            LimitExceeded::Bytes => {
                "the body is larger than the limit (`origin_bytes` for responses, `body_bytes` for requests)"
            }
            LimitExceeded::TooSlow => {
                "the body stopped arriving or is too slow (timeout `idle` for responses; timeout `client_body` and limit \
                 `client_bytes_per_second` for requests)"
            }
            LimitExceeded::Deadline => "the body was not complete in time (timeout `total`)",
        })
    }
}

impl std::error::Error for LimitExceeded {}

/// The response to the client, if its own request body exceeds a limit and that caused the error.
pub(crate) fn rejection_in(error: &(dyn std::error::Error + 'static)) -> Option<Rejection> {
    let exceeded = causes(error).find_map(|cause| cause.downcast_ref::<LimitExceeded>())?;
    Some(if matches!(exceeded, LimitExceeded::Bytes) { BODY_TOO_LARGE } else { BODY_TIMEOUT })
}

impl LimitedBody {
    /// A body that must end before the deadline.
    pub(crate) fn new(body: Incoming, limits: BodyLimits, deadline: Option<Instant>) -> Self {
        let BodyLimits { bytes: bytes_left, min_rate } = limits;
        let wait_left = min_rate.grace;
        LimitedBody { body, bytes_left, min_rate, wait_left, waiting_since: None, deadline, timer: None }
    }

    fn is_overdue(&self) -> bool {
        self.deadline.is_some_and(|deadline| deadline <= Instant::now())
    }

    /// When a body whose next piece is awaited since `start` exceeds a limit.
    fn next_limit(&self, start: Instant) -> Instant {
        let too_slow = start + self.wait_left;
        self.deadline.map_or(too_slow, |deadline| deadline.min(too_slow))
    }

    /// A piece of this many bytes has arrived.
    fn end_wait(&mut self, bytes: u64) {
        let waited = self.waiting_since.take().map_or(Duration::ZERO, |start| start.elapsed());
        self.wait_left = self.min_rate.time_left(self.wait_left, waited, bytes);
        self.timer = None;
    }
}

impl Body for LimitedBody {
    type Data = Bytes;
    type Error = BodyError;

    fn poll_frame(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Polled {
        let exceeded = |limit: LimitExceeded| Poll::Ready(Some(Err(limit.into())));
        if self.is_overdue() {
            return exceeded(LimitExceeded::Deadline);
        }
        let Poll::Ready(frame) = Pin::new(&mut self.body).poll_frame(context) else {
            let start = *self.waiting_since.get_or_insert_with(Instant::now);
            let limit = self.next_limit(start);
            let timer = self.timer.get_or_insert_with(|| Box::pin(tokio::time::sleep_until(limit)));
            ready!(timer.as_mut().poll(context));
            let is_overdue = self.is_overdue();
            return exceeded(if is_overdue { LimitExceeded::Deadline } else { LimitExceeded::TooSlow });
        };
        let data = frame.as_ref().and_then(|frame| frame.as_ref().ok()?.data_ref());
        let bytes = data.map_or(0, |data| data.len() as u64);
        self.end_wait(bytes);
        match self.bytes_left.checked_sub(bytes) {
            Some(left) => self.bytes_left = left,
            None => return exceeded(LimitExceeded::Bytes),
        }
        Poll::Ready(frame.map(|frame| frame.map_err(Into::into)))
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

/// The most bytes of a request body that are received before the origin is called.
const MAX_BUFFERED: u64 = 64 * 1024;

/// The memory for the beginnings of all request bodies that are still arriving.
#[derive(Clone, Debug)]
pub(crate) struct UploadBuffers {
    bytes: Arc<Semaphore>,
}

impl UploadBuffers {
    pub(crate) fn new(bytes: usize) -> Self {
        UploadBuffers { bytes: Arc::new(Semaphore::new(bytes.min(Semaphore::MAX_PERMITS))) }
    }
}

fn data_length(frame: &Frame<Bytes>) -> u64 {
    frame.data_ref().map_or(0, |data| data.len() as u64)
}

/// The body of a request to the origin. The default is the empty body of a render.
#[derive(Debug, Default)]
pub(crate) struct RequestBody {
    upload: Option<LimitedBody>,
    /// The beginning, which was received before the origin was called.
    buffered: VecDeque<Frame<Bytes>>,
    /// Whether it is sent in chunks, although all of it may be buffered: trailers need them.
    has_unknown_length: bool,
    /// Held while anything is buffered.
    buffer: Option<OwnedSemaphorePermit>,
    /// The client that sends it, once that is known.
    pub(crate) client_context: Option<ClientContext>,
    /// Dropped when the body was sent.
    sent: Option<oneshot::Sender<Infallible>>,
}

impl RequestBody {
    /// The body of a client's request.
    pub(crate) fn of(body: Incoming, limits: BodyLimits) -> Self {
        let upload = (!body.is_end_stream()).then(|| LimitedBody::new(body, limits, None));
        RequestBody { upload, ..RequestBody::default() }
    }

    /// An empty body.
    pub(crate) fn empty(client_context: Option<ClientContext>) -> Self {
        RequestBody { client_context, ..RequestBody::default() }
    }

    /// Waits for the whole of a short body, or for the beginning of a long one, so that a client that sends slowly does not
    /// hold a connection to the origin meanwhile. A body that is invalid is found before the origin is called.
    ///
    /// Without room in the buffers, it waits only for the first piece of a body of unknown length, or for the end of one of
    /// length zero.
    pub(crate) async fn receive_beginning(&mut self, buffers: &UploadBuffers) -> Result<(), BodyError> {
        let Some(upload) = &self.upload else { return Ok(()) };
        let length = upload.size_hint().exact();
        let wanted = length.map_or(MAX_BUFFERED, |length| length.min(MAX_BUFFERED));
        let permits = u32::try_from(wanted).unwrap_or(u32::MAX);
        self.buffer = buffers.bytes.clone().try_acquire_many_owned(permits).ok();
        let room = if self.buffer.is_some() { wanted } else { 0 };
        let mut received = 0;
        let mut needs_frame = length.is_none_or(|length| length == 0);
        while needs_frame || received < room {
            let Some(frame) = poll_fn(|context| self.poll_upload(context)).await.transpose()? else { break };
            needs_frame = false;
            received += data_length(&frame);
            self.buffered.push_back(frame);
        }
        self.has_unknown_length = length.is_none() && !self.buffered.is_empty();
        // The end of a body that has arrived completely is known only once it was polled for.
        if self.upload.as_ref().is_some_and(LimitedBody::is_end_stream) {
            self.upload = None;
        }
        Ok(())
    }

    /// Whether the client is still sending it.
    pub(crate) fn is_arriving(&self) -> bool {
        self.upload.is_some()
    }

    /// Completes when the body was sent, or dropped.
    pub(crate) fn sent(&mut self) -> impl Future<Output = ()> + use<> {
        let (sender, sent) = oneshot::channel();
        self.sent = (!self.is_end_stream()).then_some(sender);
        async {
            // An error is the signal: the sender was dropped.
            let _ = sent.await;
        }
    }

    fn poll_upload(&mut self, context: &mut Context<'_>) -> Polled {
        let Some(upload) = &mut self.upload else { return Poll::Ready(None) };
        let frame = ready!(Pin::new(upload).poll_frame(context));
        if frame.is_none() {
            self.upload = None;
        }
        Poll::Ready(frame.map(|frame| {
            Ok(match frame?.into_trailers() {
                Ok(trailers) => Frame::trailers(forwarded_headers::trailers(trailers)),
                Err(frame) => frame,
            })
        }))
    }
}

impl Body for RequestBody {
    type Data = Bytes;
    type Error = BodyError;

    fn poll_frame(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Polled {
        if let Some(frame) = self.buffered.pop_front() {
            return Poll::Ready(Some(Ok(frame)));
        }
        self.buffer = None;
        let frame = ready!(self.poll_upload(context));
        if frame.is_none() {
            self.sent = None;
        }
        Poll::Ready(frame)
    }

    fn is_end_stream(&self) -> bool {
        self.buffered.is_empty() && self.upload.as_ref().is_none_or(|upload| upload.is_end_stream())
    }

    fn size_hint(&self) -> SizeHint {
        if self.has_unknown_length {
            return SizeHint::new();
        }
        let buffered: u64 = self.buffered.iter().map(data_length).sum();
        let rest = self.upload.as_ref().map_or(Some(0), |upload| upload.size_hint().exact());
        rest.map_or_else(SizeHint::new, |rest| SizeHint::with_exact(buffered + rest))
    }
}
