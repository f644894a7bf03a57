//! Why a page is regenerated, possibly before its interval is over.

use tabletheory::Timestamp;

use crate::protocol::row::Meta;

/// Why a page is regenerated. Another worker may have dealt with it by the time the lease is acquired.
///
/// Variants with a number carry the `generated_at` of the page to be replaced, in epoch seconds: they apply until a later
/// generation is published.
///
/// ```
/// assert_eq!(facetheory::RegenerateReason::BodyMissing("isr/0/1-a.html".into()).as_str(), "body-missing");
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum RegenerateReason {
    /// The page is stale or must not be served (hard invalidated), or there is none.
    Stale,
    /// The body with this key, which `META` names, is missing or damaged.
    BodyMissing(String),
    /// The page was rendered by another deployment than this one.
    OtherDeployment(String),
    /// The page is fresh, but will be stale soon.
    EarlyRefresh(i64),
    /// The request requires a newer response: `no-cache`, `max-age` or `min-fresh`.
    RequestDirective(i64),
    /// The page was stored under another rule, which does not apply to this request.
    OtherPolicy(i64),
    /// The stored variant does not match the headers of the request.
    OtherVariant(i64),
    /// A variant replaces the page by whose `Vary` it was selected.
    VariantPromotion(i64),
    /// The response to a HEAD request updates the stored headers.
    HeadUpdate(i64),
}

impl RegenerateReason {
    /// The reason in one word, for logs.
    ///
    /// ```
    /// assert_eq!(facetheory::RegenerateReason::EarlyRefresh(1_700_000_000).as_str(), "early-refresh");
    /// ```
    #[must_use]
    pub fn as_str(&self) -> &'static str {
        match self {
            RegenerateReason::Stale => "stale",
            RegenerateReason::BodyMissing(_) => "body-missing",
            RegenerateReason::OtherDeployment(_) => "other-deployment",
            RegenerateReason::EarlyRefresh(_) => "early-refresh",
            RegenerateReason::RequestDirective(_) => "request-directive",
            RegenerateReason::OtherPolicy(_) => "other-policy",
            RegenerateReason::OtherVariant(_) => "other-variant",
            RegenerateReason::VariantPromotion(_) => "variant-promotion",
            RegenerateReason::HeadUpdate(_) => "head-update",
        }
    }

    /// Whether a page that is fresh by its times and its tags still has to be regenerated.
    ///
    /// The page may have been pinned in the meantime. A pinned page is replaced only if its body is missing.
    pub(crate) fn still_applies(&self, meta: &Meta, now: Timestamp) -> bool {
        if meta.is_pinned(now) {
            return self.is_body_missing(meta);
        }
        match self {
            RegenerateReason::Stale => false,
            RegenerateReason::BodyMissing(_) => self.is_body_missing(meta),
            RegenerateReason::OtherDeployment(deployment) => meta.is_of_other_deployment(deployment),
            RegenerateReason::EarlyRefresh(generated_at)
            | RegenerateReason::RequestDirective(generated_at)
            | RegenerateReason::OtherPolicy(generated_at)
            | RegenerateReason::OtherVariant(generated_at)
            | RegenerateReason::VariantPromotion(generated_at)
            | RegenerateReason::HeadUpdate(generated_at) => meta.generation.generated_at <= *generated_at,
        }
    }

    /// Whether a page that is regenerated for this reason is right for every process, and the page before is not. Processes
    /// with other settings would only replace each other's pages, each with one that is right for itself.
    pub(crate) fn concerns_every_process(&self) -> bool {
        match self {
            RegenerateReason::Stale
            | RegenerateReason::EarlyRefresh(_)
            | RegenerateReason::OtherDeployment(_)
            | RegenerateReason::OtherPolicy(_) => false,
            RegenerateReason::BodyMissing(_)
            | RegenerateReason::RequestDirective(_)
            | RegenerateReason::OtherVariant(_)
            | RegenerateReason::VariantPromotion(_)
            | RegenerateReason::HeadUpdate(_) => true,
        }
    }

    /// Whether the body that `META` names is the missing one.
    pub(crate) fn is_body_missing(&self, meta: &Meta) -> bool {
        matches!(self, RegenerateReason::BodyMissing(s3_key) if *s3_key == meta.generation.s3_key)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::protocol::generation::Generation;

    #[test]
    fn a_reason_applies_until_another_worker_has_dealt_with_it() {
        let now = Timestamp::from_seconds(100);
        let mut meta = Meta::of(Generation::new("a.html", 100, 60));
        meta.generation.content.deployment = Some("old".into());
        let reasons = [
            RegenerateReason::BodyMissing("a.html".into()),
            RegenerateReason::OtherDeployment("new".into()),
            RegenerateReason::EarlyRefresh(100),
            RegenerateReason::RequestDirective(100),
            RegenerateReason::OtherPolicy(100),
            RegenerateReason::OtherVariant(100),
            RegenerateReason::VariantPromotion(100),
            RegenerateReason::HeadUpdate(100),
        ];
        assert!(reasons.iter().all(|reason| reason.still_applies(&meta, now)));
        assert!(!RegenerateReason::Stale.still_applies(&meta, now), "the page is fresh");

        meta.pinned_until = Some(200);
        let left: Vec<&RegenerateReason> =
            reasons.iter().filter(|reason| reason.still_applies(&meta, now)).collect();
        assert_eq!(left, [&reasons[0]], "a pinned page is replaced only if its body is missing");

        meta.pinned_until = None;
        meta.generation = Generation::new("b.html", 101, 60);
        meta.generation.content.deployment = Some("new".into());
        assert!(reasons.iter().all(|reason| !reason.still_applies(&meta, now)));
    }
}
