//! A renewal: one render for everyone in this process, or the wait for that of another process.

use std::any::Any;
use std::future::Future;
use std::panic::AssertUnwindSafe;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use futures_util::FutureExt as _;
use tokio::time::Instant;
use tracing::Instrument as _;

use super::Engine;
use super::cached_page::CachedPage;
use super::lookup::Found;
use super::memory::{Entry, MetadataCheck};
use super::metrics::Phase;
use super::rendering::RenderFn;
use crate::bodies::Body;
use crate::error::{Error, Kind, Result};
use crate::pages::Outcome;
use crate::pages::policy::Policy;
use crate::pages::reason::RegenerateReason;
use crate::pages::render::{Render, RenderContext, RenderError, Rendered};
use crate::protocol::freshness::Freshness;
use crate::protocol::key::PageKey;
use crate::protocol::publish::History;
use crate::protocol::retention::Retention;
use crate::protocol::row::Meta;

/// The first pause between two looks at a page that another process renders; the next ones are longer.
const FIRST_PAUSE: Duration = Duration::from_millis(20);
const LONGEST_PAUSE: Duration = Duration::from_secs(1);
const GROWTH: f64 = 1.5;
/// For so long at least a renderer has to take a page back before that is believed: a wrong turn of the origin may last for a
/// second or two, and would take away every page that is visited meanwhile.
const WITHDRAWN_FOR: Duration = Duration::from_secs(10);

/// What is to be renewed.
#[derive(Clone, Debug)]
pub(super) struct Regeneration {
    pub(super) page: PageKey,
    pub(super) policy: Policy,
    pub(super) reason: RegenerateReason,
    /// Whether somebody waits for it, also if another process does it.
    pub(super) waits: bool,
}

/// What came of a renewal, for all who wait for it.
#[derive(Clone, Debug)]
pub(super) enum RegenerateResult {
    /// A page that everyone is served now.
    Page {
        entry: Arc<Entry>,
        /// Whether it was rendered here.
        ours: bool,
    },
    /// A page that could not be published: it is for the visitor alone for whom it was rendered.
    Unpublished(Arc<CachedPage>),
    /// The lease was lost, and the render given up.
    Lost,
    /// The answer is not to be kept.
    Declined,
    /// Somebody else renders it, and nobody waited.
    Held,
    WaitedTooLong,
    /// The render failed.
    Failed(Arc<Error>),
    /// A store could not be reached.
    Unreachable,
}

/// What a render left behind, besides its answer to the protocol.
#[derive(Debug, Default)]
pub(super) struct Kept {
    rendered: Option<Rendered>,
    /// It said for the first time that a page is gone.
    vanished: bool,
    /// It is an answer to what one visitor asked for, and says nothing of the page.
    personal: bool,
}

impl Engine {
    /// Renders a page and publishes it, or waits until somebody else has.
    pub(super) async fn renew(
        self: Arc<Self>,
        renewal: Regeneration,
        mut render: Option<RenderFn>,
    ) -> RegenerateResult {
        let Regeneration { page, policy, reason, waits } = &renewal;
        let kept = Arc::new(Mutex::new(Kept::default()));
        let mut patience = Patience::new(Instant::now(), policy.wait);
        loop {
            let sequence = self.memory.sequence(page);
            let began = self.now();
            let outcome = self
                .pages
                .regenerate_for(page, policy, reason, |context| {
                    self.render(render.take(), context, policy, kept.clone())
                })
                .instrument(
                    tracing::debug_span!("renewal", page = %page.redacted(), reason = reason.as_str()),
                )
                .await;
            let took = u64::try_from(self.now().millis() - began.millis()).unwrap_or(0);
            self.observer.regenerated(page, name(&outcome), took);
            let until = match outcome {
                Ok(Outcome::Held { until }) => until,
                outcome => {
                    // Of its tags no more is known than what was read before the render.
                    let checked = MetadataCheck {
                        at: began,
                        sequence,
                        outdated: false,
                        invalidated: false,
                        held_until: 0,
                    };
                    return self.land(&renewal, outcome, &kept, checked, took).await;
                }
            };
            self.observer.contended(page);
            if let Some(entry) = self.memory.get(page) {
                entry.hold_until(until);
            }
            if !waits {
                return RegenerateResult::Held;
            }
            if let Some(landing) = self.wait(page, reason, until, &mut patience).await {
                return landing;
            }
        }
    }

    /// Renders within its deadline, and keeps what came of it for the visitor who waits.
    pub(super) fn render(
        self: &Arc<Self>,
        render: Option<RenderFn>,
        context: RenderContext,
        policy: &Policy,
        kept: Arc<Mutex<Kept>>,
    ) -> impl Future<Output = Result<Render, RenderError>> + Send + use<> {
        let (engine, deadline, negative) = (self.clone(), policy.render_timeout, policy.negative_ttl);
        async move {
            let render = render.ok_or("it was rendered already")?;
            let (page, served) = (context.page.clone(), context.served.clone());
            // A panic that went further would take the lease with it, and keep everyone waiting until that ends.
            let rendering = AssertUnwindSafe(async move { render(context).await }).catch_unwind();
            let rendering = rendering.instrument(tracing::debug_span!("render", page = %page.redacted()));
            let rendered = tokio::select! {
                biased;
                rendered = tokio::time::timeout(deadline, rendering) => {
                    let rendered = rendered.map_err(|_| format!("it took longer than {deadline:?}"))?;
                    rendered.map_err(|panic| format!("it panicked: {}", message(&*panic)))??
                }
                () = engine.abandon.cancelled() => return Err("the process is shutting down".into()),
            };
            let mut kept = kept.lock().unwrap_or_else(PoisonError::into_inner);
            kept.personal = rendered == Render::Uncacheable;
            let at_first_sight = |was: &Meta, least| {
                let generated_at = was.generation.generated_at;
                engine.render_failures.vanished_at_first_sight(&page, generated_at, least, engine.now())
            };
            let mut rendered = match rendered {
                Render::Page(rendered) => rendered,
                Render::Invalidate
                    if served
                        .as_ref()
                        .is_some_and(|was| !was.must_not_serve && !at_first_sight(was, WITHDRAWN_FOR)) =>
                {
                    return Ok(Render::Invalidate);
                }
                Render::Declined | Render::Uncacheable | Render::Invalidate => return Ok(Render::Declined),
            };
            // Where the origin says how its answers are kept, that one is gone is such an answer.
            if is_gone(rendered.content.status) && rendered.content.initial_age.is_none() {
                let was_there = served.filter(|meta| !is_gone(meta.generation.content.status));
                if was_there.is_some_and(|was| at_first_sight(&was, Duration::ZERO)) {
                    kept.vanished = true;
                    return Ok(Render::Declined);
                }
                rendered.revalidate.get_or_insert(negative);
            }
            // Also what an earlier one has rendered, if it is still right: it would be asked for at every visit.
            if let Some(ours) = &engine.settings.deployment {
                rendered.content.deployment = Some(ours.clone());
            }
            kept.rendered = Some((*rendered).clone());
            Ok(Render::Page(rendered))
        }
    }

    /// What the outcome of a regeneration means for those who wait for it.
    pub(super) async fn land(
        self: &Arc<Self>,
        renewal: &Regeneration,
        outcome: Result<Outcome>,
        kept: &Mutex<Kept>,
        checked: MetadataCheck,
        took: u64,
    ) -> RegenerateResult {
        let Regeneration { page, policy, .. } = renewal;
        let (rendered, vanished, personal) = {
            let mut kept = kept.lock().unwrap_or_else(PoisonError::into_inner);
            (kept.rendered.take(), kept.vanished, kept.personal)
        };
        let now = self.now();
        match outcome {
            Ok(Outcome::Published(generation)) => {
                self.drop_old_versions(page, policy);
                self.published(page, Meta::of(generation), rendered, checked, took).await
            }
            Ok(Outcome::Unchanged(meta)) => self.published(page, meta, rendered, checked, took).await,
            Ok(Outcome::AlreadyFresh(meta)) => self.found(page, &meta, checked, false).await,
            Ok(Outcome::Declined) if personal => RegenerateResult::Declined,
            Ok(declined @ (Outcome::Declined | Outcome::Invalidated)) => {
                if declined == Outcome::Invalidated {
                    // Also while the table cannot be reached, what must not be served is not.
                    self.memory.forbid(page);
                }
                if !vanished {
                    self.render_failures.declined(page, now);
                }
                self.render_failures.failed(page, policy.backoff, now, &*self.random);
                RegenerateResult::Declined
            }
            Ok(Outcome::Held { .. }) => RegenerateResult::Held,
            Ok(Outcome::Lost | Outcome::Superseded) => match rendered.and_then(unpublished) {
                Some(rendered) => RegenerateResult::Unpublished(Arc::new(rendered)),
                None => RegenerateResult::Lost,
            },
            Ok(other) => {
                let context = format!("a renewal without a request ended as one with one: {other:?}");
                RegenerateResult::Failed(Arc::new(Error::new(Kind::Render, context)))
            }
            Err(error) if error.kind() == Kind::Render => {
                self.render_failures.failed(page, policy.backoff, now, &*self.random);
                self.observer.incident(Phase::Render, page, &error);
                RegenerateResult::Failed(Arc::new(error))
            }
            Err(error) => {
                self.observer.incident(Phase::Publish, page, &error);
                // While nothing can be published there is no use in rendering page after page.
                if rendered.is_some() && error.kind() != Kind::Invalid {
                    self.bodies_outage.failed(now, &*self.random);
                }
                match rendered.and_then(unpublished) {
                    Some(rendered) => RegenerateResult::Unpublished(Arc::new(rendered)),
                    None => RegenerateResult::Unreachable,
                }
            }
        }
    }

    /// Leaves as many versions as the policy says, behind the visitor's back. What is left because that fails goes with the
    /// next publication, or with a collection.
    fn drop_old_versions(self: &Arc<Self>, page: &PageKey, policy: &Policy) {
        let (History::Versions, Some(versions)) = (policy.history, policy.versions) else { return };
        let (engine, page) = (self.clone(), page.clone());
        self.spawn(Box::pin(async move {
            let retention = Retention::newest(versions);
            if let Err(error) = engine.pages.store().gc_versions(&page, retention).await {
                tracing::warn!(%error, page = %page.redacted(), "old versions stay for now");
            }
        }));
    }

    async fn found(
        self: &Arc<Self>,
        page: &PageKey,
        meta: &Meta,
        checked: MetadataCheck,
        ours: bool,
    ) -> RegenerateResult {
        match self.find(page, meta, checked).await {
            Found::Here(entry) => RegenerateResult::Page { entry, ours },
            Found::Unreachable => RegenerateResult::Unreachable,
            // It will be found broken again, and healed.
            Found::Broken | Found::Nothing => RegenerateResult::Lost,
        }
    }

    /// Keeps what was rendered, which is at hand even if it came out the same and the store has lost it meanwhile.
    async fn published(
        self: &Arc<Self>,
        page: &PageKey,
        meta: Meta,
        rendered: Option<Rendered>,
        checked: MetadataCheck,
        took: u64,
    ) -> RegenerateResult {
        self.bodies_outage.ended();
        self.render_failures.succeeded(page);
        // A body that memory has already has its compressed forms, too.
        let known =
            self.memory.get(page).filter(|entry| entry.page.generation().s3_key == meta.generation.s3_key);
        let cached = match (known, rendered.and_then(|rendered| rendered.bytes)) {
            (Some(entry), _) => CachedPage::with_body(meta, entry.page.body().clone()),
            (None, Some(bytes)) => CachedPage::new(meta, Body { bytes, ..Body::default() }),
            (None, None) => return self.found(page, &meta, checked, true).await,
        };
        RegenerateResult::Page { entry: self.keep(page, Entry::new(cached, checked, took)), ours: true }
    }

    /// Looks at a page now and then until another process has rendered it; none if its lease is free before that.
    pub(super) async fn wait(
        self: &Arc<Self>,
        page: &PageKey,
        reason: &RegenerateReason,
        mut until: i64,
        patience: &mut Patience,
    ) -> Option<RegenerateResult> {
        let skew = i64::try_from(self.pages.store().terms().skew.as_secs()).unwrap_or(i64::MAX);
        loop {
            // Nobody is given the lease before it has ended by the clock of whoever holds it, too.
            let free = until.saturating_add(skew).saturating_mul(1000).saturating_sub(self.now().millis());
            let free = Duration::from_millis(u64::try_from(free).unwrap_or(0).max(1));
            let Some(pause) = patience.next(free, self.random.fraction(), Instant::now()) else {
                return Some(RegenerateResult::WaitedTooLong);
            };
            tokio::time::sleep(pause).await;
            // A table that cannot be reached for a moment is no reason to stop waiting.
            let asked = tokio::time::timeout_at(patience.end, self.ask(page)).await;
            let Ok(Ok(seen)) = asked else { continue };
            if let (Found::Here(entry), Some(meta)) = (&seen.body, &seen.meta)
                && seen.freshness == Freshness::Fresh
                && !reason.still_applies(meta, self.now())
            {
                return Some(RegenerateResult::Page { entry: entry.clone(), ours: false });
            }
            until = seen.checked.held_until;
            if until.saturating_add(skew) <= self.now().seconds() {
                return None;
            }
        }
    }
}

/// How long somebody still waits.
pub(super) struct Patience {
    end: Instant,
    pause: Duration,
}

impl Patience {
    pub(super) fn new(now: Instant, wait: Duration) -> Self {
        // Nobody waits for a year, which is still a time.
        const LONGEST_WAIT: Duration = Duration::from_secs(365 * 86_400);
        Patience { end: now + wait.min(LONGEST_WAIT), pause: FIRST_PAUSE }
    }

    /// The next pause: longer than the last, but not past the end of a lease; none once patience is at its end.
    fn next(&mut self, lease: Duration, chance: f64, now: Instant) -> Option<Duration> {
        let left = self.end.saturating_duration_since(now);
        if left.is_zero() {
            return None;
        }
        // Processes that wait for the same page should not look at the same moments.
        let pause = self.pause.mul_f64(0.75 + chance / 2.0).min(lease).min(left);
        self.pause = self.pause.mul_f64(GROWTH).min(LONGEST_PAUSE);
        Some(pause)
    }
}

/// What a panic said.
fn message(panic: &(dyn Any + Send)) -> &str {
    let text = panic.downcast_ref::<String>().map(String::as_str);
    text.or_else(|| panic.downcast_ref::<&str>().copied()).unwrap_or("it did not say why")
}

/// 404 and 410.
fn is_gone(status: Option<u16>) -> bool {
    matches!(status, Some(404 | 410))
}

/// What was rendered, for the visitor alone for whom it was.
fn unpublished(rendered: Rendered) -> Option<CachedPage> {
    let mut page = crate::protocol::generation::Generation::new("", 0, 0);
    page.etag = rendered.etag;
    page.content = rendered.content;
    let body = Body { bytes: rendered.bytes?, ..Body::default() };
    Some(CachedPage::new(Meta::of(page), body))
}

/// How a regeneration ended, in a word.
pub(super) fn name(outcome: &Result<Outcome>) -> &'static str {
    match outcome {
        Ok(Outcome::Published(_)) => "published",
        Ok(Outcome::Unchanged(_)) => "unchanged",
        Ok(Outcome::AlreadyFresh(_)) => "already-fresh",
        Ok(Outcome::Held { .. }) => "held",
        Ok(Outcome::Declined) => "declined",
        Ok(Outcome::Invalidated) => "withdrawn",
        Ok(Outcome::Lost) => "lost",
        Ok(Outcome::Superseded) => "superseded",
        Ok(Outcome::InProgress { .. } | Outcome::Replayed { .. } | Outcome::OtherRequest) => "request",
        Err(error) if error.kind() == Kind::Render => "failed",
        Err(_) => "unreachable",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_grow_but_never_past_a_lease_or_the_end_of_patience() {
        let mut now = Instant::now();
        let mut patience = Patience::new(now, Duration::from_secs(5));
        let lease = Duration::from_secs(30);
        let mut pauses = Vec::new();
        while let Some(pause) = patience.next(lease, 0.5, now) {
            pauses.push(pause);
            now += pause;
        }
        assert_eq!(pauses.iter().sum::<Duration>(), Duration::from_secs(5));
        assert!(pauses.len() < 20, "{pauses:?}");
        assert!(pauses.iter().all(|pause| *pause <= LONGEST_PAUSE));
        let mut patience = Patience::new(now, Duration::from_secs(5));
        assert_eq!(patience.next(Duration::from_millis(7), 0.9, now), Some(Duration::from_millis(7)));
    }
}
