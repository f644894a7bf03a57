//! Why a request is refused, and what hyper is given in its place.

use http::header::{HeaderMap, HeaderName};
use http::{Method, StatusCode};

/// The method of the request that stands in for a refused one. A client that sends it is refused.
pub(crate) const SUBSTITUTE_METHOD: &str = "WIRE-REFUSED";

/// What hyper reads in place of a request that is refused: the service answers it, in its turn, and that was all.
pub(super) const SUBSTITUTE: &[u8] =
    b"WIRE-REFUSED / HTTP/1.1\r\nhost: refused.invalid\r\nconnection: close\r\n\r\n";

/// The same in place of a HEAD, whose answer has no body: hyper has to know. What tells it from a client's is a header with an
/// underscore, which no client can send.
pub(super) const SUBSTITUTE_OF_HEAD: &[u8] =
    b"HEAD / HTTP/1.1\r\nhost: refused.invalid\r\nwire_refused: 1\r\nconnection: close\r\n\r\n";

/// The header of that.
const SUBSTITUTE_HEADER: HeaderName = HeaderName::from_static("wire_refused");

/// Whether this is what stands in for a request that was refused.
pub(super) fn is_substitute(method: &Method, headers: &HeaderMap) -> bool {
    method.as_str() == SUBSTITUTE_METHOD
        || (*method == Method::HEAD && headers.contains_key(SUBSTITUTE_HEADER))
}

/// What the client is answered in place of what it asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Rejection {
    pub(crate) status: StatusCode,
    pub(crate) text: &'static str,
}

impl Rejection {
    /// The request is wrong: 400.
    pub(super) const fn bad(text: &'static str) -> Self {
        Rejection { status: StatusCode::BAD_REQUEST, text }
    }

    /// Anything else that can be said of a request.
    pub(super) const fn new(status: StatusCode, text: &'static str) -> Self {
        Rejection { status, text }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_substitute_has_the_method_that_clients_may_not_use() {
        assert!(SUBSTITUTE.starts_with(format!("{SUBSTITUTE_METHOD} ").as_bytes()));
    }

    #[test]
    fn the_substitute_of_a_head_has_the_header_that_clients_may_not_use() {
        let text = String::from_utf8_lossy(SUBSTITUTE_OF_HEAD);
        assert!(
            text.contains(&format!("\r\n{SUBSTITUTE_HEADER}: ")) && SUBSTITUTE_HEADER.as_str().contains('_'),
            "{text}"
        );
    }
}
