//! The built-in origin of the demo: a few slow pages that show when they were rendered.

use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use anyhow::{Context as _, Result, anyhow};
use axum::Router;
use axum::extract::{Path, State};
use axum::response::Html;
use axum::routing::get;
use tabletheory::{Clock as _, SystemClock};

use crate::config;

/// How long a render takes.
const RENDER: Duration = Duration::from_millis(300);

/// The state of the site.
#[derive(Clone, Debug)]
struct DemoSite {
    /// The number of renders so far.
    renders: Arc<AtomicU64>,
    /// The address of the console, which the front page links to.
    console: Option<SocketAddr>,
}

/// Starts the origin on a free port.
pub(crate) async fn start(console: Option<SocketAddr>) -> Result<config::Origin> {
    let listener = tokio::net::TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await;
    let listener = listener.context("the built-in origin cannot listen on a port")?;
    let address = listener.local_addr().context("cannot determine the address of the built-in origin")?;
    tokio::spawn(async move { axum::serve(listener, router(console)).await });
    format!("http://{address}")
        .parse()
        .map_err(|error| anyhow!("the built-in origin has an invalid address: {error}"))
}

fn router(console: Option<SocketAddr>) -> Router {
    let site = DemoSite { renders: Arc::default(), console };
    Router::new().route("/", get(front)).route("/posts/{name}", get(post)).with_state(site)
}

async fn front(State(site): State<DemoSite>) -> Html<String> {
    let posts = ["hello", "incremental", "static", "regeneration"];
    let links: String = posts.map(|post| format!("<li><a href=\"/posts/{post}\">{post}</a>")).concat();
    let console = site.console.map(|console| format!("<p><a href=\"http://{console}/\">Console</a>"));
    let content = format!("<ul>{links}</ul>{}", console.unwrap_or_default());
    page("A slow site", &content, &site.renders).await
}

async fn post(State(site): State<DemoSite>, Path(name): Path<String>) -> Html<String> {
    page(&escaped(&name), "<p><a href=\"/\">All posts</a>", &site.renders).await
}

async fn page(title: &str, content: &str, renders: &AtomicU64) -> Html<String> {
    tokio::time::sleep(RENDER).await;
    let count = renders.fetch_add(1, Ordering::SeqCst) + 1;
    let seconds = SystemClock.now().seconds();
    let (hour, minute, second) = (seconds / 3600 % 24, seconds / 60 % 60, seconds % 60);
    Html(format!(
        "<!doctype html><html lang=\"en\"><meta charset=\"utf-8\"><title>{title}</title>\
         <h1>{title}</h1>{content}\
         <p>Rendered at {hour:02}:{minute:02}:{second:02} UTC, in {} ms; render number {count} of this process.</html>\n",
        RENDER.as_millis()
    ))
}

/// Escapes a text for HTML.
fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}
