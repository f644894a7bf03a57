//! Requests that are rejected before anything is looked up.

use http::StatusCode;

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
