//! Whether a stored response may be reused, given the directives of its origin and of the request (RFC 9111 §4).

use std::time::Duration;

use http::header::HeaderName;
use http::request::Parts;
use http::{HeaderMap, StatusCode};
use tabletheory::Timestamp;

use crate::engine::{CachedPage, EntryView, ReusePolicy, ServeDecision};
use crate::http::forced_regenerations::{ForcePermit, ReachedLimit};
use crate::http::ignore_directives::IgnoreDirectives;
use crate::http::semantics::cache_control::{CacheControl, Directive};
use crate::http::semantics::directives::Tolerance;
use crate::http::semantics::freshness::lifetime;
use crate::http::variants;
use crate::pages::reason::RegenerateReason;
use crate::protocol::freshness::Freshness;
use crate::protocol::generation::Generation;
use crate::protocol::key::PageKey;

/// How long a response may be served stale because its origin is unreachable, where no directive forbids it. RFC 9111 §4.2.4
/// sets no limit.
const MAX_STALE_IF_UNREACHABLE: Duration = Duration::from_secs(86_400);

/// The directives of a stored response, parsed once.
#[derive(Clone, Debug)]
pub(crate) struct StoredDirectives {
    /// How long it is fresh after its origin generated it.
    lifetime: Duration,
    tolerance: Tolerance,
    while_revalidate: Duration,
    if_error: Duration,
    /// The request headers that select it, sorted.
    pub(crate) names: Vec<HeaderName>,
}

impl StoredDirectives {
    /// Parses the headers of a stored response.
    pub(crate) fn of(status: u16, headers: &HeaderMap, generation: &Generation) -> Self {
        let control = CacheControl::of_response(headers);
        let status = StatusCode::from_u16(status).unwrap_or(StatusCode::OK);
        let received = Timestamp::from_seconds(generation.generated_at);
        StoredDirectives {
            lifetime: lifetime(status, headers, &control, received).time(),
            tolerance: control.tolerance(),
            while_revalidate: control.stale_while_revalidate.unwrap_or_default(),
            if_error: control.stale_if_error.unwrap_or_default(),
            names: variants::names(headers).unwrap_or_default(),
        }
    }
}

/// Returns the age of a stored response, in seconds.
pub(crate) fn age(page: &Generation, now: Timestamp) -> i64 {
    let resident = now.seconds().saturating_sub(page.generated_at).max(0);
    page.content.initial_age.unwrap_or(0).max(0).saturating_add(resident)
}

/// Returns how many more seconds a stored response is fresh; negative if it is stale.
pub(crate) fn remaining(page: &CachedPage, now: Timestamp) -> i64 {
    let generation = page.generation();
    let by_row = generation.expires_at();
    let by_row = by_row.saturating_sub(now.seconds());
    if by_row > 0 {
        return by_row;
    }
    // A row does not tell how stale a response was when it was received.
    let lifetime = i64::try_from(page.stored().lifetime.as_secs()).unwrap_or(i64::MAX);
    lifetime.saturating_sub(age(generation, now)).min(by_row)
}

/// Whether a response may be sent to other requests than the one that fetched it. A response that was stale when it was
/// received, and may not be served while it is revalidated, is for its own request alone (RFC 9111 §4).
fn is_shared(page: &CachedPage) -> bool {
    let stored = page.stored();
    let remaining = remaining(page, Timestamp::from_seconds(page.generation().generated_at));
    let stale_for = Duration::from_secs(u64::try_from(remaining.saturating_neg()).unwrap_or(0));
    remaining > 0 || (stored.tolerance != Tolerance::None && stale_for < stored.while_revalidate)
}

/// The directives of a request about reusing stored responses.
#[derive(Clone, Debug)]
pub(crate) struct RequestDirectives<'a> {
    headers: &'a HeaderMap,
    pub(crate) control: CacheControl,
    /// Whether they apply to the primary page, whose `Vary` selects the variants, and not to a variant.
    primary: bool,
    /// Whether they may make a fresh page be regenerated; `None` if that is not limited.
    permit: Option<ForcePermit<'a>>,
}

impl<'a> RequestDirectives<'a> {
    /// Parses the headers of a request, unless its directives are to be ignored.
    pub(crate) fn of(request: &'a Parts) -> Self {
        let (headers, extensions) = (&request.headers, &request.extensions);
        let is_ignored = extensions.get::<IgnoreDirectives>().is_some();
        let control = if is_ignored { CacheControl::default() } else { CacheControl::of_request(headers) };
        RequestDirectives { headers, control, primary: true, permit: None }
    }

    /// Limits how often they make a fresh page be regenerated.
    pub(crate) fn limited(self, permit: ForcePermit<'a>) -> Self {
        RequestDirectives { permit: Some(permit), ..self }
    }

    /// The limit because of which they were ignored.
    pub(crate) fn reached_limit(&self) -> Option<ReachedLimit> {
        self.permit.as_ref().and_then(ForcePermit::reached)
    }

    /// Returns the directives as they apply to a variant.
    pub(crate) fn of_variant(&self) -> Self {
        RequestDirectives { primary: false, ..self.clone() }
    }

    /// Whether a stored response was selected by the same headers as this request has.
    pub(crate) fn selects(&self, page: &CachedPage) -> bool {
        let variant = &page.generation().content.variant;
        *variant == variants::digest(&page.stored().names, self.headers)
    }

    /// Whether a fresh response is fresh enough.
    fn accepts(&self, age: i64, remaining: i64) -> bool {
        let seconds = |time: Duration| i64::try_from(time.as_secs()).unwrap_or(i64::MAX);
        !self.control.has(Directive::NoCache)
            && self.control.max_age.is_none_or(|max| age <= seconds(max))
            && self.control.min_fresh.is_none_or(|min| remaining >= seconds(min))
    }

    fn decide_for(&self, page: &CachedPage, entry: &EntryView<'_>) -> ServeDecision {
        let generation = page.generation();
        if entry.freshness == Freshness::MustNotServe {
            return ServeDecision::Unusable(RegenerateReason::Stale);
        }
        if !self.selects(page) {
            return if self.primary {
                ServeDecision::OtherVariant
            } else {
                ServeDecision::Unusable(RegenerateReason::OtherVariant(generation.generated_at))
            };
        }
        let must_revalidate = |reason| ServeDecision::Stale {
            reason,
            while_revalidate: false,
            if_error: false,
            if_unreachable: false,
        };
        let (stored, now) = (page.stored(), entry.now);
        let (age, remaining) = (age(generation, now), remaining(page, now));
        // An invalidated response must be revalidated before it is used (RFC 9111 §4.4).
        let invalidated = entry.invalidated
            || entry.meta.stale_since.is_some()
            || (entry.freshness == Freshness::Stale && entry.meta.freshness(now) == Freshness::Fresh);
        if invalidated {
            return must_revalidate(RegenerateReason::Stale);
        }
        let fresh = entry.freshness == Freshness::Fresh;
        if !self.accepts(age, remaining) {
            // Only a fresh page is regenerated because of the request. Over the limit, its directives count as absent.
            if fresh && self.permit.as_ref().is_none_or(|permit| permit.is_granted(now)) {
                return must_revalidate(RegenerateReason::RequestDirective(generation.generated_at));
            }
            if !fresh && self.control.has(Directive::NoCache) {
                return must_revalidate(RegenerateReason::Stale);
            }
        }
        if fresh {
            return ServeDecision::Fresh;
        }
        let stale_for = Duration::from_secs(u64::try_from(remaining.saturating_neg()).unwrap_or(0));
        if stored.tolerance == Tolerance::None {
            return must_revalidate(RegenerateReason::Stale);
        }
        // The request's own permissions count only where no directive of the origin forbids it.
        let any = stored.tolerance == Tolerance::Any;
        if any && self.control.max_stale.is_some_and(|max| stale_for <= max) {
            return ServeDecision::Fresh;
        }
        let requested_if_error = self.control.stale_if_error.filter(|_| any).unwrap_or_default();
        // A request that limits the age does not accept a stale response (RFC 9111 §5.2.1.1).
        let bound = self.control.max_age.is_some() || self.control.min_fresh.is_some();
        ServeDecision::Stale {
            reason: RegenerateReason::Stale,
            while_revalidate: !bound && stale_for < stored.while_revalidate,
            if_error: stale_for < stored.if_error.max(requested_if_error),
            if_unreachable: any && !bound && stale_for < MAX_STALE_IF_UNREACHABLE,
        }
    }
}

impl ReusePolicy for RequestDirectives<'_> {
    fn decide(&self, entry: &EntryView<'_>) -> ServeDecision {
        match entry.page {
            Some(page) if page.follows_origin() => self.decide_for(page, entry),
            // It was stored by a rule that no longer applies, or its body is missing.
            _ => ServeDecision::Unusable(RegenerateReason::OtherPolicy(entry.meta.generation.generated_at)),
        }
    }

    fn matches(&self, page: &CachedPage) -> bool {
        page.follows_origin() && self.selects(page)
    }

    fn variant(&self, page: &PageKey, other: &CachedPage) -> Option<PageKey> {
        let digest = variants::digest(&other.stored().names, self.headers).unwrap_or_default();
        page.primary().ok()?.variant(&digest).ok()
    }

    fn is_shareable(&self, page: &CachedPage) -> bool {
        !page.follows_origin() || is_shared(page)
    }
}

#[cfg(test)]
mod tests;
