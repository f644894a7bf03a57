//! Whether a response is stored, and how (RFC 9111 §3).

use std::time::Duration;

use http::header::{CONTENT_TYPE, COOKIE, SET_COOKIE};
use http::{HeaderMap, Method, StatusCode};
use tabletheory::Timestamp;

use crate::http::cacheability::{UncacheableReason, tags_of};
use crate::http::headers::{Unkept, kept_by_origin};
use crate::http::hint::CacheHint;
use crate::http::semantics::age::initial_age;
use crate::http::semantics::directives::{ResponseDirectives, Tolerance};
use crate::http::semantics::freshness::{Lifetime, has_validator, is_heuristically_cacheable, lifetime};
use crate::http::variants;
use crate::protocol::epoch::Tag;

/// A response of an origin, and the request that it answers.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Received<'a> {
    pub(crate) method: &'a Method,
    /// The headers of the visitor's request.
    pub(crate) request: &'a HeaderMap,
    pub(crate) status: StatusCode,
    pub(crate) headers: &'a HeaderMap,
    pub(crate) hint: Option<&'a CacheHint>,
    /// How long the body is, or how much of it has come so far.
    pub(crate) bytes: u64,
    pub(crate) requested: Timestamp,
    pub(crate) received: Timestamp,
}

/// What limits there are to what is stored.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Limits {
    /// The longest page that is kept, in bytes.
    pub(crate) max_bytes: u64,
    /// Whether a page or a variant may be kept that was not before: there may be too many new ones.
    pub(crate) welcome: bool,
}

/// How a response is stored.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Storing {
    /// How old it was when it was asked for, in seconds.
    pub(crate) initial_age: i64,
    /// For how long it is fresh from then on.
    pub(crate) fresh_for: Duration,
    /// What of the request it was selected by; none if that does not matter.
    pub(crate) variant: Option<String>,
    pub(crate) headers: Vec<(String, String)>,
    pub(crate) tags: Vec<Tag>,
}

impl Received<'_> {
    /// How the response is stored, or why it is not.
    pub(crate) fn storing(&self, limits: Limits) -> Result<Storing, UncacheableReason> {
        let storing = self.still_storing(limits)?;
        // Guesses are for what carries nothing of a person: whoever knows visitors by their cookies and says nothing of caches
        // has not thought of one.
        if self.request.contains_key(COOKIE) && self.is_left_to_guess() {
            return Err(UncacheableReason::Cookie);
        }
        Ok(storing)
    }

    /// The same of a response that is stored already, where its origin has said to this request that it still holds.
    pub(crate) fn still_storing(&self, limits: Limits) -> Result<Storing, UncacheableReason> {
        let refuse_if = |wrong: bool, reason: UncacheableReason| if wrong { Err(reason) } else { Ok(()) };
        let (status, headers) = (self.status, self.headers);
        let said = ResponseDirectives::of(headers);
        let control = &said.control;
        refuse_if(*self.method != Method::GET, UncacheableReason::Method)?;
        refuse_if(status.is_informational(), UncacheableReason::Informational)?;
        refuse_if(status == StatusCode::PARTIAL_CONTENT, UncacheableReason::Partial)?;
        refuse_if(status == StatusCode::NOT_MODIFIED, UncacheableReason::NotModified)?;
        refuse_if(self.hint.is_some_and(|hint| hint.never_kept), UncacheableReason::NeverKept)?;
        // A cookie is one visitor's own, whatever else the response says.
        refuse_if(headers.contains_key(SET_COOKIE), UncacheableReason::SetCookie)?;
        let understood = status.canonical_reason().is_some();
        refuse_if(control.must_understand && !understood, UncacheableReason::Status(status))?;
        // Whoever understands the status does what the other directives say (RFC 9111 §5.2.2.3).
        refuse_if(control.no_store && !control.must_understand, UncacheableReason::NoStore)?;
        refuse_if(control.private.is_some(), UncacheableReason::Private)?;
        let authorized = self.request.contains_key(http::header::AUTHORIZATION);
        refuse_if(authorized && !said.shares_authorized(), UncacheableReason::Authorization)?;
        let names = variants::names(headers).ok_or(UncacheableReason::VaryAnything)?;
        refuse_if(is_endless(headers), UncacheableReason::NeverFresh)?;

        let lifetime = lifetime(status, headers, &said, self.received);
        let allowed =
            matches!(lifetime, Lifetime::Explicit(_)) || control.public || is_heuristically_cacheable(status);
        refuse_if(!allowed, UncacheableReason::Status(status))?;
        let initial_age = initial_age(headers, self.requested, self.received);
        let left = lifetime.time().saturating_sub(Duration::from_secs(initial_age.unsigned_abs()));
        let fresh_for = if control.no_cache.is_some() { Duration::ZERO } else { left };
        let windows = [control.stale_while_revalidate, control.stale_if_error];
        let tolerated = said.tolerance() != Tolerance::None;
        let served_stale = tolerated && windows.iter().flatten().any(|window| !window.is_zero());
        // What is stale at once and cannot be recognised is of no use to anyone.
        refuse_if(
            fresh_for.is_zero() && !has_validator(headers) && !served_stale,
            UncacheableReason::NeverFresh,
        )?;

        refuse_if(self.bytes > limits.max_bytes, UncacheableReason::TooLong { limit: limits.max_bytes })?;
        refuse_if(!limits.welcome, UncacheableReason::TooManyPages)?;
        let (tags, _) = tags_of(self.hint, headers);
        let headers = kept_by_origin(headers).map_err(|unkept| match unkept {
            Unkept::Unreadable(name) => UncacheableReason::UnreadableHeader(name),
            Unkept::TooMany => UncacheableReason::TooManyHeaders,
        })?;
        let variant = variants::digest(&names, self.request);
        Ok(Storing { initial_age, fresh_for, variant, headers, tags })
    }

    /// Whether the response says nothing of how shared caches use it.
    fn is_left_to_guess(&self) -> bool {
        let said = ResponseDirectives::of(self.headers);
        let told = matches!(lifetime(self.status, self.headers, &said, self.received), Lifetime::Explicit(_));
        !told && !said.control.public && said.control.no_cache.is_none()
    }
}

/// Whether a response is a stream of events, which goes on while somebody listens.
fn is_endless(headers: &HeaderMap) -> bool {
    let content_type = headers.get(CONTENT_TYPE).map(|value| value.as_bytes().to_ascii_lowercase());
    content_type.is_some_and(|content_type| content_type.starts_with(b"text/event-stream"))
}

#[cfg(test)]
mod tests;
