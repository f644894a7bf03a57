//! Request heads: the request line, header lines and an empty line, checked line by line as they arrive.

use http::StatusCode;

use super::line::{self, Field, TOKEN, all};
use super::rejection::{
    BODY_NOT_ALLOWED, DUPLICATE_LENGTH, HEAD_TOO_LARGE, Rejection, RequestLimits, TARGET_TOO_LONG,
    TOO_MANY_HEADERS,
};
use super::request_line::RequestLine;

/// The parser of a head.
#[derive(Debug, Default)]
pub(super) struct Head {
    /// Where the next line begins, from the first byte of the head.
    next: usize,
    /// How many bytes of the next line are known not to contain its end.
    searched: usize,
    /// One empty line before the request was skipped (RFC 9112, section 2.2).
    blank: bool,
    request: Option<RequestLine>,
    fields: usize,
    has_host: bool,
    length: Option<u64>,
    is_chunked: bool,
    is_upgrade: bool,
    /// `Connection` names `upgrade`.
    is_connection_upgrade: bool,
}

/// A complete head.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct ParsedHead {
    /// Where the head ends.
    pub(super) end: usize,
    pub(super) body: Framing,
    /// The client requests a protocol upgrade.
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
    /// Checks bytes, which begin with the first byte of the head in every call. `last_host` is the last valid host of the
    /// connection.
    pub(super) fn read(
        &mut self,
        bytes: &[u8],
        limits: &RequestLimits,
        last_host: &mut Vec<u8>,
    ) -> Result<Option<ParsedHead>, Rejection> {
        loop {
            let limit = limits.header_bytes.saturating_sub(self.next);
            let too_long = if self.request.is_some() { HEAD_TOO_LARGE } else { TARGET_TOO_LONG };
            let found = line::first(&bytes[self.next..], &mut self.searched, limit, too_long)?;
            let Some((line, length)) = found else { return Ok(None) };
            self.next += length;
            if !line.is_empty() {
                self.line(line, limits, last_host)?;
            } else if let Some(request) = &self.request {
                return self.finish(request, last_host).map(Some);
            } else if std::mem::replace(&mut self.blank, true) {
                return Err(Rejection::bad("more than one empty line before the request"));
            }
        }
    }

    /// Whether any of it has arrived, apart from the empty line that some clients send after a body.
    pub(super) fn has_begun(&self) -> bool {
        self.request.is_some() || self.searched > 0
    }

    fn line(
        &mut self,
        line: &[u8],
        limits: &RequestLimits,
        last_host: &mut Vec<u8>,
    ) -> Result<(), Rejection> {
        let Some(request) = &self.request else {
            self.request = Some(RequestLine::read(line, limits)?);
            return Ok(());
        };
        self.fields += 1;
        if self.fields > limits.headers {
            return Err(TOO_MANY_HEADERS);
        }
        let is_http_11 = request.is_http_11;
        let field = Field::read(line)?;
        // The length alone excludes almost all other names.
        match field.name.len() {
            4 if field.is(b"host") => self.host(field.value, last_host),
            14 if field.is(b"content-length") => self.content_length(field.value),
            17 if field.is(b"transfer-encoding") => self.transfer_encoding(field.value, is_http_11),
            10 if field.is(b"connection") => {
                let mut options = field.value.split(|&byte| byte == b',');
                self.is_connection_upgrade |=
                    options.any(|option| option.trim_ascii().eq_ignore_ascii_case(b"upgrade"));
                Ok(())
            }
            7 if field.is(b"upgrade") => {
                self.is_upgrade = true;
                Ok(())
            }
            6 if field.is(b"expect") && !field.value.eq_ignore_ascii_case(b"100-continue") => {
                let text = "unsupported Expect header: only 100-continue is supported";
                Err(Rejection::new(StatusCode::EXPECTATION_FAILED, text))
            }
            _ => Ok(()),
        }
    }

    fn host(&mut self, value: &[u8], last_host: &mut Vec<u8>) -> Result<(), Rejection> {
        // A client almost always requests the same host.
        if value.is_empty() || value != last_host.as_slice() {
            if !std::str::from_utf8(value).is_ok_and(facetheory::is_valid_host) {
                return Err(Rejection::bad("invalid Host header"));
            }
            last_host.clear();
            last_host.extend_from_slice(value);
        }
        let is_repeated = std::mem::replace(&mut self.has_host, true);
        if is_repeated { Err(Rejection::bad("more than one Host header")) } else { Ok(()) }
    }

    fn content_length(&mut self, value: &[u8]) -> Result<(), Rejection> {
        let digits =
            std::str::from_utf8(value).ok().filter(|text| text.bytes().all(|byte| byte.is_ascii_digit()));
        // Programs that use signed numbers would misread larger values.
        let length = digits.and_then(|digits| u64::try_from(digits.parse::<i64>().ok()?).ok());
        let length = length.ok_or(Rejection::bad("invalid Content-Length header"))?;
        if self.length.replace(length).is_some() { Err(DUPLICATE_LENGTH) } else { Ok(()) }
    }

    fn transfer_encoding(&mut self, value: &[u8], is_http_11: bool) -> Result<(), Rejection> {
        if !is_http_11 {
            return Err(Rejection::bad("Transfer-Encoding is not allowed in HTTP/1.0"));
        }
        if value.eq_ignore_ascii_case(b"chunked") {
            let is_repeated = std::mem::replace(&mut self.is_chunked, true);
            let text = "duplicate Transfer-Encoding header";
            return if is_repeated { Err(Rejection::bad(text)) } else { Ok(()) };
        }
        let is_coding = !value.is_empty() && all(TOKEN, value);
        let status = if is_coding { StatusCode::NOT_IMPLEMENTED } else { StatusCode::BAD_REQUEST };
        Err(Rejection::new(status, "unsupported Transfer-Encoding: only `chunked` is supported"))
    }

    /// The checks that need all lines. `host` is the value of the `Host` header, if there is one.
    fn finish(&self, request: &RequestLine, host: &[u8]) -> Result<ParsedHead, Rejection> {
        if !self.has_host {
            return Err(Rejection::bad("missing Host header"));
        }
        let is_other = |authority: &[u8]| {
            let has_port = authority.get(host.len()) == Some(&b':');
            let name = if request.is_purge && has_port { &authority[..host.len()] } else { authority };
            !name.eq_ignore_ascii_case(host)
        };
        if request.authority.as_ref().is_some_and(|authority| is_other(authority)) {
            return Err(Rejection::bad("the Host header does not match the request target"));
        }
        let body = match (self.length, self.is_chunked) {
            (Some(_), true) => {
                return Err(Rejection::bad("the request has both Content-Length and Transfer-Encoding"));
            }
            (None, true) => Framing::Chunked,
            (None | Some(0), false) => Framing::None,
            (Some(length), false) => Framing::Sized(length),
        };
        let is_upgrade = self.is_upgrade && self.is_connection_upgrade && request.is_http_11;
        if body != Framing::None && request.is_read {
            return Err(BODY_NOT_ALLOWED);
        }
        if body != Framing::None && is_upgrade {
            return Err(Rejection::bad("an upgrade request must not have a body"));
        }
        Ok(ParsedHead { end: self.next, body, is_upgrade })
    }
}
