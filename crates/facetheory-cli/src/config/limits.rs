//! `[limits]`: how much anybody may send, keep or open.

use serde::Serialize;

use super::print_size;
use super::section::Section;
use super::value::{bytes, number};

/// How much clients may send, how much the origin may answer, and how much is kept.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(crate) struct Limits {
    /// All header lines of a request together, in bytes; above it is 431.
    #[serde(serialize_with = "print_size")]
    pub(crate) header_bytes: u64,
    /// The header lines of a request; above it is 431.
    pub(crate) headers: u64,
    /// The target of a request, in bytes; above it is 414.
    #[serde(serialize_with = "print_size")]
    pub(crate) uri_bytes: u64,
    /// The body of a request, in bytes; above it is 413; 0 sets no limit.
    #[serde(serialize_with = "print_size")]
    pub(crate) body_bytes: u64,
    /// Connections of clients in all.
    pub(crate) connections: u64,
    /// Connections of one address.
    pub(crate) connections_per_address: u64,
    /// Pages that were never asked for before, in a second; above it requests are passed on, and nothing is kept.
    pub(crate) new_pages_per_second: u64,
    /// Pages of one address that differ by listed headers or cookies alone; above it nothing more is kept.
    pub(crate) variants_per_page: u64,
    /// The body of a page that is kept, in bytes; a longer one is sent to its visitor.
    #[serde(serialize_with = "print_size")]
    pub(crate) page_bytes: u64,
    /// The body of any answer of the origin, in bytes; a longer one breaks off there; 0 sets no limit.
    #[serde(serialize_with = "print_size")]
    pub(crate) origin_bytes: u64,
}

impl Default for Limits {
    fn default() -> Self {
        Limits {
            header_bytes: 16 << 10,
            headers: 100,
            uri_bytes: 8 << 10,
            body_bytes: 10 << 20,
            connections: 10_000,
            connections_per_address: 1024,
            new_pages_per_second: 500,
            variants_per_page: 64,
            page_bytes: 16 << 20,
            origin_bytes: 0,
        }
    }
}

impl Limits {
    /// What the table says.
    pub(crate) fn read(mut section: Section<'_>) -> Limits {
        /// More than any of these can be in the memory of a process.
        const MOST_BYTES: u64 = 1 << 40;
        /// More than a process can do or have at once.
        const MOST: u64 = 1_000_000;
        /// Where a request's head is held in memory, for every connection.
        const MOST_HEAD_BYTES: u64 = 1 << 20;
        /// The longest target that a request can have once it is parsed.
        const MOST_URI_BYTES: u64 = 65_534;
        let usual = Limits::default();
        let mut size = |key, least, most, usual| section.read(key, bytes(least, most)).unwrap_or(usual);
        let limits = Limits {
            header_bytes: size("header_bytes", 256, MOST_HEAD_BYTES, usual.header_bytes),
            uri_bytes: size("uri_bytes", 16, MOST_URI_BYTES, usual.uri_bytes),
            body_bytes: size("body_bytes", 0, MOST_BYTES, usual.body_bytes),
            page_bytes: size("page_bytes", 1, MOST_BYTES, usual.page_bytes),
            origin_bytes: size("origin_bytes", 0, MOST_BYTES, usual.origin_bytes),
            ..usual
        };
        let mut count = |key, usual| section.read(key, number(1, MOST)).unwrap_or(usual);
        let limits = Limits {
            connections: count("connections", limits.connections),
            connections_per_address: count("connections_per_address", limits.connections_per_address),
            new_pages_per_second: count("new_pages_per_second", limits.new_pages_per_second),
            variants_per_page: count("variants_per_page", limits.variants_per_page),
            headers: section.read("headers", number(1, 1000)).unwrap_or(limits.headers),
            ..limits
        };
        section.finish();
        limits
    }
}
