//! For how long a response is fresh (RFC 9111 §4.2.1 and §4.2.2).

use std::time::Duration;

use http::header::{DATE, EXPIRES, HeaderName, LAST_MODIFIED};
use http::{HeaderMap, StatusCode};
use tabletheory::Timestamp;

use crate::http::semantics::cache_control::MAX_SECONDS;
use crate::http::semantics::date::date_of;
use crate::http::semantics::directives::ResponseDirectives;

/// Of the time since a page was modified last, this part is guessed to pass before it is again.
const HEURISTIC_PART: u64 = 10;
/// Nothing is guessed to be fresh for longer than this.
const LONGEST_GUESS: Duration = Duration::from_secs(86_400);

/// For how long a response is fresh after its origin made it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Lifetime {
    /// Its origin says so.
    Explicit(Duration),
    /// It is guessed.
    Heuristic(Duration),
    /// Nothing says so.
    Unknown,
}

impl Lifetime {
    /// The time; none for what is unknown.
    pub(crate) fn time(self) -> Duration {
        match self {
            Lifetime::Explicit(time) | Lifetime::Heuristic(time) => time,
            Lifetime::Unknown => Duration::ZERO,
        }
    }
}

/// For how long a response is fresh that was received at this time.
pub(crate) fn lifetime(
    status: StatusCode,
    headers: &HeaderMap,
    said: &ResponseDirectives,
    received: Timestamp,
) -> Lifetime {
    if let Some(time) = said.control.s_maxage.or(said.control.max_age) {
        return Lifetime::Explicit(time);
    }
    // Where there is no date that can be read, it is that of its arrival (RFC 9110 §6.6.1).
    let date = date_of(headers, &DATE).unwrap_or(received);
    if !said.targeted && headers.contains_key(EXPIRES) {
        let time = date_of(headers, &EXPIRES).map(|expires| between(date, expires));
        return Lifetime::Explicit(time.unwrap_or_default());
    }
    if !said.control.public && !is_heuristically_cacheable(status) {
        return Lifetime::Unknown;
    }
    match date_of(headers, &LAST_MODIFIED) {
        Some(modified) => {
            let guess = between(modified, date).as_secs() / HEURISTIC_PART;
            Lifetime::Heuristic(Duration::from_secs(guess).min(LONGEST_GUESS))
        }
        None => Lifetime::Unknown,
    }
}

/// Whether a response with this status may be kept although it says nothing of that (RFC 9110 §15.1).
pub(crate) fn is_heuristically_cacheable(status: StatusCode) -> bool {
    matches!(status.as_u16(), 200 | 203 | 204 | 300 | 301 | 308 | 404 | 405 | 410 | 414 | 501)
}

/// Whether a response has something to be recognised by.
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
