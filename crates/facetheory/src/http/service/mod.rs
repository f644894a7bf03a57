//! The tower layer: caches the responses of any service.

mod builder;
mod operations;
mod rfc9111;

use std::borrow::Cow;
use std::future::Future;
use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll};

use bytes::Bytes;
use http::header::{AUTHORIZATION, CACHE_CONTROL, COOKIE, HeaderValue};
use http::request::Parts;
use http::{HeaderMap, Method, Request, Response, StatusCode};
use http_body::Body;
use http_body_util::BodyExt as _;
use tabletheory::Timestamp;
use tower::{Layer, Service, ServiceExt as _};

use crate::engine::{FreshPage, GetResult, Isr};
use crate::error::Error;
use crate::http::body::{BoxError, IsrBody};
use crate::http::fetch::{self, FailedRender, StoreContext};
use crate::http::headers::{CACHE_TAG, SURROGATE_KEY};
use crate::http::new_page_limiter::NewPageLimiter;
use crate::http::renderer::Renderer;
use crate::http::request_origin::RequestOrigin;
use crate::http::respond::{self, Visitor};
use crate::http::response_cache::{Hit, ResponseCache, is_plain};
use crate::http::router::rejection::Rejection;
use crate::http::router::resolve::{PassReason, Resolution, ResolvedPage, ResolvedRequest};
use crate::http::router::routes::Routes;
use crate::http::semantics::cache_status::{RequestIds, request_id};
use crate::http::variant_limiter::VariantLimiter;
use crate::pages::render::RenderContext;
use crate::protocol::key::KeyScheme;

/// Incremental static regeneration for any service: its responses are cached as the routes say.
///
/// ```
/// use facetheory::{Bodies, Isr, IsrLayer, Pages, PageStore, Policy, Route, Routes};
/// use http::{Request, Response};
/// use std::{convert::Infallible, sync::Arc, time::Duration};
/// use tower::{Layer, ServiceExt, service_fn};
///
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> facetheory::Result<()> {
/// let pages = Pages::new(PageStore::new(Arc::new(tabletheory::MemoryTable::new())), Bodies::memory());
/// let routes = Routes::new([Route::new("/posts/{slug}", Policy::every(Duration::from_secs(60)))])?;
/// let layer = IsrLayer::new(Isr::new(pages), routes);
///
/// let service = layer.layer(service_fn(|request: Request<String>| async move {
///     Ok::<_, Infallible>(Response::new(format!("<h1>{}</h1>", request.uri().path())))
/// }));
/// for state in ["miss", "hit"] {
///     let request = Request::get("/posts/hello").header("host", "example.com").body(String::new()).unwrap();
///     let response = service.clone().oneshot(request).await.unwrap();
///     assert_eq!(response.headers()["x-facetheory-isr"], state);
/// }
/// # Ok(()) }
/// ```
#[derive(Clone, Debug)]
pub struct IsrLayer {
    handler: Arc<CacheHandler>,
}

/// Everything that services of one layer share: the engine, the routes and the settings.
#[derive(Clone, Debug)]
struct CacheHandler {
    /// Identifies these routes and settings, see [`ResolvedRequest`].
    generation: u64,
    isr: Isr,
    routes: Routes,
    scheme: KeyScheme,
    max_page_bytes: u64,
    /// See [`IsrLayer::strict`].
    strict: bool,
    new_pages: Option<Arc<NewPageLimiter>>,
    variants: Arc<VariantLimiter>,
    expose_page_key: bool,
    strip_tags: bool,
    ids: Arc<RequestIds>,
    responses: Arc<ResponseCache>,
}

impl<S> Layer<S> for IsrLayer {
    type Service = IsrService<S>;

    fn layer(&self, inner: S) -> IsrService<S> {
        IsrService { inner, handler: self.handler.clone() }
    }
}

/// A service under an [`IsrLayer`].
///
/// ```
/// # use facetheory::{Bodies, Isr, IsrLayer, IsrService, Pages, PageStore, Routes};
/// # use std::sync::Arc;
/// # use tower::Layer;
/// # let pages = Pages::new(PageStore::new(Arc::new(tabletheory::MemoryTable::new())), Bodies::memory());
/// let layer = IsrLayer::new(Isr::new(pages), Routes::new([])?);
/// let service: IsrService<&str> = layer.layer("any service");
/// # Ok::<(), facetheory::Error>(())
/// ```
#[derive(Clone, Debug)]
pub struct IsrService<S> {
    inner: S,
    handler: Arc<CacheHandler>,
}

impl<S, B, R> Service<Request<B>> for IsrService<S>
where
    S: Service<Request<B>, Response = Response<R>> + Clone + Send + 'static,
    S::Future: Send,
    S::Error: Into<BoxError>,
    B: Default + Send + 'static,
    R: Body<Data = Bytes> + Send + 'static,
    R::Error: Into<BoxError>,
{
    type Response = Response<IsrBody>;
    type Error = S::Error;
    type Future = Pin<Box<dyn Future<Output = Result<Response<IsrBody>, S::Error>> + Send>>;

    /// Always ready: a hit does not need the inner service. Its readiness is awaited only when it is called. Otherwise a
    /// waiting request would hold a concurrency permit that the render it waits for needs.
    fn poll_ready(&mut self, _context: &mut Context<'_>) -> Poll<Result<(), S::Error>> {
        Poll::Ready(Ok(()))
    }

    /// Handles a request. A [`ResolvedRequest`] in its extensions saves resolving it again.
    fn call(&mut self, request: Request<B>) -> Self::Future {
        let (mut parts, body) = request.into_parts();
        let resolved = parts.extensions.remove::<ResolvedRequest>();
        let resolved = resolved.filter(|resolved| resolved.generation == self.handler.generation);
        let resolved = resolved.unwrap_or_else(|| self.handler.resolve(&parts));
        if let Some(hit) = self.handler.get_fresh(&parts, &resolved) {
            let response = hit.into_response();
            return Box::pin(async move { Ok(response) });
        }
        let request = Request::from_parts(parts, body);
        let (handler, service) = (self.handler.clone(), self.inner.clone());
        Box::pin(async move {
            let is_head = request.method() == Method::HEAD;
            let mut response = handler.clone().serve(service, request, resolved).await?;
            if is_head && !response.body().is_end_stream() {
                // An HTTP/2 server would send the body.
                response = respond::without_body(response);
            }
            handler.strip(response.headers_mut());
            Ok(response)
        })
    }
}

impl<S> IsrService<S> {
    /// Resolves a request: finds its route, builds its cache key, and decides whether it is passed through or rejected.
    ///
    /// For servers that try [`get_fresh`](IsrService::get_fresh) before they call the service: they put the result into the
    /// extensions of the request, so that the service does not resolve it again.
    ///
    /// ```
    /// # use facetheory::{Bodies, Isr, IsrLayer, Pages, PageStore, Policy, Route, Routes};
    /// # use http::{Request, Response};
    /// # use std::{convert::Infallible, sync::Arc, time::Duration};
    /// # use tower::{Layer, ServiceExt, service_fn};
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> facetheory::Result<()> {
    /// # let pages = Pages::new(PageStore::new(Arc::new(tabletheory::MemoryTable::new())), Bodies::memory());
    /// # let routes = Routes::new([Route::new("/", Policy::every(Duration::from_secs(60)))])?;
    /// # let service = IsrLayer::new(Isr::new(pages), routes)
    /// #     .layer(service_fn(|_: Request<String>| async { Ok::<_, Infallible>(Response::new("home".to_owned())) }));
    /// let request = Request::get("/").header("host", "example.com").body(String::new()).unwrap();
    /// let (mut parts, body) = request.into_parts();
    /// let resolved = service.resolve(&parts);
    /// let response = match service.get_fresh(&parts, &resolved) {
    ///     Some(hit) => hit.into_response(),
    ///     None => {
    ///         parts.extensions.insert(resolved);
    ///         service.clone().oneshot(Request::from_parts(parts, body)).await.unwrap()
    ///     }
    /// };
    /// assert_eq!(response.headers()["x-facetheory-isr"], "miss");
    /// # Ok(()) }
    /// ```
    #[must_use]
    pub fn resolve(&self, request: &Parts) -> ResolvedRequest {
        self.handler.resolve(request)
    }

    /// Returns the response if the page is in memory and fresh and the request has no conditions. Never touches the table or
    /// the inner service, so it needs no `await`. `None` means "call the service".
    ///
    /// ```
    /// # use facetheory::{Bodies, Isr, IsrLayer, Pages, PageStore, Policy, Route, Routes};
    /// # use http::{Request, Response};
    /// # use std::{convert::Infallible, sync::Arc, time::Duration};
    /// # use tower::{Layer, ServiceExt, service_fn};
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> facetheory::Result<()> {
    /// # let pages = Pages::new(PageStore::new(Arc::new(tabletheory::MemoryTable::new())), Bodies::memory());
    /// let routes = Routes::new([Route::new("/", Policy::every(Duration::from_secs(60)))])?;
    /// let service = IsrLayer::new(Isr::new(pages), routes)
    ///     .layer(service_fn(|_: Request<String>| async { Ok::<_, Infallible>(Response::new("home".to_owned())) }));
    /// let request = || Request::get("/").header("host", "example.com").body(String::new()).unwrap();
    /// let (parts, _) = request().into_parts();
    /// let resolved = service.resolve(&parts);
    /// assert!(service.get_fresh(&parts, &resolved).is_none());
    /// assert_eq!(service.clone().oneshot(request()).await.unwrap().headers()["x-facetheory-isr"], "miss");
    /// let hit = service.get_fresh(&parts, &resolved).unwrap();
    /// assert_eq!(hit.into_response().headers()["x-facetheory-isr"], "hit");
    /// # Ok(()) }
    /// ```
    #[must_use]
    pub fn get_fresh<'r>(&self, request: &Parts, resolved: &'r ResolvedRequest) -> Option<Hit<'r>> {
        self.handler.get_fresh(request, resolved)
    }
}

/// What a visit and its render share.
struct Shared<S> {
    parts: Parts,
    /// The index of the route.
    route: usize,
    service: Mutex<S>,
}

impl<S: Clone> Shared<S> {
    fn service(&self) -> S {
        self.service.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

impl CacheHandler {
    fn resolve(&self, request: &Parts) -> ResolvedRequest {
        let mut resolution = self.routes.resolve(request, &self.scheme, || self.isr.pages().store().now());
        if self.strict
            && let Resolution::PassThrough(_) = resolution
            && let Err(rejection) = self.routes.check_passed_through(request)
        {
            resolution = Resolution::Rejected(rejection);
        }
        let given = request_id(&request.headers).and_then(|id| HeaderValue::from_str(id).ok());
        let request_id = given.unwrap_or_else(|| self.ids.next());
        tracing::debug!(path = request.uri.path(), "resolved");
        ResolvedRequest { generation: self.generation, request_id, resolution }
    }

    fn get_fresh<'r>(&self, request: &Parts, resolved: &'r ResolvedRequest) -> Option<Hit<'r>> {
        let Resolution::Page(ResolvedPage { route, key }) = &resolved.resolution else { return None };
        if resolved.generation != self.generation || !is_plain(request) {
            return None;
        }
        let (route, now) = (self.routes.at(*route), self.isr.pages().store().now());
        let visitor = Visitor { parts: request, route, now, id: &resolved.request_id };
        let (key, mut hit) = if route.follow_origin {
            self.stored_at_hand(&visitor, key)?
        } else {
            let FreshPage::Page(served) = self.isr.get_fresh_with(key, &route.policy, &route.policy, now)?
            else {
                return None;
            };
            let coded = respond::coded(&served.page, &request.headers);
            let hit =
                self.responses.reply(&visitor, &served, coded, |coded| visitor.coded_page(&served, coded));
            (Cow::Borrowed(key), hit)
        };
        hit.page = self.expose_page_key.then_some(key);
        Some(hit)
    }

    async fn serve<S, B>(
        self: Arc<Self>,
        service: S,
        request: Request<B>,
        resolved: ResolvedRequest,
    ) -> Result<Response<IsrBody>, S::Error>
    where
        S: Renderer<B>,
        B: Default + Send + 'static,
    {
        let (parts, body) = request.into_parts();
        let ResolvedRequest { request_id: id, resolution, .. } = resolved;
        let ResolvedPage { route, key } = match resolution {
            Resolution::Page(page) => page,
            Resolution::Rejected(rejection) => return Ok(respond::refused(&rejection, "refused", &id)),
            Resolution::PassThrough(reason) => {
                if self.may_change(&parts, reason) {
                    let isr = self.isr.clone();
                    let changed = parts.clone();
                    let request = Request::from_parts(parts, body);
                    return isr.run_detached(self.change(service, request, changed, reason, id)).await;
                }
                let request = Request::from_parts(parts, body);
                let mut response = self.pass(service, request, reason.as_str(), &id).await?;
                if reason == PassReason::Preview {
                    // Caches in front of us do not know preview cookies, and would serve this response to everyone.
                    response
                        .headers_mut()
                        .insert(CACHE_CONTROL, HeaderValue::from_static("private, no-store"));
                }
                return Ok(response);
            }
        };
        let policy = self.routes.at(route).policy;
        if self.routes.at(route).follow_origin {
            let forward = self.origin_request(parts, service, Some(body), route);
            return self.follow(forward, &key, &policy, &id).await;
        }
        let shared = Arc::new(Shared { parts, route, service: Mutex::new(service) });
        let render = {
            let (site, shared) = (self.clone(), shared.clone());
            move |context| site.render(shared, context)
        };
        let (answer, own) = self.isr.get_with(&key, &policy, &policy, render).await;
        let head_only = shared.parts.method == Method::HEAD;
        let own = own.map(respond::without_hops);
        let mut response = match (answer, own) {
            (Ok(GetResult::Page(served)), _) => {
                let (route, now) = (self.routes.at(route), self.isr.pages().store().now());
                Ok(Visitor { parts: &shared.parts, route, now, id: &id }.page(&served))
            }
            // The renderer has not seen the visitor's cookies, so an answer for this visitor alone is not what it would
            // say to one who sent some: it is asked again, with all of the request. So it is where there is none.
            (Ok(GetResult::Bypass(reason)), Some(own)) if !shared.parts.headers.contains_key(COOKIE) => {
                Ok(respond::passed(own, reason.word(), &id, head_only))
            }
            (Ok(GetResult::Bypass(reason)), _) => {
                let service = shared.service();
                let parts =
                    Arc::try_unwrap(shared).map_or_else(|shared| shared.parts.clone(), |shared| shared.parts);
                let request = Request::from_parts(parts, body);
                self.pass(service, request, reason.word(), &id).await
            }
            (Err(_), Some(own)) => Ok(respond::passed(own, "render-failed", &id, head_only)),
            (Err(error), None) => Ok(match FailedRender::answer_in(&error) {
                Some(answer) => {
                    respond::passed(respond::without_hops(answer), "render-failed", &id, head_only)
                }
                None => respond::refused(&no_answer(&told(&error)), "render-failed", &id),
            }),
        }?;
        if self.expose_page_key {
            response.extensions_mut().insert(key);
        }
        Ok(response)
    }

    /// Passes on a request that may change something, and makes stale what it has changed. The head of its answer tells.
    async fn change<S, B>(
        self: Arc<Self>,
        service: S,
        request: Request<B>,
        parts: Parts,
        reason: PassReason,
        id: HeaderValue,
    ) -> Result<Response<IsrBody>, S::Error>
    where
        S: Renderer<B>,
    {
        let response = self.pass(service, request, reason.as_str(), &id).await?;
        self.invalidate_after(&parts, response.status(), response.headers().clone()).await;
        Ok(response)
    }

    /// Asks the service itself, and keeps nothing of its answer.
    async fn pass<S, B>(
        &self,
        service: S,
        mut request: Request<B>,
        detail: &'static str,
        id: &HeaderValue,
    ) -> Result<Response<IsrBody>, S::Error>
    where
        S: Renderer<B>,
    {
        request.extensions_mut().insert(RequestOrigin::Client);
        let response = service.oneshot(request).await?;
        let response = response.map(|body| IsrBody::passed(body.map_err(Into::into).boxed_unsync()));
        Ok(respond::passed(response, detail, id, false))
    }

    async fn render<S, B>(self: Arc<Self>, shared: Arc<Shared<S>>, context: RenderContext) -> fetch::Rendering
    where
        S: Renderer<B>,
        B: Default + Send + 'static,
    {
        let route = self.routes.at(shared.route);
        let mut request = match self.routes.keyed_request(route, &shared.parts) {
            Ok(request) => request,
            Err(rejection) => return fetch::Rendering::failed(rejection.text),
        };
        // What services around this one have found out, such as the parameters of a path: a router needs them, and no
        // visitor can set them.
        request.extensions_mut().clone_from(&shared.parts.extensions);
        // A layer around this one may have said so of the visitor's request.
        request.extensions_mut().remove::<RequestOrigin>();
        let wish = StoreContext {
            route,
            method: &shared.parts.method,
            authorized: shared.parts.headers.contains_key(AUTHORIZATION),
            max_bytes: self.max_page_bytes,
            welcome: context.served.is_some()
                || (self.welcomes(context.started) && self.welcomes_variant(&context)),
            whole: is_all_of(&request, &shared.parts),
            deployment: self.isr.deployment(),
        };
        fetch::render(shared.service(), request.map(|()| B::default()), &context, wish).await
    }

    /// Whether a request that is passed on may change what follows its origin.
    fn may_change(&self, parts: &Parts, reason: PassReason) -> bool {
        reason == PassReason::Method && !parts.method.is_safe() && self.routes.any_by_origin()
    }

    /// Whether another page may be kept that was not kept before.
    fn welcomes(&self, now: Timestamp) -> bool {
        self.new_pages.as_ref().is_none_or(|limiter| limiter.welcomes(now))
    }

    /// Whether another variant of a page may be kept, if it is one: a page that depends on listed headers or cookies.
    fn welcomes_variant(&self, context: &RenderContext) -> bool {
        !context.page.cache_key().contains('#') || self.variants.welcomes(&context.page, context.started)
    }

    /// Takes away what is not for visitors.
    fn strip(&self, headers: &mut HeaderMap) {
        if self.strip_tags {
            [SURROGATE_KEY, CACHE_TAG].iter().for_each(|name| drop(headers.remove(name)));
        }
    }
}

/// Whether a request for a renderer has all that its visitor sent.
fn is_all_of(request: &Request<()>, visitor: &Parts) -> bool {
    let seen = |(name, value)| request.headers().get_all(name).iter().any(|seen| seen == value);
    request.uri().path_and_query() == visitor.uri.path_and_query() && visitor.headers.iter().all(seen)
}

fn no_answer(why: &str) -> Rejection {
    Rejection { status: StatusCode::BAD_GATEWAY, text: format!("the page cannot be shown now: {why}") }
}

/// What a visitor is told of a failed render: no more than that it failed, since causes may name what is inside.
fn told(error: &Error) -> String {
    match error.kind() {
        crate::Kind::Render => "it could not be rendered; try again later".to_owned(),
        _ => "a store cannot be reached; try again later".to_owned(),
    }
}
