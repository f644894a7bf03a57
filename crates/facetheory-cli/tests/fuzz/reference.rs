//! What the bytes of a visitor's connection ask for, as a strict reader sees them.

use crate::request_log::ExpectedRequest;
use crate::strict_parser::{self, Parsed};

/// How the bytes of a connection end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum End {
    /// With a request, or with nothing after it.
    Clean,
    /// In the middle of a request.
    Open,
    /// With what is no request.
    Wrong,
}

/// The requests that these bytes of HTTP/1 are, up to the first that is none.
pub(crate) fn asked(bytes: &[u8]) -> (Vec<ExpectedRequest>, End) {
    let mut asked = Vec::new();
    let mut rest = bytes;
    loop {
        // One empty line may stand before a request: RFC 9112, section 2.2.
        rest = rest.strip_prefix(b"\r\n").unwrap_or(rest);
        if rest.is_empty() {
            return (asked, End::Clean);
        }
        match strict_parser::read(rest) {
            Parsed::Whole(request, end) => {
                asked.push(ExpectedRequest { request, is_whole: true });
                rest = &rest[end..];
            }
            Parsed::Part(request, fault) => {
                asked.push(ExpectedRequest { request, is_whole: false });
                return (asked, if fault.is_some() { End::Wrong } else { End::Open });
            }
            Parsed::Open => return (asked, End::Open),
            Parsed::Wrong(_) => return (asked, End::Wrong),
        }
    }
}

#[test]
fn requests_are_parsed_up_to_the_first_invalid_one() {
    let get = "GET /a HTTP/1.1\r\nHost: b\r\n\r\n";
    let count = |bytes: &str| {
        let (asked, end) = asked(bytes.as_bytes());
        (asked.iter().filter(|asked| asked.is_whole).count(), asked.len(), end)
    };
    assert_eq!(count(&format!("{get}\r\n{get}")), (2, 2, End::Clean));
    assert_eq!(count(&format!("{get}\r\n\r\n{get}")), (1, 1, End::Wrong));
    assert_eq!(count(&format!("{get}GET /")), (1, 1, End::Open));
    let post = "POST /a HTTP/1.1\r\nHost: b\r\nTransfer-Encoding: chunked\r\n\r\n1\r\nx\r\n";
    assert_eq!(count(&format!("{post}{get}")), (0, 1, End::Wrong));
}
