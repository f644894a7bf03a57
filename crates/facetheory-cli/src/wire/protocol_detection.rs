//! Which protocol a client speaks, by its first bytes.

use std::io::{self, IoSlice};
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, ReadBuf};

/// How a client with prior knowledge of HTTP/2 begins: RFC 9113, section 3.4.
const PREFACE: &[u8; 24] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";

/// The protocols that are told apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Protocol {
    Http1,
    Http2,
}

/// Reads until it is known which protocol the client speaks. No byte is lost: what was read is read again.
///
/// A client that has not made itself known by the deadline is not served.
pub(crate) async fn detect_protocol<IO>(io: IO, deadline: Duration) -> io::Result<(Protocol, Rewind<IO>)>
where
    IO: AsyncRead + Unpin,
{
    let mut prefixed = Rewind { io, bytes: [0; PREFACE.len()], filled: 0, taken: 0 };
    let protocol = tokio::time::timeout(deadline, prefixed.recognise()).await??;
    Ok((protocol, prefixed))
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
    async fn recognise(&mut self) -> io::Result<Protocol> {
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
        let here = rest.len().min(buffer.remaining());
        buffer.put_slice(&rest[..here]);
        this.taken += here;
        // What follows is most often there already, and a request in one piece is checked without being copied. An
        // error will be there the next time too.
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
        pieces: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.get_mut().io).poll_write_vectored(cx, pieces)
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

    const DEADLINE: Duration = Duration::from_secs(10);

    async fn sniffed(pieces: &[&[u8]]) -> (Protocol, Vec<u8>) {
        let (mut client, server) = tokio::io::duplex(1024);
        let pieces: Vec<Vec<u8>> = pieces.iter().map(|piece| piece.to_vec()).collect();
        let sending = tokio::spawn(async move {
            for piece in pieces {
                client.write_all(&piece).await.expect("room");
                tokio::task::yield_now().await;
            }
        });
        let (protocol, mut prefixed) = detect_protocol(server, DEADLINE).await.expect("a protocol");
        let mut all = Vec::new();
        prefixed.read_to_end(&mut all).await.expect("the rest");
        sending.await.expect("sent");
        (protocol, all)
    }

    #[tokio::test]
    async fn the_preface_is_http_2_however_it_is_cut_and_nothing_is_lost() {
        let whole = [PREFACE.as_slice(), b"and more"].concat();
        for cut in 0..whole.len() {
            let (protocol, all) = sniffed(&[&whole[..cut], &whole[cut..]]).await;
            assert_eq!((protocol, all), (Protocol::Http2, whole.clone()), "cut at {cut}");
        }
    }

    #[tokio::test]
    async fn whatever_differs_is_http_1_at_once_and_nothing_is_lost() {
        for text in
            ["GET / HTTP/1.1\r\n\r\n", "POST / HTTP/1.1\r\n\r\n", "P", "", "PRI * HTTP/2.0\r\n\r\nSM\r\n\r!"]
        {
            let (protocol, all) = sniffed(&[text.as_bytes()]).await;
            assert_eq!((protocol, all), (Protocol::Http1, text.as_bytes().to_vec()), "{text:?}");
        }
        let (mut client, server) = tokio::io::duplex(1024);
        client.write_all(b"PO").await.expect("room");
        assert_eq!(
            detect_protocol(server, DEADLINE).await.expect("a protocol").0,
            Protocol::Http1,
            "and it is still open"
        );
    }

    #[tokio::test]
    async fn what_follows_the_first_bytes_comes_with_them() {
        let (mut client, server) = tokio::io::duplex(1024);
        let request = b"GET /a/long/enough/path HTTP/1.1\r\nhost: a\r\n\r\n";
        client.write_all(request).await.expect("room");
        let (_, mut prefixed) = detect_protocol(server, DEADLINE).await.expect("a protocol");
        let mut buffer = [0; 1024];
        assert_eq!(prefixed.read(&mut buffer).await.expect("one read"), request.len());
    }

    #[tokio::test(start_paused = true)]
    async fn a_client_that_says_nothing_is_not_served() {
        let (mut client, server) = tokio::io::duplex(1024);
        client.write_all(b"PRI * HT").await.expect("room");
        let error = detect_protocol(server, DEADLINE).await.expect_err("time is over");
        assert_eq!(error.kind(), io::ErrorKind::TimedOut);
    }
}
