//! What operators do to pages, known to this process at once.

use std::time::Duration;

use super::Isr;
use crate::error::Result;
use crate::protocol::epoch::Tag;
use crate::protocol::invalidate::Invalidated;
use crate::protocol::invalidate::InvalidationMode;
use crate::protocol::key::{PageKey, Tenant};
use crate::protocol::rollback::RolledBack;

impl Isr {
    /// Makes a page stale, with all variants that are stored of it. Visitors of this process notice at once, others once they no
    /// longer believe what they read.
    ///
    /// ```
    /// # use facetheory::{Bodies, Invalidated, Isr, PageKey, Pages, PageStore, InvalidationMode};
    /// # use std::sync::Arc;
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> facetheory::Result<()> {
    /// # let pages = Pages::new(PageStore::new(Arc::new(tabletheory::MemoryTable::new())), Bodies::memory());
    /// let isr = Isr::new(pages);
    /// assert_eq!(isr.invalidate(&PageKey::new("/")?, InvalidationMode::Hard).await?, Invalidated::Absent);
    /// # Ok(()) }
    /// ```
    pub async fn invalidate(&self, page: &PageKey, strength: InvalidationMode) -> Result<Invalidated> {
        let outcome = self.invalidate_entry(page, strength).await?;
        // What is pinned is left alone, and so is what is found by it.
        if page.has_variants() && outcome != Invalidated::Pinned {
            self.invalidate_variants(page).await?;
        }
        Ok(outcome)
    }

    /// The same of one page, and of none of its variants.
    pub(crate) async fn invalidate_entry(
        &self,
        page: &PageKey,
        strength: InvalidationMode,
    ) -> Result<Invalidated> {
        let outcome = self.pages().store().invalidate(page, strength).await;
        // Also while the table cannot be reached, what must not be served is not.
        if outcome.is_ok() && strength == InvalidationMode::Hard {
            self.engine.memory.forbid(page);
        } else {
            self.engine.memory.mark_unverified(page);
        }
        outcome
    }

    /// Makes everything with a tag stale: of a path, a route, a tenant, or one that renderers gave.
    ///
    /// ```
    /// # use facetheory::{Bodies, Isr, Pages, PageStore, Tag};
    /// # use std::sync::Arc;
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> facetheory::Result<()> {
    /// # let pages = Pages::new(PageStore::new(Arc::new(tabletheory::MemoryTable::new())), Bodies::memory());
    /// let isr = Isr::new(pages);
    /// isr.invalidate_tag(&Tag::path("/docs")?, None).await?;
    /// # Ok(()) }
    /// ```
    pub async fn invalidate_tag(&self, tag: &Tag, tenant: Option<&Tenant>) -> Result<()> {
        let outcome = self.pages().store().invalidate_tag(tag, tenant).await;
        self.engine.memory.mark_all_unverified();
        outcome
    }

    /// Makes all that is stored of an address stale: a page that follows its origin, and its variants.
    async fn invalidate_variants(&self, page: &PageKey) -> Result<()> {
        let outcome = self.pages().store().invalidate_tag(&Tag::target(page.address()), page.tenant()).await;
        self.engine.memory.mark_unverified(page);
        outcome
    }

    /// Goes back to a version that is kept, and keeps it for as long as the pin.
    ///
    /// ```
    /// # use facetheory::{Bodies, Isr, PageKey, Pages, PageStore, RolledBack};
    /// # use std::{sync::Arc, time::Duration};
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> facetheory::Result<()> {
    /// # let pages = Pages::new(PageStore::new(Arc::new(tabletheory::MemoryTable::new())), Bodies::memory());
    /// let isr = Isr::new(pages);
    /// let nowhere = isr.roll_back(&PageKey::new("/")?, "VER#01", Duration::from_secs(3600)).await?;
    /// assert_eq!(nowhere, RolledBack::NoSuchVersion);
    /// # Ok(()) }
    /// ```
    pub async fn roll_back(&self, page: &PageKey, version_sk: &str, pin: Duration) -> Result<RolledBack> {
        let outcome = self.pages().store().roll_back(page, version_sk, pin).await;
        self.engine.memory.mark_unverified(page);
        outcome
    }

    /// Ends a pin. False if the page was not pinned.
    ///
    /// ```
    /// # use facetheory::{Bodies, Isr, PageKey, Pages, PageStore};
    /// # use std::sync::Arc;
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> facetheory::Result<()> {
    /// # let pages = Pages::new(PageStore::new(Arc::new(tabletheory::MemoryTable::new())), Bodies::memory());
    /// assert!(!Isr::new(pages).unpin(&PageKey::new("/")?).await?);
    /// # Ok(()) }
    /// ```
    pub async fn unpin(&self, page: &PageKey) -> Result<bool> {
        let outcome = self.pages().store().unpin(page).await;
        self.engine.memory.mark_unverified(page);
        outcome
    }
}
