//! Serves a page once it is rendered, although its publish takes longer than a moment: a slow store does not delay responses.
//!
//! Until that moment responses wait for the publish, because after it every process and every operation finds the page. Most
//! stores publish sooner. After it the page is served to the requests that wait for it and, if the site had no such page, from
//! memory. The metadata of such a page was read before its render, so it is used as long as any other metadata. The task of the
//! render goes on to publish: shutdown waits for it, and the bytes of the page count in the memory budget. The lease is held
//! until the publish, so no other process renders the page meanwhile.
//!
//! If the page is not published, memory forgets it. An invalidation deletes the lease, and so the publish of a page that was
//! rendered before is refused.

use std::future::pending;
use std::pin::pin;
use std::sync::Arc;

use metrics::counter;
use parking_lot::Mutex;
use tokio::sync::{Notify, SemaphorePermit};

use super::Engine;
use super::fallback::unpublished_page;
use super::memory::{Entry, Snapshot};
use super::render::{Attempt, RegenerateResult, Regeneration, RenderOutcome};
use super::render_fn::RenderFn;
use super::single_flight::Early;
use crate::{PageKey, Render, Rendered};

/// The most pages that are published behind their responses at the same time. While there are so many, responses wait for the
/// publish: clients must not have pages rendered faster than the stores accept them.
pub(super) const MAX_PUBLISHES: usize = 256;

/// The result of a render, for the engine, while the page is being published.
pub(super) struct RenderSlot {
    /// Before the render.
    pub(super) before: Snapshot,
    rendered: Mutex<Option<Render>>,
    /// Notified once there is a page to be published.
    is_page: Notify,
}

impl RenderSlot {
    pub(super) fn new(before: Snapshot) -> Self {
        RenderSlot { before, rendered: Mutex::default(), is_page: Notify::new() }
    }

    /// Stores the result of the render, and returns what is to be published.
    pub(super) fn fill(&self, outcome: RenderOutcome) -> Render {
        *self.rendered.lock() = outcome.rendered;
        // A page that was requested before its render may be older than what clients have seen.
        if matches!(&outcome.publish, Render::Page(page) if page.as_of.is_none()) {
            self.is_page.notify_one();
        }
        outcome.publish
    }

    pub(super) fn take(&self) -> Option<Render> {
        self.rendered.lock().take()
    }

    /// A copy of the page that is being published.
    fn page(&self) -> Option<Rendered> {
        if let Some(Render::Page(page)) = &*self.rendered.lock() { Some((**page).clone()) } else { None }
    }
}

/// A page that is being published behind its responses. Dropped when the publish has ended.
pub(super) struct PublishBehind<'e> {
    _permit: SemaphorePermit<'e>,
    _in_memory: Option<Unpublished>,
}

/// A page in memory that is not published. When this is dropped, memory forgets it, unless the published page has replaced it.
struct Unpublished {
    engine: Arc<Engine>,
    page: PageKey,
    entry: Arc<Entry>,
}

impl Drop for Unpublished {
    fn drop(&mut self) {
        self.engine.memory.remove_page(&self.page, &self.entry.page);
    }
}

impl Engine {
    /// Makes an attempt to regenerate a page. If the publish takes longer than responses wait for it, the requests get the
    /// page before; the second value then has to live until the attempt is concluded.
    pub(super) async fn attempt_for_requests(
        self: &Arc<Self>,
        regeneration: &Regeneration,
        render: &mut Option<RenderFn>,
        early: &Early<RegenerateResult>,
    ) -> (Attempt, Option<PublishBehind<'_>>) {
        let slot = RenderSlot::new(self.memory.snapshot(&regeneration.page, self.now()));
        let mut attempt = pin!(self.attempt(regeneration, None, render, &slot));
        let behind = tokio::select! {
            biased;
            attempt = &mut attempt => return (attempt, None),
            behind = self.serve_before_publish(regeneration, &slot, early) => behind,
        };
        (attempt.await, Some(behind))
    }

    /// Serves the rendered page to the requests that wait for it, once its publish takes too long.
    async fn serve_before_publish(
        self: &Arc<Self>,
        regeneration: &Regeneration,
        slot: &RenderSlot,
        early: &Early<RegenerateResult>,
    ) -> PublishBehind<'_> {
        let Regeneration { page, policy, .. } = regeneration;
        slot.is_page.notified().await;
        tokio::time::sleep(self.publish_wait).await;
        let Ok(permit) = self.publishes.acquire().await else { return pending().await };
        let rendered = slot.page().and_then(|rendered| unpublished_page(rendered, policy, slot.before));
        // Without a body, the page in memory is the current one.
        let Some(entry) = rendered else { return pending().await };
        counter!("facetheory_published_behind_total").increment(1);
        let in_memory = self.insert_unpublished(page, &entry);
        early.send(RegenerateResult::Page { entry, rendered_here: true });
        PublishBehind { _permit: permit, _in_memory: in_memory }
    }

    /// Stores a page in memory that is not published yet, unless memory has an older one, which is served stale if that is
    /// allowed, and for as long as the table cannot be read.
    fn insert_unpublished(self: &Arc<Self>, page: &PageKey, entry: &Entry) -> Option<Unpublished> {
        if self.memory.peek(page).is_some() {
            return None;
        }
        let entry = self.insert(page, entry.checked_again(entry.check));
        Some(Unpublished { engine: self.clone(), page: page.clone(), entry })
    }
}
