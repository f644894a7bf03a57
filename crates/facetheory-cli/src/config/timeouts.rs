//! `[timeouts]`: how long the origin, the stores and clients may take.

use std::time::Duration;

use serde::{Serialize, Serializer};
use toml::de::DeValue;

use super::section::Section;
use super::units::{format_duration, serialize_duration};
use super::value::{duration, duration_from};

/// Timeouts towards the origin, the stores and clients.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(crate) struct Timeouts {
    /// For connecting to the origin, including the TLS handshake.
    #[serde(serialize_with = "serialize_duration")]
    pub(crate) connect: Duration,
    /// From sending a request to the origin until its response headers.
    #[serde(serialize_with = "serialize_duration")]
    pub(crate) headers: Duration,
    /// Between two reads of a response of the origin.
    #[serde(serialize_with = "serialize_duration")]
    pub(crate) idle: Duration,
    /// For a whole response of the origin; `None` means unlimited. Upgraded connections have `tunnel_idle` instead.
    #[serde(serialize_with = "serialize_limit")]
    pub(crate) total: Option<Duration>,
    /// How long an idle connection to the origin is kept open. The default is below the five seconds after which Node.js
    /// closes idle connections: a request that cannot be repeated must not be sent on a connection that is being closed.
    #[serde(serialize_with = "serialize_duration")]
    pub(crate) keep_alive: Duration,
    /// For a table lookup. After a timeout the table counts as unreachable.
    #[serde(serialize_with = "serialize_duration")]
    pub(crate) table: Duration,
    /// For reading or writing a body. After a timeout the body store counts as unreachable.
    #[serde(serialize_with = "serialize_duration")]
    pub(crate) bodies: Duration,
    /// From a client's connection, or the first byte of a request, to the end of the request headers.
    #[serde(serialize_with = "serialize_duration")]
    pub(crate) client_headers: Duration,
    /// Between two reads of a request body.
    #[serde(serialize_with = "serialize_duration")]
    pub(crate) client_body: Duration,
    /// How long a client connection may be idle between requests, or may not read a response.
    #[serde(serialize_with = "serialize_duration")]
    pub(crate) client_idle: Duration,
    /// How long an upgraded connection may be idle in both directions; `None` means unlimited.
    #[serde(serialize_with = "serialize_limit")]
    pub(crate) tunnel_idle: Option<Duration>,
    /// How long a shutdown waits for requests and renders in progress.
    #[serde(serialize_with = "serialize_duration")]
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
    /// Returns the fetch timeout of pages that follow the origin's headers. It is longer than `total`, so that `total`
    /// ends such a fetch like that of a response that is passed through.
    pub(crate) fn fetch(&self) -> Duration {
        const MARGIN: Duration = Duration::from_secs(10);
        self.total.map_or(Duration::MAX, |total| total.saturating_add(MARGIN))
    }

    pub(crate) fn read(mut section: Section<'_>) -> Timeouts {
        const MIN: Duration = Duration::from_millis(1);
        let mut timeouts = Timeouts::default();
        for (key, timeout) in [
            ("connect", &mut timeouts.connect),
            ("headers", &mut timeouts.headers),
            ("idle", &mut timeouts.idle),
            ("table", &mut timeouts.table),
            ("bodies", &mut timeouts.bodies),
            ("client_headers", &mut timeouts.client_headers),
            ("client_body", &mut timeouts.client_body),
            ("client_idle", &mut timeouts.client_idle),
        ] {
            section.set(key, timeout, duration_from(MIN));
        }
        let limit = |value: &DeValue<'_>| match value {
            DeValue::Boolean(false) => Ok(None),
            other => duration_from(MIN)(other).map(Some),
        };
        section.set("total", &mut timeouts.total, limit);
        section.set("tunnel_idle", &mut timeouts.tunnel_idle, limit);
        section.set("keep_alive", &mut timeouts.keep_alive, duration);
        section.set("shutdown", &mut timeouts.shutdown, duration);
        section.finish();
        timeouts
    }
}

fn serialize_limit<S: Serializer>(limit: &Option<Duration>, serializer: S) -> Result<S::Ok, S::Error> {
    match limit {
        Some(limit) => serializer.serialize_str(&format_duration(*limit)),
        None => serializer.serialize_bool(false),
    }
}
