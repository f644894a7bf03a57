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

/// A frame, the end, or an error of the connection.
type Received = Option<Result<Frame<Bytes>, hyper::Error>>;

type Polled = Poll<Option<Result<Frame<Bytes>, BodyError>>>;

/// How large a body may be, and how slowly it may arrive.
#[derive(Clone, Copy, Debug)]
pub(crate) struct BodyLimits {
    pub(crate) bytes: u64,
    /// The longest pause between two pieces: the limit on slow bodies.
    pub(crate) pause: Duration,
}

/// An incoming body with limits.
#[derive(Debug)]
struct LimitedBody {
    body: Incoming,
    /// How many bytes may follow.
    bytes_left: u64,
    pause: Duration,
    pause_timeout: Pin<Box<Sleep>>,
}

/// A limit that a body exceeds.
enum Exceeded {
    Bytes,
    Pause,
}

impl LimitedBody {
    fn new(body: Incoming, BodyLimits { bytes, pause }: BodyLimits) -> Self {
        LimitedBody { body, bytes_left: bytes, pause, pause_timeout: Box::pin(tokio::time::sleep(pause)) }
    }

    fn poll(&mut self, context: &mut Context<'_>) -> Poll<Result<Received, Exceeded>> {
        let Poll::Ready(frame) = Pin::new(&mut self.body).poll_frame(context) else {
            ready!(self.pause_timeout.as_mut().poll(context));
            return Poll::Ready(Err(Exceeded::Pause));
        };
        self.pause_timeout.as_mut().reset(Instant::now() + self.pause);
        let data = frame.as_ref().and_then(|frame| frame.as_ref().ok()?.data_ref());
        match self.bytes_left.checked_sub(data.map_or(0, |data| data.len() as u64)) {
            Some(left) => self.bytes_left = left,
            None => return Poll::Ready(Err(Exceeded::Bytes)),
        }
        Poll::Ready(Ok(frame))
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
        let upload = (!body.is_end_stream()).then(|| LimitedBody::new(body, limits));
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
        let frame = match &mut self.upload {
            Some(upload) => ready!(upload.poll(context)),
            None => Ok(None),
        };
        let frame = match frame {
            Ok(Some(Ok(frame))) => Some(Ok(match frame.into_trailers() {
                Ok(trailers) => Frame::trailers(forwarded_headers::trailers(trailers)),
                Err(frame) => frame,
            })),
            Ok(Some(Err(error))) => Some(Err(error.into())),
            Ok(None) => {
                self.upload = None;
                self.sent = None;
                None
            }
            Err(Exceeded::Bytes) => Some(Err(RejectedBody(BODY_TOO_LARGE).into())),
            Err(Exceeded::Pause) => Some(Err(RejectedBody(BODY_TIMEOUT).into())),
        };
        Poll::Ready(frame)
    }

    fn is_end_stream(&self) -> bool {
        self.first.is_none() && self.upload.as_ref().is_none_or(|upload| upload.body.is_end_stream())
    }

    fn size_hint(&self) -> SizeHint {
        match (&self.upload, &self.first) {
            (Some(upload), None) => upload.body.size_hint(),
            (None, None) => SizeHint::with_exact(0),
            (_, Some(_)) => SizeHint::new(),
        }
    }
}

/// The error of a request body that exceeds a limit, with the response to the client.
#[derive(Debug)]
struct RejectedBody(Rejection);

impl std::fmt::Display for RejectedBody {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.0.text)
    }
}

impl std::error::Error for RejectedBody {}

/// The response to the client, if its own request body is a cause of an error.
pub(crate) fn rejection_in(error: &(dyn std::error::Error + 'static)) -> Option<Rejection> {
    causes(error)
        .find_map(|cause| cause.downcast_ref::<RejectedBody>())
        .map(|RejectedBody(rejection)| *rejection)
}

/// The body of a response, from the origin or from the gateway itself.
pub(crate) type OriginBody = Either<StreamedBody, Full<Bytes>>;

/// A response body that arrives from the origin.
#[derive(Debug)]
pub(crate) struct StreamedBody {
    body: LimitedBody,
    /// When it must have ended, if ever.
    deadline: Option<Pin<Box<Sleep>>>,
}

impl StreamedBody {
    /// A body that must end before the deadline.
    pub(crate) fn new(body: Incoming, limits: BodyLimits, deadline: Option<Instant>) -> Self {
        let deadline = deadline.map(|deadline| Box::pin(tokio::time::sleep_until(deadline)));
        StreamedBody { body: LimitedBody::new(body, limits), deadline }
    }
}

impl Body for StreamedBody {
    type Data = Bytes;
    type Error = BodyError;

    fn poll_frame(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Polled {
        let deadline = self.deadline.as_mut();
        if deadline.is_some_and(|deadline| deadline.as_mut().poll(context).is_ready()) {
            return Poll::Ready(Some(Err("the origin did not complete its response in time".into())));
        }
        Poll::Ready(match ready!(self.body.poll(context)) {
            Ok(frame) => frame.map(|frame| frame.map_err(Into::into)),
            Err(Exceeded::Bytes) => Some(Err("the response of the origin is too large".into())),
            Err(Exceeded::Pause) => Some(Err("the origin stopped sending its response".into())),
        })
    }

    fn is_end_stream(&self) -> bool {
        self.body.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.body.size_hint()
    }
}
