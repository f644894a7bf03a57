//! An HTTP/2 client that sends frames one by one, so that any of them can be malformed.

use std::net::SocketAddr;

use super::client::Connection;

/// A connection on which frames are sent.
pub(crate) struct Http2 {
    connection: Connection,
}

/// One frame.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Frame {
    /// Its type: one of the constants below.
    pub(crate) kind: u8,
    /// Its flags.
    pub(crate) flags: u8,
    /// Its stream; 0 for the connection.
    pub(crate) stream: u32,
    /// Its payload.
    pub(crate) payload: Vec<u8>,
}

/// How a stream ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Outcome {
    /// With a response.
    Response { status: u16 },
    /// With a reset.
    Reset { code: u32 },
    /// The connection was closed, with the error code of GOAWAY if there was one.
    Closed { code: Option<u32> },
}

pub(crate) const DATA: u8 = 0;
pub(crate) const HEADERS: u8 = 1;
pub(crate) const RST_STREAM: u8 = 3;
pub(crate) const SETTINGS: u8 = 4;
pub(crate) const PING: u8 = 6;
pub(crate) const GOAWAY: u8 = 7;
pub(crate) const WINDOW_UPDATE: u8 = 8;
pub(crate) const CONTINUATION: u8 = 9;

pub(crate) const END_STREAM: u8 = 1;
pub(crate) const END_HEADERS: u8 = 4;

/// NO_ERROR: a graceful close.
pub(crate) const NO_ERROR: u32 = 0;
/// PROTOCOL_ERROR: a malformed frame.
pub(crate) const PROTOCOL_ERROR: u32 = 1;
/// CANCEL: a stream that is no longer needed.
pub(crate) const CANCEL: u32 = 8;

/// The connection preface.
pub(crate) const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
const ACK: u8 = 1;
/// SETTINGS_HEADER_TABLE_SIZE = 0, so that every header block can be decoded by itself.
const HEADER_TABLE_SIZE: [u8; 6] = [0, 1, 0, 0, 0, 0];
/// SETTINGS_INITIAL_WINDOW_SIZE = 0.
const ZERO_WINDOW: [u8; 6] = [0, 4, 0, 0, 0, 0];

impl Http2 {
    /// Connects, and sends the preface and the settings.
    pub(crate) fn open(address: SocketAddr) -> Http2 {
        Http2::open_with(address, &HEADER_TABLE_SIZE)
    }

    /// Connects as a client whose streams have a window of 0 until it sends an update.
    pub(crate) fn open_with_zero_window(address: SocketAddr) -> Http2 {
        Http2::open_with(address, &[HEADER_TABLE_SIZE, ZERO_WINDOW].concat())
    }

    fn open_with(address: SocketAddr, settings: &[u8]) -> Http2 {
        let mut connection = Connection::open(address);
        connection.send(PREFACE);
        let mut http2 = Http2 { connection };
        http2.send(&Frame { kind: SETTINGS, flags: 0, stream: 0, payload: settings.to_vec() });
        http2
    }

    /// Sends a frame. Returns false once the server has closed the connection.
    pub(crate) fn send(&mut self, frame: &Frame) -> bool {
        self.connection.send(frame.bytes())
    }

    /// Sends several frames with one write. Returns false once the server has closed the connection.
    pub(crate) fn send_all(&mut self, frames: &[Frame]) -> bool {
        self.connection.send(frames.iter().flat_map(Frame::bytes).collect::<Vec<u8>>())
    }

    /// Sends the bytes of this frame one by one, again and again with pauses, in the background.
    pub(crate) fn trickle(&self, frame: &Frame) {
        self.connection.trickle(frame.bytes());
    }

    /// The next frame; `None` once the connection has closed. Acknowledges settings.
    pub(crate) fn next(&mut self) -> Option<Frame> {
        let head = self.connection.bytes(9);
        let [a, b, c, kind, flags, stream @ ..] = head.as_slice() else { return None };
        let length = u32::from_be_bytes([0, *a, *b, *c]) as usize;
        let stream = u32::from_be_bytes(stream.try_into().ok()?);
        let payload = self.connection.bytes(length);
        let frame = Frame { kind: *kind, flags: *flags, stream, payload };
        if frame.kind == SETTINGS && frame.flags & ACK == 0 {
            self.send(&Frame { kind: SETTINGS, flags: ACK, stream: 0, payload: Vec::new() });
        }
        (frame.payload.len() == length).then_some(frame)
    }

    /// Sends a PING and waits for its acknowledgement; `None` if the server closes the connection instead.
    pub(crate) fn ping(&mut self) -> Option<()> {
        self.send(&Frame { kind: PING, flags: 0, stream: 0, payload: vec![0; 8] });
        while self.next()?.kind != PING {}
        Some(())
    }

    /// Waits until a stream has ended.
    pub(crate) fn outcome(&mut self, stream: u32) -> Outcome {
        let mut status = None;
        let mut goaway = None;
        while let Some(frame) = self.next() {
            match frame.kind {
                GOAWAY => goaway = frame.number_at(4),
                RST_STREAM if frame.stream == stream => {
                    return Outcome::Reset { code: frame.number_at(0).expect("an error code") };
                }
                HEADERS if frame.stream == stream => status = status.or(Some(status_in(&frame.payload))),
                _ => {}
            }
            let ends = matches!(frame.kind, HEADERS | DATA) && frame.flags & END_STREAM != 0;
            if let (Some(status), true) = (status, ends && frame.stream == stream) {
                return Outcome::Response { status };
            }
        }
        Outcome::Closed { code: goaway }
    }

    /// Reads the response body of a stream to its end.
    pub(crate) fn body(&mut self, stream: u32) -> Vec<u8> {
        let mut body = Vec::new();
        while let Some(frame) = self.next() {
            if frame.stream == stream && frame.kind == DATA {
                body.extend_from_slice(&frame.payload);
            }
            if frame.stream == stream && (frame.kind == RST_STREAM || frame.flags & END_STREAM != 0) {
                break;
            }
        }
        body
    }

    /// Waits until the connection closes. Returns the error code of GOAWAY, if there was one.
    pub(crate) fn closed(&mut self) -> Option<u32> {
        let mut goaway = None;
        while let Some(frame) = self.next() {
            if frame.kind == GOAWAY {
                goaway = frame.number_at(4);
            }
        }
        goaway
    }
}

impl Frame {
    /// A complete HEADERS frame.
    pub(crate) fn headers(stream: u32, fields: &[(&str, &str)], flags: u8) -> Frame {
        Frame { kind: HEADERS, flags: flags | END_HEADERS, stream, payload: block(fields) }
    }

    /// Headers split over as many frames as they need.
    pub(crate) fn split_headers(stream: u32, fields: &[(&str, &str)], flags: u8) -> Vec<Frame> {
        /// The default SETTINGS_MAX_FRAME_SIZE.
        const MAX_FRAME_BYTES: usize = 16_384;
        let block = block(fields);
        let mut frames: Vec<Frame> = block
            .chunks(MAX_FRAME_BYTES)
            .map(|piece| Frame::continuation(stream, piece.to_vec(), 0))
            .collect();
        if let Some(first) = frames.first_mut() {
            (first.kind, first.flags) = (HEADERS, flags);
        }
        if let Some(last) = frames.last_mut() {
            last.flags |= END_HEADERS;
        }
        frames
    }

    /// A complete GET request.
    pub(crate) fn get(stream: u32, authority: &str, path: &str) -> Frame {
        Frame::headers(stream, &get(authority, path), END_STREAM)
    }

    /// A DATA frame.
    pub(crate) fn data(stream: u32, bytes: &[u8], flags: u8) -> Frame {
        Frame { kind: DATA, flags, stream, payload: bytes.to_vec() }
    }

    /// A RST_STREAM frame with CANCEL.
    pub(crate) fn reset(stream: u32) -> Frame {
        Frame { kind: RST_STREAM, flags: 0, stream, payload: CANCEL.to_be_bytes().to_vec() }
    }

    /// A WINDOW_UPDATE frame.
    pub(crate) fn window_update(stream: u32, bytes: u32) -> Frame {
        Frame { kind: WINDOW_UPDATE, flags: 0, stream, payload: bytes.to_be_bytes().to_vec() }
    }

    /// A CONTINUATION frame.
    pub(crate) fn continuation(stream: u32, payload: Vec<u8>, flags: u8) -> Frame {
        Frame { kind: CONTINUATION, flags, stream, payload }
    }

    /// The encoded frame.
    pub(crate) fn bytes(&self) -> Vec<u8> {
        let length = u32::try_from(self.payload.len()).expect("a length").to_be_bytes();
        let mut bytes = vec![length[1], length[2], length[3], self.kind, self.flags];
        bytes.extend_from_slice(&self.stream.to_be_bytes());
        bytes.extend_from_slice(&self.payload);
        bytes
    }

    fn number_at(&self, at: usize) -> Option<u32> {
        Some(u32::from_be_bytes(self.payload.get(at..at + 4)?.try_into().ok()?))
    }
}

/// The header fields of a GET.
pub(crate) fn get<'a>(authority: &'a str, path: &'a str) -> [(&'a str, &'a str); 4] {
    [(":method", "GET"), (":scheme", "http"), (":authority", authority), (":path", path)]
}

/// The fields of a POST.
pub(crate) fn post<'a>(authority: &'a str, path: &'a str) -> [(&'a str, &'a str); 4] {
    let [_, rest @ ..] = get(authority, path);
    let [scheme, authority, path] = rest;
    [(":method", "POST"), scheme, authority, path]
}

/// A header block of literal fields without indexing.
pub(crate) fn block(fields: &[(&str, &str)]) -> Vec<u8> {
    let mut block = Vec::new();
    for (name, value) in fields {
        block.push(0);
        for text in [name, value] {
            push_length(&mut block, text.len());
            block.extend_from_slice(text.as_bytes());
        }
    }
    block
}

/// Appends an HPACK integer with a prefix of seven bits.
fn push_length(block: &mut Vec<u8>, length: usize) {
    const PREFIX: usize = 127;
    let low = |number: usize| u8::try_from(number).expect("less than a byte");
    let Some(mut rest) = length.checked_sub(PREFIX) else { return block.push(low(length)) };
    block.push(low(PREFIX));
    while rest >= 128 {
        block.push(low(rest % 128) | 128);
        rest /= 128;
    }
    block.push(low(rest));
}

/// The status in a header block; every server puts it first.
fn status_in(block: &[u8]) -> u16 {
    let mut rest = block;
    // Table size updates.
    while let [first, after @ ..] = rest
        && first & 0xe0 == 0x20
    {
        rest = after;
    }
    match rest {
        [indexed @ 0x88..=0x8e, ..] => [200, 204, 206, 304, 400, 404, 500][usize::from(indexed - 0x88)],
        [0x08 | 0x18 | 0x48, length, text @ ..] => {
            let text = &text[..usize::from(length & 127)];
            let digits = if length & 128 == 0 { text.to_vec() } else { decoded_digits(text) };
            String::from_utf8_lossy(&digits).parse().expect("a status")
        }
        _ => panic!("the block does not start with a status: {block:02x?}"),
    }
}

/// Decodes digits in the Huffman code of HPACK: `0`, `1` and `2` have five bits, the others six.
fn decoded_digits(coded: &[u8]) -> Vec<u8> {
    let bits: Vec<u8> = coded.iter().flat_map(|byte| (0..8).rev().map(move |bit| byte >> bit & 1)).collect();
    let number = |bits: &[u8]| bits.iter().fold(0, |number, bit| number * 2 + bit);
    let mut digits = Vec::new();
    let mut rest = bits.as_slice();
    while rest.len() >= 5 {
        let (digit, length) = match number(&rest[..5]) {
            short @ 0..=2 => (short, 5),
            _ if rest.len() < 6 => break,
            _ => match number(&rest[..6]) {
                long @ 25..=31 => (long - 25 + 3, 6),
                _ => break,
            },
        };
        digits.push(b'0' + digit);
        rest = &rest[length..];
    }
    digits
}
