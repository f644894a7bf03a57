//! `Cache-Control`: parsing, with the strictest sensible interpretation, and the value that is sent with a page.

use std::borrow::Cow;
use std::time::Duration;

use http::header::CACHE_CONTROL;
use http::{HeaderMap, HeaderValue};

use crate::pages::policy::{Mode, Policy};

/// The directives of RFC 9111, RFC 5861 and RFC 8246, of a response or of a request.
///
/// Every input has an interpretation, the strictest of the possible ones: the strictest value of a repeated directive counts,
/// an invalid number counts as zero, and a number that is too large as [`MAX_SECONDS`]. Unknown directives are ignored.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct CacheControl {
    pub(crate) no_store: bool,
    pub(crate) no_cache: Option<Scope>,
    pub(crate) private: Option<Scope>,
    pub(crate) public: bool,
    pub(crate) max_age: Option<Duration>,
    pub(crate) s_maxage: Option<Duration>,
    pub(crate) must_revalidate: bool,
    pub(crate) proxy_revalidate: bool,
    pub(crate) must_understand: bool,
    pub(crate) no_transform: bool,
    pub(crate) immutable: bool,
    pub(crate) stale_while_revalidate: Option<Duration>,
    pub(crate) stale_if_error: Option<Duration>,
    pub(crate) only_if_cached: bool,
    pub(crate) min_fresh: Option<Duration>,
    pub(crate) max_stale: Option<MaxStale>,
}

/// The scope of `no-cache` or `private`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Scope {
    /// The whole response.
    All,
    /// These header fields, in lower case and in order.
    Fields(Vec<String>),
}

/// How stale a response a client accepts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum MaxStale {
    /// Any staleness.
    Any,
    /// Stale for at most this long.
    For(Duration),
}

/// The longest time: 2^31 seconds (RFC 9111 §1.2.2).
pub(crate) const MAX_SECONDS: u64 = 1 << 31;

impl CacheControl {
    /// Parses all `Cache-Control` lines.
    pub(crate) fn of(headers: &HeaderMap) -> Self {
        let mut said = CacheControl::default();
        for line in headers.get_all(CACHE_CONTROL) {
            let line: Cow<'_, str> = String::from_utf8_lossy(line.as_bytes());
            said.add(&line);
        }
        said
    }

    fn add(&mut self, line: &str) {
        let mut rest = line;
        while let Some((name, value, after)) = directive(rest) {
            self.add_directive(name, value);
            rest = after;
        }
    }

    /// Adds one directive.
    pub(crate) fn add_directive(&mut self, name: &str, value: Option<&str>) {
        let least = |known: &mut Option<Duration>| {
            let said = seconds(value).unwrap_or_default();
            *known = Some(known.map_or(said, |known| known.min(said)));
        };
        match name.to_ascii_lowercase().as_str() {
            "no-store" => self.no_store = true,
            "no-cache" => widen(&mut self.no_cache, value),
            "private" => widen(&mut self.private, value),
            "public" => self.public = true,
            "max-age" => least(&mut self.max_age),
            "s-maxage" => least(&mut self.s_maxage),
            "must-revalidate" => self.must_revalidate = true,
            "proxy-revalidate" => self.proxy_revalidate = true,
            "must-understand" => self.must_understand = true,
            "no-transform" => self.no_transform = true,
            "immutable" => self.immutable = true,
            "stale-while-revalidate" => least(&mut self.stale_while_revalidate),
            "stale-if-error" => least(&mut self.stale_if_error),
            "only-if-cached" => self.only_if_cached = true,
            // An invalid value is ignored: no response could satisfy the strictest interpretation.
            "min-fresh" => self.min_fresh = self.min_fresh.max(seconds(value)),
            "max-stale" => {
                let said = value.map_or(MaxStale::Any, |_| MaxStale::For(seconds(value).unwrap_or_default()));
                self.max_stale = Some(match (self.max_stale, said) {
                    (Some(MaxStale::For(one)), MaxStale::For(other)) => MaxStale::For(one.min(other)),
                    (Some(MaxStale::For(one)), MaxStale::Any) => MaxStale::For(one),
                    (_, said) => said,
                });
            }
            _ => {}
        }
    }
}

/// Returns the first directive of a line, its argument without quotes, and the rest, or `None` at the end of the line.
///
/// Directives end at commas, and at semicolons, which some servers send as separators.
fn directive(line: &str) -> Option<(&str, Option<&str>, &str)> {
    let line = line.trim_start_matches(|c: char| c == ',' || c == ';' || c.is_ascii_whitespace());
    if line.is_empty() {
        return None;
    }
    let end = line.find([',', ';', '=']).unwrap_or(line.len());
    let (name, rest) = (line[..end].trim(), &line[end..]);
    let Some(argument) = rest.strip_prefix('=') else { return Some((name, None, rest)) };
    let argument = argument.trim_start();
    // A quote that is never closed must not hide the directives after it.
    if let Some((value, rest)) = argument.strip_prefix('"').and_then(|quoted| quoted.split_once('"')) {
        let rest = rest.find([',', ';']).map_or("", |end| &rest[end..]);
        return Some((name, Some(value), rest));
    }
    let end = argument.find([',', ';']).unwrap_or(argument.len());
    Some((name, Some(argument[..end].trim()), &argument[end..]))
}

/// Parses a number of seconds.
fn seconds(value: Option<&str>) -> Option<Duration> {
    let digits = value?.trim();
    let plain = !digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_digit());
    // A number that does not fit is a large one.
    plain.then(|| Duration::from_secs(digits.parse().unwrap_or(MAX_SECONDS).min(MAX_SECONDS)))
}

/// Adds the fields that an argument names, or the whole response if it names none.
fn widen(scope: &mut Option<Scope>, value: Option<&str>) {
    let fields: Vec<String> = value
        .unwrap_or_default()
        .split(',')
        .map(|field| field.trim().to_ascii_lowercase())
        .filter(|field| !field.is_empty())
        .collect();
    match scope {
        _ if fields.is_empty() => *scope = Some(Scope::All),
        None => *scope = Some(Scope::Fields(fields)),
        Some(Scope::All) => {}
        Some(Scope::Fields(known)) => known.extend(fields),
    }
}

/// The age and the freshness of a page, for `Cache-Control` and `Age`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Lifetime {
    /// The time since it was generated.
    pub(crate) age: Duration,
    /// How long it is fresh after it was generated.
    pub(crate) interval: Duration,
    /// How long it is still fresh; zero for a stale page.
    pub(crate) remaining: Duration,
}

/// The clients that a page may be cached for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Audience {
    /// Everyone.
    Everyone,
    /// Clients with the same `Authorization`, which caches in front of us cannot check.
    OneClient,
}

/// Returns the `Cache-Control` of a page for clients and caches in front of us, given the origin's own.
///
/// Browsers revalidate at every request (`max-age=0`), because their caches cannot be invalidated. Shared caches store the
/// page for its interval, minus `Age`. They may serve it stale only where the policy sets a limit: without one, only this
/// cache serves it stale, since it learns of invalidations.
pub(crate) fn for_clients(
    policy: &Policy,
    life: Lifetime,
    audience: Audience,
    said: &CacheControl,
) -> HeaderValue {
    if audience == Audience::OneClient {
        let value = if said.no_transform { "private, max-age=0, no-transform" } else { "private, max-age=0" };
        return HeaderValue::from_static(value);
    }
    // The interval of a page that was invalidated early ends now.
    let lifetime =
        if life.remaining.is_zero() { life.interval.min(life.age) } else { life.age + life.remaining };
    let mut text = format!("public, max-age=0, s-maxage={}", lifetime.as_secs().min(MAX_SECONDS));
    let mut limit = |name: &str, limit: Option<Duration>| {
        if let Some(limit) = limit {
            text.push_str(&format!(", {name}={}", limit.as_secs().min(MAX_SECONDS)));
        }
    };
    if policy.mode == Mode::Swr {
        limit("stale-while-revalidate", policy.stale_while_revalidate);
    }
    limit("stale-if-error", policy.stale_if_error);
    for (name, said) in [
        ("must-revalidate", said.must_revalidate),
        ("proxy-revalidate", said.proxy_revalidate),
        ("no-transform", said.no_transform),
    ] {
        if said {
            text.push_str(", ");
            text.push_str(name);
        }
    }
    // Directives and numbers are always a valid header value.
    HeaderValue::from_str(&text).unwrap_or(HeaderValue::from_static("no-store"))
}

#[cfg(test)]
mod tests;
