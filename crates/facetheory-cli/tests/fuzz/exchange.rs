//! What a visitor does with a case, and what is to be seen from its end of the connection.

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

/// A connection on which a case is sent.
struct Exchange<'a> {
    stream: TcpStream,
    came: Vec<u8>,
    has_ended: bool,
    log: &'a RequestLog,
}

/// Sends a case and judges what comes back. The ledger hears of what is wrong.
pub(crate) fn visit(case: &Case, address: SocketAddr, log: &RequestLog) {
    if case.is_http2() {
        // What cannot be read here cannot be judged either.
        let Some(asked) = stream::asked(&case.bytes) else { return };
        log.expect(&asked.values().cloned().collect::<Vec<_>>());
        let Some(mut visit) = Exchange::begin(case, address, log) else { return };
        visit.read_until(case, |came| is_done(came, &asked));
        judge_streams(&visit.came, &asked, log);
    } else {
        let (asked, end) = reference::asked(&case.bytes);
        log.expect(&asked);
        let Some(mut visit) = Exchange::begin(case, address, log) else { return };
        let whole = asked.iter().filter(|asked| asked.is_whole).count();
        // What is wrong is answered too, and then the connection is closed.
        visit.read_until(case, |came| {
            end != End::Wrong && response::read(came, &asked).is_ok_and(|responses| responses.len() >= whole)
        });
        judge_answers(&visit.came, &asked, log);
    }
}

impl<'a> Exchange<'a> {
    /// Sends all pieces; none if the visitor is gone after that.
    fn begin(case: &Case, address: SocketAddr, log: &'a RequestLog) -> Option<Exchange<'a>> {
        // A machine can run out of ports for a moment.
        let stream = wait_for("the gateway accepts a connection", || TcpStream::connect(address).ok());
        stream.set_nodelay(true).expect("a socket");
        stream.set_write_timeout(Some(TIMEOUT)).expect("a socket");
        let mut visit = Exchange { stream, came: Vec::new(), has_ended: false, log };
        for piece in case.pieces() {
            match visit.stream.write_all(piece) {
                Ok(()) => {}
                Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut) => {
                    log.violate("the gateway takes nothing more, and does not close".to_owned());
                    return None;
                }
                // It has had enough, and may have said why.
                Err(_) => break,
            }
            std::thread::sleep(case.rest);
        }
        match case.ending {
            ConnectionEnd::Gone => None,
            ConnectionEnd::HalfClosed => {
                // A gateway that is gone need not be told.
                let _ = visit.stream.shutdown(Shutdown::Write);
                Some(visit)
            }
            ConnectionEnd::Answered | ConnectionEnd::Patient => Some(visit),
        }
    }

    /// Reads until the connection ends, or until enough has come if that is all that the visitor waits for.
    fn read_until(&mut self, case: &Case, is_enough: impl Fn(&[u8]) -> bool) {
        let waits_for_end = case.ending != ConnectionEnd::Answered;
        while !self.has_ended && !is_tunnel(&self.came) && (waits_for_end || !is_enough(&self.came)) {
            self.look(case);
        }
    }

    fn look(&mut self, case: &Case) {
        let mut piece = [0; 16 * 1024];
        self.stream.set_read_timeout(Some(TIMEOUT)).expect("a socket");
        match self.stream.read(&mut piece) {
            Ok(0) => self.has_ended = true,
            Ok(count) => self.came.extend_from_slice(&piece[..count]),
            Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut) => {
                self.has_ended = true;
                let (sent, came) = (case.bytes.escape_ascii(), self.came.escape_ascii());
                self.log
                    .violate(format!("nothing comes, and the connection stays: {sent}\nthis came: {came}"));
            }
            Err(_) => self.has_ended = true,
        }
    }
}

/// Whether another protocol is spoken, in which anybody may be silent for as long as they like.
fn is_tunnel(came: &[u8]) -> bool {
    let switch = b"HTTP/1.1 101 ";
    came.windows(switch.len()).any(|window| window == switch)
}

/// Looks whether each answer is to the request in whose place it stands.
fn judge_answers(came: &[u8], asked: &[ExpectedRequest], log: &RequestLog) {
    let responses = match response::read(came, asked) {
        Ok(responses) => responses,
        Err(why) => return log.violate(format!("a malformed answer, {why}: {}", came.escape_ascii())),
    };
    if responses.len() > asked.len() + 1 {
        log.violate(format!("more answers than requests: {}", came.escape_ascii()));
    }
    for (Response { body, .. }, asked) in responses.iter().zip(asked) {
        judge_page(body, &asked.request.target, log);
    }
    if let Some(Response { status, body }) = responses.get(asked.len())
        && (*status < 400 || body.starts_with(ECHO_PREFIX.as_bytes()))
    {
        log.violate(format!("an answer to what is no request: {}", came.escape_ascii()));
    }
}

/// Fails if a page is another's.
fn judge_page(body: &[u8], target: &str, log: &RequestLog) {
    let page = format!("{ECHO_PREFIX}{target}\n");
    if body.starts_with(ECHO_PREFIX.as_bytes()) && !page.as_bytes().starts_with(body) {
        log.violate(format!("for {target:?} another page came: {}", body.escape_ascii()));
    }
}

/// Whether every stream has come to its end, or the connection has.
fn is_done(mut came: &[u8], asked: &BTreeMap<u32, ExpectedRequest>) -> bool {
    let mut left: Vec<u32> =
        asked.iter().filter(|(_, asked)| asked.is_whole).map(|(stream, _)| *stream).collect();
    while let Some(frame) = stream::next(&mut came) {
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

/// Looks whether each stream has the page that was asked for on it.
fn judge_streams(mut came: &[u8], asked: &BTreeMap<u32, ExpectedRequest>, log: &RequestLog) {
    let mut pages: BTreeMap<u32, Vec<u8>> = BTreeMap::new();
    while let Some(frame) = stream::next(&mut came) {
        if frame.kind == DATA {
            pages.entry(frame.stream).or_default().extend_from_slice(&frame.payload);
        }
    }
    for (stream, page) in &pages {
        match asked.get(stream) {
            Some(asked) => judge_page(page, &asked.request.target, log),
            None => judge_page(page, "nothing", log),
        }
    }
}
