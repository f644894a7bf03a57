//! The write half of a connection: responses that are written before anything that hyper writes.

use std::io;
use std::task::{Context, Poll, ready};

use bytes::buf::Chain;
use bytes::{Buf as _, Bytes};
use tokio::io::AsyncWrite;

use super::fast_path::RawResponse;
use super::informational::InformationalResponse;
use super::slow_client::TimedIo;

/// Responses that do not come from hyper, and are written at once.
#[derive(Debug, Default)]
pub(super) struct WriteQueue {
    /// The response of the fast path that is being written.
    response: Option<Chain<Bytes, Bytes>>,
    /// The informational response that is being written.
    informational: Option<InformationalResponse>,
}

type Polled = Poll<io::Result<()>>;

impl WriteQueue {
    /// Queues a response of the fast path. The one before it must have been written.
    pub(super) fn push(&mut self, RawResponse { head, body }: RawResponse) {
        self.response = Some(head.chain(body));
    }

    /// Writes the response of the fast path, if one is queued. It is complete once it is flushed: TLS may have accepted
    /// bytes that are not sent yet.
    pub(super) fn poll_response<IO>(&mut self, io: &mut TimedIo<IO>, cx: &mut Context<'_>) -> Polled
    where
        IO: AsyncWrite + Unpin,
    {
        let Some(response) = &mut self.response else { return Poll::Ready(Ok(())) };
        ready!(io.poll_write_all(cx, response))?;
        ready!(io.poll_flush(cx))?;
        self.response = None;
        io.connection.complete_request();
        Poll::Ready(Ok(()))
    }

    /// Writes all that has been begun: the response of the fast path, then the informational response.
    pub(super) fn poll_begun<IO>(&mut self, io: &mut TimedIo<IO>, cx: &mut Context<'_>) -> Polled
    where
        IO: AsyncWrite + Unpin,
    {
        ready!(self.poll_response(io, cx))?;
        if let Some(informational) = &mut self.informational {
            ready!(io.poll_write_all(cx, &mut informational.bytes))?;
        }
        if let Some(informational) = self.informational.take() {
            // The sender may no longer wait.
            let _ = informational.written.send(());
        }
        Poll::Ready(Ok(()))
    }

    /// Writes all that has been begun, and all informational responses that wait. Only to be called between two
    /// responses of hyper.
    pub(super) fn poll_all<IO>(&mut self, io: &mut TimedIo<IO>, cx: &mut Context<'_>) -> Polled
    where
        IO: AsyncWrite + Unpin,
    {
        loop {
            ready!(self.poll_begun(io, cx))?;
            self.informational = io.connection.informational.next();
            if self.informational.is_none() {
                return Poll::Ready(Ok(()));
            }
        }
    }
}
