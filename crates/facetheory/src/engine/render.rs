//! Calls a render function within its timeout, publishes its result, and derives the result for waiting requests.

use std::any::Any;
use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::time::Duration;

use futures_util::FutureExt as _;
use tracing::Instrument as _;

use super::body_lookup::BodyLookup;
use super::fallback::unpublished_page;
use super::memory::{Entry, Metadata, MetadataCheck};
use super::metrics::MemoryUse;
use super::publish_behind::RenderSlot;
use super::render_fn::RenderFn;
use super::single_flight::Early;
use super::wait::WaitLimit;
use super::{CachedPage, Engine, FailedStore, Phase};
use crate::pages::Regenerated;
use crate::protocol::Meta;
use crate::{
    Body, Error, History, IdempotentRequest, Kind, Outcome, PageKey, Policy, RegenerateReason, Render,
    RenderContext, RenderError, Rendered, Result, Retention,
};

/// How long the renderer has to refuse a page before a cached one is dropped: an origin that is misconfigured for a second
/// or two would otherwise invalidate every page that is requested in that time.
const MIN_REFUSAL: Duration = Duration::from_secs(10);

/// A page to be regenerated.
#[derive(Clone, Debug)]
pub(super) struct Regeneration {
    pub(super) page: PageKey,
    pub(super) policy: Policy,
    pub(super) reason: RegenerateReason,
    /// Whether a request waits for the page, also if another process renders it.
    pub(super) waits: bool,
    /// When the lease of another process ends, in epoch seconds, according to the lookup before; zero if there is none.
    pub(super) leased_until: i64,
}

/// The result of a regeneration, for all requests that wait for it.
#[derive(Clone, Debug)]
pub(super) enum RegenerateResult {
    /// The page that is served to everyone now.
    Page {
        entry: Arc<Entry>,
        /// Whether this process rendered it.
        rendered_here: bool,
    },
    /// A page that could not be published.
    Unpublished {
        entry: Arc<Entry>,
        /// The store that failed; `None` if the lease was lost, and only the request that started the render may get the page.
        failed: Option<FailedStore>,
    },
    /// The lease was lost, and the render cancelled.
    Lost,
    /// The response is not cacheable.
    Declined,
    /// The page does not fit into the memory budget now.
    MemoryFull,
    /// Another process holds the lease, and no request waits for it.
    Held,
    TimedOut,
    /// The render failed.
    Failed(Arc<Error>),
    /// A store is unreachable.
    Unreachable(FailedStore),
}

/// An attempt to regenerate a page: its outcome, and what the engine has to know besides.
pub(super) struct Attempt {
    pub(super) outcome: Result<Outcome>,
    /// `META`, if the page was published.
    pub(super) meta: Option<Meta>,
    /// The result of the render function. If the outcome is `Declined`, this is `Uncacheable`, or a 404 or 410 in place of
    /// a page that has to be confirmed, or was not recorded.
    pub(super) rendered: Option<Render>,
    pub(super) check: MetadataCheck,
    pub(super) took: Duration,
}

/// The decision about a render: the part that is published, and the part that only the engine needs.
pub(super) struct RenderOutcome {
    /// For the regeneration.
    pub(super) publish: Render,
    /// For the engine: see [`Attempt::rendered`].
    pub(super) rendered: Option<Render>,
}

impl Engine {
    /// Renders a page and publishes it, or waits until another process has. If the publish takes long, requests get the page
    /// `early`.
    pub(super) async fn regenerate(
        self: Arc<Self>,
        regeneration: Regeneration,
        render: Option<RenderFn>,
        early: Early<RegenerateResult>,
    ) -> RegenerateResult {
        let result = self.regenerate_or_wait(&regeneration, render, &early).await;
        self.recent_lookups.forget(&regeneration.page);
        result
    }

    async fn regenerate_or_wait(
        self: &Arc<Self>,
        regeneration: &Regeneration,
        mut render: Option<RenderFn>,
        early: &Early<RegenerateResult>,
    ) -> RegenerateResult {
        let Regeneration { page, policy, reason, waits, leased_until } = regeneration;
        let mut limit = WaitLimit::new(policy.wait);
        // A lease that was just read as held is not requested: a refused put costs as much as a granted one.
        let mut known = Some(*leased_until).filter(|until| self.is_held(*until));
        loop {
            let until = match known.take() {
                Some(until) => until,
                None => {
                    let (attempt, behind) = self.attempt_for_requests(regeneration, &mut render, early).await;
                    let Ok(Outcome::Held { until }) = attempt.outcome else {
                        let result = self.conclude(page, policy, attempt).await;
                        drop(behind);
                        return result;
                    };
                    until
                }
            };
            self.metrics.route(page).contention.increment(1);
            if let Some(entry) = self.memory.get(page) {
                entry.set_leased_until(until);
            }
            if !waits {
                return RegenerateResult::Held;
            }
            if let Some(result) = self.wait(page, reason, until, &mut limit).await {
                return result;
            }
        }
    }

    /// Acquires the lease, renders and publishes, once. `slot` is for the result of the render.
    pub(super) async fn attempt(
        self: &Arc<Self>,
        regeneration: &Regeneration,
        request: Option<&IdempotentRequest>,
        render: &mut Option<RenderFn>,
        slot: &RenderSlot,
    ) -> Attempt {
        let Regeneration { page, policy, reason, .. } = regeneration;
        let before = slot.before;
        let render = move |context| async move {
            let outcome = self.render_announced(render.take(), context, policy, before).await?;
            Ok::<_, RenderError>(slot.fill(outcome))
        };
        let span = tracing::debug_span!("regenerate", page = %page.redacted(), reason = reason.as_str());
        let outcome = match request {
            None => self.pages.try_regenerate(page, policy, reason, render).instrument(span).await,
            Some(request) => {
                self.pages.try_regenerate_once(page, policy, request, render).instrument(span).await
            }
        };
        let (outcome, meta) = match outcome {
            Ok(Regenerated { outcome, meta }) => (Ok(outcome), meta),
            Err(error) => (Err(error), None),
        };
        // The page may have been published or invalidated without an announcement to other processes.
        if self.pages.store().has_pending() {
            self.write_pending_in_background();
        }
        self.delete_replaced_in_background();
        let millis = self.now().millis() - before.at.wall.millis();
        let took = Duration::from_millis(u64::try_from(millis).unwrap_or(0));
        let (redacted, reason, outcome_name) = (page.redacted(), reason.as_str(), name(&outcome));
        self.metrics.regenerated(page, outcome_name, took);
        tracing::debug!(page = %redacted, reason, outcome = outcome_name, ?took, "regeneration ended");
        let rendered = slot.take();
        Attempt { outcome, meta, rendered, check: MetadataCheck::before_render(before), took }
    }

    /// Calls the render function within its timeout.
    pub(super) async fn render(
        &self,
        render: Option<RenderFn>,
        context: RenderContext,
        policy: &Policy,
    ) -> Result<RenderOutcome, RenderError> {
        let render = render.ok_or("the request has already rendered the page")?;
        let (page, served) = (context.page.clone(), context.served.clone());
        // A panic that was not caught would drop the lease without releasing it, and others would wait until it expires.
        let rendering = AssertUnwindSafe(async move { render(context).await }).catch_unwind();
        let rendering = rendering.instrument(tracing::debug_span!("render", page = %page.redacted()));
        let (timeout, abandon) = (policy.render_timeout, self.abandon_token());
        let rendered = tokio::select! {
            biased;
            rendered = tokio::time::timeout(timeout, rendering) => {
                let rendered = rendered.map_err(|_| format!("the render took longer than {timeout:?}"))?;
                rendered.map_err(|panic| format!("the render panicked: {}", panic_message(&*panic)))??
            }
            () = abandon.cancelled() => return Err("the render was cancelled: the process stops its work".into()),
        };
        let is_confirmed = |served: &Meta, min_age| {
            let generated_at = served.generation.generated_at;
            self.render_failures.confirms_gone(&page, generated_at, min_age, self.now())
        };
        let declined = |rendered| Ok(RenderOutcome { publish: Render::Declined, rendered });
        let mut rendered = match rendered {
            Render::Page(rendered) => self.counted(rendered),
            Render::Invalidate => {
                let servable = served.as_ref().filter(|served| !served.must_not_serve);
                let confirmed = servable.is_some_and(|served| is_confirmed(served, MIN_REFUSAL));
                let publish = if confirmed { Render::Invalidate } else { Render::Declined };
                return Ok(RenderOutcome { publish, rendered: None });
            }
            unpublished @ (Render::Uncacheable | Render::MemoryFull) => return declined(Some(unpublished)),
            Render::Declined => return declined(None),
        };
        // If the origin controls caching, it also controls how a 404 is cached.
        if is_gone(rendered.content.status) && rendered.content.initial_age.is_none() {
            let present = served.filter(|served| !is_gone(served.generation.content.status));
            if present.is_some_and(|served| !is_confirmed(&served, Duration::ZERO)) {
                return declined(Some(Render::Page(rendered)));
            }
            rendered.revalidate.get_or_insert(policy.negative_ttl);
        }
        rendered.identify();
        // Also for an unchanged page of an earlier deployment, which would otherwise be regenerated at every request.
        if let Some(ours) = &self.deployment {
            rendered.content.deployment = Some(ours.clone());
        }
        Ok(RenderOutcome { publish: Render::Page(rendered.clone()), rendered: Some(Render::Page(rendered)) })
    }

    /// Counts the bytes of a page that a renderer has made by itself in the memory budget.
    fn counted(&self, mut rendered: Box<Rendered>) -> Box<Rendered> {
        if !rendered.is_counted {
            rendered.bytes = rendered.bytes.map(|bytes| self.memory.budget.count_body(bytes));
            rendered.is_counted = true;
        }
        rendered
    }

    /// Stores the page of an attempt in memory, or records its failure.
    pub(super) async fn conclude(
        self: &Arc<Self>,
        page: &PageKey,
        policy: &Policy,
        attempt: Attempt,
    ) -> RegenerateResult {
        let Attempt { outcome, meta: published, rendered, check, took } = attempt;
        let is_uncacheable = rendered == Some(Render::Uncacheable);
        let is_memory_full = rendered == Some(Render::MemoryFull);
        let rendered = if let Some(Render::Page(rendered)) = rendered { Some(*rendered) } else { None };
        let now = self.now();
        match outcome {
            Ok(Outcome::Published(generation)) => {
                self.write_breakers.record_published(true);
                self.last_writes.record(FailedStore::Bodies, None);
                self.last_writes.record(FailedStore::Table, None);
                self.delete_old_versions(page, policy);
                let meta = published.unwrap_or_else(|| Meta::of(generation));
                self.published(page, meta, rendered, check, took).await
            }
            Ok(Outcome::Unchanged(meta)) => {
                self.write_breakers.record_published(false);
                self.last_writes.record(FailedStore::Table, None);
                let times = published.unwrap_or_default();
                let (ttl, used_at, expired_at) = (times.ttl, times.used_at, times.expired_at);
                let meta = Meta { ttl, used_at, expired_at, ..meta };
                self.published(page, meta, rendered, check, took).await
            }
            Ok(Outcome::AlreadyFresh(meta)) => self.stored(page, meta, check, false).await,
            Ok(Outcome::Declined) if is_uncacheable => RegenerateResult::Declined,
            Ok(Outcome::Declined) if is_memory_full => {
                self.metrics.memory_full(MemoryUse::Render);
                // A stale page is not requested again at every visit just to drop the response.
                self.render_failures.record_failure(page, policy.backoff, now, &*self.random);
                RegenerateResult::MemoryFull
            }
            Ok(declined @ (Outcome::Declined | Outcome::Invalidated)) => {
                if declined == Outcome::Invalidated {
                    self.memory.invalidate_hard(page);
                }
                // A 404 or 410 that has to be confirmed is not uncacheable.
                if rendered.is_none() {
                    self.render_failures.record_declined(page, now);
                }
                self.render_failures.record_failure(page, policy.backoff, now, &*self.random);
                RegenerateResult::Declined
            }
            Ok(Outcome::Held { .. }) => RegenerateResult::Held,
            Ok(Outcome::Lost | Outcome::Superseded) => {
                let entry = rendered.and_then(|rendered| unpublished_page(rendered, policy, check.before));
                entry.map_or(RegenerateResult::Lost, |entry| RegenerateResult::Unpublished {
                    entry,
                    failed: None,
                })
            }
            Ok(other) => {
                let context = format!("unexpected outcome of a regeneration without a request: {other:?}");
                RegenerateResult::Failed(Arc::new(Error::new(Kind::Render, context)))
            }
            Err(error) if error.kind() == Kind::Render => {
                self.record_render_error(page, policy, &error);
                RegenerateResult::Failed(Arc::new(error))
            }
            Err(error) => {
                self.metrics.incident(Phase::Publish, page, &error);
                let failed = failed_store(&error);
                // While no page can be published, rendering more of them is useless. An error of this page alone says
                // nothing about the others; without a backoff, each of its requests would try again.
                let is_of_page = match error.kind() {
                    Kind::Invalid => true,
                    Kind::Corrupt => rendered.is_none(),
                    _ => false,
                };
                if is_of_page {
                    self.render_failures.record_failure(page, policy.backoff, now, &*self.random);
                } else {
                    self.write_breakers.record_failure(failed, now, &*self.random);
                    self.last_writes.record(failed, Some(&error));
                }
                let entry = rendered.and_then(|rendered| unpublished_page(rendered, policy, check.before));
                entry.map_or(RegenerateResult::Unreachable(failed), |entry| RegenerateResult::Unpublished {
                    entry,
                    failed: Some(failed),
                })
            }
        }
    }

    pub(super) fn record_render_error(&self, page: &PageKey, policy: &Policy, error: &Error) {
        self.render_failures.record_failure(page, policy.backoff, self.now(), &*self.random);
        self.metrics.incident(Phase::Render, page, error);
    }

    /// Deletes the versions that the policy does not retain, in the background. If that fails, the next publication or
    /// garbage collection deletes them.
    fn delete_old_versions(self: &Arc<Self>, page: &PageKey, policy: &Policy) {
        let (History::Versions, Some(versions)) = (policy.history, policy.versions) else { return };
        let (engine, page) = (self.clone(), page.clone());
        self.spawn(Box::pin(async move {
            let retention = Retention { versions, oldest: None };
            match engine.pages.store().gc_versions(&page, retention).await {
                Ok(bodies) => {
                    bodies.iter().for_each(|s3_key| engine.pages.queue_replaced(&page, s3_key, None));
                    engine.delete_replaced_in_background();
                }
                Err(error) => {
                    tabletheory::warn_limited!(%error, page = %page.redacted(), "old versions were not deleted");
                }
            }
        }));
    }

    async fn stored(
        self: &Arc<Self>,
        page: &PageKey,
        meta: Meta,
        check: MetadataCheck,
        rendered_here: bool,
    ) -> RegenerateResult {
        let metadata = Metadata::new(meta.into(), check, Duration::ZERO).into();
        let body = match self.read_body(page, &metadata).await {
            BodyLookup::Pending => self.await_body(page, &metadata).await,
            body => body,
        };
        match body {
            BodyLookup::Found(entry) => RegenerateResult::Page { entry, rendered_here },
            BodyLookup::Unreachable => RegenerateResult::Unreachable(FailedStore::Bodies),
            BodyLookup::MemoryFull => RegenerateResult::MemoryFull,
            // The next lookup regenerates it.
            BodyLookup::Missing | BodyLookup::None | BodyLookup::Pending => RegenerateResult::Lost,
        }
    }

    /// Stores a published page in memory, with the body that was rendered or that memory has.
    async fn published(
        self: &Arc<Self>,
        page: &PageKey,
        meta: Meta,
        rendered: Option<Rendered>,
        check: MetadataCheck,
        took: Duration,
    ) -> RegenerateResult {
        self.render_failures.record_success(page);
        // A body in memory may have compressed forms already.
        let known =
            self.memory.get(page).filter(|entry| entry.page.generation().s3_key == meta.generation.s3_key);
        let cached = match (known, rendered.and_then(|rendered| rendered.bytes)) {
            (Some(entry), _) => CachedPage::with_body(meta, entry.page.body.clone()),
            (None, Some(bytes)) => CachedPage::new(meta, Body { bytes, ..Body::default() }),
            (None, None) => return self.stored(page, meta, check, true).await,
        };
        let entry = self.insert(page, Entry::new(cached.into(), check, took));
        RegenerateResult::Page { entry, rendered_here: true }
    }
}

fn panic_message(panic: &(dyn Any + Send)) -> &str {
    let text = panic.downcast_ref::<String>().map(String::as_str);
    text.or_else(|| panic.downcast_ref::<&str>().copied()).unwrap_or("no message")
}

/// 404 and 410.
fn is_gone(status: Option<u16>) -> bool {
    matches!(status, Some(404 | 410))
}

/// The store that an error comes from.
fn failed_store(error: &Error) -> FailedStore {
    if error.is_of_bodies() { FailedStore::Bodies } else { FailedStore::Table }
}

/// The outcome of a regeneration in metrics.
fn name(outcome: &Result<Outcome>) -> &'static str {
    match outcome {
        Ok(Outcome::Published(_)) => "published",
        Ok(Outcome::Unchanged(_)) => "unchanged",
        Ok(Outcome::AlreadyFresh(_)) => "already-fresh",
        Ok(Outcome::Held { .. }) => "held",
        Ok(Outcome::Declined) => "declined",
        Ok(Outcome::Invalidated) => "invalidated",
        Ok(Outcome::Lost) => "lost",
        Ok(Outcome::Superseded) => "superseded",
        Ok(Outcome::InProgress { .. } | Outcome::Replayed { .. } | Outcome::OtherRequest) => "request",
        Err(error) if error.kind() == Kind::Render => "failed",
        Err(_) => "unreachable",
    }
}
