//! Serves a resolved request: from the cache, from the origin through the cache, or passed through.

use std::sync::Arc;

use http::header::{CACHE_CONTROL, COOKIE, HeaderValue, IF_MATCH, IF_UNMODIFIED_SINCE};
use http::request::Parts;
use http::{HeaderMap, Method, Request, Response, StatusCode};
use http_body_util::BodyExt as _;
use tower::ServiceExt as _;

use super::CacheHandler;
use super::exchange::Exchange;
use super::select::Selected;
use crate::engine::state::State;
use crate::engine::{BypassReason, GetResult, ReusePolicy, Served};
use crate::error::{Error, Kind};
use crate::http::body::IsrBody;
use crate::http::cacheability::{Limits, Received, StoreDecision};
use crate::http::fetch::FailedRender;
use crate::http::headers::remove_hop_by_hop_headers;
use crate::http::renderer::Renderer;
use crate::http::request_origin::RequestOrigin;
use crate::http::respond::{self, PassThrough, ResponseContext};
use crate::http::router::host::requested_host;
use crate::http::router::rejection::Rejection;
use crate::http::router::resolve::{PassReason, Resolution, ResolvedRequest};
use crate::http::semantics::reuse::RequestDirectives;
use crate::http::semantics::unsafe_methods;
use crate::protocol::key::PageKey;

/// The statuses by which an origin says that it, or a server behind it, is overloaded.
const OVERLOADED: [StatusCode; 3] =
    [StatusCode::BAD_GATEWAY, StatusCode::SERVICE_UNAVAILABLE, StatusCode::GATEWAY_TIMEOUT];

/// How often a variant is selected again while the headers that select it change.
const MAX_SELECTIONS: usize = 3;

impl CacheHandler {
    pub(super) async fn serve<S, B>(
        self: Arc<Self>,
        service: S,
        request: Request<B>,
        resolved: ResolvedRequest,
    ) -> Result<Response<IsrBody>, S::Error>
    where
        S: Renderer<B>,
        B: Default + Send + 'static,
    {
        let ResolvedRequest { request_id, resolution, .. } = resolved;
        match resolution {
            Resolution::Rejected(rejection) => Ok(respond::rejected(&rejection, "refused", &request_id)),
            Resolution::PassThrough(reason) => self.pass_through(service, request, reason, request_id).await,
            Resolution::Page(page) => {
                let exchange = self.exchange(request.map(Some), service, page.route);
                self.serve_page(Arc::new(exchange), &page.key, &request_id).await
            }
        }
    }

    async fn serve_page<S, B>(
        self: &Arc<Self>,
        exchange: Arc<Exchange<S, B>>,
        page: &PageKey,
        request_id: &HeaderValue,
    ) -> Result<Response<IsrBody>, S::Error>
    where
        S: Renderer<B>,
        B: Default + Send + 'static,
    {
        let (route, client) = (self.routes.at(exchange.route), &exchange.client);
        let directives = route.follow_origin.then(|| RequestDirectives::of(&client.headers));
        let pass = |forward_reason, detail| PassThrough { forward_reason, detail, request_id };
        if let Some(directives) = &directives {
            // These conditions are about the current state of the origin, which only the origin knows (RFC 9110 §13.1).
            let is_for_origin =
                [IF_MATCH, IF_UNMODIFIED_SINCE].iter().any(|name| client.headers.contains_key(name));
            if directives.no_store() || is_for_origin {
                let pass = pass(Some("request"), "not-asked-for");
                return self.pass_page_through(&exchange, page, pass).await;
            }
        }
        for _ in 0..MAX_SELECTIONS {
            let selected = match self.select(page, directives.as_ref(), &client.headers).await {
                Ok(selected) => selected,
                Err(error) => {
                    let rejection = Rejection::bad(error.to_string());
                    return Ok(respond::rejected(&rejection, "refused", request_id));
                }
            };
            if let (Some(directives), false) = (&directives, selected.is_servable()) {
                if directives.only_if_cached() {
                    let text = "the response is not stored, and only a stored one was asked for".to_owned();
                    let rejection = Rejection { status: StatusCode::GATEWAY_TIMEOUT, text };
                    return Ok(respond::rejected(&rejection, "only-if-cached", request_id));
                }
                if client.method == Method::HEAD {
                    return self.serve_head(&exchange, &selected, request_id).await;
                }
            }
            let render = {
                let (handler, exchange) = (self.clone(), exchange.clone());
                let origin =
                    if selected.is_servable() { RequestOrigin::Background } else { RequestOrigin::Client };
                move |context| handler.render(exchange, context, origin)
            };
            let reuse: &dyn ReusePolicy = match &selected.directives {
                Some(directives) => directives,
                None => &route.policy,
            };
            let (result, reply) = self.isr.get_with(&selected.key, &route.policy, reuse, render).await;
            let reply = reply.unwrap_or_default();
            let why = selected.forward_reason;
            return match (result, reply.response) {
                (Ok(GetResult::Page(served)), _) => {
                    let response =
                        self.respond(&exchange, &selected, &served, reply.status, request_id).await;
                    Ok(response)
                }
                (Ok(GetResult::Bypass(BypassReason::OtherVariant)), None) if route.follow_origin => continue,
                // A rule's render has not seen the cookies, so its response may not be the one for a client that sent some.
                (Ok(GetResult::Bypass(reason)), Some(response))
                    if route.follow_origin || !client.headers.contains_key(COOKIE) =>
                {
                    Ok(self.pass_reply(&exchange, &selected.key, response, pass(why, reason.word())))
                }
                (Ok(GetResult::Bypass(reason)), _) => {
                    self.pass_page_through(&exchange, &selected.key, pass(why, reason.word())).await
                }
                (Err(error), reply) => match reply.or_else(|| FailedRender::response_of(&error)) {
                    Some(response) => {
                        Ok(self.pass_reply(&exchange, &selected.key, response, pass(why, "render-failed")))
                    }
                    None => {
                        let status = FailedRender::private_status(&error).filter(|_| route.follow_origin);
                        // An overloaded origin must not get the requests of all clients that waited.
                        if status.is_some_and(|status| !OVERLOADED.contains(&status)) {
                            let pass = pass(why, "render-failed");
                            return self.pass_page_through(&exchange, &selected.key, pass).await;
                        }
                        let rejection = render_failed(&error, status);
                        Ok(respond::rejected(&rejection, "render-failed", request_id))
                    }
                },
            };
        }
        self.pass_page_through(&exchange, page, pass(Some("vary-miss"), "restless")).await
    }

    async fn respond<S, B>(
        self: &Arc<Self>,
        exchange: &Exchange<S, B>,
        selected: &Selected<'_>,
        served: &Served,
        origin_status: Option<StatusCode>,
        request_id: &HeaderValue,
    ) -> Response<IsrBody> {
        let (route, is_miss) = (self.routes.at(exchange.route), served.state == State::Miss);
        if let Some(primary) = selected.primary.as_ref().filter(|_| is_miss) {
            self.promote(&selected.key, &route.policy, primary, served).await;
        }
        let context = ResponseContext {
            request: &exchange.client,
            route,
            now: self.now(),
            request_id,
            cache_key: selected.key.cache_key(),
            forward_reason: selected.forward_reason,
            origin_status: origin_status.filter(|_| is_miss),
        };
        self.expose(context.respond(served), &selected.key)
    }

    /// Sends the origin's reply to the client that caused it.
    fn pass_reply<S, B>(
        &self,
        exchange: &Exchange<S, B>,
        page: &PageKey,
        mut response: Response<IsrBody>,
        pass: PassThrough<'_>,
    ) -> Response<IsrBody> {
        // The response was for the cache's own request, and may have headers about that connection.
        remove_hop_by_hop_headers(response.headers_mut());
        if exchange.client.method == Method::HEAD {
            response = respond::without_body(response);
        }
        self.expose(pass.mark(response), page)
    }

    /// Forwards the client's whole request for a page, and caches nothing.
    pub(super) async fn pass_page_through<S, B>(
        &self,
        exchange: &Exchange<S, B>,
        page: &PageKey,
        pass: PassThrough<'_>,
    ) -> Result<Response<IsrBody>, S::Error>
    where
        S: Renderer<B>,
        B: Default,
    {
        let (route, client, requested) = (self.routes.at(exchange.route), &exchange.client, self.now());
        let response = self.forward(exchange.service(), exchange.request(), pass).await?;
        if route.follow_origin {
            let received = Received {
                route,
                method: &client.method,
                request: &client.headers,
                status: response.status(),
                headers: response.headers(),
                hint: None,
                bytes: None,
                requested,
                received: self.now(),
                has_usable_stored: false,
                is_revalidated: false,
                limits: Limits { max_bytes: u64::MAX, allows_new: true },
            };
            // The next response may be cached: other requests wait for it again, instead of being forwarded each.
            if let StoreDecision::Store(_) = received.decide() {
                self.isr.forget_declined(page);
            }
        }
        Ok(self.expose(response, page))
    }

    /// Forwards a request that is not for a page.
    async fn pass_through<S, B>(
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
        let is_unsafe = reason == PassReason::Method && !request.method().is_safe();
        if is_unsafe && self.routes.any_follows_origin() {
            let (isr, (parts, body)) = (self.isr.clone(), request.into_parts());
            let request = Request::from_parts(parts.clone(), body);
            let forward = async move {
                let pass =
                    PassThrough { forward_reason: None, detail: reason.as_str(), request_id: &request_id };
                let response = self.forward(service, request, pass).await?;
                self.invalidate_after(&parts, response.status(), response.headers().clone()).await;
                Ok(response)
            };
            return isr.run_detached(forward).await;
        }
        let pass = PassThrough { forward_reason: None, detail: reason.as_str(), request_id: &request_id };
        let mut response = self.forward(service, request, pass).await?;
        if reason == PassReason::Preview {
            // Caches in front of us do not know preview cookies, and would serve this response to everyone.
            response.headers_mut().insert(CACHE_CONTROL, HeaderValue::from_static("private, no-store"));
        }
        Ok(response)
    }

    async fn forward<S, B>(
        &self,
        service: S,
        mut request: Request<B>,
        pass: PassThrough<'_>,
    ) -> Result<Response<IsrBody>, S::Error>
    where
        S: Renderer<B>,
    {
        request.extensions_mut().insert(RequestOrigin::Client);
        let response = service.oneshot(request).await?;
        Ok(pass.mark(response.map(|body| IsrBody::passed(body.map_err(Into::into).boxed_unsync()))))
    }

    /// Invalidates the pages that an unsafe request has changed (RFC 9111 §4.4), before its client gets the response.
    async fn invalidate_after(&self, request: &Parts, status: StatusCode, headers: HeaderMap) {
        let Ok(host) = requested_host(request) else { return };
        for target in unsafe_methods::targets(&request.method, &request.uri, host, status, &headers) {
            if let Some(page) = self.routes.page_at(request, &target, &self.scheme) {
                self.isr.invalidate_target(&page).await;
            }
        }
    }

    /// Puts the key of a page into the extensions of its response, if the layer is set to do so.
    fn expose(&self, mut response: Response<IsrBody>, page: &PageKey) -> Response<IsrBody> {
        if self.expose_page_key {
            response.extensions_mut().insert(page.clone());
        }
        response
    }
}

/// The error response for a failed render. It does not tell the cause, which may name internal hosts.
fn render_failed(error: &Error, status: Option<StatusCode>) -> Rejection {
    let cause = match error.kind() {
        Kind::Render => "it could not be rendered",
        _ => "a store cannot be reached",
    };
    Rejection {
        status: status.unwrap_or(StatusCode::BAD_GATEWAY),
        text: format!("the page cannot be shown now: {cause}; try again later"),
    }
}
