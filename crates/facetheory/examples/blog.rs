//! A blog with axum and askama. A post takes 300 ms to render, and is rendered once a minute at most.
//!
//! On SQLite and files: `cargo run -p facetheory --features http,sqlite --example blog`
//!
//! On DynamoDB and S3, with the credentials and the region of the environment:
//! `cargo run -p facetheory --features http,dynamodb,s3,sqlite --example blog -- dynamodb:pages s3://my-bucket/isr`
//!
//! Then run `curl -i http://127.0.0.1:3000/posts/hello` twice in another terminal. A third argument sets the address to
//! listen on.

use std::time::Duration;

use askama::Template;
use axum::Router;
use axum::extract::Path;
use axum::http::StatusCode;
use axum::response::Html;
use axum::routing::{get, post};
use facetheory::{History, Isr, IsrLayer, Policy, Query, Route, Routes, Tag};

#[derive(Template)]
#[template(
    source = "<!doctype html><title>{{ slug }}</title><h1>{{ slug }}</h1><p>Rendered slowly.</p>",
    ext = "html"
)]
struct Post {
    slug: String,
}

/// Renders a post slowly.
async fn show(Path(slug): Path<String>) -> Result<Html<String>, StatusCode> {
    tokio::time::sleep(Duration::from_millis(300)).await;
    let page = Post { slug }.render().map_err(|_| StatusCode::INTERNAL_SERVER_ERROR)?;
    Ok(Html(page))
}

/// To be called after posts have changed: marks all of them as stale.
async fn changed(isr: Isr) -> Result<&'static str, StatusCode> {
    let tag = Tag::new("posts").map_err(|_| StatusCode::INTERNAL_SERVER_ERROR)?;
    isr.invalidate_tag(&tag, None).await.map_err(|_| StatusCode::SERVICE_UNAVAILABLE)?;
    Ok("all posts are stale\n")
}

#[tokio::main]
#[expect(clippy::print_stdout, reason = "an example shows what it does")]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut arguments = std::env::args().skip(1);
    let table = arguments.next().unwrap_or_else(|| "sqlite:blog-data/table.db".to_owned());
    let bodies = arguments.next().unwrap_or_else(|| "file:blog-data/bodies".to_owned());
    if table.starts_with("sqlite:blog-data/") {
        std::fs::create_dir_all("blog-data")?;
    }
    let isr = Isr::open(&table, &bodies).await?.build();
    let every_minute = Policy::every(Duration::from_secs(60)).with_history(History::Versions);
    let routes = Routes::new([Route::new("/posts/{slug}", every_minute).query(Query::None).tags(["posts"])])?;
    let app = Router::new()
        .route("/posts/{slug}", get(show))
        .route(
            "/changed",
            post({
                let isr = isr.clone();
                move || changed(isr)
            }),
        )
        .layer(IsrLayer::new(isr.clone(), routes));
    let listen = arguments.next().unwrap_or_else(|| "127.0.0.1:3000".to_owned());
    let listener = tokio::net::TcpListener::bind(listen).await?;
    let site = listener.local_addr()?;
    println!("listening on http://{site}");
    println!("try: curl -i http://{site}/posts/hello; curl -X POST http://{site}/changed");
    axum::serve(listener, app).with_graceful_shutdown(async { drop(tokio::signal::ctrl_c().await) }).await?;
    isr.shut_down(Duration::from_secs(10)).await;
    Ok(())
}
