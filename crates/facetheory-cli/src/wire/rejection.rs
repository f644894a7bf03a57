//! Size limits of requests, why a request is rejected, and the substitute that hyper reads instead of it.

use http::header::{HeaderMap, HeaderName};
use http::{Method, StatusCode};
use memchr::{memchr, memchr2};

use super::line::{PATH, TOKEN, all};
use super::request_line::scheme_len;

/// The sizes beyond which a request is rejected, and whether purges are allowed.
///
/// hyper's own limits must not be lower: its `max_headers` must be at least `headers`, and its `max_buf_size` at least
/// `header_bytes`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct RequestLimits {
    /// The size of all headers with the request line; also the size of all trailers.
    pub(crate) header_bytes: usize,
    /// The number of header lines; also the number of trailer lines.
    pub(crate) headers: usize,
    /// The length of the URI in the request line.
    pub(crate) uri_bytes: usize,
    /// The size of a body, without chunk framing.
    pub(crate) body_bytes: u64,
    /// Purges are requests to the gateway itself: the port in the target of `PURGE` need not be in the `Host`.
    pub(crate) allows_purge: bool,
}

/// The method of the substitute request. A client that sends it is rejected.
pub(super) const SUBSTITUTE_METHOD: &str = "WIRE-REFUSED";

/// The request that hyper reads instead of a rejected one, so that the service can respond in order.
pub(super) const SUBSTITUTE: &[u8] =
    b"WIRE-REFUSED / HTTP/1.1\r\nhost: refused.invalid\r\nconnection: close\r\n\r\n";

/// The substitute of a HEAD request, whose response must not have a body. It is recognised by a header name with an
/// underscore, which no client can send.
pub(super) const SUBSTITUTE_OF_HEAD: &[u8] =
    b"HEAD / HTTP/1.1\r\nhost: refused.invalid\r\nwire_refused: 1\r\nconnection: close\r\n\r\n";

/// The header that marks [`SUBSTITUTE_OF_HEAD`].
const SUBSTITUTE_HEADER: HeaderName = HeaderName::from_static("wire_refused");

/// Whether a request is the substitute of a rejected one.
pub(super) fn is_substitute(method: &Method, headers: &HeaderMap) -> bool {
    method.as_str() == SUBSTITUTE_METHOD
        || (*method == Method::HEAD && headers.contains_key(SUBSTITUTE_HEADER))
}

/// The response to a request that is rejected.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Rejection {
    pub(crate) status: StatusCode,
    pub(crate) text: &'static str,
}

impl Rejection {
    /// A malformed request: 400.
    pub(crate) const fn bad(text: &'static str) -> Self {
        Rejection::new(StatusCode::BAD_REQUEST, text)
    }

    pub(crate) const fn new(status: StatusCode, text: &'static str) -> Self {
        Rejection { status, text }
    }
}

/// CONNECT and TRACE: the gateway is not a tunnel, and must not echo headers.
pub(crate) const METHOD_NOT_SUPPORTED: Rejection =
    Rejection::new(StatusCode::METHOD_NOT_ALLOWED, "CONNECT and TRACE are not supported");

/// The request body exceeds its size limit.
pub(crate) const BODY_TOO_LARGE: Rejection =
    Rejection::new(StatusCode::PAYLOAD_TOO_LARGE, "the request body is too large");

/// The client did not send the rest of the request body in time.
pub(crate) const BODY_TIMEOUT: Rejection =
    Rejection::new(StatusCode::REQUEST_TIMEOUT, "timed out waiting for the request body");

/// The request target exceeds its size limit.
pub(crate) const TARGET_TOO_LONG: Rejection =
    Rejection::new(StatusCode::URI_TOO_LONG, "the request target is too long");

/// The head or the trailers exceed their size limit.
pub(super) const HEAD_TOO_LARGE: Rejection =
    Rejection::new(StatusCode::REQUEST_HEADER_FIELDS_TOO_LARGE, "the request headers are too large");

/// The head or the trailers have too many fields.
pub(crate) const TOO_MANY_HEADERS: Rejection =
    Rejection::new(StatusCode::REQUEST_HEADER_FIELDS_TOO_LARGE, "the request has too many headers");

/// A GET or HEAD request has a body.
pub(crate) const BODY_NOT_ALLOWED: Rejection = Rejection::bad("GET and HEAD requests must not have a body");

/// The request has several `Content-Length` headers.
pub(crate) const DUPLICATE_LENGTH: Rejection = Rejection::bad("duplicate Content-Length header");

/// The longest method that is logged. Registered methods are shorter.
const MAX_METHOD_BYTES: usize = 24;
/// The longest path that is logged.
const MAX_PATH_BYTES: usize = 1024;

/// The method and path of a rejected request, as far as they are readable.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct RejectedRequest {
    pub(crate) method: Option<Method>,
    /// Without the query, which may contain secrets.
    pub(crate) path: Option<String>,
}

impl RejectedRequest {
    /// Reads bytes that begin with the request.
    pub(super) fn parse(request: &[u8]) -> Self {
        let request = request.strip_prefix(b"\r\n").unwrap_or(request);
        let end = request.iter().position(u8::is_ascii_control).unwrap_or(request.len());
        // Without a space after it, the method or the target may be incomplete.
        let Some((method, rest)) = split_at_space(&request[..end]) else { return Self::default() };
        let is_method =
            method.len() <= MAX_METHOD_BYTES && all(TOKEN, method) && method != SUBSTITUTE_METHOD.as_bytes();
        let method = Method::from_bytes(method).ok().filter(|_| is_method);
        RejectedRequest { method, path: split_at_space(rest).and_then(|(target, _)| path(target)) }
    }
}

/// The bytes before and after the first space.
pub(super) fn split_at_space(line: &[u8]) -> Option<(&[u8], &[u8])> {
    let space = memchr(b' ', line)?;
    Some((&line[..space], &line[space + 1..]))
}

/// The path of a target, without the authority of an absolute one, which may contain a password.
fn path(target: &[u8]) -> Option<String> {
    let target = match scheme_len(target) {
        Some(scheme) => &target[scheme + memchr2(b'/', b'?', &target[scheme..])?..],
        None => target,
    };
    let path = &target[..memchr(b'?', target).unwrap_or(target.len())];
    let is_path = path.first() == Some(&b'/') && path.len() <= MAX_PATH_BYTES && all(PATH, path);
    is_path.then(|| String::from_utf8_lossy(path).into_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_substitute_has_the_method_that_clients_cannot_send() {
        assert!(SUBSTITUTE.starts_with(format!("{SUBSTITUTE_METHOD} ").as_bytes()));
    }

    #[test]
    fn the_substitute_of_head_has_the_header_that_clients_cannot_send() {
        let text = String::from_utf8_lossy(SUBSTITUTE_OF_HEAD);
        assert!(text.contains(&format!("\r\n{SUBSTITUTE_HEADER}: ")), "{text}");
        assert!(SUBSTITUTE_HEADER.as_str().contains('_'));
    }

    #[test]
    fn only_the_readable_method_and_path_are_returned() {
        let long = format!("GET /{} HTTP/1.1", "a".repeat(MAX_PATH_BYTES));
        for (expected, requests) in [
            (("GET", "/a"), &["GET /a?token=secret HTTP/1.1\r\nHost: a@b\r\n\r\n"][..]),
            (("GET", "/b"), &["GET http://user:secret@a/b?c HTTP/1.1\r\n"]),
            (("HEAD", "/a"), &["\r\nHEAD /a HTTP/9.9\r\n"]),
            (("GET", ""), &["GET http://user:secret@a HTTP/1.1\r\n", "GET http://a?secret=/b HTTP/1.1\r\n"]),
            (("GET", ""), &["GET  /a HTTP/1.1\r\n", "GET /a\\b HTTP/1.1\r\n", &long, "GET /half"]),
            (("CONNECT", ""), &["CONNECT a:443 HTTP/1.1\r\n"]),
            (("", "/a"), &["(x) /a HTTP/1.1", "WIRE-REFUSED /a HTTP/1.1"]),
            (("", ""), &["G\u{7f}T /a HTTP/1.1", "\u{16}\u{3}\u{1}", ""]),
        ] {
            for request in requests {
                let RejectedRequest { method, path } = RejectedRequest::parse(request.as_bytes());
                let read = (method.as_ref().map_or("", Method::as_str), path.as_deref().unwrap_or(""));
                assert_eq!(read, expected, "{request:?}");
            }
        }
    }
}
