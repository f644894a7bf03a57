//! `[timeouts]`: how long the origin, the stores and clients may take.

use std::time::Duration;

use toml::de::DeValue;

use super::section::table;
use super::units::{serialize_duration, serialize_optional_duration};
use super::value::{duration, duration_from};

table! {
    /// Timeouts towards the origin, the stores and clients.
    Timeouts {
        /// For connecting to the origin, including the TLS handshake.
        connect: Duration = Duration::from_secs(5), timeout, "serialize_duration";
        /// How long a request waits for a free connection to the origin.
        origin_queue: Duration = Duration::from_secs(5), timeout, "serialize_duration";
        /// From sending a request to the origin until its response headers.
        headers: Duration = Duration::from_secs(30), timeout, "serialize_duration";
        /// Between two reads of a response of the origin.
        idle: Duration = Duration::from_secs(60), timeout, "serialize_duration";
        /// For a table lookup. After a timeout the table counts as unreachable.
        table: Duration = Duration::from_secs(2), timeout, "serialize_duration";
        /// For reading or writing a body. After a timeout the body store counts as unreachable.
        bodies: Duration = Duration::from_secs(10), timeout, "serialize_duration";
        /// How long the response to a request that had a page rendered waits for its publish, which continues behind it.
        publish: Duration = Duration::from_millis(100), duration, "serialize_duration";
        /// From a client's connection, or the first byte of a request, to the end of the request headers.
        client_headers: Duration = Duration::from_secs(10), timeout, "serialize_duration";
        /// Between two reads of a request body.
        client_body: Duration = Duration::from_secs(30), timeout, "serialize_duration";
        /// How long a client connection may be idle between requests, or may not read a response.
        client_idle: Duration = Duration::from_secs(60), timeout, "serialize_duration";
        /// For a whole response of the origin; `None` means unlimited. Upgraded connections have `tunnel_idle` instead.
        total: Option<Duration> = Some(Duration::from_secs(60 * 60)), optional_timeout, "serialize_optional_duration";
        /// How long an upgraded connection may be idle in both directions; `None` means unlimited.
        tunnel_idle: Option<Duration> = Some(Duration::from_secs(60 * 60)), optional_timeout, "serialize_optional_duration";
        /// How long an idle connection to the origin is kept open. The default is below the five seconds after which Node.js
        /// closes idle connections: a request that cannot be repeated must not be sent on a connection that is being closed.
        keep_alive: Duration = Duration::from_secs(4), duration, "serialize_duration";
        /// How long new connections are accepted after a shutdown was requested.
        lame_duck: Duration = Duration::ZERO, duration, "serialize_duration";
        /// How long a shutdown waits for requests and renders in progress.
        shutdown: Duration = Duration::from_secs(30), duration, "serialize_duration";
    }
}

impl Timeouts {
    /// Returns the fetch timeout of pages that follow the origin's headers. It is longer than `total`, so that `total`
    /// ends such a fetch like that of a response that is passed through.
    pub(crate) fn fetch(&self) -> Duration {
        const MARGIN: Duration = Duration::from_secs(10);
        self.total.map_or(Duration::MAX, |total| total.saturating_add(MARGIN))
    }
}

fn timeout(value: &DeValue<'_>) -> Result<Duration, String> {
    duration_from(Duration::from_millis(1))(value)
}

/// A timeout, or `false` for none.
fn optional_timeout(value: &DeValue<'_>) -> Result<Option<Duration>, String> {
    if value.as_bool() == Some(false) { Ok(None) } else { timeout(value).map(Some) }
}
