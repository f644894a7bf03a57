//! The request line: method, target and version.

use http::StatusCode;
use memchr::memchr;

use super::line::{PATH, QUERY, TOKEN, all};
use super::rejection::{
    METHOD_NOT_SUPPORTED, Rejection, RequestLimits, SUBSTITUTE_METHOD, TARGET_TOO_LONG, split_at_space,
};
use crate::purge::is_purge_method;

/// The facts of a request line that the checks of the headers need.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct RequestLine {
    pub(super) is_http_11: bool,
    /// The method is GET or HEAD, which must not have a body.
    pub(super) is_read: bool,
    /// The method is one of those that purge, if these are allowed.
    pub(super) is_purge: bool,
    /// The authority of an absolute target.
    pub(super) authority: Option<Box<[u8]>>,
}

impl RequestLine {
    /// Reads a line without its CRLF.
    pub(super) fn read(line: &[u8], limits: &RequestLimits) -> Result<Self, Rejection> {
        let malformed =
            Rejection::bad("malformed request line: expected METHOD TARGET VERSION with single spaces");
        let (method, rest) = split_at_space(line).ok_or(malformed)?;
        let (target, version) = split_at_space(rest).ok_or(malformed)?;
        if method.is_empty() || target.is_empty() {
            return Err(malformed);
        }
        if !all(TOKEN, method) {
            return Err(Rejection::bad("invalid character in the method"));
        }
        let is_http_11 = match version {
            b"HTTP/1.1" => true,
            b"HTTP/1.0" => false,
            [b'H', b'T', b'T', b'P', b'/', major, b'.', minor]
                if major.is_ascii_digit() && minor.is_ascii_digit() =>
            {
                let text = "unsupported HTTP version: use HTTP/1.1 or HTTP/1.0";
                return Err(Rejection::new(StatusCode::HTTP_VERSION_NOT_SUPPORTED, text));
            }
            _ => return Err(malformed),
        };
        if method == b"CONNECT" || method == b"TRACE" {
            return Err(METHOD_NOT_SUPPORTED);
        }
        if method == SUBSTITUTE_METHOD.as_bytes() {
            return Err(Rejection::bad("reserved method"));
        }
        if target.len() > limits.uri_bytes {
            return Err(TARGET_TOO_LONG);
        }
        let authority = authority(method, target)?.map(Box::from);
        let is_purge = limits.allows_purge && std::str::from_utf8(method).is_ok_and(is_purge_method);
        Ok(RequestLine { is_http_11, is_read: method == b"GET" || method == b"HEAD", is_purge, authority })
    }
}

/// The length of `http://` or `https://` at the beginning of a target.
pub(super) fn scheme_len(target: &[u8]) -> Option<usize> {
    let is_at_start =
        |scheme: &&[u8]| target.get(..scheme.len()).is_some_and(|start| start.eq_ignore_ascii_case(scheme));
    [&b"http://"[..], b"https://"].into_iter().find(is_at_start).map(<[u8]>::len)
}

/// Checks the target. Returns its authority if it is absolute.
fn authority<'a>(method: &[u8], target: &'a [u8]) -> Result<Option<&'a [u8]>, Rejection> {
    match target {
        [b'/', ..] => return check_path(target).map(|()| None),
        b"*" if method == b"OPTIONS" => return Ok(None),
        b"*" => return Err(Rejection::bad("the target `*` is only valid for OPTIONS")),
        _ => {}
    }
    let start = scheme_len(target)
        .ok_or(Rejection::bad("the request target is neither a path nor an http(s) URL"))?;
    let rest = &target[start..];
    let end = rest.iter().position(|byte| b"/?".contains(byte)).unwrap_or(rest.len());
    check_path(&rest[end..])?;
    Ok(Some(&rest[..end]))
}

/// Checks the characters of a path and a query. The path must not contain an encoded NUL, CR or LF either: decoded, they
/// would end a string or a line in other programs.
fn check_path(target: &[u8]) -> Result<(), Rejection> {
    let end = memchr(b'?', target).unwrap_or(target.len());
    let (path, query) = target.split_at(end);
    if !all(PATH, path) || !all(QUERY, query) {
        return Err(Rejection::bad("the request target has a character that must be percent-encoded"));
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
