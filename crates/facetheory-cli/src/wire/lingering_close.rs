//! Lingering close: closing a connection on which the client may still be sending.
//!
//! If a socket is closed with unread bytes, or bytes arrive later, the kernel sends a reset, and the client's kernel then
//! discards the response that the client has not read yet. So bytes are read and discarded for a while.

use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use tokio::io::{AsyncRead, ReadBuf};
use tokio::time::{Sleep, sleep};

/// How long the client may leave the connection open.
const MAX_TIME: Duration = Duration::from_secs(5);
/// How many bytes are discarded.
const MAX_BYTES: usize = 16 * 1024 * 1024;
/// How many bytes are read at once.
const READ_BYTES: usize = 8 * 1024;

/// A connection that is being closed.
#[derive(Debug)]
pub(super) struct LingeringClose {
    deadline: Pin<Box<Sleep>>,
    bytes_left: usize,
}

impl LingeringClose {
    /// Starts the deadline.
    pub(super) fn new() -> Self {
        LingeringClose { deadline: Box::pin(sleep(MAX_TIME)), bytes_left: MAX_BYTES }
    }

    /// Ready when the client has closed its side too, or a limit is reached.
    pub(super) fn poll<IO: AsyncRead + Unpin>(&mut self, io: &mut IO, cx: &mut Context<'_>) -> Poll<()> {
        let mut bytes = [0; READ_BYTES];
        while self.bytes_left > 0 && self.deadline.as_mut().poll(cx).is_pending() {
            let mut buffer = ReadBuf::new(&mut bytes);
            match Pin::new(&mut *io).poll_read(cx, &mut buffer) {
                Poll::Ready(Ok(())) if !buffer.filled().is_empty() => {
                    self.bytes_left = self.bytes_left.saturating_sub(buffer.filled().len());
                }
                Poll::Ready(_) => return Poll::Ready(()),
                Poll::Pending => return Poll::Pending,
            }
        }
        Poll::Ready(())
    }
}
