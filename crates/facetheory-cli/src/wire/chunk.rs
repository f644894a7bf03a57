//! Chunked request bodies: sizes, data and trailers.

use super::line::{self, Field};
use super::rejection::{BODY_TOO_LARGE, HEAD_TOO_LARGE, Rejection, RequestLimits, TOO_MANY_HEADERS};

/// The size of the extensions of all chunks of a body together. They are hardly used, and the size limit of bodies does
/// not count them.
const MAX_EXTENSION_BYTES: usize = 1024;
/// The number of digits of a chunk size.
const MAX_DIGITS: u8 = 16;
/// Fields that are not allowed in trailers: they were decided with the head.
const NOT_IN_TRAILERS: [&[u8]; 6] =
    [b"content-length", b"transfer-encoding", b"host", b"connection", b"upgrade", b"expect"];

/// The parser of a chunked body.
#[derive(Debug, Default)]
pub(super) struct ChunkedBody {
    step: Step,
    /// The declared size of all chunks so far.
    bytes: u64,
    extension_bytes: usize,
    trailers: usize,
    trailer_bytes: usize,
    /// How many bytes of the current trailer line are known not to contain its end.
    searched: usize,
}

#[derive(Clone, Copy, Debug, Default)]
enum Step {
    /// Before the first digit of a chunk size.
    #[default]
    Chunk,
    Size {
        value: u64,
        digits: u8,
    },
    Extension {
        value: u64,
    },
    SizeFeed {
        value: u64,
    },
    Data {
        left: u64,
    },
    DataReturn,
    DataFeed,
    Trailers,
}

impl ChunkedBody {
    /// Checks bytes. Returns how many of them are valid, and whether the body has ended with them. An incomplete trailer
    /// line does not count as valid, and must be the beginning of the next bytes.
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
                    let count = u64::try_from(bytes.len() - at).unwrap_or(u64::MAX).min(left);
                    at += usize::try_from(count).unwrap_or(bytes.len() - at);
                    self.step =
                        if count == left { Step::DataReturn } else { Step::Data { left: left - count } };
                }
                _ => {
                    self.step = self.byte(bytes[at], limits)?;
                    at += 1;
                }
            }
        }
        Ok((at, false))
    }

    /// One byte between the data of two chunks.
    fn byte(&mut self, byte: u8, limits: &RequestLimits) -> Result<Step, Rejection> {
        match (self.step, byte, char::from(byte).to_digit(16)) {
            (Step::Chunk, _, Some(digit)) => Ok(Step::Size { value: digit.into(), digits: 1 }),
            (Step::Size { value, digits: digits @ ..MAX_DIGITS }, _, Some(digit)) => {
                Ok(Step::Size { value: value << 4 | u64::from(digit), digits: digits + 1 })
            }
            (Step::Size { value, .. }, b'\r' | b';', _) => {
                let bytes = self.bytes.checked_add(value).filter(|&bytes| bytes <= limits.body_bytes);
                self.bytes = bytes.ok_or(BODY_TOO_LARGE)?;
                Ok(if byte == b';' { Step::Extension { value } } else { Step::SizeFeed { value } })
            }
            (Step::Extension { value }, b'\r', _) => Ok(Step::SizeFeed { value }),
            (Step::Extension { .. }, b' '..=b'~' | b'\t', _) => {
                self.extension_bytes += 1;
                if self.extension_bytes > MAX_EXTENSION_BYTES {
                    return Err(Rejection::bad("the chunk extensions are too long"));
                }
                Ok(self.step)
            }
            (Step::SizeFeed { value: 0 }, b'\n', _) => Ok(Step::Trailers),
            (Step::SizeFeed { value }, b'\n', _) => Ok(Step::Data { left: value }),
            (Step::DataReturn, b'\r', _) => Ok(Step::DataFeed),
            (Step::DataFeed, b'\n', _) => Ok(Step::Chunk),
            (Step::DataReturn | Step::DataFeed, _, _) => {
                Err(Rejection::bad("a chunk is longer than its declared size"))
            }
            _ => Err(Rejection::bad("malformed chunk size")),
        }
    }

    /// One line of the trailers.
    fn trailer(&mut self, bytes: &[u8], limits: &RequestLimits) -> Result<(usize, bool), Rejection> {
        let limit = limits.header_bytes.saturating_sub(self.trailer_bytes);
        let Some((line, length)) = line::first(bytes, &mut self.searched, limit, HEAD_TOO_LARGE)? else {
            return Ok((0, false));
        };
        self.trailer_bytes += length;
        if line.is_empty() {
            return Ok((length, true));
        }
        self.trailers += 1;
        if self.trailers > limits.headers {
            return Err(TOO_MANY_HEADERS);
        }
        let field = Field::read(line)?;
        if NOT_IN_TRAILERS.iter().any(|name| field.is(name)) {
            return Err(Rejection::bad("a trailer field is not allowed in trailers"));
        }
        Ok((length, false))
    }
}
