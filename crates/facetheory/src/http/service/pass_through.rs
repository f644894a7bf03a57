//! Requests that are not for a page: they are forwarded, and unsafe ones invalidate the pages that they change.

use std::sync::Arc;

use futures_util::future::join_all;
use http::header::{CACHE_CONTROL, HeaderValue};
use http::request::Parts;
use http::{HeaderMap, Request, Response, StatusCode};
use http_body_util::BodyExt as _;
use tower::ServiceExt as _;

use super::CacheHandler;
use super::serve::bypass;
use crate::http::body::IsrBody;
use crate::http::renderer::Renderer;
use crate::http::request_origin::RequestOrigin;
use crate::http::respond;
use crate::http::router::host::requested_host;
use crate::http::router::resolve::PassReason;
use crate::http::semantics::cache_status::CacheStatus;
use crate::http::semantics::unsafe_methods;
use crate::protocol::key::PageKey;

impl CacheHandler {
    /// Forwards a request that is not for a page.
    pub(super) async fn pass_through<S, B>(
        self: Arc<Self>,
        service: S,
        request: Request<B>,
        reason: PassReason,
        request_id: HeaderValue,
    ) -> Result<Response<IsrBody>, S::Error>
    where
        S: Renderer<B>,
        B: Send + 'static,
    {
        let status = bypass(None, reason.as_str());
        let is_unsafe = reason == PassReason::Method && !request.method().is_safe();
        if is_unsafe && self.routes.any_follows_origin() {
            let (isr, (parts, body)) = (self.isr.clone(), request.into_parts());
            let request = Request::from_parts(parts.clone(), body);
            let work = async move {
                let response = forward(service, request, status, &request_id).await?;
                self.invalidate_after(&parts, response.status(), response.headers().clone()).await;
                Ok(response)
            };
            return isr.run_detached(work).await;
        }
        let mut response = forward(service, request, status, &request_id).await?;
        if reason == PassReason::Preview {
            // Caches in front of us do not know preview cookies, and would serve this response to everyone.
            response.headers_mut().insert(CACHE_CONTROL, HeaderValue::from_static("private, no-store"));
        }
        Ok(response)
    }

    /// Invalidates the pages that an unsafe request has changed (RFC 9111 §4.4), before its client gets the response.
    async fn invalidate_after(&self, request: &Parts, status: StatusCode, headers: HeaderMap) {
        let Ok(host) = requested_host(request) else { return };
        let targets = unsafe_methods::targets(&request.method, &request.uri, host, status, &headers);
        let page_at = |target| self.routes.page_at(request, target, &self.scheme);
        let pages: Vec<PageKey> = targets.iter().filter_map(page_at).collect();
        // Concurrently, so that a table that does not respond delays the response only once.
        join_all(pages.iter().map(|page| self.isr.invalidate_target(page))).await;
    }
}

/// Forwards a request to the inner service.
pub(super) async fn forward<S: Renderer<B>, B>(
    service: S,
    request: Request<B>,
    status: CacheStatus<'_>,
    request_id: &HeaderValue,
) -> Result<Response<IsrBody>, S::Error> {
    Ok(respond::pass_through(call(service, request).await?, status, request_id))
}

/// Calls the inner service for a client, and returns its response without headers of the cache.
pub(super) async fn call<S: Renderer<B>, B>(
    service: S,
    mut request: Request<B>,
) -> Result<Response<IsrBody>, S::Error> {
    request.extensions_mut().insert(RequestOrigin::Client);
    let response = service.oneshot(request).await?;
    Ok(response.map(|body| IsrBody::passed(body.map_err(Into::into).boxed_unsync())))
}
