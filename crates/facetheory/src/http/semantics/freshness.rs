//! The freshness lifetime of a response (RFC 9111 §4.2.1 and §4.2.2).

use std::time::Duration;

use http::header::{DATE, EXPIRES, HeaderName, LAST_MODIFIED};
use http::{HeaderMap, StatusCode};
use tabletheory::Timestamp;

use crate::http::semantics::cache_control::{CacheControl, Directive, MAX_SECONDS};
use crate::http::semantics::date::date_of;

/// The heuristic lifetime is the time since the last modification divided by this.
const HEURISTIC_PART: u64 = 10;
/// The longest heuristic lifetime.
const MAX_HEURISTIC: Duration = Duration::from_secs(86_400);

/// How long a response is fresh after the origin generated it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Lifetime {
    /// By `s-maxage`, `max-age` or `Expires`.
    Explicit(Duration),
    /// By the time since the last modification.
    Heuristic(Duration),
    /// The response gives no indication.
    Unknown,
}

impl Lifetime {
    /// The lifetime; zero if it is unknown.
    pub(crate) fn time(self) -> Duration {
        match self {
            Lifetime::Explicit(time) | Lifetime::Heuristic(time) => time,
            Lifetime::Unknown => Duration::ZERO,
        }
    }
}

/// Returns the freshness lifetime of a response.
pub(crate) fn lifetime(
    status: StatusCode,
    headers: &HeaderMap,
    control: &CacheControl,
    received: Timestamp,
) -> Lifetime {
    if let Some(time) = control.s_maxage.or(control.max_age) {
        return Lifetime::Explicit(time);
    }
    // Without a valid date, the time of receipt counts (RFC 9110 §6.6.1).
    let date = date_of(headers, &DATE).unwrap_or(received);
    if !control.targeted && headers.contains_key(EXPIRES) {
        let time = date_of(headers, &EXPIRES).map(|expires| between(date, expires));
        return Lifetime::Explicit(time.unwrap_or_default());
    }
    if !control.has(Directive::Public) && !is_heuristically_cacheable(status) {
        return Lifetime::Unknown;
    }
    match date_of(headers, &LAST_MODIFIED) {
        Some(modified) => {
            let seconds = between(modified, date).as_secs() / HEURISTIC_PART;
            Lifetime::Heuristic(Duration::from_secs(seconds).min(MAX_HEURISTIC))
        }
        None => Lifetime::Unknown,
    }
}

/// Whether a response with this status may be cached without explicit freshness (RFC 9110 §15.1).
pub(crate) fn is_heuristically_cacheable(status: StatusCode) -> bool {
    matches!(status.as_u16(), 200 | 203 | 204 | 300 | 301 | 308 | 404 | 405 | 410 | 414 | 501)
}

/// Whether a response can be revalidated.
pub(crate) fn has_validator(headers: &HeaderMap) -> bool {
    let has = |name: &HeaderName| headers.get(name).is_some_and(|value| !value.is_empty());
    has(&http::header::ETAG) || has(&LAST_MODIFIED)
}

fn between(earlier: Timestamp, later: Timestamp) -> Duration {
    let seconds = later.seconds().saturating_sub(earlier.seconds());
    Duration::from_secs(u64::try_from(seconds).unwrap_or(0).min(MAX_SECONDS))
}

#[cfg(test)]
mod tests;
