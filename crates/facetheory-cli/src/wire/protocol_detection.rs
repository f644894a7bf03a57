//! Detects whether a client speaks HTTP/1 or HTTP/2, from its first bytes.

use std::io::{self, IoSlice};
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, ReadBuf};

/// The first bytes of a client with prior knowledge of HTTP/2 (RFC 9113, section 3.4).
const PREFACE: &[u8; 24] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";

/// A protocol that clients speak.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Protocol {
    Http1,
    Http2,
}

/// Reads until the protocol is known. The returned connection reads the same bytes again.
///
/// Fails if the client has not sent enough before the timeout.
pub(crate) async fn detect_protocol<IO>(io: IO, timeout: Duration) -> io::Result<(Protocol, Rewind<IO>)>
where
    IO: AsyncRead + Unpin,
{
    let mut rewind = Rewind { io, bytes: [0; PREFACE.len()], filled: 0, taken: 0 };
    let protocol = tokio::time::timeout(timeout, rewind.detect()).await??;
    Ok((protocol, rewind))
}

/// A connection whose first bytes are read again.
#[derive(Debug)]
pub(crate) struct Rewind<IO> {
    io: IO,
    bytes: [u8; PREFACE.len()],
    filled: usize,
    taken: usize,
}

impl<IO: AsyncRead + Unpin> Rewind<IO> {
    async fn detect(&mut self) -> io::Result<Protocol> {
        while self.filled < PREFACE.len() {
            let read = self.io.read(&mut self.bytes[self.filled..]).await?;
            self.filled += read;
            if read == 0 || self.bytes[..self.filled] != PREFACE[..self.filled] {
                return Ok(Protocol::Http1);
            }
        }
        Ok(Protocol::Http2)
    }
}

impl<IO: AsyncRead + Unpin> AsyncRead for Rewind<IO> {
    fn poll_read(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        let rest = &this.bytes[this.taken..this.filled];
        if rest.is_empty() {
            return Pin::new(&mut this.io).poll_read(cx, buffer);
        }
        let count = rest.len().min(buffer.remaining());
        buffer.put_slice(&rest[..count]);
        this.taken += count;
        // The rest of the request has usually arrived. Read together, it is checked without being copied. An error is
        // returned by the next read.
        if buffer.remaining() > 0 {
            let _ = Pin::new(&mut this.io).poll_read(cx, buffer);
        }
        Poll::Ready(Ok(()))
    }
}

impl<IO: AsyncWrite + Unpin> AsyncWrite for Rewind<IO> {
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.get_mut().io).poll_write(cx, bytes)
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        slices: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.get_mut().io).poll_write_vectored(cx, slices)
    }

    fn is_write_vectored(&self) -> bool {
        self.io.is_write_vectored()
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.get_mut().io).poll_flush(cx)
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.get_mut().io).poll_shutdown(cx)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tokio::io::AsyncWriteExt as _;

    const TIMEOUT: Duration = Duration::from_secs(10);

    /// Sends pieces; returns the detected protocol and all bytes that are read afterwards.
    async fn detect(pieces: &[&[u8]]) -> (Protocol, Vec<u8>) {
        let (mut client, server) = tokio::io::duplex(1024);
        let pieces: Vec<Vec<u8>> = pieces.iter().map(|piece| piece.to_vec()).collect();
        let sending = tokio::spawn(async move {
            for piece in pieces {
                client.write_all(&piece).await.expect("room");
                tokio::task::yield_now().await;
            }
        });
        let (protocol, mut rewind) = detect_protocol(server, TIMEOUT).await.expect("a protocol");
        let mut all = Vec::new();
        rewind.read_to_end(&mut all).await.expect("the rest");
        sending.await.expect("sent");
        (protocol, all)
    }

    #[tokio::test]
    async fn the_preface_is_http_2_wherever_it_is_split_and_no_byte_is_lost() {
        let whole = [PREFACE.as_slice(), b"and more"].concat();
        for cut in 0..whole.len() {
            let (protocol, all) = detect(&[&whole[..cut], &whole[cut..]]).await;
            assert_eq!((protocol, all), (Protocol::Http2, whole.clone()), "split at {cut}");
        }
    }

    #[tokio::test]
    async fn anything_else_is_http_1_at_once_and_no_byte_is_lost() {
        for text in
            ["GET / HTTP/1.1\r\n\r\n", "POST / HTTP/1.1\r\n\r\n", "P", "", "PRI * HTTP/2.0\r\n\r\nSM\r\n\r!"]
        {
            let (protocol, all) = detect(&[text.as_bytes()]).await;
            assert_eq!((protocol, all), (Protocol::Http1, text.as_bytes().to_vec()), "{text:?}");
        }
        let (mut client, server) = tokio::io::duplex(1024);
        client.write_all(b"PO").await.expect("room");
        let (protocol, _) = detect_protocol(server, TIMEOUT).await.expect("a protocol");
        assert_eq!(protocol, Protocol::Http1, "although the client may send more");
    }

    #[tokio::test]
    async fn bytes_after_the_first_ones_are_read_together_with_them() {
        let (mut client, server) = tokio::io::duplex(1024);
        let request = b"GET /a/long/enough/path HTTP/1.1\r\nhost: a\r\n\r\n";
        client.write_all(request).await.expect("room");
        let (_, mut rewind) = detect_protocol(server, TIMEOUT).await.expect("a protocol");
        let mut buffer = [0; 1024];
        assert_eq!(rewind.read(&mut buffer).await.expect("one read"), request.len());
    }

    #[tokio::test(start_paused = true)]
    async fn a_silent_client_times_out() {
        let (mut client, server) = tokio::io::duplex(1024);
        client.write_all(b"PRI * HT").await.expect("room");
        let error = detect_protocol(server, TIMEOUT).await.expect_err("a timeout");
        assert_eq!(error.kind(), io::ErrorKind::TimedOut);
    }
}
