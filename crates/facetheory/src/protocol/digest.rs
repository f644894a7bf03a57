//! Hashes.

use sha2::{Digest as _, Sha256};

/// SHA-256 in lower-case hexadecimal.
pub(crate) fn sha256_hex(bytes: &[u8]) -> String {
    const DIGITS: &[u8; 16] = b"0123456789abcdef";
    let halves = |byte: &u8| [byte >> 4, byte & 15];
    Sha256::digest(bytes).iter().flat_map(halves).map(|half| char::from(DIGITS[usize::from(half)])).collect()
}
