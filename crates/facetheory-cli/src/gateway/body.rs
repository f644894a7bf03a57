//! The bodies that pass through the gateway, in both directions, as they come.

use std::convert::Infallible;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::Bytes;
use http::StatusCode;
use http_body::{Body, Frame, SizeHint};
use http_body_util::BodyExt as _;
use hyper::body::Incoming;
use tokio::sync::oneshot;
use tokio::time::{Instant, Sleep};

use super::client::ClientContext;
use super::forwarded_headers;
use crate::wire::Rejection;

/// What a body may fail with.
pub(crate) type BodyError = Box<dyn std::error::Error + Send + Sync>;

/// How much of a body a visitor may send, and how slowly.
#[derive(Clone, Copy, Debug)]
pub(crate) struct BodyLimits {
    /// The most bytes.
    pub(crate) bytes: u64,
    /// The longest pause between two pieces.
    pub(crate) pause: Duration,
}

/// The body of a request to the origin.
///
/// By default it is empty and nobody's: that of a render, which everybody sees the result of.
#[derive(Debug, Default)]
pub(crate) struct RequestBody {
    upload: Option<Upload>,
    /// What came of it before the origin was asked.
    first: Option<Frame<Bytes>>,
    /// Whose request it is, once that is known.
    pub(crate) client_context: Option<ClientContext>,
    /// Told, by being dropped, when all of it was sent.
    sent: Option<oneshot::Sender<Infallible>>,
}

/// What a visitor sends.
#[derive(Debug)]
struct Upload {
    body: Incoming,
    /// How many bytes may still come.
    left: u64,
    pause: Duration,
    silence: Pin<Box<Sleep>>,
}

impl RequestBody {
    /// The body of a visitor's own request.
    pub(crate) fn of(body: Incoming, terms: BodyLimits) -> Self {
        let upload = (!body.is_end_stream()).then(|| Upload {
            body,
            left: terms.bytes,
            pause: terms.pause,
            silence: Box::pin(tokio::time::sleep(terms.pause)),
        });
        RequestBody { upload, ..RequestBody::default() }
    }

    /// No body, of a request of this visitor's, or of nobody's.
    pub(crate) fn empty(client_context: Option<ClientContext>) -> Self {
        RequestBody { client_context, ..RequestBody::default() }
    }

    /// Waits for its first piece, where its length is not known: one that is wrong from the beginning is found out.
    pub(crate) async fn begin(&mut self) -> Result<(), BodyError> {
        if self.upload.is_some() && self.size_hint().exact().is_none() {
            self.first = self.frame().await.transpose()?;
            if self.first.is_none() {
                self.upload = None;
            }
        }
        Ok(())
    }

    /// Ends when all of it was sent, or is not going to be.
    pub(crate) fn sent(&mut self) -> impl Future<Output = ()> + use<> {
        let (sender, sent) = oneshot::channel();
        self.sent = (!self.is_end_stream()).then_some(sender);
        async {
            // Nothing is ever sent there.
            let _ = sent.await;
        }
    }
}

impl Body for RequestBody {
    type Data = Bytes;
    type Error = BodyError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BodyError>>> {
        if let Some(first) = self.first.take() {
            return Poll::Ready(Some(Ok(first)));
        }
        let frame = match &mut self.upload {
            Some(upload) => ready!(upload.poll(context)),
            None => None,
        };
        if frame.is_none() {
            self.upload = None;
            self.sent = None;
        }
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

impl Upload {
    fn poll(&mut self, context: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, BodyError>>> {
        let Poll::Ready(frame) = Pin::new(&mut self.body).poll_frame(context) else {
            ready!(self.silence.as_mut().poll(context));
            return Poll::Ready(Some(Err(TOO_SLOW.into())));
        };
        self.silence.as_mut().reset(Instant::now() + self.pause);
        if !is_within(&mut self.left, frame.as_ref()) {
            return Poll::Ready(Some(Err(TOO_LONG.into())));
        }
        // What may not stand before a body may not stand behind it.
        let frame = frame.map(|frame| match frame.map(Frame::into_trailers) {
            Ok(Ok(trailers)) => Ok(Frame::trailers(forwarded_headers::trailers(trailers))),
            Ok(Err(frame)) => Ok(frame),
            Err(error) => Err(error.into()),
        });
        Poll::Ready(frame)
    }
}

/// Why a body breaks off, if that is its visitor's fault: what to answer.
#[derive(Debug)]
struct Fault(Rejection);

impl std::fmt::Display for Fault {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.0.text)
    }
}

impl std::error::Error for Fault {}

const TOO_LONG: Fault =
    Fault(Rejection { status: StatusCode::PAYLOAD_TOO_LARGE, text: "the body of the request is too large" });

const TOO_SLOW: Fault = Fault(Rejection {
    status: StatusCode::REQUEST_TIMEOUT,
    text: "the rest of the request did not come in time",
});

/// What to answer, if a visitor's own body is among the causes of an error.
pub(crate) fn fault_in(error: &(dyn std::error::Error + 'static)) -> Option<Rejection> {
    let mut cause = Some(error);
    while let Some(error) = cause {
        if let Some(Fault(rejection)) = error.downcast_ref() {
            return Some(*rejection);
        }
        cause = error.source();
    }
    None
}

/// Counts a piece of a body. False if that is more than may still come.
fn is_within(left: &mut u64, frame: Option<&Result<Frame<Bytes>, hyper::Error>>) -> bool {
    let bytes = frame.and_then(|frame| frame.as_ref().ok()?.data_ref()).map_or(0, |bytes| bytes.len() as u64);
    let rest = left.checked_sub(bytes);
    *left = rest.unwrap_or(0);
    rest.is_some()
}

/// The body of an answer of the origin, or of one that is given in its place.
#[derive(Debug)]
pub(crate) enum OriginBody {
    /// It comes from the origin.
    Streamed(Streamed),
    /// The gateway's own words.
    Own(Option<Bytes>),
}

/// A body that comes from the origin, and must not take too long.
#[derive(Debug)]
pub(crate) struct Streamed {
    body: Incoming,
    /// How long the origin may be silent.
    idle: Duration,
    silence: Pin<Box<Sleep>>,
    /// How many bytes may still come.
    left: u64,
    /// When it must have ended, if ever.
    end: Option<Pin<Box<Sleep>>>,
}

impl OriginBody {
    /// A body that may pause for so long, must have come by its end, and may have so many bytes.
    pub(crate) fn streamed(body: Incoming, idle: Duration, end: Option<Instant>, most: u64) -> Self {
        OriginBody::Streamed(Streamed {
            body,
            left: most,
            idle,
            silence: Box::pin(tokio::time::sleep(idle)),
            end: end.map(|end| Box::pin(tokio::time::sleep_until(end))),
        })
    }
}

impl From<String> for OriginBody {
    fn from(text: String) -> Self {
        OriginBody::Own(Some(text.into()))
    }
}

impl Body for OriginBody {
    type Data = Bytes;
    type Error = BodyError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BodyError>>> {
        match &mut *self {
            OriginBody::Streamed(streamed) => streamed.poll(context),
            OriginBody::Own(bytes) => Poll::Ready(bytes.take().map(|bytes| Ok(Frame::data(bytes)))),
        }
    }

    fn is_end_stream(&self) -> bool {
        match self {
            OriginBody::Streamed(streamed) => streamed.body.is_end_stream(),
            OriginBody::Own(bytes) => bytes.is_none(),
        }
    }

    fn size_hint(&self) -> SizeHint {
        match self {
            OriginBody::Streamed(streamed) => streamed.body.size_hint(),
            OriginBody::Own(bytes) => {
                SizeHint::with_exact(bytes.as_ref().map_or(0, |bytes| bytes.len() as u64))
            }
        }
    }
}

impl Streamed {
    fn poll(&mut self, context: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, BodyError>>> {
        if let Some(end) = &mut self.end
            && end.as_mut().poll(context).is_ready()
        {
            return Poll::Ready(Some(Err("the origin took too long to send its answer".into())));
        }
        match Pin::new(&mut self.body).poll_frame(context) {
            Poll::Ready(frame) => {
                self.silence.as_mut().reset(Instant::now() + self.idle);
                if !is_within(&mut self.left, frame.as_ref()) {
                    return Poll::Ready(Some(Err("the answer of the origin is too long".into())));
                }
                Poll::Ready(frame.map(|frame| frame.map_err(Into::into)))
            }
            Poll::Pending => {
                ready!(self.silence.as_mut().poll(context));
                Poll::Ready(Some(Err("the origin fell silent in the middle of its answer".into())))
            }
        }
    }
}
