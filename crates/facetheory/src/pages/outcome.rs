//! What came of a regeneration.

use crate::protocol::generation::Generation;
use crate::protocol::row::Meta;

/// How a regeneration ended.
///
/// ```
/// assert_ne!(facetheory::Outcome::Lost, facetheory::Outcome::Superseded);
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
#[must_use]
#[non_exhaustive]
pub enum Outcome {
    /// This render is what everyone is served now.
    Published(Generation),
    /// The body came out the same: only its times have moved, and the pointer is where it was.
    Unchanged(Meta),
    /// Somebody else was quicker.
    AlreadyFresh(Meta),
    /// Somebody else renders it.
    Held {
        /// Until when at most, in epoch seconds, unless it is prolonged.
        until: i64,
    },
    /// Somebody else works on the same request.
    InProgress {
        /// Until when it counts as worked on, in epoch seconds, where that is known.
        until: Option<i64>,
    },
    /// The request was done before.
    Replayed {
        /// The body that it produced, where its writer recorded one.
        s3_key: Option<String>,
    },
    /// The same idempotency key came with another request before, so this one was not even begun.
    OtherRequest,
    /// The renderer gave an answer that is not to be kept; what is served stays as it is.
    Declined,
    /// The same, and what was served may not be served any more.
    Invalidated,
    /// The lease was lost during the render, so nothing was published.
    Lost,
    /// The answer was lost, and the page has changed or vanished since.
    Superseded,
}
