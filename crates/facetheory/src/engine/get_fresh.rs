//! A peek: what is kept of a page, without rendering anything.

use std::sync::Arc;

use tabletheory::Timestamp;

use super::Isr;
use super::cached_page::CachedPage;
use super::decision::{EntryView, ReusePolicy, ServeDecision};
use super::get_result::Served;
use super::lookup::Found;
use super::memory::RequestStart;
use crate::engine::state::State;
use crate::pages::policy::Policy;
use crate::protocol::key::PageKey;

/// A page in memory that answers a request without I/O.
pub(crate) enum FreshPage {
    /// The page is fresh and matches the request.
    Page(Served),
    /// The page is for requests with other headers. Its `Vary` selects the variant for this request.
    OtherVariant(Arc<CachedPage>),
}

impl Isr {
    /// What is kept of a page and may be looked at, and what it can be used for. While the table cannot be reached, what
    /// memory has.
    pub(crate) async fn lookup(
        &self,
        page: &PageKey,
        reuse: &dyn ReusePolicy,
    ) -> Option<(Arc<CachedPage>, ServeDecision)> {
        let engine = &self.engine;
        let now = engine.now();
        let known = engine.memory.get(page);
        if let Some(entry) = &known
            && engine.memory.believes(page, entry, now, engine.settings.believed)
        {
            return Some((entry.page.clone(), engine.usable(entry, reuse, now)));
        }
        let arrival = RequestStart { at: now, sequence: engine.memory.sequence(page) };
        let Ok(seen) = engine.look(page, arrival).await else {
            return known.map(|entry| (entry.page.clone(), engine.usable_unseen(page, &entry, reuse, now)));
        };
        let (Found::Here(entry), Some(meta)) = (&seen.body, &seen.meta) else { return None };
        let now = engine.now();
        let sight = EntryView {
            meta,
            page: Some(&entry.page),
            freshness: seen.freshness_at(now),
            invalidated: seen.checked.invalidated,
            deployment: engine.settings.deployment.as_deref(),
            now,
        };
        Some((entry.page.clone(), reuse.decide(&sight)))
    }

    /// Like [`get_fresh`](Isr::get_fresh) at the time `now`, where `reuse` decides what a cached page can be used for. A
    /// returned page counts as served.
    pub(crate) fn get_fresh_with(
        &self,
        page: &PageKey,
        policy: &Policy,
        reuse: &dyn ReusePolicy,
        now: Timestamp,
    ) -> Option<FreshPage> {
        let engine = &self.engine;
        let entry = engine.believed(page, now)?;
        match engine.usable(&entry, reuse, now) {
            ServeDecision::Fresh if !engine.may_be_early(&entry, policy, now) => {
                Some(FreshPage::Page(engine.served(page, State::Hit, &entry)))
            }
            ServeDecision::OtherVariant => Some(FreshPage::OtherVariant(entry.page.clone())),
            ServeDecision::Fresh | ServeDecision::Stale { .. } | ServeDecision::Unusable(_) => None,
        }
    }

    /// The next answer for a page may be kept after all: others wait for it again, instead of asking for themselves.
    pub(crate) fn forget_declined(&self, page: &PageKey) {
        self.engine.render_failures.forget_declined(page);
    }
}
