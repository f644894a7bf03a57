//! Generates HTTP/1 connections, most of them almost valid.

use crate::random::Random;
use crate::request_log::ID;
use crate::support::site::HOST;

/// The percentage of places with something unusual.
const ODD: usize = 4;
/// The number of cacheable pages.
const PAGES: usize = 64;

const METHODS: [&str; 8] = ["GET", "GET", "GET", "HEAD", "POST", "POST", "PUT", "OPTIONS"];
const ODD_METHODS: [&str; 9] =
    ["get", "PROPFIND", "CONNECT", "TRACE", "WIRE-REFUSED", "PRI", "G ET", "", "DELETE"];
const VERSIONS: [&str; 7] = ["HTTP/1.0", "HTTP/1.0", "HTTP/2.0", "HTTP/1.2", "http/1.1", "HTTP/01.1", ""];
const RESPONSE_KINDS: [&str; 7] = ["", "", "", "&say=chunked", "&say=none", "&say=hint", "&say=early"];
const ODD_PATHS: [&str; 12] = [
    "/%00",
    "/a%0d%0ab",
    "/../x",
    "/%2e%2e/x",
    "//x",
    "/a\\b",
    "/a#b",
    "/a b",
    "/\u{e9}",
    "?",
    "/;x",
    "/a%zz",
];
const ODD_HOSTS: [&str; 12] = [
    "",
    "Host: a@evil\r\n",
    "Host: a/b\r\n",
    "Host:\r\n",
    "Host: a:x\r\n",
    "Host: www.example.com\r\nHost: www.example.com\r\n",
    "Host : www.example.com\r\n",
    "Host:\twww.example.com \r\n",
    "hOsT: WWW.example.com\r\n",
    "Host: other.example\r\n",
    "Host: [::1]:80\r\n",
    "\tHost: www.example.com\r\n",
];
const FIELDS: [&str; 12] = [
    "Accept: */*",
    "Cookie: a=b; c=d",
    "User-Agent: fuzz",
    "Connection: keep-alive",
    "Connection: close",
    "If-None-Match: \"a\"",
    "X-Forwarded-For: 6.6.6.6",
    "Forwarded: for=6.6.6.6",
    "X-Original-URL: /admin",
    "TE: trailers",
    "Expect: 100-continue",
    "Range: bytes=0-1",
];
const ODD_FIELDS: [&str; 24] = [
    "Connection: close, x-own-hop, host, x-forwarded-host\r\nX-Own-Hop: 1",
    "Connection: upgrade\r\nUpgrade: websocket",
    "Connection: Upgrade, HTTP2-Settings\r\nUpgrade: h2c\r\nHTTP2-Settings: AAMAAABkAARAAAAAAAIAAAAA",
    "Upgrade: websocket",
    "Transfer-Encoding: chunked",
    "Transfer-Encoding: xchunked",
    "Transfer-Encoding: \x0bchunked",
    "Transfer-Encoding: identity, chunked",
    "Transfer_Encoding: chunked",
    "Content-Length: 0",
    "Content-Length: +3",
    "Content-Length: 18446744073709551617",
    "Content-Length: 3, 3",
    "Content-Length:",
    "X-A: b\r\n folded",
    "X-A: b\rc",
    "X-A: b\0",
    "X-A : b",
    ": b",
    "no colon",
    "Expect: the best",
    "X-Tenant-Id: a",
    "Keep-Alive: timeout=5\r\nProxy-Connection: keep-alive\r\nProxy-Authorization: x",
    "Authorization: Basic YTpi",
];

/// All bytes of a connection.
pub(crate) fn connection(random: &mut Random, case: u64) -> Vec<u8> {
    let requests = random.one(&[1, 1, 1, 2, 2, 3, 5]);
    (0..requests).flat_map(|number| request(random, case, number)).collect()
}

/// One request.
fn request(random: &mut Random, case: u64, number: usize) -> Vec<u8> {
    let method = if random.percent(ODD) { random.one(&ODD_METHODS) } else { random.one(&METHODS) };
    let version = if random.percent(ODD) { random.one(&VERSIONS) } else { "HTTP/1.1" };
    let id = format!("{case}-{number}");
    let blank = if random.percent(ODD) { random.one(&["\r\n", "\r\n", "\r\n\r\n", "\n", " "]) } else { "" };
    let mut lines = format!("{blank}{method} {} {version}\r\n", target(random, &id));
    lines +=
        &if random.percent(ODD) { random.one(&ODD_HOSTS).to_owned() } else { format!("Host: {HOST}\r\n") };
    lines += &format!("{ID}: {id}\r\n");
    for _ in 0..random.below(4) {
        let field = if random.percent(3 * ODD) { random.one(&ODD_FIELDS) } else { random.one(&FIELDS) };
        lines += &format!("{field}\r\n");
    }
    if random.percent(1) {
        lines += &format!("X-Long: {}\r\n", "x".repeat(random.below(40_000)));
    }
    if random.percent(1) {
        lines += &"X-Many: x\r\n".repeat(random.below(200));
    }
    let has_body = !["GET", "HEAD"].contains(&method) && random.percent(80) || random.percent(ODD);
    let (framing, body) = if has_body { body(random, &id) } else { (String::new(), Vec::new()) };
    lines += &framing;
    let end = if random.percent(1) { "\n" } else { "\r\n" };
    [lines.as_bytes(), end.as_bytes(), &body].concat()
}

fn target(random: &mut Random, id: &str) -> String {
    let path = match random.below(10) {
        0..2 => format!("/page/{}", random.below(PAGES)),
        2 if random.percent(10) => "*".to_owned(),
        3 if random.percent(4 * ODD) => random.one(&ODD_PATHS).to_owned(),
        4 => format!("/{id}?a=b{}", random.one(&RESPONSE_KINDS)),
        5 if random.percent(4 * ODD) => format!("/pass/{id}?say=switch"),
        _ => format!("/pass/{id}?a={}{}", random.below(9), random.one(&RESPONSE_KINDS)),
    };
    match random.below(50) {
        0 => format!("http://{HOST}{path}"),
        1 => format!("http://evil.example{path}"),
        2 => format!("HTTPS://{HOST}?{id}"),
        _ => path,
    }
}

/// The header lines that frame a body, and the body.
fn body(random: &mut Random, id: &str) -> (String, Vec<u8>) {
    let inner = format!("GET /smuggled-{id} HTTP/1.1\r\nHost: {HOST}\r\n\r\n");
    let body = match random.below(8) {
        0 => Vec::new(),
        1 => inner.into_bytes(),
        2 => format!("0\r\n\r\n{inner}").into_bytes(),
        3 if random.percent(20) => vec![b'x'; random.below(400_000)],
        _ => (0..random.below(40)).map(|_| random.byte()).collect(),
    };
    let length = match random.below(100) {
        0 => body.len() + random.below(20),
        1 => body.len().saturating_sub(random.below(20)),
        _ => body.len(),
    };
    match random.below(20) {
        0 => (format!("Content-Length: {length}\r\nTransfer-Encoding: chunked\r\n"), chunks(random, &body)),
        1 => (format!("Content-Length: {length}\r\nContent-Length: {length}\r\n"), body),
        2 => (format!("Transfer-Encoding: chunked\r\nContent-Length: {length}\r\n"), body),
        3..10 => ("Transfer-Encoding: chunked\r\nTrailer: x-late\r\n".to_owned(), chunks(random, &body)),
        _ => (format!("Content-Length: {length}\r\n"), body),
    }
}

/// A chunked body.
fn chunks(random: &mut Random, body: &[u8]) -> Vec<u8> {
    let odd = |random: &mut Random, usual: &'static str, odd: &[&'static str]| {
        if random.percent(2) { random.one(odd) } else { usual }
    };
    let mut chunked = Vec::new();
    for piece in body.chunks(1 + random.below(body.len().max(30))) {
        let before = odd(random, "", &["0x", "+", "-", " ", "0", "00000000000000000", "fffffffffffffff"]);
        let after = odd(random, "", &[";a=b", ";a=\"\n\"", " ", ";", "\t", ";\x00", "g"]);
        let (line, end) =
            (odd(random, "\r\n", &["\n", "\r", "\r\r\n"]), odd(random, "\r\n", &["\n", "", "x\r\n"]));
        chunked.extend_from_slice(format!("{before}{:x}{after}{line}", piece.len()).as_bytes());
        chunked.extend_from_slice(piece);
        chunked.extend_from_slice(end.as_bytes());
    }
    let trailer = match random.below(20) {
        0..4 => "X-Late: 1\r\n",
        4 => "Content-Length: 5\r\n",
        5 => "X-Late : 1\r\n",
        6 => "x-late: 1\n",
        7 => "X-Forwarded-For: 6.6.6.6\r\n",
        _ => "",
    };
    let last = odd(random, "0\r\n", &["00\r\n", "0\n", "", "0;a\r\n", "0x0\r\n"]);
    chunked.extend_from_slice(format!("{last}{trailer}\r\n").as_bytes());
    chunked
}
