//! The tower layer: caches the responses of any service.

mod builder;
mod exchange;
mod head;
mod operations;
mod pass_through;
mod select;
mod serve;
#[cfg(test)]
mod tests;

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use bytes::Bytes;
use http::header::{ACCEPT_ENCODING, HeaderName, HeaderValue};
use http::request::Parts;
use http::{HeaderMap, Method, Request, Response};
use http_body::Body;
use tabletheory::Timestamp;
use tower::{Layer, Service};

use self::exchange::is_variant;
use crate::engine::{CachedPage, Isr};
use crate::http::body::{BoxError, IsrBody};
use crate::http::compression::accepts_compressed;
use crate::http::forced_regenerations::ForcedRegenerations;
use crate::http::limits::NewPageLimiter;
use crate::http::regeneration_queue::RegenerationQueue;
use crate::http::respond::{self, ResponseContext};
use crate::http::response_cache::{Hit, ResponseCache};
use crate::http::router::resolve::{Resolution, ResolvedRequest};
use crate::http::router::routes::Routes;
use crate::http::semantics::cache_status::{RequestIds, request_id};
use crate::http::variant_limit::VariantLimiter;
use crate::protocol::key::{KeyScheme, PageKey};

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
#[must_use]
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
    forced: Arc<ForcedRegenerations>,
    expose_page_key: bool,
    /// The headers of responses that name tags.
    tag_headers: Arc<[HeaderName]>,
    strip_tags: bool,
    ids: Arc<RequestIds>,
    responses: Arc<ResponseCache>,
    queue: Option<Arc<dyn RegenerationQueue>>,
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
    S: Clone + Send + 'static,
    S: Service<Request<B>, Response = Response<R>, Error: Into<BoxError>, Future: Send>,
    B: Default + Send + 'static,
    R: Body<Data = Bytes, Error: Into<BoxError>> + Send + 'static,
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

    /// Returns the response if the page is in memory and fresh: the page, a part of it, or the outcome of the request's
    /// conditions. Never touches the table or the inner service, so it needs no `await`. `None` means "call the service".
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

    /// Like [`get_fresh`](IsrService::get_fresh), but reads a page that is not in memory if its stores respond without
    /// waiting, as the embedded ones do. If they do not, the service joins the read. For servers within a tokio runtime.
    ///
    /// ```
    /// # use facetheory::{Bodies, Isr, IsrLayer, Pages, PageStore, Policy, Route, Routes};
    /// # use http::{Request, Response};
    /// # use std::{convert::Infallible, sync::Arc, time::Duration};
    /// # use tower::{Layer, ServiceExt, service_fn};
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> facetheory::Result<()> {
    /// let pages = Pages::new(PageStore::new(Arc::new(tabletheory::MemoryTable::new())), Bodies::memory());
    /// let routes = || Routes::new([Route::new("/", Policy::every(Duration::from_secs(60)))]);
    /// let origin = service_fn(|_: Request<String>| async { Ok::<_, Infallible>(Response::new("home".to_owned())) });
    /// let service = IsrLayer::new(Isr::new(pages.clone()), routes()?).layer(origin);
    /// let request = || Request::get("/").header("host", "example.com").body(String::new()).unwrap();
    /// service.oneshot(request()).await.unwrap();
    ///
    /// let other = IsrLayer::new(Isr::new(pages), routes()?).layer(origin);
    /// let (parts, _) = request().into_parts();
    /// let resolved = other.resolve(&parts);
    /// assert!(other.get_fresh(&parts, &resolved).is_none(), "another process has it in memory");
    /// assert!(other.get_fresh_or_read(&parts, &resolved).is_some());
    /// # Ok(()) }
    /// ```
    #[must_use]
    pub fn get_fresh_or_read<'r>(&self, request: &Parts, resolved: &'r ResolvedRequest) -> Option<Hit<'r>> {
        let hit = self.handler.get_fresh(request, resolved);
        if hit.is_some() || !self.handler.read_ahead(resolved) {
            return hit;
        }
        self.handler.get_fresh(request, resolved)
    }
}

impl CacheHandler {
    fn resolve(&self, request: &Parts) -> ResolvedRequest {
        let mut resolution = self.routes.resolve(request, &self.scheme, || self.now());
        if self.strict
            && let Resolution::PassThrough(_) = resolution
            && let Err(rejection) = self.routes.check_passed_through(request)
        {
            resolution = Resolution::Rejected(rejection);
        }
        let given = request_id(&request.headers).and_then(|id| HeaderValue::from_str(id).ok());
        let request_id = given.unwrap_or_else(|| self.ids.next());
        ResolvedRequest { generation: self.generation, request_id, resolution }
    }

    fn get_fresh<'r>(&self, request: &Parts, resolved: &'r ResolvedRequest) -> Option<Hit<'r>> {
        let Resolution::Page(page) = &resolved.resolution else { return None };
        if resolved.generation != self.generation {
            return None;
        }
        let (route, now) = (self.routes.at(page.route), self.now());
        let (key, served) = self.select_fresh(&page.key, route, request, now)?;
        if is_variant(&key) {
            self.variants.used(&key);
        }
        let context = ResponseContext {
            request,
            route,
            now,
            request_id: &resolved.request_id,
            cache_key: key.cache_key(),
            forward_reason: None,
            origin_status: None,
            reached_limit: None,
        };
        let mut hit = self.responses.get_or_build(&context, &served, |coding| {
            let mut headers = context.headers(&served, coding);
            self.strip(&mut headers);
            headers
        });
        self.compress_if_accepted(&key, &served.page, &request.headers);
        hit.page = self.expose_page_key.then_some(key);
        Some(hit)
    }

    /// Reads the page of a request into memory if that needs no waiting. Returns whether it was read.
    fn read_ahead(&self, resolved: &ResolvedRequest) -> bool {
        let Resolution::Page(page) = &resolved.resolution else { return false };
        resolved.generation == self.generation
            && self.isr.read_ahead(&page.key, &self.routes.at(page.route).policy)
    }

    /// Compresses a page for later clients, if this one accepts a compressed form and there is none yet.
    fn compress_if_accepted(&self, key: &PageKey, page: &Arc<CachedPage>, request: &HeaderMap) {
        // The cheapest checks come first, and they decide most requests: no such header, or compressed already.
        if request.contains_key(ACCEPT_ENCODING)
            && page.lacks_compressed_forms()
            && accepts_compressed(request)
        {
            self.isr.compress(key, page);
        }
    }

    /// Removes the headers that clients must not see.
    fn strip(&self, headers: &mut HeaderMap) {
        if self.strip_tags {
            self.tag_headers.iter().for_each(|name| drop(headers.remove(name)));
        }
    }

    fn now(&self) -> Timestamp {
        self.isr.now()
    }
}
