//! The admin listener: health, metrics, and everything that an operator does to pages, over HTTP.

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
#[cfg(test)]
mod tests;
mod token;
mod versions;

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::PathBuf;
use std::str::FromStr;
use std::sync::Arc;

use anyhow::{Result, bail};
use axum::Router;
use axum::middleware::from_fn_with_state;
use axum::routing::{MethodRouter, get, post};
use facetheory::Isr;
use tokio_util::sync::CancellationToken;

use self::problem::Problem;
use self::token::Token;
use crate::config;
use crate::gateway::{ConnectionLimit, Gateway};

pub(crate) use health::Readiness;
pub(crate) use listener::Listener;
pub(crate) use metrics::Metrics;

/// How the admin listener is asked for on the command line.
#[derive(Clone, Debug, Default, clap::Args)]
#[group(skip)]
pub(crate) struct Arguments {
    /// The address of the admin listener: health, metrics and the API; or off. 127.0.0.1:8081 if neither this nor the
    /// configuration says another; one that other machines can reach needs a token.
    #[arg(long, value_name = "ADDRESS")]
    pub(crate) admin: Option<Place>,
    /// The file with the token that the admin listener requires; else FACETHEORY_ADMIN_TOKEN, if it is set.
    #[arg(long, value_name = "FILE")]
    pub(crate) admin_token_file: Option<PathBuf>,
}

/// Where the admin listener is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Place {
    /// Nowhere.
    Off,
    /// At an address.
    At(SocketAddr),
}

/// Where it is if nobody says otherwise.
const USUAL: Place = Place::At(SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), 8081));

impl FromStr for Place {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        if text == "off" {
            return Ok(Place::Off);
        }
        let wrong = |_| format!("`{text}` is no address; write one as in 127.0.0.1:8081, or off");
        text.parse().map(Place::At).map_err(wrong)
    }
}

/// What the listener goes by: where it is, and what it requires.
#[derive(Debug)]
pub(crate) struct Terms {
    pub(crate) address: SocketAddr,
    /// Nobody has asked for this address, so that the gateway can do without.
    pub(crate) is_usual: bool,
    token: Option<Token>,
}

impl Arguments {
    /// Where the listener is and what it requires; none if there is none. What other machines can reach needs a token.
    /// The command line has the last word.
    pub(crate) fn terms(&self, configured: &config::Admin) -> Result<Option<Terms>> {
        let said = self.admin.or(configured.listen.map(Place::At));
        let Place::At(address) = said.unwrap_or(USUAL) else { return Ok(None) };
        let file = self.admin_token_file.as_ref().or(configured.token_file.as_ref());
        let token = Token::find(file.map(PathBuf::as_path))?;
        if token.is_none() && !address.ip().to_canonical().is_loopback() {
            bail!(
                "other machines can reach the admin listener at {address}, so it needs a token: write one of at least {} \
                 characters into a file and name that with --admin-token-file, or set {}; or listen on 127.0.0.1",
                Token::LEAST_BYTES,
                Token::VARIABLE
            );
        }
        Ok(Some(Terms { address, is_usual: said.is_none(), token }))
    }
}

/// What the configuration has come to, whenever somebody asks.
pub(crate) type Resolved = Arc<dyn Fn() -> serde_json::Value + Send + Sync>;

/// What the listener tells of, and acts on.
pub(crate) struct Admin {
    pub(crate) gateway: Arc<Gateway>,
    pub(crate) isr: Isr,
    pub(crate) connections: Arc<ConnectionLimit>,
    pub(crate) metrics: Metrics,
    pub(crate) configuration: Resolved,
    /// Cancelled once the gateway is to end.
    pub(crate) stop: CancellationToken,
    pub(crate) terms: Terms,
    pub(crate) readiness: Readiness,
}

impl fmt::Debug for Admin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Admin").field("terms", &self.terms).finish_non_exhaustive()
    }
}

/// Every address of the listener, and what answers there.
fn routes() -> [(&'static str, MethodRouter<Arc<Admin>>); 15] {
    [
        ("/", get(console::show)),
        ("/healthz", get(health::lives)),
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

/// All of it, as a service.
pub(crate) fn router(admin: Arc<Admin>) -> Router {
    let mut router = Router::new();
    for (path, answer) in routes() {
        router = router.route(path, answer.fallback(wrong_method));
    }
    router.fallback(unknown).layer(from_fn_with_state(admin.clone(), auth::guard)).with_state(admin)
}

async fn unknown() -> Problem {
    Problem::not_found("there is nothing at this address; GET / lists what there is")
}

async fn wrong_method() -> Problem {
    Problem::wrong_method()
}
