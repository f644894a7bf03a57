//! Versions in the API, with a real origin.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use axum::Router;
use axum::body::{Body, to_bytes};
use axum::routing::get;
use facetheory::Isr;
use http::{Request, StatusCode};
use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;
use tower::ServiceExt as _;

use super::{Admin, AdminSettings, Metrics, Readiness, router};
use crate::config::Config;
use crate::gateway::{ConnectionLimit, Gateway, ServingConfig, Tunnels};

/// Returns the router over pages that are stale at once and whose versions are all retained.
pub(super) async fn site() -> Router {
    let renders = Arc::new(AtomicUsize::new(0));
    let render = move || {
        let number = renders.fetch_add(1, Ordering::SeqCst) + 1;
        async move { ([("content-type", "text/html")], format!("<h1>Hello</h1>\n<p>render {number}</p>\n")) }
    };
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let origin = format!("http://{}", listener.local_addr().expect("an address"));
    tokio::spawn(async move { axum::serve(listener, Router::new().fallback(get(render))).await });

    let isr = Isr::open("memory:", "memory:").await.expect("stores").build();
    let config = r#"
        [routes]
        "/posts/{name}" = { isr = "0s", versions = 1000, query = false, headers = ["accept-language"], cookies = ["theme"] }
    "#;
    let config = Config::parse(config).expect("a configuration");
    let origin = origin.parse().expect("an address");
    let rules =
        ServingConfig::new(&config, &origin, isr.clone(), Tunnels::default(), None, false).expect("rules");
    let settings =
        AdminSettings { address: "127.0.0.1:1".parse().expect("an address"), is_default: true, token: None };
    let admin = Admin {
        gateway: Gateway::new(rules, None),
        isr,
        connections: ConnectionLimit::new(1, 1),
        metrics: Metrics::detached(),
        effective_config: Arc::default(),
        shutdown: CancellationToken::new(),
        readiness: Readiness::default(),
    };
    router(admin, settings)
}

const URL: &str = "http://example.com/posts/a";

async fn send(router: &Router, request: Request<Body>) -> (StatusCode, String) {
    let response = router.clone().oneshot(request).await.expect("a response");
    let status = response.status();
    let bytes = to_bytes(response.into_body(), 1 << 20).await.expect("a body");
    (status, String::from_utf8(bytes.to_vec()).expect("a text"))
}

async fn get_text(router: &Router, target: &str) -> String {
    let request = Request::get(target).header("host", "localhost").body(Body::empty()).expect("a request");
    let (status, text) = send(router, request).await;
    assert_eq!(status, StatusCode::OK, "{target}: {text}");
    text
}

async fn get_json(router: &Router, target: &str) -> Value {
    serde_json::from_str(&get_text(router, target).await).expect("JSON")
}

async fn post(router: &Router, target: &str, key: &str, body: &Value) -> Value {
    let request =
        Request::post(target).header("host", "localhost").header("content-type", "application/json");
    let request =
        request.header("idempotency-key", key).body(Body::from(body.to_string())).expect("a request");
    let (status, text) = send(router, request).await;
    assert_eq!(status, StatusCode::OK, "{target}: {text}");
    serde_json::from_str(&text).expect("JSON")
}

/// Renders the page several times, and returns its versions, newest first.
async fn versions(router: &Router, renders: usize) -> Vec<String> {
    for number in 0..renders {
        post(router, "/api/v1/regenerate", &format!("render-{number}"), &json!({ "url": URL })).await;
    }
    let history = get_json(router, &format!("/api/v1/history?url={URL}")).await;
    let versions = history["versions"].as_array().expect("a list");
    let currents: Vec<bool> = versions.iter().map(|version| version["current"] == true).collect();
    assert!(currents[0] && !currents[1..].contains(&true), "the newest version is current: {history}");
    versions.iter().map(|version| version["version"].as_str().expect("a name").replace('#', "%23")).collect()
}

#[tokio::test]
async fn earlier_versions_can_be_read_compared_and_rolled_back_to() {
    let router = site().await;
    let versions = versions(&router, 3).await;
    assert_eq!(versions.len(), 3);
    let first = &versions[2];
    let body = get_text(&router, &format!("/api/v1/body?url={URL}&version={first}")).await;
    assert_eq!(body, "<h1>Hello</h1>\n<p>render 1</p>\n");

    let diff = get_json(&router, &format!("/api/v1/diff?url={URL}&from={first}&to={}", versions[0])).await;
    assert_eq!(diff["same"], false);
    assert_eq!(diff["body"], "@@ -1,2 +1,2 @@\n <h1>Hello</h1>\n-<p>render 1</p>\n+<p>render 3</p>\n");

    let version = first.replace("%23", "#");
    let done = post(&router, "/api/v1/rollback", "-", &json!({ "url": URL, "version": version })).await;
    assert_eq!(done["done"], true);
    assert_eq!(get_text(&router, &format!("/api/v1/body?url={URL}")).await, body);
    let shown = get_json(&router, &format!("/api/v1/entry?url={URL}")).await;
    assert_eq!((shown["pinned"].as_bool(), shown["state"].as_str()), (Some(true), Some("fresh")));
    let soft = post(&router, "/api/v1/invalidate", "-", &json!({ "url": URL })).await;
    assert_eq!(soft["outcome"], "pinned");

    let done = post(&router, "/api/v1/unpin", "-", &json!({ "url": URL })).await;
    assert_eq!(done["done"], true);
    assert_eq!(get_json(&router, &format!("/api/v1/entry?url={URL}")).await["state"], "stale");
    assert_eq!(post(&router, "/api/v1/unpin", "-", &json!({ "url": URL })).await["done"], false);
}

#[tokio::test]
async fn headers_and_cookies_select_a_variant() {
    let router = site().await;
    let german =
        json!({ "url": URL, "headers": { "accept-language": "de" }, "cookies": { "theme": "dark" } });
    let made = post(&router, "/api/v1/regenerate", "one", &german).await;
    let named = format!("/api/v1/entry?url={URL}&header=accept-language:de&cookie=theme=dark");
    let shown = get_json(&router, &named).await;
    assert_eq!((&shown["cache_key"], shown["meta"].is_object()), (&made["cache_key"], true));
    assert_eq!(get_json(&router, &format!("/api/v1/entry?url={URL}")).await["state"], "absent");
    let listed = get_json(&router, "/api/v1/entries").await;
    assert_eq!(listed["entries"][0]["cache_key"], made["cache_key"]);
}
