//! A site behind the layer. A test sets what its renderer returns and reads which requests it received.

use std::convert::Infallible;
use std::future::Future;
use std::ops::Deref;
use std::pin::Pin;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use bytes::Bytes;
use facetheory::{
    Bodies, IsrBuilder, IsrLayer, IsrService, PageStore, Policy, Query, Route, Routes, testing,
};
use http::{HeaderMap, Request, Response};
use http_body::Body as _;
use http_body_util::{BodyExt as _, Full};
use tower::util::BoxCloneService;
use tower::{Layer as _, ServiceExt as _, service_fn};

pub(crate) const NOW: i64 = testing::Site::START;
pub(crate) const INTERVAL: Duration = Duration::from_secs(60);
pub(crate) const SECOND: Duration = Duration::from_secs(1);

type ResponseFuture = Pin<Box<dyn Future<Output = Response<Full<Bytes>>> + Send>>;
type Service = BoxCloneService<Request<Full<Bytes>>, Response<Full<Bytes>>, Infallible>;
type Renderer = Arc<dyn Fn(Request<Full<Bytes>>) -> ResponseFuture + Send + Sync>;

/// One process of a site, with the requests that its renderer received.
#[derive(Clone)]
pub(crate) struct Site {
    process: testing::Site,
    pub(crate) service: IsrService<Service>,
    renderer: Arc<Mutex<Renderer>>,
    requests: Arc<Mutex<Vec<Request<()>>>>,
}

impl Deref for Site {
    type Target = testing::Site;

    fn deref(&self) -> &testing::Site {
        &self.process
    }
}

/// A response that was read to its end.
#[derive(Debug)]
pub(crate) struct ReceivedResponse {
    pub(crate) status: u16,
    pub(crate) headers: HeaderMap,
    pub(crate) body: Bytes,
    /// The exact size hint of the body before it was read.
    pub(crate) size_hint: Option<u64>,
}

impl ReceivedResponse {
    /// A header, or "" if it is missing.
    pub(crate) fn header(&self, name: &str) -> &str {
        self.headers.get(name).map_or("", |value| value.to_str().expect("a text"))
    }

    pub(crate) fn state(&self) -> &str {
        self.header("x-facetheory-isr")
    }

    pub(crate) fn text(&self) -> &str {
        std::str::from_utf8(&self.body).expect("a text")
    }
}

/// Routes over all paths; some keys include more than the URL.
fn routes() -> Vec<Route> {
    let policy = Policy::every(INTERVAL);
    vec![
        Route::new("/{*path}", policy),
        Route::new("/plain/{*path}", policy).query(Query::None).tags(["plain"]),
        Route::new("/some/{*path}", policy)
            .query(Query::only(["page"]))
            .headers(["accept-language"])
            .cookies(["theme"]),
        Route::new("/blocking/{*path}", policy.blocking()),
    ]
}

impl Site {
    pub(crate) fn new() -> Self {
        Site::with(routes())
    }

    pub(crate) fn with(routes: impl IntoIterator<Item = Route>) -> Self {
        Site::of(Routes::new(routes).expect("routes"))
    }

    pub(crate) fn of(routes: Routes) -> Self {
        Site::under(routes, |layer| layer)
    }

    pub(crate) fn under(routes: Routes, change: impl FnOnce(IsrLayer) -> IsrLayer) -> Self {
        Site::over(testing::Site::new(Bodies::memory(), |isr| isr), routes, change)
    }

    /// A site with these bodies.
    pub(crate) fn with_bodies(bodies: Bodies) -> Self {
        Site::over(testing::Site::new(bodies, |isr| isr), Routes::new(routes()).expect("routes"), |layer| {
            layer
        })
    }

    /// A site whose page store has these settings.
    pub(crate) fn over_store(routes: Routes, change: impl FnOnce(PageStore) -> PageStore) -> Self {
        let site = testing::Site::new(Bodies::memory(), |isr| isr);
        let site = testing::Site::over(site.table, site.bodies, change, |isr| isr);
        Site::over(site, routes, |layer| layer)
    }

    /// This engine with other routes, as after a reload.
    pub(crate) fn with_routes(&self, routes: Routes) -> Self {
        Site::over(self.process.clone(), routes, |layer| layer)
    }

    /// Another process over the same pages, in front of the same renderer.
    pub(crate) fn another(&self, routes: Routes) -> Self {
        self.another_with(routes, |isr| isr)
    }

    /// Another process over the same pages, of this deployment.
    pub(crate) fn deployed(&self, deployment: &str) -> Self {
        self.another_with(Routes::new(routes()).expect("routes"), |isr| isr.deployment(deployment))
    }

    fn another_with(&self, routes: Routes, change: impl FnOnce(IsrBuilder) -> IsrBuilder) -> Self {
        let other = Site::over(self.process.another(change), routes, |layer| layer);
        let renderer = self.renderer.clone();
        other.renders(move |request| {
            let renderer = renderer.lock().expect("not poisoned").clone();
            renderer(request)
        });
        other
    }

    fn over(process: testing::Site, routes: Routes, change: impl FnOnce(IsrLayer) -> IsrLayer) -> Self {
        let renderer: Arc<Mutex<Renderer>> =
            Arc::new(Mutex::new(Arc::new(|_| Box::pin(async { Response::new(Full::from("page")) }))));
        let requests: Arc<Mutex<Vec<Request<()>>>> = Arc::default();
        let service = {
            let (renderer, requests) = (renderer.clone(), requests.clone());
            service_fn(move |request: Request<Full<Bytes>>| {
                let (parts, body) = request.into_parts();
                requests.lock().expect("not poisoned").push(Request::from_parts(parts.clone(), ()));
                let renderer = renderer.lock().expect("not poisoned").clone();
                async move { Ok::<_, Infallible>(renderer(Request::from_parts(parts, body)).await) }
            })
        };
        let layer = change(IsrLayer::new(process.isr.clone(), routes).max_page_bytes(100_000));
        Site { process, service: layer.layer(BoxCloneService::new(service)), renderer, requests }
    }

    /// Sets what the renderer returns from now on.
    pub(crate) fn renders<F: Future<Output = Response<Full<Bytes>>> + Send + 'static>(
        &self,
        renderer: impl Fn(Request<Full<Bytes>>) -> F + Send + Sync + 'static,
    ) {
        let boxed: Renderer = Arc::new(move |request| Box::pin(renderer(request)));
        *self.renderer.lock().expect("not poisoned") = boxed;
    }

    /// Sets the response of the renderer from now on.
    pub(crate) fn responds(
        &self,
        status: u16,
        headers: &[(&'static str, &'static str)],
        body: impl Into<Bytes>,
    ) {
        let (headers, body) = (headers.to_vec(), body.into());
        self.renders(move |_| {
            let mut response = Response::builder().status(status);
            for (name, value) in &headers {
                response = response.header(*name, *value);
            }
            let response = response.body(Full::new(body.clone())).expect("a response");
            async move { response }
        });
    }

    /// The requests that the renderer received since the last call.
    pub(crate) fn requests(&self) -> Vec<Request<()>> {
        std::mem::take(&mut *self.requests.lock().expect("not poisoned"))
    }

    pub(crate) async fn get(&self, path: &str) -> ReceivedResponse {
        self.send("GET", path, &[]).await
    }

    pub(crate) async fn get_with(&self, path: &str, headers: &[(&str, &str)]) -> ReceivedResponse {
        self.send("GET", path, headers).await
    }

    pub(crate) async fn send(&self, method: &str, path: &str, headers: &[(&str, &str)]) -> ReceivedResponse {
        let mut request = Request::builder().method(method).uri(path);
        if !headers.iter().any(|(name, _)| *name == "host") {
            request = request.header("host", "example.com");
        }
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        let request = request.body(Full::default()).expect("a request");
        let response = self.service.clone().oneshot(request).await.expect("no error");
        let (head, body) = response.into_parts();
        let size_hint = body.size_hint().exact();
        let body = body.collect().await.expect("a body").to_bytes();
        ReceivedResponse { status: head.status.as_u16(), headers: head.headers, body, size_hint }
    }
}
