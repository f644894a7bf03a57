//! The write timeout of HTTP/1: a slow client that does not read its response is disconnected.

use std::io::{self, ErrorKind};
use std::task::{Context, Poll};

use super::RegisteredConnection;

/// Applies the write timeout to the outcome of a write, a flush or a shutdown.
///
/// The time runs from the first write that the socket does not take until it takes one. After a protocol upgrade there
/// is no write timeout: tunnels have an idle timeout of their own.
pub(in crate::wire) fn check_write<T>(
    connection: &mut RegisteredConnection,
    cx: &Context<'_>,
    outcome: Poll<io::Result<T>>,
) -> Poll<io::Result<T>> {
    if outcome.is_ready() {
        connection.write_resumed();
        return outcome;
    }
    if connection.is_tunnel() {
        return Poll::Pending;
    }
    connection.register_waker(cx);
    connection.write_stalled();
    if connection.is_write_overdue() {
        let text = "write timeout: the client does not read the response";
        return Poll::Ready(Err(io::Error::new(ErrorKind::TimedOut, text)));
    }
    Poll::Pending
}
