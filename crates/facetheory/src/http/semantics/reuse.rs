//! What a stored response may be used for, given what its origin said and what its visitor asks for (RFC 9111 §4).

use std::time::Duration;

use http::header::HeaderName;
use http::{HeaderMap, StatusCode};
use tabletheory::Timestamp;

use crate::engine::{CachedPage, EntryView, ReusePolicy, ServeDecision};
use crate::http::semantics::cache_control::{CacheControl, MaxStale};
use crate::http::semantics::directives::{self, ResponseDirectives, Tolerance};
use crate::http::semantics::freshness::lifetime;
use crate::http::variants;
use crate::pages::reason::RegenerateReason;
use crate::protocol::freshness::Freshness;
use crate::protocol::generation::Generation;

/// For how long a response may be served stale because its origin cannot be reached, where nothing forbids it: RFC 9111
/// §4.2.4 sets no limit, but who has been silent for longer than a day is not about to come back.
const LONGEST_SILENCE: Duration = Duration::from_secs(86_400);

/// What a stored response says of itself, read once.
#[derive(Clone, Debug)]
pub(crate) struct Stored {
    /// For how long it is fresh after its origin made it.
    lifetime: Duration,
    tolerance: Tolerance,
    while_revalidate: Duration,
    if_error: Duration,
    /// The headers of a request that select it, in order.
    pub(crate) names: Vec<HeaderName>,
}

impl Stored {
    /// What a response says that was stored with these headers.
    pub(crate) fn of(status: u16, headers: &HeaderMap, generation: &Generation) -> Self {
        let said = ResponseDirectives::of(headers);
        let status = StatusCode::from_u16(status).unwrap_or(StatusCode::OK);
        let received = Timestamp::from_seconds(generation.generated_at);
        Stored {
            lifetime: lifetime(status, headers, &said, received).time(),
            tolerance: said.tolerance(),
            while_revalidate: said.control.stale_while_revalidate.unwrap_or_default(),
            if_error: said.control.stale_if_error.unwrap_or_default(),
            names: variants::names(headers).unwrap_or_default(),
        }
    }
}

/// How old a stored response is, in seconds.
pub(crate) fn age(page: &Generation, now: Timestamp) -> i64 {
    let resident = now.seconds().saturating_sub(page.generated_at).max(0);
    page.content.initial_age.unwrap_or(0).max(0).saturating_add(resident)
}

/// For how many more seconds a stored response is fresh; less than zero for how long it has been stale.
pub(crate) fn left(page: &CachedPage, now: Timestamp) -> i64 {
    let generation = page.generation();
    let by_row = generation.generated_at.saturating_add(generation.revalidate_seconds);
    let by_row = by_row.saturating_sub(now.seconds());
    if by_row > 0 {
        return by_row;
    }
    // A row cannot tell how stale a response was when it came.
    let lifetime = i64::try_from(page.stored().lifetime.as_secs()).unwrap_or(i64::MAX);
    lifetime.saturating_sub(age(generation, now)).min(by_row)
}

/// Whether a response may be given to others than the one who asked for it: what was stale when it came, and may not be served
/// while it is renewed, is for its own request alone (RFC 9111 §4).
fn is_shared(page: &CachedPage) -> bool {
    let stored = page.stored();
    let left = left(page, Timestamp::from_seconds(page.generation().generated_at));
    let stale_for = Duration::from_secs(u64::try_from(left.saturating_neg()).unwrap_or(0));
    left > 0 || (stored.tolerance != Tolerance::None && stale_for < stored.while_revalidate)
}

/// What a visitor asks for.
#[derive(Clone, Debug)]
pub(crate) struct RequestDirectives<'a> {
    headers: &'a HeaderMap,
    directives: CacheControl,
    /// Whether it looks at the page that all variants have in common.
    primary: bool,
}

impl<'a> RequestDirectives<'a> {
    /// What a request asks for.
    pub(crate) fn of(headers: &'a HeaderMap) -> Self {
        RequestDirectives { headers, directives: directives::asked(headers), primary: true }
    }

    /// The same, of a variant.
    pub(crate) fn of_variant(&self) -> Self {
        RequestDirectives { primary: false, ..self.clone() }
    }

    /// Whether nothing of it may be stored.
    pub(crate) fn no_store(&self) -> bool {
        self.directives.no_store
    }

    /// Whether it wants nothing that is not stored.
    pub(crate) fn only_if_cached(&self) -> bool {
        self.directives.only_if_cached
    }

    /// Whether a stored response was selected by the same headers as this request has.
    pub(crate) fn selects(&self, page: &CachedPage) -> bool {
        let variant = &page.generation().content.variant;
        *variant == variants::digest(&page.stored().names, self.headers)
    }

    /// Whether what is fresh is fresh enough.
    fn accepts(&self, age: i64, left: i64) -> bool {
        let seconds = |time: Duration| i64::try_from(time.as_secs()).unwrap_or(i64::MAX);
        self.directives.no_cache.is_none()
            && self.directives.max_age.is_none_or(|most| age <= seconds(most))
            && self.directives.min_fresh.is_none_or(|least| left >= seconds(least))
    }

    /// Whether what has been stale for so long is still good enough.
    fn accepts_stale(&self, stale_for: Duration) -> bool {
        match self.directives.max_stale {
            Some(MaxStale::Any) => true,
            Some(MaxStale::For(most)) => stale_for <= most,
            None => false,
        }
    }

    fn judged(&self, page: &CachedPage, sight: &EntryView<'_>) -> ServeDecision {
        let generation = page.generation();
        if sight.freshness == Freshness::MustNotServe {
            return ServeDecision::Unusable(RegenerateReason::Stale);
        }
        if !self.selects(page) {
            return if self.primary {
                ServeDecision::OtherVariant
            } else {
                ServeDecision::Unusable(RegenerateReason::OtherVariant(generation.generated_at))
            };
        }
        let validated = |reason| ServeDecision::Stale {
            reason,
            while_revalidate: false,
            if_error: false,
            if_unreachable: false,
        };
        let (stored, now) = (page.stored(), sight.now);
        let (age, left) = (age(generation, now), left(page, now));
        // What was invalidated is used by nobody before its origin was asked (RFC 9111 §4.4).
        let invalidated = sight.invalidated
            || sight.meta.stale_since.is_some()
            || (sight.freshness == Freshness::Stale && sight.meta.freshness(now) == Freshness::Fresh);
        if invalidated {
            return validated(RegenerateReason::Stale);
        }
        let fresh = sight.freshness == Freshness::Fresh;
        if !self.accepts(age, left) && (fresh || self.directives.no_cache.is_some()) {
            let directive = RegenerateReason::RequestDirective(generation.generated_at);
            return validated(if fresh { directive } else { RegenerateReason::Stale });
        }
        if fresh {
            return ServeDecision::Fresh;
        }
        let stale_for = Duration::from_secs(u64::try_from(left.saturating_neg()).unwrap_or(0));
        if stored.tolerance == Tolerance::None {
            return validated(RegenerateReason::Stale);
        }
        // What is not for this origin to grant counts only where nothing forbids it.
        let any = stored.tolerance == Tolerance::Any;
        if any && self.accepts_stale(stale_for) {
            return ServeDecision::Fresh;
        }
        let asked_if_error = self.directives.stale_if_error.filter(|_| any).unwrap_or_default();
        // Who limits the age of what it gets does not want what is stale (RFC 9111 §5.2.1.1).
        let bound = self.directives.max_age.is_some() || self.directives.min_fresh.is_some();
        ServeDecision::Stale {
            reason: RegenerateReason::Stale,
            while_revalidate: !bound && stale_for < stored.while_revalidate,
            if_error: stale_for < stored.if_error.max(asked_if_error),
            if_unreachable: any && !bound && stale_for < LONGEST_SILENCE,
        }
    }
}

impl ReusePolicy for RequestDirectives<'_> {
    fn decide(&self, sight: &EntryView<'_>) -> ServeDecision {
        match sight.page {
            Some(page) if page.follows_origin() => self.judged(page, sight),
            // It was rendered by a rule that is none any more, or its body is not there.
            _ => ServeDecision::Unusable(RegenerateReason::OtherPolicy(sight.meta.generation.generated_at)),
        }
    }

    fn matches(&self, page: &CachedPage) -> bool {
        page.follows_origin() && self.selects(page)
    }

    fn is_shareable(&self, page: &CachedPage) -> bool {
        !page.follows_origin() || is_shared(page)
    }
}

#[cfg(test)]
mod tests;
