//! The hyper service of one connection, which is also its fast path, and the bodies of its responses.

#[cfg(test)]
pub(super) mod tests;

use std::convert::Infallible;
use std::future::{Ready, ready};
use std::pin::Pin;
use std::sync::Arc;
use std::task::Context;

use bytes::Bytes;
use facetheory::{Hit, IsrBody, ResolvedRequest};
use futures_util::future::Either;
use http::header::CONNECTION;
use http::request::Parts;
use http::{HeaderValue, Request, Response, StatusCode};
use http_body::{Body, SizeHint};
use hyper::body::Incoming;
use hyper::service::Service;
use parking_lot::Mutex;

use super::Gateway;
use super::body::Polled;
use super::client::Client;
use super::connection_limit::ConnectionPermit;
use super::http2_checks::{check_head, has_unexpected_body};
use super::serving_config::ServingConfig;
use super::shutdown_signal::ShutdownSignal;
use crate::log::RequestInfo;
use crate::wire::slow_client::{IdleTracker, TrackedResponse};
use crate::wire::{ActiveRequest, FastPath, RawResponse};

type Outcome = Result<Response<TrackedBody>, Infallible>;

/// Responds to the requests of one connection.
#[derive(Clone, Debug)]
pub(crate) struct ConnectionService {
    gateway: Arc<Gateway>,
    client: Arc<Client>,
    tracker: Arc<IdleTracker>,
    /// The request that the fast path has resolved but could not serve. [`FastPath`] guarantees that hyper calls the
    /// service with this request next.
    resolved: Arc<Mutex<Option<Box<ResolvedRequest>>>>,
    /// Triggered when the next response is to be the last one on the connection.
    drain: ShutdownSignal,
    _permit: Arc<ConnectionPermit>,
}

impl ConnectionService {
    pub(crate) fn new(
        gateway: Arc<Gateway>,
        client: Arc<Client>,
        tracker: Arc<IdleTracker>,
        drain: ShutdownSignal,
        permit: Arc<ConnectionPermit>,
    ) -> Self {
        ConnectionService { gateway, client, tracker, resolved: Arc::default(), drain, _permit: permit }
    }

    /// The entry of a request for the access log, if there is one.
    fn log_entry(&self, request: &Parts) -> Option<RequestInfo> {
        self.gateway.access_log.as_ref().map(|_| RequestInfo::new(request, self.client.address.ip()))
    }

    /// Whether a request is a purge or a refresh, which is never served from memory. The headers must be those that arrived:
    /// some that are removed later tell that the request came through a proxy.
    fn is_for_gateway(&self, config: &ServingConfig, request: &Parts) -> bool {
        config.purges.concerns(self.client.address.ip(), request)
    }

    /// Marks the connection as busy until the response is complete.
    fn begin_response(&self) -> ResponseGuard {
        match &self.client.http1_state {
            Some(state) => ResponseGuard::Http1 { _request: state.begin_request() },
            None => ResponseGuard::Http2(self.tracker.begin_response()),
        }
    }

    /// Writes the access log entry of a response, and ties the response to its connection. While the process shuts down,
    /// a response over HTTP/1 is the last one on its connection, so that the client sends its next request elsewhere. Over
    /// HTTP/2, GOAWAY does this.
    fn complete(
        &self,
        entry: Option<RequestInfo>,
        mut response: Response<IsrBody>,
        guard: ResponseGuard,
    ) -> Response<TrackedBody> {
        let is_upgrade = response.status() == StatusCode::SWITCHING_PROTOCOLS;
        if self.drain.is_triggered() && self.client.http1_state.is_some() && !is_upgrade {
            response.headers_mut().insert(CONNECTION, HeaderValue::from_static("close"));
        }
        if let (Some(log), Some(entry)) = (&self.gateway.access_log, entry) {
            log.log(&entry, &mut response);
        }
        response.map(|body| TrackedBody { body, guard })
    }
}

impl ServingConfig {
    /// Resolves a request, and serves it if its page is in memory and fresh. If not, it returns the resolved request, which
    /// the cache layer needs to serve it. Needs no `await`.
    ///
    /// The fast path and the connection service both use this function; nothing else in the gateway looks for a page.
    fn get_fresh<T>(
        &self,
        request: &Parts,
        serve: impl FnOnce(Hit<'_>) -> Option<T>,
    ) -> Result<T, Box<ResolvedRequest>> {
        let resolved = self.service.resolve(request);
        let served = self.service.get_fresh_or_read(request, &resolved).and_then(serve);
        served.ok_or_else(|| Box::new(resolved))
    }
}

impl Service<Request<Incoming>> for ConnectionService {
    type Response = Response<TrackedBody>;
    type Error = Infallible;
    type Future = Either<Ready<Outcome>, Pin<Box<dyn Future<Output = Outcome> + Send>>>;

    fn call(&self, request: Request<Incoming>) -> Self::Future {
        let guard = self.begin_response();
        let config = self.gateway.config.load();
        let is_http2 = self.client.http1_state.is_none();
        let checked = if is_http2 { check_head(&request, &config.client.request) } else { Ok(()) };
        let is_complete = checked.is_ok() && !(is_http2 && has_unexpected_body(&request));
        let (mut parts, body) = request.into_parts();
        let entry = self.log_entry(&parts);
        let from_fast_path = self.resolved.lock().take();
        // Before headers are removed that tell of a proxy. The fast path has decided that its requests are ordinary ones.
        let purge = match from_fast_path {
            Some(_) => None,
            None => config.purges.parse(self.client.address.ip(), &parts),
        };
        config.trusted_proxies.apply(&self.client, &mut parts);
        if let Some(resolved) = from_fast_path {
            parts.extensions.insert(*resolved);
        } else if purge.is_some() {
            // It is performed also if the client leaves at once, as those of some products do.
            let service = self.clone();
            let response = tokio::spawn(async move {
                let request = Request::from_parts(parts, body);
                let response = service.gateway.respond(&service.client, request, checked, purge).await;
                service.complete(entry, response, guard)
            });
            return Either::Right(Box::pin(async move {
                Ok(response.await.expect("responding neither panics nor is aborted"))
            }));
        } else if is_complete {
            match config.get_fresh(&parts, |hit| Some(hit.into_response())) {
                Ok(response) => {
                    return Either::Left(ready(Ok(self.complete(entry, response, guard))));
                }
                Err(resolved) => drop(parts.extensions.insert(*resolved)),
            }
        }
        let service = self.clone();
        Either::Right(Box::pin(async move {
            let request = Request::from_parts(parts, body);
            let response = service.gateway.respond(&service.client, request, checked, None).await;
            Ok(service.complete(entry, response, guard))
        }))
    }
}

impl FastPath for ConnectionService {
    fn get_fresh(&self, mut request: Parts) -> Option<RawResponse> {
        // Responses in memory have no `Connection` header.
        if self.drain.is_triggered() {
            return None;
        }
        let entry = self.log_entry(&request);
        let config = self.gateway.config.load();
        if self.is_for_gateway(&config, &request) {
            return None;
        }
        config.trusted_proxies.apply(&self.client, &mut request);
        let served = config.get_fresh(&request, |hit| {
            if hit.status().is_informational() {
                return None;
            }
            if let (Some(log), Some(entry)) = (&self.gateway.access_log, entry) {
                log.log_hit(&entry, &hit);
            }
            Some(RawResponse { head: hit.http1_head(), body: hit.body() })
        });
        served.map_err(|resolved| *self.resolved.lock() = Some(resolved)).ok()
    }
}

/// The body of a response on a client connection, which is busy until the body ends.
#[derive(Debug)]
pub(crate) struct TrackedBody {
    body: IsrBody,
    guard: ResponseGuard,
}

/// Notifies a connection of the progress of one of its responses, which is complete when this is dropped.
#[derive(Debug)]
enum ResponseGuard {
    Http1 { _request: ActiveRequest },
    Http2(TrackedResponse),
}

impl Body for TrackedBody {
    type Data = Bytes;
    type Error = <IsrBody as Body>::Error;

    fn poll_frame(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Polled {
        let frame = Pin::new(&mut self.body).poll_frame(context);
        if let ResponseGuard::Http2(response) = &self.guard {
            response.polled(frame.is_ready());
        }
        frame
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}
