//! Regeneration on demand: by an operator, or after a HEAD request, and not because a page was requested.

use std::future::Future;

use tokio::sync::oneshot;

use super::publish_behind::RenderSlot;
use super::render::Regeneration;
use super::render_fn::RenderFn;
use super::{Engine, Isr, Phase, boxed};
use crate::protocol::request_hash;
use crate::{
    Error, IdempotentRequest, Kind, Outcome, PageKey, Policy, RegenerateReason, Render, RenderContext,
    RenderError, Result,
};

impl Isr {
    /// Renders and publishes a page, unless it is fresh or another worker holds its lease. It continues even if the
    /// returned future is dropped.
    ///
    /// With a request, the page is rendered once however often the request is repeated: see
    /// [`Pages::regenerate_once`](crate::Pages::regenerate_once).
    ///
    /// ```
    /// # use facetheory::{Bodies, Isr, Outcome, PageKey, Pages, PageStore, Policy, Rendered};
    /// # use std::{sync::Arc, time::Duration};
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> facetheory::Result<()> {
    /// # let pages = Pages::new(PageStore::new(Arc::new(tabletheory::MemoryTable::new())), Bodies::memory());
    /// let isr = Isr::new(pages);
    /// let (page, policy) = (PageKey::new("/")?, Policy::every(Duration::from_secs(60)));
    /// let outcome = isr.regenerate(&page, &policy, None, |_| async { Ok(Rendered::html("new")) }).await?;
    /// assert!(matches!(outcome, Outcome::Published(_)));
    /// let again = isr.regenerate(&page, &policy, None, |_| async { Ok(Rendered::html("newer")) }).await?;
    /// assert!(matches!(again, Outcome::AlreadyFresh(_)));
    /// # Ok(()) }
    /// ```
    pub async fn regenerate<T, F, R>(
        &self,
        page: &PageKey,
        policy: &Policy,
        request: Option<IdempotentRequest>,
        render: F,
    ) -> Result<Outcome>
    where
        T: Into<Render> + Send + 'static,
        F: FnOnce(RenderContext) -> R + Send + 'static,
        R: Future<Output = Result<T, RenderError>> + Send + 'static,
    {
        self.regenerate_for(page, policy, RegenerateReason::Stale, request, boxed(render)).await
    }

    /// Returns the request to regenerate a page by this deployment and policy version, with the idempotency key of the client.
    ///
    /// Without a key of the client, the hash is the key: the page is then rendered once for each deployment and policy
    /// version. See [`request_hash`](crate::protocol::request_hash).
    ///
    /// ```
    /// # use facetheory::{Bodies, Isr, PageKey, Pages, PageStore};
    /// use facetheory::protocol::request_hash;
    /// # use std::sync::Arc;
    /// # let pages = Pages::new(PageStore::new(Arc::new(tabletheory::MemoryTable::new())), Bodies::memory());
    /// let isr = Isr::builder(pages).deployment("2026-11-16.1").build();
    /// let page = PageKey::new("/about")?;
    /// let request = isr.idempotent_request(&page, Some("order-7"));
    /// assert_eq!(request.hash, request_hash("/about", Some("2026-11-16.1"), None));
    /// assert_eq!(isr.idempotent_request(&page, None).key, request.hash);
    /// # Ok::<(), facetheory::Error>(())
    /// ```
    #[must_use]
    pub fn idempotent_request(&self, page: &PageKey, key: Option<&str>) -> IdempotentRequest {
        let Engine { deployment, policy_version, .. } = &*self.engine;
        let hash = request_hash(page.cache_key(), deployment.as_deref(), policy_version.as_deref());
        IdempotentRequest::new(key.unwrap_or(&hash), hash.as_str())
    }

    /// Like [`regenerate`](Isr::regenerate), for the given reason.
    pub(crate) async fn regenerate_for(
        &self,
        page: &PageKey,
        policy: &Policy,
        reason: RegenerateReason,
        request: Option<IdempotentRequest>,
        render: RenderFn,
    ) -> Result<Outcome> {
        let regeneration =
            Regeneration { page: page.clone(), policy: *policy, reason, waits: false, leased_until: 0 };
        let (sender, receiver) = oneshot::channel();
        let engine = self.engine.clone();
        // In a task of its own: if the caller is cancelled, the lease must still be released.
        self.engine.spawn(Box::pin(async move {
            let Regeneration { page, policy, .. } = &regeneration;
            let slot = RenderSlot::new(engine.memory.snapshot(page, engine.now()));
            let attempt = engine.attempt(&regeneration, request.as_ref(), &mut Some(render), &slot).await;
            let outcome = match &attempt.outcome {
                // Clients of this process see the page at once, and an uncacheable response is remembered.
                Ok(
                    outcome @ (Outcome::Published(_)
                    | Outcome::Unchanged(_)
                    | Outcome::Declined
                    | Outcome::Invalidated),
                ) => {
                    let outcome = outcome.clone();
                    engine.conclude(page, policy, attempt).await;
                    Ok(outcome)
                }
                Err(error) if error.kind() == Kind::Render => {
                    engine.record_render_error(page, policy, error);
                    attempt.outcome
                }
                Err(error) => {
                    engine.metrics.incident(Phase::Publish, page, error);
                    attempt.outcome
                }
                Ok(_) => attempt.outcome,
            };
            // The caller may be gone.
            drop(sender.send(outcome));
        }));
        let stopped = |_| Error::new(Kind::Unavailable, "the regeneration was stopped; try again");
        receiver.await.map_err(stopped)?
    }
}
