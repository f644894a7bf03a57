//! `[limits]`: sizes and counts.

use serde::Serialize;

use super::section::Section;
use super::units::serialize_size;
use super::value::{bytes, number};

/// Limits on requests, responses, connections and cached pages.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(crate) struct Limits {
    /// The total size of a request's header lines; a larger head gets 431.
    #[serde(serialize_with = "serialize_size")]
    pub(crate) header_bytes: u64,
    /// The number of header lines of a request; more get 431.
    pub(crate) headers: u64,
    /// The length of a request target; a longer one gets 414.
    #[serde(serialize_with = "serialize_size")]
    pub(crate) uri_bytes: u64,
    /// The size of a request body; a larger one gets 413. 0 means unlimited.
    #[serde(serialize_with = "serialize_size")]
    pub(crate) body_bytes: u64,
    /// Client connections in total.
    pub(crate) connections: u64,
    /// Client connections from one address.
    pub(crate) connections_per_address: u64,
    /// Pages requested for the first time per second. Requests above the limit are passed through without caching.
    pub(crate) new_pages_per_second: u64,
    /// Cached variants of one page. Further variants are passed through without caching.
    pub(crate) variants_per_page: u64,
    /// The body size of a cached page. A larger response is passed through without caching.
    #[serde(serialize_with = "serialize_size")]
    pub(crate) page_bytes: u64,
    /// The body size of any response of the origin. A larger response is cut off. 0 means unlimited.
    #[serde(serialize_with = "serialize_size")]
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
    pub(crate) fn read(mut section: Section<'_>) -> Limits {
        const MAX_BYTES: u64 = 1 << 40;
        const MAX_COUNT: u64 = 1_000_000;
        /// The head of a request is buffered for every connection.
        const MAX_HEAD_BYTES: u64 = 1 << 20;
        /// `http::Uri` accepts no longer target.
        const MAX_URI_BYTES: u64 = 65_534;
        let mut limits = Limits::default();
        section.set("header_bytes", &mut limits.header_bytes, bytes(256, MAX_HEAD_BYTES));
        section.set("headers", &mut limits.headers, number(1, 1000));
        section.set("uri_bytes", &mut limits.uri_bytes, bytes(16, MAX_URI_BYTES));
        section.set("body_bytes", &mut limits.body_bytes, bytes(0, MAX_BYTES));
        section.set("page_bytes", &mut limits.page_bytes, bytes(1, MAX_BYTES));
        section.set("origin_bytes", &mut limits.origin_bytes, bytes(0, MAX_BYTES));
        for (key, limit) in [
            ("connections", &mut limits.connections),
            ("connections_per_address", &mut limits.connections_per_address),
            ("new_pages_per_second", &mut limits.new_pages_per_second),
            ("variants_per_page", &mut limits.variants_per_page),
        ] {
            section.set(key, limit, number(1, MAX_COUNT));
        }
        section.finish();
        limits
    }
}
