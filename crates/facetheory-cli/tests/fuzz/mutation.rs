//! What becomes of bytes by accident, or by somebody's intent.

use crate::dice::Dice;

/// What is put where it does not belong.
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
/// The longest piece that is moved, doubled or lost.
const PIECE: usize = 64;
/// Bytes that mean something.
const BYTES: [u8; 12] = [0, b'\t', b'\n', b'\r', b' ', b'0', b':', b',', b'/', 0x7f, 0x80, 0xff];

/// Changes bytes in a few places. Some come from another connection.
pub(crate) fn mutate(dice: &mut Dice, bytes: &mut Vec<u8>, other: &[u8]) {
    for _ in 0..dice.one(&[1, 1, 1, 2, 3, 8]) {
        once(dice, bytes, other);
    }
}

fn once(dice: &mut Dice, bytes: &mut Vec<u8>, other: &[u8]) {
    if bytes.is_empty() {
        return bytes.extend_from_slice(other);
    }
    let at = place(dice, bytes);
    let end = (at + 1 + dice.below(PIECE)).min(bytes.len());
    match dice.below(10) {
        0 => bytes[at] ^= 1 << dice.below(8),
        1 => bytes[at] = dice.one(&BYTES),
        2 | 3 => insert(bytes, at, dice.one(&WORDS).as_bytes()),
        4 => drop(bytes.drain(at..end)),
        5 => {
            let piece = bytes[at..end].to_vec();
            insert(bytes, at, &piece);
        }
        6 => {
            let piece: Vec<u8> = bytes.drain(at..end).collect();
            let to = dice.below(bytes.len() + 1);
            insert(bytes, to, &piece);
        }
        7 if dice.percent(30) => bytes.truncate(at),
        8 if !other.is_empty() => {
            let from = dice.below(other.len());
            let to = (from + 1 + dice.below(4 * PIECE)).min(other.len());
            insert(bytes, at, &other[from..to]);
        }
        _ => tamper(dice, bytes),
    }
}

/// Changes a digit, of which lengths, sizes and versions are made.
fn tamper(dice: &mut Dice, bytes: &mut [u8]) {
    let digits: Vec<usize> = (0..bytes.len()).filter(|at| bytes[*at].is_ascii_hexdigit()).collect();
    if !digits.is_empty() {
        bytes[digits[dice.below(digits.len())]] = dice.one(b"0123456789af");
    }
}

/// Any place, and often one where a line ends.
fn place(dice: &mut Dice, bytes: &[u8]) -> usize {
    let any = dice.below(bytes.len());
    if dice.percent(50) {
        return any;
    }
    bytes[any..].iter().position(|byte| *byte == b'\r').map_or(any, |found| any + found)
}

fn insert(bytes: &mut Vec<u8>, at: usize, piece: &[u8]) {
    bytes.splice(at..at, piece.iter().copied());
}
