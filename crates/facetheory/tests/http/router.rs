//! The layer on a router of axum, around a route and around the whole.

use axum::Router;
use axum::body::Body;
use axum::extract::Path;
use axum::routing::get;
use facetheory::{Bodies, Isr, IsrLayer, PageStore, Pages, Policy, Route, Routes};
use http::Request;
use http_body_util::BodyExt as _;
use std::sync::Arc;
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

async fn visits<S, B>(service: S) -> Vec<(String, String)>
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
async fn a_router_with_the_layer_knows_the_parameters_of_its_paths() {
    let app = Router::new().route("/posts/{slug}", get(post)).fallback(|| async { "" }).layer(layer());
    assert_eq!(visits(app).await, expected());
}

#[tokio::test]
async fn the_layer_goes_around_a_whole_router_too() {
    let app = Router::new().route("/posts/{slug}", get(post)).fallback(|| async { "" });
    assert_eq!(visits(layer().layer(app)).await, expected());
}
