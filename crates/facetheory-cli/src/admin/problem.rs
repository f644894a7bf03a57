//! Error responses as problem details (RFC 9457).

use std::collections::BTreeMap;

use axum::response::{IntoResponse, Response};
use facetheory::Kind;
use http::StatusCode;
use http::header::{CONTENT_TYPE, HeaderValue, RETRY_AFTER, WWW_AUTHENTICATE};
use serde::Serialize;
use utoipa::openapi::{self, RefOr};
use utoipa::{IntoResponses, ToSchema};

/// A kind of problem: its identifier, which never changes, its title and its HTTP status.
pub(super) struct ProblemType(&'static str, &'static str, u16);

pub(super) const BAD_REQUEST: ProblemType = ProblemType("bad-request", "Invalid request", 400);
pub(super) const UNAUTHORIZED: ProblemType = ProblemType("unauthorized", "Missing or wrong token", 401);
pub(super) const FORBIDDEN: ProblemType = ProblemType("forbidden", "Cross-site request rejected", 403);
pub(super) const NOT_FOUND: ProblemType = ProblemType("not-found", "Not found", 404);
pub(super) const WRONG_METHOD: ProblemType = ProblemType("wrong-method", "Method not allowed", 405);
pub(super) const IN_PROGRESS: ProblemType = ProblemType("in-progress", "Regeneration in progress", 409);
pub(super) const TOO_LONG: ProblemType = ProblemType("too-long", "Body too large", 413);
pub(super) const NOT_JSON: ProblemType = ProblemType("not-json", "Body is not JSON", 415);
pub(super) const OTHER_REQUEST: ProblemType =
    ProblemType("other-request", "Idempotency key already used", 422);
const CORRUPT: ProblemType = ProblemType("corrupt", "Stored data is damaged", 500);
pub(super) const NOT_RENDERED: ProblemType = ProblemType("not-rendered", "Page not rendered", 502);
const UNAVAILABLE: ProblemType = ProblemType("unavailable", "Store unavailable", 503);
const UNKNOWN: ProblemType = ProblemType("unknown", "Outcome unknown", 503);
pub(super) const LATE: ProblemType = ProblemType("late", "Timeout", 504);

/// An error response.
#[derive(Clone, Debug, Serialize, ToSchema)]
pub(crate) struct Problem {
    /// The kind of problem, as an identifier that does not change.
    #[serde(rename = "type")]
    #[schema(example = "urn:facetheory:problem:in-progress")]
    kind: String,
    /// The kind in words.
    title: &'static str,
    /// The HTTP status.
    status: u16,
    /// The cause of this problem, and what to do.
    detail: String,
    /// The value of `Retry-After`, in seconds.
    #[serde(skip)]
    #[schema(ignore)]
    retry_after: Option<i64>,
}

/// Error responses that every operation may return.
impl IntoResponses for Problem {
    fn responses() -> BTreeMap<String, RefOr<openapi::Response>> {
        let response = |(status, description): (&str, &str)| {
            let content = openapi::Content::new(Some(openapi::Ref::from_schema_name("Problem")));
            let response = openapi::ResponseBuilder::new().description(description);
            (status.to_owned(), response.content("application/problem+json", content).build().into())
        };
        [("4XX", "The request is invalid"), ("5XX", "The request failed")].map(response).into()
    }
}

impl Problem {
    pub(super) fn new(problem: &ProblemType, detail: impl Into<String>) -> Self {
        let ProblemType(name, title, status) = *problem;
        let kind = format!("urn:facetheory:problem:{name}");
        Problem { kind, title, status, detail: detail.into(), retry_after: None }
    }

    /// The cause of this problem, and what to do.
    pub(crate) fn detail(&self) -> &str {
        &self.detail
    }

    pub(super) fn bad_request(detail: impl Into<String>) -> Self {
        Problem::new(&BAD_REQUEST, detail)
    }

    pub(super) fn not_found(detail: impl Into<String>) -> Self {
        Problem::new(&NOT_FOUND, detail)
    }

    /// Another request holds the page; the client should retry after some seconds.
    pub(super) fn in_progress(detail: impl Into<String>, retry_after: i64) -> Self {
        Problem { retry_after: Some(retry_after.max(1)), ..Problem::new(&IN_PROGRESS, detail) }
    }
}

impl From<facetheory::Error> for Problem {
    fn from(error: facetheory::Error) -> Self {
        let mut detail = error.to_string();
        let problem = match error.kind() {
            Kind::Invalid => &BAD_REQUEST,
            Kind::Render => {
                if let Some(cause) = std::error::Error::source(&error) {
                    detail = format!("{detail}: {cause}");
                }
                &NOT_RENDERED
            }
            Kind::Unavailable => {
                detail.push_str("; try again later");
                &UNAVAILABLE
            }
            Kind::Unknown => {
                detail.push_str("; check the page before you repeat the request");
                &UNKNOWN
            }
            _ => &CORRUPT,
        };
        Problem::new(problem, detail)
    }
}

impl IntoResponse for Problem {
    fn into_response(self) -> Response {
        let status = StatusCode::from_u16(self.status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
        let text = serde_json::to_vec(&self).unwrap_or_default();
        let mut response = (status, text).into_response();
        let headers = response.headers_mut();
        headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/problem+json"));
        if let Some(seconds) = self.retry_after {
            headers.insert(RETRY_AFTER, HeaderValue::from(seconds));
        }
        if status == StatusCode::UNAUTHORIZED {
            headers.insert(WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"));
        }
        response
    }
}
