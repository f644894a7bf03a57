//! `[timeouts]`: how long anybody may take.

use std::time::Duration;

use serde::{Serialize, Serializer};
use toml::de::DeValue;

use super::section::Section;
use super::value::{duration, duration_from};
use super::{duration as text, print_duration};

/// How long the origin, the stores, clients and this process may take.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(crate) struct Timeouts {
    /// For a connection to the origin, with TLS where it has it.
    #[serde(serialize_with = "print_duration")]
    pub(crate) connect: Duration,
    /// From a request that is sent to the origin to the headers of its answer.
    #[serde(serialize_with = "print_duration")]
    pub(crate) headers: Duration,
    /// Between two pieces of an answer of the origin.
    #[serde(serialize_with = "print_duration")]
    pub(crate) idle: Duration,
    /// For a whole answer of the origin; none sets no limit. Connections that were upgraded have `tunnel_idle` instead.
    #[serde(serialize_with = "print_limit")]
    pub(crate) total: Option<Duration>,
    /// For how long a connection to the origin is kept for the next request. Less than the five seconds after which
    /// Node.js closes its own: a request that cannot be repeated must not meet a connection that is about to close.
    #[serde(serialize_with = "print_duration")]
    pub(crate) keep_alive: Duration,
    /// For what the table says of a page; after that it counts as unreachable.
    #[serde(serialize_with = "print_duration")]
    pub(crate) table: Duration,
    /// For reading or storing the body of a page; after that their store counts as unreachable.
    #[serde(serialize_with = "print_duration")]
    pub(crate) bodies: Duration,
    /// From a client's connection, or the first byte of a request, to the end of its headers.
    #[serde(serialize_with = "print_duration")]
    pub(crate) client_headers: Duration,
    /// Between two pieces of a request's body.
    #[serde(serialize_with = "print_duration")]
    pub(crate) client_body: Duration,
    /// For how long a client's connection may rest: between two requests, or while it takes nothing of an answer.
    #[serde(serialize_with = "print_duration")]
    pub(crate) client_idle: Duration,
    /// For how long a connection that was upgraded may rest, in both directions; none sets no limit.
    #[serde(serialize_with = "print_limit")]
    pub(crate) tunnel_idle: Option<Duration>,
    /// For how long requests and renders that are under way are waited for at the end.
    #[serde(serialize_with = "print_duration")]
    pub(crate) shutdown: Duration,
}

impl Default for Timeouts {
    fn default() -> Self {
        Timeouts {
            connect: Duration::from_secs(5),
            headers: Duration::from_secs(30),
            idle: Duration::from_secs(60),
            total: Some(Duration::from_secs(60 * 60)),
            keep_alive: Duration::from_secs(4),
            table: Duration::from_secs(2),
            bodies: Duration::from_secs(10),
            client_headers: Duration::from_secs(10),
            client_body: Duration::from_secs(30),
            client_idle: Duration::from_secs(60),
            tunnel_idle: Some(Duration::from_secs(60 * 60)),
            shutdown: Duration::from_secs(30),
        }
    }
}

impl Timeouts {
    /// How long the origin may take for a page that follows its headers: longer than any of its own time-outs, so that one of
    /// these ends it and not this, as for what is passed on.
    pub(crate) fn fetch(&self) -> Duration {
        /// That begins a little later.
        const LATER: Duration = Duration::from_secs(10);
        self.total.map_or(Duration::MAX, |total| total.saturating_add(LATER))
    }

    /// What the table says.
    pub(crate) fn read(mut section: Section<'_>) -> Timeouts {
        /// With less, nothing would ever come in time.
        const LEAST: Duration = Duration::from_millis(1);
        let usual = Timeouts::default();
        let mut read = |key, usual| section.read(key, duration_from(LEAST)).unwrap_or(usual);
        let timeouts = Timeouts {
            connect: read("connect", usual.connect),
            headers: read("headers", usual.headers),
            idle: read("idle", usual.idle),
            total: usual.total,
            keep_alive: usual.keep_alive,
            table: read("table", usual.table),
            bodies: read("bodies", usual.bodies),
            client_headers: read("client_headers", usual.client_headers),
            client_body: read("client_body", usual.client_body),
            client_idle: read("client_idle", usual.client_idle),
            tunnel_idle: usual.tunnel_idle,
            shutdown: usual.shutdown,
        };
        let limit = |value: &DeValue<'_>| match value {
            DeValue::Boolean(false) => Ok(None),
            other => duration_from(LEAST)(other).map(Some),
        };
        let timeouts = Timeouts {
            total: section.read("total", limit).unwrap_or(usual.total),
            tunnel_idle: section.read("tunnel_idle", limit).unwrap_or(usual.tunnel_idle),
            keep_alive: section.read("keep_alive", duration).unwrap_or(usual.keep_alive),
            shutdown: section.read("shutdown", duration).unwrap_or(usual.shutdown),
            ..timeouts
        };
        section.finish();
        timeouts
    }
}

fn print_limit<S: Serializer>(limit: &Option<Duration>, serializer: S) -> Result<S::Ok, S::Error> {
    match limit {
        Some(limit) => serializer.serialize_str(&text::print(*limit)),
        None => serializer.serialize_bool(false),
    }
}
