//! Why a request is rejected, and the substitute that hyper reads instead.

use http::header::{HeaderMap, HeaderName};
use http::{Method, StatusCode};

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

/// The head or the trailers have too many fields.
pub(crate) const TOO_MANY_HEADERS: Rejection =
    Rejection::new(StatusCode::REQUEST_HEADER_FIELDS_TOO_LARGE, "the request has too many headers");

/// A GET or HEAD request has a body.
pub(crate) const BODY_NOT_ALLOWED: Rejection = Rejection::bad("GET and HEAD requests must not have a body");

/// The request has several `Content-Length` headers.
pub(crate) const DUPLICATE_LENGTH: Rejection = Rejection::bad("duplicate Content-Length header");

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
}
