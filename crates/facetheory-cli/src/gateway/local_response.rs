//! Responses of the gateway itself: rejections and errors.

use http::header::{ALLOW, CACHE_CONTROL, CONTENT_LENGTH, CONTENT_TYPE, HeaderValue};
use http::{Response, StatusCode};

use crate::log::ResponseReason;
use crate::wire::Rejection;

/// A plain-text response that must not be cached.
pub(crate) fn local_response(Rejection { status, text }: Rejection) -> Response<String> {
    let mut response = Response::new(format!("{text}\n"));
    *response.status_mut() = status;
    response.extensions_mut().insert(ResponseReason { reason: text, rejected: None });
    let headers = response.headers_mut();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static("text/plain; charset=utf-8"));
    headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
    if matches!(status, StatusCode::METHOD_NOT_ALLOWED | StatusCode::OK) {
        headers.insert(ALLOW, HeaderValue::from_static("GET, HEAD, POST, PUT, PATCH, DELETE, OPTIONS"));
    }
    response
}

/// Removes the body of the response to a HEAD request: over HTTP/2, hyper would send it.
pub(crate) fn without_body(mut response: Response<String>) -> Response<String> {
    let length = response.body().len().into();
    response.headers_mut().insert(CONTENT_LENGTH, length);
    response.map(|_| String::new())
}
