//! Sends a case, and checks the responses.

use std::collections::BTreeMap;
use std::io::{ErrorKind, Read as _, Write as _};
use std::net::{Shutdown, SocketAddr, TcpStream};

use crate::case::{Case, ConnectionEnd};
use crate::origin::ECHO_PREFIX;
use crate::reference::{self, End};
use crate::request_log::{ExpectedRequest, RequestLog};
use crate::response::{self, Response};
use crate::stream;
use crate::support::http2::{DATA, END_STREAM, GOAWAY, HEADERS, RST_STREAM};
use crate::support::{TIMEOUT, wait_for};

/// A connection that sends a case.
struct Exchange<'a> {
    stream: TcpStream,
    received: Vec<u8>,
    has_ended: bool,
    log: &'a RequestLog,
}

/// Sends a case and checks the responses. Violations go to the request log.
pub(crate) fn run(case: &Case, address: SocketAddr, log: &RequestLog) {
    if case.is_http2() {
        // Bytes that this parser does not understand cannot be judged.
        let Some(expected) = stream::expected_requests(&case.bytes) else { return };
        log.expect(&expected.values().cloned().collect::<Vec<_>>());
        let Some(mut exchange) = Exchange::begin(case, address, log) else { return };
        exchange.read_until(case, |received| is_done(received, &expected));
        check_streams(&exchange.received, &expected, log);
    } else {
        let (expected, end) = reference::expected_requests(&case.bytes);
        log.expect(&expected);
        let Some(mut exchange) = Exchange::begin(case, address, log) else { return };
        let whole = expected.iter().filter(|expected| expected.is_complete).count();
        // An invalid request also gets a response, and the connection is closed after it.
        exchange.read_until(case, |received| {
            end != End::Invalid
                && response::read(received, &expected).is_ok_and(|responses| responses.len() >= whole)
        });
        check_responses(&exchange.received, &expected, log);
    }
}

impl<'a> Exchange<'a> {
    /// Sends all pieces; `None` if the client closes after that.
    fn begin(case: &Case, address: SocketAddr, log: &'a RequestLog) -> Option<Exchange<'a>> {
        // The machine may be out of ports for a moment.
        let stream = wait_for("the gateway accepts a connection", || TcpStream::connect(address).ok());
        stream.set_nodelay(true).expect("a socket");
        stream.set_write_timeout(Some(TIMEOUT)).expect("a socket");
        let mut exchange = Exchange { stream, received: Vec::new(), has_ended: false, log };
        for piece in case.pieces() {
            match exchange.stream.write_all(piece) {
                Ok(()) => {}
                Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut) => {
                    log.violate("the gateway neither reads nor closes".to_owned());
                    return None;
                }
                // The gateway has closed, and may have sent a response.
                Err(_) => break,
            }
            std::thread::sleep(case.rest);
        }
        match case.connection_end {
            ConnectionEnd::Abort => None,
            ConnectionEnd::HalfClosed => {
                // Fails if the gateway has closed.
                let _ = exchange.stream.shutdown(Shutdown::Write);
                Some(exchange)
            }
            ConnectionEnd::AfterResponses | ConnectionEnd::WaitForClose => Some(exchange),
        }
    }

    /// Reads until the connection closes, or until all responses are complete if the client waits only for these.
    fn read_until(&mut self, case: &Case, is_enough: impl Fn(&[u8]) -> bool) {
        let waits_for_end = case.connection_end != ConnectionEnd::AfterResponses;
        while !self.has_ended && !is_tunnel(&self.received) && (waits_for_end || !is_enough(&self.received)) {
            self.read_more(case);
        }
    }

    fn read_more(&mut self, case: &Case) {
        let mut piece = [0; 16 * 1024];
        self.stream.set_read_timeout(Some(TIMEOUT)).expect("a socket");
        match self.stream.read(&mut piece) {
            Ok(0) => self.has_ended = true,
            Ok(count) => self.received.extend_from_slice(&piece[..count]),
            Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut) => {
                self.has_ended = true;
                let (sent, received) = (case.bytes.escape_ascii(), self.received.escape_ascii());
                self.log.violate(format!(
                    "the gateway neither responds nor closes: {sent}\nreceived: {received}"
                ));
            }
            Err(_) => self.has_ended = true,
        }
    }
}

/// Whether the connection was upgraded, so that it may be silent.
fn is_tunnel(received: &[u8]) -> bool {
    let switch = b"HTTP/1.1 101 ";
    received.windows(switch.len()).any(|window| window == switch)
}

/// Checks that each response belongs to the request at its position.
fn check_responses(received: &[u8], expected: &[ExpectedRequest], log: &RequestLog) {
    let responses = match response::read(received, expected) {
        Ok(responses) => responses,
        Err(why) => return log.violate(format!("a malformed response, {why}: {}", received.escape_ascii())),
    };
    if responses.len() > expected.len() + 1 {
        log.violate(format!("more responses than requests: {}", received.escape_ascii()));
    }
    for (Response { body, .. }, expected) in responses.iter().zip(expected) {
        check_page(body, &expected.request.target, log);
    }
    if let Some(Response { status, body }) = responses.get(expected.len())
        && (*status < 400 || body.starts_with(ECHO_PREFIX.as_bytes()))
    {
        log.violate(format!("a success response to an invalid request: {}", received.escape_ascii()));
    }
}

/// Checks that a page belongs to its target.
fn check_page(body: &[u8], target: &str, log: &RequestLog) {
    let page = format!("{ECHO_PREFIX}{target}\n");
    if body.starts_with(ECHO_PREFIX.as_bytes()) && !page.as_bytes().starts_with(body) {
        log.violate(format!("got the page of another target for {target:?}: {}", body.escape_ascii()));
    }
}

/// Whether all streams or the connection have ended.
fn is_done(mut received: &[u8], expected: &BTreeMap<u32, ExpectedRequest>) -> bool {
    let mut left: Vec<u32> =
        expected.iter().filter(|(_, expected)| expected.is_complete).map(|(stream, _)| *stream).collect();
    while let Some(frame) = stream::next(&mut received) {
        let ends = matches!(frame.kind, DATA | HEADERS) && frame.flags & END_STREAM != 0;
        if ends || frame.kind == RST_STREAM {
            left.retain(|stream| *stream != frame.stream);
        }
        if frame.kind == GOAWAY {
            return true;
        }
    }
    left.is_empty()
}

/// Checks that each stream got the page of its target.
fn check_streams(mut received: &[u8], expected: &BTreeMap<u32, ExpectedRequest>, log: &RequestLog) {
    let mut pages: BTreeMap<u32, Vec<u8>> = BTreeMap::new();
    while let Some(frame) = stream::next(&mut received) {
        if frame.kind == DATA {
            pages.entry(frame.stream).or_default().extend_from_slice(&frame.payload);
        }
    }
    for (stream, page) in &pages {
        match expected.get(stream) {
            Some(expected) => check_page(page, &expected.request.target, log),
            None => check_page(page, "nothing", log),
        }
    }
}
