//! `facetheory demo`: a slow built-in site behind the gateway.

mod origin;

use std::net::SocketAddr;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result, anyhow};

use crate::config::{Config, LogSample};
use crate::serve::{Server, Settings, open};
use crate::sockets::Sockets;
use crate::{admin, log, print};

/// The configuration of the demo. `site` makes cache keys independent of the port.
const CONFIG: &str = r#"
site = "localhost"

[routes]
"/" = { isr = "10s", query = false }
"/posts/*" = { isr = "10s", query = false, versions = 5 }
"#;
/// How long a page of the demo is fresh, in seconds.
const INTERVAL: u64 = 10;

/// Serve a built-in slow site through the cache.
///
/// This is the gateway of `facetheory serve` in front of a built-in origin whose pages take 300 ms to render. It needs no
/// configuration. Without --data, pages are stored in a temporary directory, which is deleted on exit.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  facetheory demo
  facetheory demo --listen 127.0.0.1:0               any free port
  facetheory demo --data facetheory-data             store the pages in this directory")]
pub(crate) struct Arguments {
    /// Address to listen on
    #[arg(long, value_name = "ADDRESS", default_value = "127.0.0.1:8080")]
    listen: SocketAddr,
    /// Directory of the store
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
    let temporary = tempfile::tempdir().context("cannot create a temporary directory")?;
    let data = arguments.data.as_deref().unwrap_or(temporary.path());
    let mut config = Config::parse(CONFIG)
        .map_err(|errors| anyhow!("the configuration of the demo is invalid: {errors}"))?;
    // The demo does not use the store that the environment names.
    config.store.data = Some(data.to_owned());
    // The demo does not use sockets of a service manager.
    let mut sockets = Sockets::default();
    let admin = arguments.admin.bind(&config.admin, &mut sockets).await?;
    let console = admin.as_ref().map(admin::Listener::address).transpose()?;
    let site = origin::start(console).await?;
    let settings = Settings::new(config, site, Some(arguments.listen))?;
    let builder = open(&settings.config.store, &settings.config.timeouts).await?;
    let access = log.access(LogSample::default());
    let server = Server::bind(settings.clone(), builder, &mut sockets, admin, access).await?;
    print(&introduction(&server.url(), console, data))?;
    server.run(None, || Ok(settings.clone())).await
}

/// Returns commands to try.
fn introduction(site: &str, console: Option<SocketAddr>, data: &Path) -> String {
    let data = data.display();
    let mut text = format!(
        "The demo listens on {site}/ and stores its pages in {data}.
A page takes 300 ms to render and is fresh for {INTERVAL} s. Open it in a browser and reload, or run in another terminal:

  curl -i {site}/posts/hello                    # x-facetheory-isr: miss, after 300 ms
  curl -i {site}/posts/hello                    # hit, at once
  sleep {INTERVAL}; curl -i {site}/posts/hello          # stale, at once; regenerated in the background
  sleep 1; curl -i {site}/posts/hello           # hit, with a new time: the background render took 300 ms
"
    );
    if let Some(console) = console {
        text.push_str(&format!(
            "
The console is at http://{console}/. This invalidates everything below /posts, at the same cost for any number of pages:

  curl -X POST http://{console}/api/v1/invalidate -H 'content-type: application/json' -d '{{\"path\":\"/posts\"}}'
  curl 'http://{console}/api/v1/history?url=http://localhost/posts/hello'
"
        ));
    }
    text.push_str("\nPress Ctrl-C to stop.\n");
    text
}
