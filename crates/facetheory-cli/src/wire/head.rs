//! A head: the request line, header lines and an empty line; judged line by line, as they come.

use std::ops::Range;

use http::StatusCode;

use super::limits::RequestLimits;
use super::line::{self, Field, Line, TOKEN, all, trimmed};
use super::rejection::Rejection;
use super::request_line::{RequestLine, TOO_LONG};

/// What is known of a head of which some lines have been read. All places count from its first byte.
#[derive(Debug, Default)]
pub(super) struct Head {
    /// Where the line begins that is read next.
    next: usize,
    /// Up to where that line has no end.
    searched: usize,
    /// One empty line has been passed over: RFC 9112, section 2.2.
    blank: bool,
    request: Option<RequestLine>,
    fields: usize,
    host: Option<Range<usize>>,
    length: Option<u64>,
    is_chunked: bool,
    is_upgrade: bool,
    /// `Connection` names `upgrade`.
    is_connection_upgrade: bool,
}

/// What follows a head.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Whole {
    /// Where the head ends.
    pub(super) end: usize,
    pub(super) body: Framing,
    /// The client asks for another protocol after this request.
    pub(super) is_upgrade: bool,
}

/// How a body is delimited.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Framing {
    None,
    Sized(u64),
    Chunked,
}

impl Head {
    /// Reads on. The bytes begin with the head's first, also those that were there the last time.
    ///
    /// `known` is a host that was found to be one.
    pub(super) fn read(
        &mut self,
        bytes: &[u8],
        limits: &RequestLimits,
        known: &mut Vec<u8>,
    ) -> Result<Option<Whole>, Rejection> {
        loop {
            let start = self.next;
            let (searched, limit) = (self.searched - start, limits.head_bytes.saturating_sub(start));
            let line = match line::first(&bytes[start..], searched, limit)? {
                Line::Whole { line, next } => {
                    self.next = start + next;
                    self.searched = self.next;
                    line
                }
                // Its end can only be further away, so nothing depends on how much has come.
                Line::Open { .. } if bytes.len() > limits.head_bytes => return Err(self.too_large()),
                Line::Open { searched } => {
                    self.searched = start + searched;
                    return Ok(None);
                }
                Line::TooLong => return Err(self.too_large()),
            };
            if !line.is_empty() {
                self.line(line, start, limits, known)?;
            } else if self.request.is_some() {
                return self.judge(bytes).map(Some);
            } else if std::mem::replace(&mut self.blank, true) {
                return Err(Rejection::bad("the request begins with empty lines"));
            }
        }
    }

    /// Whether something has come of it, besides the empty line that some clients send after a body.
    pub(super) fn has_begun(&self) -> bool {
        self.request.is_some() || self.searched > self.next
    }

    fn too_large(&self) -> Rejection {
        match self.request {
            Some(_) => HEAD_TOO_LARGE,
            None => TOO_LONG,
        }
    }

    fn line(
        &mut self,
        line: &[u8],
        start: usize,
        limits: &RequestLimits,
        known: &mut Vec<u8>,
    ) -> Result<(), Rejection> {
        let Some(request) = &self.request else {
            let mut request = RequestLine::read(line, limits)?;
            if let Some(authority) = &mut request.authority {
                *authority = authority.start + start..authority.end + start;
            }
            self.request = Some(request);
            return Ok(());
        };
        self.fields += 1;
        if self.fields > limits.headers {
            return Err(TOO_MANY_FIELDS);
        }
        let is_http_11 = request.is_http_11;
        let field = Field::read(line)?;
        // Almost all names are told apart from those that matter by their length.
        match field.name.len() {
            4 if field.is(b"host") => self.host(line, &field, start, known),
            14 if field.is(b"content-length") => self.content_length(field.value),
            17 if field.is(b"transfer-encoding") => self.transfer_encoding(field.value, is_http_11),
            10 if field.is(b"connection") => {
                let mut options = field.value.split(|&byte| byte == b',');
                self.is_connection_upgrade |=
                    options.any(|option| trimmed(option).eq_ignore_ascii_case(b"upgrade"));
                Ok(())
            }
            7 if field.is(b"upgrade") => {
                self.is_upgrade = true;
                Ok(())
            }
            6 if field.is(b"expect") && !field.value.eq_ignore_ascii_case(b"100-continue") => {
                let text = "the only expectation that is met is 100-continue";
                Err(Rejection::new(StatusCode::EXPECTATION_FAILED, text))
            }
            _ => Ok(()),
        }
    }

    fn host(
        &mut self,
        line: &[u8],
        field: &Field<'_>,
        start: usize,
        known: &mut Vec<u8>,
    ) -> Result<(), Rejection> {
        // Almost always a client asks for one host all the time.
        if field.value.is_empty() || field.value != known.as_slice() {
            if !std::str::from_utf8(field.value).is_ok_and(facetheory::is_valid_host) {
                return Err(Rejection::bad("the Host of the request is no host"));
            }
            known.clear();
            known.extend_from_slice(field.value);
        }
        // The value is somewhere between the colon and the end, with blanks around it.
        let blanks = line[field.name.len() + 1..].iter().take_while(|&&byte| byte == b' ' || byte == b'\t');
        let from = start + field.name.len() + 1 + blanks.count();
        match self.host.replace(from..from + field.value.len()) {
            None => Ok(()),
            Some(_) => Err(Rejection::bad("a request has one Host")),
        }
    }

    fn content_length(&mut self, value: &[u8]) -> Result<(), Rejection> {
        let invalid = Rejection::bad("the Content-Length is not one number");
        if value.is_empty() {
            return Err(invalid);
        }
        let length = value.iter().try_fold(0_u64, |length, byte| {
            let digit = byte.is_ascii_digit().then(|| u64::from(byte - b'0'))?;
            length.checked_mul(10)?.checked_add(digit)
        });
        // Many programs count in signed numbers, and what is refused here nobody can misread.
        let length = length.filter(|&length| i64::try_from(length).is_ok()).ok_or(invalid)?;
        match self.length.replace(length) {
            None => Ok(()),
            Some(_) => Err(Rejection::bad("the Content-Length is there twice")),
        }
    }

    fn transfer_encoding(&mut self, value: &[u8], is_http_11: bool) -> Result<(), Rejection> {
        if !is_http_11 {
            return Err(Rejection::bad("HTTP/1.0 has no Transfer-Encoding"));
        }
        if value.eq_ignore_ascii_case(b"chunked") {
            let is_repeated = std::mem::replace(&mut self.is_chunked, true);
            let text = "the Transfer-Encoding is there twice";
            return if is_repeated { Err(Rejection::bad(text)) } else { Ok(()) };
        }
        let is_coding = !value.is_empty() && all(TOKEN, value);
        let status = if is_coding { StatusCode::NOT_IMPLEMENTED } else { StatusCode::BAD_REQUEST };
        Err(Rejection::new(status, "the Transfer-Encoding is not `chunked`"))
    }

    /// What can only be said once all lines are there.
    fn judge(&self, bytes: &[u8]) -> Result<Whole, Rejection> {
        let Some(request) = &self.request else {
            return Err(Rejection::bad("the request has no request line"));
        };
        let host = self.host.clone().ok_or(Rejection::bad("a request needs a Host"))?;
        if let Some(authority) = &request.authority
            && !bytes[authority.clone()].eq_ignore_ascii_case(&bytes[host])
        {
            return Err(Rejection::bad("the Host and the address of the request differ"));
        }
        let body = match (self.length, self.is_chunked) {
            (Some(_), true) => {
                return Err(Rejection::bad(
                    "a request has a Content-Length or a Transfer-Encoding, not both",
                ));
            }
            (None, true) => Framing::Chunked,
            (None | Some(0), false) => Framing::None,
            (Some(length), false) => Framing::Sized(length),
        };
        let is_upgrade = self.is_upgrade && self.is_connection_upgrade && request.is_http_11;
        if body != Framing::None && request.is_read {
            return Err(Rejection::bad("a GET or a HEAD has no body"));
        }
        if body != Framing::None && is_upgrade {
            return Err(Rejection::bad("a request that asks for another protocol has no body"));
        }
        Ok(Whole { end: self.next, body, is_upgrade })
    }
}

/// The rejection of a head, or of trailers, with too many bytes.
pub(super) const HEAD_TOO_LARGE: Rejection =
    Rejection::new(StatusCode::REQUEST_HEADER_FIELDS_TOO_LARGE, "the headers of the request are too large");

/// The rejection of a head, or of trailers, with too many lines.
pub(super) const TOO_MANY_FIELDS: Rejection =
    Rejection::new(StatusCode::REQUEST_HEADER_FIELDS_TOO_LARGE, "the request has too many headers");
