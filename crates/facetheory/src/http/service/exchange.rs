//! A client's request for a page, and the render that it may start.

use std::sync::Arc;

use http::header::{HeaderName, HeaderValue, IF_RANGE, RANGE};
use http::request::Parts;
use http::uri::Scheme;
use http::{Method, Request, Uri};
use parking_lot::Mutex;
use tabletheory::Timestamp;

use super::CacheHandler;
use crate::engine::Offload;
use crate::http::cacheability::Limits;
use crate::http::credentials::has_credentials;
use crate::http::fetch::{Fetch, FetchResult};
use crate::http::headers::CONDITIONS;
use crate::http::regeneration_queue::QueuedRegeneration;
use crate::http::renderer::Renderer;
use crate::http::request_origin::RequestOrigin;
use crate::http::router::origin_request::narrowed_uri;
use crate::http::router::rejection::Rejection;
use crate::http::router::resolve::ResolvedPage;
use crate::http::router::route::Route;
use crate::http::variant_limit::Admission;
use crate::pages::render::{Render, RenderContext};
use crate::protocol::freshness::Freshness;
use crate::protocol::key::PageKey;
use crate::protocol::row::Meta;

/// A client's request for a page and the service that can handle it. A render that the request starts shares it, and may
/// outlive the request.
pub(super) struct Exchange<S, B> {
    pub(super) handler: Arc<CacheHandler>,
    pub(super) page: ResolvedPage,
    pub(super) request_id: HeaderValue,
    /// The client's request; on a route that follows its origin, as the origin may see it.
    pub(super) client: Parts,
    /// The request target of a render, if it is not the client's.
    target: Option<Uri>,
    service: Mutex<S>,
    /// The body of the client's request, for the first time that it is forwarded.
    body: Mutex<Option<B>>,
}

impl CacheHandler {
    pub(super) fn exchange<S, B>(
        self: &Arc<Self>,
        request: Request<Option<B>>,
        service: S,
        page: ResolvedPage,
        request_id: HeaderValue,
    ) -> Arc<Exchange<S, B>> {
        let ((mut client, body), route) = (request.into_parts(), self.routes.at(page.route));
        let mut target = None;
        if route.follow_origin {
            target = narrowed_uri(route, &client);
            self.routes.make_forwardable(route, &mut client);
        }
        let (service, body) = (Mutex::new(service), Mutex::new(body));
        Arc::new(Exchange { handler: self.clone(), page, request_id, client, target, service, body })
    }
}

impl<S: Renderer<B>, B: Default + Send + 'static> Exchange<S, B> {
    pub(super) fn route(&self) -> &Route {
        self.handler.routes.at(self.page.route)
    }

    pub(super) fn service(&self) -> S {
        self.service.lock().clone()
    }

    /// Returns the client's request with the query of the key, for a response that may change the stored one.
    pub(super) fn keyed_request(&self) -> Request<B> {
        let mut request = self.request();
        if let Some(target) = &self.target {
            request.uri_mut().clone_from(target);
        }
        request
    }

    /// Returns the client's whole request.
    pub(super) fn request(&self) -> Request<B> {
        Request::from_parts(self.client.clone(), self.take_body())
    }

    fn take_body(&self) -> B {
        self.body.lock().take().unwrap_or_default()
    }

    /// Fetches the page from the origin, and decides what is cached of the response.
    pub(super) async fn render(
        self: Arc<Self>,
        context: RenderContext,
        origin: RequestOrigin,
    ) -> FetchResult {
        let (handler, route) = (&self.handler, self.route());
        let is_same_policy = |meta: &&Meta| meta.generation.follows_origin() == route.follow_origin;
        let stored = context.served.as_ref().filter(is_same_policy);
        let request = match self.origin_request(stored.is_some(), origin) {
            Ok(request) => request,
            Err(rejection) => return FetchResult::failed(rejection.text),
        };
        // Without a lease nothing is stored. Such a page must not count as uncacheable, or each client would go to the origin.
        let is_new = context.leased && context.served.is_none();
        let allows_new = !is_new || handler.allows_new(&context);
        let fetch = Fetch {
            stored,
            may_revalidate: handler.may_revalidate(&context, stored).await,
            is_whole_request: route.follow_origin || is_whole(&request, &self.client),
            limits: Limits { max_bytes: handler.max_page_bytes, allows_new },
            ..self.fetch(&context.page, context.started)
        };
        // The client's own body stays available in case its whole request has to be forwarded.
        let body = || if route.follow_origin { self.take_body() } else { B::default() };
        let mut result = fetch.send(self.service(), request, body, || handler.now()).await;
        if is_new && matches!(result.outcome, Ok(Render::Page(_))) && !handler.admits(&context).await {
            // Requests call the origin by themselves, also this one: its response is not at hand any more.
            result.outcome = Ok(Render::Declined);
        }
        result
    }

    /// Returns the function that sends the regeneration of the page to the queue, if there is one.
    ///
    /// Credentials do not leave this process. A page that follows its origin is rendered with the client's own request, which
    /// may contain them; a rule may list a header with credentials, or cookies.
    pub(super) fn offload(&self, page: &PageKey) -> Option<Offload> {
        let queue = self.handler.queue.clone().filter(|_| !self.route().follow_origin)?;
        let mut request = self.handler.routes.keyed_request(self.route(), &self.client).ok()?;
        if has_credentials(request.headers()) {
            return None;
        }
        if let Some(scheme) = self.client.extensions.get::<Scheme>() {
            request.extensions_mut().insert(scheme.clone());
        }
        let page = page.clone();
        Some(Arc::new(move |generated_at| {
            let (request, queue, page) = (request.clone(), queue.clone(), page.clone());
            Box::pin(async move {
                let regeneration = QueuedRegeneration { request, page: page.clone(), generated_at };
                let sent = queue.send(regeneration).await;
                if let Err(error) = &sent {
                    let page = page.redacted();
                    tabletheory::warn_limited!(%page, %error, "a regeneration was not queued, and runs in this process");
                }
                sent.is_ok()
            })
        }))
    }

    /// A request for a page that is not stored, without limits on new pages.
    pub(super) fn fetch<'a>(&'a self, page: &'a PageKey, requested: Timestamp) -> Fetch<'a> {
        Fetch {
            page,
            route: self.route(),
            client: &self.client,
            stored: None,
            may_revalidate: false,
            is_whole_request: true,
            limits: Limits { max_bytes: self.handler.max_page_bytes, allows_new: true },
            tag_headers: &self.handler.tag_headers,
            memory: self.handler.isr.memory_budget(),
            requested,
        }
    }

    /// Returns the request that the origin gets, without conditions: keyed input only, or the client's own request where the
    /// origin decides about caching.
    fn origin_request(&self, is_stored: bool, origin: RequestOrigin) -> Result<Request<()>, Rejection> {
        let (route, client) = (self.route(), &self.client);
        if !route.follow_origin {
            let mut request = self.handler.routes.keyed_request(route, client)?;
            // Outer services may have added values that a router needs, such as path parameters. Clients cannot set them.
            request.extensions_mut().clone_from(&client.extensions);
            // An outer layer may have set it for the client's request, which this is not.
            request.extensions_mut().remove::<RequestOrigin>();
            self.handler.routes.fix_scheme(route, request.extensions_mut());
            return Ok(request);
        }
        let mut request = Request::from_parts(client.clone(), ());
        *request.method_mut() = Method::GET;
        request.extensions_mut().insert(origin);
        if let Some(target) = &self.target {
            request.uri_mut().clone_from(target);
        }
        // The whole response is stored already, or will be.
        let ranges: &[HeaderName] = if is_stored { &[RANGE, IF_RANGE] } else { &[] };
        CONDITIONS.iter().chain(ranges).for_each(|name| drop(request.headers_mut().remove(name)));
        Ok(request)
    }
}

impl CacheHandler {
    /// Whether the stored response may be revalidated instead of fetched again.
    async fn may_revalidate(&self, context: &RenderContext, stored: Option<&Meta>) -> bool {
        let Some(stored) = stored else { return false };
        if !stored.generation.follows_origin() {
            // The validators of another deployment's page say nothing about this deployment; those of another service may
            // be of any deployment.
            let deployment = stored.generation.content.deployment.as_deref();
            let is_ours = self.isr.deployment().is_none_or(|ours| deployment == Some(ours));
            return is_ours && self.may_be_served(context, stored).await;
        }
        if context.page.is_variant() {
            // The row of a variant does not tell whether its address was invalidated.
            return !self.isr.pages().store().is_outdated(&context.page, stored).await.unwrap_or(true);
        }
        self.may_be_served(context, stored).await
    }

    /// Whether a stored response was not hard invalidated, by itself or by a tag.
    async fn may_be_served(&self, context: &RenderContext, stored: &Meta) -> bool {
        let freshness = self.isr.pages().store().freshness(&context.page, stored).await;
        freshness.is_ok_and(|freshness| freshness != Freshness::MustNotServe)
    }

    /// Whether the limits permit to cache a page or a variant that is not cached yet.
    fn allows_new(&self, context: &RenderContext) -> bool {
        let (page, now) = (&context.page, context.started);
        // Until enough pages are evicted, a store that is full takes no new ones.
        let has_room = !self.isr.pages().store().is_full()
            && self.new_pages.as_ref().is_none_or(|limiter| limiter.allows(now));
        has_room && (!is_variant(page) || self.variants.has_place(page))
    }

    /// Whether a page or a variant may be cached whose response is to be stored. The least used variant of a page that has as
    /// many as it may have is evicted for a new one.
    async fn admits(&self, context: &RenderContext) -> bool {
        let page = &context.page;
        if !is_variant(page) {
            return true;
        }
        match self.variants.admit(page, context.started) {
            Admission::Admitted => true,
            Admission::Refused => false,
            Admission::Replaces(least_used) => {
                let evicted = self.isr.evict(&least_used).await;
                if let Err(error) = &evicted {
                    let page = page.redacted();
                    tabletheory::warn_limited!(%error, %page, "the least used variant was not evicted; the new one is not cached");
                }
                evicted.is_ok()
            }
        }
    }
}

/// Whether a page is one of several at its address: by `Vary`, or by the headers or cookies that its route lists, which the
/// key has after a `#`.
pub(super) fn is_variant(page: &PageKey) -> bool {
    page.is_variant() || (!page.has_variants() && page.cache_key().contains('#'))
}

/// Whether the origin sees everything that the client sent.
fn is_whole(request: &Request<()>, client: &Parts) -> bool {
    let is_seen = |(name, value)| request.headers().get_all(name).iter().any(|seen| seen == value);
    request.uri().path_and_query() == client.uri.path_and_query() && client.headers.iter().all(is_seen)
}
