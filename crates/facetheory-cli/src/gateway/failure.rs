//! Responses of the gateway itself: rejections, and failures of the origin.

use std::error::Error as StdError;
use std::io;

use http::header::{ALLOW, CACHE_CONTROL, CONTENT_TYPE, HeaderValue, RETRY_AFTER};
use http::{Response, StatusCode};
use rustix::io::Errno;

use super::body::{BodyError, rejection_in};
use super::client::Client;
use super::connection_queue::Busy;
use super::origin_pool::SendError;
use crate::log::ResponseReason;
use crate::wire::Rejection;

/// The codes of errors of this machine that have no `io::ErrorKind`: no file descriptor is free (`EMFILE` in this process,
/// `ENFILE` on the machine), or no memory for a socket (`ENOBUFS`).
const LOCAL_ERRORS: [Errno; 3] = [Errno::MFILE, Errno::NFILE, Errno::NOBUFS];

/// Why the origin sent no response.
#[derive(Debug)]
pub(crate) enum Failure {
    /// The request was not sent, because the origin is down.
    Down,
    /// The request was not sent, because all connections to the origin are in use.
    Busy(Busy),
    Unreachable(BodyError),
    /// The gateway itself cannot open a connection, which says nothing about the origin.
    Local(BodyError),
    Broken {
        error: hyper::Error,
        /// Whether the origin may have closed the connection before it saw the request.
        may_have_closed_before: bool,
    },
    Timeout,
    /// The origin switched protocols without an upgrade request of the client.
    UnrequestedUpgrade,
    /// The client's request is invalid, or its body failed.
    Request(Option<Rejection>),
}

impl Failure {
    /// Classifies the error of a request that was sent for this client.
    pub(crate) fn from_error(error: SendError, client: Option<&Client>) -> Self {
        match error {
            SendError::Connect(error) if is_local(&*error) => Failure::Local(error),
            SendError::Connect(error) => Failure::Unreachable(error),
            SendError::Request { error, .. } if has_cause(&error, hyper::Error::is_user) => {
                // The request body failed.
                Failure::of_request(client, &error)
            }
            SendError::Request { error, .. }
                if has_cause(&error, |cause: &io::Error| cause.kind() == io::ErrorKind::TimedOut) =>
            {
                Failure::Timeout
            }
            SendError::Request { error, may_have_closed_before } => {
                Failure::Broken { error, may_have_closed_before }
            }
        }
    }

    /// The failure of a request body: as the wire has found, or the body itself.
    pub(crate) fn of_request(client: Option<&Client>, error: &(dyn StdError + 'static)) -> Self {
        let rejection = client.and_then(|client| client.http1_state.as_ref()?.rejection());
        Failure::Request(rejection.or_else(|| rejection_in(error)))
    }

    /// Whether the origin may have closed the connection before it saw the request.
    pub(crate) fn may_have_closed_before_request(&self) -> bool {
        matches!(self, Failure::Broken { may_have_closed_before: true, .. })
    }

    /// Logs the failure, and makes the response to the client.
    pub(crate) fn into_response(self) -> Response<String> {
        let rejection = self.rejection();
        match &self {
            Failure::Unreachable(error) | Failure::Local(error) => {
                tabletheory::warn_limited!(error = describe(&**error), "{}", rejection.text);
            }
            Failure::Broken { error, .. } => {
                tabletheory::warn_limited!(error = describe(error), "{}", rejection.text)
            }
            Failure::Busy(_) | Failure::Timeout | Failure::UnrequestedUpgrade => {
                tabletheory::warn_limited!("{}", rejection.text);
            }
            Failure::Down | Failure::Request(_) => tracing::debug!("{}", rejection.text),
        }
        let mut response = local_response(rejection);
        if !matches!(self, Failure::UnrequestedUpgrade | Failure::Request(_)) {
            response.extensions_mut().insert(facetheory::OriginUnreachable);
        }
        if matches!(self, Failure::Down | Failure::Busy(_) | Failure::Local(_)) {
            response.headers_mut().insert(RETRY_AFTER, HeaderValue::from_static("1"));
        }
        response
    }

    /// The status and text for the client. The text does not name the cause, which may reveal internals.
    fn rejection(&self) -> Rejection {
        let (status, text) = match self {
            Failure::Down => (StatusCode::SERVICE_UNAVAILABLE, "the origin is down; try again soon"),
            Failure::Unreachable(_) => (StatusCode::BAD_GATEWAY, "the origin is unreachable"),
            Failure::Busy(Busy::QueueFull) => {
                (StatusCode::SERVICE_UNAVAILABLE, "too many requests wait for the origin; try again soon")
            }
            Failure::Busy(Busy::QueueTimeout) => (
                StatusCode::SERVICE_UNAVAILABLE,
                "no connection to the origin became free in time; try again soon",
            ),
            Failure::Local(_) => (
                StatusCode::SERVICE_UNAVAILABLE,
                "the gateway cannot open a connection to the origin; try again soon",
            ),
            Failure::Broken { .. } => (StatusCode::BAD_GATEWAY, "the origin sent no valid response"),
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

fn has_cause<E: StdError + 'static>(error: &(dyn StdError + 'static), matches: impl Fn(&E) -> bool) -> bool {
    causes(error).filter_map(|cause| cause.downcast_ref()).any(matches)
}

/// Whether a connection failed because this machine or this process has no resources or no permission for it.
fn is_local(error: &(dyn StdError + 'static)) -> bool {
    has_cause(error, |cause: &io::Error| {
        let is_local_kind = matches!(
            cause.kind(),
            io::ErrorKind::AddrNotAvailable | io::ErrorKind::OutOfMemory | io::ErrorKind::PermissionDenied
        );
        is_local_kind || Errno::from_io_error(cause).is_some_and(|code| LOCAL_ERRORS.contains(&code))
    })
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_error_of_this_machine_says_nothing_about_the_origin() {
        let of =
            |error: Errno| Failure::from_error(SendError::Connect(Box::new(io::Error::from(error))), None);
        for code in [
            Errno::MFILE,
            Errno::NFILE,
            Errno::NOBUFS,
            Errno::NOMEM,
            Errno::ADDRNOTAVAIL,
            Errno::PERM,
            Errno::ACCESS,
        ] {
            assert!(matches!(of(code), Failure::Local(_)), "{code}");
        }
        for code in
            [Errno::CONNREFUSED, Errno::TIMEDOUT, Errno::HOSTUNREACH, Errno::NETUNREACH, Errno::CONNRESET]
        {
            assert!(matches!(of(code), Failure::Unreachable(_)), "{code}");
        }
    }
}
