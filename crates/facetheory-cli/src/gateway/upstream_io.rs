//! Connections to the origin, with a connect timeout and a write timeout.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::task::{Context, Poll, ready};
use std::time::Duration;

use http::Uri;
use hyper_rustls::{HttpsConnector, MaybeHttpsStream};
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::TokioIo;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;
use tokio::time::{Sleep, sleep};
use tower::ServiceExt as _;

use super::body::BodyError;

/// A connection that fails if the origin stops reading for too long.
///
/// A pause of the client that sends the body does not count. Without the timeout, hyper would wait for as long as the
/// connection lasts, even after the request was cancelled, and hold the client's body.
#[derive(Debug)]
pub(crate) struct UpstreamIo<IO> {
    io: IO,
    state: Arc<UpstreamState>,
    write_timeout: Duration,
    /// Runs while the origin does not read.
    stalled: Option<Pin<Box<Sleep>>>,
}

/// The state of a connection to the origin, in the extensions of its responses.
#[derive(Debug, Default)]
pub(crate) struct UpstreamState {
    is_tunnel: AtomicBool,
    /// Whether there was a response before the last request.
    is_reused: AtomicBool,
    /// Whether anything has been received since the last request.
    has_received: AtomicBool,
}

impl UpstreamState {
    /// Turns the write timeout off, after a protocol upgrade.
    pub(crate) fn set_tunnel(&self) {
        self.is_tunnel.store(true, Relaxed);
    }

    /// Whether the connection was reused and nothing has been received since the last request: the origin may have closed
    /// it before it saw the request.
    pub(crate) fn may_have_closed_before_request(&self) -> bool {
        self.is_reused.load(Relaxed) && !self.has_received.load(Relaxed)
    }
}

impl<IO> UpstreamIo<IO> {
    pub(crate) fn new(io: IO, write_timeout: Duration) -> Self {
        UpstreamIo { io, state: Arc::default(), write_timeout, stalled: None }
    }

    /// The state of the connection.
    pub(crate) fn state(&self) -> Arc<UpstreamState> {
        self.state.clone()
    }

    /// Applies the write timeout to the outcome of a write.
    fn check_write<T>(
        &mut self,
        context: &mut Context<'_>,
        outcome: Poll<io::Result<T>>,
    ) -> Poll<io::Result<T>> {
        if outcome.is_ready() || self.state.is_tunnel.load(Relaxed) {
            self.stalled = None;
            return outcome;
        }
        let stalled = self.stalled.get_or_insert_with(|| Box::pin(sleep(self.write_timeout)));
        ready!(stalled.as_mut().poll(context));
        let text = "write timeout: the origin does not read the request";
        Poll::Ready(Err(io::Error::new(io::ErrorKind::TimedOut, text)))
    }
}

impl<IO: AsyncRead + Unpin> AsyncRead for UpstreamIo<IO> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let before = buffer.filled().len();
        let outcome = Pin::new(&mut self.io).poll_read(context, buffer);
        if buffer.filled().len() > before {
            self.state.has_received.store(true, Relaxed);
        }
        outcome
    }
}

impl<IO: AsyncWrite + Unpin> AsyncWrite for UpstreamIo<IO> {
    fn poll_write(self: Pin<&mut Self>, context: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        self.poll_write_vectored(context, &[io::IoSlice::new(bytes)])
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        slices: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        if self.state.has_received.swap(false, Relaxed) {
            self.state.is_reused.store(true, Relaxed);
        }
        let outcome = Pin::new(&mut self.io).poll_write_vectored(context, slices);
        self.check_write(context, outcome)
    }

    fn is_write_vectored(&self) -> bool {
        self.io.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        let outcome = Pin::new(&mut self.io).poll_flush(context);
        self.check_write(context, outcome)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        let outcome = Pin::new(&mut self.io).poll_shutdown(context);
        self.check_write(context, outcome)
    }
}

/// Connects to the origin.
#[derive(Clone, Debug)]
pub(crate) struct Connector {
    pub(crate) https: HttpsConnector<HttpConnector>,
    pub(crate) connect_timeout: Duration,
    /// How long a write to the origin may be stalled.
    pub(crate) write_timeout: Duration,
}

/// A new connection to the origin.
type Connected = UpstreamIo<TokioIo<MaybeHttpsStream<TokioIo<TcpStream>>>>;

impl Connector {
    /// Connects to the server at this address, including the TLS handshake.
    pub(crate) async fn connect(&self, address: Uri) -> Result<Connected, BodyError> {
        let timeout = self.connect_timeout;
        let connecting = tokio::time::timeout(timeout, self.https.clone().oneshot(address));
        let connected =
            connecting.await.map_err(|_| format!("connecting took longer than {timeout:?}"))??;
        Ok(UpstreamIo::new(TokioIo::new(connected), self.write_timeout))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _, duplex};
    use tokio::time::{Instant, advance};

    const LIMIT: Duration = Duration::from_secs(10);
    const ROOM: usize = 16;

    #[tokio::test(start_paused = true)]
    async fn an_origin_that_stops_reading_times_out_and_a_slow_one_does_not() {
        let (near, mut origin) = duplex(ROOM);
        let mut upstream = UpstreamIo::new(near, LIMIT);
        advance(LIMIT * 9).await;
        upstream.write_all(&[b'x'; ROOM]).await.expect("the client may pause");
        let sending = tokio::spawn(async move { upstream.write_all(&[b'x'; ROOM * 9]).await });
        for _ in 0..ROOM {
            tokio::task::yield_now().await;
            advance(LIMIT * 2 / 3).await;
            origin.read_u8().await.expect("more");
        }
        tokio::task::yield_now().await;
        let since = Instant::now();
        let error = sending.await.expect("no panic").expect_err("the origin stopped reading");
        assert_eq!(error.kind(), io::ErrorKind::TimedOut);
        assert!(since.elapsed() >= LIMIT && since.elapsed() < LIMIT * 2, "{:?}", since.elapsed());
    }

    #[tokio::test]
    async fn only_a_reused_connection_without_a_response_may_have_closed_before_the_request() {
        let (near, mut origin) = duplex(ROOM);
        let mut upstream = UpstreamIo::new(near, LIMIT);
        for round in 0..3 {
            upstream.write_all(b"query").await.expect("room");
            assert_eq!(upstream.state.may_have_closed_before_request(), round > 0, "round {round}");
            origin.write_all(b"data").await.expect("room");
            upstream.read_exact(&mut [0; 4]).await.expect("a response");
            assert!(!upstream.state.may_have_closed_before_request(), "round {round}: there is a response");
            origin.read_exact(&mut [0; 5]).await.expect("the request");
        }
        upstream.write_all(b"query").await.expect("room");
        drop(origin);
        assert_eq!(upstream.read(&mut [0]).await.expect("an end"), 0);
        assert!(upstream.state.may_have_closed_before_request());
    }

    #[tokio::test(start_paused = true)]
    async fn a_tunnel_has_no_write_timeout() {
        let (near, mut origin) = duplex(ROOM);
        let mut upstream = UpstreamIo::new(near, LIMIT);
        upstream.state.set_tunnel();
        let sending = tokio::spawn(async move { upstream.write_all(&[b'x'; ROOM * 2]).await });
        tokio::task::yield_now().await;
        advance(LIMIT * 9).await;
        origin.read_exact(&mut [0; ROOM * 2]).await.expect("all of it");
        sending.await.expect("no panic").expect("all of it");
    }
}
