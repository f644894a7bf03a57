//! What operators do through the layer: they name a page by a request, and have it rendered without a visitor.

use std::sync::{Arc, Mutex};

use bytes::Bytes;
use http::request::Parts;
use http::{Request, Response};
use http_body::Body;
use tower::Service;

use super::rfc9111::OriginRequest;
use super::{IsrService, Shared};
use crate::error::Error;
use crate::http::body::BoxError;
use crate::http::request_origin::RequestOrigin;
use crate::http::router::resolve::Resolved;
use crate::pages::Outcome;
use crate::protocol::key::PageKey;
use crate::protocol::request::IdempotentRequest;

impl<S> IsrService<S> {
    /// The page that a request is for, without visiting it; none if it is for none and would be passed on.
    ///
    /// A request that would be refused is [`Kind::Invalid`](crate::Kind::Invalid).
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
        let site = &self.site;
        match site.routes.visit(request, site.isr.pages().store().now()) {
            Resolved::Page(page) => site.key_of(page).map(Some),
            Resolved::Pass(_) => Ok(None),
            Resolved::Refused(refusal) => Err(Error::invalid(refusal.text)),
        }
    }

    /// Renders the page that a request is for, as if a visitor had come, if it is not fresh and nobody else does.
    ///
    /// With an idempotency key and the hash of what was asked for, it is done once however often it is asked for. A key that
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
        S: Service<Request<B>, Response = Response<R>> + Clone + Send + 'static,
        S::Future: Send,
        S::Error: Into<BoxError>,
        B: Default + Send + 'static,
        R: Body<Data = Bytes> + Send + 'static,
        R::Error: Into<BoxError>,
    {
        let site = &self.site;
        let (parts, ()) = request.into_parts();
        let page = match site.routes.visit(&parts, site.isr.pages().store().now()) {
            Resolved::Page(page) => page,
            Resolved::Refused(refusal) => return Err(Error::invalid(refusal.text)),
            Resolved::Pass(reason) => {
                let why = reason.as_str();
                return Err(Error::invalid(format!("nothing is kept of the answer to this request ({why})")));
            }
        };
        let follow_origin = page.route.follow_origin.then(|| (page.target(), page.own_host(), page.number));
        let (policy, key) = (page.route.policy, site.key_of(page)?);
        if let Some(request) = &once
            && !site.isr.pages().store().bind_request(&request.key, &request.hash).await?
        {
            return Ok(Outcome::OtherRequest);
        }
        if let Some((target, host, route)) = follow_origin {
            let forward = OriginRequest::new(parts, self.inner.clone(), None).to(target, route).at(host);
            let forward = Arc::new(forward);
            let site = site.clone();
            let render = move |context| async move {
                site.fetch(forward, context, false, RequestOrigin::Background).await.outcome
            };
            return self.site.isr.regenerate(&key, &policy, once, render).await;
        }
        let shared = Arc::new(Shared { parts, service: Mutex::new(self.inner.clone()) });
        let render = {
            let site = site.clone();
            move |context| async move { site.render(shared, context).await.outcome }
        };
        site.isr.regenerate(&key, &policy, once, render).await
    }
}
