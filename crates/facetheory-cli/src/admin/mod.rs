//! The admin listener: health, metrics, and the operations on pages (purge, regenerate, roll back), over HTTP.

mod auth;
mod console;
mod entries;
mod extract;
mod health;
mod listener;
mod metrics;
mod openapi;
mod operations;
mod page_selector;
mod problem;
mod purge;
#[cfg(test)]
mod tests;
mod versions;

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::PathBuf;
use std::str::FromStr;
use std::sync::Arc;

use anyhow::{Result, bail};
use arc_swap::ArcSwap;
use axum::extract::State;
use axum::middleware::from_fn_with_state;
use axum::routing::{MethodRouter, get, post};
use axum::{Json, Router};
use facetheory::Isr;
use tokio_util::sync::CancellationToken;

use self::problem::{Problem, WRONG_METHOD};
use crate::config;
use crate::gateway::{ConnectionLimit, Gateway};
use crate::sockets::Sockets;
use crate::token::Token;

pub(crate) use self::health::Readiness;
pub(crate) use self::listener::Listener;
pub(crate) use self::metrics::Metrics;
pub(crate) use self::page_selector::PageSelector;

/// Options of the admin listener on the command line.
#[derive(Clone, Debug, Default, clap::Args)]
#[group(skip)]
pub(crate) struct Arguments {
    /// Address of the admin listener (health, metrics, API), or off; other than loopback needs a token [default: 127.0.0.1:8081]
    #[arg(long, value_name = "ADDRESS")]
    pub(crate) admin: Option<AdminAddress>,
    /// File with the bearer token of the admin listener [default: $FACETHEORY_ADMIN_TOKEN]
    #[arg(long, value_name = "FILE")]
    pub(crate) admin_token_file: Option<PathBuf>,
}

/// The value of `--admin`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum AdminAddress {
    Off,
    Listen(SocketAddr),
}

const DEFAULT_ADDRESS: AdminAddress =
    AdminAddress::Listen(SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), 8081));

impl FromStr for AdminAddress {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        if text == "off" {
            return Ok(AdminAddress::Off);
        }
        let invalid = |_| format!("`{text}` is not an address; write one such as 127.0.0.1:8081, or off");
        text.parse().map(AdminAddress::Listen).map_err(invalid)
    }
}

/// The address and the token of the admin listener.
#[derive(Debug)]
pub(crate) struct AdminSettings {
    address: SocketAddr,
    /// The address is the default, not configured.
    is_default: bool,
    token: Option<Token>,
}

impl Arguments {
    /// Binds the admin listener. Returns `None` if it is off, or if its default address is in use.
    pub(crate) async fn bind(
        &self,
        configured: &config::Admin,
        sockets: &mut Sockets,
    ) -> Result<Option<Listener>> {
        match self.settings(configured)? {
            Some(settings) => Listener::bind(settings, sockets).await,
            None => Ok(None),
        }
    }

    /// Combines the command line with the configuration. An address that other machines can reach needs a token.
    fn settings(&self, configured: &config::Admin) -> Result<Option<AdminSettings>> {
        let given = self.admin.or(configured.listen.map(AdminAddress::Listen));
        let AdminAddress::Listen(address) = given.unwrap_or(DEFAULT_ADDRESS) else { return Ok(None) };
        let file = self.admin_token_file.as_ref().or(configured.token_file.as_ref());
        let token = Token::of_admin(file.map(PathBuf::as_path))?;
        if token.is_none() && !address.ip().to_canonical().is_loopback() {
            bail!(
                "the admin listener at {address} needs a token, since other machines can reach it: write at least {} \
                 characters to a file and name it with --admin-token-file, or set {}; or listen on 127.0.0.1",
                Token::MIN_BYTES,
                Token::VARIABLE
            );
        }
        Ok(Some(AdminSettings { address, is_default: given.is_none(), token }))
    }
}

/// The state of the admin listener: the gateway it controls.
pub(crate) struct Admin {
    pub(crate) gateway: Arc<Gateway>,
    pub(crate) isr: Isr,
    pub(crate) connections: Arc<ConnectionLimit>,
    pub(crate) metrics: Metrics,
    pub(crate) effective_config: Arc<ArcSwap<serde_json::Value>>,
    /// Cancelled when a shutdown is requested.
    pub(crate) shutdown: CancellationToken,
    pub(crate) readiness: Readiness,
}

/// The state that a handler receives.
type AdminState = State<Arc<Admin>>;
/// The result of a handler that responds with JSON.
type ApiResult<T> = Result<Json<T>, Problem>;

/// All paths and their handlers.
fn routes() -> [(&'static str, MethodRouter<Arc<Admin>>); 15] {
    [
        ("/", get(console::show)),
        ("/healthz", get(health::live)),
        ("/readyz", get(health::ready)),
        ("/metrics", get(metrics::show)),
        ("/api/v1/openapi.json", get(openapi::show)),
        ("/api/v1/config", get(console::configuration)),
        ("/api/v1/entries", get(entries::list)),
        ("/api/v1/entry", get(entries::show)),
        ("/api/v1/history", get(versions::history)),
        ("/api/v1/body", get(versions::body)),
        ("/api/v1/diff", get(versions::diff)),
        ("/api/v1/rollback", post(operations::roll_back)),
        ("/api/v1/unpin", post(operations::unpin)),
        ("/api/v1/invalidate", post(operations::invalidate)),
        ("/api/v1/regenerate", post(operations::regenerate)),
    ]
}

fn router(admin: Admin, settings: AdminSettings) -> Router {
    let mut router = Router::new();
    for (path, handler) in routes() {
        router = router.route(path, handler.fallback(wrong_method));
    }
    let admin = Arc::new(admin);
    let guard = auth::Guard { settings, gateway: admin.gateway.clone() };
    let guard = from_fn_with_state(Arc::new(guard), auth::guard);
    let purges = from_fn_with_state(admin.clone(), purge::intercept);
    router.fallback(unknown_path).layer(purges).layer(guard).with_state(admin)
}

async fn unknown_path() -> Problem {
    Problem::not_found("no such path; GET / lists what there is")
}

async fn wrong_method() -> Problem {
    Problem::new(&WRONG_METHOD, "see the Allow header, or /api/v1/openapi.json")
}
