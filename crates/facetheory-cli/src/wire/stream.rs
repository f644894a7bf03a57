//! The connection as hyper sees it: well-formed requests, and nothing else.

use std::future::poll_fn;
use std::io::{self, IoSlice};
use std::mem::MaybeUninit;
use std::ops::ControlFlow;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use super::connection_state::ConnectionState;
use super::fast_path::FastPath;
use super::lingering_close::LingeringClose;
use super::rejection::RequestLimits;
use super::request_reader::{Mode, RequestReader};
use super::slow_client::{RegisteredConnection, TimedIo};
use super::write_queue::WriteQueue;

/// The size of a read on the fast path: as much as hyper reads first.
const READ_BYTES: usize = 8192;

/// A connection whose requests are checked before hyper reads them.
#[derive(Debug)]
pub(crate) struct CheckedStream<IO> {
    io: TimedIo<IO>,
    reader: RequestReader,
    writer: WriteQueue,
    closing: Closing,
}

#[derive(Debug)]
enum Closing {
    No,
    Lingering(LingeringClose),
    Done,
}

/// Why the fast path stopped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum FastPathEnd {
    /// A request needs hyper, which is to serve the connection from now on.
    NeedsHyper,
    /// The client closed the connection.
    Closed,
}

impl<IO> CheckedStream<IO> {
    /// Wraps a connection of which nothing has been read.
    pub(super) fn new(io: IO, limits: RequestLimits, connection: RegisteredConnection) -> Self {
        let (reader, writer) = (RequestReader::new(limits), WriteQueue::default());
        CheckedStream { io: TimedIo { io, connection }, reader, writer, closing: Closing::No }
    }

    /// Sets the source of responses that do not need hyper.
    pub(crate) fn set_fast_path(&mut self, fast_path: Box<dyn FastPath>) {
        self.reader.fast_path = Some(fast_path);
    }

    /// The state that is shared with the service.
    pub(crate) fn state(&self) -> &Arc<ConnectionState> {
        &self.io.connection.state
    }
}

impl<IO: AsyncRead + AsyncWrite + Unpin> CheckedStream<IO> {
    /// Serves requests from the fast path until the first one that it cannot serve: many connections never need hyper,
    /// which costs time and memory.
    pub(crate) async fn serve_fast_path(&mut self) -> io::Result<FastPathEnd> {
        poll_fn(|cx| {
            let mut bytes = [MaybeUninit::uninit(); READ_BYTES];
            let mut buffer = ReadBuf::uninit(&mut bytes);
            ready!(Pin::new(&mut *self).poll_read(cx, &mut buffer))?;
            if buffer.filled().is_empty() {
                return Poll::Ready(Ok(FastPathEnd::Closed));
            }
            self.reader.put_back(buffer.filled());
            Poll::Ready(Ok(FastPathEnd::NeedsHyper))
        })
        .await
    }
}

impl<IO: AsyncRead + AsyncWrite + Unpin> AsyncRead for CheckedStream<IO> {
    fn poll_read(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let CheckedStream { io, reader, writer, .. } = self.get_mut();
        let start = buffer.filled().len();
        loop {
            ready!(writer.poll_response(io, cx))?;
            let TimedIo { io, connection } = io;
            reader.deliver(buffer);
            if buffer.filled().len() > start || buffer.remaining() == 0 {
                return Poll::Ready(Ok(()));
            }
            let step = match reader.mode {
                Mode::Requests => match Pin::new(&mut *io).poll_read(cx, buffer)? {
                    Poll::Ready(()) if buffer.filled().len() == start => return Poll::Ready(Ok(())),
                    Poll::Ready(()) => {
                        if let Some(response) = reader.check(connection, buffer, start) {
                            writer.push(response);
                        }
                        continue;
                    }
                    Poll::Pending => reader.wait(connection, cx),
                },
                Mode::UpgradeRequested => reader.poll_upgrade(connection, cx),
                Mode::Tunnel => return Pin::new(io).poll_read(cx, buffer),
                // Not the end of the stream: hyper would drop the response that is being made.
                Mode::Rejected => return Poll::Pending,
                Mode::BodyFailed(kind, rejection) => {
                    return Poll::Ready(Err(io::Error::new(kind, rejection.text)));
                }
            };
            if let ControlFlow::Break(outcome) = step {
                return outcome;
            }
        }
    }
}

impl<IO: AsyncRead + AsyncWrite + Unpin> AsyncWrite for CheckedStream<IO> {
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        self.poll_write_vectored(cx, &[IoSlice::new(bytes)])
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        slices: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let CheckedStream { io, writer, .. } = self.get_mut();
        ready!(writer.poll_begun(io, cx))?;
        io.poll_write(cx, slices)
    }

    fn is_write_vectored(&self) -> bool {
        self.io.io.is_write_vectored()
    }

    /// hyper flushes when it has written all that it had, so a flush is the moment between two responses. If an
    /// informational response waits, the service still waits for it to be sent and has not returned its final response,
    /// so it is not written into the middle of that one.
    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let CheckedStream { io, reader, writer, .. } = self.get_mut();
        // While the service works, hyper may only flush and not read, as it does for clients that closed their side.
        io.connection.register_waker(cx);
        ready!(writer.poll_all(io, cx))?;
        // A body that still arrives must be read by hyper, even if the response to its request is complete.
        let is_idle = io.connection.is_idle() && !reader.is_in_body();
        ready!(io.poll_flush(cx))?;
        if is_idle {
            reader.hyper_is_busy = false;
        }
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let CheckedStream { io, reader, writer, closing } = self.get_mut();
        ready!(writer.poll_response(io, cx))?;
        loop {
            *closing = match closing {
                Closing::Done => return Poll::Ready(Ok(())),
                Closing::Lingering(lingering) => {
                    ready!(lingering.poll(&mut io.io, cx));
                    Closing::Done
                }
                Closing::No => {
                    ready!(io.poll_shutdown(cx))?;
                    if reader.has_unread() {
                        Closing::Lingering(LingeringClose::new())
                    } else {
                        Closing::Done
                    }
                }
            };
        }
    }
}
