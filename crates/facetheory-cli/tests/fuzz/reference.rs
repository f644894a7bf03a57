//! The requests in the bytes of a connection, according to the strict parser.

use crate::request_log::ExpectedRequest;
use crate::strict_parser::{self, Parsed};

/// How the bytes of a connection end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum End {
    /// After a complete request.
    Clean,
    /// Within a request.
    Open,
    /// With invalid bytes.
    Invalid,
}

/// The requests in these HTTP/1 bytes, up to the first invalid one.
pub(crate) fn expected_requests(bytes: &[u8]) -> (Vec<ExpectedRequest>, End) {
    let mut expected = Vec::new();
    let mut rest = bytes;
    loop {
        // One empty line is allowed before a request: RFC 9112, section 2.2.
        rest = rest.strip_prefix(b"\r\n").unwrap_or(rest);
        if rest.is_empty() {
            return (expected, End::Clean);
        }
        match strict_parser::read(rest) {
            Parsed::Complete(request, end) => {
                expected.push(ExpectedRequest { request, is_complete: true });
                rest = &rest[end..];
            }
            Parsed::Part(request, fault) => {
                expected.push(ExpectedRequest { request, is_complete: false });
                return (expected, if fault.is_some() { End::Invalid } else { End::Open });
            }
            Parsed::Open => return (expected, End::Open),
            Parsed::Invalid(_) => return (expected, End::Invalid),
        }
    }
}

#[test]
fn requests_are_parsed_up_to_the_first_invalid_one() {
    let get = "GET /a HTTP/1.1\r\nHost: b\r\n\r\n";
    let count = |bytes: &str| {
        let (expected, end) = expected_requests(bytes.as_bytes());
        (expected.iter().filter(|expected| expected.is_complete).count(), expected.len(), end)
    };
    assert_eq!(count(&format!("{get}\r\n{get}")), (2, 2, End::Clean));
    assert_eq!(count(&format!("{get}\r\n\r\n{get}")), (1, 1, End::Invalid));
    assert_eq!(count(&format!("{get}GET /")), (1, 1, End::Open));
    let post = "POST /a HTTP/1.1\r\nHost: b\r\nTransfer-Encoding: chunked\r\n\r\n1\r\nx\r\n";
    assert_eq!(count(&format!("{post}{get}")), (0, 1, End::Invalid));
}
