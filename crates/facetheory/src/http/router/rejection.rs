//! Requests that are refused before anything is looked up.

use http::StatusCode;

/// Why a request is refused, for the visitor to read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Rejection {
    pub(crate) status: StatusCode,
    pub(crate) text: String,
}

impl Rejection {
    /// The request is wrong: 400.
    pub(crate) fn bad(text: impl Into<String>) -> Self {
        Rejection { status: StatusCode::BAD_REQUEST, text: text.into() }
    }
}
