//! What can be told of a request that is refused: whoever reads the log wants to know what was asked for.

use http::Method;
use memchr::{memchr, memchr2};

use super::line::{PATH, TOKEN, all};
use super::rejection::SUBSTITUTE_METHOD;

/// The longest method that is told of; those that there are have far fewer bytes.
const MOST_METHOD_BYTES: usize = 24;
/// The longest path that is told of.
const MOST_PATH_BYTES: usize = 1024;

/// What a refused request asked for, as far as it can be read.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct RejectedRequest {
    pub(crate) method: Option<Method>,
    /// Without the query, which may have secrets.
    pub(crate) path: Option<String>,
}

impl RejectedRequest {
    /// Of bytes that begin with the request.
    pub(super) fn of(request: &[u8]) -> Self {
        let request = request.strip_prefix(b"\r\n").unwrap_or(request);
        let end = request.iter().position(u8::is_ascii_control).unwrap_or(request.len());
        // What has no blank behind it may be a part only of what was to come.
        let Some((method, rest)) = cut(&request[..end]) else { return RejectedRequest::default() };
        let is_method =
            method.len() <= MOST_METHOD_BYTES && all(TOKEN, method) && method != SUBSTITUTE_METHOD.as_bytes();
        let method = Method::from_bytes(method).ok().filter(|_| is_method);
        RejectedRequest { method, path: cut(rest).and_then(|(target, _)| path(target)) }
    }
}

/// What is before the first blank, and what is behind it.
fn cut(line: &[u8]) -> Option<(&[u8], &[u8])> {
    let blank = memchr(b' ', line)?;
    Some((&line[..blank], &line[blank + 1..]))
}

/// The path of a target, without the host of an absolute one, which may have a password.
fn path(target: &[u8]) -> Option<String> {
    let scheme = [&b"http://"[..], b"https://"]
        .into_iter()
        .find(|scheme| target.get(..scheme.len()).is_some_and(|start| start.eq_ignore_ascii_case(scheme)));
    let target = &target[scheme.map_or(0, <[u8]>::len)..];
    let start = if scheme.is_some() { memchr2(b'/', b'?', target)? } else { 0 };
    let target = &target[start..];
    let path = &target[..memchr(b'?', target).unwrap_or(target.len())];
    let is_path = path.first() == Some(&b'/') && path.len() <= MOST_PATH_BYTES && all(PATH, path);
    is_path.then(|| String::from_utf8_lossy(path).into_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_can_be_read_of_a_request_is_told_and_nothing_else() {
        let long = format!("GET /{} HTTP/1.1", "a".repeat(MOST_PATH_BYTES));
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
            let seen = RejectedRequest::of(request.as_bytes());
            let told = (seen.method.as_ref().map_or("", Method::as_str), seen.path.as_deref().unwrap_or(""));
            assert_eq!(told, (method, path), "{request:?}");
        }
    }
}
