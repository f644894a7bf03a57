//! Writes that the table has not received yet: invalidations of tags, which already apply in this process, and announcements of
//! changes.

use std::sync::Arc;

use tabletheory::{Consistency, Key, Table as _};
use tokio::time::Instant;

use super::PageStore;
use crate::error::Result;
use crate::protocol::feed::{Changes, Subject};
use crate::protocol::{InvalidationMode, PageKey};

/// The most pending writes.
const MAX_PENDING: usize = 10_000;

/// A write that the table has not received yet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Pending {
    /// The invalidation of the tag of a page and its variants. It already applies in this process.
    Epoch { since: Instant, page: Arc<PageKey> },
    /// The announcement of a change of the row.
    Announcement { since: Instant },
}

impl Pending {
    /// An invalidation of the tag of a page and its variants, now.
    pub(crate) fn invalidation_of(page: &PageKey) -> Self {
        Pending::Epoch { since: Instant::now(), page: Arc::new(page.clone()) }
    }

    /// Since when the write is pending, by the clock that nobody can set.
    pub(crate) fn since(&self) -> Instant {
        match self {
            Pending::Epoch { since, .. } | Pending::Announcement { since } => *since,
        }
    }

    /// Whether this write takes the place of another one for the same row.
    fn replaces(&self, other: &Pending) -> bool {
        match (self, other) {
            // An invalidation is announced once it is written.
            (Pending::Announcement { .. }, Pending::Epoch { .. }) => false,
            (Pending::Epoch { .. }, Pending::Announcement { .. }) => true,
            _ => other.since() < self.since(),
        }
    }
}

impl PageStore {
    /// Lets the change of a row be announced [later](PageStore::write_pending), and this process read the row again. Returns
    /// `None` if too many writes are pending already.
    pub(crate) fn add_pending_announcement(&self, changed: &Key) -> Option<Pending> {
        self.known_changes.add(Changes::Of(vec![Subject::of(&changed.pk)]));
        self.add_pending(changed, &Pending::Announcement { since: Instant::now() })
    }

    /// Lets a row be written [later](PageStore::write_pending). An invalidation applies in this process at once. Returns what is
    /// pending for the row then, and `None` if too many writes are pending already.
    pub(crate) fn add_pending(&self, key: &Key, write: &Pending) -> Option<Pending> {
        let mut pending = self.epochs.pending.lock();
        if pending.len() >= MAX_PENDING && !pending.contains_key(key) {
            return None;
        }
        let stored = pending.entry(key.clone()).or_insert_with(|| write.clone());
        if write.replaces(stored) {
            *stored = write.clone();
        }
        Some(stored.clone())
    }

    /// Whether there are writes that the table has not received yet.
    pub(crate) fn has_pending(&self) -> bool {
        !self.epochs.pending.lock().is_empty()
    }

    /// The number of writes that the table has not received yet.
    pub(crate) fn count_pending(&self) -> usize {
        self.epochs.pending.lock().len()
    }

    /// The writes that the table has not received yet. Invalidations come before announcements.
    pub(crate) fn pending(&self) -> Vec<(Key, Pending)> {
        let pending = self.epochs.pending.lock();
        let mut pending: Vec<_> = pending.iter().map(|(key, write)| (key.clone(), write.clone())).collect();
        pending.sort_by_key(|(_, write)| matches!(write, Pending::Announcement { .. }));
        pending
    }

    /// Sends a pending write to the table.
    pub(crate) async fn write_pending(&self, key: &Key, write: Pending) -> Result<()> {
        match self.write_pending_row(key, write).await? {
            Some(announcement) => self.announce_pending(key, &announcement).await,
            None => Ok(()),
        }
    }

    /// Writes the row of a pending invalidation, if a page may be affected by it. Returns the announcement that is pending then.
    pub(crate) async fn write_pending_row(&self, key: &Key, write: Pending) -> Result<Option<Pending>> {
        let Pending::Epoch { since, page } = &write else { return Ok(Some(write)) };
        // Clients must not be able to fill the table with epochs of pages that do not exist.
        if !self.may_have_entries(page).await? {
            // A page that was evicted may still be in the memory of another process, which is told to read it again.
            let announcement = Pending::Announcement { since: *since };
            let left = if self.announces && self.has_evicted().await? { Some(announcement) } else { None };
            self.replace_pending(key, &write, left.as_ref());
            return Ok(left);
        }
        self.write_epoch_row(key, InvalidationMode::Soft).await?;
        let announcement = Pending::Announcement { since: *since };
        self.replace_pending(key, &write, Some(&announcement));
        Ok(Some(announcement))
    }

    /// Announces a change whose announcement is pending.
    pub(crate) async fn announce_pending(&self, key: &Key, announcement: &Pending) -> Result<()> {
        self.announce_change(key).await?;
        self.replace_pending(key, announcement, None);
        Ok(())
    }

    /// Removes a pending write, unless a later one replaced it.
    pub(crate) fn remove_pending(&self, key: &Key, write: &Pending) {
        self.replace_pending(key, write, None);
    }

    /// Replaces a pending write by the one that is left of it, unless a later one replaced it.
    fn replace_pending(&self, key: &Key, write: &Pending, left: Option<&Pending>) {
        let mut pending = self.epochs.pending.lock();
        if pending.get(key) != Some(write) {
            return;
        }
        match left {
            Some(left) => drop(pending.insert(key.clone(), left.clone())),
            None => drop(pending.remove(key)),
        }
    }

    /// Whether a response that was requested from the origin before now may be stored for this page or its variants. Variants
    /// are found through the page, and stored only if it exists, so only the rows of the page are read. A variant that has
    /// outlived the page is not found through the next page with its key, which has other variants.
    async fn may_have_entries(&self, page: &PageKey) -> Result<bool> {
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

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    #[test]
    fn an_announcement_does_not_replace_the_invalidation_that_has_to_be_written_before_it() {
        let page = Arc::new(PageKey::new("/").expect("a page"));
        let start = Instant::now();
        let at = |seconds| start + Duration::from_secs(seconds);
        let epoch = |since| Pending::Epoch { since: at(since), page: page.clone() };
        let announcement = |since| Pending::Announcement { since: at(since) };
        assert!(!announcement(2).replaces(&epoch(1)));
        assert!(epoch(1).replaces(&announcement(1)), "its row may not have been written");
        assert!(epoch(2).replaces(&epoch(1)) && !epoch(1).replaces(&epoch(2)), "the later one remains");
        assert!(announcement(2).replaces(&announcement(1)));
    }
}
