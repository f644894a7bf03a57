//! Failed renders, and the responses of the origin that explain them.

use std::fmt;

use bytes::Bytes;
use http::header::SET_COOKIE;
use http::{HeaderMap, Response, StatusCode, response};

use super::Evaluated;
use crate::http::body::IsrBody;
use crate::http::cacheability::UncacheableReason;
use crate::http::respond;
use crate::pages::render::OriginUnreachable;

/// Why a render failed, with the origin's response for all requests that waited for it.
#[derive(Debug)]
pub(in crate::http) struct FailedRender {
    reason: UncacheableReason,
    /// `None` if the response is for one client alone, or too long.
    response: Option<(StatusCode, HeaderMap, Bytes)>,
    /// Set if the response was made in place of one of the origin.
    unreachable: Option<OriginUnreachable>,
}

impl FailedRender {
    /// A failure without a response that may be shared.
    pub(super) fn new(reason: UncacheableReason) -> Self {
        FailedRender { reason, response: None, unreachable: None }
    }

    /// A failure for all requests that wait, and this response for the initiator: the request that started the render.
    pub(super) fn for_initiator(reason: UncacheableReason, response: Response<IsrBody>) -> Evaluated {
        Evaluated { outcome: Err(FailedRender::new(reason).into()), for_initiator: Some(response) }
    }

    /// A failure whose response was read to its end.
    pub(super) fn read(reason: UncacheableReason, head: response::Parts, bytes: Bytes) -> Evaluated {
        let unreachable = head.extensions.get::<OriginUnreachable>().copied();
        // A cookie is for one client, and not for the others that waited.
        if head.headers.contains_key(SET_COOKIE) {
            let failure = FailedRender { reason, response: None, unreachable };
            let for_initiator = Some(Response::from_parts(head, bytes.into()));
            return Evaluated { outcome: Err(failure.into()), for_initiator };
        }
        let response = Some((head.status, head.headers, bytes));
        Evaluated::failed(FailedRender { reason, response, unreachable })
    }

    /// Returns the origin's response that explains an error, if it may be shared.
    pub(in crate::http) fn response_of(error: &crate::Error) -> Option<Response<IsrBody>> {
        let (status, headers, bytes) = FailedRender::cause_of(error)?.response.as_ref()?;
        Some(respond::response(*status, headers.clone(), bytes.clone().into()))
    }

    /// Returns the status of a server error whose response only its initiator gets.
    pub(in crate::http) fn unshared_status(error: &crate::Error) -> Option<StatusCode> {
        match FailedRender::cause_of(error)? {
            FailedRender { reason: UncacheableReason::ServerError(status), response: None, .. } => {
                Some(*status)
            }
            _ => None,
        }
    }

    fn cause_of(error: &crate::Error) -> Option<&FailedRender> {
        let error: &(dyn std::error::Error + 'static) = error;
        std::iter::successors(Some(error), |error| error.source()).find_map(|error| error.downcast_ref())
    }
}

impl fmt::Display for FailedRender {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.reason.fmt(f)
    }
}

impl std::error::Error for FailedRender {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        self.unreachable.as_ref().map(|unreachable| unreachable as _)
    }
}
