//! Requests for a page: served from memory here, or by [`serve`](super::serve). A page that is fresh in memory is served
//! without I/O and without a future.

use std::future::Future;
use std::pin::pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

use tabletheory::Timestamp;
use tracing::Instrument as _;

use super::memory::Entry;
use super::render_fn::boxed_with_receiver;
use super::serve::Request;
use super::{
    BypassReason, CachedPage, GetResult, Isr, Offload, RenderResult, ReusePolicy, ServeDecision, Served,
    State, boxed, early_refresh,
};
use crate::{PageKey, Policy, RegenerateReason, Render, RenderContext, RenderError, Result};

/// A page in memory that is served without I/O.
pub(crate) enum FreshPage {
    /// The page is fresh and matches the request.
    Page(Served),
    /// The `Vary` of this page does not match this request, but names the headers that identify the right variant.
    OtherVariant(Arc<CachedPage>),
}

impl Isr {
    /// Returns the page if it is in memory and fresh. Never touches the table and never starts a regeneration, so it needs
    /// no `await`. `None` means "call [`get`](Isr::get)", not "no such page".
    ///
    /// ```
    /// # use facetheory::{GetResult, Bodies, Isr, PageKey, Pages, PageStore, Policy, Rendered, State};
    /// # use std::{sync::Arc, time::Duration};
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> facetheory::Result<()> {
    /// # let pages = Pages::new(PageStore::new(Arc::new(tabletheory::MemoryTable::new())), Bodies::memory());
    /// let isr = Isr::new(pages);
    /// let (page, policy) = (PageKey::new("/")?, Policy::every(Duration::from_secs(60)));
    /// assert!(isr.get_fresh(&page, &policy).is_none());
    /// let GetResult::Page(_) = isr.get(&page, &policy, |_| async { Ok(Rendered::html("hello")) }).await? else { panic!() };
    /// assert_eq!(isr.get_fresh(&page, &policy).unwrap().state, State::Hit);
    /// # Ok(()) }
    /// ```
    #[must_use]
    pub fn get_fresh(&self, page: &PageKey, policy: &Policy) -> Option<Served> {
        match self.get_fresh_with(page, policy, policy, self.engine.now())? {
            FreshPage::Page(served) => Some(served),
            FreshPage::OtherVariant(_) => None,
        }
    }

    /// Like [`get_fresh`](Isr::get_fresh) at the time `now`, where `reuse` decides how a cached page may be used. A
    /// returned page counts as served.
    pub(crate) fn get_fresh_with(
        &self,
        page: &PageKey,
        policy: &Policy,
        reuse: &dyn ReusePolicy,
        now: Timestamp,
    ) -> Option<FreshPage> {
        let engine = &self.engine;
        let entry = engine.memory.get(page).filter(|entry| engine.is_current(page, entry, now))?;
        let decision = engine.decide(&entry, reuse, now);
        if matches!(decision, ServeDecision::Fresh | ServeDecision::OtherVariant) {
            engine.note_use(page, &entry, now);
        }
        match decision {
            ServeDecision::Fresh if early_refresh::window(&entry, policy, now).is_none() => {
                Some(FreshPage::Page(engine.served(page, State::Hit, &entry)))
            }
            ServeDecision::OtherVariant => Some(FreshPage::OtherVariant(entry.page.clone())),
            ServeDecision::Fresh | ServeDecision::Stale { .. } | ServeDecision::Unusable(_) => None,
        }
    }

    /// Reads a page into memory, unless it is there and its metadata is recent. Returns `true` only if the read
    /// finished in one poll and found the page: the embedded stores respond without waiting. With other stores the read
    /// continues as a task, which [`get_with`](Isr::get_with) joins.
    pub(crate) fn read_ahead(&self, page: &PageKey, policy: &Policy) -> bool {
        let engine = &self.engine;
        let now = engine.now();
        let known = engine.memory.get(page);
        let is_current = |entry: &Arc<Entry>| engine.is_current(page, entry, now);
        // With `metadata_max_age = 0`, every request reads for itself, so nothing would use a page that was read ahead.
        if engine.metadata_max_age.is_zero() || known.as_ref().is_some_and(is_current) {
            return false;
        }
        let read = pin!(async {
            if known.is_none() && engine.read_evicted(page).await.is_some() {
                return true;
            }
            let page = page.for_reading().with_interval(policy.revalidate);
            let start = engine.memory.snapshot(&page, now);
            engine.lookup(&page, start).await.is_ok_and(|found| found.body.entry().is_some())
        });
        matches!(read.poll(&mut Context::from_waker(Waker::noop())), Poll::Ready(true))
    }

    /// Returns a page from memory, from the table, or rendered. Concurrent requests for the page share one render.
    ///
    /// A stale page is returned at once and regenerated in the background, unless the policy says otherwise. A render
    /// continues even if the request that started it is cancelled. An error of kind [`Render`](crate::Kind::Render) means
    /// that the render failed and that no cached page may be served.
    ///
    /// ```
    /// # use facetheory::{GetResult, Bodies, Isr, Kind, PageKey, Pages, PageStore, Policy, Rendered};
    /// # use std::{sync::Arc, time::Duration};
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> facetheory::Result<()> {
    /// # let pages = Pages::new(PageStore::new(Arc::new(tabletheory::MemoryTable::new())), Bodies::memory());
    /// let isr = Isr::new(pages);
    /// let policy = Policy::every(Duration::from_secs(60));
    /// let render = |_| async { Err::<Rendered, _>("the origin is down".into()) };
    /// let failed = isr.get(&PageKey::new("/")?, &policy, render).await;
    /// assert_eq!(failed.unwrap_err().kind(), Kind::Render);
    /// # Ok(()) }
    /// ```
    pub async fn get<T, F, R>(&self, page: &PageKey, policy: &Policy, render: F) -> Result<GetResult>
    where
        T: Into<Render> + Send + 'static,
        F: FnOnce(RenderContext) -> R + Send + 'static,
        R: Future<Output = Result<T, RenderError>> + Send + 'static,
    {
        let render = |context| async move {
            RenderResult { outcome: render(context).await.map(Into::into), for_initiator: None::<()> }
        };
        self.get_with(page, policy, policy, None, render).await.0
    }

    /// Like [`get`](Isr::get), where `reuse` decides how a cached page may be used, and `offload` may hand the
    /// regeneration of a page that is served stale to another process. Also returns the value of the render for its
    /// initiator, if this request started the render and waited for it.
    pub(crate) async fn get_with<P, F, R>(
        &self,
        page: &PageKey,
        policy: &Policy,
        reuse: &dyn ReusePolicy,
        offload: Option<Offload>,
        render: F,
    ) -> (Result<GetResult>, Option<P>)
    where
        P: Send + 'static,
        F: FnOnce(RenderContext) -> R + Send + 'static,
        R: Future<Output = RenderResult<P>> + Send + 'static,
    {
        let engine = &self.engine;
        let known = engine.read_known(page).await;
        let now = engine.now();
        if let Some(entry) = known.as_ref().filter(|entry| engine.is_current(page, entry, now)) {
            let serve = match engine.decide(entry, reuse, now) {
                ServeDecision::Fresh => {
                    engine.note_use(page, entry, now);
                    let early = early_refresh::draw(entry, policy, now, &*engine.random);
                    let reason = RegenerateReason::EarlyRefresh(entry.page.generation().generated_at);
                    Some((State::Hit, early.then_some(reason)))
                }
                ServeDecision::Stale { reason, while_revalidate: true, .. } => {
                    Some((State::Stale, Some(reason)))
                }
                ServeDecision::OtherVariant => {
                    return (Ok(GetResult::Bypass(BypassReason::OtherVariant)), None);
                }
                ServeDecision::Stale { .. } | ServeDecision::Unusable(_) => None,
            };
            if let Some((state, regenerate)) = serve {
                if let Some(reason) = regenerate {
                    let render = boxed(|context| async { render(context).await.outcome });
                    engine.regenerate_in_background(page, policy, reason, entry, offload, render);
                }
                return (Ok(GetResult::Page(engine.served(page, state, entry))), None);
            }
        }
        let page = &page.for_reading().with_interval(policy.revalidate);
        // Boxed, so that the future of a hit stays small.
        let span = tracing::debug_span!("get", page = %page.redacted(), route = page.route());
        let (render, mut for_initiator) = boxed_with_receiver(render);
        let start = engine.memory.snapshot(page, now);
        let request = Request { engine, page, policy, reuse, offload, known, start };
        let result = Box::pin(request.serve(render)).instrument(span).await;
        if let Ok(GetResult::Bypass(reason)) = &result
            && *reason != BypassReason::OtherVariant
        {
            engine.metrics.served(page, State::Bypass);
        }
        (result, for_initiator.try_recv().ok())
    }

    /// Makes requests wait for each other's render of a page again, because a response to it was cacheable.
    pub(crate) fn forget_declined(&self, page: &PageKey) {
        self.engine.render_failures.forget_declined(page);
    }
}
