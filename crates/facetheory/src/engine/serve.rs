//! Serves one request that memory alone cannot serve: looks the page up, and carries out the [next step](next_step).
//!
//! The methods of [`Request`] for pages that are not published are in [`fallback`](super::fallback).

use std::ops::ControlFlow;
use std::sync::Arc;
use std::time::Duration;

use tabletheory::Timestamp;

use super::body_lookup::BodyLookup;
use super::lookup::LookupResult;
use super::memory::{Entry, Metadata, MetadataCheck, Snapshot};
use super::next_step::{LastRender, Situation, Step, next_step};
use super::render::{RegenerateResult, Regeneration};
use super::render_fn::RenderFn;
use super::single_flight::Begin;
use super::wait::WaitLimit;
use super::{
    BypassReason, Engine, EntryView, FailedStore, GetResult, Offload, ReusePolicy, ServeDecision, Served,
    State,
};
use crate::protocol::Freshness;
use crate::{
    Contention, Error, InvalidationMode, Kind, OriginUnreachable, PageKey, Policy, RegenerateReason, Result,
};

/// At most this many rounds of lookup and render per request: its page may be invalidated during each of them.
const MAX_ROUNDS: u32 = 3;

/// A request that is being served.
pub(super) struct Request<'a> {
    pub(super) engine: &'a Arc<Engine>,
    pub(super) page: &'a PageKey,
    pub(super) policy: &'a Policy,
    pub(super) reuse: &'a dyn ReusePolicy,
    pub(super) offload: Option<Offload>,
    /// The page in memory when the request arrived.
    pub(super) known: Option<Arc<Entry>>,
    pub(super) start: Snapshot,
}

impl Request<'_> {
    pub(super) async fn serve(self, render: RenderFn) -> Result<GetResult> {
        let now = self.engine.now();
        let superseded = self.known.as_ref().filter(|known| self.engine.is_superseded(self.page, known, now));
        if let Some(served) = superseded.and_then(|older| self.serve_superseded(older)) {
            return Ok(served);
        }
        let mut render = Some(render);
        match self.serve_cached(&mut render).await? {
            GetResult::Bypass(reason) if reason.is_temporary() => self.fall_back(reason, &mut render).await,
            result => Ok(result),
        }
    }

    /// Serves the page from the cache, or renders and publishes it.
    async fn serve_cached(&self, render: &mut Option<RenderFn>) -> Result<GetResult> {
        for _ in 0..MAX_ROUNDS {
            let Ok(found) = self.engine.lookup(self.page, self.start).await else {
                return Ok(self.serve_offline(FailedStore::Table));
            };
            let found = match self.with_body(found).await {
                ControlFlow::Continue(found) => found,
                ControlFlow::Break(served) => return Ok(served),
            };
            let now = self.engine.now();
            let decision = found.decide(self.reuse, self.engine.deployment.as_deref(), now);
            return Ok(match next_step(decision, self.situation(&found, render.is_none(), now)) {
                Step::Serve { state, regenerate } => {
                    let Some(entry) = found.body.entry() else { continue };
                    if let (Some(reason), Some(render)) = (regenerate, render.take()) {
                        let (page, offload) = (self.page, self.offload.clone());
                        self.engine.regenerate_in_background(
                            page,
                            self.policy,
                            reason,
                            entry,
                            offload,
                            render,
                        );
                    }
                    self.page_result(state, entry)
                }
                Step::Bypass(reason) => GetResult::Bypass(reason),
                Step::WaitForOtherProcess(reason) => {
                    let (until, mut limit) = (found.check.leased_until, WaitLimit::new(self.policy.wait));
                    match self.engine.wait(self.page, &reason, until, &mut limit).await {
                        Some(RegenerateResult::Page { entry, .. }) if self.reuse.matches(&entry.page) => {
                            self.page_result(State::WaitHit, &entry)
                        }
                        Some(_) => GetResult::Bypass(BypassReason::WaitedTooLong),
                        None => GetResult::Bypass(BypassReason::Contended),
                    }
                }
                Step::Render(decision) => match self.render(&found, decision, render).await? {
                    Some(result) => result,
                    None => continue,
                },
            });
        }
        Ok(GetResult::Bypass(BypassReason::Contended))
    }

    /// Returns what the lookup found with its body, or breaks with an older copy of the page or a bypass.
    async fn with_body(&self, found: Arc<LookupResult>) -> ControlFlow<GetResult, Arc<LookupResult>> {
        let (engine, page) = (self.engine, self.page);
        let body = match (&found.body, &found.meta) {
            (BodyLookup::Pending, Some(meta)) => {
                if let Some(served) = engine.memory.get(page).and_then(|older| self.serve_superseded(&older))
                {
                    return ControlFlow::Break(served);
                }
                let metadata = Metadata::new(meta.clone(), found.check, Duration::ZERO);
                engine.await_body(page, &metadata.into()).await
            }
            _ => found.body.clone(),
        };
        if let Some(reason) = body.failure() {
            let older = engine.memory.get(page).and_then(|older| self.serve_superseded(&older));
            return ControlFlow::Break(older.unwrap_or(GetResult::Bypass(reason)));
        }
        ControlFlow::Continue(Arc::new(LookupResult { body, ..(*found).clone() }))
    }

    /// Serves the older copy in memory while the body of the newer version, which the table names, cannot be read; only
    /// if the reuse policy allows the older copy.
    fn serve_superseded(&self, older: &Arc<Entry>) -> Option<GetResult> {
        let decision = self.engine.decide_offline(self.page, older, self.reuse, self.engine.now());
        let is_servable = decision.is_servable_if_error();
        is_servable.then(|| self.page_or_unreachable(Some(older), FailedStore::Bodies))
    }

    fn situation(&self, found: &LookupResult, has_rendered: bool, now: Timestamp) -> Situation {
        let (failures, is_leased) = (&self.engine.render_failures, found.check.leased_until > now.seconds());
        let last_render = match self.page {
            page if failures.is_declined(page, now) => LastRender::Declined,
            page if failures.is_backing_off(page, now) => LastRender::Failed,
            _ => LastRender::Succeeded,
        };
        let avoids_wait = is_leased && self.policy.contention == Contention::ServeStale;
        Situation { avoids_wait, has_rendered, last_render }
    }

    /// Renders the page, or waits for the render of another request. `None` if the page has to be looked up again.
    async fn render(
        &self,
        found: &LookupResult,
        decision: ServeDecision,
        render: &mut Option<RenderFn>,
    ) -> Result<Option<GetResult>> {
        let (engine, page) = (self.engine, self.page);
        let fallback_entry = found.body.entry().filter(|_| decision.is_servable_if_error());
        let servable_if_unreachable = matches!(decision, ServeDecision::Stale { if_unreachable: true, .. });
        let store_unreachable = |store| self.page_or_unreachable(fallback_entry, store);
        // While no page can be published, renders under a lease are useless.
        if let Some(store) = engine.write_breakers.blocked(engine.now()) {
            return Ok(Some(store_unreachable(store)));
        }
        let (started, result) = self.join_render(decision.reason(), found.check.leased_until, render).await;
        Ok(Some(match result {
            RegenerateResult::Page { entry, rendered_here } => {
                let is_own = started && rendered_here;
                if !is_own && !self.reuse.is_shareable(&entry.page) {
                    // Hit-for-pass: for a few seconds each request that no cached page can serve goes to the origin by
                    // itself, instead of waiting for a render that it could not share.
                    engine.render_failures.record_declined(page, engine.now());
                    return Ok(Some(GetResult::Bypass(BypassReason::Declined)));
                }
                if !started && !self.is_valid(&entry).await {
                    return Ok(None);
                }
                if !self.reuse.matches(&entry.page) {
                    return Ok(Some(GetResult::Bypass(BypassReason::OtherVariant)));
                }
                self.page_result(if is_own { State::Miss } else { State::WaitHit }, &entry)
            }
            RegenerateResult::Unpublished { entry, failed }
                if started || (failed.is_some() && self.may_share(&entry)) =>
            {
                self.unpublished(&entry, failed.map(BypassReason::Unreachable), !started)
            }
            // The render may have started before an invalidation that this request must observe.
            RegenerateResult::Unpublished { .. } | RegenerateResult::Lost | RegenerateResult::Held => {
                return Ok(None);
            }
            RegenerateResult::Declined => GetResult::Bypass(BypassReason::Declined),
            RegenerateResult::MemoryFull => {
                self.page_or_bypass(fallback_entry, State::Stale, BypassReason::MemoryFull)
            }
            RegenerateResult::TimedOut => {
                self.page_or_bypass(fallback_entry, State::Stale, BypassReason::WaitedTooLong)
            }
            RegenerateResult::Failed(error) => {
                let is_unreachable = servable_if_unreachable && OriginUnreachable::is_cause_of(&*error);
                match fallback_entry.or(found.body.entry().filter(|_| is_unreachable)) {
                    Some(entry) => self.page_result(State::StaleError, entry),
                    None => return Err(Error::shared(error)),
                }
            }
            RegenerateResult::Unreachable(store) if fallback_entry.is_none() && found.meta.is_none() => {
                self.serve_offline(store)
            }
            RegenerateResult::Unreachable(store) => store_unreachable(store),
        }))
    }

    /// Joins the render of another request, or starts one, and waits for its result. Returns whether it was started here.
    async fn join_render(
        &self,
        reason: RegenerateReason,
        leased_until: i64,
        render: &mut Option<RenderFn>,
    ) -> (bool, RegenerateResult) {
        let (engine, page) = (self.engine, self.page);
        let policy = *self.policy;
        let regeneration = Regeneration { page: page.clone(), policy, reason, waits: true, leased_until };
        let start = |early| engine.clone().regenerate(regeneration, render.take(), early);
        let mut flight = engine.regenerations.join(engine, page, Begin::AsTask, start);
        let started = flight.started;
        // `render_timeout` bounds the render. This limit bounds what is outside of it: slow stores, and leases of other
        // processes.
        let with_render = self.policy.render_timeout.saturating_add(self.policy.wait);
        let limit = if started { with_render } else { self.policy.wait };
        // A render that began before an invalidation that this request must observe is not accepted before its publish.
        let accepts = |early: &RegenerateResult| match early {
            RegenerateResult::Page { entry, .. } => {
                started || self.start.accepts(entry.check, engine.metadata_max_age)
            }
            _ => false,
        };
        let mut result = tokio::time::timeout(limit, flight.result_or_early(accepts)).await;
        // This process is rendering now (it may have taken over the lease of a dead process). A fallback could only
        // share this render without publishing it, or repeat it, so wait for the render until its own timeout.
        if result.is_err() && !started && engine.fetches.is_running(page) {
            result = tokio::time::timeout(with_render, flight.result_or_early(accepts)).await;
        }
        let result = match result {
            Ok(Some(result)) => result,
            Ok(None) => {
                let context = format!("the render of {} failed: the task panicked", page.redacted());
                RegenerateResult::Failed(Arc::new(Error::new(Kind::Render, context)))
            }
            Err(_) => RegenerateResult::TimedOut,
        };
        (started, result)
    }

    /// Serves the page in memory while this store is unreachable.
    fn serve_offline(&self, store: FailedStore) -> GetResult {
        let (engine, page) = (self.engine, self.page);
        let is_servable = |entry: &&Arc<Entry>| {
            let decision = engine.decide_offline(page, entry, self.reuse, engine.now());
            decision.is_servable_if_error() && !engine.memory.must_not_serve(page, entry)
        };
        self.page_or_unreachable(self.known.as_ref().filter(is_servable), store)
    }

    /// Whether a page that was rendered for another request may be served to this one as new: the render may have started
    /// before an invalidation that this request must observe.
    async fn is_valid(&self, entry: &Entry) -> bool {
        let (engine, page) = (self.engine, self.page);
        if self.start.accepts(entry.check, engine.metadata_max_age) {
            return true;
        }
        let Ok(found) = engine.lookup(page, self.start).await else { return false };
        let Some(meta) = found.meta.as_ref().filter(|meta| meta.generation == *entry.page.generation())
        else {
            return false;
        };
        match found.freshness {
            Freshness::Fresh => true,
            Freshness::MustNotServe => false,
            // If a render takes longer than the page stays fresh, it is not repeated for each request that waited for
            // it. The page is valid unless one of its tags was invalidated.
            Freshness::Stale => {
                let outdated = engine.pages.store().is_outdated(page, meta);
                matches!(engine.within_table_timeout(outdated).await, Ok(false))
            }
        }
    }

    fn page_or_bypass(&self, entry: Option<&Arc<Entry>>, state: State, reason: BypassReason) -> GetResult {
        entry.map_or(GetResult::Bypass(reason), |entry| self.page_result(state, entry))
    }

    /// The result while this store is unreachable.
    fn page_or_unreachable(&self, entry: Option<&Arc<Entry>>, store: FailedStore) -> GetResult {
        let reason = BypassReason::Unreachable(store);
        let Some(entry) = entry else { return GetResult::Bypass(reason) };
        let served = self.engine.served(self.page, State::StaleMetadataError, entry);
        GetResult::Page(Served { reason: Some(reason), ..served })
    }

    fn page_result(&self, state: State, entry: &Entry) -> GetResult {
        GetResult::Page(self.engine.served(self.page, state, entry))
    }
}

impl Engine {
    /// Regenerates a page without a request that waits for it, unless it is being regenerated or has just failed. With
    /// `offload`, another process does it, unless the request to do so cannot be sent.
    pub(super) fn regenerate_in_background(
        self: &Arc<Self>,
        page: &PageKey,
        policy: &Policy,
        reason: RegenerateReason,
        entry: &Entry,
        offload: Option<Offload>,
        render: RenderFn,
    ) {
        let now = self.now();
        if entry.is_leased(now)
            || self.render_failures.is_backing_off(page, now)
            || self.regenerations.is_running(page)
            || self.write_breakers.blocked(now).is_some()
        {
            return;
        }
        let Ok(queued) = self.background_queue.clone().try_acquire_owned() else {
            if !self.background_queue.is_closed() {
                self.metrics.route(page).dropped.increment(1);
            }
            return;
        };
        let engine = self.clone();
        let generated_at = entry.page.generation().generated_at;
        let regeneration =
            Regeneration { page: page.clone(), policy: *policy, reason, waits: false, leased_until: 0 };
        let work = |early| async move {
            let _permit = engine.background_renders.clone().acquire_owned().await;
            if let Some(offload) = offload
                && offload(generated_at).await
            {
                // Another process regenerates the page, as if it held the lease. No request waits for this result.
                return RegenerateResult::Held;
            }
            let result = engine.regenerate(regeneration, Some(render), early).await;
            drop(queued);
            result
        };
        drop(self.regenerations.join(self, page, Begin::AsTask, work));
    }

    pub(super) fn served(&self, page: &PageKey, state: State, entry: &Entry) -> Served {
        tracing::debug!(page = %page.redacted(), state = state.as_str(), "served");
        self.metrics.served(page, state);
        Served { state, page: entry.page.clone(), reason: None, is_collapsed: false }
    }

    /// Whether an entry is an older copy: the table, which was read a moment ago, names a newer version, whose body
    /// could not be read.
    fn is_superseded(&self, page: &PageKey, entry: &Entry, now: Timestamp) -> bool {
        entry.check.superseded && self.memory.is_current(page, entry, now, self.metadata_max_age)
    }

    /// Decides how a page in memory may be used.
    pub(super) fn decide(&self, entry: &Entry, reuse: &dyn ReusePolicy, now: Timestamp) -> ServeDecision {
        let freshness = match entry.page.meta().freshness(now) {
            Freshness::Fresh if entry.check.stale => Freshness::Stale,
            other => other,
        };
        self.decide_as(entry, freshness, entry.check.invalidated, reuse, now)
    }

    fn decide_as(
        &self,
        entry: &Entry,
        freshness: Freshness,
        invalidated: bool,
        reuse: &dyn ReusePolicy,
        now: Timestamp,
    ) -> ServeDecision {
        let (meta, page) = (entry.page.meta(), Some(&*entry.page));
        let deployment = self.deployment.as_deref();
        reuse.decide(&EntryView { meta, page, freshness, invalidated, deployment, now })
    }

    /// Decides how a page in memory may be used while the table is unreachable. Invalidations of tags that this process
    /// knows of apply: hard ones to every page, and soft ones to pages that follow the origin's headers.
    ///
    /// A page of a rule may still be served stale after a soft invalidation, so none is applied to it. A hard one of the page
    /// has removed it from memory; `serve_offline`, whose page was taken from memory earlier, also calls
    /// `Memory::must_not_serve`.
    pub(super) fn decide_offline(
        &self,
        page: &PageKey,
        entry: &Entry,
        reuse: &dyn ReusePolicy,
        now: Timestamp,
    ) -> ServeDecision {
        match self.pages.store().known_invalidation(page, entry.page.meta()) {
            Some(InvalidationMode::Hard) => self.decide_as(entry, Freshness::MustNotServe, true, reuse, now),
            Some(InvalidationMode::Soft) if entry.page.follows_origin() => {
                let check = MetadataCheck { invalidated: true, ..entry.check };
                self.decide(&entry.checked_again(check), reuse, now)
            }
            Some(InvalidationMode::Soft) | None => self.decide(entry, reuse, now),
        }
    }
}
