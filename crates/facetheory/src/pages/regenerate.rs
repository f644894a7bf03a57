//! Regeneration of a page from beginning to end: acquire the lease, render, store the body, publish.

use std::borrow::Cow;
use std::ops::ControlFlow;

use tracing::Instrument as _;

use super::policy::Policy;
use super::reason::RegenerateReason;
use super::render::{Render, RenderContext, RenderError};
use super::{Outcome, Pages};
use crate::error::{Error, Kind, Result};
use crate::protocol::{
    Acquire, Begin, Claim, Generation, IdempotentRequest, Lease, Meta, PageKey, Published, View,
};
use crate::store::Publish;

impl Pages {
    /// Renders and publishes a page, if it is not fresh and no other worker renders it.
    ///
    /// The lease is refreshed during the render. If it is lost all the same, the render is cancelled.
    ///
    /// ```
    /// # use facetheory::{Bodies, PageKey, PageStore, Pages, Policy, Rendered};
    /// # use std::{sync::Arc, time::Duration};
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> facetheory::Result<()> {
    /// # let pages = Pages::new(PageStore::new(Arc::new(tabletheory::MemoryTable::new())), Bodies::memory());
    /// # let page = PageKey::new("/")?;
    /// let policy = Policy::every(Duration::from_secs(60));
    /// let failed = pages.regenerate(&page, &policy, |_| async {
    ///     Err::<Rendered, _>("the origin is down".into())
    /// }).await;
    /// assert_eq!(failed.unwrap_err().kind(), facetheory::Kind::Render);
    /// # Ok(()) }
    /// ```
    pub async fn regenerate<T: Into<Render>, R: Future<Output = Result<T, RenderError>>>(
        &self,
        page: &PageKey,
        policy: &Policy,
        render: impl FnOnce(RenderContext) -> R,
    ) -> Result<Outcome> {
        self.regenerate_for(page, policy, &RegenerateReason::Stale, render).await
    }

    /// Renders and publishes a page for this reason, if no other worker renders it.
    ///
    /// ```
    /// # use facetheory::{Bodies, Outcome, PageKey, PageStore, Pages, Policy, RegenerateReason, Rendered};
    /// # use std::{sync::Arc, time::Duration};
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> facetheory::Result<()> {
    /// # let bodies = Bodies::memory();
    /// # let pages = Pages::new(PageStore::new(Arc::new(tabletheory::MemoryTable::new())), bodies.clone());
    /// # let page = PageKey::new("/")?;
    /// let policy = Policy::every(Duration::from_secs(60));
    /// let outcome = pages.regenerate(&page, &policy, |_| async { Ok(Rendered::html("a")) }).await?;
    /// let Outcome::Published(generation) = outcome else { panic!() };
    /// bodies.delete(&generation.s3_key).await?;
    /// let missing = RegenerateReason::BodyMissing(generation.s3_key);
    /// let repaired = pages.regenerate_for(&page, &policy, &missing, |_| async { Ok(Rendered::html("a")) }).await?;
    /// assert!(matches!(repaired, Outcome::Published(_)));
    /// # Ok(()) }
    /// ```
    pub async fn regenerate_for<T: Into<Render>, R: Future<Output = Result<T, RenderError>>>(
        &self,
        page: &PageKey,
        policy: &Policy,
        reason: &RegenerateReason,
        render: impl FnOnce(RenderContext) -> R,
    ) -> Result<Outcome> {
        self.try_regenerate(page, policy, reason, render).await.map(|regenerated| regenerated.outcome)
    }

    /// Regenerates a page like [`regenerate_for`](Pages::regenerate_for).
    pub(crate) async fn try_regenerate<T: Into<Render>, R: Future<Output = Result<T, RenderError>>>(
        &self,
        page: &PageKey,
        policy: &Policy,
        reason: &RegenerateReason,
        render: impl FnOnce(RenderContext) -> R,
    ) -> Result<Regenerated> {
        let (pages, page) = (self.with_terms_of(policy), &page.clone().with_interval(policy.revalidate));
        match pages.store.try_acquire(page).await? {
            Acquire::Granted(lease) => {
                pages.regenerate_under(HeldLease { lease, claim: None }, policy, reason, render).await
            }
            Acquire::Held { until } => Ok(Outcome::Held { until }.into()),
        }
    }

    /// Renders and publishes a page for a request that may be delivered several times: it is executed once.
    ///
    /// The same idempotency key with another hash is [`Outcome::OtherRequest`].
    ///
    /// ```
    /// # use facetheory::{Bodies, IdempotentRequest, Outcome, PageKey, PageStore, Pages, Policy, Rendered};
    /// # use std::{sync::Arc, time::Duration};
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> facetheory::Result<()> {
    /// # let pages = Pages::new(PageStore::new(Arc::new(tabletheory::MemoryTable::new())), Bodies::memory());
    /// # let page = PageKey::new("/")?;
    /// let policy = Policy::every(Duration::ZERO);
    /// let request = IdempotentRequest::new("order-7", "sha256:1");
    /// for first in [true, false] {
    ///     let render = |_| async { Ok(Rendered::html("paid")) };
    ///     let outcome = pages.regenerate_once(&page, &policy, &request, render).await?;
    ///     assert_eq!(matches!(outcome, Outcome::Published(_)), first);
    ///     assert_eq!(matches!(outcome, Outcome::Replayed { .. }), !first);
    /// }
    /// # Ok(()) }
    /// ```
    pub async fn regenerate_once<T: Into<Render>, R: Future<Output = Result<T, RenderError>>>(
        &self,
        page: &PageKey,
        policy: &Policy,
        request: &IdempotentRequest,
        render: impl FnOnce(RenderContext) -> R,
    ) -> Result<Outcome> {
        self.try_regenerate_once(page, policy, request, render).await.map(|regenerated| regenerated.outcome)
    }

    /// Regenerates a page like [`regenerate_once`](Pages::regenerate_once).
    pub(crate) async fn try_regenerate_once<T: Into<Render>, R: Future<Output = Result<T, RenderError>>>(
        &self,
        page: &PageKey,
        policy: &Policy,
        request: &IdempotentRequest,
        render: impl FnOnce(RenderContext) -> R,
    ) -> Result<Regenerated> {
        let (pages, page) = (self.with_terms_of(policy), &page.clone().with_interval(policy.revalidate));
        let held = match pages.store.begin_request(page, &request.key, &request.hash).await? {
            Begin::Started { lease, claim } => HeldLease { lease, claim: Some(claim) },
            Begin::Fresh => {
                // The page was fresh a moment ago. It may have been deleted since.
                let meta = self.store.lookup(page).await?.meta;
                return Ok(meta.map_or(Outcome::Superseded, Outcome::AlreadyFresh).into());
            }
            Begin::Replayed { s3_key } => return Ok(Outcome::Replayed { s3_key }.into()),
            Begin::InProgress { until } => return Ok(Outcome::InProgress { until }.into()),
            Begin::Held { until } => return Ok(Outcome::Held { until }.into()),
            Begin::OtherRequest => return Ok(Outcome::OtherRequest.into()),
        };
        pages.regenerate_under(held, policy, &RegenerateReason::Stale, render).await
    }

    /// These pages with the lease duration and the retention of a policy.
    fn with_terms_of(&self, policy: &Policy) -> Cow<'_, Pages> {
        if policy.lease.is_none() && policy.retention.is_none() {
            return Cow::Borrowed(self);
        }
        let mut pages = self.clone();
        if let Some(duration) = policy.lease {
            let mut terms = pages.store.lease_terms().clone();
            terms.duration = duration;
            pages.store = pages.store.with_lease_terms(terms);
        }
        if let Some(retention) = policy.retention {
            pages.store = pages.store.with_page_retention(retention);
        }
        Cow::Owned(pages)
    }

    /// Renders and publishes under a lease that was just acquired. This is the one place that releases the lease, unless the
    /// publish has released it, or may still be applied.
    async fn regenerate_under<T: Into<Render>, R: Future<Output = Result<T, RenderError>>>(
        &self,
        held: HeldLease,
        policy: &Policy,
        reason: &RegenerateReason,
        render: impl FnOnce(RenderContext) -> R,
    ) -> Result<Regenerated> {
        let result = match self.render(&held.lease, policy, reason, render).await {
            Ok(ControlFlow::Continue((generation, seen))) => {
                let publish = Publish {
                    lease: &held.lease,
                    page: &generation,
                    seen: seen.as_ref(),
                    history: policy.history,
                    request: held.claim.as_ref(),
                    only_right_one: reason.concerns_every_process(),
                };
                let span = tracing::debug_span!("publish", page = %held.lease.page().redacted());
                let outcome = self.store.publish_for(publish).instrument(span).await;
                self.queue_unused(&held.lease, &generation, seen.as_ref(), &outcome);
                match outcome {
                    Ok(Published::Done) => {
                        let meta = self.store.published(&generation, seen.as_ref());
                        return Ok(Regenerated { meta: Some(meta), outcome: published(generation, seen) });
                    }
                    Err(error) if error.kind() == Kind::Unknown => return Err(error),
                    Ok(Published::Lost) => Ok(Outcome::Lost),
                    Ok(Published::Superseded) => Ok(Outcome::Superseded),
                    Err(error) => Err(error),
                }
            }
            Ok(ControlFlow::Break(outcome)) => Ok(outcome),
            Err(error) => Err(error),
        };
        held.release(self).await;
        result.map(Regenerated::from)
    }

    /// Renders the page and stores its body, while the lease is refreshed. Breaks if there is nothing to publish.
    async fn render<T: Into<Render>, R: Future<Output = Result<T, RenderError>>>(
        &self,
        lease: &Lease,
        policy: &Policy,
        reason: &RegenerateReason,
        render: impl FnOnce(RenderContext) -> R,
    ) -> Result<ControlFlow<Outcome, (Generation, Option<Meta>)>> {
        let page = lease.page();
        // Another worker may have published since the caller read `META`.
        let View { meta: seen, lock } = self.store.lookup(page).await?;
        // An invalidation or another worker may have ended the lease since: then `META` was not read under it.
        if lock.is_none_or(|lock| lock.lease_token != lease.token()) {
            return Ok(ControlFlow::Break(Outcome::Lost));
        }
        if let Some(meta) = &seen
            && !reason.still_applies(meta, self.store.now())
            && self.store.is_fresh(page, Some(meta)).await?
        {
            return Ok(ControlFlow::Break(Outcome::AlreadyFresh(meta.clone())));
        }
        let epochs = self.store.epochs_before_render(page, seen.as_ref()).await?;
        let started = self.store.now();
        let has_body = |meta: &Meta| !meta.generation.s3_key.is_empty() && !reason.is_body_missing(meta);
        let current = seen.clone().filter(has_body);
        let context = RenderContext { page: page.clone(), served: current.clone(), started, leased: true };
        let rendering = async {
            let rendered = render(context).await.map_err(|cause| {
                let context = format!("the render of {} failed", page.redacted());
                Error::new(Kind::Render, context).caused_by(cause)
            })?;
            match rendered.into() {
                Render::Declined | Render::Uncacheable | Render::MemoryFull => {
                    Ok::<_, Error>(ControlFlow::Break(Outcome::Declined))
                }
                Render::Invalidate => Ok(ControlFlow::Break(Outcome::Invalidated)),
                Render::Page(rendered) => {
                    let is_of_now = rendered.as_of.is_none();
                    let mut stored =
                        self.store_body(page, policy, *rendered, current.as_ref(), started).await?;
                    if is_of_now {
                        stored.epochs = Some(self.store.seen_epochs(page, &stored, epochs).await);
                    }
                    Ok(ControlFlow::Continue(stored))
                }
            }
        };
        let rendered = tokio::select! {
            // In this order, not a random one: simulations repeat exactly, and a completed render wins over a lost lease.
            biased;
            rendered = rendering => rendered?,
            () = self.store.heartbeat(lease) => ControlFlow::Break(Outcome::Lost),
        };
        Ok(match rendered {
            ControlFlow::Continue(generation) => ControlFlow::Continue((generation, seen)),
            ControlFlow::Break(Outcome::Invalidated) if !self.invalidate(lease, seen.as_ref()).await => {
                ControlFlow::Break(Outcome::Declined)
            }
            ControlFlow::Break(outcome) => ControlFlow::Break(outcome),
        })
    }

    /// The hard invalidation of the current page. Returns whether it is certain. If it was not made, the next render repeats it.
    async fn invalidate(&self, lease: &Lease, seen: Option<&Meta>) -> bool {
        let Some(seen) = seen else { return false };
        self.store.invalidate_under_lease(lease, seen).await.unwrap_or_else(|error| {
            let page = lease.page().redacted();
            tabletheory::warn_limited!(%error, %page, "a page could not be invalidated and is still served");
            false
        })
    }
}

/// The outcome of a regeneration, and `META` as it was published, without its version.
pub(crate) struct Regenerated {
    pub(crate) outcome: Outcome,
    pub(crate) meta: Option<Meta>,
}

impl From<Outcome> for Regenerated {
    fn from(outcome: Outcome) -> Self {
        Regenerated { outcome, meta: None }
    }
}

/// The lease of a worker, and the request that it executes.
struct HeldLease {
    lease: Lease,
    claim: Option<Claim>,
}

impl HeldLease {
    /// Releases the lease so that other workers need not wait, and fails the request so that it can be tried again.
    async fn release(self, pages: &Pages) {
        let released = match &self.claim {
            None => pages.store.release(&self.lease).await,
            Some(claim) => pages.store.fail_request(&self.lease, claim).await,
        };
        if let Err(error) = released {
            let page = self.lease.page().redacted();
            tabletheory::warn_limited!(%error, %page, "a lease could not be released; it expires by itself");
        }
    }
}

/// The outcome of a publish. `seen` is `META` as it was read before: if its body is still the current one, no object was
/// written.
fn published(generation: Generation, seen: Option<Meta>) -> Outcome {
    match seen {
        Some(Meta { generation: before, current_sk, version, .. }) if before.s3_key == generation.s3_key => {
            Outcome::Unchanged(Meta { current_sk, version, ..Meta::of(generation) })
        }
        _ => Outcome::Published(generation),
    }
}
