//! The codecs: Brotli, Zstandard and gzip, at levels for content that is compressed once and sent often.

use std::io::Write as _;

use super::{Codec, Coding};

const BROTLI_QUALITY: i32 = 5;
/// Base-2 logarithm of the Brotli window: the size of the body, within the limits that every decoder supports.
const BROTLI_WINDOW: (u32, u32) = (10, 22);
const ZSTD_LEVEL: i32 = 6;
const GZIP_LEVEL: u32 = 6;

pub(super) const CODECS: &[(Coding, Codec)] =
    &[(Coding::Brotli, brotli), (Coding::Zstd, zstd), (Coding::Gzip, gzip)];

// Writing to memory does not fail. If it did, the page would be sent uncompressed.

fn brotli(bytes: &[u8]) -> Option<Vec<u8>> {
    // The encoder allocates memory in proportion to the window, and most pages are small.
    let window = usize::BITS - bytes.len().leading_zeros();
    let parameters = brotli::enc::BrotliEncoderParams {
        quality: BROTLI_QUALITY,
        lgwin: window.clamp(BROTLI_WINDOW.0, BROTLI_WINDOW.1).cast_signed(),
        size_hint: bytes.len(),
        ..Default::default()
    };
    let mut compressed = Vec::new();
    brotli::BrotliCompress(&mut &*bytes, &mut compressed, &parameters).ok()?;
    Some(compressed)
}

fn zstd(bytes: &[u8]) -> Option<Vec<u8>> {
    zstd::bulk::compress(bytes, ZSTD_LEVEL).ok()
}

fn gzip(bytes: &[u8]) -> Option<Vec<u8>> {
    let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::new(GZIP_LEVEL));
    encoder.write_all(bytes).ok()?;
    encoder.finish().ok()
}
