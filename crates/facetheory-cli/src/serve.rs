//! `facetheory serve`: the gateway in front of an origin.

use std::io::Write as _;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context as _, Result};
use facetheory::{Isr, IsrBuilder, IsrLayer, Policy, Route, Routes};
use http::Uri;
use tokio_util::sync::CancellationToken;

use crate::gateway::{
    Endpoint, Gateway, Listener, Origin, Places, Rules, Terms, Timeouts, Tls, Trust, Tunnels,
};
use crate::signal::{Signal, Signals};

/// Keep the pages of a slow origin, and serve them to everyone.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  facetheory serve --origin http://127.0.0.1:3000
  facetheory serve --origin http://127.0.0.1:3000 --config facetheory.toml
  facetheory serve --origin http://127.0.0.1:3000 --data /var/lib/facetheory
  facetheory serve --origin http://127.0.0.1:3000 --table dynamodb:pages --bodies s3://bucket/isr")]
pub(crate) struct Arguments {
    /// The origin that renders the pages.
    #[arg(long, value_name = "URL")]
    origin: Uri,
    /// The address to listen on.
    #[arg(long, value_name = "ADDRESS", default_value = "127.0.0.1:8080")]
    listen: SocketAddr,
    /// The directory in which the pages are kept.
    #[arg(long, value_name = "DIRECTORY", conflicts_with_all = ["table", "bodies"])]
    data: Option<PathBuf>,
    /// The table: memory:, sqlite:PATH or dynamodb:TABLE.
    #[arg(long, value_name = "URL", requires = "bodies")]
    table: Option<String>,
    /// Where bodies are kept: memory:, file:PATH or s3://BUCKET/PREFIX.
    #[arg(long, value_name = "URL", requires = "table")]
    bodies: Option<String>,
    /// The certificates that visitors are shown, as a PEM file: their connections are secure then.
    #[arg(long, value_name = "FILE", requires = "key")]
    certificate: Option<PathBuf>,
    /// The private key of the certificate, as a PEM file.
    #[arg(long, value_name = "FILE", requires = "certificate")]
    key: Option<PathBuf>,
}

/// How long connections may go on once the gateway is to end.
const DRAIN: Duration = Duration::from_secs(10);
/// How long renders may go on after that.
const LAST_RENDERS: Duration = Duration::from_secs(5);

/// Serves until Ctrl-C.
pub(crate) async fn run(arguments: &Arguments) -> Result<()> {
    let data = arguments.data.clone().unwrap_or_else(|| PathBuf::from("facetheory-data"));
    let isr = match (&arguments.table, &arguments.bodies) {
        (Some(table), Some(bodies)) => Isr::open(table, bodies).await?,
        _ => embedded(&data).await?,
    }
    .build();
    let tunnels = Tunnels::default();
    let origin = Origin::new(&arguments.origin, Timeouts::default(), Trust::default(), tunnels.clone())?;
    let rules = || -> Result<Rules> {
        let routes = Routes::new([Route::new("/{*rest}", Policy::every(Duration::from_secs(10)))])?;
        let layer = IsrLayer::new(isr.clone(), routes);
        let terms = Terms { bytes: 10 * 1024 * 1024, pause: Duration::from_secs(30) };
        Ok(Rules::new(&layer, origin.clone(), Trust::default(), terms))
    };
    let gateway = Gateway::new(rules()?);
    let tls = match (&arguments.certificate, &arguments.key) {
        (Some(certificate), Some(key)) => Some(Arc::new(Tls::open(certificate, key)?)),
        _ => None,
    };
    let listener = Listener::bind(arguments.listen, "--listen").await?;
    introduce(listener.address()?, tls.is_some())?;
    let endpoint =
        Endpoint { gateway: gateway.clone(), tls: tls.clone(), places: Places::new(10_000, 4_096) };
    let stop = CancellationToken::new();
    let mut serving = std::pin::pin!(listener.run(endpoint, stop.clone(), DRAIN));
    let mut signals = Signals::new()?;
    loop {
        tokio::select! {
            _ = &mut serving => break,
            signal = signals.next() => match signal {
                Signal::Stop => stop.cancel(),
                Signal::Reload => {
                    gateway.replace(rules()?);
                    if let Some(Err(error)) = tls.as_ref().map(|tls| tls.reload()) {
                        tracing::error!(error = format!("{error:#}"), "the certificate stays as it is");
                    }
                }
            },
        }
    }
    tunnels.end().await;
    isr.shut_down(LAST_RENDERS).await;
    Ok(())
}

/// Says where it listens.
fn introduce(address: SocketAddr, secure: bool) -> Result<()> {
    let scheme = if secure { "https" } else { "http" };
    let mut output = std::io::stdout().lock();
    writeln!(output, "listening on {scheme}://{address}/")
        .and_then(|()| output.flush())
        .context("the output is closed")
}

/// The store in a directory.
pub(crate) async fn embedded(data: &Path) -> Result<IsrBuilder> {
    std::fs::create_dir_all(data)
        .with_context(|| format!("the directory {} cannot be made", data.display()))?;
    let table = format!("sqlite:{}", data.join("table.db").display());
    let bodies = format!("file:{}", data.join("bodies").display());
    Ok(Isr::open(&table, &bodies).await?)
}
