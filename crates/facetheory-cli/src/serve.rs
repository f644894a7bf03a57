//! `facetheory serve`: the gateway in front of an origin.

mod gc;
mod quota;
mod reload;
mod server;
mod settings;
mod shutdown;
mod store;
mod watchdog;

use std::net::SocketAddr;
use std::path::PathBuf;

use anyhow::Result;

use crate::sockets::Sockets;
use crate::{admin, config, log, print};

pub(crate) use gc::GcTask;
pub(crate) use server::Server;
pub(crate) use settings::{DEFAULT_FILE, Settings};
pub(crate) use store::{StoreLocation, Stores, is_embedded, open};

/// Run the caching gateway in front of an origin.
///
/// Pages are cached as the rules in facetheory.toml say; paths without a rule are cached as the headers of the origin say.
/// Without --data, --table and --bodies the environment names the store (FACETHEORY_CACHE_TABLE_NAME,
/// FACETHEORY_ISR_BUCKET); otherwise pages are stored in ./facetheory-data.
///
/// SIGHUP reloads the configuration and the certificate. SIGTERM and Ctrl-C shut down gracefully; a second one shuts down
/// at once. Five seconds later at the latest the process has exited, whatever a disk or a store does. With --hand-over a second
/// process replaces the running one without a refused connection: start it with the same options. Sockets of systemd
/// (LISTEN_FDS) are used, too.
#[derive(Clone, Debug, Default, clap::Args)]
#[command(after_help = "Examples:
  facetheory serve --origin http://127.0.0.1:3000
  facetheory serve --origin http://127.0.0.1:3000 --config facetheory.toml
  facetheory serve --origin http://127.0.0.1:3000 --data /var/lib/facetheory
  facetheory serve --origin http://127.0.0.1:3000 --table dynamodb:pages --bodies s3://bucket/isr
  facetheory serve --origin http://127.0.0.1:3000 --listen 0.0.0.0:443 --certificate cert.pem --key key.pem
  facetheory serve --origin http://127.0.0.1:3000 --hand-over /run/facetheory/hand-over.sock
  kill -HUP $(pidof facetheory)                       reload facetheory.toml")]
pub(crate) struct Arguments {
    /// URL of the origin
    #[arg(long, value_name = "URL")]
    pub(crate) origin: Option<config::Origin>,
    /// Address to listen on [default: 127.0.0.1:8080]
    #[arg(long, value_name = "ADDRESS")]
    listen: Option<SocketAddr>,
    /// Unix socket over which a new process takes the listening sockets over from the running one
    #[arg(long, value_name = "FILE")]
    hand_over: Option<PathBuf>,
    /// Configuration file [default: facetheory.toml, if it exists]
    #[arg(long, value_name = "FILE")]
    pub(crate) config: Option<PathBuf>,
    #[command(flatten)]
    pub(crate) store: StoreLocation,
    /// TLS certificate chain (PEM); enables HTTPS
    #[arg(long, value_name = "FILE", requires = "key")]
    certificate: Option<PathBuf>,
    /// Private key of the certificate (PEM)
    #[arg(long, value_name = "FILE", requires = "certificate")]
    key: Option<PathBuf>,
    #[command(flatten)]
    admin: admin::Arguments,
    #[command(flatten)]
    log: log::Arguments,
}

/// The pages that wait to be regenerated in the background.
const BACKGROUND_QUEUE: usize = 1024;

/// Serves until a signal shuts the process down.
pub(crate) async fn run(arguments: &Arguments) -> Result<()> {
    let settings = Settings::read(arguments)?;
    let log = log::start(&arguments.log, settings.config.log.format)?;
    settings.log_warnings();
    let (mut sockets, hand_over) = Sockets::inherit(settings.config.hand_over.as_deref()).await?;
    let admin = arguments.admin.bind(&settings.config.admin, &mut sockets).await?;
    let builder = store::open(&settings.config.store, &settings.config.timeouts).await?;
    let builder = builder.background(settings.config.limits.background_renders(), BACKGROUND_QUEUE);
    let builder = builder.replaced_retention(settings.config.gc.replaced);
    let access = log.access(settings.config.log.sample);
    let server = Server::bind(settings, builder, &mut sockets, admin, access).await?;
    sockets.finish()?;
    print(&format!("listening on {}/\n", server.url()))?;
    if let Some(admin) = server.admin_url() {
        print(&format!("admin listener on {admin}/\n"))?;
    }
    server.run(hand_over, || Settings::read(arguments)).await
}
