//! Responses of the gateway itself: rejections, and failures of the origin.

use std::error::Error as StdError;
use std::io;
use std::sync::Arc;

use http::header::{ALLOW, CACHE_CONTROL, CONTENT_TYPE, HeaderValue, RETRY_AFTER};
use http::{Extensions, Response, StatusCode};
use hyper_util::client::legacy::Error;

use super::body::rejection_in;
use super::client::Client;
use super::upstream_io::UpstreamState;
use crate::log::ResponseReason;
use crate::wire::Rejection;

/// Why the origin sent no response.
#[derive(Debug)]
pub(crate) enum Failure {
    /// The request was not sent, because the origin is down.
    Down,
    Unreachable(Error),
    Broken(Error),
    Timeout,
    /// The origin switched protocols without an upgrade request of the client.
    UnrequestedUpgrade,
    /// The client's request is invalid, or its body failed.
    Request(Option<Rejection>),
}

impl Failure {
    /// Classifies the error of a request that was sent for this client.
    pub(crate) fn from_error(error: Error, client: Option<&Client>) -> Self {
        if error.is_connect() {
            Failure::Unreachable(error)
        } else if has_cause(&error, hyper::Error::is_user) {
            // The request body failed.
            Failure::of_request(client, &error)
        } else if has_cause(&error, |cause: &io::Error| cause.kind() == io::ErrorKind::TimedOut) {
            Failure::Timeout
        } else {
            Failure::Broken(error)
        }
    }

    /// The failure of a request body: as the wire has found, or the body itself.
    pub(crate) fn of_request(client: Option<&Client>, error: &(dyn StdError + 'static)) -> Self {
        let rejection = client.and_then(|client| client.http1_state.as_ref()?.rejection());
        Failure::Request(rejection.or_else(|| rejection_in(error)))
    }

    /// Whether the origin may have closed the connection before it saw the request.
    pub(crate) fn may_have_closed_before_request(&self) -> bool {
        let Failure::Broken(error) = self else { return false };
        let mut extras = Extensions::new();
        if let Some(connected) = error.connect_info() {
            connected.get_extras(&mut extras);
        }
        extras.get::<Arc<UpstreamState>>().is_some_and(|state| state.may_have_closed_before_request())
    }

    /// Logs the failure, and makes the response to the client.
    pub(crate) fn into_response(self) -> Response<String> {
        let rejection = self.rejection();
        match &self {
            Failure::Unreachable(error) | Failure::Broken(error) => {
                tracing::warn!(error = describe(error), "{}", rejection.text);
            }
            Failure::Timeout | Failure::UnrequestedUpgrade => tracing::warn!("{}", rejection.text),
            Failure::Down | Failure::Request(_) => tracing::debug!("{}", rejection.text),
        }
        let mut response = local_response(rejection);
        if !matches!(self, Failure::UnrequestedUpgrade | Failure::Request(_)) {
            response.extensions_mut().insert(facetheory::OriginUnreachable);
        }
        if matches!(self, Failure::Down) {
            response.headers_mut().insert(RETRY_AFTER, HeaderValue::from_static("1"));
        }
        response
    }

    /// The status and text for the client. The text does not name the cause, which may reveal internals.
    fn rejection(&self) -> Rejection {
        let (status, text) = match self {
            Failure::Down => (StatusCode::SERVICE_UNAVAILABLE, "the origin is down; try again soon"),
            Failure::Unreachable(_) => (StatusCode::BAD_GATEWAY, "the origin is unreachable"),
            Failure::Broken(_) => (StatusCode::BAD_GATEWAY, "the origin sent no valid response"),
            Failure::UnrequestedUpgrade => {
                (StatusCode::BAD_GATEWAY, "the origin switched protocols without an upgrade request")
            }
            Failure::Timeout => (StatusCode::GATEWAY_TIMEOUT, "the origin did not respond in time"),
            Failure::Request(Some(rejection)) => return *rejection,
            Failure::Request(None) => (StatusCode::BAD_REQUEST, "the request is invalid or incomplete"),
        };
        Rejection::new(status, text)
    }
}

/// An error and its causes.
pub(crate) fn causes<'a>(
    error: &'a (dyn StdError + 'static),
) -> impl Iterator<Item = &'a (dyn StdError + 'static)> {
    std::iter::successors(Some(error), |&error| error.source())
}

/// An error and its causes, in one line.
pub(crate) fn describe(error: &(dyn StdError + 'static)) -> String {
    causes(error).map(ToString::to_string).collect::<Vec<_>>().join(": ")
}

fn has_cause<E: StdError + 'static>(error: &Error, matches: impl Fn(&E) -> bool) -> bool {
    causes(error).filter_map(|cause| cause.downcast_ref()).any(matches)
}

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
