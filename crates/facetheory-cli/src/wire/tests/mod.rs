//! Tests of the request checks: what clients send, and what hyper and the service receive.

mod deadline;
mod fast_path;
mod framing;
mod pipeline;
mod random;
mod rule;
mod server;
mod serving;

use std::time::Duration;

use super::rejection::RequestLimits;
use super::scanner::{Next, Scanner};
use super::slow_client::{ClientTimeouts, MinRate};

impl Default for RequestLimits {
    fn default() -> Self {
        let (header_bytes, body_bytes) = (16 * 1024, 10 * 1024 * 1024);
        RequestLimits { header_bytes, headers: 100, uri_bytes: 8 * 1024, body_bytes, allows_purge: false }
    }
}

impl Default for ClientTimeouts {
    fn default() -> Self {
        let seconds = Duration::from_secs;
        ClientTimeouts {
            head: seconds(15),
            idle: seconds(60),
            body: seconds(30),
            write: MinRate::none(seconds(30)),
        }
    }
}

/// The outcome of a connection, as the scanner alone sees it.
#[derive(Debug, PartialEq, Eq)]
struct Outcome {
    /// The bytes that hyper may read.
    accepted: Vec<u8>,
    /// The end. A rejected body counts as a rejected request.
    next: Next,
    body_is_rejected: bool,
}

/// Scans bytes that arrive in pieces.
fn read<'a>(pieces: impl IntoIterator<Item = &'a [u8]>, limits: RequestLimits) -> Outcome {
    let mut scanner = Scanner::new(limits);
    let mut held = Vec::new();
    let mut accepted = Vec::new();
    for piece in pieces.into_iter().filter(|piece| !piece.is_empty()) {
        held.extend_from_slice(piece);
        let scanned = scanner.read(&held);
        accepted.extend(held.drain(..scanned.accepted));
        match scanned.next {
            Next::More => {}
            Next::BodyRejected(rejection) => {
                return Outcome { accepted, next: Next::Rejected(rejection), body_is_rejected: true };
            }
            next => return Outcome { accepted, next, body_is_rejected: false },
        }
    }
    Outcome { accepted, next: Next::More, body_is_rejected: false }
}

/// Scans bytes whole, split at every position, and one by one: the end must be the same.
fn end_of(bytes: &[u8], limits: RequestLimits) -> Next {
    let whole = read([bytes], limits);
    for cut in 1..bytes.len() {
        let (left, right) = bytes.split_at(cut);
        assert_eq!(read([left, right], limits).next, whole.next, "split at {cut}");
    }
    assert_eq!(read(bytes.chunks(1), limits).next, whole.next, "byte by byte");
    whole.next
}

/// The status with which bytes are rejected, or 0 if they are accepted.
fn status_with(bytes: impl AsRef<[u8]>, limits: RequestLimits) -> u16 {
    match end_of(bytes.as_ref(), limits) {
        Next::Rejected(rejection) => rejection.status.as_u16(),
        Next::More | Next::Upgrade => 0,
        Next::BodyRejected(_) => unreachable!("counts as rejected"),
    }
}

/// The status with which bytes are rejected under the default limits, or 0 if they are accepted.
fn status(bytes: impl AsRef<[u8]>) -> u16 {
    status_with(bytes, RequestLimits::default())
}

/// A POST with these header lines.
fn post(lines: &str) -> String {
    format!("POST / HTTP/1.1\r\nHost: a\r\n{lines}\r\n")
}

/// A GET with these header lines.
fn get(lines: &str) -> String {
    format!("GET / HTTP/1.1\r\nHost: a\r\n{lines}\r\n")
}

/// A POST with this chunked body.
fn chunked(body: &str) -> String {
    post("Transfer-Encoding: chunked\r\n") + body
}

/// A GET of this target.
fn target(target: &str) -> String {
    format!("GET {target} HTTP/1.1\r\nHost: a\r\n\r\n")
}
