//! The method and path of a rejected request, for the access log.

use http::Method;
use memchr::{memchr, memchr2};

use super::line::{PATH, TOKEN, all};
use super::rejection::SUBSTITUTE_METHOD;
use super::request_line::scheme_len;

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

fn split_at_space(line: &[u8]) -> Option<(&[u8], &[u8])> {
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
    fn only_the_readable_method_and_path_are_returned() {
        let long = format!("GET /{} HTTP/1.1", "a".repeat(MAX_PATH_BYTES));
        for (request, method, path) in [
            ("GET /a?token=secret HTTP/1.1\r\nHost: a@b\r\n\r\n", "GET", "/a"),
            ("\r\nHEAD /a HTTP/9.9\r\n", "HEAD", "/a"),
            ("GET http://user:secret@a/b?c HTTP/1.1\r\n", "GET", "/b"),
            ("GET http://user:secret@a HTTP/1.1\r\n", "GET", ""),
            ("GET http://a?secret=/b HTTP/1.1\r\n", "GET", ""),
            ("CONNECT a:443 HTTP/1.1\r\n", "CONNECT", ""),
            ("GET  /a HTTP/1.1\r\n", "GET", ""),
            ("GET /a\\b HTTP/1.1\r\n", "GET", ""),
            (&long, "GET", ""),
            ("GET /half", "GET", ""),
            ("G\u{7f}T /a HTTP/1.1", "", ""),
            ("(x) /a HTTP/1.1", "", "/a"),
            ("WIRE-REFUSED /a HTTP/1.1", "", "/a"),
            ("\u{16}\u{3}\u{1}", "", ""),
            ("", "", ""),
        ] {
            let RejectedRequest { method: read_method, path: read_path } =
                RejectedRequest::parse(request.as_bytes());
            let read = (read_method.as_ref().map_or("", Method::as_str), read_path.as_deref().unwrap_or(""));
            assert_eq!(read, (method, path), "{request:?}");
        }
    }
}
