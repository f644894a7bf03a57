//! Requests that are rejected before anything is looked up.

use http::StatusCode;

/// Marks a response by which an [`IsrLayer`](crate::IsrLayer) itself rejected a request, or reported that it could not be
/// served: in the extensions of the response.
///
/// ```
/// /// Whether the response is neither a page nor from the inner service.
/// fn is_own(response: &http::Response<facetheory::IsrBody>) -> bool {
///     response.extensions().get::<facetheory::Rejected>().is_some()
/// }
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rejected;

/// The status and the text of an error response.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Rejection {
    pub(crate) status: StatusCode,
    pub(crate) text: String,
}

impl Rejection {
    /// An invalid request: 400.
    pub(crate) fn bad(text: impl Into<String>) -> Self {
        Rejection { status: StatusCode::BAD_REQUEST, text: text.into() }
    }
}
