//! Why a page is rendered again although its interval may not be over.

use tabletheory::Timestamp;

use crate::protocol::row::Meta;

/// Why a page is rendered again. Somebody else may have seen to it by the time the lease is held.
///
/// ```
/// assert_ne!(facetheory::RegenerateReason::Stale, facetheory::RegenerateReason::BodyMissing("isr/0/1-a.html".into()));
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RegenerateReason {
    /// It is stale, or there is none.
    Stale,
    /// The body of this key, which `META` names, is missing or damaged.
    BodyMissing(String),
    /// It will soon be stale: this is when it was generated, in epoch seconds.
    Early(i64),
    /// It was not rendered by this deployment.
    OtherDeployment(String),
}

impl RegenerateReason {
    /// Whether there is still something to do about a page that is fresh by its times and its tags.
    ///
    /// A pin may have come since the reason did. It holds on to what is served, unless there is nothing to serve.
    pub(crate) fn still_applies(&self, meta: &Meta, now: Timestamp) -> bool {
        if meta.is_pinned(now) {
            return self.finds_broken(meta);
        }
        match self {
            RegenerateReason::Stale => false,
            RegenerateReason::BodyMissing(_) => self.finds_broken(meta),
            RegenerateReason::Early(generated_at) => meta.generation.generated_at <= *generated_at,
            RegenerateReason::OtherDeployment(deployment) => {
                meta.generation.content.deployment.as_ref() != Some(deployment)
            }
        }
    }

    /// Whether what is served cannot be served.
    pub(crate) fn finds_broken(&self, meta: &Meta) -> bool {
        matches!(self, RegenerateReason::BodyMissing(s3_key) if *s3_key == meta.generation.s3_key)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::protocol::generation::Generation;

    #[test]
    fn a_reason_applies_until_somebody_has_seen_to_it() {
        let now = Timestamp::from_seconds(100);
        let mut meta = Meta::of(Generation::new("a.html", 100, 60));
        meta.generation.content.deployment = Some("old".into());
        let reasons = [
            RegenerateReason::BodyMissing("a.html".into()),
            RegenerateReason::Early(100),
            RegenerateReason::OtherDeployment("new".into()),
        ];
        assert!(reasons.iter().all(|reason| reason.still_applies(&meta, now)));
        assert!(!RegenerateReason::Stale.still_applies(&meta, now), "that is told by its times");

        meta.pinned_until = Some(200);
        let left: Vec<&RegenerateReason> =
            reasons.iter().filter(|reason| reason.still_applies(&meta, now)).collect();
        assert_eq!(left, [&reasons[0]], "a pin outlasts all but a body that is not there");

        meta.pinned_until = None;
        meta.generation = Generation::new("b.html", 101, 60);
        meta.generation.content.deployment = Some("new".into());
        assert!(reasons.iter().all(|reason| !reason.still_applies(&meta, now)));
    }
}
