//! Size limits of requests.

/// The sizes beyond which a request is rejected.
///
/// hyper's own limits must not be lower: its `max_headers` must be at least `headers`, and its `max_buf_size` at least
/// `head_bytes`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct RequestLimits {
    /// The size of a head, from the request line to the empty line; also the size of trailers.
    pub(crate) head_bytes: usize,
    /// The number of header lines; also the number of trailer lines.
    pub(crate) headers: usize,
    /// The length of the target in the request line.
    pub(crate) target_bytes: usize,
    /// The size of a body, without chunk framing.
    pub(crate) body_bytes: u64,
}
