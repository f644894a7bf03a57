//! Generates HTTP/2 connections (prior knowledge) frame by frame, most of them almost valid.

use crate::random::Random;
use crate::request_log::ID;
use crate::support::http2::{END_HEADERS, END_STREAM, Frame, HEADERS, PREFACE, SETTINGS, block};
use crate::support::site::HOST;

/// The percentage of places with something unusual.
const ODD: usize = 4;

/// The types of stray frames. No HEADERS, since the expected request would be unclear.
const STRAY: [u8; 11] = [0, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11];

const ODD_FIELDS: [(&str, &str); 24] = [
    ("transfer-encoding", "chunked"),
    ("connection", "close"),
    ("upgrade", "websocket"),
    ("te", "gzip"),
    ("content-length", "5"),
    ("content-length", "+5"),
    ("host", "evil.example"),
    ("host", HOST),
    (":path", "/second"),
    (":authority", "evil.example"),
    (":protocol", "websocket"),
    (":status", "200"),
    ("X-Upper", "a"),
    ("x-a", "b\r\nx-smuggled: 1"),
    ("x-a", "b\nc"),
    ("x-a", "\0"),
    ("x a", "b"),
    ("x-a\r\nx-smuggled", "b"),
    ("", "b"),
    ("x_tenant_id", "a"),
    ("x-forwarded-for", "6.6.6.6"),
    ("x-original-url", "/admin"),
    ("cookie", "a=b"),
    ("forwarded", "for=6.6.6.6"),
];

/// All bytes of a connection.
pub(crate) fn connection(random: &mut Random, case: u64) -> Vec<u8> {
    let mut bytes = PREFACE.to_vec();
    let settings = Frame { kind: SETTINGS, flags: 0, stream: 0, payload: vec![0, 1, 0, 0, 0, 0] };
    bytes.extend(settings.bytes());
    let streams = random.one(&[1, 1, 2, 3, 6]);
    for number in 0..streams {
        let stream = if random.percent(1) { random.one(&[0, 2, 1]) } else { 2 * number + 1 };
        for frame in request(random, stream, &format!("{case}-{number}")) {
            bytes.extend(frame.bytes());
        }
    }
    bytes
}

/// The frames of one request.
fn request(random: &mut Random, stream: u32, id: &str) -> Vec<Frame> {
    let methods = ["GET", "GET", "HEAD", "POST", "POST", "PUT", "OPTIONS"];
    let odd_methods = ["CONNECT", "G ET", "", "TRACE", "WIRE-REFUSED", "GET / HTTP/1.1\r\nx: y"];
    let odd_paths = ["*", "", "x", "/a b", "/a\r\nb", "/../x", "http://evil.example/", "/a#b", "/%00"];
    let odd_hosts = ["evil@a", "", "a b", "a/b", "a\r\nx: y", "[::1]", "other.example"];
    let method = if random.percent(ODD) { random.one(&odd_methods) } else { random.one(&methods) };
    let page = format!("/page/{}", random.below(64));
    let pass = format!("/pass/{id}?a={}", random.one(&["b", "b&say=chunked", "b&say=none", "b&say=early"]));
    let path = match random.below(100) {
        0..4 => random.one(&odd_paths),
        4..25 => &page,
        _ => &pass,
    };
    let host = if random.percent(ODD) { random.one(&odd_hosts) } else { HOST };
    let mut fields = vec![(":method", method), (":scheme", "http"), (":authority", host), (":path", path)];
    if random.percent(2) {
        fields.remove(random.below(4));
    }
    fields.push((ID, id));
    if random.percent(4 * ODD) {
        let at = if random.percent(20) { random.below(fields.len()) } else { fields.len() };
        fields.insert(at, random.one(&ODD_FIELDS));
    }
    let body: Vec<u8> = match method {
        "GET" | "HEAD" if !random.percent(ODD) => Vec::new(),
        _ if random.percent(1) => vec![b'x'; random.below(16_000)],
        _ => (0..random.below(60)).map(|_| random.byte()).collect(),
    };
    let length = if random.percent(ODD) { random.below(70) } else { body.len() }.to_string();
    if random.percent(40) && !body.is_empty() {
        fields.push(("content-length", &length));
    }
    frames(random, stream, &fields, &body)
}

fn frames(random: &mut Random, stream: u32, fields: &[(&str, &str)], body: &[u8]) -> Vec<Frame> {
    let mut payload = block(fields);
    let end = if body.is_empty() { END_STREAM } else { 0 };
    let mut frames = Vec::new();
    if random.percent(2 * ODD) {
        let rest = payload.split_off(random.below(payload.len()));
        frames.push(Frame { kind: HEADERS, flags: end, stream, payload });
        frames.push(Frame::continuation(stream, rest, END_HEADERS));
    } else {
        frames.push(Frame { kind: HEADERS, flags: end | END_HEADERS, stream, payload });
    }
    let mut pieces = body.chunks(1 + random.below(body.len().max(1))).peekable();
    while let Some(piece) = pieces.next() {
        let flags = if pieces.peek().is_none() && !random.percent(ODD) { END_STREAM } else { 0 };
        frames.push(Frame::data(stream, piece, flags));
    }
    if random.percent(ODD) {
        frames.push(Frame::headers(stream, &[("x-late", "1")], END_STREAM));
    }
    if random.percent(ODD) {
        frames.push(Frame::reset(stream));
    }
    if random.percent(ODD) {
        let at = random.below(frames.len() + 1);
        let kind = random.one(&STRAY);
        let payload = (0..random.below(12)).map(|_| random.byte()).collect();
        frames.insert(at, Frame { kind, flags: random.byte(), stream: random.one(&[0, stream]), payload });
    }
    frames
}
