//! Pages that are fresh in memory: served without I/O and without a future.

use std::sync::Arc;

use tabletheory::Timestamp;

use super::Isr;
use super::cached_page::CachedPage;
use super::decision::{ReusePolicy, ServeDecision};
use super::get_result::Served;
use super::state::State;
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
        match engine.decide(&entry, reuse, now) {
            ServeDecision::Fresh if !engine.may_refresh_early(&entry, policy, now) => {
                Some(FreshPage::Page(engine.served(page, State::Hit, &entry)))
            }
            ServeDecision::OtherVariant => Some(FreshPage::OtherVariant(entry.page.clone())),
            ServeDecision::Fresh | ServeDecision::Stale { .. } | ServeDecision::Unusable(_) => None,
        }
    }
}
