//! Collects the writes of an HTTP/2 connection. h2 writes each frame by itself, so every response would cost a TLS record and a
//! system call. All frames of one poll are written together instead, at its end.

use std::future::poll_fn;
use std::io::{self, ErrorKind::WriteZero, IoSlice};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use bytes::BytesMut;
use parking_lot::Mutex;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio_util::io::poll_write_buf;

/// The most bytes that are collected: four full TLS records.
const MAX_BYTES: usize = 64 * 1024;

/// A connection that collects what is written to it, until [`BatchWriter`] writes it.
#[derive(Debug)]
pub(crate) struct BatchedWrites<IO>(Arc<Mutex<Batch<IO>>>);

/// Writes what a connection has collected.
#[derive(Debug)]
pub(crate) struct BatchWriter<IO>(Arc<Mutex<Batch<IO>>>);

#[derive(Debug)]
struct Batch<IO> {
    io: IO,
    bytes: BytesMut,
    /// Whether the connection below may hold bytes that it has accepted, as TLS does.
    needs_flush: bool,
    /// An error at the end of a poll, for the next read or write.
    error: Option<io::Error>,
}

/// Splits a connection into the side that a protocol uses, and the writer of its batches.
pub(crate) fn batch_writes<IO>(io: IO) -> (BatchedWrites<IO>, BatchWriter<IO>) {
    let batch = Batch { io, bytes: BytesMut::new(), needs_flush: false, error: None };
    let batch = Arc::new(Mutex::new(batch));
    (BatchedWrites(batch.clone()), BatchWriter(batch))
}

impl<IO: AsyncWrite + Unpin> BatchWriter<IO> {
    /// Runs a protocol over the connection to its end. Writes what is collected at the end of each poll.
    pub(crate) async fn run<F: Future>(&self, mut protocol: Pin<&mut F>) -> F::Output {
        poll_fn(|context| {
            let outcome = protocol.as_mut().poll(context);
            let mut batch = self.0.lock();
            if let Poll::Ready(Err(error)) = batch.poll_flush(context) {
                // The protocol finds the error in the next poll.
                batch.fail(error);
                context.waker().wake_by_ref();
            }
            outcome
        })
        .await
    }
}

impl<IO: AsyncWrite + Unpin> Batch<IO> {
    /// Adds bytes to the batch, as many as there is room for.
    fn poll_add<'a>(
        &mut self,
        context: &mut Context<'_>,
        slices: impl Iterator<Item = &'a [u8]> + Clone,
    ) -> Poll<io::Result<usize>> {
        self.take_error()?;
        let length: usize = slices.clone().map(<[u8]>::len).sum();
        if self.bytes.len() + length > MAX_BYTES {
            let written = self.poll_write(context)?;
            if self.bytes.len() >= MAX_BYTES {
                ready!(written);
            }
        }
        let mut added = 0;
        for slice in slices {
            let room = MAX_BYTES - self.bytes.len();
            let (fits, _) = slice.split_at(slice.len().min(room));
            self.bytes.extend_from_slice(fits);
            added += fits.len();
        }
        Poll::Ready(Ok(added))
    }

    fn poll_write(&mut self, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        while !self.bytes.is_empty() {
            self.needs_flush = true;
            if ready!(poll_write_buf(Pin::new(&mut self.io), context, &mut self.bytes))? == 0 {
                return Poll::Ready(Err(WriteZero.into()));
            }
        }
        Poll::Ready(Ok(()))
    }

    fn poll_flush(&mut self, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        ready!(self.poll_write(context))?;
        if self.needs_flush {
            ready!(Pin::new(&mut self.io).poll_flush(context))?;
            self.needs_flush = false;
        } else {
            // Nothing was written in this poll, so the connection may be idle from now on.
            self.bytes = BytesMut::new();
        }
        Poll::Ready(Ok(()))
    }

    /// Gives up what is collected.
    fn fail(&mut self, error: io::Error) {
        self.bytes.clear();
        self.needs_flush = false;
        self.error = Some(error);
    }

    fn take_error(&mut self) -> io::Result<()> {
        self.error.take().map_or(Ok(()), Err)
    }
}

impl<IO: AsyncRead + Unpin> AsyncRead for BatchedWrites<IO> {
    fn poll_read(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let mut batch = self.0.lock();
        if let Some(error) = batch.error.take() {
            return Poll::Ready(Err(error));
        }
        Pin::new(&mut batch.io).poll_read(context, buffer)
    }
}

impl<IO: AsyncWrite + Unpin> AsyncWrite for BatchedWrites<IO> {
    fn poll_write(self: Pin<&mut Self>, context: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        self.0.lock().poll_add(context, std::iter::once(bytes))
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        slices: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        self.0.lock().poll_add(context, slices.iter().map(|slice| &**slice))
    }

    fn is_write_vectored(&self) -> bool {
        true
    }

    /// Does nothing: h2 flushes after each frame.
    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(self.0.lock().take_error())
    }

    fn poll_shutdown(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        let mut batch = self.0.lock();
        batch.take_error()?;
        ready!(batch.poll_write(context))?;
        Pin::new(&mut batch.io).poll_shutdown(context)
    }
}

#[cfg(test)]
mod tests {
    use std::pin::pin;

    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _, duplex};
    use tokio_test::io::Builder;

    use super::*;

    #[tokio::test]
    async fn all_writes_of_one_poll_are_one_write() {
        let io = Builder::new().write(b"one two three").build();
        let (mut connection, writer) = batch_writes(io);
        let protocol = pin!(async {
            for piece in [&b"one "[..], b"two ", b"three"] {
                connection.write_all(piece).await?;
                connection.flush().await?;
            }
            Ok::<_, io::Error>(())
        });
        writer.run(protocol).await.expect("written");
    }

    #[tokio::test]
    async fn a_client_that_does_not_read_limits_what_is_collected() {
        const ROOM: usize = 1024;
        let (io, mut client) = duplex(ROOM);
        let (mut connection, writer) = batch_writes(io);
        let all: Vec<u8> = (0..=u8::MAX).cycle().take(3 * MAX_BYTES).collect();
        let mut accepted = 0;
        let mut protocol = pin!(async {
            while accepted < all.len() {
                accepted += connection.write(&all[accepted..]).await?;
            }
            connection.shutdown().await
        });
        {
            let run = pin!(writer.run(protocol.as_mut()));
            assert!(futures_util::poll!(run).is_pending());
            assert!(writer.0.lock().bytes.len() <= MAX_BYTES);
        }
        let mut received = Vec::new();
        let (written, read) = tokio::join!(writer.run(protocol), client.read_to_end(&mut received));
        written.expect("written");
        read.expect("read");
        assert_eq!(received, all);
    }

    #[tokio::test]
    async fn an_error_at_the_end_of_a_poll_reaches_the_protocol() {
        let io = Builder::new().write_error(io::ErrorKind::ConnectionReset.into()).build();
        let (mut connection, writer) = batch_writes(io);
        let protocol = pin!(async {
            connection.write_all(b"lost").await.expect("collected");
            tokio::task::yield_now().await;
            connection.read_u8().await
        });
        let error = writer.run(protocol).await.expect_err("the client is gone");
        assert_eq!(error.kind(), io::ErrorKind::ConnectionReset);
    }

    #[tokio::test]
    async fn an_idle_connection_holds_no_memory() {
        let (io, _client) = duplex(MAX_BYTES);
        let (mut connection, writer) = batch_writes(io);
        let protocol = pin!(async {
            connection.write_all(b"a response").await.expect("collected");
            for _ in 0..2 {
                tokio::task::yield_now().await;
            }
        });
        writer.run(protocol).await;
        assert_eq!(writer.0.lock().bytes.capacity(), 0);
    }
}
