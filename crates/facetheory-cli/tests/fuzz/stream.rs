//! The requests in the frames of an HTTP/2 connection, according to a strict parser.

use std::collections::BTreeMap;

use crate::request_log::ExpectedRequest;
use crate::strict_parser::{Request, is_token, is_valid_host};
use crate::support::http2::{
    CONTINUATION, DATA, END_HEADERS, END_STREAM, Frame, HEADERS, PREFACE, RST_STREAM,
};

const PADDED: u8 = 8;
const PRIORITY: u8 = 0x20;

/// The requests that these bytes may contain, by stream id; `None` if this parser cannot tell.
///
/// A server may continue after an error, so this parser does: it never misses a request that a server may see.
pub(crate) fn expected_requests(bytes: &[u8]) -> Option<BTreeMap<u32, ExpectedRequest>> {
    let mut streams: BTreeMap<u32, Stream> = BTreeMap::new();
    let mut rest = bytes.strip_prefix(PREFACE).unwrap_or_default();
    let mut open: Option<(Frame, Vec<u8>)> = None;
    while let Some(frame) = next(&mut rest) {
        if let Some((first, mut block)) = open.take() {
            if frame.kind != CONTINUATION || frame.stream != first.stream {
                break;
            }
            block.extend_from_slice(&frame.payload);
            if frame.flags & END_HEADERS == 0 {
                open = Some((first, block));
            } else if !head(&mut streams, &first, &block)? {
                break;
            }
            continue;
        }
        let Some(payload) = unpadded(&frame) else { break };
        match frame.kind {
            HEADERS if frame.flags & END_HEADERS == 0 => open = Some((frame.clone(), payload.to_vec())),
            HEADERS if !head(&mut streams, &frame, payload)? => break,
            DATA => {
                if let Some(stream) = streams.get_mut(&frame.stream).filter(|stream| stream.is_open()) {
                    stream.body.extend_from_slice(payload);
                    stream.has_ended = frame.flags & END_STREAM != 0;
                }
            }
            RST_STREAM => {
                if let Some(stream) = streams.get_mut(&frame.stream) {
                    stream.is_reset = true;
                }
            }
            _ => {}
        }
    }
    Some(
        streams
            .into_iter()
            .filter_map(|(number, stream)| Some((number, stream.expected_request()?)))
            .collect(),
    )
}

/// The fields of a request, and its body so far.
#[derive(Default)]
struct Stream {
    fields: Vec<(Vec<u8>, Vec<u8>)>,
    trailers: Vec<(Vec<u8>, Vec<u8>)>,
    body: Vec<u8>,
    /// Whether its head was split into several frames.
    is_continued: bool,
    has_ended: bool,
    is_reset: bool,
}

/// The result of decoding a header block.
enum Block {
    Fields(Vec<(Vec<u8>, Vec<u8>)>),
    Broken,
    /// It contains something that this parser does not decode.
    Unclear,
}

/// Handles a header block. Returns false if no server continues after it, and `None` if that is unclear.
fn head(streams: &mut BTreeMap<u32, Stream>, frame: &Frame, block: &[u8]) -> Option<bool> {
    let fields = match decoded(block) {
        Block::Fields(fields) => fields,
        Block::Broken => return Some(false),
        Block::Unclear => return None,
    };
    // Streams with even ids belong to servers, so this is not a request.
    if frame.stream.is_multiple_of(2) {
        return Some(true);
    }
    let ends = frame.flags & END_STREAM != 0;
    match streams.get_mut(&frame.stream) {
        None => {
            let is_continued = frame.flags & END_HEADERS == 0;
            let stream = Stream { fields, is_continued, has_ended: ends, ..Stream::default() };
            streams.insert(frame.stream, stream);
        }
        Some(stream) if stream.is_open() => {
            stream.trailers = fields;
            (stream.has_ended, stream.is_reset) = (ends, !ends);
        }
        Some(_) => {}
    }
    Some(true)
}

impl Stream {
    fn is_open(&self) -> bool {
        !self.has_ended && !self.is_reset
    }

    /// The request, unless its head is invalid.
    ///
    /// The HTTP/2 library of the gateway forgets at the end of a frame that it has skipped an invalid field
    /// (hyperium/h2, `HeaderBlock::load`). So a head in several frames may be valid without that field.
    fn expected_request(self) -> Option<ExpectedRequest> {
        let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).ok();
        let (mut method, mut target, mut authority, mut scheme) = (None, None, None, None);
        let mut request = Request::default();
        for (name, value) in &self.fields {
            if value.iter().any(|byte| byte.is_ascii_control() && *byte != b'\t') {
                return None;
            }
            let pseudo = match name.as_slice() {
                b":method" => &mut method,
                b":path" => &mut target,
                b":authority" => &mut authority,
                b":scheme" => &mut scheme,
                [b':', ..] if self.is_continued && !request.fields.is_empty() => continue,
                name => {
                    let is_name = !name.is_empty() && name.iter().all(is_token);
                    if !is_name || name.iter().any(u8::is_ascii_uppercase) || is_hop(name, value) {
                        if self.is_continued {
                            continue;
                        }
                        return None;
                    }
                    request.fields.push((text(name)?, value.trim_ascii().to_vec()));
                    continue;
                }
            };
            if pseudo.is_none() && request.fields.is_empty() {
                *pseudo = Some(text(value)?);
            } else if !self.is_continued {
                return None;
            }
        }
        // A fragment is never forwarded: the page is that of the target without it.
        let target = target?.split('#').next().map(str::to_owned);
        (request.method, request.target) = (method?, target?);
        scheme?;
        let hosts: Vec<String> = request.values("host").filter_map(text).chain(authority).collect();
        request.host = hosts.first().filter(|host| is_valid_host(host))?.clone();
        let is_one = hosts.iter().all(|host| host.eq_ignore_ascii_case(&request.host));
        let is_target =
            request.target.starts_with('/') || (request.target == "*" && request.method == "OPTIONS");
        let is_method = !request.method.is_empty() && request.method.bytes().all(|byte| is_token(&byte));
        let is_rejected = ["CONNECT", "TRACE"].contains(&request.method.as_str());
        let is_shown = request.target.bytes().all(|byte| byte.is_ascii_graphic());
        if !is_one || hosts.len() > 2 || !is_target || !is_shown || !is_method || is_rejected {
            return None;
        }
        let lengths: Vec<Option<usize>> = request
            .values("content-length")
            .map(|length| text(length).filter(|length| length.bytes().all(|byte| byte.is_ascii_digit())))
            .map(|length| length?.parse().ok())
            .collect();
        request.body = self.body;
        let is_complete = match lengths.as_slice() {
            [] => self.has_ended,
            // With a content length, the end is known without END_STREAM.
            [Some(length)] if *length <= request.body.len() => {
                request.body.truncate(*length);
                true
            }
            [Some(_)] => false,
            _ => return None,
        };
        request.trailers = self
            .trailers
            .into_iter()
            .map(|(name, value)| Some((text(&name)?, value)))
            .collect::<Option<_>>()
            .unwrap_or_default();
        Some(ExpectedRequest { request, is_complete })
    }
}

/// Connection-specific headers, which HTTP/2 forbids.
fn is_hop(name: &[u8], value: &[u8]) -> bool {
    let hops = ["connection", "keep-alive", "proxy-connection", "transfer-encoding", "upgrade"];
    hops.iter().any(|hop| hop.as_bytes() == name) || (name == b"te" && value != b"trailers")
}

/// The next frame, if it is complete.
pub(crate) fn next(rest: &mut &[u8]) -> Option<Frame> {
    let (head, after) = rest.split_at_checked(9)?;
    let [a, b, c, kind, flags, stream @ ..] = head else { return None };
    let (payload, after) = after.split_at_checked(u32::from_be_bytes([0, *a, *b, *c]) as usize)?;
    let stream = u32::from_be_bytes(stream.try_into().ok()?) & !(1 << 31);
    *rest = after;
    Some(Frame { kind: *kind, flags: *flags, stream, payload: payload.to_vec() })
}

/// The payload without padding; `None` if the padding is too long.
fn unpadded(frame: &Frame) -> Option<&[u8]> {
    let mut payload = frame.payload.as_slice();
    if !matches!(frame.kind, DATA | HEADERS) {
        return Some(payload);
    }
    if frame.flags & PADDED != 0 {
        let (length, after) = payload.split_first()?;
        payload = after.get(..after.len().checked_sub(usize::from(*length))?)?;
    }
    if frame.kind == HEADERS && frame.flags & PRIORITY != 0 {
        payload = payload.get(5..)?;
    }
    Some(payload)
}

/// The fields of a block without indexing.
fn decoded(block: &[u8]) -> Block {
    let mut fields = Vec::new();
    let mut rest = block;
    while let Some((first, after)) = rest.split_first() {
        if !matches!(first, 0 | 0x10 | 0x40) {
            return Block::Unclear;
        }
        rest = after;
        let mut pair = [Vec::new(), Vec::new()];
        for text in &mut pair {
            let Some((length, after)) = rest.split_first() else { return Block::Broken };
            rest = after;
            let mut size = usize::from(length & 127);
            if length & 128 != 0 {
                return Block::Unclear;
            }
            if size == 127 {
                let Some((more, after)) = rest.split_first() else { return Block::Broken };
                if more & 128 != 0 {
                    return Block::Unclear;
                }
                (size, rest) = (size + usize::from(*more), after);
            }
            let Some((bytes, after)) = rest.split_at_checked(size) else { return Block::Broken };
            (*text, rest) = (bytes.to_vec(), after);
        }
        let [name, value] = pair;
        fields.push((name, value));
    }
    Block::Fields(fields)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::support::http2::get;
    use crate::support::site::HOST;

    fn connection(frames: &[Frame]) -> Vec<u8> {
        [PREFACE.to_vec(), frames.iter().flat_map(Frame::bytes).collect()].concat()
    }

    #[test]
    fn frames_are_parsed_as_requests() {
        let mut post = get(HOST, "/a");
        post[0].1 = "POST";
        let frames =
            [Frame::headers(1, &post, 0), Frame::data(1, b"ab", 0), Frame::data(1, b"c", END_STREAM)];
        let expected = expected_requests(&connection(&frames)).expect("an unambiguous connection");
        let ExpectedRequest { request, is_complete } = &expected[&1];
        assert_eq!((request.target.as_str(), request.body.as_slice()), ("/a", &b"abc"[..]));
        assert!(is_complete);
    }

    #[test]
    fn ambiguous_frames_are_not_a_request() {
        let base = get(HOST, "/a");
        for odd in [("transfer-encoding", "chunked"), ("x-a", "b\r\nc"), (":path", "/b"), ("host", "evil")] {
            let frame = Frame::headers(1, &[&base[..], &[odd]].concat(), END_STREAM);
            assert!(
                expected_requests(&connection(&[frame])).expect("an unambiguous connection").is_empty(),
                "{odd:?}"
            );
        }
        let short = Frame::headers(1, &[&base[..], &[("content-length", "5")]].concat(), END_STREAM);
        assert!(
            !expected_requests(&connection(&[short])).expect("an unambiguous connection")[&1].is_complete
        );
    }
}
