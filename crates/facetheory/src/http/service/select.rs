//! Selects the stored response for a request (RFC 9111 §4.1): the page itself, or the variant that its `Vary` leads to.

use std::borrow::Cow;
use std::sync::Arc;
use std::time::Duration;

use http::HeaderMap;
use http::header::{IF_MATCH, IF_UNMODIFIED_SINCE};
use http::request::Parts;
use tabletheory::Timestamp;

use super::CacheHandler;
use crate::engine::{CachedPage, FreshPage, ServeDecision, Served, boxed};
use crate::error::Error;
use crate::http::headers::has_named_hops;
use crate::http::router::route::Route;
use crate::http::semantics::cache_control::Directive;
use crate::http::semantics::reuse::RequestDirectives;
use crate::http::variants;
use crate::pages::policy::Policy;
use crate::pages::reason::RegenerateReason;
use crate::pages::render::{Render, RenderContext, RenderError, Rendered};
use crate::protocol::key::PageKey;
use crate::protocol::row::Meta;

/// The stored response that a request selects.
pub(super) struct Selected<'a> {
    pub(super) key: Cow<'a, PageKey>,
    /// The directives of the request about reuse. `None` where a rule decides.
    pub(super) directives: Option<RequestDirectives<'a>>,
    /// The page and its decision, where the origin decides about reuse. A rule needs no lookup before the engine's own.
    pub(super) found: Option<(Arc<CachedPage>, ServeDecision)>,
    /// Why the request is forwarded if the stored response cannot be used, as a token of RFC 9211.
    pub(super) forward_reason: Option<&'static str>,
    /// The page by whose `Vary` a variant was selected.
    pub(super) primary: Option<Arc<CachedPage>>,
}

impl Selected<'_> {
    /// Whether the stored response is served without waiting for the origin.
    pub(super) fn is_servable(&self) -> bool {
        let decision = self.found.as_ref().map(|(_, decision)| decision);
        matches!(decision, Some(ServeDecision::Fresh | ServeDecision::Stale { while_revalidate: true, .. }))
    }
}

impl CacheHandler {
    /// Selects the stored response for a request. Without directives, where a rule decides, every request selects the page.
    pub(super) async fn select<'a>(
        &self,
        page: &'a PageKey,
        directives: Option<&RequestDirectives<'a>>,
        headers: &HeaderMap,
    ) -> Result<Selected<'a>, Error> {
        let mut selected = Selected {
            key: Cow::Borrowed(page),
            directives: directives.cloned(),
            found: None,
            forward_reason: None,
            primary: None,
        };
        let Some(directives) = directives else { return Ok(selected) };
        selected.found = self.isr.lookup_with(page, directives).await;
        let mut missing = "uri-miss";
        if let Some((primary, ServeDecision::OtherVariant)) = selected.found {
            let (key, directives) = (variant_of(page, &primary, headers)?, directives.of_variant());
            selected.found = self.isr.lookup_with(&key, &directives).await;
            if selected.found.is_some() {
                self.variants.used(&key);
            }
            (selected.key, selected.directives) = (Cow::Owned(key), Some(directives));
            selected.primary = Some(primary);
            missing = "vary-miss";
        }
        let decision = selected.found.as_ref().map(|(_, decision)| decision);
        selected.forward_reason = Some(forward_reason(decision, missing));
        Ok(selected)
    }

    /// Returns the page that a request selects, if it is in memory and fresh, and its key.
    pub(super) fn select_fresh<'k>(
        &self,
        page: &'k PageKey,
        route: &Route,
        request: &Parts,
        now: Timestamp,
    ) -> Option<(Cow<'k, PageKey>, Served)> {
        let policy = &route.policy;
        if !route.follow_origin {
            let found = self.isr.get_fresh_with(page, policy, policy, now)?;
            let FreshPage::Page(served) = found else { return None };
            return Some((Cow::Borrowed(page), served));
        }
        let headers = &request.headers;
        let directives = RequestDirectives::of(request);
        if directives.control.has(Directive::NoStore) || is_for_origin(headers) || has_named_hops(headers) {
            return None;
        }
        let primary = match self.isr.get_fresh_with(page, policy, &directives, now)? {
            FreshPage::Page(served) => return Some((Cow::Borrowed(page), served)),
            FreshPage::OtherVariant(primary) => primary,
        };
        let key = variant_of(page, &primary, headers).ok()?;
        let found = self.isr.get_fresh_with(&key, policy, &directives.of_variant(), now)?;
        let FreshPage::Page(served) = found else { return None };
        Some((Cow::Owned(key), served))
    }

    /// Replaces the page by whose `Vary` a variant was selected with that variant, if the variant is for all requests or
    /// varies on more headers: the latest response says what to select by.
    pub(super) async fn promote(
        self: &Arc<Self>,
        variant: &PageKey,
        policy: &Policy,
        primary: &CachedPage,
        served: &Served,
    ) {
        let (known, names) = (&primary.stored().names, &served.page.stored().names);
        let is_for_all = served.page.generation().content.variant.is_none();
        if !is_for_all && names.iter().all(|name| known.contains(name)) {
            return;
        }
        let Ok(page) = variant.primary() else { return };
        let (handler, promoted) = (self.clone(), served.page.clone());
        let copy = move |context: RenderContext| async move {
            let (store, generated_at) = (handler.isr.pages().store(), promoted.generation().generated_at);
            let is_outdated = store.is_outdated(&context.page, promoted.meta()).await;
            let is_superseded = |row: &Meta| {
                row.generation.generated_at > generated_at
                    || store.invalidated_since(row, Timestamp::from_seconds(generated_at))
            };
            // A response that was requested before an invalidation must not be served to everyone after it.
            let is_old = is_outdated.unwrap_or(true) || context.served.as_ref().is_some_and(is_superseded);
            Ok::<_, RenderError>(if is_old { Render::Uncacheable } else { copied(&promoted) })
        };
        let reason = RegenerateReason::VariantPromotion(primary.generation().generated_at);
        if let Err(error) = self.isr.regenerate_for(&page, policy, reason, None, boxed(copy)).await {
            tabletheory::warn_limited!(%error, page = %page.redacted(), "variant not promoted; Vary of the older response stays in use");
        }
    }
}

/// Whether a request has conditions about the current state of the origin, which only the origin knows (RFC 9110 §13.1).
pub(super) fn is_for_origin(headers: &HeaderMap) -> bool {
    [IF_MATCH, IF_UNMODIFIED_SINCE].iter().any(|name| headers.contains_key(name))
}

/// A stored response, to be stored under another key with the time at which it was requested.
fn copied(page: &CachedPage) -> Render {
    let generation = page.generation();
    let mut rendered = Rendered::new(page.bytes().clone(), generation.content.clone());
    rendered.is_counted = true;
    rendered.etag.clone_from(&generation.etag);
    let fresh_for = u64::try_from(generation.revalidate_seconds).unwrap_or(0);
    rendered.revalidate = Some(Duration::from_secs(fresh_for));
    let requested = Timestamp::from_seconds(generation.generated_at);
    Render::from(rendered).requested_at(requested, generation.seen_epochs().cloned())
}

/// Returns the key of the variant that a request with these headers selects.
///
/// A page may be deleted before its variants, and an invalidation meanwhile does not reach them. So the next page with its key
/// must not lead to them: `expired_at` tells the two apart.
fn variant_of(primary: &PageKey, page: &CachedPage, headers: &HeaderMap) -> Result<PageKey, Error> {
    let digest = variants::digest(&page.stored().names, headers).unwrap_or_default();
    match page.meta().expired_at {
        None => primary.variant(&digest),
        Some(since) => primary.variant(&variants::digest_since(&digest, since)),
    }
}

/// Returns why a request is forwarded, as a token of RFC 9211, from the decision about the stored response. `missing` is the
/// token if there is none.
fn forward_reason(decision: Option<&ServeDecision>, missing: &'static str) -> &'static str {
    match decision {
        None | Some(ServeDecision::OtherVariant) => missing,
        Some(ServeDecision::Stale { reason: RegenerateReason::RequestDirective(_), .. }) => "request",
        Some(ServeDecision::Unusable(RegenerateReason::OtherVariant(_))) => "vary-miss",
        Some(ServeDecision::Unusable(RegenerateReason::OtherPolicy(_))) => "miss",
        Some(_) => "stale",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cache_status_tells_apart_why_a_request_is_forwarded() {
        let stale = |reason| ServeDecision::Stale {
            reason,
            while_revalidate: false,
            if_error: true,
            if_unreachable: true,
        };
        let table = [
            (None, "uri-miss", "uri-miss"),
            (None, "vary-miss", "vary-miss"),
            (Some(ServeDecision::OtherVariant), "uri-miss", "uri-miss"),
            (Some(ServeDecision::OtherVariant), "vary-miss", "vary-miss"),
            (Some(stale(RegenerateReason::RequestDirective(1))), "uri-miss", "request"),
            (Some(stale(RegenerateReason::Stale)), "uri-miss", "stale"),
            (Some(stale(RegenerateReason::EarlyRefresh(1))), "uri-miss", "stale"),
            (Some(stale(RegenerateReason::OtherDeployment("a".into()))), "vary-miss", "stale"),
            (Some(ServeDecision::Unusable(RegenerateReason::OtherVariant(1))), "uri-miss", "vary-miss"),
            (Some(ServeDecision::Unusable(RegenerateReason::OtherPolicy(1))), "uri-miss", "miss"),
            (Some(ServeDecision::Unusable(RegenerateReason::BodyMissing("a".into()))), "uri-miss", "stale"),
            (Some(ServeDecision::Unusable(RegenerateReason::Stale)), "vary-miss", "stale"),
        ];
        for (decision, missing, expected) in table {
            assert_eq!(forward_reason(decision.as_ref(), missing), expected, "{decision:?}");
        }
    }
}
