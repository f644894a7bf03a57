//! Stories of what a client sends, and of what hyper and the service get to see of it.

mod deadline;
mod fast_path;
mod framing;
mod pipeline;
mod random;
mod rule;
mod serving;

use super::limits::RequestLimits;
use super::scanner::{Scanner, Then};

/// What became of a connection, told by the scan alone.
#[derive(Debug, PartialEq, Eq)]
struct Story {
    /// What was passed on.
    passed: Vec<u8>,
    /// What happened in the end. A rejection is the same whether its head was already passed on.
    then: Then,
    is_broken: bool,
}

/// Reads bytes that come in pieces.
fn read<'a>(pieces: impl IntoIterator<Item = &'a [u8]>, limits: RequestLimits) -> Story {
    let mut scan = Scanner::new(limits);
    let mut held = Vec::new();
    let mut passed = Vec::new();
    for piece in pieces.into_iter().filter(|piece| !piece.is_empty()) {
        held.extend_from_slice(piece);
        let scanned = scan.read(&held);
        passed.extend(held.drain(..scanned.passed));
        match scanned.then {
            Then::More => {}
            Then::Broken(rejection) => {
                return Story { passed, then: Then::Refused(rejection), is_broken: true };
            }
            then => return Story { passed, then, is_broken: false },
        }
    }
    Story { passed, then: Then::More, is_broken: false }
}

/// Reads bytes whole, cut in two at every place, and one by one: the verdict must be the same.
fn verdict(bytes: &[u8], limits: RequestLimits) -> Then {
    let whole = read([bytes], limits);
    for cut in 1..bytes.len() {
        let (left, right) = bytes.split_at(cut);
        assert_eq!(read([left, right], limits).then, whole.then, "cut at {cut}");
    }
    assert_eq!(read(bytes.chunks(1), limits).then, whole.then, "byte by byte");
    whole.then
}

/// The status with which a request is refused, or 0 if it is not.
fn status(request: impl AsRef<[u8]>) -> u16 {
    match verdict(request.as_ref(), RequestLimits::default()) {
        Then::Refused(rejection) => rejection.status.as_u16(),
        Then::More | Then::Upgrade => 0,
        Then::Broken(_) => unreachable!("told as refused"),
    }
}

/// A POST with these header lines.
fn post(lines: &str) -> String {
    format!("POST / HTTP/1.1\r\nHost: a\r\n{lines}\r\n")
}

/// A GET with these header lines.
fn get(lines: &str) -> String {
    format!("GET / HTTP/1.1\r\nHost: a\r\n{lines}\r\n")
}

/// A POST in chunks, with this body.
fn chunked(body: &str) -> String {
    post("Transfer-Encoding: chunked\r\n") + body
}

/// A GET of this target.
fn target(target: &str) -> String {
    format!("GET {target} HTTP/1.1\r\nHost: a\r\n\r\n")
}
