//! `facetheory demo`: a slow site behind the cache, to see how a page is rendered once and renewed behind its visitors.

mod origin;

use std::io::Write as _;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result, anyhow};
use facetheory::Isr;

use crate::config::Config;
use crate::serve::{Server, Settings, embedded};
use crate::{admin, log};

/// The configuration of the demo: the same pages whatever the port, fresh for ten seconds.
const CONFIGURATION: &str = r#"
site = "localhost"

[routes]
"/" = { isr = "10s", query = false }
"/posts/*" = { isr = "10s", query = false, versions = 5 }
"#;
/// For how long a page of the demo is fresh, in seconds.
const INTERVAL: u64 = 10;

/// Serve a built-in site whose pages take 300 ms to render, from the cache.
///
/// It is the gateway of `facetheory serve` in front of an origin of its own. Nothing has to be configured. Without --data
/// the pages are kept in a temporary directory, which is deleted in the end.
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
    #[command(flatten)]
    admin: admin::Arguments,
    #[command(flatten)]
    log: log::Arguments,
}

/// Serves until Ctrl-C.
pub(crate) async fn run(arguments: &Arguments) -> Result<()> {
    let log = log::start(&arguments.log, None)?;
    let temporary = tempfile::tempdir().context("no temporary directory can be made")?;
    let data = arguments.data.as_deref().unwrap_or(temporary.path());
    let mut config =
        Config::parse(CONFIGURATION).map_err(|faults| anyhow!("the demo is wrong: {faults:?}"))?;
    // Whatever the environment says: it is for other programs.
    config.store.data = Some(data.to_owned());
    let admin = match arguments.admin.terms(&config.admin)? {
        Some(terms) => admin::Listener::bind(terms).await?,
        None => None,
    };
    let console = admin.as_ref().map(admin::Listener::address).transpose()?;
    let site = origin::start(console).await?;
    let settings = Settings::of(config, site, Some(arguments.listen))?;
    let isr = Isr::new(embedded(data).await?);
    let server = Server::start(settings.clone(), isr, admin, log.access()).await?;
    introduce(&server.address(), console, data)?;
    server.run(|| Ok(settings.clone())).await
}

/// Says what to try next, as commands to be copied.
fn introduce(site: &str, console: Option<SocketAddr>, data: &Path) -> Result<()> {
    let data = data.display();
    let mut text = format!(
        "The demo listens on {site}/ and keeps its pages in {data}.
Its pages take 300 ms to render and are fresh for {INTERVAL} s. Open it, reload, and watch; or in another terminal:

  curl -i {site}/posts/hello                    # x-facetheory-isr: miss, after 300 ms
  curl -i {site}/posts/hello                    # hit, at once
  sleep {INTERVAL}; curl -i {site}/posts/hello          # stale, at once; renewed behind you
  curl -i {site}/posts/hello                    # hit, with a new time
"
    );
    if let Some(console) = console {
        text.push_str(&format!(
            "
The console is at http://{console}/. Everything below /posts becomes stale with one write:

  curl -X POST http://{console}/api/v1/invalidate -H 'content-type: application/json' -d '{{\"path\":\"/posts\"}}'
  curl 'http://{console}/api/v1/history?url=http://localhost/posts/hello'
"
        ));
    }
    text.push_str("\nCtrl-C ends it.\n");
    let mut output = std::io::stdout().lock();
    output.write_all(text.as_bytes()).and_then(|()| output.flush()).context("the output is closed")
}
