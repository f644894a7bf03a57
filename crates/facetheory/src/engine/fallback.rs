//! Fetches a page past the stores when they cannot help: once for all requests of this process that need it.
//!
//! A store is unreachable, or the process that holds the lease does not publish in time. Then the renderer is called
//! without a lease, and nothing is published. Without single flight, every request that waited would call the origin at
//! the moment when it is least protected. A page that was fetched is shared for as long as metadata is used without reading
//! the table, but for a second at most. So the origin gets about one request per page and second.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::Semaphore;

use super::memory::{Entry, MetadataCheck, Snapshot};
use super::metrics::MemoryUse;
use super::render::RenderOutcome;
use super::render_fn::RenderFn;
use super::serve::Request;
use super::{BypassReason, CachedPage, Engine, GetResult, Served, State};
use crate::protocol::{Generation, Meta, ttl::seconds};
use crate::{Body, Error, Kind, PageKey, Policy, Render, RenderContext, RenderError, Rendered, Result};

/// The fetches that one request waits for. The first may have started before an invalidation that the request must see;
/// the second starts after the request arrived. A response with another `Vary` costs one more.
const MAX_FETCHES: u32 = 3;

/// How long a page that is not published is shared with requests that arrive later, at most: nobody invalidates it.
const MAX_SHARED_AGE: Duration = Duration::from_secs(1);

/// The most bytes of fetched pages that are held to be shared with requests that arrive a moment later.
pub(super) const MAX_RETAINED_BYTES: usize = 16 * 1024 * 1024;

/// A fetch of the page that is running in this process, for all requests that wait for it.
#[derive(Clone, Debug)]
pub(super) enum Fetched {
    /// A page that is not published.
    Page(Arc<Entry>),
    /// The response is not cacheable.
    Declined,
    /// The page does not fit into the memory budget now.
    MemoryFull,
    /// The render failed.
    Failed(Arc<Error>),
}

impl Request<'_> {
    /// Calls the renderer without a lease, or shares the call of another request, and publishes nothing.
    ///
    /// A response that is not cacheable is for its own client alone: the others get a bypass.
    pub(super) async fn fall_back(
        &self,
        reason: BypassReason,
        render: &mut Option<RenderFn>,
    ) -> Result<GetResult> {
        let engine = self.engine;
        let mut page = self.page.clone();
        for _ in 0..MAX_FETCHES {
            let is_declined = engine.render_failures.is_declined(&page, engine.now());
            if is_declined {
                break;
            }
            let policy = *self.policy;
            // A request that has used its render function can only share the render of another one.
            let start =
                render.is_some().then_some(|| engine.clone().fetch(page.clone(), policy, render.take()));
            let is_recent = |fetched: &Fetched| match fetched {
                Fetched::Page(entry) => self.may_share(entry),
                Fetched::Declined | Fetched::MemoryFull | Fetched::Failed(_) => false,
            };
            let (max_age, retained) = (engine.shared_max_age(), engine.retained_bytes.clone());
            let retain = move |fetched: &Fetched| retain(fetched, &retained, max_age);
            let Some(mut flight) = engine.fetches.join_recent(engine, &page, is_recent, retain, start) else {
                break;
            };
            let started = flight.started;
            let entry = match flight.result().await {
                Some(Fetched::Page(entry)) => entry,
                Some(Fetched::Declined) => return Ok(GetResult::Bypass(BypassReason::Declined)),
                Some(Fetched::MemoryFull) => return Ok(GetResult::Bypass(BypassReason::MemoryFull)),
                Some(Fetched::Failed(error)) => return Err(Error::shared(error)),
                // The regeneration whose render this was had no page.
                None => continue,
            };
            if started || self.may_share(&entry) {
                return Ok(self.unpublished(&entry, Some(reason), !started));
            }
            if !self.reuse.is_shareable(&entry.page) {
                break;
            }
            if !self.reuse.matches(&entry.page) {
                // Requests that select the same variant share a fetch of their own.
                match self.reuse.variant(&page, &entry.page) {
                    Some(variant) if variant.cache_key() != page.cache_key() => page = variant,
                    _ => break,
                }
            }
        }
        Ok(GetResult::Bypass(reason))
    }

    /// Whether an unpublished page that was rendered for another request may be served to this one: it must be for this
    /// request too, and its render must not have started before an invalidation that this request has to see.
    pub(super) fn may_share(&self, entry: &Entry) -> bool {
        self.reuse.is_shareable(&entry.page)
            && self.reuse.matches(&entry.page)
            && self.start.accepts(entry.check, self.engine.shared_max_age())
    }

    /// The result for a page that is not published.
    pub(super) fn unpublished(
        &self,
        entry: &Entry,
        reason: Option<BypassReason>,
        is_collapsed: bool,
    ) -> GetResult {
        self.engine.metrics.served(self.page, State::Bypass);
        GetResult::Page(Served { state: State::Bypass, page: entry.page.clone(), reason, is_collapsed })
    }
}

impl Engine {
    /// How long an unpublished page may be shared with requests that arrive after it was rendered.
    fn shared_max_age(&self) -> Duration {
        self.metadata_max_age.min(MAX_SHARED_AGE)
    }

    /// Calls the renderer without a lease.
    async fn fetch(self: Arc<Self>, page: PageKey, policy: Policy, render: Option<RenderFn>) -> Fetched {
        let before = self.memory.snapshot(&page, self.now());
        let context =
            RenderContext { page: page.clone(), served: None, started: before.at.wall, leased: false };
        match self.render(render, context, &policy).await {
            Ok(RenderOutcome { publish: Render::Page(rendered), .. }) => {
                match unpublished_page(*rendered, &policy, before) {
                    Some(entry) => Fetched::Page(entry),
                    None => Fetched::Declined,
                }
            }
            Ok(RenderOutcome { rendered: Some(Render::MemoryFull), .. }) => {
                self.metrics.memory_full(MemoryUse::Render);
                Fetched::MemoryFull
            }
            Ok(RenderOutcome { rendered, .. }) => {
                // A response that was for its client alone, such as a part of the page, says nothing about the others.
                if rendered.is_none() {
                    self.render_failures.record_declined(&page, self.now());
                }
                Fetched::Declined
            }
            Err(cause) => {
                let context = format!("the render of {} failed", page.redacted());
                let error = Error::new(Kind::Render, context).caused_by(cause);
                self.record_render_error(&page, &policy, &error);
                Fetched::Failed(Arc::new(error))
            }
        }
    }

    /// Calls the renderer under a lease. Requests that give up waiting for the stores share its page.
    pub(super) async fn render_announced(
        &self,
        render: Option<RenderFn>,
        context: RenderContext,
        policy: &Policy,
        before: Snapshot,
    ) -> Result<RenderOutcome, RenderError> {
        let announced = self.fetches.announce(&context.page);
        let outcome = self.render(render, context, policy).await;
        if let (Some(announced), Ok(RenderOutcome { publish: Render::Page(rendered), .. })) =
            (announced, &outcome)
            && announced.is_awaited()
            && let Some(entry) = unpublished_page((**rendered).clone(), policy, before)
        {
            announced.finish(Fetched::Page(entry));
        }
        outcome
    }
}

/// Returns a future that is ready when a page is too old to be shared with further requests, or at once if too many bytes are
/// held for that.
fn retain(fetched: &Fetched, bytes: &Arc<Semaphore>, max_age: Duration) -> impl Future<Output = ()> + use<> {
    let permit = match fetched {
        Fetched::Page(entry) => u32::try_from(entry.page.bytes().len())
            .ok()
            .and_then(|length| bytes.clone().try_acquire_many_owned(length).ok()),
        Fetched::Declined | Fetched::MemoryFull | Fetched::Failed(_) => None,
    };
    async move {
        if let Some(_held) = permit {
            tokio::time::sleep(max_age).await;
        }
    }
}

/// The entry of a page that is not published, and therefore not in memory. `None` without a body.
pub(super) fn unpublished_page(rendered: Rendered, policy: &Policy, before: Snapshot) -> Option<Arc<Entry>> {
    let Rendered { bytes: Some(bytes), content, etag, revalidate, .. } = rendered else { return None };
    let interval = seconds(revalidate.unwrap_or(policy.revalidate));
    let meta =
        Meta::of(Generation { etag, content, ..Generation::new("", before.at.wall.seconds(), interval) });
    let page = CachedPage::new(meta, Body { bytes, ..Body::default() });
    Some(Arc::new(Entry::new(page.into(), MetadataCheck::before_render(before), Duration::ZERO)))
}
