//! `facetheory serve`: the gateway in front of an origin.

mod setting;
mod store;

use std::io::Write as _;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::pin::pin;
use std::sync::Arc;

use anyhow::{Context as _, Result};
use facetheory::Isr;
use tokio_util::sync::CancellationToken;

use crate::config;
use crate::gateway::{Endpoint, Gateway, Listener, Places, Rules, Tls, Tunnels};
use crate::signal::{Signal, Signals};
use crate::wire::Watch;

pub(crate) use setting::Settings;

/// Keep the pages of a slow origin, and serve them to everyone.
///
/// Pages are kept as the rules of facetheory.toml say; what has no rule is passed on. Without a table, bodies or data the
/// environment says where pages are kept (FACETHEORY_CACHE_TABLE_NAME, FACETHEORY_ISR_BUCKET), else they are kept in
/// ./facetheory-data.
///
/// SIGHUP reads the configuration and the certificate again; SIGTERM and Ctrl-C end it once what is under way has ended.
#[derive(Clone, Debug, Default, clap::Args)]
#[command(after_help = "Examples:
  facetheory serve --origin http://127.0.0.1:3000
  facetheory serve --origin http://127.0.0.1:3000 --config facetheory.toml
  facetheory serve --origin http://127.0.0.1:3000 --data /var/lib/facetheory
  facetheory serve --origin http://127.0.0.1:3000 --table dynamodb:pages --bodies s3://bucket/isr
  facetheory serve --origin http://127.0.0.1:3000 --listen 0.0.0.0:443 --certificate cert.pem --key key.pem
  kill -HUP $(pidof facetheory)                       read facetheory.toml again")]
pub(crate) struct Arguments {
    /// The origin that renders the pages.
    #[arg(long, value_name = "URL")]
    origin: Option<config::Origin>,
    /// The address to listen on, 127.0.0.1:8080 if neither this nor the configuration says another.
    #[arg(long, value_name = "ADDRESS")]
    listen: Option<SocketAddr>,
    /// The configuration; ./facetheory.toml if that is there.
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
    /// The directory in which pages are kept.
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

/// Serves until Ctrl-C.
pub(crate) async fn run(arguments: &Arguments) -> Result<()> {
    let settings = Settings::read(arguments)?;
    let isr = store::open(&settings.config.store).await?.build();
    let server = Server::start(settings, isr).await?;
    introduce(&server.address())?;
    server.run(|| Settings::read(arguments)).await
}

/// A gateway that listens.
#[derive(Debug)]
pub(crate) struct Server {
    settings: Settings,
    isr: Isr,
    gateway: Arc<Gateway>,
    listener: Listener,
    address: SocketAddr,
    tls: Option<Arc<Tls>>,
    tunnels: Tunnels,
}

impl Server {
    /// Listens as the settings say, for pages of this engine.
    pub(crate) async fn start(settings: Settings, isr: Isr) -> Result<Self> {
        let tunnels = Tunnels::default();
        let rules = Rules::new(&settings.config, &settings.origin, isr.clone(), tunnels.clone())?;
        let tls =
            settings.config.tls.as_ref().map(|tls| Tls::open(&tls.certificate, &tls.key)).transpose()?;
        let listener = Listener::bind(settings.listen, "--listen").await?;
        let address = listener.address()?;
        Ok(Server {
            gateway: Gateway::new(rules),
            listener,
            address,
            tls: tls.map(Arc::new),
            tunnels,
            isr,
            settings,
        })
    }

    /// Where it listens, as an address to be opened.
    pub(crate) fn address(&self) -> String {
        let scheme = if self.tls.is_some() { "https" } else { "http" };
        format!("{scheme}://{}", self.address)
    }

    /// Serves until it is asked to end. Asked to read its settings again, it goes by those from then on, unless they are
    /// wrong.
    pub(crate) async fn run(self, read_again: impl Fn() -> Result<Settings>) -> Result<()> {
        let Server { settings, isr, gateway, listener, tls, tunnels, .. } = self;
        let limits = &settings.config.limits;
        let count = |limit: u64| usize::try_from(limit).unwrap_or(usize::MAX);
        let endpoint = Endpoint {
            gateway: gateway.clone(),
            tls: tls.clone(),
            places: Places::new(count(limits.connections), count(limits.connections_per_address)),
            watch: Watch::new(),
        };
        let (drain, stop) = (settings.config.timeouts.shutdown, CancellationToken::new());
        let ticking = endpoint.watch.clone();
        let ticker = tokio::spawn(async move { ticking.run().await });
        let mut serving = pin!(listener.run(endpoint, stop.clone(), drain));
        let mut signals = Signals::new()?;
        loop {
            tokio::select! {
                drained = &mut serving => {
                    if !drained {
                        tracing::warn!("some connections had to be cut");
                    }
                    break;
                }
                signal = signals.next() => match signal {
                    Signal::Stop => stop.cancel(),
                    Signal::Reload => {
                        let rules = read_again().and_then(|settings| {
                            Rules::new(&settings.config, &settings.origin, isr.clone(), tunnels.clone())
                        });
                        match rules {
                            Ok(rules) => {
                                gateway.replace(rules);
                                tracing::info!("the configuration was read again");
                            }
                            Err(error) => {
                                tracing::error!(error = format!("{error:#}"), "the configuration stays as it was");
                            }
                        }
                        if let Some(Err(error)) = tls.as_ref().map(|tls| tls.reload()) {
                            tracing::error!(error = format!("{error:#}"), "the certificate stays as it was");
                        }
                    }
                },
            }
        }
        tunnels.end().await;
        isr.shut_down(drain).await;
        ticker.abort();
        Ok(())
    }
}

/// Says where it listens.
fn introduce(address: &str) -> Result<()> {
    let mut output = std::io::stdout().lock();
    writeln!(output, "listening on {address}/").and_then(|()| output.flush()).context("the output is closed")
}
