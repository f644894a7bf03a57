//! Invalidations that apply in this process before they are written to the table.

use tabletheory::{Consistency, Key};

use super::PageStore;
use crate::error::Result;
use crate::protocol::{Epoch, PageKey};

/// The most pending invalidations.
const MAX_PENDING: usize = 10_000;

impl PageStore {
    /// Makes all pages with a tag stale for this process, until the epoch is [written](PageStore::write_pending). Returns
    /// `None` if too many invalidations are pending already.
    pub(crate) fn add_pending(&self, tag: &Key) -> Option<Epoch> {
        let mut pending = self.epochs.pending.lock();
        if pending.len() >= MAX_PENDING && !pending.contains_key(tag) {
            return None;
        }
        // If the clock was set back, the later time remains.
        let epoch = pending.entry(tag.clone()).or_insert(Epoch::at(i64::MIN));
        epoch.invalidated_at = epoch.invalidated_at.max(self.now().seconds());
        Some(*epoch)
    }

    /// The invalidations that have not been written yet.
    pub(crate) fn pending(&self) -> Vec<(Key, Epoch)> {
        self.epochs.pending.lock().iter().map(|(tag, epoch)| (tag.clone(), *epoch)).collect()
    }

    /// Writes a pending invalidation to the table.
    pub(crate) async fn write_pending(&self, tag: &Key, epoch: Epoch) -> Result<()> {
        self.write_epoch(tag, epoch).await?;
        self.remove_pending(tag, epoch);
        Ok(())
    }

    /// Removes a pending invalidation, unless a later one replaced it.
    pub(crate) fn remove_pending(&self, tag: &Key, epoch: Epoch) {
        let mut pending = self.epochs.pending.lock();
        if pending.get(tag) == Some(&epoch) {
            pending.remove(tag);
        }
    }

    /// Whether a response that was requested from the origin before now may be stored for this page or its variants. Variants
    /// are found through the page, and stored only if it exists, so only the rows of the page are read.
    pub(crate) async fn may_have_entries(&self, page: &PageKey) -> Result<bool> {
        if self.ttls.page.is_some() {
            // A variant may have outlived the page, and is found again once the page is rendered again.
            return Ok(true);
        }
        // In this order: if the lease is gone, its holder published before `META` is read, or never will. A worker that
        // acquires the lease later also requests the response later.
        for row in [page.lock(), page.meta()] {
            if self.table.get(&row, Consistency::Strong).await?.is_some() {
                return Ok(true);
            }
        }
        Ok(false)
    }
}
