//! Serves a resolved request: from the cache, from the origin through the cache, or passed through.

use std::sync::Arc;

use http::header::COOKIE;
use http::{Method, Request, Response, StatusCode};

use super::CacheHandler;
use super::exchange::Exchange;
use super::pass_through::forward;
use super::select::{Selected, is_for_origin};
use crate::engine::state::State;
use crate::engine::{BypassReason, GetResult, ReusePolicy, Served};
use crate::error::{Error, Kind};
use crate::http::body::IsrBody;
use crate::http::cacheability::Limits;
use crate::http::fetch::{FailedRender, Fetch, OriginResponse};
use crate::http::forced_regenerations::{ClientAddress, ForcePermit};
use crate::http::headers::remove_hop_by_hop_headers;
use crate::http::renderer::Renderer;
use crate::http::request_origin::RequestOrigin;
use crate::http::respond::{self, ResponseContext};
use crate::http::router::rejection::Rejection;
use crate::http::router::resolve::{Resolution, ResolvedRequest};
use crate::http::semantics::cache_control::Directive;
use crate::http::semantics::cache_status::CacheStatus;
use crate::http::semantics::reuse::RequestDirectives;
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
            Resolution::Rejected(rejection) => Ok(respond::rejected(&rejection, "rejected", &request_id)),
            Resolution::PassThrough(reason) => self.pass_through(service, request, reason, request_id).await,
            Resolution::Page(page) => {
                self.exchange(request.map(Some), service, page, request_id).serve().await
            }
        }
    }
}

impl<S: Renderer<B>, B: Default + Send + 'static> Exchange<S, B> {
    async fn serve(self: &Arc<Self>) -> Result<Response<IsrBody>, S::Error> {
        let (route, headers) = (self.route(), &self.client.headers);
        let client = self.client.extensions.get().map(|ClientAddress(address)| *address);
        let permit = || ForcePermit::new(&self.handler.forced, &self.page.key, client);
        let directives = route.follow_origin.then(|| RequestDirectives::of(&self.client).limited(permit()));
        // Only the origin may respond to such a request: it has `no-store`, or a condition for the origin.
        if directives.as_ref().is_some_and(|it| it.control.has(Directive::NoStore) || is_for_origin(headers))
        {
            return self.pass_through(&self.page.key, bypass(Some("request"), "request-directive")).await;
        }
        for _ in 0..MAX_SELECTIONS {
            let selected = match self.handler.select(&self.page.key, directives.as_ref(), headers).await {
                Ok(selected) => selected,
                Err(error) => return Ok(self.reject(&Rejection::bad(error.to_string()), "rejected")),
            };
            if let (Some(directives), false) = (&directives, selected.is_servable()) {
                if directives.control.has(Directive::OnlyIfCached) {
                    let text = "the response is not stored, and the request has `only-if-cached`".to_owned();
                    let rejection = Rejection { status: StatusCode::GATEWAY_TIMEOUT, text };
                    return Ok(self.reject(&rejection, "only-if-cached"));
                }
                if self.client.method == Method::HEAD {
                    return self.serve_head(&selected).await;
                }
            }
            if let Some(response) = self.serve_selected(&selected).await? {
                return Ok(response);
            }
        }
        // Each time the response was for other headers than the request has: the variants of the URL keep changing.
        self.pass_through(&self.page.key, bypass(Some("vary-miss"), "vary-unstable")).await
    }

    /// Serves the stored response that was selected, or fetches it. Returns `None` if the selection is outdated.
    async fn serve_selected(
        self: &Arc<Self>,
        selected: &Selected<'_>,
    ) -> Result<Option<Response<IsrBody>>, S::Error> {
        let (route, key, exchange) = (self.route(), &*selected.key, self.clone());
        let origin = if selected.is_servable() { RequestOrigin::Background } else { RequestOrigin::Client };
        let render = move |context| exchange.render(context, origin);
        let reuse: &dyn ReusePolicy = match &selected.directives {
            Some(directives) => directives,
            None => &route.policy,
        };
        let offload = self.offload(key);
        let (result, own) = self.handler.isr.get_with(key, &route.policy, reuse, offload, render).await;
        let OriginResponse { status, response: uncached } = own.unwrap_or_default();
        let status_with = |detail| bypass(selected.forward_reason, detail);
        let response = match (result, uncached) {
            (Ok(GetResult::Page(served)), _) => self.respond(selected, &served, status).await,
            (Ok(GetResult::Bypass(BypassReason::OtherVariant)), None) if route.follow_origin => {
                return Ok(None);
            }
            // A rule's render has not seen the cookies, so its response may not be the one for a client that sent some.
            (Ok(GetResult::Bypass(reason)), Some(response))
                if route.follow_origin || !self.client.headers.contains_key(COOKIE) =>
            {
                self.send_origin_response(key, response, status_with(reason.as_str()))
            }
            (Ok(GetResult::Bypass(reason)), _) => {
                self.pass_through(key, status_with(reason.as_str())).await?
            }
            (Err(error), response) => match response.or_else(|| FailedRender::response_of(&error)) {
                Some(response) => self.send_origin_response(key, response, status_with("render-failed")),
                None => match FailedRender::unshared_status(&error).filter(|_| route.follow_origin) {
                    // An overloaded origin must not get the requests of all clients that waited.
                    Some(status) if !OVERLOADED.contains(&status) => {
                        self.pass_through(key, status_with("render-failed")).await?
                    }
                    status => self.reject(&render_failed(&error, status), "render-failed"),
                },
            },
        };
        Ok(Some(response))
    }

    async fn respond(
        &self,
        selected: &Selected<'_>,
        served: &Served,
        origin_status: Option<StatusCode>,
    ) -> Response<IsrBody> {
        let (route, is_miss) = (self.route(), served.state == State::Miss);
        // The new variant may replace the page by whose `Vary` it was selected.
        if let Some(primary) = selected.primary.as_ref().filter(|_| is_miss) {
            self.handler.promote(&selected.key, &route.policy, primary, served).await;
        }
        let context = ResponseContext {
            request: &self.client,
            route,
            now: self.handler.now(),
            request_id: &self.request_id,
            cache_key: selected.key.cache_key(),
            forward_reason: selected.forward_reason,
            origin_status: origin_status.filter(|_| is_miss),
            reached_limit: selected.directives.as_ref().and_then(RequestDirectives::reached_limit),
        };
        self.handler.compress_if_accepted(&selected.key, &served.page, &self.client.headers);
        self.expose(context.respond(served), &selected.key)
    }

    /// Sends a response of the origin that is not cached to the client whose request caused it.
    fn send_origin_response(
        &self,
        page: &PageKey,
        mut response: Response<IsrBody>,
        status: CacheStatus<'_>,
    ) -> Response<IsrBody> {
        // The response was for the cache's own request, and may have headers about that connection.
        remove_hop_by_hop_headers(response.headers_mut());
        if self.client.method == Method::HEAD {
            response = respond::without_body(response);
        }
        self.expose(respond::pass_through(response, status, &self.request_id), page)
    }

    /// Forwards the client's whole request, and caches nothing.
    pub(super) async fn pass_through(
        &self,
        page: &PageKey,
        status: CacheStatus<'_>,
    ) -> Result<Response<IsrBody>, S::Error> {
        let handler = &self.handler;
        let limits = Limits { max_bytes: u64::MAX, allows_new: true };
        let fetch = Fetch { limits, ..self.fetch(page, handler.now()) };
        let response = forward(self.service(), self.request(), status, &self.request_id).await?;
        let may_be_cached = self.route().follow_origin && self.client.method == Method::GET;
        // The next response may be cached: other requests wait for it again, instead of being forwarded each.
        if may_be_cached && fetch.is_cacheable(&response, handler.now()) {
            handler.isr.forget_declined(page);
        }
        Ok(self.expose(response, page))
    }

    fn reject(&self, rejection: &Rejection, detail: &'static str) -> Response<IsrBody> {
        respond::rejected(rejection, detail, &self.request_id)
    }

    /// Puts the key of a page into the extensions of its response, if the layer is set to do so.
    pub(super) fn expose(&self, mut response: Response<IsrBody>, page: &PageKey) -> Response<IsrBody> {
        if self.handler.expose_page_key {
            response.extensions_mut().insert(page.clone());
        }
        response
    }
}

/// The `Cache-Status` of a response that is passed through.
pub(super) fn bypass(forward: Option<&'static str>, detail: &'static str) -> CacheStatus<'static> {
    CacheStatus { forward, detail: Some(detail), ..CacheStatus::default() }
}

/// The error response for a failed render. It does not name the cause, which may name internal hosts.
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
