//! Invalidates pages and tags.

use tabletheory::{Commit, Consistency, Key, Table as _, Timestamp};

use super::{Entry, MAX_ROUNDS, PageStore, contended};
use crate::error::{Kind, Result};
use crate::protocol::invalidate::{self, TagInvalidation};
use crate::protocol::{Found, Invalidated, InvalidationMode, Lease, Meta, PageKey, Tag, Tenant};

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
            // A damaged row is never served, and counts as absent in the transaction.
            let row = row.filter(|row| !row.is_damaged());
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
            tabletheory::warn_limited!(%error, %page, "other processes have not been told yet that a page was invalidated");
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
        self.invalidate_tag_with(tag, tenant, InvalidationMode::Soft).await
    }

    /// Invalidates all pages with a tag like [`invalidate_tag`](PageStore::invalidate_tag), in this mode. After a hard
    /// invalidation, no page that was rendered before it is served, pinned or not. That costs one more read.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> facetheory::Result<()> {
    /// # use std::sync::Arc;
    /// use facetheory::protocol::{Freshness, Generation, Meta};
    /// use facetheory::{InvalidationMode, PageKey, PageStore, Tag};
    ///
    /// let store = PageStore::new(Arc::new(tabletheory::MemoryTable::new()));
    /// let page = PageKey::new("/docs/a")?.at_path("/docs/a");
    /// let meta = Meta::of(Generation::new("a.html", store.now().seconds(), 60));
    /// store.invalidate_tag_with(&Tag::path("/docs")?, None, InvalidationMode::Hard).await?;
    /// assert_eq!(store.freshness(&page, &meta).await?, Freshness::MustNotServe);
    /// # Ok(()) }
    /// ```
    pub async fn invalidate_tag_with(
        &self,
        tag: &Tag,
        tenant: Option<&Tenant>,
        mode: InvalidationMode,
    ) -> Result<()> {
        let tag = tag.key(tenant);
        let outcome = self.write_epoch_row(&tag, mode).await;
        self.announce(&tag, outcome).await
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

    /// Replaces the damaged epoch row of a tag. The tag counts as invalidated now, because it may have been.
    pub(super) async fn replace_damaged_epoch(&self, tag: &Key) -> Result<()> {
        let (now, known) = (self.now(), self.known_changes.number());
        let mode = InvalidationMode::Soft;
        let invalidation = self.invalidation_of(tag, mode, now);
        // If it is refused, another process has replaced the row.
        let outcome = self.persist(&invalidation.of_absent_row()).await;
        self.epochs.record_write(tag, mode, now, known);
        // A process that relies on the feed would compare the count of pages that are rendered from now on with the one from before.
        let may_have_changed = match &outcome {
            Ok(commit) => commit.is_done(),
            Err(error) => error.kind() == Kind::Unknown,
        };
        if may_have_changed {
            self.announce_soon(tag).await;
        }
        outcome.map(drop)
    }

    /// Counts an invalidation of a tag in its epoch row, without an announcement. An invalidation may be counted twice if a
    /// response is lost, which does no harm.
    pub(super) async fn write_epoch_row(&self, tag: &Key, mode: InvalidationMode) -> Result<()> {
        let (now, known) = (self.now(), self.known_changes.number());
        let outcome = self.count_invalidation(self.invalidation_of(tag, mode, now)).await;
        // Also after an error: the table may have been written.
        self.epochs.record_write(tag, mode, now, known);
        outcome
    }

    fn invalidation_of(&self, tag: &Key, mode: InvalidationMode, now: Timestamp) -> TagInvalidation {
        let ttl = self.ttls.of_epoch(now.seconds());
        TagInvalidation::new(tag.clone(), mode, now, ttl, self.random.next_u64())
    }

    async fn count_invalidation(&self, invalidation: TagInvalidation) -> Result<()> {
        let is_hard = invalidation.mode == InvalidationMode::Hard;
        let first = match invalidation.mode {
            InvalidationMode::Soft => None,
            // Conditions do not see a damaged row.
            InvalidationMode::Hard => {
                let row = self.table.get(&invalidation.tag, Consistency::Strong).await?;
                row.filter(|row| !row.is_damaged())
            }
        };
        let mut row = first.clone();
        for _ in 0..MAX_ROUNDS {
            match self.persist(&invalidation.txn(row.as_ref())).await? {
                Commit::Done => return Ok(()),
                Commit::Refused { seen, .. } => row = seen,
            }
            if is_hard && TagInvalidation::was_done(first.as_ref(), row.as_ref()) {
                return Ok(());
            }
        }
        Err(contended("invalidated"))
    }
}
