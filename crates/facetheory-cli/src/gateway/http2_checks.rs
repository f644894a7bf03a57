//! Checks of requests that arrive over HTTP/2. HTTP/1 requests are checked by [`wire`](crate::wire).

use std::time::Duration;

use bytes::Bytes;
use http::header::{CONTENT_LENGTH, COOKIE};
use http::uri::PathAndQuery;
use http::{HeaderMap, Method, Request};
use http_body::Body;
use http_body_util::BodyExt as _;
use hyper::body::Incoming;

use crate::wire::RequestLimits;
use crate::wire::rejection::{
    BODY_NOT_ALLOWED, BODY_TIMEOUT, BODY_TOO_LARGE, DUPLICATE_LENGTH, Rejection, TARGET_TOO_LONG,
    TOO_MANY_HEADERS,
};

/// The outcome of a check.
pub(crate) type CheckResult = Result<(), Rejection>;

/// Checks all of a request but its body.
pub(crate) fn check_head<B: Body>(request: &Request<B>, limits: &RequestLimits) -> CheckResult {
    let (uri, headers) = (request.uri(), request.headers());
    let target = uri.path_and_query().map_or("", PathAndQuery::as_str);
    let is_server_wide = request.method() == Method::OPTIONS && target == "*";
    if !target.starts_with('/') && !is_server_wide {
        Err(Rejection::bad("invalid :path"))
    } else if uri.authority().is_none() && !is_server_wide {
        // Required by RFC 9113 §8.3.1. For some malformed requests, h2 returns neither the authority nor the path.
        Err(Rejection::bad("missing :authority"))
    } else if headers.get_all(CONTENT_LENGTH).iter().nth(1).is_some() {
        Err(DUPLICATE_LENGTH)
    } else if target.len() > limits.uri_bytes {
        Err(TARGET_TOO_LONG)
    } else if headers.len() > limits.headers && header_count(headers) > limits.headers {
        Err(TOO_MANY_HEADERS)
    } else if request.body().size_hint().lower() > limits.body_bytes {
        Err(BODY_TOO_LARGE)
    } else {
        Ok(())
    }
}

/// Whether a request has a body that is not known to be empty, although its method does not allow one.
pub(crate) fn has_unexpected_body<B: Body>(request: &Request<B>) -> bool {
    matches!(*request.method(), Method::GET | Method::HEAD) && !request.body().is_end_stream()
}

/// Checks that a GET or HEAD request has no body. Over HTTP/2 that may be known only when the stream ends.
pub(crate) async fn check_body(request: &mut Request<Incoming>, timeout: Duration) -> CheckResult {
    if !has_unexpected_body(request) {
        return Ok(());
    }
    let body = request.body_mut();
    if body.size_hint().lower() > 0 {
        return Err(BODY_NOT_ALLOWED);
    }
    let ends_empty = async {
        while let Some(frame) = body.frame().await {
            if !frame.is_ok_and(|frame| frame.data_ref().is_none_or(Bytes::is_empty)) {
                return Err(BODY_NOT_ALLOWED);
            }
        }
        Ok(())
    };
    tokio::time::timeout(timeout, ends_empty).await.unwrap_or(Err(BODY_TIMEOUT))
}

/// The number of headers. Clients may split cookies into several lines (RFC 9113 §8.2.3), which count as one header.
fn header_count(headers: &HeaderMap) -> usize {
    let cookie_lines = headers.get_all(COOKIE).iter().count();
    headers.len() - cookie_lines.saturating_sub(1)
}
