//! The body of an answer, which the connection is busy with until it has ended.

use std::pin::Pin;
use std::task::{Context, Poll};

use bytes::Bytes;
use facetheory::IsrBody;
use http_body::{Body, Frame, SizeHint};

use super::idle_tracker::Stream;
use crate::wire::ActiveRequest;

/// The body of an answer.
#[derive(Debug)]
pub(crate) struct TrackedBody {
    body: IsrBody,
    busy: ResponseGuard,
}

/// What a connection is told of its answers.
#[derive(Debug)]
pub(crate) enum ResponseGuard {
    /// On HTTP/1: when the answer has ended, which is when this is dropped.
    ActiveRequest { _answering: ActiveRequest },
    /// On HTTP/2: whom the answer waits for.
    Stream(Stream),
}

impl TrackedBody {
    pub(crate) fn new(body: IsrBody, busy: ResponseGuard) -> Self {
        TrackedBody { body, busy }
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
        if let ResponseGuard::Stream(stream) = &self.busy {
            stream.polled(frame.is_ready());
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
