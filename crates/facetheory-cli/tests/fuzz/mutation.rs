//! Mutates bytes.

use crate::random::Random;

/// Words that are inserted at random places.
const WORDS: [&str; 24] = [
    "\r\n",
    "\n",
    "\r",
    "\0",
    " ",
    "\t",
    ":",
    ",",
    ";",
    "0\r\n\r\n",
    "\r\n\r\n",
    "Content-Length: 5\r\n",
    "Content-Length: 0\r\n",
    "Transfer-Encoding: chunked\r\n",
    "\r\nTransfer-Encoding: chunked",
    "Host: evil.example\r\n",
    "Connection: upgrade\r\nUpgrade: websocket\r\n",
    "GET /inserted HTTP/1.1\r\nHost: www.example.com\r\n\r\n",
    " HTTP/1.1",
    "HTTP/1.0",
    "\u{e9}",
    "chunked",
    "ffffffffffffffff",
    "_",
];
/// The longest piece that is moved, duplicated or removed.
const PIECE: usize = 64;
/// Bytes with a meaning in HTTP.
const BYTES: [u8; 12] = [0, b'\t', b'\n', b'\r', b' ', b'0', b':', b',', b'/', 0x7f, 0x80, 0xff];

/// Changes bytes in a few places, partly with bytes of another connection.
pub(crate) fn mutate(random: &mut Random, bytes: &mut Vec<u8>, other: &[u8]) {
    for _ in 0..random.one(&[1, 1, 1, 2, 3, 8]) {
        once(random, bytes, other);
    }
}

fn once(random: &mut Random, bytes: &mut Vec<u8>, other: &[u8]) {
    if bytes.is_empty() {
        return bytes.extend_from_slice(other);
    }
    let at = place(random, bytes);
    let end = (at + 1 + random.below(PIECE)).min(bytes.len());
    match random.below(10) {
        0 => bytes[at] ^= 1 << random.below(8),
        1 => bytes[at] = random.one(&BYTES),
        2 | 3 => insert(bytes, at, random.one(&WORDS).as_bytes()),
        4 => drop(bytes.drain(at..end)),
        5 => {
            let piece = bytes[at..end].to_vec();
            insert(bytes, at, &piece);
        }
        6 => {
            let piece: Vec<u8> = bytes.drain(at..end).collect();
            let to = random.below(bytes.len() + 1);
            insert(bytes, to, &piece);
        }
        7 if random.percent(30) => bytes.truncate(at),
        8 if !other.is_empty() => {
            let from = random.below(other.len());
            let to = (from + 1 + random.below(4 * PIECE)).min(other.len());
            insert(bytes, at, &other[from..to]);
        }
        _ => tamper(random, bytes),
    }
}

/// Changes a digit of a length, a size or a version.
fn tamper(random: &mut Random, bytes: &mut [u8]) {
    let digits: Vec<usize> = (0..bytes.len()).filter(|at| bytes[*at].is_ascii_hexdigit()).collect();
    if !digits.is_empty() {
        bytes[digits[random.below(digits.len())]] = random.one(b"0123456789af");
    }
}

/// A random position, often at the end of a line.
fn place(random: &mut Random, bytes: &[u8]) -> usize {
    let any = random.below(bytes.len());
    if random.percent(50) {
        return any;
    }
    bytes[any..].iter().position(|byte| *byte == b'\r').map_or(any, |found| any + found)
}

fn insert(bytes: &mut Vec<u8>, at: usize, piece: &[u8]) {
    bytes.splice(at..at, piece.iter().copied());
}
