//! Decides how a cached page may be used: a pure function of its metadata, the policy and the time.

use std::time::Duration;

use tabletheory::Timestamp;

use super::CachedPage;
use crate::protocol::{Freshness, Meta};
use crate::{Mode, OtherDeployment, PageKey, Policy, RegenerateReason};

/// How a cached page may be used.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum ServeDecision {
    /// It can be served as it is.
    Fresh,
    /// It should be regenerated.
    Stale {
        reason: RegenerateReason,
        /// Whether it may be served while it is regenerated.
        while_revalidate: bool,
        /// Whether it may be served if the regeneration fails.
        if_error: bool,
        /// Whether it may be served if the origin is unreachable.
        if_unreachable: bool,
    },
    /// It must not be served for this request, or there is none.
    Unusable(RegenerateReason),
    /// Its `Vary` does not match this request, but names the headers that identify the right variant.
    OtherVariant,
}

/// A cached page, as a [`ReusePolicy`] sees it.
#[derive(Debug)]
pub(crate) struct EntryView<'a> {
    pub(crate) meta: &'a Meta,
    /// The page, unless its body is missing.
    pub(crate) page: Option<&'a CachedPage>,
    /// The freshness of the page by its times and tags.
    pub(crate) freshness: Freshness,
    /// Whether it was invalidated, as far as is known. This is read only for pages that follow their origin.
    pub(crate) invalidated: bool,
    pub(crate) deployment: Option<&'a str>,
    pub(crate) now: Timestamp,
}

/// Decides how a cached page may be used: the [`Policy`] of a route, or the directives of request and response.
pub(crate) trait ReusePolicy: Sync {
    /// Decides how a cached page may be used.
    fn decide(&self, entry: &EntryView<'_>) -> ServeDecision;

    /// Whether a page that was just rendered, possibly for another request, is the one that this request selects.
    fn matches(&self, _page: &CachedPage) -> bool {
        true
    }

    /// The variant of a page that this request selects by the `Vary` of a response that was rendered for another request.
    fn variant(&self, _page: &PageKey, _other: &CachedPage) -> Option<PageKey> {
        None
    }

    /// Whether a page that was just rendered for another request may be served to this one, which waited for it.
    fn is_shareable(&self, _page: &CachedPage) -> bool {
        true
    }
}

impl ReusePolicy for Policy {
    fn decide(&self, entry: &EntryView<'_>) -> ServeDecision {
        if entry.meta.generation.follows_origin() {
            // It was stored by a rule that follows the origin, and may be for some clients only.
            return ServeDecision::Unusable(RegenerateReason::OtherPolicy(
                entry.meta.generation.generated_at,
            ));
        }
        let EntryView { meta, freshness, deployment, now, .. } = *entry;
        // A pinned page is used whichever deployment rendered it.
        let is_of_other =
            deployment.is_some_and(|ours| meta.is_of_other_deployment(ours)) && !meta.is_pinned(now);
        let not_ours = || RegenerateReason::OtherDeployment(deployment.unwrap_or_default().to_owned());
        match freshness {
            // `Stale` is also the reason for a page that must not be served.
            Freshness::MustNotServe => return ServeDecision::Unusable(RegenerateReason::Stale),
            _ if is_of_other && self.other_deployment == OtherDeployment::Missing => {
                return ServeDecision::Unusable(not_ours());
            }
            Freshness::Fresh if !is_of_other => return ServeDecision::Fresh,
            Freshness::Fresh | Freshness::Stale => {}
        }
        let stale_for = stale_for(meta, now);
        let within = |limit: Option<Duration>| limit.is_none_or(|limit| stale_for <= limit);
        ServeDecision::Stale {
            reason: if freshness == Freshness::Fresh { not_ours() } else { RegenerateReason::Stale },
            while_revalidate: self.mode == Mode::Swr && within(self.stale_while_revalidate),
            if_error: within(self.stale_if_error),
            if_unreachable: within(self.stale_if_error),
        }
    }

    fn matches(&self, page: &CachedPage) -> bool {
        !page.follows_origin()
    }
}

impl ServeDecision {
    /// The reason for which the page is regenerated, if it is.
    pub(super) fn reason(self) -> RegenerateReason {
        match self {
            ServeDecision::Fresh | ServeDecision::OtherVariant => RegenerateReason::Stale,
            ServeDecision::Stale { reason, .. } | ServeDecision::Unusable(reason) => reason,
        }
    }

    /// Whether the page may be served if its regeneration fails or takes too long.
    pub(super) fn is_servable_if_error(&self) -> bool {
        match self {
            ServeDecision::Fresh => true,
            ServeDecision::Stale { while_revalidate, if_error, .. } => *while_revalidate || *if_error,
            ServeDecision::Unusable(_) | ServeDecision::OtherVariant => false,
        }
    }
}

/// How long a page has been stale by its own times. When a tag or a deployment made it stale is not recorded.
fn stale_for(meta: &Meta, now: Timestamp) -> Duration {
    let since = meta.stale_since.unwrap_or_else(|| meta.generation.expires_at());
    Duration::from_secs(u64::try_from(now.seconds().saturating_sub(since)).unwrap_or(0))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::protocol::generation::Generation;

    const NOW: i64 = 1_700_000_000;

    fn at(seconds: i64) -> Timestamp {
        Timestamp::from_seconds(NOW + seconds)
    }

    fn page() -> Meta {
        Meta::of(Generation::new("a.html", NOW, 60))
    }

    fn decide(
        meta: &Meta,
        freshness: Freshness,
        policy: &Policy,
        deployment: Option<&str>,
        now: Timestamp,
    ) -> ServeDecision {
        policy.decide(&EntryView { meta, page: None, freshness, invalidated: false, deployment, now })
    }

    fn stale(while_revalidate: bool, if_error: bool) -> ServeDecision {
        let reason = RegenerateReason::Stale;
        ServeDecision::Stale { reason, while_revalidate, if_error, if_unreachable: if_error }
    }

    #[test]
    fn a_stale_page_is_served_within_the_limits_of_its_policy() {
        let mut policy = Policy::every(Duration::from_secs(60));
        let at = |policy: &Policy, seconds| {
            decide(&page(), page().freshness(at(seconds)), policy, None, at(seconds))
        };
        assert_eq!(at(&policy, 59), ServeDecision::Fresh);
        assert_eq!(at(&policy, 1_000_000), stale(true, true), "without limits forever");
        policy.stale_while_revalidate = Some(Duration::from_secs(10));
        policy.stale_if_error = Some(Duration::from_secs(20));
        assert_eq!(at(&policy, 70), stale(true, true));
        assert_eq!(at(&policy, 71), stale(false, true));
        assert_eq!(at(&policy, 81), stale(false, false));
        assert_eq!(at(&policy.blocking(), 60), stale(false, true));
    }

    #[test]
    fn an_invalidated_page_is_stale_since_its_invalidation() {
        let mut policy = Policy::every(Duration::from_secs(60));
        policy.stale_while_revalidate = Some(Duration::from_secs(10));
        let mut meta = page();
        meta.generation.revalidate_seconds = 0;
        meta.stale_since = Some(NOW + 50);
        let at = |seconds| decide(&meta, meta.freshness(at(seconds)), &policy, None, at(seconds));
        assert_eq!(at(60), stale(true, true));
        assert_eq!(at(61), stale(false, true));
    }

    #[test]
    fn a_page_that_must_not_be_served_is_unusable_under_every_policy() {
        let policy = Policy::every(Duration::from_secs(60));
        assert_eq!(
            decide(&page(), Freshness::MustNotServe, &policy, None, at(0)),
            ServeDecision::Unusable(RegenerateReason::Stale)
        );
    }

    #[test]
    fn a_page_that_follows_its_origin_is_unusable_for_a_policy() {
        let (policy, mut meta) = (Policy::every(Duration::from_secs(60)), page());
        meta.generation.content.initial_age = Some(0);
        assert_eq!(
            decide(&meta, Freshness::Fresh, &policy, None, at(0)),
            ServeDecision::Unusable(RegenerateReason::OtherPolicy(NOW))
        );
    }

    #[test]
    fn a_page_of_another_deployment_is_stale_or_missing_unless_it_is_pinned() {
        let mut policy = Policy::every(Duration::from_secs(60));
        let not_ours = RegenerateReason::OtherDeployment("new".into());
        let of = |meta: &Meta, policy: &Policy| decide(meta, Freshness::Fresh, policy, Some("new"), at(0));
        let mut meta = page();
        meta.mark = Some("m".into());
        for other in [None, Some("old".to_owned())] {
            meta.generation.content.deployment = other;
            let expected = ServeDecision::Stale {
                reason: not_ours.clone(),
                while_revalidate: true,
                if_error: true,
                if_unreachable: true,
            };
            assert_eq!(of(&meta, &policy), expected);
        }
        policy.other_deployment = OtherDeployment::Missing;
        assert_eq!(of(&meta, &policy), ServeDecision::Unusable(not_ours));
        meta.pinned_until = Some(NOW + 10);
        assert_eq!(of(&meta, &policy), ServeDecision::Fresh);
        meta.generation.content.deployment = Some("new".into());
        meta.pinned_until = None;
        assert_eq!(of(&meta, &policy), ServeDecision::Fresh);
    }

    #[test]
    fn a_page_that_another_service_published_is_of_no_other_deployment() {
        let mut policy = Policy::every(Duration::from_secs(60));
        let of = |meta: &Meta, policy: &Policy| decide(meta, Freshness::Fresh, policy, Some("new"), at(0));
        for other in [OtherDeployment::Stale, OtherDeployment::Missing] {
            policy.other_deployment = other;
            assert_eq!(of(&page(), &policy), ServeDecision::Fresh, "{other:?}");
            let mut rolled_back = page();
            rolled_back.generation.content.digest = Some("sha256:00".into());
            assert_ne!(of(&rolled_back, &policy), ServeDecision::Fresh, "a version of ours has a digest");
        }
    }
}
