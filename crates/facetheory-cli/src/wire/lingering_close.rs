//! Closing a connection on which the client may still be sending.
//!
//! If there are unread bytes when a socket is closed, or some come later, the kernel answers with a reset, and that makes
//! the client's kernel forget the answer that it has not read yet. So they are read, for a while, and thrown away.

use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use tokio::io::{AsyncRead, ReadBuf};
use tokio::time::{Sleep, sleep};

/// For how long the client is waited for.
const MAX_TIME: Duration = Duration::from_secs(5);
/// How much is thrown away.
const MAX_BYTES: usize = 16 * 1024 * 1024;
/// How much is read at once.
const PIECE_BYTES: usize = 8 * 1024;

/// The last moments of a connection.
#[derive(Debug)]
pub(super) struct LingeringClose {
    end: Pin<Box<Sleep>>,
    left: usize,
}

impl LingeringClose {
    /// From now on.
    pub(super) fn new() -> Self {
        LingeringClose { end: Box::pin(sleep(MAX_TIME)), left: MAX_BYTES }
    }

    /// Is ready when the client has closed its side too, or has had its chance.
    pub(super) fn poll<IO: AsyncRead + Unpin>(&mut self, io: &mut IO, cx: &mut Context<'_>) -> Poll<()> {
        let mut piece = [0; PIECE_BYTES];
        while self.left > 0 && self.end.as_mut().poll(cx).is_pending() {
            let mut buffer = ReadBuf::new(&mut piece);
            match Pin::new(&mut *io).poll_read(cx, &mut buffer) {
                Poll::Ready(Ok(())) if !buffer.filled().is_empty() => {
                    self.left = self.left.saturating_sub(buffer.filled().len());
                }
                Poll::Ready(_) => return Poll::Ready(()),
                Poll::Pending => return Poll::Pending,
            }
        }
        Poll::Ready(())
    }
}
