//! `Cache-Control`: parsing, with the strictest sensible interpretation, and the value that is sent with a page.

use std::time::Duration;

use http::header::{AUTHORIZATION, CACHE_CONTROL};
use http::{HeaderMap, HeaderName, HeaderValue};

use crate::http::router::route::Route;
use crate::pages::policy::Mode;

/// A directive without a time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Directive {
    NoStore,
    /// Also if it names fields: the whole response is then revalidated.
    NoCache,
    /// Also if it names fields: the whole response is then not cached.
    Private,
    Public,
    MustRevalidate,
    ProxyRevalidate,
    MustUnderstand,
    NoTransform,
    OnlyIfCached,
}

impl Directive {
    /// The directive with this name, in lower case.
    fn named(name: &str) -> Option<Directive> {
        Some(match name {
            "no-store" => Directive::NoStore,
            "no-cache" => Directive::NoCache,
            "private" => Directive::Private,
            "public" => Directive::Public,
            "must-revalidate" => Directive::MustRevalidate,
            "proxy-revalidate" => Directive::ProxyRevalidate,
            "must-understand" => Directive::MustUnderstand,
            "no-transform" => Directive::NoTransform,
            "only-if-cached" => Directive::OnlyIfCached,
            _ => return None,
        })
    }
}

/// The directives of RFC 9111 and RFC 5861, of a response or of a request.
///
/// Every input has an interpretation, the strictest of the possible ones: the strictest value of a repeated directive counts,
/// an invalid number counts as zero, and a number that is too large as [`MAX_SECONDS`]. Unknown directives are ignored.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct CacheControl {
    flags: u16,
    pub(crate) max_age: Option<Duration>,
    pub(crate) s_maxage: Option<Duration>,
    pub(crate) stale_while_revalidate: Option<Duration>,
    pub(crate) stale_if_error: Option<Duration>,
    pub(crate) min_fresh: Option<Duration>,
    /// How stale a response a client accepts; `Duration::MAX` for any staleness.
    pub(crate) max_stale: Option<Duration>,
    /// Whether the directives are from a targeted field, so that `Expires` is ignored (RFC 9213 §2.1).
    pub(crate) targeted: bool,
}

/// The longest time: 2^31 seconds (RFC 9111 §1.2.2).
pub(crate) const MAX_SECONDS: u64 = 1 << 31;

impl CacheControl {
    /// Parses all `Cache-Control` lines.
    pub(crate) fn of(headers: &HeaderMap) -> Self {
        CacheControl::of_field(headers, &CACHE_CONTROL)
    }

    /// Parses all lines of a field with the syntax of `Cache-Control`.
    pub(crate) fn of_field(headers: &HeaderMap, name: &HeaderName) -> Self {
        let mut control = CacheControl::default();
        for line in headers.get_all(name) {
            let line = String::from_utf8_lossy(line.as_bytes());
            let mut rest = &*line;
            while let Some((name, value, after)) = directive(rest) {
                control.add_directive(name, value);
                rest = after;
            }
        }
        control
    }

    pub(crate) fn has(&self, directive: Directive) -> bool {
        self.flags & (1 << directive as u16) != 0
    }

    /// Adds a directive without a time.
    pub(crate) fn add(&mut self, directive: Directive) {
        self.flags |= 1 << directive as u16;
    }

    /// Adds the directives of another field that forbid storing or reusing a response.
    pub(crate) fn forbid_as(&mut self, other: &CacheControl) {
        for directive in [Directive::NoStore, Directive::NoCache, Directive::Private] {
            if other.has(directive) {
                self.add(directive);
            }
        }
    }

    /// Adds one directive.
    pub(crate) fn add_directive(&mut self, name: &str, value: Option<&str>) {
        let set_least = |known: &mut Option<Duration>, time: Duration| {
            *known = Some(known.map_or(time, |known| known.min(time)));
        };
        let least = |known| set_least(known, seconds(value).unwrap_or_default());
        let name = name.to_ascii_lowercase();
        if let Some(directive) = Directive::named(&name) {
            self.add(directive);
        }
        match name.as_str() {
            "max-age" => least(&mut self.max_age),
            "s-maxage" => least(&mut self.s_maxage),
            "stale-while-revalidate" => least(&mut self.stale_while_revalidate),
            "stale-if-error" => least(&mut self.stale_if_error),
            // An invalid value is ignored: no response could satisfy the strictest interpretation.
            "min-fresh" => self.min_fresh = self.min_fresh.max(seconds(value)),
            "max-stale" if value.is_none() => set_least(&mut self.max_stale, Duration::MAX),
            "max-stale" => least(&mut self.max_stale),
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
    // A directive in quotes is invalid, but it is clear what its origin means.
    let (name, rest) =
        (line[..end].trim_matches(|c: char| c == '"' || c.is_ascii_whitespace()), &line[end..]);
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

/// Parses a number of seconds, at most [`MAX_SECONDS`].
pub(super) fn seconds(value: Option<&str>) -> Option<Duration> {
    let digits = value?.trim();
    let plain = !digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_digit());
    // A number that does not fit is a large one.
    plain.then(|| Duration::from_secs(digits.parse().unwrap_or(MAX_SECONDS).min(MAX_SECONDS)))
}

/// Returns the `Cache-Control` of a page for clients and caches in front of us, given the origin's own.
///
/// The page is fresh for `interval` seconds after it was generated. `stale_age` is its age, if it is stale.
///
/// Browsers revalidate at every request (`max-age=0`), because their caches cannot be invalidated. Shared caches store the
/// page for its interval, minus `Age`. They may serve it stale only where the policy sets a limit: without one, only this
/// cache serves it stale, since it learns of invalidations.
pub(crate) fn for_clients(
    route: &Route,
    interval: i64,
    stale_age: Option<i64>,
    control: &CacheControl,
) -> HeaderValue {
    // Caches in front of us cannot check `Authorization`.
    if route.headers.contains(&AUTHORIZATION) {
        let value = if control.has(Directive::NoTransform) {
            "private, max-age=0, no-transform"
        } else {
            "private, max-age=0"
        };
        return HeaderValue::from_static(value);
    }
    let policy = &route.policy;
    // The interval of a page that was invalidated early ends now.
    let lifetime = stale_age.map_or(interval, |age| interval.min(age));
    let lifetime = u64::try_from(lifetime).unwrap_or(0).min(MAX_SECONDS);
    let mut text = format!("public, max-age=0, s-maxage={lifetime}");
    let while_revalidate = policy.stale_while_revalidate.filter(|_| policy.mode == Mode::Swr);
    let windows = [("stale-while-revalidate", while_revalidate), ("stale-if-error", policy.stale_if_error)];
    for (name, window) in windows.into_iter().filter_map(|(name, window)| Some((name, window?))) {
        text.push_str(&format!(", {name}={}", window.as_secs().min(MAX_SECONDS)));
    }
    for (directive, is_set) in [
        (", must-revalidate", control.has(Directive::MustRevalidate)),
        (", proxy-revalidate", control.has(Directive::ProxyRevalidate)),
        (", no-transform", control.has(Directive::NoTransform)),
    ] {
        text.push_str(if is_set { directive } else { "" });
    }
    // Directives and numbers are always a valid header value.
    HeaderValue::from_str(&text).unwrap_or(HeaderValue::from_static("no-store"))
}

#[cfg(test)]
mod tests;
