//! The hyper service of one connection, which is also its fast path.

use std::convert::Infallible;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use facetheory::{Hit, IsrBody, ResolvedRequest};
use http::request::Parts;
use http::{Request, Response, StatusCode};
use hyper::body::Incoming;
use hyper::service::Service;
use parking_lot::Mutex;

use super::Gateway;
use super::client::Client;
use super::connection_limit::ConnectionPermit;
use super::http2_checks::{check_head, has_unexpected_body};
use super::serving_config::ServingConfig;
use super::tracked_body::{ResponseGuard, TrackedBody};
use crate::log::RequestInfo;
use crate::wire::slow_client::IdleTracker;
use crate::wire::{FastPath, RawResponse};

/// Responses that never have a body: their framing is left to hyper.
const WITHOUT_BODY: [StatusCode; 2] = [StatusCode::NO_CONTENT, StatusCode::NOT_MODIFIED];

/// Responds to the requests of one connection.
#[derive(Clone, Debug)]
pub(crate) struct ConnectionService {
    gateway: Arc<Gateway>,
    client: Arc<Client>,
    tracker: Arc<IdleTracker>,
    /// The request that the fast path has resolved but could not serve. [`FastPath`] guarantees that hyper calls the
    /// service with this request next.
    resolved: Arc<Mutex<Option<ResolvedRequest>>>,
    _permit: Arc<ConnectionPermit>,
}

/// A response. Most are ready at once.
pub(crate) enum ResponseFuture {
    Ready(Option<Response<TrackedBody>>),
    Pending(Pin<Box<dyn Future<Output = Response<TrackedBody>> + Send>>),
}

impl ConnectionService {
    pub(crate) fn new(
        gateway: Arc<Gateway>,
        client: Arc<Client>,
        tracker: Arc<IdleTracker>,
        permit: Arc<ConnectionPermit>,
    ) -> Self {
        ConnectionService { gateway, client, tracker, resolved: Arc::default(), _permit: permit }
    }

    /// The entry of a request for the access log, if there is one.
    fn log_entry(&self, request: &Parts) -> Option<RequestInfo> {
        self.gateway.access_log.as_ref().map(|_| RequestInfo::new(request, self.client.address.ip()))
    }

    /// Marks the connection as busy until the response is complete.
    fn begin_response(&self) -> ResponseGuard {
        match &self.client.http1_state {
            Some(state) => ResponseGuard::Http1 { _request: state.begin_request() },
            None => ResponseGuard::Http2(self.tracker.begin_response()),
        }
    }
}

impl ServingConfig {
    /// Resolves a request, and serves it if its page is in memory and fresh. Needs no `await`.
    ///
    /// The fast path and the connection service both use this function; nothing else in the gateway looks for a page. An
    /// error has the resolved request, which the cache layer needs to serve it.
    fn get_fresh<T>(
        &self,
        request: &Parts,
        serve: impl FnOnce(Hit<'_>) -> Option<T>,
    ) -> Result<T, ResolvedRequest> {
        let resolved = self.service.resolve(request);
        self.service.get_fresh(request, &resolved).and_then(serve).ok_or(resolved)
    }
}

impl Service<Request<Incoming>> for ConnectionService {
    type Response = Response<TrackedBody>;
    type Error = Infallible;
    type Future = ResponseFuture;

    fn call(&self, request: Request<Incoming>) -> ResponseFuture {
        let guard = self.begin_response();
        let config = self.gateway.config.load();
        let is_http2 = self.client.http1_state.is_none();
        let checked = if is_http2 { check_head(&request, &config.limits) } else { Ok(()) };
        let is_complete = checked.is_ok() && !(is_http2 && has_unexpected_body(&request));
        let (mut parts, body) = request.into_parts();
        let entry = self.log_entry(&parts);
        config.trusted_proxies.apply(&self.client, &mut parts);
        let from_fast_path = self.resolved.lock().take();
        let resolved = match from_fast_path {
            Some(resolved) => Some(resolved),
            None if is_complete => match config.get_fresh(&parts, |hit| Some(hit.into_response())) {
                Ok(response) => {
                    return ResponseFuture::Ready(Some(logged(&self.gateway, entry, response, guard)));
                }
                Err(resolved) => Some(resolved),
            },
            None => None,
        };
        if let Some(resolved) = resolved {
            parts.extensions.insert(resolved);
        }
        let (gateway, client) = (self.gateway.clone(), self.client.clone());
        ResponseFuture::Pending(Box::pin(async move {
            let response = gateway.respond(&client, Request::from_parts(parts, body), checked).await;
            logged(&gateway, entry, response, guard)
        }))
    }
}

impl FastPath for ConnectionService {
    fn get_fresh(&self, mut request: Parts) -> Option<RawResponse> {
        let entry = self.log_entry(&request);
        let config = self.gateway.config.load();
        config.trusted_proxies.apply(&self.client, &mut request);
        let served = config.get_fresh(&request, |hit| {
            if hit.status().is_informational() || WITHOUT_BODY.contains(&hit.status()) {
                return None;
            }
            if let (Some(log), Some(entry)) = (&self.gateway.access_log, entry) {
                log.log_hit(entry, &hit);
            }
            Some(RawResponse { head: hit.http1_head(), body: hit.body().clone() })
        });
        served.map_err(|resolved| *self.resolved.lock() = Some(resolved)).ok()
    }
}

/// Writes the access log entry of a response, and ties the response to its connection.
fn logged(
    gateway: &Gateway,
    entry: Option<RequestInfo>,
    mut response: Response<IsrBody>,
    guard: ResponseGuard,
) -> Response<TrackedBody> {
    if let (Some(log), Some(entry)) = (&gateway.access_log, entry) {
        log.log(entry, &mut response);
    }
    response.map(|body| TrackedBody::new(body, guard))
}

impl Future for ResponseFuture {
    type Output = Result<Response<TrackedBody>, Infallible>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        match &mut *self {
            // hyper does not poll again after that.
            ResponseFuture::Ready(response) => {
                response.take().map_or(Poll::Pending, |response| Poll::Ready(Ok(response)))
            }
            ResponseFuture::Pending(response) => response.as_mut().poll(context).map(Ok),
        }
    }
}
