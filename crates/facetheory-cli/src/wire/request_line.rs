//! The first line of a request: what is asked for, and in which version.

use std::ops::Range;

use http::StatusCode;
use memchr::memchr;

use super::limits::RequestLimits;
use super::line::{PATH, QUERY, TOKEN, all};
use super::rejection::{Rejection, SUBSTITUTE_METHOD};

/// What the rest of the head is judged by.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct RequestLine {
    pub(super) is_http_11: bool,
    /// A GET or a HEAD, which have no body.
    pub(super) is_read: bool,
    /// Where in the line the host is, if the target names one.
    pub(super) authority: Option<Range<usize>>,
}

impl RequestLine {
    /// Reads a line that has lost its CRLF.
    pub(super) fn read(line: &[u8], limits: &RequestLimits) -> Result<Self, Rejection> {
        let malformed = Rejection::bad("the request line is not METHOD TARGET VERSION with single spaces");
        let first = memchr(b' ', line).ok_or(malformed)?;
        let (method, rest) = (&line[..first], &line[first + 1..]);
        let second = memchr(b' ', rest).ok_or(malformed)?;
        let (target, version) = (&rest[..second], &rest[second + 1..]);
        if method.is_empty() || target.is_empty() {
            return Err(malformed);
        }
        if !all(TOKEN, method) {
            return Err(Rejection::bad("the method has a character that no method has"));
        }
        let is_http_11 = match version {
            b"HTTP/1.1" => true,
            b"HTTP/1.0" => false,
            [b'H', b'T', b'T', b'P', b'/', major, b'.', minor]
                if major.is_ascii_digit() && minor.is_ascii_digit() =>
            {
                let text = "the request is not HTTP/1.1 or HTTP/1.0";
                return Err(Rejection::new(StatusCode::HTTP_VERSION_NOT_SUPPORTED, text));
            }
            _ => return Err(malformed),
        };
        if method == b"CONNECT" || method == b"TRACE" {
            return Err(Rejection::new(
                StatusCode::METHOD_NOT_ALLOWED,
                "this server does not do CONNECT or TRACE",
            ));
        }
        if method == SUBSTITUTE_METHOD.as_bytes() {
            return Err(Rejection::bad("the method is reserved"));
        }
        if target.len() > limits.target_bytes {
            return Err(TOO_LONG);
        }
        let authority = authority(method, target)?;
        let authority = authority.map(|range| range.start + first + 1..range.end + first + 1);
        Ok(RequestLine { is_http_11, is_read: method == b"GET" || method == b"HEAD", authority })
    }
}

/// The rejection of a request line that is too long, whatever it is made of.
pub(super) const TOO_LONG: Rejection =
    Rejection::new(StatusCode::URI_TOO_LONG, "the target of the request is too long");

/// Where in the target the host is, if it is an absolute one.
fn authority(method: &[u8], target: &[u8]) -> Result<Option<Range<usize>>, Rejection> {
    if target[0] == b'/' {
        return check_path(target).map(|()| None);
    }
    if target == b"*" {
        let allowed = method == b"OPTIONS";
        return if allowed { Ok(None) } else { Err(Rejection::bad("the target `*` is for OPTIONS only")) };
    }
    let scheme = [&b"http://"[..], b"https://"]
        .into_iter()
        .find(|scheme| target.get(..scheme.len()).is_some_and(|start| start.eq_ignore_ascii_case(scheme)))
        .ok_or(Rejection::bad("the target is neither a path nor an http or https address"))?;
    let rest = &target[scheme.len()..];
    let end = rest.iter().position(|byte| b"/?".contains(byte)).unwrap_or(rest.len());
    check_path(&rest[end..])?;
    Ok(Some(scheme.len()..scheme.len() + end))
}

/// Whether a path and a query are made of what they may be made of, and nothing is hidden in the path that ends a line
/// or a string where somebody decodes it.
fn check_path(target: &[u8]) -> Result<(), Rejection> {
    let end = memchr(b'?', target).unwrap_or(target.len());
    let (path, query) = target.split_at(end);
    if !all(PATH, path) || !all(QUERY, query) {
        return Err(Rejection::bad("the target has a character that has to be percent-encoded"));
    }
    let mut rest = path;
    while let Some(at) = memchr(b'%', rest) {
        if matches!(rest[at + 1..], [b'0', b'0' | b'a' | b'A' | b'd' | b'D', ..]) {
            return Err(Rejection::bad("the path has an encoded NUL, CR or LF"));
        }
        rest = &rest[at + 1..];
    }
    Ok(())
}
