//! Operations on pages: invalidate (purge), roll back, unpin. They take effect in this process at once.
//!
//! The memory tier must be updated by every change that this process makes to the table, so an engine offers no other way
//! to make one. A change that was made must also be announced, so an operation continues even if its caller is gone, and an
//! announcement that failed is repeated.

use std::time::Duration;

use tokio::sync::oneshot;

use super::Isr;
use crate::{Error, Invalidated, InvalidationMode, Kind, PageKey, Result, RolledBack, Tag, Tenant};

impl Isr {
    /// Purges a page with all its variants: makes it stale (soft), or unusable (hard).
    ///
    /// Other processes notice once their metadata is older than [`metadata_max_age`](crate::IsrBuilder::metadata_max_age).
    /// Processes with [`Feed::Exclusive`](crate::Feed::Exclusive) notice by the change feed, in which this engine announces
    /// its changes if [`IsrBuilder::feed`](crate::IsrBuilder::feed) was called.
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
    pub async fn invalidate(&self, page: &PageKey, mode: InvalidationMode) -> Result<Invalidated> {
        let outcome = self.invalidate_entry(page, mode).await?;
        // The variants of a pinned page are left alone, like the page.
        if page.has_variants() && outcome != Invalidated::Pinned {
            let (engine, page) = (self.engine.clone(), page.clone());
            let variants = async move {
                let tag = Tag::target(page.address());
                let outcome = engine.pages.store().invalidate_tag_with(&tag, page.tenant(), mode).await;
                engine.memory.mark_unverified(&page);
                outcome
            };
            self.complete(variants).await?;
        }
        Ok(outcome)
    }

    /// Deletes one page, unless it is in use. Other processes may serve it from memory until they read its metadata again.
    pub(crate) async fn evict(&self, page: &PageKey) -> Result<()> {
        let (engine, page) = (self.engine.clone(), page.clone());
        let evict = async move {
            engine.pages.evict_page(&page).await?;
            engine.memory.forget(&page);
            Ok(())
        };
        self.complete(evict).await
    }

    /// Invalidates one page, without its variants.
    pub(crate) async fn invalidate_entry(
        &self,
        page: &PageKey,
        mode: InvalidationMode,
    ) -> Result<Invalidated> {
        let (engine, page) = (self.engine.clone(), page.clone());
        let invalidate = async move {
            let outcome = engine.pages.store().invalidate(&page, mode).await;
            if outcome.is_ok() && mode == InvalidationMode::Hard {
                engine.memory.invalidate_hard(&page);
            } else {
                // Also after an error: the table may have been written.
                engine.memory.mark_unverified(&page);
            }
            outcome
        };
        self.complete(invalidate).await
    }

    /// Purges all pages with a tag: of a path, a route, a tenant, or one that renderers set.
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
        self.invalidate_tag_with(tag, tenant, InvalidationMode::Soft).await
    }

    /// Purges all pages with a tag: makes them stale (soft), or unusable (hard).
    ///
    /// ```
    /// # use facetheory::{Bodies, InvalidationMode, Isr, Pages, PageStore, Tag};
    /// # use std::sync::Arc;
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> facetheory::Result<()> {
    /// # let pages = Pages::new(PageStore::new(Arc::new(tabletheory::MemoryTable::new())), Bodies::memory());
    /// let isr = Isr::new(pages);
    /// isr.invalidate_tag_with(&Tag::new("news")?, None, InvalidationMode::Hard).await?;
    /// # Ok(()) }
    /// ```
    pub async fn invalidate_tag_with(
        &self,
        tag: &Tag,
        tenant: Option<&Tenant>,
        mode: InvalidationMode,
    ) -> Result<()> {
        let (engine, tag, tenant) = (self.engine.clone(), tag.clone(), tenant.cloned());
        let invalidate = async move {
            let outcome = engine.pages.store().invalidate_tag_with(&tag, tenant.as_ref(), mode).await;
            engine.mark_tag_unverified(&tag, tenant.as_ref());
            outcome
        };
        self.complete(invalidate).await
    }

    /// Rolls a page back to a retained version, and pins that for the given time.
    ///
    /// ```
    /// # use facetheory::{Bodies, Isr, PageKey, Pages, PageStore, RolledBack};
    /// # use std::{sync::Arc, time::Duration};
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> facetheory::Result<()> {
    /// # let pages = Pages::new(PageStore::new(Arc::new(tabletheory::MemoryTable::new())), Bodies::memory());
    /// let isr = Isr::new(pages);
    /// let missing = isr.roll_back(&PageKey::new("/")?, "VER#01", Duration::from_secs(3600)).await?;
    /// assert_eq!(missing, RolledBack::NoSuchVersion);
    /// # Ok(()) }
    /// ```
    pub async fn roll_back(&self, page: &PageKey, version_sk: &str, pin: Duration) -> Result<RolledBack> {
        let (engine, page, sk) = (self.engine.clone(), page.clone(), version_sk.to_owned());
        let roll_back = async move {
            let outcome = engine.pages.store().roll_back(&page, &sk, pin).await;
            engine.memory.mark_unverified(&page);
            outcome
        };
        self.complete(roll_back).await
    }

    /// Ends the pin of a page. Returns `false` if the page was not pinned.
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
        let (engine, page) = (self.engine.clone(), page.clone());
        let unpin = async move {
            let outcome = engine.pages.store().unpin(&page).await;
            engine.memory.mark_unverified(&page);
            outcome
        };
        self.complete(unpin).await
    }

    /// Runs an operation in a task of its own, which completes even if the returned future is dropped.
    async fn complete<T: Send + 'static>(
        &self,
        operation: impl Future<Output = Result<T>> + Send + 'static,
    ) -> Result<T> {
        let ((sender, receiver), engine) = (oneshot::channel(), self.engine.clone());
        self.engine.spawn(Box::pin(async move {
            let outcome = operation.await;
            // The change may have been made without an announcement. The caller may not repeat it.
            if outcome.is_err() && engine.pages.store().has_pending() {
                engine.write_pending_in_background();
            }
            // The caller may be gone.
            drop(sender.send(outcome));
        }));
        let stopped = |_| Error::new(Kind::Unknown, "the operation was stopped by a shutdown; try again");
        receiver.await.map_err(stopped)?
    }
}
