//! The bodies that stream through the gateway in both directions, with size limits and timeouts.

use std::convert::Infallible;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::Bytes;
use http_body::{Body, Frame, SizeHint};
use http_body_util::{BodyExt as _, Either, Full};
use hyper::body::Incoming;
use tokio::sync::oneshot;
use tokio::time::{Instant, Sleep};

use super::client::ClientContext;
use super::failure::causes;
use super::forwarded_headers;
use crate::wire::rejection::{BODY_TIMEOUT, BODY_TOO_LARGE, Rejection};

/// The error of a body.
pub(crate) type BodyError = Box<dyn std::error::Error + Send + Sync>;

type Polled = Poll<Option<Result<Frame<Bytes>, BodyError>>>;

/// The body of a response, from the origin or from the gateway itself.
pub(crate) type OriginBody = Either<LimitedBody, Full<Bytes>>;

/// How large a body may be, and how slowly it may arrive.
#[derive(Clone, Copy, Debug)]
pub(crate) struct BodyLimits {
    pub(crate) bytes: u64,
    /// The longest pause between two pieces: the limit on slow bodies.
    pub(crate) idle_timeout: Duration,
}

/// An incoming body with limits.
#[derive(Debug)]
pub(crate) struct LimitedBody {
    body: Incoming,
    /// How many bytes may follow.
    bytes_left: u64,
    idle_timeout: Duration,
    /// When the body must have ended, if ever.
    deadline: Option<Instant>,
    /// Runs while the next piece is awaited.
    timer: Option<Pin<Box<Sleep>>>,
}

/// A limit that a body exceeds.
#[derive(Clone, Copy, Debug)]
enum LimitExceeded {
    Bytes,
    IdleTimeout,
    Deadline,
}

impl std::fmt::Display for LimitExceeded {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            LimitExceeded::Bytes => {
                "the body is larger than the limit (`origin_bytes` for responses, `body_bytes` for requests)"
            }
            LimitExceeded::IdleTimeout => {
                "the body stopped arriving (timeout `idle` for responses, `client_body` for requests)"
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
        let BodyLimits { bytes: bytes_left, idle_timeout } = limits;
        LimitedBody { body, bytes_left, idle_timeout, deadline, timer: None }
    }

    fn is_overdue(&self) -> bool {
        self.deadline.is_some_and(|deadline| deadline <= Instant::now())
    }

    /// When a body whose next piece is awaited now exceeds a limit.
    fn next_limit(&self) -> Instant {
        let idle = Instant::now() + self.idle_timeout;
        self.deadline.map_or(idle, |deadline| deadline.min(idle))
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
            let limit = self.next_limit();
            let timer = self.timer.get_or_insert_with(|| Box::pin(tokio::time::sleep_until(limit)));
            ready!(timer.as_mut().poll(context));
            let is_overdue = self.is_overdue();
            return exceeded(if is_overdue { LimitExceeded::Deadline } else { LimitExceeded::IdleTimeout });
        };
        self.timer = None;
        let data = frame.as_ref().and_then(|frame| frame.as_ref().ok()?.data_ref());
        match self.bytes_left.checked_sub(data.map_or(0, |data| data.len() as u64)) {
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

/// The body of a request to the origin. The default is the empty body of a render.
#[derive(Debug, Default)]
pub(crate) struct RequestBody {
    upload: Option<LimitedBody>,
    /// The first piece, if it was received before the origin was called.
    first: Option<Frame<Bytes>>,
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

    /// Waits for the first piece of a body of unknown length, or for the end of one of length zero, so that a body that is
    /// invalid from the beginning is found before the origin is called.
    pub(crate) async fn begin(&mut self) -> Result<(), BodyError> {
        if self.upload.is_some() && self.size_hint().exact().is_none_or(|length| length == 0) {
            self.first = self.frame().await.transpose()?;
            if self.first.is_none() {
                self.upload = None;
            }
        }
        Ok(())
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
}

impl Body for RequestBody {
    type Data = Bytes;
    type Error = BodyError;

    fn poll_frame(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Polled {
        if let Some(first) = self.first.take() {
            return Poll::Ready(Some(Ok(first)));
        }
        let Some(upload) = &mut self.upload else { return Poll::Ready(None) };
        let frame = ready!(Pin::new(upload).poll_frame(context));
        if frame.is_none() {
            self.upload = None;
            self.sent = None;
        }
        Poll::Ready(frame.map(|frame| {
            Ok(match frame?.into_trailers() {
                Ok(trailers) => Frame::trailers(forwarded_headers::trailers(trailers)),
                Err(frame) => frame,
            })
        }))
    }

    fn is_end_stream(&self) -> bool {
        self.first.is_none() && self.upload.as_ref().is_none_or(|upload| upload.is_end_stream())
    }

    fn size_hint(&self) -> SizeHint {
        match (&self.upload, &self.first) {
            (Some(upload), None) => upload.size_hint(),
            (None, None) => SizeHint::with_exact(0),
            (_, Some(_)) => SizeHint::new(),
        }
    }
}
