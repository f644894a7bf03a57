//! A site behind the layer: its renderer does what a story says, and notes what it is asked.

use std::convert::Infallible;
use std::future::Future;
use std::pin::Pin;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use bytes::Bytes;
use facetheory::{
    Bodies, Isr, IsrBuilder, IsrLayer, IsrService, PageStore, Pages, Policy, Query, Route, Routes,
};
use http::{HeaderMap, Request, Response};
use http_body::Body as _;
use http_body_util::{BodyExt as _, Full};
use tabletheory::{Faults, Faulty, MemoryTable};
use tower::util::BoxCloneService;
use tower::{Layer as _, ServiceExt as _, service_fn};

use crate::clock::RuntimeClock;

pub(crate) const NOW: i64 = 1_700_000_000;
pub(crate) const INTERVAL: Duration = Duration::from_secs(60);
pub(crate) const SECOND: Duration = Duration::from_secs(1);

type Answer = Pin<Box<dyn Future<Output = Response<Full<Bytes>>> + Send>>;
type Service = BoxCloneService<Request<Full<Bytes>>, Response<Full<Bytes>>, Infallible>;
type Renderer = Arc<dyn Fn(Request<Full<Bytes>>) -> Answer + Send + Sync>;

/// A site, with what its renderer was asked so far.
#[derive(Clone)]
pub(crate) struct Site {
    pub(crate) isr: Isr,
    pub(crate) table: Arc<Faulty<MemoryTable>>,
    pub(crate) bodies: Bodies,
    pub(crate) service: IsrService<Service>,
    renderer: Arc<Mutex<Renderer>>,
    asked: Arc<Mutex<Vec<Request<()>>>>,
}

/// A response that was read to its end.
#[derive(Debug)]
pub(crate) struct Reply {
    pub(crate) status: u16,
    pub(crate) headers: HeaderMap,
    pub(crate) body: Bytes,
    /// The length that the body told before it was read.
    pub(crate) told: Option<u64>,
}

impl Reply {
    /// A header, or nothing.
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

/// Pages of everything, some of which depend on more than the address.
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
        let clock = Arc::new(RuntimeClock::starting_at(NOW));
        let table = Arc::new(Faulty::new(MemoryTable::with_clock(clock), 1, Faults::NONE));
        let bodies = Bodies::memory();
        let isr = Isr::new(Pages::new(PageStore::new(table.clone()), bodies.clone()));
        Site::over(isr, table, bodies, routes, change)
    }

    /// A site whose store is made so.
    pub(crate) fn over_store(routes: Routes, change: impl FnOnce(PageStore) -> PageStore) -> Self {
        let table = Arc::new(Faulty::new(MemoryTable::new(), 1, Faults::NONE));
        let bodies = Bodies::memory();
        let isr = Isr::new(Pages::new(change(PageStore::new(table.clone())), bodies.clone()));
        Site::over(isr, table, bodies, routes, |layer| layer)
    }

    /// The same pages by other routes, as after a reload.
    pub(crate) fn with_routes(&self, routes: Routes) -> Self {
        Site::over(self.isr.clone(), self.table.clone(), self.bodies.clone(), routes, |layer| layer)
    }

    /// Another process that keeps the same pages, in front of the same renderer.
    pub(crate) fn another(&self, routes: Routes) -> Self {
        self.another_with(routes, |isr| isr)
    }

    /// The same, of this deployment.
    pub(crate) fn deployed(&self, deployment: &str) -> Self {
        self.another_with(Routes::new(routes()).expect("routes"), |isr| isr.deployment(deployment))
    }

    fn another_with(&self, routes: Routes, change: impl FnOnce(IsrBuilder) -> IsrBuilder) -> Self {
        let isr = Isr::builder(Pages::new(PageStore::new(self.table.clone()), self.bodies.clone()));
        let isr = change(isr).build();
        let other = Site::over(isr, self.table.clone(), self.bodies.clone(), routes, |layer| layer);
        let renderer = self.renderer.clone();
        other.renders(move |request| {
            let renderer = renderer.lock().expect("not poisoned").clone();
            renderer(request)
        });
        other
    }

    fn over(
        isr: Isr,
        table: Arc<Faulty<MemoryTable>>,
        bodies: Bodies,
        routes: Routes,
        change: impl FnOnce(IsrLayer) -> IsrLayer,
    ) -> Self {
        let renderer: Arc<Mutex<Renderer>> =
            Arc::new(Mutex::new(Arc::new(|_| Box::pin(async { Response::new(Full::from("page")) }))));
        let asked: Arc<Mutex<Vec<Request<()>>>> = Arc::default();
        let service = {
            let (renderer, asked) = (renderer.clone(), asked.clone());
            service_fn(move |request: Request<Full<Bytes>>| {
                let (parts, body) = request.into_parts();
                asked.lock().expect("not poisoned").push(Request::from_parts(parts.clone(), ()));
                let renderer = renderer.lock().expect("not poisoned").clone();
                async move { Ok::<_, Infallible>(renderer(Request::from_parts(parts, body)).await) }
            })
        };
        let layer = change(IsrLayer::new(isr.clone(), routes).max_page_bytes(100_000));
        Site { isr, table, bodies, service: layer.layer(BoxCloneService::new(service)), renderer, asked }
    }

    /// From now on the renderer answers so.
    pub(crate) fn renders<F: Future<Output = Response<Full<Bytes>>> + Send + 'static>(
        &self,
        renderer: impl Fn(Request<Full<Bytes>>) -> F + Send + Sync + 'static,
    ) {
        let boxed: Renderer = Arc::new(move |request| Box::pin(renderer(request)));
        *self.renderer.lock().expect("not poisoned") = boxed;
    }

    /// From now on the renderer answers with this text and these headers.
    pub(crate) fn answers(
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

    /// What the renderer was asked since this was last asked.
    pub(crate) fn asked(&self) -> Vec<Request<()>> {
        std::mem::take(&mut *self.asked.lock().expect("not poisoned"))
    }

    pub(crate) async fn get(&self, path: &str) -> Reply {
        self.visit("GET", path, &[]).await
    }

    pub(crate) async fn get_with(&self, path: &str, headers: &[(&str, &str)]) -> Reply {
        self.visit("GET", path, headers).await
    }

    pub(crate) async fn visit(&self, method: &str, path: &str, headers: &[(&str, &str)]) -> Reply {
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
        let told = body.size_hint().exact();
        let body = body.collect().await.expect("a body").to_bytes();
        Reply { status: head.status.as_u16(), headers: head.headers, body, told }
    }

    /// Lets what goes on in the background come to its end.
    pub(crate) async fn settle(&self) {
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
}
