//! The fast path: responses that are written straight to the connection, without hyper.

use std::fmt;

use bytes::Bytes;
use http::header::{CONNECTION, EXPECT, HeaderName, HeaderValue};
use http::request::Parts;
use http::{Method, Request, Uri};

/// Requests with more headers are left to hyper. Most have about a dozen.
const MAX_HEADERS: usize = 64;

/// A source of responses that need no `await`.
pub(crate) trait FastPath: fmt::Debug + Send {
    /// The response to a `GET` or `HEAD` request without a body, on an HTTP/1.1 connection that stays open.
    ///
    /// `None` leaves the request to hyper, and then it is the next request that hyper calls its service with: the fast
    /// path is only used while all earlier requests have a complete response.
    fn get_fresh(&self, request: Parts) -> Option<RawResponse>;
}

/// A response as it is written to the connection.
#[derive(Debug)]
pub(crate) struct RawResponse {
    /// From the status line to the empty line.
    pub(crate) head: Bytes,
    /// Empty for `HEAD`, and for a status without a body.
    pub(crate) body: Bytes,
}

/// Parses a head that the scanner has accepted. Returns `None` if the fast path does not serve such requests.
pub(super) fn parse_request(head: &[u8]) -> Option<Parts> {
    // One copy, to which the URI and all header values refer, as in hyper.
    let bytes = Bytes::copy_from_slice(head);
    let mut fields = [httparse::EMPTY_HEADER; MAX_HEADERS];
    let mut parsed = httparse::Request::new(&mut fields);
    let is_one_head = parsed.parse(&bytes).ok()? == httparse::Status::Complete(bytes.len());
    if !is_one_head || parsed.version != Some(1) {
        return None;
    }
    let (mut parts, ()) = Request::new(()).into_parts();
    parts.method = match parsed.method? {
        "GET" => Method::GET,
        "HEAD" => Method::HEAD,
        _ => return None,
    };
    parts.uri = Uri::from_maybe_shared(bytes.slice_ref(parsed.path?.as_bytes())).ok()?;
    parts.headers.reserve(parsed.headers.len());
    for field in parsed.headers.iter() {
        let name = HeaderName::from_bytes(field.name.as_bytes()).ok()?;
        let value = HeaderValue::from_maybe_shared(bytes.slice_ref(field.value)).ok()?;
        parts.headers.append(name, value);
    }
    let mut connection = parts.headers.get_all(CONNECTION).iter();
    let stays_open = connection.all(|value| value.as_bytes().eq_ignore_ascii_case(b"keep-alive"));
    (stays_open && !parts.headers.contains_key(EXPECT)).then_some(parts)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_plain_request_is_parsed() {
        let head = b"GET /a?b=c HTTP/1.1\r\nHost: a.example\r\nX-Y: 1\r\nx-y:  2 \r\n\r\n";
        let parts = parse_request(head).expect("a request");
        assert_eq!(parts.method, Method::GET);
        assert_eq!(parts.uri, "/a?b=c");
        assert_eq!(parts.headers["host"], "a.example");
        assert_eq!(parts.headers.get_all("x-y").iter().collect::<Vec<_>>(), ["1", "2"]);
        assert_eq!(parts.version, http::Version::HTTP_11);
    }

    #[test]
    fn other_requests_are_left_to_hyper() {
        let keep_alive = b"HEAD / HTTP/1.1\r\nhost: a\r\nconnection: Keep-Alive\r\n\r\n";
        assert_eq!(parse_request(keep_alive).expect("a request").method, Method::HEAD);
        for other in [
            "GET / HTTP/1.0\r\nhost: a\r\n\r\n",
            "head / HTTP/1.1\r\nhost: a\r\n\r\n",
            "POST / HTTP/1.1\r\nhost: a\r\n\r\n",
            "GET / HTTP/1.1\r\nhost: a\r\nconnection: close\r\n\r\n",
            "GET / HTTP/1.1\r\nhost: a\r\nconnection: keep-alive\r\nconnection: x-y\r\n\r\n",
            "GET / HTTP/1.1\r\nhost: a\r\nexpect: 100-continue\r\n\r\n",
            "GET / HTTP/1.1\r\nhost: a\r\n",
            "GET / HTTP/1.1\r\nhost: a\r\n\r\nGET /b HTTP/1.1\r\nhost: a\r\n\r\n",
        ] {
            assert!(parse_request(other.as_bytes()).is_none(), "{other:?}");
        }
        let many = format!("GET / HTTP/1.1\r\n{}\r\n", "a: b\r\n".repeat(MAX_HEADERS + 1));
        assert!(parse_request(many.as_bytes()).is_none());
    }
}
