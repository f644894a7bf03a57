//! Decides whether a response is cached: a pure decision, with a reason for every "no".
//!
//! Two policies decide: the rule of a route, or the origin's own headers (RFC 9111 §3). Checks that both need are written
//! once, in [`Received::storable`].

mod reason;

use std::time::Duration;

use http::header::{
    ACCEPT_ENCODING, AUTHORIZATION, CONTENT_LENGTH, CONTENT_TYPE, COOKIE, HOST, HeaderName, HeaderValue,
    LOCATION, SET_COOKIE,
};
use http::{HeaderMap, Method, StatusCode};
use tabletheory::Timestamp;

use crate::http::compression::is_coded;
use crate::http::credentials::has_credentials;
use crate::http::headers::storable_headers;
use crate::http::hint::CacheHint;
use crate::http::router::route::Route;
use crate::http::semantics::age::initial_age;
use crate::http::semantics::cache_control::{CacheControl, Directive};
use crate::http::semantics::directives::Tolerance;
use crate::http::semantics::freshness::{Lifetime, has_validator, is_heuristically_cacheable, lifetime};
use crate::http::variants;
use crate::protocol::tag::Tag;

pub(crate) use reason::UncacheableReason;

#[cfg(test)]
mod matrix;
#[cfg(test)]
mod rfc9111_tests;

/// The most tags that a response may set: the epoch of each is looked up when the page is served.
pub(crate) const MAX_TAGS: usize = 64;

/// The decision about a response.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum StoreDecision {
    /// It is cached for everyone.
    Store(Storable),
    /// It is sent to the client that caused it, and not cached.
    Decline(UncacheableReason),
    /// The render failed: the cached page stays, and the origin is left alone for a while.
    Fail(UncacheableReason),
}

/// How a response is cached.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Storable {
    /// How long it is fresh. `None` leaves it to the policy of the route.
    pub(crate) fresh_for: Option<Duration>,
    /// Its age when it was requested, in seconds, where the origin decides about freshness.
    pub(crate) initial_age: Option<i64>,
    /// The digest of the request headers that select it, or `None` if it is for all requests.
    pub(crate) variant: Option<String>,
    pub(crate) headers: Vec<(String, String)>,
    /// The tags that the response sets, each once.
    pub(crate) tags: Vec<Tag>,
    /// How many tags were ignored, because they are invalid or too many.
    pub(crate) ignored_tags: usize,
}

/// Limits on new entries.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Limits {
    /// The size of the largest page that is cached.
    pub(crate) max_bytes: u64,
    /// Whether a page or a variant may be cached that was not cached before.
    pub(crate) allows_new: bool,
}

/// A response of the origin, and its request.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Received<'a> {
    /// Says who decides, and by which rule.
    pub(crate) route: &'a Route,
    /// The client's method; GET where the origin's headers decide and the origin got a GET for a HEAD.
    pub(crate) method: &'a Method,
    /// The client's headers.
    pub(crate) request: &'a HeaderMap,
    pub(crate) status: StatusCode,
    pub(crate) headers: &'a HeaderMap,
    pub(crate) hint: Option<&'a CacheHint>,
    /// The length of the body, once it was read.
    pub(crate) bytes: Option<u64>,
    pub(crate) requested: Timestamp,
    pub(crate) received: Timestamp,
    /// Whether a response is stored that a server error must not replace.
    pub(crate) has_usable_stored: bool,
    /// Whether these are the headers of a stored response that the origin has just confirmed.
    pub(crate) is_revalidated: bool,
    pub(crate) limits: Limits,
    /// The headers that name tags.
    pub(crate) tag_headers: &'a [HeaderName],
}

impl Received<'_> {
    /// Decides whether the response is cached.
    pub(crate) fn decide(&self) -> StoreDecision {
        if let Some(reason) = self.failure() {
            return StoreDecision::Fail(reason);
        }
        match self.storable() {
            Ok(storable) => StoreDecision::Store(storable),
            Err(reason) => StoreDecision::Decline(reason),
        }
    }

    /// Returns why the response counts as a failed render.
    fn failure(&self) -> Option<UncacheableReason> {
        let status = self.status;
        if self.route.follow_origin {
            // The origin may have errors cached. But while a usable response is stored, whether that is served instead is
            // decided by its own directives (RFC 9111 §4.3.3).
            if status.is_server_error() && self.has_usable_stored {
                return Some(UncacheableReason::ServerError(status));
            }
        } else {
            // A render requests a whole page without conditions.
            match status.as_u16() {
                500..600 => return Some(UncacheableReason::ServerError(status)),
                100..200 => return Some(UncacheableReason::Informational),
                429 => return Some(UncacheableReason::TooManyRequests),
                // Timeout and "too early" are about one attempt, not about the page.
                408 | 425 => return Some(UncacheableReason::Status(status)),
                304 => return Some(UncacheableReason::NotModified),
                206 => return Some(UncacheableReason::Partial),
                _ => {}
            }
        }
        let is_other = |length: &HeaderValue| {
            length.to_str().ok().and_then(|length| length.trim().parse().ok()) != self.bytes
        };
        let mut announced = self.headers.get_all(CONTENT_LENGTH).iter();
        let is_truncated = self.bytes.is_some() && announced.any(is_other);
        is_truncated.then_some(UncacheableReason::Truncated)
    }

    /// Returns how the response is cached, or why it is not.
    fn storable(&self) -> Result<Storable, UncacheableReason> {
        let (route, status, headers) = (self.route, self.status, self.headers);
        let follows_origin = route.follow_origin;
        let parse =
            if follows_origin { CacheControl::of_response } else { CacheControl::of_response_by_rule };
        let control = &parse(headers);
        let is_method_cached =
            *self.method == Method::GET || (*self.method == Method::HEAD && !follows_origin);
        decline_if(!is_method_cached, UncacheableReason::Method)?;
        let may_share_authorized =
            if follows_origin { control.shares_authorized() } else { route.headers.contains(&AUTHORIZATION) };
        let is_private_by_authorization = self.request.contains_key(AUTHORIZATION) && !may_share_authorized;
        // First of all under a rule: a response to one client's credentials must not invalidate the page of all others.
        decline_if(is_private_by_authorization && !follows_origin, UncacheableReason::Authorization)?;
        decline_if(self.hint.is_some_and(|hint| hint.never_cached), UncacheableReason::NeverCached)?;
        self.check_status(control)?;
        // A cookie is for one client, whatever else the response says.
        decline_if(headers.contains_key(SET_COOKIE), UncacheableReason::SetCookie)?;
        if !route.overrides || follows_origin {
            // A cache that understands the status obeys the other directives instead (RFC 9111 §5.2.2.3).
            let is_understood = follows_origin && control.has(Directive::MustUnderstand);
            decline_if(control.has(Directive::NoStore) && !is_understood, UncacheableReason::NoStore)?;
            decline_if(control.has(Directive::Private), UncacheableReason::Private)?;
        }
        decline_if(is_private_by_authorization, UncacheableReason::Authorization)?;
        let vary = variants::names(headers).ok_or(UncacheableReason::VaryAnything)?;
        let (fresh_for, initial_age, variant) = if follows_origin {
            let (fresh_for, initial_age) = self.freshness_by_origin(control)?;
            (Some(fresh_for), Some(initial_age), variants::digest(&vary, self.request))
        } else {
            (self.freshness_by_rule(control, vary)?, None, None)
        };
        let announced = headers.get(CONTENT_LENGTH).and_then(|length| length.to_str().ok()?.parse().ok());
        let length: Option<u64> = self.bytes.or(announced);
        decline_if(!follows_origin && status.is_success() && length == Some(0), UncacheableReason::Empty)?;
        let max_bytes = self.limits.max_bytes;
        let is_too_long = length.is_some_and(|length| length > max_bytes);
        decline_if(is_too_long, UncacheableReason::TooLong { limit: max_bytes })?;
        decline_if(!self.limits.allows_new, UncacheableReason::TooManyPages)?;
        let (tags, ignored_tags) = tags_of(self.hint, headers, self.tag_headers);
        let mut headers = storable_headers(headers, follows_origin)?;
        if !follows_origin {
            // They are for the cache, not for clients.
            headers.retain(|(name, _)| !self.tag_headers.iter().any(|header| header.as_str() == name));
        }
        Ok(Storable { fresh_for, initial_age, variant, headers, tags, ignored_tags })
    }

    fn check_status(&self, control: &CacheControl) -> Result<(), UncacheableReason> {
        let status = self.status;
        if !self.route.follow_origin {
            // Pages, redirects, and "not found".
            let is_cached = matches!(status.as_u16(), 200 | 203 | 301 | 302 | 303 | 307 | 308 | 404 | 410);
            return decline_if(!is_cached, UncacheableReason::Status(status));
        }
        decline_if(status.is_informational(), UncacheableReason::Informational)?;
        decline_if(status == StatusCode::PARTIAL_CONTENT, UncacheableReason::Partial)?;
        decline_if(status == StatusCode::NOT_MODIFIED, UncacheableReason::NotModified)?;
        decline_if(is_about_request(status), UncacheableReason::Status(status))?;
        let is_understood = status.canonical_reason().is_some();
        decline_if(
            control.has(Directive::MustUnderstand) && !is_understood,
            UncacheableReason::Status(status),
        )
    }

    /// Returns how long a response is fresh by the rule of its route: as its [`CacheHint`] says, else its `s-maxage` where the
    /// route permits that, else as the route says. `max-age` and `Expires` are for browsers.
    fn freshness_by_rule(
        &self,
        control: &CacheControl,
        vary: Vec<HeaderName>,
    ) -> Result<Option<Duration>, UncacheableReason> {
        let (route, status, headers) = (self.route, self.status, self.headers);
        if !route.overrides {
            decline_if(control.has(Directive::NoCache), UncacheableReason::NoCache)?;
            decline_if(control.s_maxage == Some(Duration::ZERO), UncacheableReason::NeverFresh)?;
        }
        // The cache negotiates the coding itself, and every key has the host or belongs to the only site.
        let is_keyed = |name: &HeaderName| {
            route.headers.contains(name)
                || *name == ACCEPT_ENCODING
                || *name == HOST
                || (*name == COOKIE && !route.cookies.is_empty())
        };
        if let Some(name) = vary.into_iter().find(|name| !is_keyed(name)) {
            return Err(UncacheableReason::Vary(name));
        }
        decline_if(is_coded(headers), UncacheableReason::ContentEncoded)?;
        let leads_nowhere = status.is_redirection() && !headers.contains_key(LOCATION);
        decline_if(leads_nowhere, UncacheableReason::NoLocation)?;
        let is_negative = matches!(status, StatusCode::NOT_FOUND | StatusCode::GONE);
        let hinted = self.hint.and_then(|hint| hint.fresh_for);
        // Zero is left only where the rule ignores it.
        let by_response = control.s_maxage.filter(|time| !route.fixed_interval && !time.is_zero());
        Ok(hinted.or(by_response).or(is_negative.then_some(route.policy.negative_ttl)))
    }

    /// Returns how long a response is fresh by the headers of its origin, and its age when it was requested.
    fn freshness_by_origin(&self, control: &CacheControl) -> Result<(Duration, i64), UncacheableReason> {
        let (status, headers) = (self.status, self.headers);
        decline_if(is_event_stream(headers), UncacheableReason::NeverFresh)?;
        let lifetime = lifetime(status, headers, control, self.received);
        let is_explicit = matches!(lifetime, Lifetime::Explicit(_));
        let is_allowed = is_explicit || control.has(Directive::Public) || is_heuristically_cacheable(status);
        decline_if(!is_allowed, UncacheableReason::Status(status))?;
        let initial_age = initial_age(headers, self.requested, self.received);
        let remaining = lifetime.time().saturating_sub(Duration::from_secs(initial_age.unsigned_abs()));
        let fresh_for = if control.has(Directive::NoCache) { Duration::ZERO } else { remaining };
        let stale_windows = [control.stale_while_revalidate, control.stale_if_error];
        let is_served_stale = control.tolerance() != Tolerance::None
            && stale_windows.iter().flatten().any(|window| !window.is_zero());
        // A response that is stale at once and cannot be revalidated is useless.
        let is_useless = fresh_for.is_zero() && !has_validator(headers) && !is_served_stale;
        decline_if(is_useless, UncacheableReason::NeverFresh)?;
        // Heuristics are for responses without personal data. An origin that identifies clients and sets no caching
        // directives was not written with a shared cache in mind. One that sets the lifetime zero may have its response
        // stored, but others would get it whenever stale responses are served.
        let is_heuristic = !is_explicit && !control.has(Directive::Public);
        let is_personal = has_credentials(self.request) && !self.is_revalidated;
        decline_if(is_personal && (is_heuristic || fresh_for.is_zero()), UncacheableReason::Credentials)?;
        Ok((fresh_for, initial_age))
    }
}

fn decline_if(condition: bool, reason: UncacheableReason) -> Result<(), UncacheableReason> {
    if condition { Err(reason) } else { Ok(()) }
}

/// Whether a status is about one request, for example about a header that the key does not contain, so that one client could
/// make all others get it.
fn is_about_request(status: StatusCode) -> bool {
    matches!(status.as_u16(), 400 | 406 | 408 | 411..=417 | 421 | 426 | 428 | 429 | 431 | 501)
}

/// Whether the body goes on for as long as the client listens.
fn is_event_stream(headers: &HeaderMap) -> bool {
    let content_type = headers.get(CONTENT_TYPE).map(|value| value.as_bytes().to_ascii_lowercase());
    content_type.is_some_and(|content_type| content_type.starts_with(b"text/event-stream"))
}

/// Returns the tags of a hint and of headers, and how many others were ignored. Products separate tags by commas, spaces or both.
fn tags_of(hint: Option<&CacheHint>, headers: &HeaderMap, tag_headers: &[HeaderName]) -> (Vec<Tag>, usize) {
    let mut tags: Vec<Tag> = Vec::new();
    let mut ignored = 0;
    let mut add = |tag: Option<Tag>| match tag {
        Some(tag) if tags.contains(&tag) => {}
        Some(tag) if tags.len() < MAX_TAGS => tags.push(tag),
        _ => ignored += 1,
    };
    hint.into_iter().flat_map(|hint| &hint.tags).for_each(|tag| add(Some(tag.clone())));
    for line in tag_headers.iter().flat_map(|name| headers.get_all(name)) {
        let Ok(line) = std::str::from_utf8(line.as_bytes()) else {
            add(None);
            continue;
        };
        let names = line.split(|char: char| char == ',' || char.is_whitespace());
        names.filter(|name| !name.is_empty()).for_each(|name| add(Tag::of_header(name).ok()));
    }
    (tags, ignored)
}
