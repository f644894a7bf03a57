//! A connection to the origin, which has to take what it is sent.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::task::{Context, Poll, ready};
use std::time::Duration;

use hyper_util::client::legacy::connect::{Connected, Connection};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::time::{Sleep, sleep};

/// A connection on which the origin must not stop to take what it is sent.
///
/// Whoever sends it may rest: that is no fault of the origin, and not seen here. hyper would wait for an origin that has
/// stopped for as long as the connection lasts, even after it was told to give up, and hold on to the visitor's body.
#[derive(Debug)]
pub(crate) struct UpstreamIo<IO> {
    io: IO,
    bond: Arc<UpstreamState>,
    /// How long it may stop.
    limit: Duration,
    /// Runs while it takes nothing.
    stuck: Option<Pin<Box<Sleep>>>,
}

/// What is known of a connection to those who use it: in the extensions of an answer.
#[derive(Debug, Default)]
pub(crate) struct UpstreamState {
    is_tunnel: AtomicBool,
    /// Whether there was an answer before the request that was sent last.
    is_kept: AtomicBool,
    /// Whether anything has come since.
    is_answered: AtomicBool,
}

impl UpstreamState {
    /// Another protocol is spoken from now on, in which either end may rest.
    pub(crate) fn let_rest(&self) {
        self.is_tunnel.store(true, Relaxed);
    }

    /// Whether it was kept after an answer, and nothing has come for the request that was sent since: the origin may have
    /// closed it before it saw that.
    pub(crate) fn may_have_been_gone(&self) -> bool {
        self.is_kept.load(Relaxed) && !self.is_answered.load(Relaxed)
    }

    /// Something is about to be sent.
    fn ask(&self) {
        if self.is_answered.swap(false, Relaxed) {
            self.is_kept.store(true, Relaxed);
        }
    }
}

impl<IO> UpstreamIo<IO> {
    pub(crate) fn new(io: IO, limit: Duration) -> Self {
        UpstreamIo { io, bond: Arc::default(), limit, stuck: None }
    }

    /// Ends the connection if nothing was taken for too long.
    fn watch<T>(&mut self, context: &mut Context<'_>, outcome: Poll<io::Result<T>>) -> Poll<io::Result<T>> {
        if outcome.is_ready() || self.bond.is_tunnel.load(Relaxed) {
            self.stuck = None;
            return outcome;
        }
        let stuck = self.stuck.get_or_insert_with(|| Box::pin(sleep(self.limit)));
        ready!(stuck.as_mut().poll(context));
        Poll::Ready(Err(io::Error::new(io::ErrorKind::TimedOut, "the origin takes nothing of a request")))
    }
}

impl<IO: Connection> Connection for UpstreamIo<IO> {
    fn connected(&self) -> Connected {
        self.io.connected().extra(self.bond.clone())
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
            self.bond.is_answered.store(true, Relaxed);
        }
        outcome
    }
}

impl<IO: AsyncWrite + Unpin> AsyncWrite for UpstreamIo<IO> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        self.bond.ask();
        let outcome = Pin::new(&mut self.io).poll_write(context, bytes);
        self.watch(context, outcome)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        pieces: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        self.bond.ask();
        let outcome = Pin::new(&mut self.io).poll_write_vectored(context, pieces);
        self.watch(context, outcome)
    }

    fn is_write_vectored(&self) -> bool {
        self.io.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        let outcome = Pin::new(&mut self.io).poll_flush(context);
        self.watch(context, outcome)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        let outcome = Pin::new(&mut self.io).poll_shutdown(context);
        self.watch(context, outcome)
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
    async fn an_origin_that_stops_is_given_up_and_one_that_is_slow_is_not() {
        let (near, mut origin) = duplex(ROOM);
        let mut link = UpstreamIo::new(near, LIMIT);
        advance(LIMIT * 9).await;
        link.write_all(&[b'x'; ROOM]).await.expect("whoever sends may rest");
        let sending = tokio::spawn(async move { link.write_all(&[b'x'; ROOM * 9]).await });
        for _ in 0..ROOM {
            tokio::task::yield_now().await;
            advance(LIMIT * 2 / 3).await;
            origin.read_u8().await.expect("more");
        }
        tokio::task::yield_now().await;
        let since = Instant::now();
        let error = sending.await.expect("no panic").expect_err("it has stopped");
        assert_eq!(error.kind(), io::ErrorKind::TimedOut);
        assert!(since.elapsed() >= LIMIT && since.elapsed() < LIMIT * 2, "{:?}", since.elapsed());
    }

    #[tokio::test]
    async fn only_a_connection_that_was_kept_and_says_nothing_may_have_been_gone() {
        let (near, mut origin) = duplex(ROOM);
        let mut link = UpstreamIo::new(near, LIMIT);
        for round in 0..3 {
            link.write_all(b"asked").await.expect("room");
            assert_eq!(link.bond.may_have_been_gone(), round > 0, "round {round}");
            origin.write_all(b"told").await.expect("room");
            link.read_exact(&mut [0; 4]).await.expect("an answer");
            assert!(!link.bond.may_have_been_gone(), "round {round}: it has answered");
            origin.read_exact(&mut [0; 5]).await.expect("what was asked");
        }
        link.write_all(b"asked").await.expect("room");
        drop(origin);
        assert_eq!(link.read(&mut [0]).await.expect("an end"), 0);
        assert!(link.bond.may_have_been_gone());
    }

    #[tokio::test(start_paused = true)]
    async fn in_a_tunnel_the_origin_may_rest() {
        let (near, mut origin) = duplex(ROOM);
        let mut link = UpstreamIo::new(near, LIMIT);
        link.bond.let_rest();
        let sending = tokio::spawn(async move { link.write_all(&[b'x'; ROOM * 2]).await });
        tokio::task::yield_now().await;
        advance(LIMIT * 9).await;
        origin.read_exact(&mut [0; ROOM * 2]).await.expect("all of it");
        sending.await.expect("no panic").expect("all of it");
    }
}
