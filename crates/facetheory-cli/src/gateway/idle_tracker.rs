//! Whether anything goes on on an HTTP/2 connection, and whether its visitor takes what is sent.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering::Relaxed};
use std::task::{Context, Poll};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::time::Instant;

use super::h2_frames::H2Frames;

/// What goes on on one connection.
#[derive(Debug)]
pub(crate) struct IdleTracker {
    start: Instant,
    /// How many answers are under way, and how many of those wait for the visitor to take more.
    answers: AtomicUsize,
    untaken: AtomicUsize,
    /// When an answer last began, ended or went on, in milliseconds since the start.
    last: AtomicU64,
    /// When the visitor last took something.
    taken: AtomicU64,
}

/// A visitor who takes nothing of one answer may have others begin and end for so many times as long as it may rest: a paused
/// answer holds a connection of the origin.
const PAUSE: u32 = 5;

/// One answer that is under way.
#[derive(Debug)]
pub(crate) struct Stream {
    activity: Arc<IdleTracker>,
    untaken: AtomicBool,
}

impl IdleTracker {
    pub(crate) fn new() -> Arc<Self> {
        Arc::new(IdleTracker {
            start: Instant::now(),
            answers: AtomicUsize::new(0),
            untaken: AtomicUsize::new(0),
            last: AtomicU64::new(0),
            taken: AtomicU64::new(0),
        })
    }

    /// An answer begins.
    pub(crate) fn begin(self: &Arc<Self>) -> Stream {
        self.answers.fetch_add(1, Relaxed);
        self.touch();
        Stream { activity: self.clone(), untaken: AtomicBool::new(false) }
    }

    /// Whether nothing has been asked for, or nothing of what was asked for has been taken, for so long. An answer that the
    /// origin is waited for is none that the visitor does not take, whatever becomes of others, but for a while only.
    pub(crate) fn is_idle(&self, limit: Duration) -> bool {
        let (answers, untaken) = (self.answers.load(Relaxed), self.untaken.load(Relaxed));
        let passed = self.start.elapsed();
        let since = |time: &AtomicU64| passed.saturating_sub(Duration::from_millis(time.load(Relaxed)));
        (answers == untaken && since(&self.last) >= limit)
            || (untaken > 0 && since(&self.taken) >= limit.saturating_mul(PAUSE))
    }

    /// Waits until it [is idle](IdleTracker::is_idle).
    pub(crate) async fn rests(&self, limit: Duration) {
        while !self.is_idle(limit) {
            let last = Duration::from_millis(self.last.load(Relaxed));
            tokio::time::sleep_until(self.start + last + limit).await;
        }
    }

    fn touch(&self) {
        self.last.store(self.passed(), Relaxed);
    }

    /// The visitor takes something.
    fn take(&self) {
        let passed = self.passed();
        self.last.store(passed, Relaxed);
        self.taken.store(passed, Relaxed);
    }

    fn passed(&self) -> u64 {
        u64::try_from(self.start.elapsed().as_millis()).unwrap_or(u64::MAX)
    }
}

impl Stream {
    /// More of the answer was asked for. If there was some, the visitor has yet to take it; if not, the origin is waited for.
    pub(crate) fn polled(&self, is_there: bool) {
        self.activity.take();
        self.waits_for_visitor(is_there);
    }

    fn waits_for_visitor(&self, is_there: bool) {
        match (self.untaken.swap(is_there, Relaxed), is_there) {
            (false, true) => self.activity.untaken.fetch_add(1, Relaxed),
            (true, false) => self.activity.untaken.fetch_sub(1, Relaxed),
            (true, true) | (false, false) => return,
        };
    }
}

impl Drop for Stream {
    fn drop(&mut self) {
        self.activity.touch();
        self.waits_for_visitor(false);
        self.activity.answers.fetch_sub(1, Relaxed);
    }
}

/// A connection whose writes are activity: hyper takes a whole page at once and forgets it, and is still sending.
#[derive(Debug)]
pub(crate) struct TrackedIo<IO> {
    io: IO,
    activity: Arc<IdleTracker>,
    /// On HTTP/2, where only what was asked for counts: there a visitor can have other things written without end.
    frames: Option<H2Frames>,
}

impl<IO> TrackedIo<IO> {
    /// A connection on which all that is written counts.
    pub(crate) fn new(io: IO, activity: Arc<IdleTracker>) -> Self {
        TrackedIo { io, activity, frames: None }
    }

    /// A connection that speaks HTTP/2.
    pub(crate) fn http2(io: IO, activity: Arc<IdleTracker>) -> Self {
        TrackedIo { io, activity, frames: Some(H2Frames::default()) }
    }

    /// So many bytes of these pieces were written.
    fn note<'a>(&mut self, mut count: usize, pieces: impl IntoIterator<Item = &'a [u8]>) {
        let Some(frames) = &mut self.frames else { return self.activity.touch() };
        let mut is_data = false;
        for piece in pieces {
            let here = &piece[..count.min(piece.len())];
            count -= here.len();
            is_data |= frames.have_data(here);
        }
        if is_data {
            self.activity.take();
        }
    }
}

impl<IO: AsyncRead + Unpin> AsyncRead for TrackedIo<IO> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.io).poll_read(context, buffer)
    }
}

impl<IO: AsyncWrite + Unpin> AsyncWrite for TrackedIo<IO> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.io).poll_write(context, bytes);
        if let Poll::Ready(Ok(count)) = written {
            self.note(count, [bytes]);
        }
        written
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        pieces: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.io).poll_write_vectored(context, pieces);
        if let Poll::Ready(Ok(count)) = written {
            self.note(count, pieces.iter().map(|piece| &**piece));
        }
        written
    }

    fn is_write_vectored(&self) -> bool {
        self.io.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.io).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.io).poll_shutdown(context)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIMIT: Duration = Duration::from_secs(10);

    #[tokio::test(start_paused = true)]
    async fn a_connection_is_idle_without_answers_and_not_while_the_origin_is_waited_for() {
        let activity = IdleTracker::new();
        tokio::time::advance(LIMIT).await;
        assert!(activity.is_idle(LIMIT), "nothing was asked for");
        let stream = activity.begin();
        stream.polled(false);
        tokio::time::advance(LIMIT * 9).await;
        assert!(!activity.is_idle(LIMIT), "the origin is slow");
        drop(stream);
        assert!(!activity.is_idle(LIMIT), "something has just gone on");
        tokio::time::advance(LIMIT).await;
        assert!(activity.is_idle(LIMIT));
    }

    #[tokio::test(start_paused = true)]
    async fn an_answer_that_is_not_taken_does_not_end_another_that_the_origin_is_waited_for() {
        let activity = IdleTracker::new();
        let (paused, slow) = (activity.begin(), activity.begin());
        paused.polled(true);
        slow.polled(false);
        tokio::time::advance(LIMIT * 4).await;
        assert!(!activity.is_idle(LIMIT), "the origin is slow");
        slow.polled(true);
        tokio::time::advance(LIMIT).await;
        assert!(activity.is_idle(LIMIT), "neither is taken");
    }

    #[tokio::test(start_paused = true)]
    async fn whatever_else_is_asked_for_an_answer_is_not_left_untaken_for_ever() {
        let activity = IdleTracker::new();
        let (paused, slow) = (activity.begin(), activity.begin());
        paused.polled(true);
        slow.polled(false);
        for _ in 0..5 {
            assert!(!activity.is_idle(LIMIT));
            drop(activity.begin());
            tokio::time::advance(LIMIT).await;
        }
        assert!(activity.is_idle(LIMIT), "nothing was taken, of any answer");
        slow.polled(false);
        assert!(!activity.is_idle(LIMIT), "something is taken");
    }

    #[tokio::test(start_paused = true)]
    async fn a_visitor_who_takes_nothing_is_noticed() {
        let activity = IdleTracker::new();
        let stream = activity.begin();
        stream.polled(true);
        tokio::time::advance(LIMIT / 2).await;
        stream.polled(true);
        tokio::time::advance(LIMIT / 2).await;
        assert!(!activity.is_idle(LIMIT), "it takes something now and then");
        tokio::time::advance(LIMIT / 2).await;
        assert!(activity.is_idle(LIMIT));
    }
}
