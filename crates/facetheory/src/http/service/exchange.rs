//! A client's request, the origin that can answer it, and the render that the request may start.

use std::sync::Arc;

use http::header::{
    HeaderName, IF_MATCH, IF_MODIFIED_SINCE, IF_NONE_MATCH, IF_RANGE, IF_UNMODIFIED_SINCE, RANGE,
};
use http::request::Parts;
use http::{Request, Uri};
use parking_lot::Mutex;

use super::CacheHandler;
use crate::http::cacheability::Limits;
use crate::http::fetch::{Fetch, Rendering};
use crate::http::renderer::Renderer;
use crate::http::request_origin::RequestOrigin;
use crate::http::router::origin_request::narrowed_uri;
use crate::http::router::rejection::Rejection;
use crate::pages::render::RenderContext;
use crate::protocol::row::Meta;

/// The conditions of a client, which the cache evaluates itself.
const CONDITIONS: [HeaderName; 4] = [IF_MATCH, IF_NONE_MATCH, IF_MODIFIED_SINCE, IF_UNMODIFIED_SINCE];

/// A client's request for a page and the service that can answer it. A render that the request starts shares it, and may
/// outlive the request.
pub(super) struct Exchange<S, B> {
    /// The client's request; on a route that follows its origin, as the origin may see it.
    pub(super) client: Parts,
    /// The index of the route.
    pub(super) route: usize,
    /// The request target of a render, if it is not the client's.
    target: Option<Uri>,
    service: Mutex<S>,
    /// The body of the client's request, for the first time that it is forwarded.
    body: Mutex<Option<B>>,
}

impl<S: Clone, B: Default> Exchange<S, B> {
    pub(super) fn service(&self) -> S {
        self.service.lock().clone()
    }

    /// Returns the client's whole request.
    pub(super) fn request(&self) -> Request<B> {
        Request::from_parts(self.client.clone(), self.take_body())
    }

    fn take_body(&self) -> B {
        self.body.lock().take().unwrap_or_default()
    }
}

impl CacheHandler {
    pub(super) fn exchange<S, B>(
        &self,
        request: Request<Option<B>>,
        service: S,
        route: usize,
    ) -> Exchange<S, B> {
        let (mut client, body) = request.into_parts();
        let mut target = None;
        if self.routes.at(route).follow_origin {
            target = narrowed_uri(self.routes.at(route), &client);
            self.routes.make_forwardable(&mut client);
        }
        Exchange { client, route, target, service: Mutex::new(service), body: Mutex::new(body) }
    }

    /// Fetches the page from the origin, and decides what is cached of the response.
    pub(super) async fn render<S, B>(
        self: Arc<Self>,
        exchange: Arc<Exchange<S, B>>,
        context: RenderContext,
        origin: RequestOrigin,
    ) -> Rendering
    where
        S: Renderer<B>,
        B: Default + Send + 'static,
    {
        let (route, client) = (self.routes.at(exchange.route), &exchange.client);
        let is_same_policy = |meta: &&Meta| meta.generation.follows_origin() == route.follow_origin;
        let stored = context.served.as_ref().filter(is_same_policy);
        let request = match self.origin_request(&exchange, stored.is_some(), origin) {
            Ok(request) => request,
            Err(rejection) => return Rendering::failed(rejection.text),
        };
        let fetch = Fetch {
            page: &context.page,
            route,
            client,
            stored,
            may_revalidate: self.may_revalidate(&context, stored).await,
            is_whole_request: route.follow_origin || is_whole(&request, client),
            limits: Limits {
                max_bytes: self.max_page_bytes,
                allows_new: context.served.is_some() || self.allows_new(&context),
            },
            requested: context.started,
        };
        // The client's own body is kept for the case that its whole request has to be forwarded.
        let body = || if route.follow_origin { exchange.take_body() } else { B::default() };
        fetch.send(exchange.service(), request, body, || self.now()).await
    }

    /// Returns the request that the origin gets, without conditions: keyed input only, or the client's own request where the
    /// origin decides about caching.
    fn origin_request<S, B>(
        &self,
        exchange: &Exchange<S, B>,
        is_stored: bool,
        origin: RequestOrigin,
    ) -> Result<Request<()>, Rejection> {
        let (route, client) = (self.routes.at(exchange.route), &exchange.client);
        if !route.follow_origin {
            let mut request = self.routes.keyed_request(route, client)?;
            // Outer services may have added values that a router needs, such as path parameters. Clients cannot set them.
            request.extensions_mut().clone_from(&client.extensions);
            // An outer layer may have set it for the client's request, which this is not.
            request.extensions_mut().remove::<RequestOrigin>();
            return Ok(request);
        }
        let mut request = Request::new(());
        *request.uri_mut() = exchange.target.as_ref().unwrap_or(&client.uri).clone();
        *request.version_mut() = client.version;
        *request.headers_mut() = client.headers.clone();
        *request.extensions_mut() = client.extensions.clone();
        request.extensions_mut().insert(origin);
        // The whole response is stored already, or will be.
        let ranges: &[HeaderName] = if is_stored { &[RANGE, IF_RANGE] } else { &[] };
        CONDITIONS.iter().chain(ranges).for_each(|name| drop(request.headers_mut().remove(name)));
        Ok(request)
    }

    /// Whether the stored response may be revalidated instead of fetched again.
    async fn may_revalidate(&self, context: &RenderContext, stored: Option<&Meta>) -> bool {
        let Some(stored) = stored else { return false };
        if !stored.generation.follows_origin() {
            // The validators of another deployment's page say nothing about this deployment.
            let deployment = stored.generation.content.deployment.as_deref();
            let is_ours = self.isr.deployment().is_none_or(|ours| deployment == Some(ours));
            return is_ours && !stored.must_not_serve;
        }
        if context.page.is_variant() {
            // The row of a variant does not tell whether its address was invalidated.
            return !self.isr.pages().store().is_outdated(&context.page, stored).await.unwrap_or(true);
        }
        !stored.must_not_serve
    }

    /// Whether the limits permit to cache a page or a variant that is not cached yet.
    fn allows_new(&self, context: &RenderContext) -> bool {
        let (page, now) = (&context.page, context.started);
        // The key of a rule's page has a `#` if listed headers or cookies distinguish it.
        let is_variant = page.is_variant() || (!page.has_variants() && page.cache_key().contains('#'));
        self.new_pages.as_ref().is_none_or(|limiter| limiter.allows(now))
            && (!is_variant || self.variants.allows(page, now))
    }
}

/// Whether the origin sees everything that the client sent.
fn is_whole(request: &Request<()>, client: &Parts) -> bool {
    let is_seen = |(name, value)| request.headers().get_all(name).iter().any(|seen| seen == value);
    request.uri().path_and_query() == client.uri.path_and_query() && client.headers.iter().all(is_seen)
}
