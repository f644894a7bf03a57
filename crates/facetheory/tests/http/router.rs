//! The layer on an axum router: on a route, and around the whole router.

use axum::Router;
use axum::body::Body;
use axum::extract::Path;
use axum::routing::get;
use facetheory::{Bodies, Isr, IsrLayer, PageStore, Pages, Policy, Route, Routes};
use http::Request;
use http_body_util::BodyExt as _;
use std::convert::Infallible;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;
use tabletheory::MemoryTable;
use tower::{Layer as _, Service, ServiceExt as _};

use crate::fixture::INTERVAL;

async fn post(Path(slug): Path<String>) -> String {
    format!("post {slug}")
}

fn layer() -> IsrLayer {
    let pages = Pages::new(PageStore::new(Arc::new(MemoryTable::new())), Bodies::memory());
    let routes = Routes::new([Route::new("/posts/{slug}", Policy::every(INTERVAL))]).expect("routes");
    IsrLayer::new(Isr::new(pages), routes)
}

async fn responses<S, B>(service: S) -> Vec<(String, String)>
where
    S: Service<Request<Body>, Response = http::Response<B>> + Clone,
    S::Error: std::fmt::Debug,
    B: http_body::Body<Data = bytes::Bytes>,
    B::Error: std::fmt::Debug,
{
    let mut seen = Vec::new();
    for path in ["/posts/a", "/posts/a", "/posts/b", "/other"] {
        let request =
            Request::get(path).header("host", "example.com").body(Body::empty()).expect("a request");
        let response = service.clone().oneshot(request).await.expect("no error");
        let state = response
            .headers()
            .get("x-facetheory-isr")
            .map(|state| state.to_str().expect("a text").to_owned());
        let body = response.into_body().collect().await.expect("a body").to_bytes();
        seen.push((state.unwrap_or_default(), String::from_utf8(body.to_vec()).expect("a text")));
    }
    seen
}

fn expected() -> Vec<(String, String)> {
    [("miss", "post a"), ("hit", "post a"), ("miss", "post b"), ("bypass", "")]
        .map(|(state, body)| (state.to_owned(), body.to_owned()))
        .to_vec()
}

#[tokio::test]
async fn path_parameters_reach_a_handler_under_the_layer() {
    let app = Router::new().route("/posts/{slug}", get(post)).fallback(|| async { "" }).layer(layer());
    assert_eq!(responses(app).await, expected());
}

#[tokio::test]
async fn the_layer_wraps_a_whole_router() {
    let app = Router::new().route("/posts/{slug}", get(post)).fallback(|| async { "" });
    assert_eq!(responses(layer().layer(app)).await, expected());
}

/// A renderer with one concurrency permit, which `poll_ready` acquires.
struct OnePermit {
    permits: Arc<std::sync::Mutex<usize>>,
    has_permit: bool,
}

impl Clone for OnePermit {
    fn clone(&self) -> Self {
        OnePermit { permits: self.permits.clone(), has_permit: false }
    }
}

impl Drop for OnePermit {
    fn drop(&mut self) {
        if self.has_permit {
            *self.permits.lock().expect("not poisoned") += 1;
        }
    }
}

impl Service<Request<Body>> for OnePermit {
    type Response = http::Response<Body>;
    type Error = Infallible;
    type Future = std::future::Ready<Result<Self::Response, Infallible>>;

    fn poll_ready(&mut self, _context: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        let mut permits = self.permits.lock().expect("not poisoned");
        if self.has_permit {
            return Poll::Ready(Ok(()));
        }
        let Some(left) = permits.checked_sub(1) else { return Poll::Pending };
        *permits = left;
        self.has_permit = true;
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, _request: Request<Body>) -> Self::Future {
        std::future::ready(Ok(http::Response::new(Body::from("page"))))
    }
}

#[tokio::test(start_paused = true)]
async fn a_request_holds_a_concurrency_permit_only_while_it_renders() {
    let permits = Arc::new(std::sync::Mutex::new(1));
    let service = layer().layer(OnePermit { permits: permits.clone(), has_permit: false });
    let state = async |path: &str| {
        let request =
            Request::get(path).header("host", "example.com").body(Body::empty()).expect("a request");
        let response = tokio::time::timeout(Duration::from_secs(5), service.clone().oneshot(request));
        let response = response.await.expect("no deadlock on the permit").expect("no error");
        response.headers()["x-facetheory-isr"].to_str().expect("a text").to_owned()
    };
    assert_eq!(state("/posts/a").await, "miss");
    *permits.lock().expect("not poisoned") = 0;
    assert_eq!(state("/posts/a").await, "hit", "a hit needs no permit");
}
