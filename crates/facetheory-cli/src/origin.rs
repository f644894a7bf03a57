//! The built-in origin of the demo: a few pages that are slow on purpose, count their renders, and tell their time.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use axum::Router;
use axum::extract::{Path, State};
use axum::response::Html;
use axum::routing::get;
use tabletheory::{Clock as _, SystemClock};

/// How long a render takes.
const RENDER: Duration = Duration::from_millis(300);

/// How often pages were rendered.
type Renders = Arc<AtomicU64>;

/// The pages.
pub(crate) fn router() -> Router {
    Router::new().route("/", get(front)).route("/posts/{name}", get(post)).with_state(Renders::default())
}

async fn front(State(renders): State<Renders>) -> Html<String> {
    let posts = ["hello", "incremental", "static", "regeneration"];
    let links: String = posts.map(|post| format!("<li><a href=\"/posts/{post}\">{post}</a>")).concat();
    page("A slow site", &format!("<ul>{links}</ul>"), &renders).await
}

async fn post(State(renders): State<Renders>, Path(name): Path<String>) -> Html<String> {
    page(&escaped(&name), "<p><a href=\"/\">All posts</a>", &renders).await
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
