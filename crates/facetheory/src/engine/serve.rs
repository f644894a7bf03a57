//! A visit: what one visitor is given, and what is set going because of it.

use std::future::Future;
use std::sync::Arc;

use tabletheory::Timestamp;
use tracing::Instrument as _;

use super::decision::{EntryView, ReusePolicy, ServeDecision};
use super::get_fresh::FreshPage;
use super::get_result::{BypassReason, GetResult, Served};
use super::lookup::Found;
use super::memory::{Entry, MetadataCheck, RequestStart};
use super::render::{Patience, RegenerateResult, Regeneration};
use super::rendering::{RenderFn, Rendering, boxed_with_private, boxed_without_private};
use super::{Engine, Isr};
use crate::engine::state::State;
use crate::error::{Error, Kind, Result};
use crate::pages::policy::{Contention, Policy};
use crate::pages::reason::RegenerateReason;
use crate::pages::render::{OriginUnreachable, Render, RenderContext, RenderError};
use crate::protocol::freshness::Freshness;
use crate::protocol::key::PageKey;

/// How often a visitor waits for a render whose result was invalidated before it could be published.
const ROUNDS: u32 = 3;

impl Isr {
    /// The page as this visitor gets it: from memory, from the table, or rendered, once for all who ask for it now.
    ///
    /// A stale page is served at once and renewed in the background, unless the policy says otherwise. The render goes
    /// on even if its visitor goes away. An error of kind [`Render`](Kind::Render) means that it failed and that there
    /// is nothing else that may be served.
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
            Rendering { outcome: render(context).await.map(Into::into), private: None::<()> }
        };
        self.get_with(page, policy, policy, render).await.0
    }

    /// Like [`get`](Isr::get), where `reuse` decides what a cached page can be used for. Also returns the private value
    /// of the render, if this request started it and waited for it.
    pub(crate) async fn get_with<P, F, R>(
        &self,
        page: &PageKey,
        policy: &Policy,
        reuse: &dyn ReusePolicy,
        render: F,
    ) -> (Result<GetResult>, Option<P>)
    where
        P: Send + 'static,
        F: FnOnce(RenderContext) -> R + Send + 'static,
        R: Future<Output = Rendering<P>> + Send + 'static,
    {
        let engine = &self.engine;
        let now = engine.now();
        let known = engine.memory.get(page);
        let believed =
            known.as_ref().filter(|entry| engine.memory.believes(page, entry, now, engine.settings.believed));
        if let Some(entry) = believed {
            match engine.usable(entry, reuse, now) {
                ServeDecision::Fresh => {
                    if engine.is_early(entry, policy, now) {
                        let reason = RegenerateReason::EarlyRefresh(entry.page.generation().generated_at);
                        engine.renew_in_background(
                            page,
                            policy,
                            reason,
                            entry,
                            boxed_without_private(render),
                        );
                    }
                    return (Ok(engine.serve(page, State::Hit, entry)), None);
                }
                ServeDecision::Stale { reason, while_revalidate: true, .. } => {
                    engine.renew_in_background(page, policy, reason, entry, boxed_without_private(render));
                    return (Ok(engine.serve(page, State::Stale, entry)), None);
                }
                ServeDecision::OtherVariant => {
                    return (Ok(GetResult::Bypass(BypassReason::OtherVariant)), None);
                }
                ServeDecision::Stale { .. } | ServeDecision::Unusable(_) => {}
            }
        }
        // Boxed, so that the future of a hit stays small.
        let span = tracing::debug_span!("visit", page = %page.redacted(), route = page.route());
        let (render, mut private) = boxed_with_private(render);
        let result = Box::pin(engine.visit(page, policy, reuse, known, render)).instrument(span).await;
        if let Ok(GetResult::Bypass(reason)) = &result
            && *reason != BypassReason::OtherVariant
        {
            engine.observer.served(page, State::Bypass);
        }
        (result, private.try_recv().ok())
    }

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
}

impl Engine {
    /// What memory has of a page, unless the table has to be asked whether that still holds.
    pub(super) fn believed(&self, page: &PageKey, now: Timestamp) -> Option<Arc<Entry>> {
        let entry = self.memory.get(page)?;
        self.memory.believes(page, &entry, now, self.settings.believed).then_some(entry)
    }

    /// A visitor for whom memory alone is not enough.
    async fn visit(
        self: &Arc<Self>,
        page: &PageKey,
        policy: &Policy,
        reuse: &dyn ReusePolicy,
        known: Option<Arc<Entry>>,
        render: RenderFn,
    ) -> Result<GetResult> {
        let mut render = Some(render);
        let arrival = RequestStart { at: self.now(), sequence: self.memory.sequence(page) };
        for _ in 0..ROUNDS {
            let seen = match self.look(page, arrival).await {
                Ok(seen) => seen,
                Err(_) => return Ok(self.without_store(page, reuse, known.as_ref())),
            };
            let now = self.now();
            let mut usable = match &seen.meta {
                None => ServeDecision::Unusable(RegenerateReason::Stale),
                Some(meta) => reuse.decide(&EntryView {
                    meta,
                    page: seen.body.page(),
                    freshness: seen.freshness_at(now),
                    invalidated: seen.checked.invalidated,
                    deployment: self.deployment(),
                    now,
                }),
            };
            let held = seen.checked.held_until > now.seconds();
            match (&seen.body, &seen.meta) {
                (Found::Here(entry), _) => {
                    let at_once = match &usable {
                        ServeDecision::Fresh => Some(State::Hit),
                        ServeDecision::Stale { while_revalidate: true, .. } => Some(State::Stale),
                        ServeDecision::Stale { .. }
                            if held && policy.contention == Contention::ServeStale =>
                        {
                            usable.in_need().then_some(State::Stale)
                        }
                        ServeDecision::OtherVariant => {
                            return Ok(GetResult::Bypass(BypassReason::OtherVariant));
                        }
                        ServeDecision::Stale { .. } | ServeDecision::Unusable(_) => None,
                    };
                    if let Some(state) = at_once {
                        if let (ServeDecision::Stale { reason, .. }, Some(render)) = (usable, render.take()) {
                            self.renew_in_background(page, policy, reason, entry, render);
                        }
                        return Ok(self.serve(page, state, entry));
                    }
                }
                (Found::Broken, Some(meta)) => {
                    usable = ServeDecision::Unusable(RegenerateReason::BodyMissing(
                        meta.generation.s3_key.clone(),
                    ));
                }
                (Found::Unreachable, Some(_)) => {
                    return Ok(self.without_store(page, reuse, known.as_ref()));
                }
                (Found::Nothing | Found::Broken | Found::Unreachable, _) => {}
            }
            if render.is_none() {
                let until = seen.checked.held_until;
                return Ok(self.wait_for_other(page, policy, reuse, usable.reason(), until).await);
            }
            if self.render_failures.is_declined(page, now) {
                return Ok(GetResult::Bypass(BypassReason::Declined));
            }
            let in_need = match &seen.body {
                Found::Here(entry) if usable.in_need() => Some(entry),
                _ => None,
            };
            if let Some(entry) = in_need
                && self.render_failures.is_on(page, now)
            {
                return Ok(self.serve(page, State::StaleError, entry));
            }
            // What cannot be kept is better rendered for each visitor alone than by one for whom the others wait.
            if !self.bodies_outage.lets_ask(now) {
                return Ok(match in_need {
                    Some(entry) => self.serve(page, State::StaleMetadataError, entry),
                    None => GetResult::Bypass(BypassReason::Unreachable),
                });
            }
            let if_unreachable = match &seen.body {
                Found::Here(entry) if usable.if_unreachable() => Some(entry),
                _ => None,
            };
            let (first, mut landing) = self.wait_for_render(page, policy, usable, &mut render).await;
            // What each visitor has to ask for is asked for by all at once: by those who waited, and by those who come now.
            if let RegenerateResult::Page { entry, ours } = &landing
                && !(first && *ours)
                && !reuse.is_shareable(&entry.page)
            {
                self.render_failures.declined(page, self.now());
                return Ok(GetResult::Bypass(BypassReason::Declined));
            }
            if let RegenerateResult::Page { entry, .. } = &landing
                && !first
                && !self.holds(page, entry, arrival).await
            {
                landing = RegenerateResult::Lost;
            }
            match landing {
                RegenerateResult::Page { entry, .. } if !reuse.matches(&entry.page) => {
                    return Ok(GetResult::Bypass(BypassReason::OtherVariant));
                }
                RegenerateResult::Page { entry, ours } => {
                    let state = if first && ours { State::Miss } else { State::WaitHit };
                    return Ok(self.serve(page, state, &entry));
                }
                RegenerateResult::Unpublished(unpublished) if first => {
                    self.observer.served(page, State::Bypass);
                    return Ok(GetResult::Page(Served { state: State::Bypass, page: unpublished }));
                }
                // What was rendered before an invalidation is for nobody who may have come after it.
                RegenerateResult::Unpublished(_) | RegenerateResult::Lost | RegenerateResult::Held => {}
                RegenerateResult::Declined => return Ok(GetResult::Bypass(BypassReason::Declined)),
                RegenerateResult::WaitedTooLong => {
                    return Ok(match in_need {
                        Some(entry) => self.serve(page, State::Stale, entry),
                        None => GetResult::Bypass(BypassReason::WaitedTooLong),
                    });
                }
                RegenerateResult::Failed(error) => {
                    return match in_need.or(if_unreachable.filter(|_| OriginUnreachable::is_behind(&*error)))
                    {
                        Some(entry) => Ok(self.serve(page, State::StaleError, entry)),
                        None => Err(Error::shared(error)),
                    };
                }
                RegenerateResult::Unreachable => {
                    return Ok(match in_need {
                        Some(entry) => self.serve(page, State::StaleMetadataError, entry),
                        None if seen.meta.is_none() => self.without_store(page, reuse, known.as_ref()),
                        None => GetResult::Bypass(BypassReason::Unreachable),
                    });
                }
            }
        }
        Ok(GetResult::Bypass(BypassReason::Contended))
    }

    /// Waits for a render that is under way, or starts one. True if it was started here.
    async fn wait_for_render(
        self: &Arc<Self>,
        page: &PageKey,
        policy: &Policy,
        usable: ServeDecision,
        render: &mut Option<RenderFn>,
    ) -> (bool, RegenerateResult) {
        let reason = usable.reason();
        let start = || {
            let renewal = Regeneration { page: page.clone(), policy: *policy, reason, waits: true };
            self.clone().renew(renewal, render.take())
        };
        let seat = self.renewals.join(page, start, |flight| self.spawn(flight));
        let first = seat.first;
        let crashed = || {
            let context = format!("the render of {} came to grief", page.redacted());
            RegenerateResult::Failed(Arc::new(Error::new(Kind::Render, context)))
        };
        // The render goes on all the same: it is the store that may take much longer than anybody waits.
        let patience = if first { policy.render_timeout.saturating_add(policy.wait) } else { policy.wait };
        match tokio::time::timeout(patience, seat.landed()).await {
            Ok(landing) => (first, landing.unwrap_or_else(crashed)),
            Err(_) => (first, RegenerateResult::WaitedTooLong),
        }
    }

    /// Waits for the process that took over, for a visitor whose own render was given up and cannot begin again.
    async fn wait_for_other(
        self: &Arc<Self>,
        page: &PageKey,
        policy: &Policy,
        reuse: &dyn ReusePolicy,
        reason: RegenerateReason,
        until: i64,
    ) -> GetResult {
        match self
            .wait(page, &reason, until, &mut Patience::new(tokio::time::Instant::now(), policy.wait))
            .await
        {
            Some(RegenerateResult::Page { entry, .. }) if reuse.matches(&entry.page) => {
                self.serve(page, State::WaitHit, &entry)
            }
            Some(_) => GetResult::Bypass(BypassReason::WaitedTooLong),
            None => GetResult::Bypass(BypassReason::Contended),
        }
    }

    /// Renews a stale page without anyone waiting for it, unless somebody does so already or it has just failed.
    fn renew_in_background(
        self: &Arc<Self>,
        page: &PageKey,
        policy: &Policy,
        reason: RegenerateReason,
        entry: &Entry,
        render: RenderFn,
    ) {
        let now = self.now();
        if entry.is_held(now) || self.render_failures.is_on(page, now) || self.renewals.has(page) {
            return;
        }
        if !self.bodies_outage.lets_ask(now) {
            return;
        }
        let Ok(place) = self.queue.clone().try_acquire_owned() else {
            if !self.queue.is_closed() {
                self.observer.dropped(page);
            }
            return;
        };
        let start = || {
            let engine = self.clone();
            let renewal = Regeneration { page: page.clone(), policy: *policy, reason, waits: false };
            async move {
                let _turn = engine.rendering.clone().acquire_owned().await;
                let landing = engine.renew(renewal, Some(render)).await;
                drop(place);
                landing
            }
        };
        drop(self.renewals.join(page, start, |flight| self.spawn(flight)));
    }

    /// What memory has, while the table or the bodies cannot be reached.
    fn without_store(
        &self,
        page: &PageKey,
        reuse: &dyn ReusePolicy,
        known: Option<&Arc<Entry>>,
    ) -> GetResult {
        match known.filter(|entry| self.usable_unseen(page, entry, reuse, self.now()).in_need()) {
            Some(entry) => self.serve(page, State::StaleMetadataError, entry),
            None => GetResult::Bypass(BypassReason::Unreachable),
        }
    }

    fn serve(&self, page: &PageKey, state: State, entry: &Entry) -> GetResult {
        GetResult::Page(self.served(page, state, entry))
    }

    pub(super) fn served(&self, page: &PageKey, state: State, entry: &Entry) -> Served {
        tracing::debug!(page = %page.redacted(), state = state.as_str(), "served");
        self.observer.served(page, state);
        Served { state, page: entry.page.clone() }
    }

    fn deployment(&self) -> Option<&str> {
        self.settings.deployment.as_deref()
    }

    pub(super) fn usable(&self, entry: &Entry, reuse: &dyn ReusePolicy, now: Timestamp) -> ServeDecision {
        let meta = entry.page.meta();
        let freshness = match meta.freshness(now) {
            Freshness::Fresh if entry.is_outdated() => Freshness::Stale,
            other => other,
        };
        let (page, invalidated) = (Some(&*entry.page), entry.checked().invalidated);
        reuse.decide(&EntryView { meta, page, freshness, invalidated, deployment: self.deployment(), now })
    }

    /// The same while the table cannot be asked: what this process knows to be invalidated is so.
    pub(super) fn usable_unseen(
        &self,
        page: &PageKey,
        entry: &Entry,
        reuse: &dyn ReusePolicy,
        now: Timestamp,
    ) -> ServeDecision {
        if entry.page.generation().follows_origin()
            && self.pages.store().is_known_outdated(page, entry.page.meta())
        {
            let invalidated = MetadataCheck { invalidated: true, ..entry.checked() };
            return self.usable(&entry.checked_again(invalidated), reuse, now);
        }
        self.usable(entry, reuse, now)
    }

    /// Whether a page that is still fresh is renewed now, so that it never goes stale: the likelier, the nearer its end
    /// is and the longer it takes to render. The dice are thrown once a visit.
    fn is_early(&self, entry: &Entry, policy: &Policy, now: Timestamp) -> bool {
        early_reach(entry, policy, now)
            .is_some_and(|(left, reach)| left < -reach * (1.0 - self.random.fraction()).ln())
    }

    /// Whether a page that is still fresh might be renewed by this visit, without throwing the dice.
    pub(super) fn may_be_early(&self, entry: &Entry, policy: &Policy, now: Timestamp) -> bool {
        early_reach(entry, policy, now).is_some()
    }

    /// Whether a page that was rendered for somebody else may be shown to a visitor as new: its render may have begun
    /// before an invalidation that the visitor came after.
    async fn holds(self: &Arc<Self>, page: &PageKey, entry: &Entry, arrival: RequestStart) -> bool {
        if arrival.believes(entry.checked(), self.settings.believed) {
            return true;
        }
        let Ok(seen) = self.look(page, arrival).await else { return false };
        let Some(meta) = seen.meta.as_ref().filter(|meta| meta.generation == *entry.page.generation()) else {
            return false;
        };
        match seen.freshness {
            Freshness::Fresh => true,
            Freshness::MustNotServe => false,
            // A render that takes longer than its result is fresh for is not done again for each who waited for it.
            Freshness::Stale => {
                let outdated = self.pages.store().is_outdated(page, meta);
                let outdated = tokio::time::timeout(self.settings.table_timeout, outdated).await;
                matches!(outdated, Ok(Ok(false)))
            }
        }
    }
}

/// How long a page is still fresh, and how far before its end it is renewed, both in milliseconds; none if it is not renewed
/// early.
fn early_reach(entry: &Entry, policy: &Policy, now: Timestamp) -> Option<(f64, f64)> {
    /// So unlikely is it to be renewed earlier than this many times the render takes.
    const NEVER: f64 = 20.0;
    let eagerness = policy.early_refresh?;
    if entry.page.meta().is_pinned(now) {
        return None;
    }
    let page = entry.page.generation();
    let end = page.generated_at.saturating_add(page.revalidate_seconds).saturating_mul(1000);
    #[expect(clippy::cast_precision_loss, reason = "a rough time is good enough for a chance")]
    let (left, render) = (end.saturating_sub(now.millis()) as f64, entry.render_millis() as f64);
    let reach = render * eagerness;
    (left < reach * NEVER).then_some((left, reach))
}
