//! What a page can be used for: a pure function of what is known of it, the policy and the time.

use std::time::Duration;

use tabletheory::Timestamp;

use super::cached_page::CachedPage;
use crate::pages::policy::{Mode, OtherDeployment, Policy};
use crate::pages::reason::RegenerateReason;
use crate::protocol::freshness::Freshness;
use crate::protocol::row::Meta;

/// What a page can be used for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum ServeDecision {
    /// It is served as it is.
    Fresh,
    /// It should be renewed.
    Stale {
        reason: RegenerateReason,
        /// Whether it may be served while it is renewed.
        while_revalidate: bool,
        /// Whether it may be served if it cannot be renewed.
        if_error: bool,
        /// Whether it may be served if nobody answers who could renew it.
        if_unreachable: bool,
    },
    /// It may not be served.
    Unusable(RegenerateReason),
    /// It is for requests with other headers.
    OtherVariant,
}

/// A page as somebody sees it who is to say what it can be used for.
#[derive(Debug)]
pub(crate) struct EntryView<'a> {
    pub(crate) meta: &'a Meta,
    /// The page itself, if its body is there.
    pub(crate) page: Option<&'a CachedPage>,
    /// By its times and tags.
    pub(crate) freshness: Freshness,
    /// Whether it was invalidated, as far as is known; that is found out only for pages that follow their origin.
    pub(crate) invalidated: bool,
    pub(crate) deployment: Option<&'a str>,
    pub(crate) now: Timestamp,
}

/// Who says what a page can be used for: a policy; or the page itself, and its visitor.
pub(crate) trait ReusePolicy: Sync {
    /// What a page can be used for.
    fn decide(&self, sight: &EntryView<'_>) -> ServeDecision;

    /// Whether a page that was just rendered, perhaps for somebody else, is the one that is asked for.
    fn matches(&self, _page: &CachedPage) -> bool {
        true
    }

    /// Whether a page that was just rendered for somebody else is also for those who waited for it.
    fn is_shareable(&self, _page: &CachedPage) -> bool {
        true
    }
}

impl ReusePolicy for Policy {
    fn decide(&self, sight: &EntryView<'_>) -> ServeDecision {
        if sight.meta.generation.follows_origin() {
            // It was stored by another rule, and may be for one visitor only.
            return ServeDecision::Unusable(RegenerateReason::OtherPolicy(
                sight.meta.generation.generated_at,
            ));
        }
        usable(sight.meta, sight.freshness, self, sight.deployment, sight.now)
    }

    fn matches(&self, page: &CachedPage) -> bool {
        !page.generation().follows_origin()
    }
}

impl ServeDecision {
    /// Why it is renewed, if it is.
    pub(super) fn reason(self) -> RegenerateReason {
        match self {
            ServeDecision::Fresh | ServeDecision::OtherVariant => RegenerateReason::Stale,
            ServeDecision::Stale { reason, .. } | ServeDecision::Unusable(reason) => reason,
        }
    }

    /// Whether it may be served if nobody answers who could renew it.
    pub(super) fn if_unreachable(&self) -> bool {
        matches!(self, ServeDecision::Stale { if_unreachable: true, .. })
    }

    /// Whether it may be served although it should be renewed, because that takes too long or fails.
    pub(super) fn in_need(&self) -> bool {
        match self {
            ServeDecision::Fresh => true,
            ServeDecision::Stale { while_revalidate, if_error, .. } => *while_revalidate || *if_error,
            ServeDecision::Unusable(_) | ServeDecision::OtherVariant => false,
        }
    }
}

/// What a page can be used for, if it is so fresh by its times and tags.
pub(super) fn usable(
    meta: &Meta,
    freshness: Freshness,
    policy: &Policy,
    deployment: Option<&str>,
    now: Timestamp,
) -> ServeDecision {
    let ours = deployment.is_none_or(|ours| meta.generation.content.deployment.as_deref() == Some(ours));
    // A pin holds on to what an earlier deployment rendered.
    let of_other = !ours && !meta.is_pinned(now);
    let not_ours = || RegenerateReason::OtherDeployment(deployment.unwrap_or_default().to_owned());
    match freshness {
        Freshness::MustNotServe => return ServeDecision::Unusable(RegenerateReason::Stale),
        _ if of_other && policy.other_deployment == OtherDeployment::Missing => {
            return ServeDecision::Unusable(not_ours());
        }
        Freshness::Fresh if !of_other => return ServeDecision::Fresh,
        Freshness::Fresh | Freshness::Stale => {}
    }
    let stale_for = stale_for(meta, now);
    let within = |limit: Option<Duration>| limit.is_none_or(|limit| stale_for <= limit);
    ServeDecision::Stale {
        reason: if freshness == Freshness::Fresh { not_ours() } else { RegenerateReason::Stale },
        while_revalidate: policy.mode == Mode::Swr && within(policy.stale_while_revalidate),
        if_error: within(policy.stale_if_error),
        if_unreachable: within(policy.stale_if_error),
    }
}

/// For how long it has been stale, by its own times: that of a tag or a deployment is not known.
fn stale_for(meta: &Meta, now: Timestamp) -> Duration {
    let page = &meta.generation;
    let expired = page.generated_at.saturating_add(page.revalidate_seconds);
    let since = meta.stale_since.unwrap_or(expired);
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

    fn stale(while_revalidate: bool, if_error: bool) -> ServeDecision {
        ServeDecision::Stale {
            reason: RegenerateReason::Stale,
            while_revalidate,
            if_error,
            if_unreachable: if_error,
        }
    }

    #[test]
    fn a_stale_page_is_served_within_the_limits_of_its_policy() {
        let mut policy = Policy::every(Duration::from_secs(60));
        let at = |policy: &Policy, seconds| {
            usable(&page(), page().freshness(at(seconds)), policy, None, at(seconds))
        };
        assert_eq!(at(&policy, 59), ServeDecision::Fresh);
        assert_eq!(at(&policy, 1_000_000), stale(true, true), "without limits for ever");
        policy.stale_while_revalidate = Some(Duration::from_secs(10));
        policy.stale_if_error = Some(Duration::from_secs(20));
        assert_eq!(at(&policy, 70), stale(true, true));
        assert_eq!(at(&policy, 71), stale(false, true));
        assert_eq!(at(&policy, 81), stale(false, false));
        assert_eq!(at(&policy.blocking(), 60), stale(false, true));
    }

    #[test]
    fn an_invalidated_page_is_stale_since_then() {
        let mut policy = Policy::every(Duration::from_secs(60));
        policy.stale_while_revalidate = Some(Duration::from_secs(10));
        let mut meta = page();
        meta.generation.revalidate_seconds = 0;
        meta.stale_since = Some(NOW + 50);
        let at = |seconds| usable(&meta, meta.freshness(at(seconds)), &policy, None, at(seconds));
        assert_eq!(at(60), stale(true, true));
        assert_eq!(at(61), stale(false, true));
    }

    #[test]
    fn what_must_not_be_served_is_not_whatever_the_policy() {
        let policy = Policy::every(Duration::from_secs(60));
        assert_eq!(
            usable(&page(), Freshness::MustNotServe, &policy, None, at(0)),
            ServeDecision::Unusable(RegenerateReason::Stale)
        );
    }

    #[test]
    fn a_page_of_another_deployment_is_stale_or_missing_by_choice_unless_it_is_pinned() {
        let mut policy = Policy::every(Duration::from_secs(60));
        let not_ours = RegenerateReason::OtherDeployment("new".into());
        let of = |meta: &Meta, policy: &Policy| usable(meta, Freshness::Fresh, policy, Some("new"), at(0));
        let mut meta = page();
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
}
