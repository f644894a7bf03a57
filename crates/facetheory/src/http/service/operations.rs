//! Operations on pages that are named by a request: for operators and administration.

use bytes::Bytes;
use http::request::Parts;
use http::{Request, Response};
use http_body::Body;
use tower::Service;

use super::IsrService;
use crate::error::Error;
use crate::http::body::BoxError;
use crate::http::request_origin::RequestOrigin;
use crate::http::router::resolve::{Resolution, ResolvedRequest};
use crate::pages::Outcome;
use crate::protocol::key::PageKey;
use crate::protocol::request::IdempotentRequest;

impl<S> IsrService<S> {
    /// Returns the key of the page that a request is for, or `None` if the request would be passed through.
    ///
    /// A request that would be rejected is an error of kind [`Invalid`](crate::Kind::Invalid).
    ///
    /// ```
    /// # use facetheory::{Bodies, Isr, IsrLayer, Pages, PageStore, Policy, Route, Routes};
    /// # use http::Request;
    /// # use std::{sync::Arc, time::Duration};
    /// # use tower::Layer;
    /// # let pages = Pages::new(PageStore::new(Arc::new(tabletheory::MemoryTable::new())), Bodies::memory());
    /// let routes = Routes::new([Route::new("/posts/{slug}", Policy::every(Duration::from_secs(60)))])?;
    /// let service = IsrLayer::new(Isr::new(pages), routes).layer("any service");
    /// let page = |path: &str| {
    ///     let (request, ()) = Request::get(path).header("host", "example.com").body(()).unwrap().into_parts();
    ///     service.page(&request)
    /// };
    /// assert_eq!(page("/posts/a")?.unwrap().cache_key(), "default::example.com/posts/{slug}?slug=a");
    /// assert!(page("/about")?.is_none());
    /// # Ok::<(), facetheory::Error>(())
    /// ```
    pub fn page(&self, request: &Parts) -> Result<Option<PageKey>, Error> {
        match self.handler.resolve(request).resolution {
            Resolution::Page(page) => Ok(Some(page.key)),
            Resolution::PassThrough(_) => Ok(None),
            Resolution::Rejected(rejection) => Err(Error::invalid(rejection.text)),
        }
    }

    /// Whether its route distinguishes the page that a request is for from others of the same URL, by headers or cookies.
    ///
    /// ```no_run
    /// # fn f(service: facetheory::IsrService<()>, request: http::request::Parts) {
    /// let has_others = service.is_selected_by_headers(&request);
    /// # }
    /// ```
    #[must_use]
    pub fn is_selected_by_headers(&self, request: &Parts) -> bool {
        let Resolution::Page(page) = self.handler.resolve(request).resolution else { return false };
        let route = self.handler.routes.at(page.route);
        !route.headers.is_empty() || !route.cookies.is_empty()
    }

    /// Renders the page that a request is for, unless it is fresh or another worker renders it.
    ///
    /// With an idempotency key and the hash of the request, it is done once, however often it is requested. A key that
    /// came with another hash before is [`Outcome::OtherRequest`], whatever page that was about, and nothing is done.
    ///
    /// ```
    /// # use facetheory::{Bodies, IdempotentRequest, Isr, IsrLayer, Outcome, Pages, PageStore, Policy, Route, Routes};
    /// # use http::{Request, Response};
    /// # use std::{convert::Infallible, sync::Arc, time::Duration};
    /// # use tower::{Layer, service_fn};
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> facetheory::Result<()> {
    /// # let pages = Pages::new(PageStore::new(Arc::new(tabletheory::MemoryTable::new())), Bodies::memory());
    /// let routes = Routes::new([Route::new("/posts/{slug}", Policy::every(Duration::from_secs(60)))])?;
    /// let service = IsrLayer::new(Isr::new(pages), routes).layer(service_fn(|_: Request<String>| async {
    ///     Ok::<_, Infallible>(Response::new("<h1>Hello</h1>".to_owned()))
    /// }));
    /// let request = Request::get("/posts/a").header("host", "example.com").body(()).unwrap();
    /// let outcome = service.regenerate(request, Some(IdempotentRequest::new("order-7", "sha256:1"))).await?;
    /// assert!(matches!(outcome, Outcome::Published(_)));
    /// # Ok(()) }
    /// ```
    pub async fn regenerate<B, R>(
        &self,
        request: Request<()>,
        once: Option<IdempotentRequest>,
    ) -> Result<Outcome, Error>
    where
        S: Clone + Send + 'static,
        S: Service<Request<B>, Response = Response<R>, Error: Into<BoxError>, Future: Send>,
        B: Default + Send + 'static,
        R: Body<Data = Bytes, Error: Into<BoxError>> + Send + 'static,
    {
        let handler = &self.handler;
        let (parts, ()) = request.into_parts();
        let ResolvedRequest { resolution, request_id, .. } = handler.resolve(&parts);
        let page = match resolution {
            Resolution::Page(page) => page,
            Resolution::Rejected(rejection) => return Err(Error::invalid(rejection.text)),
            Resolution::PassThrough(reason) => {
                let why = reason.as_str();
                return Err(Error::invalid(format!("responses to this request are not cached ({why})")));
            }
        };
        if let Some(request) = &once
            && !handler.isr.pages().store().bind_request(&request.key, &request.hash).await?
        {
            return Ok(Outcome::OtherRequest);
        }
        let request = Request::from_parts(parts, None);
        let exchange = handler.exchange(request, self.inner.clone(), page, request_id);
        let (key, policy) = (&exchange.page.key, &exchange.route().policy);
        let shared = exchange.clone();
        let render =
            move |context| async move { shared.render(context, RequestOrigin::Background).await.outcome };
        handler.isr.regenerate(key, policy, once, render).await
    }
}
