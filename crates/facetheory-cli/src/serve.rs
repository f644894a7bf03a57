//! `facetheory serve`: the gateway in front of an origin.

mod gc;
mod server;
mod settings;
mod shutdown;
mod store;

use std::io::Write as _;
use std::net::SocketAddr;
use std::path::PathBuf;

use anyhow::{Context as _, Result};

use crate::{admin, config, log};

pub(crate) use server::Server;
pub(crate) use settings::Settings;
pub(crate) use store::embedded;

/// Keep the pages of a slow origin, and serve them to everyone.
///
/// Pages are kept as the rules of facetheory.toml say; what has no rule is kept as the origin's own headers say. Without
/// a table, bodies or data the environment says where pages are kept (FACETHEORY_CACHE_TABLE_NAME,
/// FACETHEORY_ISR_BUCKET), else they are kept in ./facetheory-data.
///
/// SIGHUP reads the configuration and the certificate again; SIGTERM and Ctrl-C end it once what is under way has ended, and
/// at once if they come twice.
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
    #[command(flatten)]
    admin: admin::Arguments,
    #[command(flatten)]
    log: log::Arguments,
}

/// Serves until Ctrl-C.
pub(crate) async fn run(arguments: &Arguments) -> Result<()> {
    let settings = Settings::read(arguments)?;
    let log = log::start(&arguments.log, settings.config.log)?;
    let admin = match arguments.admin.terms(&settings.config.admin)? {
        Some(terms) => admin::Listener::bind(terms).await?,
        None => None,
    };
    let isr = store::open(&settings.config.store, &settings.config.timeouts).await?.build();
    let server = Server::start(settings, isr, admin, log.access()).await?;
    introduce("listening on", &server.address())?;
    if let Some(admin) = server.admin_address() {
        introduce("the admin listener is at", &admin)?;
    }
    server.run(|| Settings::read(arguments)).await
}

/// Says where something is.
fn introduce(what: &str, address: &str) -> Result<()> {
    let mut output = std::io::stdout().lock();
    writeln!(output, "{what} {address}/").and_then(|()| output.flush()).context("the output is closed")
}
