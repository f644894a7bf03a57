//! The tower layer: any service becomes one whose pages are rendered once and served to everyone.

mod builder;
mod operations;
mod rfc9111;

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
use crate::http::router::resolve::{PassReason, Resolved, ResolvedPage};
use crate::http::router::routes::Routes;
use crate::http::semantics::cache_status::{RequestIds, request_id};
use crate::http::variant_limiter::VariantLimiter;
use crate::pages::render::RenderContext;
use crate::protocol::key::{KeyScheme, PageKey};
use rfc9111::OriginRequest;

/// Incremental static regeneration for any service: what it answers is kept as its routes say.
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
    site: Arc<Site>,
}

#[derive(Clone, Debug)]
struct Site {
    isr: Isr,
    routes: Routes,
    scheme: KeyScheme,
    max_page_bytes: u64,
    /// Whether requests that are passed on are checked as those for pages are.
    strict: bool,
    newcomers: Option<Arc<NewPageLimiter>>,
    variants: Arc<VariantLimiter>,
    tells_page: bool,
    strips_tags: bool,
    ids: Arc<RequestIds>,
    replies: Arc<ResponseCache>,
}

impl<S> Layer<S> for IsrLayer {
    type Service = IsrService<S>;

    fn layer(&self, inner: S) -> IsrService<S> {
        IsrService { inner, site: self.site.clone() }
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
    site: Arc<Site>,
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

    /// Always ready: a page that is kept needs no renderer. Whoever does ask the renderer waits until that is ready, so
    /// that no visitor holds a place of it (in a limit of concurrency, say) while its own render waits for another.
    fn poll_ready(&mut self, _context: &mut Context<'_>) -> Poll<Result<(), S::Error>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<B>) -> Self::Future {
        let (parts, body) = request.into_parts();
        if let Some(hit) = self.get_fresh(&parts) {
            return Box::pin(async move { Ok(hit.into_response()) });
        }
        let request = Request::from_parts(parts, body);
        let (site, service) = (self.site.clone(), self.inner.clone());
        Box::pin(async move {
            let is_head = request.method() == Method::HEAD;
            let mut response = site.clone().serve(service, request).await?;
            if is_head && !response.body().is_end_stream() {
                // Servers for HTTP/2 would send it.
                response = respond::without_body(response);
            }
            site.strip(response.headers_mut());
            Ok(response)
        })
    }
}

impl<S> IsrService<S> {
    /// The answer, if the page is in memory and fresh and nothing else has to be found out: most visits, without the weight
    /// of a future. None says nothing about the request; calling the service does.
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
    /// assert!(service.get_fresh(&request().into_parts().0).is_none());
    /// assert_eq!(service.clone().oneshot(request()).await.unwrap().headers()["x-facetheory-isr"], "miss");
    /// let hit = service.get_fresh(&request().into_parts().0).unwrap();
    /// assert_eq!(hit.into_response().headers()["x-facetheory-isr"], "hit");
    /// # Ok(()) }
    /// ```
    #[must_use]
    pub fn get_fresh(&self, request: &Parts) -> Option<Hit> {
        let site = &*self.site;
        if !is_plain(request) {
            return None;
        }
        let now = site.isr.pages().store().now();
        let Resolved::Page(page) = site.routes.visit(request, now) else { return None };
        let route = page.route;
        let key = site.key_of(page).ok()?;
        let id = site.request_id(request);
        let visitor = Visitor { parts: request, route, now, id: &id };
        let (key, mut hit) = if route.follow_origin {
            site.stored_at_hand(&visitor, key)?
        } else {
            let FreshPage::Page(served) = site.isr.get_fresh_with(&key, &route.policy, &route.policy, now)?
            else {
                return None;
            };
            let coded = respond::coded(&served.page, &request.headers);
            (key, site.replies.reply(&visitor, &served, coded, |coded| visitor.coded_page(&served, coded)))
        };
        hit.page = site.tells_page.then_some(key);
        Some(hit)
    }
}

/// What a visit and its render share.
struct Shared<S> {
    parts: Parts,
    service: Mutex<S>,
}

impl<S: Clone> Shared<S> {
    fn service(&self) -> S {
        self.service.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

impl Site {
    async fn serve<S, B>(
        self: Arc<Self>,
        service: S,
        request: Request<B>,
    ) -> Result<Response<IsrBody>, S::Error>
    where
        S: Renderer<B>,
        B: Default + Send + 'static,
    {
        let now = self.isr.pages().store().now();
        let (parts, body) = request.into_parts();
        let id = self.request_id(&parts);
        let page = match self.routes.visit(&parts, now) {
            Resolved::Page(page) => page,
            Resolved::Refused(refusal) => return Ok(respond::refused(&refusal, "refused", &id)),
            Resolved::Pass(reason) => {
                if let Some(refusal) = self.strict.then(|| self.routes.fault(&parts)).flatten() {
                    return Ok(respond::refused(&refusal, "refused", &id));
                }
                if self.may_change(&parts, reason) {
                    let isr = self.isr.clone();
                    let changed = parts.clone();
                    let request = Request::from_parts(parts, body);
                    return isr.run_detached(self.change(service, request, changed, reason, id)).await;
                }
                let request = Request::from_parts(parts, body);
                let mut response = self.pass(service, request, reason.as_str(), &id).await?;
                if reason == PassReason::Draft {
                    // Caches in front of us do not know preview, and would show this one to everyone.
                    response
                        .headers_mut()
                        .insert(CACHE_CONTROL, HeaderValue::from_static("private, no-store"));
                }
                return Ok(response);
            }
        };
        let follow_origin = page.route.follow_origin.then(|| (page.target(), page.own_host()));
        let (policy, route) = (page.route.policy, page.number);
        let key = match self.key_of(page) {
            Ok(key) => key,
            Err(error) => return Ok(respond::refused(&Rejection::bad(error.to_string()), "refused", &id)),
        };
        if let Some((target, host)) = follow_origin {
            let forward = OriginRequest::new(parts, service, Some(body)).to(target, route).at(host);
            return self.follow(forward, &key, &policy, &id).await;
        }
        let shared = Arc::new(Shared { parts, service: Mutex::new(service) });
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
        if self.tells_page {
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
        let Resolved::Page(page) = self.routes.visit(&shared.parts, context.started) else {
            return fetch::Rendering::failed("the request is no longer one for a page");
        };
        let mut request = match page.request(&shared.parts) {
            Ok(request) => request,
            Err(rejection) => return fetch::Rendering::failed(rejection.text),
        };
        // What services around this one have found out, such as the parameters of a path: a router needs them, and no
        // visitor can set them.
        request.extensions_mut().clone_from(&shared.parts.extensions);
        // A layer around this one may have said so of the visitor's request.
        request.extensions_mut().remove::<RequestOrigin>();
        let wish = StoreContext {
            route: page.route,
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
        self.newcomers.as_ref().is_none_or(|newcomers| newcomers.welcomes(now))
    }

    /// Whether another variant of a page may be kept, if it is one: a page that depends on listed headers or cookies.
    fn welcomes_variant(&self, context: &RenderContext) -> bool {
        !context.page.cache_key().contains('#') || self.variants.welcomes(&context.page, context.started)
    }

    fn key_of(&self, page: ResolvedPage<'_>) -> Result<PageKey, Error> {
        let key = self.scheme.page(page.tenant.as_ref(), page.key)?;
        let key =
            key.at_path(page.path).of_known_route(page.route.name.clone()).with_private_part(page.private);
        Ok(if page.route.follow_origin { key.with_variants() } else { key })
    }

    /// Takes away what is not for visitors.
    fn strip(&self, headers: &mut HeaderMap) {
        if self.strips_tags {
            [SURROGATE_KEY, CACHE_TAG].iter().for_each(|name| drop(headers.remove(name)));
        }
    }

    /// The id of a request: the visitor's, or a new one.
    fn request_id(&self, parts: &Parts) -> HeaderValue {
        let given = request_id(&parts.headers).and_then(|id| HeaderValue::from_str(id).ok());
        given.unwrap_or_else(|| self.ids.next())
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
