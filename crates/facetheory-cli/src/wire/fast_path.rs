//! Answers that are at hand: they are written to the connection at once, and hyper never hears of their requests.

use std::fmt;
use std::io::IoSlice;

use bytes::{Buf, Bytes};
use http::header::{CONNECTION, EXPECT, HeaderName, HeaderValue};
use http::request::Parts;
use http::{Method, Request, Uri};

/// Requests with more headers are left to hyper: most have a dozen.
const MOST_HEADERS: usize = 64;

/// Who may have the answer to a request at hand.
pub(crate) trait FastPath: fmt::Debug + Send {
    /// The answer to a `GET` without a body, on a connection of HTTP/1.1 that goes on after it.
    fn get_fresh(&self, request: Parts) -> Option<RawResponse>;
}

/// An answer, as it is written.
#[derive(Debug)]
pub(crate) struct RawResponse {
    /// From the status line to the empty line.
    pub(crate) head: Bytes,
    pub(crate) body: Bytes,
}

impl RawResponse {
    /// What has not been written yet.
    pub(super) fn pieces(&self) -> [IoSlice<'_>; 2] {
        [IoSlice::new(&self.head), IoSlice::new(&self.body)]
    }

    /// So much more of it was written.
    pub(super) fn advance(&mut self, written: usize) {
        let head = written.min(self.head.len());
        self.head.advance(head);
        self.body.advance(written - head);
    }

    /// Whether all of it was written.
    pub(super) fn is_written(&self) -> bool {
        self.head.is_empty() && self.body.is_empty()
    }
}

/// A request whose head the wire has found good, if it is one that may be answered from the shelf.
pub(super) fn request(head: &[u8]) -> Option<Parts> {
    // All that the request consists of refers to these bytes, as it does where hyper reads it.
    let bytes = Bytes::copy_from_slice(head);
    let mut fields = [httparse::EMPTY_HEADER; MOST_HEADERS];
    let mut read = httparse::Request::new(&mut fields);
    // All of the bytes, or they are not one head.
    let is_whole = read.parse(&bytes).ok()? == httparse::Status::Complete(bytes.len());
    if !is_whole || read.version != Some(1) || read.method != Some("GET") {
        return None;
    }
    let (mut parts, ()) = Request::new(()).into_parts();
    parts.method = Method::GET;
    parts.uri = Uri::from_maybe_shared(bytes.slice_ref(read.path?.as_bytes())).ok()?;
    parts.headers.reserve(read.headers.len());
    for field in read.headers.iter() {
        let name = HeaderName::from_bytes(field.name.as_bytes()).ok()?;
        let value = HeaderValue::from_maybe_shared(bytes.slice_ref(field.value)).ok()?;
        parts.headers.append(name, value);
    }
    let mut connection = parts.headers.get_all(CONNECTION).iter();
    let goes_on = connection.all(|value| value.as_bytes().eq_ignore_ascii_case(b"keep-alive"));
    (goes_on && !parts.headers.contains_key(EXPECT)).then_some(parts)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_plain_request_is_read_as_it_is() {
        let parts =
            request(b"GET /a?b=c HTTP/1.1\r\nHost: a.example\r\nX-Y: 1\r\nx-y:  2 \r\n\r\n").expect("one");
        assert_eq!(parts.uri, "/a?b=c");
        assert_eq!(parts.headers["host"], "a.example");
        assert_eq!(parts.headers.get_all("x-y").iter().collect::<Vec<_>>(), ["1", "2"]);
        assert_eq!(parts.version, http::Version::HTTP_11);
    }

    #[test]
    fn what_does_not_end_with_its_answer_and_all_else_is_left_to_hyper() {
        let kept = b"GET / HTTP/1.1\r\nhost: a\r\nconnection: Keep-Alive\r\n\r\n";
        assert!(request(kept).is_some());
        for other in [
            "GET / HTTP/1.0\r\nhost: a\r\n\r\n",
            "HEAD / HTTP/1.1\r\nhost: a\r\n\r\n",
            "POST / HTTP/1.1\r\nhost: a\r\n\r\n",
            "GET / HTTP/1.1\r\nhost: a\r\nconnection: close\r\n\r\n",
            "GET / HTTP/1.1\r\nhost: a\r\nconnection: keep-alive\r\nconnection: x-y\r\n\r\n",
            "GET / HTTP/1.1\r\nhost: a\r\nexpect: 100-continue\r\n\r\n",
            "GET / HTTP/1.1\r\nhost: a\r\n",
            "GET / HTTP/1.1\r\nhost: a\r\n\r\nGET /b HTTP/1.1\r\nhost: a\r\n\r\n",
        ] {
            assert!(request(other.as_bytes()).is_none(), "{other:?}");
        }
        let many = format!("GET / HTTP/1.1\r\n{}\r\n", "a: b\r\n".repeat(MOST_HEADERS + 1));
        assert!(request(many.as_bytes()).is_none());
    }

    #[test]
    fn a_parcel_is_written_piece_by_piece() {
        for step in 1..9 {
            let mut parcel =
                RawResponse { head: Bytes::from_static(b"head"), body: Bytes::from_static(b"body") };
            let mut written = Vec::new();
            while !parcel.is_written() {
                let left = parcel.pieces().iter().flat_map(|piece| piece.to_vec()).collect::<Vec<_>>();
                let here = step.min(left.len());
                written.extend_from_slice(&left[..here]);
                parcel.advance(here);
            }
            assert_eq!(written, b"headbody", "by {step}");
        }
    }
}
