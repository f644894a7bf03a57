//! The body of a response, which keeps its connection busy until it ends.

use std::pin::Pin;
use std::task::{Context, Poll};

use bytes::Bytes;
use facetheory::IsrBody;
use http_body::{Body, Frame, SizeHint};

use crate::wire::ActiveRequest;
use crate::wire::slow_client::TrackedResponse;

/// The body of a response on a client connection.
#[derive(Debug)]
pub(crate) struct TrackedBody {
    body: IsrBody,
    guard: ResponseGuard,
}

/// Tells a connection about one of its responses, and that it is complete when this is dropped.
#[derive(Debug)]
pub(crate) enum ResponseGuard {
    Http1 { _request: ActiveRequest },
    Http2(TrackedResponse),
}

impl TrackedBody {
    pub(crate) fn new(body: IsrBody, guard: ResponseGuard) -> Self {
        TrackedBody { body, guard }
    }
}

impl Body for TrackedBody {
    type Data = Bytes;
    type Error = <IsrBody as Body>::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Self::Error>>> {
        let frame = Pin::new(&mut self.body).poll_frame(context);
        if let ResponseGuard::Http2(response) = &self.guard {
            response.polled(frame.is_ready());
        }
        frame
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}
