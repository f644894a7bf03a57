//! The write half of a connection: responses that are written before anything that hyper writes.

use std::io::{self, ErrorKind, IoSlice};
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use bytes::buf::Chain;
use bytes::{Buf, Bytes};
use tokio::io::AsyncWrite;

use super::fast_path::RawResponse;
use super::informational::InformationalResponse;
use super::slow_client::{RegisteredConnection, check_write};

/// Responses that do not come from hyper, and are written at once.
#[derive(Debug, Default)]
pub(super) struct WriteQueue {
    /// The response of the fast path that is being written.
    response: Option<Chain<Bytes, Bytes>>,
    /// The informational response that is being written.
    informational: Option<InformationalResponse>,
}

impl WriteQueue {
    /// Queues a response of the fast path. The one before it must have been written.
    pub(super) fn push(&mut self, RawResponse { head, body }: RawResponse) {
        self.response = Some(head.chain(body));
    }

    /// Writes the response of the fast path, if one is queued. It is complete once it is flushed: TLS may have accepted
    /// bytes that are not sent yet.
    pub(super) fn poll_response<IO: AsyncWrite + Unpin>(
        &mut self,
        io: &mut IO,
        connection: &mut RegisteredConnection,
        cx: &mut Context<'_>,
    ) -> Poll<io::Result<()>> {
        let Some(response) = &mut self.response else { return Poll::Ready(Ok(())) };
        ready!(poll_write_all(io, connection, cx, response))?;
        let outcome = Pin::new(io).poll_flush(cx);
        ready!(check_write(connection, cx, outcome))?;
        self.response = None;
        connection.complete_request();
        Poll::Ready(Ok(()))
    }

    /// Writes all that has been begun: the response of the fast path, then the informational response.
    pub(super) fn poll_begun<IO: AsyncWrite + Unpin>(
        &mut self,
        io: &mut IO,
        connection: &mut RegisteredConnection,
        cx: &mut Context<'_>,
    ) -> Poll<io::Result<()>> {
        ready!(self.poll_response(io, connection, cx))?;
        let Some(informational) = &mut self.informational else { return Poll::Ready(Ok(())) };
        ready!(poll_write_all(io, connection, cx, &mut informational.bytes))?;
        if let Some(informational) = self.informational.take() {
            // The sender may no longer wait.
            let _ = informational.written.send(());
        }
        Poll::Ready(Ok(()))
    }

    /// Writes all that has been begun, and all informational responses that wait. Only to be called between two
    /// responses of hyper.
    pub(super) fn poll_all<IO: AsyncWrite + Unpin>(
        &mut self,
        io: &mut IO,
        connection: &mut RegisteredConnection,
        cx: &mut Context<'_>,
    ) -> Poll<io::Result<()>> {
        loop {
            ready!(self.poll_begun(io, connection, cx))?;
            self.informational = connection.informational.next();
            if self.informational.is_none() {
                return Poll::Ready(Ok(()));
            }
        }
    }
}

fn poll_write_all<IO: AsyncWrite + Unpin>(
    io: &mut IO,
    connection: &mut RegisteredConnection,
    cx: &mut Context<'_>,
    bytes: &mut impl Buf,
) -> Poll<io::Result<()>> {
    while bytes.has_remaining() {
        let mut slices = [IoSlice::new(&[]); 2];
        let count = bytes.chunks_vectored(&mut slices);
        let outcome = Pin::new(&mut *io).poll_write_vectored(cx, &slices[..count]);
        match ready!(check_write(connection, cx, outcome))? {
            0 => return Poll::Ready(Err(ErrorKind::WriteZero.into())),
            written => bytes.advance(written),
        }
    }
    Poll::Ready(Ok(()))
}
