//! A page rendered because somebody asks for that, and not because of a visitor.

use std::future::Future;
use std::sync::{Arc, Mutex};

use tokio::sync::oneshot;
use tracing::Instrument as _;

use super::memory::MetadataCheck;
use super::metrics::Phase;
use super::render::{Kept, Regeneration, name};
use super::rendering::{RenderFn, boxed};
use super::{Engine, Isr};
use crate::error::{Error, Kind, Result};
use crate::pages::Outcome;
use crate::pages::policy::Policy;
use crate::pages::reason::RegenerateReason;
use crate::pages::render::{Render, RenderContext, RenderError};
use crate::protocol::key::PageKey;
use crate::protocol::request::IdempotentRequest;

impl Isr {
    /// Renders a page anew if it is not fresh and nobody else does, and publishes it: what visitors make happen, without
    /// one. It goes on even if the caller goes away.
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

    /// The same for this reason.
    pub(crate) async fn regenerate_for(
        &self,
        page: &PageKey,
        policy: &Policy,
        reason: RegenerateReason,
        request: Option<IdempotentRequest>,
        render: RenderFn,
    ) -> Result<Outcome> {
        let renewal = Regeneration { page: page.clone(), policy: *policy, reason, waits: false };
        let (sender, receiver) = oneshot::channel();
        let engine = self.engine.clone();
        // On its own, so that a caller who goes away does not leave a lease behind that nobody gives back.
        self.engine.spawn(Box::pin(async move {
            let outcome = engine.regenerate(&renewal, request, render).await;
            // Nobody has to hear of it.
            drop(sender.send(outcome));
        }));
        let stopped = |_| Error::new(Kind::Unavailable, "the regeneration was stopped; try again");
        receiver.await.map_err(stopped)?
    }
}

impl Engine {
    async fn regenerate(
        self: Arc<Self>,
        renewal: &Regeneration,
        request: Option<IdempotentRequest>,
        render: RenderFn,
    ) -> Result<Outcome> {
        let Regeneration { page, policy, reason, .. } = renewal;
        let kept = Arc::new(Mutex::new(Kept::default()));
        let (sequence, began) = (self.memory.sequence(page), self.now());
        let render = |context| self.render(Some(render), context, policy, kept.clone());
        let span = tracing::debug_span!("regeneration", page = %page.redacted(), reason = reason.as_str());
        let outcome = match &request {
            None => self.pages.regenerate_for(page, policy, reason, render).instrument(span).await,
            Some(request) => self.pages.regenerate_once(page, policy, request, render).instrument(span).await,
        };
        let took = u64::try_from(self.now().millis() - began.millis()).unwrap_or(0);
        self.observer.regenerated(page, name(&outcome), took);
        match &outcome {
            // Visitors of this process see it at once, and what was learnt of the renderer is remembered.
            Ok(
                done @ (Outcome::Published(_)
                | Outcome::Unchanged(_)
                | Outcome::Declined
                | Outcome::Invalidated),
            ) => {
                let checked =
                    MetadataCheck { at: began, sequence, outdated: false, invalidated: false, held_until: 0 };
                self.land(renewal, Ok(done.clone()), &kept, checked, took).await;
            }
            Ok(_) => {}
            Err(error) if error.kind() == Kind::Render => {
                self.render_failures.failed(page, policy.backoff, self.now(), &*self.random);
                self.observer.incident(Phase::Render, page, error);
            }
            Err(error) => self.observer.incident(Phase::Publish, page, error),
        }
        outcome
    }
}
