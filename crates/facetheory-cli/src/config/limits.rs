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
/// More would not be in memory for long.
const MAX_UPLOAD_BUFFERS: u64 = 4 << 30;

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
        /// The least rate at which a client must read a response and send a request body. 0 means none.
        client_bytes_per_second: u64 = 1 << 10, bytes(0, MAX_BYTES), "serialize_size";
        /// Client connections in total.
        connections: u64 = 10_000, number(1, MAX_COUNT);
        /// Client connections from one address.
        connections_per_address: u64 = 1024, number(1, MAX_COUNT);
        /// Connections to the origin that are in use at the same time. Upgraded connections do not count.
        origin_connections: u64 = 256, number(1, MAX_COUNT);
        /// Requests that wait for a connection to the origin; more get 503, or a stale page where one may be served.
        origin_queue: u64 = 1024, number(0, MAX_COUNT);
        /// The memory for request bodies that are received before the origin is called.
        upload_buffers: u64 = 16 << 20, bytes(0, MAX_UPLOAD_BUFFERS), "serialize_size";
        /// Pages requested for the first time per second. Requests above the limit are passed through without caching.
        new_pages_per_second: u64 = 500, number(1, MAX_COUNT);
        /// Cached variants of one page. Beyond the limit, the least used one is evicted.
        variants_per_page: u64 = IsrLayer::VARIANTS_PER_PAGE as u64, number(1, MAX_COUNT);
        /// Regenerations of one fresh page that requests force per minute. Further directives of requests are ignored.
        forced_regenerations_per_page: u64 = IsrLayer::FORCED_PER_PAGE as u64, number(0, MAX_COUNT);
        /// Regenerations of fresh pages that one client address forces per minute.
        forced_regenerations_per_address: u64 = IsrLayer::FORCED_PER_CLIENT as u64, number(0, MAX_COUNT);
    }
}

impl Limits {
    /// How many pages are rendered in the background at the same time: at most a quarter of the connections to the origin,
    /// so that clients have the others.
    pub(crate) fn background_renders(&self) -> usize {
        const MOST: u64 = 64;
        usize::try_from((self.origin_connections / 4).clamp(1, MOST)).unwrap_or(1)
    }
}
