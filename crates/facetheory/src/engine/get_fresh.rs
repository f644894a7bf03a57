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

/// What memory has for a visitor.
pub(crate) enum AtHand {
    /// The page.
    Page(Served),
    /// A page for requests with other headers.
    Other(Arc<CachedPage>),
}

impl Isr {
    /// What is kept of a page and may be looked at, and what it can be used for. While the table cannot be reached, what
    /// memory has.
    pub(crate) async fn peek(
        &self,
        page: &PageKey,
        judge: &dyn ReusePolicy,
    ) -> Option<(Arc<CachedPage>, ServeDecision)> {
        let engine = &self.engine;
        let now = engine.now();
        let known = engine.memory.get(page);
        if let Some(entry) = &known
            && engine.memory.believes(page, entry, now, engine.settings.believed)
        {
            return Some((entry.page.clone(), engine.usable(entry, judge, now)));
        }
        let arrival = RequestStart { at: now, sequence: engine.memory.sequence(page) };
        let Ok(seen) = engine.look(page, arrival).await else {
            return known.map(|entry| (entry.page.clone(), engine.usable_unseen(page, &entry, judge, now)));
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
        Some((entry.page.clone(), judge.usable(&sight)))
    }

    /// The same, if memory alone can tell, of what needs nothing from anyone. A page counts as served.
    pub(crate) fn at_hand_by(
        &self,
        page: &PageKey,
        policy: &Policy,
        judge: &dyn ReusePolicy,
        now: Timestamp,
    ) -> Option<AtHand> {
        let engine = &self.engine;
        let entry = engine.believed(page, now)?;
        match engine.usable(&entry, judge, now) {
            ServeDecision::Fresh if !engine.may_be_early(&entry, policy, now) => {
                Some(AtHand::Page(engine.served(page, State::Hit, &entry)))
            }
            ServeDecision::Other => Some(AtHand::Other(entry.page.clone())),
            ServeDecision::Fresh | ServeDecision::Stale { .. } | ServeDecision::No(_) => None,
        }
    }

    /// The next answer for a page may be kept after all: others wait for it again, instead of asking for themselves.
    pub(crate) fn reconsider(&self, page: &PageKey) {
        self.engine.render_failures.reconsider(page);
    }
}
