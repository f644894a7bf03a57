//! `facetheory demo`: a slow site behind the cache, to see how a page is rendered once and renewed behind its visitors.

use std::io::{ErrorKind, Write as _};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context as _, Result};
use axum::Router;
use axum::extract::Path as Param;
use axum::http::StatusCode;
use axum::routing::post;
use facetheory::{Isr, IsrLayer, Policy, Query, Route, Routes, Tag};

use crate::origin;

/// For how long a page of the demo is fresh.
const INTERVAL: Duration = Duration::from_secs(10);
/// How long renders may go on once the demo is to end.
const LAST_RENDERS: Duration = Duration::from_secs(5);

/// Serve a built-in site whose pages take 300 ms to render, from the cache.
///
/// Nothing has to be configured. Without --data the pages are kept in a temporary directory, which is deleted in the
/// end.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  facetheory demo
  facetheory demo --listen 127.0.0.1:0               any free port
  facetheory demo --data facetheory-data             keep the pages, to find them again next time")]
pub(crate) struct Arguments {
    /// The address to listen on.
    #[arg(long, value_name = "ADDRESS", default_value = "127.0.0.1:8080")]
    listen: SocketAddr,
    /// The directory in which the pages are kept.
    #[arg(long, value_name = "DIRECTORY")]
    data: Option<PathBuf>,
}

/// Serves until Ctrl-C.
pub(crate) async fn run(arguments: &Arguments) -> Result<()> {
    let temporary = tempfile::tempdir().context("no temporary directory can be made")?;
    let data = arguments.data.as_deref().unwrap_or(temporary.path());
    let isr = open(data).await?;
    let listener = listen(arguments.listen).await?;
    introduce(listener.local_addr().context("the address cannot be told")?, data)?;
    let stop = async { drop(tokio::signal::ctrl_c().await) };
    axum::serve(listener, site(isr.clone())?).with_graceful_shutdown(stop).await.context("serving ended")?;
    isr.shut_down(LAST_RENDERS).await;
    Ok(())
}

async fn open(data: &Path) -> Result<Isr> {
    std::fs::create_dir_all(data)
        .with_context(|| format!("the directory {} cannot be made", data.display()))?;
    let table = format!("sqlite:{}", data.join("table.db").display());
    let bodies = format!("file:{}", data.join("bodies").display());
    Ok(Isr::open(&table, &bodies).await?.build())
}

async fn listen(address: SocketAddr) -> Result<tokio::net::TcpListener> {
    tokio::net::TcpListener::bind(address).await.map_err(|error| match error.kind() {
        ErrorKind::AddrInUse => anyhow::anyhow!(
            "{address} is in use by another program; choose another with --listen, such as 127.0.0.1:0"
        ),
        _ => anyhow::Error::new(error).context(format!("{address} cannot be listened on")),
    })
}

/// The built-in origin behind the cache, and the way to make its pages stale.
fn site(isr: Isr) -> Result<Router> {
    let policy = Policy::every(INTERVAL);
    let routes = Routes::new([
        Route::new("/", policy).query(Query::None),
        Route::new("/posts/{name}", policy).query(Query::None),
    ])?
    // The same pages whatever the port.
    .of_one_site("localhost")?;
    let invalidate = {
        let isr = isr.clone();
        move |Param(path): Param<String>| invalidate(isr, path)
    };
    let app = origin::router().layer(IsrLayer::new(isr, routes));
    Ok(app.route("/invalidate/{*path}", post(invalidate)))
}

/// Makes everything at a path and below it stale.
async fn invalidate(isr: Isr, path: String) -> Result<String, (StatusCode, String)> {
    let wrong = |error: facetheory::Error| (StatusCode::BAD_REQUEST, format!("{error}\n"));
    let tag = Tag::path(&format!("/{path}")).map_err(wrong)?;
    let unavailable = |error: facetheory::Error| (StatusCode::SERVICE_UNAVAILABLE, format!("{error}\n"));
    isr.invalidate_tag(&tag, None).await.map_err(unavailable)?;
    Ok(format!("everything at /{path} and below is stale\n"))
}

/// Says what to try next, as commands to be copied.
fn introduce(site: SocketAddr, data: &Path) -> Result<()> {
    let seconds = INTERVAL.as_secs();
    let data = data.display();
    let text = format!(
        "The demo listens on http://{site}/ and keeps its pages in {data}.
Its pages take 300 ms to render and are fresh for {seconds} s. Open it, reload, and watch; or in another terminal:

  curl -i http://{site}/posts/hello                    # x-facetheory-isr: miss, after 300 ms
  curl -i http://{site}/posts/hello                    # hit, at once
  sleep {seconds}; curl -i http://{site}/posts/hello          # stale, at once; renewed behind you
  curl -i http://{site}/posts/hello                    # hit, with a new time
  curl -X POST http://{site}/invalidate/posts          # everything below /posts is stale, with one write

Ctrl-C ends it.
"
    );
    let mut output = std::io::stdout().lock();
    output.write_all(text.as_bytes()).and_then(|()| output.flush()).context("the output is closed")
}
