//! The built-in origin of the demo: a few pages that are slow on purpose, count their renders, and tell their time.

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

/// How often pages were rendered.
type Renders = Arc<AtomicU64>;

/// What the pages share.
#[derive(Clone, Debug)]
struct Site {
    renders: Renders,
    /// Where the console is, if it is anywhere.
    console: Option<SocketAddr>,
}

/// Serves the pages on a port of their own for as long as the process lives; they link to the console.
pub(crate) async fn start(console: Option<SocketAddr>) -> Result<config::Origin> {
    let listener = tokio::net::TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await;
    let listener = listener.context("the built-in origin cannot listen")?;
    let address = listener.local_addr().context("the address of the built-in origin cannot be told")?;
    tokio::spawn(async move { axum::serve(listener, router(console)).await });
    format!("http://{address}")
        .parse()
        .map_err(|fault| anyhow!("the built-in origin has no address: {fault}"))
}

fn router(console: Option<SocketAddr>) -> Router {
    let site = Site { renders: Renders::default(), console };
    Router::new().route("/", get(front)).route("/posts/{name}", get(post)).with_state(site)
}

async fn front(State(site): State<Site>) -> Html<String> {
    let posts = ["hello", "incremental", "static", "regeneration"];
    let links: String = posts.map(|post| format!("<li><a href=\"/posts/{post}\">{post}</a>")).concat();
    let console = site.console.map(|console| format!("<p><a href=\"http://{console}/\">Console</a>"));
    let content = format!("<ul>{links}</ul>{}", console.unwrap_or_default());
    page("A slow site", &content, &site.renders).await
}

async fn post(State(site): State<Site>, Path(name): Path<String>) -> Html<String> {
    page(&escaped(&name), "<p><a href=\"/\">All posts</a>", &site.renders).await
}

async fn page(title: &str, content: &str, renders: &Renders) -> Html<String> {
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

/// A text that may stand in HTML.
fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}
