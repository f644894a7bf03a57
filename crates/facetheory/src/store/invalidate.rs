//! Invalidates pages and tags.

use tabletheory::{Consistency, Key};

use super::{Entry, MAX_ROUNDS, PageStore, contended};
use crate::error::{Kind, Result};
use crate::protocol::{
    Epoch, Found, Invalidated, InvalidationMode, Lease, Meta, PageKey, Tag, Tenant, invalidate,
};

impl PageStore {
    /// Invalidates a page. Renders that began earlier cannot publish any more.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> facetheory::Result<()> {
    /// # use std::sync::Arc;
    /// use facetheory::{Invalidated, InvalidationMode, PageKey};
    ///
    /// let store = facetheory::PageStore::new(Arc::new(tabletheory::MemoryTable::new()));
    /// assert_eq!(store.invalidate(&PageKey::new("/")?, InvalidationMode::Soft).await?, Invalidated::Absent);
    /// # Ok(()) }
    /// ```
    pub async fn invalidate(&self, page: &PageKey, mode: InvalidationMode) -> Result<Invalidated> {
        let outcome = self.invalidate_page(page, mode).await;
        self.announce(&page.meta(), outcome).await
    }

    async fn invalidate_page(&self, page: &PageKey, mode: InvalidationMode) -> Result<Invalidated> {
        for _ in 0..MAX_ROUNDS {
            let row = self.table.get(&page.meta(), Consistency::Strong).await?;
            let seen = match &row {
                Some(row) => self.resolve(row, None).await?,
                None => None,
            };
            let now = self.now();
            let found = Found::of(row.as_ref(), seen.as_ref(), now);
            let Some(txn) = invalidate::page(page, found, mode, now) else {
                return Ok(Invalidated::Pinned);
            };
            if self.persist(&self.once(txn)).await?.is_done() {
                return Ok(if row.is_none() { Invalidated::Absent } else { Invalidated::Stale });
            }
        }
        Err(contended("invalidated"))
    }

    /// Invalidates a page that [`list`](PageStore::list) has found, whichever service wrote its rows.
    ///
    /// ```no_run
    /// # async fn f(store: facetheory::PageStore) -> facetheory::Result<()> {
    /// use facetheory::{InvalidationMode, Listing};
    ///
    /// for entry in store.list(&Listing::new(20)).await?.entries {
    ///     store.invalidate_listed(&entry, InvalidationMode::Soft).await?;
    /// }
    /// # Ok(()) }
    /// ```
    pub async fn invalidate_listed(&self, entry: &Entry, mode: InvalidationMode) -> Result<Invalidated> {
        self.invalidate(&PageKey::of_partition(&entry.pk), mode).await
    }

    /// The hard invalidation of the page that was `seen`, by the holder of its lease, which it releases. Returns false if the
    /// lease was lost or another render has been published.
    ///
    /// Nobody would repeat it, because the next render finds a page that is invalidated. If it cannot be announced, that is
    /// [pending](PageStore::add_pending_announcement).
    pub(crate) async fn invalidate_under_lease(&self, lease: &Lease, seen: &Meta) -> Result<bool> {
        let txn = invalidate::page_under_lease(lease, seen, self.now());
        let outcome = self.persist(&self.once(txn)).await.map(|commit| commit.is_done());
        let has_changed = match &outcome {
            Ok(done) => *done,
            Err(error) => error.kind() == Kind::Unknown,
        };
        let meta = lease.page().meta();
        if has_changed && let Err(error) = self.announce_or_add_pending(&meta).await {
            let page = lease.page().redacted();
            tracing::warn!(%error, %page, "other processes have not been told yet that a page was invalidated");
        }
        outcome
    }

    /// Makes all pages with a tag stale, with one write, however many pages there are, and an entry in the change feed if the
    /// store [announces](PageStore::with_announcements) changes. This process applies it at once.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> facetheory::Result<()> {
    /// # use std::sync::Arc;
    /// use facetheory::Tag;
    ///
    /// let store = facetheory::PageStore::new(Arc::new(tabletheory::MemoryTable::new()));
    /// store.invalidate_tag(&Tag::new("news")?, None).await?;
    /// store.invalidate_tag(&Tag::path("/docs")?, None).await?;
    /// # Ok(()) }
    /// ```
    pub async fn invalidate_tag(&self, tag: &Tag, tenant: Option<&Tenant>) -> Result<()> {
        self.write_epoch(&tag.key(tenant), Epoch::at(self.now().seconds())).await
    }

    /// Announces in the change feed that pages with a tag have changed, without invalidating them. One entry is cheaper to
    /// read than one for each page, if many pages of the tag were written [without
    /// announcements](PageStore::with_announcements). A store without announcements does nothing.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> facetheory::Result<()> {
    /// # use std::sync::Arc;
    /// use facetheory::{InvalidationMode, PageKey, PageStore, Tag};
    ///
    /// let store = PageStore::new(Arc::new(tabletheory::MemoryTable::new()));
    /// for path in ["/docs/a", "/docs/b"] {
    ///     store.invalidate(&PageKey::new(path)?, InvalidationMode::Hard).await?;
    /// }
    /// store.with_announcements(true).announce_tag(&Tag::path("/docs")?, None).await?;
    /// # Ok(()) }
    /// ```
    pub async fn announce_tag(&self, tag: &Tag, tenant: Option<&Tenant>) -> Result<()> {
        self.announce_change(&tag.key(tenant)).await
    }

    /// Writes the epoch row of a tag, unless it has a later epoch, and announces it.
    async fn write_epoch(&self, tag: &Key, epoch: Epoch) -> Result<()> {
        let outcome = self.write_epoch_row(tag, epoch).await;
        self.announce(tag, outcome).await
    }

    /// Writes the epoch row of a tag, unless it has a later epoch, without an announcement.
    pub(super) async fn write_epoch_row(&self, tag: &Key, epoch: Epoch) -> Result<()> {
        let (now, known) = (self.now(), self.known_changes.number());
        // A refusal means that the tag has a later epoch, so there is nothing left to do.
        let _ = self.persist(&invalidate::tag(tag.clone(), epoch)).await?;
        self.epochs.insert(tag, Some(epoch), now, known);
        Ok(())
    }
}
