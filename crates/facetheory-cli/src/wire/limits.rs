//! How much of a request is accepted.

/// The sizes beyond which a request is refused.
///
/// hyper has limits of its own, which must not be lower: its `max_headers` has to be at least `headers`, and its
/// `max_buf_size` at least `head_bytes`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct RequestLimits {
    /// Of a request's head, from the first byte of its request line to its empty line; and of its trailers.
    pub(crate) head_bytes: usize,
    /// How many header lines a head has, and how many lines trailers have.
    pub(crate) headers: usize,
    /// Of the target in the request line.
    pub(crate) target_bytes: usize,
    /// Of a body, without what frames it.
    pub(crate) body_bytes: u64,
}

impl Default for RequestLimits {
    fn default() -> Self {
        RequestLimits {
            head_bytes: 16 * 1024,
            headers: 100,
            target_bytes: 8 * 1024,
            body_bytes: 10 * 1024 * 1024,
        }
    }
}
