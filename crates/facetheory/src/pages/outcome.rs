//! The outcome of a regeneration.

use crate::protocol::{Generation, Meta};

/// The outcome of a regeneration.
///
/// ```
/// assert_ne!(facetheory::Outcome::Lost, facetheory::Outcome::Superseded);
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
#[must_use]
#[non_exhaustive]
pub enum Outcome {
    /// The render was published.
    Published(Generation),
    /// The body did not change: only times and headers of `META` were updated, and its pointer did not move.
    Unchanged(Meta),
    /// The page is fresh: another worker published it.
    AlreadyFresh(Meta),
    /// Another worker renders it.
    Held {
        /// Until when, in epoch seconds, unless the lease is refreshed.
        until: i64,
    },
    /// Another worker executes the same request.
    InProgress {
        /// Until when it counts as in progress, in epoch seconds, if that is known.
        until: Option<i64>,
    },
    /// The request was completed before.
    Replayed {
        /// The body that it produced, if its writer recorded one.
        s3_key: Option<String>,
    },
    /// The idempotency key was used for another request before, so this one was rejected.
    OtherRequest,
    /// The render must not be cached. The current page does not change.
    Declined,
    /// The render must not be cached, and the current page must not be served any more.
    Invalidated,
    /// The lease was lost during the render, so nothing was published.
    Lost,
    /// The response to the publish was lost, and the page has changed or was deleted since.
    Superseded,
}
