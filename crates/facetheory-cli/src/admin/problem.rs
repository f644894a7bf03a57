//! What is wrong with a request, as RFC 9457 has it told.

use std::collections::BTreeMap;

use axum::response::{IntoResponse, Response};
use facetheory::Kind;
use http::StatusCode;
use http::header::{CONTENT_TYPE, HeaderValue, RETRY_AFTER, WWW_AUTHENTICATE};
use serde::Serialize;
use utoipa::openapi::{self, RefOr};
use utoipa::{IntoResponses, ToSchema};

/// What is wrong, and what to do about it.
#[derive(Clone, Debug, Serialize, ToSchema)]
pub(crate) struct Problem {
    /// What kind of problem it is, as an identifier that does not change.
    #[serde(rename = "type")]
    #[schema(example = "urn:facetheory:problem:in-progress")]
    kind: &'static str,
    /// The kind in words.
    title: &'static str,
    /// The HTTP status.
    status: u16,
    /// What is wrong with this request, and what to do about it.
    detail: String,
    /// In how many seconds it is worth another try.
    #[serde(skip)]
    #[schema(ignore)]
    retry_after: Option<i64>,
}

/// What any operation may answer besides what it is there for.
impl IntoResponses for Problem {
    fn responses() -> BTreeMap<String, RefOr<openapi::Response>> {
        let told = |(status, what): (&str, &str)| {
            let content = openapi::Content::new(Some(openapi::Ref::from_schema_name("Problem")));
            let response = openapi::ResponseBuilder::new().description(what);
            (status.to_owned(), response.content("application/problem+json", content).build().into())
        };
        [("4XX", "What is wrong"), ("5XX", "What does not work")].map(told).into()
    }
}

impl Problem {
    fn new(kind: &'static str, title: &'static str, status: StatusCode, detail: impl Into<String>) -> Self {
        Problem { kind, title, status: status.as_u16(), detail: detail.into(), retry_after: None }
    }

    /// The request is wrong, and will always be.
    pub(crate) fn bad(detail: impl Into<String>) -> Self {
        let status = StatusCode::BAD_REQUEST;
        Problem::new("urn:facetheory:problem:bad-request", "The request is wrong", status, detail)
    }

    /// Nobody knows who asks.
    pub(crate) fn unauthorized() -> Self {
        let detail = "this needs the admin token: send it as `Authorization: Bearer TOKEN`";
        let kind = "urn:facetheory:problem:unauthorized";
        Problem::new(kind, "The token is missing or wrong", StatusCode::UNAUTHORIZED, detail)
    }

    /// Whoever asks does so through somebody else's page.
    pub(crate) fn forbidden(detail: impl Into<String>) -> Self {
        let status = StatusCode::FORBIDDEN;
        Problem::new("urn:facetheory:problem:forbidden", "The request comes from elsewhere", status, detail)
    }

    /// What is asked for is not there.
    pub(crate) fn not_found(detail: impl Into<String>) -> Self {
        Problem::new("urn:facetheory:problem:not-found", "It is not there", StatusCode::NOT_FOUND, detail)
    }

    /// The address is right, the method is not.
    pub(crate) fn wrong_method() -> Self {
        let detail = "this address has other methods; see the Allow header, or /api/v1/openapi.json";
        let kind = "urn:facetheory:problem:wrong-method";
        Problem::new(kind, "The method is wrong", StatusCode::METHOD_NOT_ALLOWED, detail)
    }

    /// The body is of a type that is not read.
    pub(crate) fn not_json() -> Self {
        let detail = "send JSON, with `Content-Type: application/json`";
        let kind = "urn:facetheory:problem:not-json";
        Problem::new(kind, "The body is no JSON", StatusCode::UNSUPPORTED_MEDIA_TYPE, detail)
    }

    /// The body is longer than any that makes sense.
    pub(crate) fn too_long(limit: usize) -> Self {
        let detail = format!("the body is longer than {limit} bytes, or broke off");
        let kind = "urn:facetheory:problem:too-long";
        Problem::new(kind, "The body is too long", StatusCode::PAYLOAD_TOO_LARGE, detail)
    }

    /// Somebody else is at it; in so many seconds it is worth another try.
    pub(crate) fn in_progress(detail: impl Into<String>, seconds: i64) -> Self {
        let kind = "urn:facetheory:problem:in-progress";
        let mut problem = Problem::new(kind, "Somebody is at it", StatusCode::CONFLICT, detail);
        problem.retry_after = Some(seconds.max(1));
        problem
    }

    /// The idempotency key has stood for something else.
    pub(crate) fn other_request() -> Self {
        let detail = "this Idempotency-Key came with another request before, and nothing was done now; choose a new key";
        let kind = "urn:facetheory:problem:other-request";
        let title = "The idempotency key is taken";
        Problem::new(kind, title, StatusCode::UNPROCESSABLE_ENTITY, detail)
    }

    /// The origin has not given a page.
    pub(crate) fn not_rendered(detail: impl Into<String>) -> Self {
        let kind = "urn:facetheory:problem:not-rendered";
        Problem::new(kind, "The page was not rendered", StatusCode::BAD_GATEWAY, detail)
    }

    /// It took too long.
    pub(crate) fn late(detail: impl Into<String>) -> Self {
        let kind = "urn:facetheory:problem:late";
        Problem::new(kind, "It took too long", StatusCode::GATEWAY_TIMEOUT, detail)
    }
}

impl From<facetheory::Error> for Problem {
    fn from(error: facetheory::Error) -> Self {
        let mut detail = error.to_string();
        let (kind, title, status) = match error.kind() {
            Kind::Invalid => return Problem::bad(detail),
            Kind::Render => {
                if let Some(cause) = std::error::Error::source(&error) {
                    detail = format!("{detail}: {cause}");
                }
                return Problem::not_rendered(detail);
            }
            Kind::Unavailable => {
                let status = StatusCode::SERVICE_UNAVAILABLE;
                ("urn:facetheory:problem:unavailable", "A store cannot answer now; try again", status)
            }
            Kind::Unknown => {
                detail.push_str("; look at the page before you ask again");
                let status = StatusCode::SERVICE_UNAVAILABLE;
                ("urn:facetheory:problem:unknown", "Whether it was done is not known", status)
            }
            _ => {
                let status = StatusCode::INTERNAL_SERVER_ERROR;
                ("urn:facetheory:problem:corrupt", "What is stored is damaged", status)
            }
        };
        Problem::new(kind, title, status, detail)
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
