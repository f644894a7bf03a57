//! A body in chunks: sizes, data, and the trailers at its end.

use super::head::{HEAD_TOO_LARGE, TOO_MANY_FIELDS};
use super::limits::RequestLimits;
use super::line::{self, Field, Line};
use super::rejection::Rejection;
use http::StatusCode;

/// The extensions of all chunks of a body together, in bytes. Nobody uses them, and they cost without being counted as
/// a part of the body.
const MAX_EXTENSION_BYTES: usize = 1024;
/// How many digits the size of a chunk has.
const MAX_DIGITS: u8 = 16;
/// What trailers may not say, since it was decided long ago.
const NOT_IN_TRAILERS: [&[u8]; 6] =
    [b"content-length", b"transfer-encoding", b"host", b"connection", b"upgrade", b"expect"];

/// How far a body in chunks has been read.
#[derive(Debug)]
pub(super) struct Chunks {
    step: Step,
    /// Of all chunks so far, and the one that has begun.
    bytes: u64,
    extension_bytes: usize,
    trailers: usize,
    trailer_bytes: usize,
    /// In how much of the trailer line that has begun there is no end.
    searched: usize,
}

#[derive(Clone, Copy, Debug)]
enum Step {
    Size { value: u64, digits: u8 },
    Extension { value: u64 },
    SizeFeed { value: u64 },
    Data { left: u64 },
    DataReturn,
    DataFeed,
    Trailers,
}

/// The size of a chunk of which nothing has been read.
const NO_SIZE: Step = Step::Size { value: 0, digits: 0 };

impl Chunks {
    /// A body of which nothing has been read.
    pub(super) fn new() -> Self {
        Chunks { step: NO_SIZE, bytes: 0, extension_bytes: 0, trailers: 0, trailer_bytes: 0, searched: 0 }
    }

    /// Reads on. Says how many bytes are good, and whether the body has ended with them; a trailer line that has no
    /// end yet is not among them and has to be the beginning of the next bytes.
    pub(super) fn read(&mut self, bytes: &[u8], limits: &RequestLimits) -> Result<(usize, bool), Rejection> {
        let mut at = 0;
        while at < bytes.len() {
            match self.step {
                Step::Trailers => {
                    let (read, has_ended) = self.trailer(&bytes[at..], limits)?;
                    at += read;
                    if has_ended || read == 0 {
                        return Ok((at, has_ended));
                    }
                }
                Step::Data { left } => {
                    let here = u64::try_from(bytes.len() - at).unwrap_or(u64::MAX).min(left);
                    at += usize::try_from(here).unwrap_or(bytes.len() - at);
                    self.step =
                        if here == left { Step::DataReturn } else { Step::Data { left: left - here } };
                }
                _ => {
                    self.step = self.byte(bytes[at], limits)?;
                    at += 1;
                }
            }
        }
        Ok((at, false))
    }

    /// One byte of what is between the data.
    fn byte(&mut self, byte: u8, limits: &RequestLimits) -> Result<Step, Rejection> {
        match (self.step, byte) {
            (Step::Size { value, digits }, _) if byte.is_ascii_hexdigit() && digits < MAX_DIGITS => {
                let digit = char::from(byte).to_digit(16).map_or(0, u64::from);
                Ok(Step::Size { value: value << 4 | digit, digits: digits + 1 })
            }
            (Step::Size { value, digits: 1.. }, b'\r' | b';') => {
                let bytes = self.bytes.checked_add(value).filter(|&bytes| bytes <= limits.body_bytes);
                self.bytes = bytes.ok_or(BODY_TOO_LARGE)?;
                Ok(if byte == b';' { Step::Extension { value } } else { Step::SizeFeed { value } })
            }
            (Step::Extension { value }, b'\r') => Ok(Step::SizeFeed { value }),
            (Step::Extension { .. }, b' '..=b'~' | b'\t') => {
                self.extension_bytes += 1;
                if self.extension_bytes > MAX_EXTENSION_BYTES {
                    return Err(Rejection::bad("the body has too long chunk extensions"));
                }
                Ok(self.step)
            }
            (Step::SizeFeed { value: 0 }, b'\n') => Ok(Step::Trailers),
            (Step::SizeFeed { value }, b'\n') => Ok(Step::Data { left: value }),
            (Step::DataReturn, b'\r') => Ok(Step::DataFeed),
            (Step::DataFeed, b'\n') => Ok(NO_SIZE),
            (Step::DataReturn | Step::DataFeed, _) => Err(Rejection::bad("a chunk is longer than its size")),
            _ => Err(Rejection::bad("the size of a chunk is malformed")),
        }
    }

    /// One line of the trailers.
    fn trailer(&mut self, bytes: &[u8], limits: &RequestLimits) -> Result<(usize, bool), Rejection> {
        let limit = limits.head_bytes.saturating_sub(self.trailer_bytes);
        let (line, length) = match line::first(bytes, self.searched, limit)? {
            Line::Whole { line, next } => (line, next),
            Line::Open { .. } if bytes.len() > limit => return Err(HEAD_TOO_LARGE),
            Line::Open { searched } => {
                self.searched = searched;
                return Ok((0, false));
            }
            Line::TooLong => return Err(HEAD_TOO_LARGE),
        };
        self.searched = 0;
        self.trailer_bytes += length;
        if line.is_empty() {
            return Ok((length, true));
        }
        self.trailers += 1;
        if self.trailers > limits.headers {
            return Err(TOO_MANY_FIELDS);
        }
        let field = Field::read(line)?;
        if NOT_IN_TRAILERS.iter().any(|name| field.is(name)) {
            return Err(Rejection::bad("a trailer has a name that only a header may have"));
        }
        Ok((length, false))
    }
}

/// The rejection of a body with too many bytes.
pub(super) const BODY_TOO_LARGE: Rejection =
    Rejection::new(StatusCode::PAYLOAD_TOO_LARGE, "the body of the request is too large");
