//! Parses the responses of an HTTP/1 connection.

use crate::request_log::ExpectedRequest;

/// The most headers of a response.
const MAX_HEADERS: usize = 128;

/// A response.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Response {
    pub(crate) status: u16,
    pub(crate) body: Vec<u8>,
}

/// The complete final responses to these requests.
pub(crate) fn read(received: &[u8], expected: &[ExpectedRequest]) -> Result<Vec<Response>, String> {
    let mut responses = Vec::new();
    let mut rest = received;
    loop {
        let mut headers = [httparse::EMPTY_HEADER; MAX_HEADERS];
        let mut head = httparse::Response::new(&mut headers);
        let after = match head.parse(rest) {
            Ok(httparse::Status::Complete(after)) => &rest[after..],
            Ok(httparse::Status::Partial) => return Ok(responses),
            Err(error) => return Err(error.to_string()),
        };
        let status = head.code.ok_or("no status")?;
        let value = |name: &str| {
            head.headers
                .iter()
                .find(|header| header.name.eq_ignore_ascii_case(name))
                .map(|header| header.value)
        };
        let is_head = expected.get(responses.len()).is_some_and(|expected| expected.request.method == "HEAD");
        match status {
            101 => {
                responses.push(Response { status, body: Vec::new() });
                // The rest is not HTTP.
                return Ok(responses);
            }
            100..200 => {
                rest = after;
                continue;
            }
            _ => {}
        }
        // The response to a rejected request has a body whatever its method, since the connection is closed after it.
        let is_last = status >= 400 && value("connection") == Some(b"close");
        let is_bodiless = (is_head && !is_last) || matches!(status, 204 | 304);
        let (body, end) = if is_bodiless {
            (Vec::new(), after)
        } else if value("transfer-encoding") == Some(b"chunked") {
            let Some(read) = chunks(after)? else { return Ok(responses) };
            read
        } else {
            let length = value("content-length").and_then(|length| str::from_utf8(length).ok()?.parse().ok());
            // Without a length the body ends with the connection.
            let length = length.unwrap_or(after.len());
            let Some((body, end)) = after.split_at_checked(length) else { return Ok(responses) };
            (body.to_vec(), end)
        };
        responses.push(Response { status, body });
        rest = end;
    }
}

/// A body, and the bytes after it.
type Split<'a> = (Vec<u8>, &'a [u8]);

/// A chunked body, and the bytes after it; `None` if it is incomplete.
fn chunks(mut rest: &[u8]) -> Result<Option<Split<'_>>, String> {
    let mut body = Vec::new();
    loop {
        let (at, size) = match httparse::parse_chunk_size(rest) {
            Ok(httparse::Status::Complete(size)) => size,
            Ok(httparse::Status::Partial) => return Ok(None),
            Err(_) => return Err("invalid chunk size".to_owned()),
        };
        let size = usize::try_from(size).map_err(|error| error.to_string())?;
        let Some((piece, after)) = rest[at..].split_at_checked(size) else { return Ok(None) };
        let Some((end, after)) = after.split_at_checked(2) else { return Ok(None) };
        if end != b"\r\n" {
            return Err("invalid chunk end".to_owned());
        }
        if size == 0 {
            return Ok(Some((body, after)));
        }
        body.extend_from_slice(piece);
        rest = after;
    }
}
