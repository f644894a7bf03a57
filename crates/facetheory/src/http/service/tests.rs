//! The fast path responds exactly as the path behind it, which looks for a page with all means.

use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use http::request::Parts;
use http::{HeaderMap, Method, Request, Response, StatusCode};
use http_body::Body as _;
use http_body_util::BodyExt as _;
use tabletheory::{ManualClock, MemoryTable, Timestamp};
use tower::{Layer as _, Service as _, service_fn};

use super::{CacheHandler, IsrLayer};
use crate::http::body::IsrBody;
use crate::http::renderer::Renderer;
use crate::{Bodies, Isr, PageStore, Pages, Policy, Route, Routes};

const MODIFIED: &str = "Tue, 14 Nov 2023 22:00:00 GMT";
const EARLIER: &str = "Tue, 14 Nov 2023 21:59:59 GMT";

/// The headers of requests, besides `Accept-Encoding`.
const HEADERS: [&[(&str, &str)]; 22] = [
    &[],
    &[("if-none-match", "\"v1\"")],
    &[("if-none-match", "W/\"v1\"")],
    &[("if-none-match", "\"v1-br\"")],
    &[("if-none-match", "\"v0\"")],
    &[("if-none-match", "*")],
    &[("if-none-match", "\"v0\""), ("if-modified-since", MODIFIED)],
    &[("if-modified-since", MODIFIED)],
    &[("if-modified-since", EARLIER)],
    &[("if-modified-since", "yesterday")],
    &[("if-match", "\"v1\"")],
    &[("if-match", "\"v0\"")],
    &[("if-unmodified-since", EARLIER)],
    &[("range", "bytes=2-4")],
    &[("range", "bytes=-3")],
    &[("range", "bytes=99999-")],
    &[("range", "bytes=0-1,3-4")],
    &[("range", "bytes=2-4"), ("if-range", "\"v1\"")],
    &[("range", "bytes=2-4"), ("if-range", "\"v0\"")],
    &[("range", "bytes=2-4"), ("if-none-match", "\"v1\"")],
    &[("range", "bytes=99999-"), ("if-match", "\"v0\"")],
    &[("cache-control", "max-age=60")],
];

/// Conditions that only the origin can evaluate, on routes that follow it.
const FOR_ORIGIN: [&str; 2] = ["if-match", "if-unmodified-since"];

/// A response without its body, and the body.
type Received = (StatusCode, HeaderMap, Option<u64>, Vec<u8>);

async fn received(response: Response<IsrBody>) -> Received {
    let (head, body) = response.into_parts();
    let length = body.size_hint().exact();
    let body = body.collect().await.expect("a body").to_bytes();
    (head.status, head.headers, length, body.to_vec())
}

async fn origin(request: Request<String>) -> Result<Response<String>, Infallible> {
    let response = Response::builder().header("etag", "\"v1\"").header("last-modified", MODIFIED);
    let response = response.header("content-type", "text/html").header("cache-control", "max-age=3600");
    let status = if request.uri().path().ends_with("missing") { 404 } else { 200 };
    Ok(response.status(status).body("<p>a line</p>\n".repeat(500)).expect("a response"))
}

/// The response of the path behind the fast path.
async fn behind<S>(handler: &Arc<CacheHandler>, service: S, request: Parts) -> Received
where
    S: Renderer<String, Error = Infallible>,
{
    let resolved = handler.resolve(&request);
    let request = Request::from_parts(request, String::new());
    match handler.clone().serve(service, request, resolved).await {
        Ok(response) => received(response).await,
        Err(never) => match never {},
    }
}

#[tokio::test]
async fn the_fast_path_serves_every_kind_of_hit_as_the_path_behind_it() {
    let clock = Arc::new(ManualClock::at(Timestamp::from_seconds(1_700_000_000)));
    let pages =
        Pages::new(PageStore::new(Arc::new(MemoryTable::with_clock(clock.clone()))), Bodies::memory());
    let isr = Isr::builder(pages).metadata_max_age(Duration::from_secs(3600)).build();
    let rule = Route::new("/rule/{page}", Policy::every(Duration::from_secs(3600)));
    let routes = Routes::new([rule]).expect("routes").otherwise_follow_origin();
    let mut service = IsrLayer::new(isr.clone(), routes).layer(service_fn(origin));
    let request = |method: &Method, path: &str, headers: &[(&str, &str)]| {
        let request = Request::builder().method(method).uri(path).header("host", "a.example");
        let request = request.header("x-request-id", "one");
        let request = headers.iter().fold(request, |request, (name, value)| request.header(*name, *value));
        request.body(String::new()).expect("a request")
    };
    for path in ["/rule/a", "/rule/missing", "/origin/a"] {
        let Ok(response) = service.call(request(&Method::GET, path, &[("accept-encoding", "br")])).await;
        assert_eq!(response.headers()["x-facetheory-isr"], "miss", "{path}");
    }
    assert!(isr.settle(Duration::from_secs(60)).await, "the page is compressed");
    clock.advance(Duration::from_secs(7));
    let (mut statuses, mut codings) = (Vec::new(), Vec::new());
    for path in ["/rule/a", "/rule/missing", "/origin/a"] {
        for method in [Method::GET, Method::HEAD] {
            for coding in ["identity", "br", "gzip;q=0.5, zstd"] {
                for headers in HEADERS {
                    let headers = [headers, &[("accept-encoding", coding)]].concat();
                    let (parts, _) = request(&method, path, &headers).into_parts();
                    let resolved = service.resolve(&parts);
                    let hit = service.get_fresh(&parts, &resolved);
                    let is_for_origin = headers.iter().any(|(name, _)| FOR_ORIGIN.contains(name));
                    if path == "/origin/a" && is_for_origin {
                        assert!(hit.is_none(), "{method} {path} {headers:?}");
                        continue;
                    }
                    let hit = hit.unwrap_or_else(|| panic!("no hit: {method} {path} {headers:?}"));
                    let (sent, fast) = (hit.body(), received(hit.into_response()).await);
                    assert_eq!(sent, fast.3, "a server of its own sends the same body");
                    statuses.push(fast.0.as_u16());
                    codings.extend(fast.1.get("content-encoding").cloned());
                    let slow = behind(&service.handler, service.inner, parts).await;
                    assert_eq!(fast, slow, "{method} {path} {headers:?}");
                }
            }
        }
    }
    for status in [200, 206, 304, 404, 412, 416] {
        assert!(statuses.contains(&status), "{status}");
    }
    for coding in if cfg!(feature = "compression") { ["br", "zstd"].as_slice() } else { &[] } {
        assert!(codings.iter().any(|found| found == coding), "{coding}");
    }
}
