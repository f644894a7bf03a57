//! The write timeout of HTTP/1: a slow client that does not read its response is disconnected.

use std::io::{self, ErrorKind, IoSlice};
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use bytes::Buf;
use tokio::io::AsyncWrite;

use super::RegisteredConnection;

/// A connection with a write timeout.
///
/// The time runs from the first write that the socket does not take until it takes one, and [`MinRate`](super::MinRate) says how
/// much of it the bytes earn back. It does not apply after
/// a protocol upgrade: tunnels have an idle timeout of their own.
#[derive(Debug)]
pub(in crate::wire) struct TimedIo<IO> {
    pub(in crate::wire) io: IO,
    pub(in crate::wire) connection: RegisteredConnection,
}

impl<IO: AsyncWrite + Unpin> TimedIo<IO> {
    pub(in crate::wire) fn poll_write(
        &mut self,
        cx: &mut Context<'_>,
        slices: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let outcome = Pin::new(&mut self.io).poll_write_vectored(cx, slices);
        let written = if let Poll::Ready(Ok(written)) = outcome { written as u64 } else { 0 };
        self.check(cx, outcome, written)
    }

    pub(in crate::wire) fn poll_flush(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let outcome = Pin::new(&mut self.io).poll_flush(cx);
        self.check(cx, outcome, 0)
    }

    pub(in crate::wire) fn poll_shutdown(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let outcome = Pin::new(&mut self.io).poll_shutdown(cx);
        self.check(cx, outcome, 0)
    }

    /// Writes until there are no bytes left.
    pub(in crate::wire) fn poll_write_all(
        &mut self,
        cx: &mut Context<'_>,
        bytes: &mut impl Buf,
    ) -> Poll<io::Result<()>> {
        while bytes.has_remaining() {
            let mut slices = [IoSlice::new(&[]); 2];
            let count = bytes.chunks_vectored(&mut slices);
            match ready!(self.poll_write(cx, &slices[..count]))? {
                0 => return Poll::Ready(Err(ErrorKind::WriteZero.into())),
                written => bytes.advance(written),
            }
        }
        Poll::Ready(Ok(()))
    }

    /// Applies the timeout to the outcome of a write of this many bytes, a flush or a shutdown.
    fn check<T>(
        &mut self,
        cx: &Context<'_>,
        outcome: Poll<io::Result<T>>,
        written: u64,
    ) -> Poll<io::Result<T>> {
        let connection = &mut self.connection;
        if outcome.is_ready() {
            connection.write_resumed(written);
        } else if !connection.is_tunnel() {
            connection.register_waker(cx);
            connection.write_stalled();
            if connection.is_write_overdue() {
                let text = "write timeout: the client does not read the response, or reads it too slowly";
                return Poll::Ready(Err(io::Error::new(ErrorKind::TimedOut, text)));
            }
        }
        outcome
    }
}
