//! `[limits]`: sizes and counts.

use facetheory::IsrLayer;

use super::section::table;
use super::units::serialize_size;
use super::value::{bytes, number};

const MAX_BYTES: u64 = 1 << 40;
const MAX_COUNT: u64 = 1_000_000;
/// The head of a request is buffered for every connection.
const MAX_HEAD_BYTES: u64 = 1 << 20;
/// `http::Uri` accepts no longer target.
const MAX_URI_BYTES: u64 = 65_534;

table! {
    /// Limits on requests, responses, connections and cached pages.
    Limits {
        /// The total size of a request's header lines; a larger head gets 431.
        header_bytes: u64 = 16 << 10, bytes(256, MAX_HEAD_BYTES), "serialize_size";
        /// The number of header lines of a request; more get 431.
        headers: u64 = 100, number(1, 1000);
        /// The length of a request target; a longer one gets 414.
        uri_bytes: u64 = 8 << 10, bytes(16, MAX_URI_BYTES), "serialize_size";
        /// The size of a request body; a larger one gets 413. 0 means unlimited.
        body_bytes: u64 = 10 << 20, bytes(0, MAX_BYTES), "serialize_size";
        /// The body size of a cached page. A larger response is passed through without caching.
        page_bytes: u64 = IsrLayer::MAX_PAGE_BYTES, bytes(1, MAX_BYTES), "serialize_size";
        /// The body size of any response of the origin. A larger response is cut off. 0 means unlimited.
        origin_bytes: u64 = 0, bytes(0, MAX_BYTES), "serialize_size";
        /// Client connections in total.
        connections: u64 = 10_000, number(1, MAX_COUNT);
        /// Client connections from one address.
        connections_per_address: u64 = 1024, number(1, MAX_COUNT);
        /// Pages requested for the first time per second. Requests above the limit are passed through without caching.
        new_pages_per_second: u64 = 500, number(1, MAX_COUNT);
        /// Cached variants of one page. Further variants are passed through without caching.
        variants_per_page: u64 = IsrLayer::VARIANTS_PER_PAGE as u64, number(1, MAX_COUNT);
    }
}
