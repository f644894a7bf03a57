//! Reads and caches tag epochs, and decides with them whether a page is fresh.

use std::collections::BTreeMap;
use std::time::Duration;

use parking_lot::Mutex;
use quick_cache::sync::Cache;
use tabletheory::{Consistency, Key, Timestamp};

use super::{KnownChanges, PageStore, Pending};
use crate::error::Result;
use crate::protocol::feed::Subject;
use crate::protocol::{Epoch, Freshness, Meta, PageKey, Tag, Tenant};

/// The most epochs in the cache.
const MAX_CACHED: usize = 10_000;
/// How long an epoch is used while the change feed says that it has not changed.
const MAX_AGE_WITH_FEED: Duration = Duration::from_secs(3600);

/// Epochs as they were last read.
#[derive(Debug)]
pub(super) struct EpochCache {
    cached: Cache<Key, CachedEpoch>,
    /// Held while an entry is replaced, since the new entry depends on the old one.
    replacing: Mutex<()>,
    /// Writes that the table has not received yet, by the row that they are about.
    pub(super) pending: Mutex<BTreeMap<Key, Pending>>,
}

#[derive(Clone, Copy, Debug)]
struct CachedEpoch {
    epoch: Option<Epoch>,
    read_at: Timestamp,
    /// The number of changes that were known when it was read.
    known: u64,
}

impl EpochCache {
    pub(super) fn new() -> Self {
        EpochCache { cached: Cache::new(MAX_CACHED), replacing: Mutex::default(), pending: Mutex::default() }
    }

    /// The cached epoch of a tag, unless it is older than `max_age`, or has changed. If the clock was set back, every entry is
    /// too old. As long as the change feed is read, an epoch need not be read again because of its age.
    fn get(
        &self,
        key: &Key,
        max_age: Duration,
        now: Timestamp,
        changes: &KnownChanges,
    ) -> Option<Option<Epoch>> {
        let cached = self.cached.get(key)?;
        let max_age =
            if changes.is_complete(now, max_age) { MAX_AGE_WITH_FEED.max(max_age) } else { max_age };
        let is_current = cached.read_at <= now
            && now < cached.read_at + max_age
            && !changes.has_changed(cached.known, std::iter::once_with(|| Subject::of(&key.pk)));
        is_current.then_some(cached.epoch)
    }

    /// Caches an epoch. Epochs only rise, so a read that an invalidation has overtaken does not undo it.
    pub(super) fn insert(&self, key: &Key, epoch: Option<Epoch>, read_at: Timestamp, known: u64) {
        let _replacing = self.replacing.lock();
        let later = self.cached.get(key).and_then(|cached| cached.epoch);
        let epoch = epoch.into_iter().chain(later).max_by_key(|epoch| epoch.invalidated_at);
        self.cached.insert(key.clone(), CachedEpoch { epoch, read_at, known });
    }

    fn pending(&self, key: &Key) -> Option<Epoch> {
        match self.pending.lock().get(key)? {
            Pending::Epoch { epoch, .. } => Some(*epoch),
            Pending::Announcement { .. } => None,
        }
    }
}

impl PageStore {
    /// The freshness of a page, given its implicit tags and those of its row.
    ///
    /// Epochs are read only for a page that is otherwise fresh, and only if they are not cached.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> facetheory::Result<()> {
    /// # use std::sync::Arc;
    /// use facetheory::protocol::{Freshness, Generation, Meta};
    /// use facetheory::{PageKey, Tag};
    ///
    /// let store = facetheory::PageStore::new(Arc::new(tabletheory::MemoryTable::new()));
    /// let page = PageKey::new("/docs/a")?.at_path("/docs/a");
    /// let meta = Meta::of(Generation::new("a.html", store.now().seconds(), 60));
    /// assert_eq!(store.freshness(&page, &meta).await?, Freshness::Fresh);
    /// store.invalidate_tag(&Tag::path("/docs")?, None).await?;
    /// assert_eq!(store.freshness(&page, &meta).await?, Freshness::Stale);
    /// # Ok(()) }
    /// ```
    pub async fn freshness(&self, page: &PageKey, meta: &Meta) -> Result<Freshness> {
        let now = self.now();
        let own = meta.freshness(now);
        if own != Freshness::Fresh || meta.is_pinned(now) {
            return Ok(own);
        }
        let epochs = self.epochs(&tags_of(page, meta), page.tenant()).await?;
        Ok(meta.freshness_with(&epochs, now, self.epoch_terms.skew))
    }

    /// Whether a tag of the page was invalidated since it was generated, even if the page is stale anyway.
    pub(crate) async fn is_outdated(&self, page: &PageKey, meta: &Meta) -> Result<bool> {
        let epochs = self.epochs(&tags_of(page, meta), page.tenant()).await?;
        Ok(meta.is_outdated(&epochs, self.epoch_terms.skew))
    }

    /// Whether a tag of the page was invalidated since it was generated, according to the cache of this process alone.
    pub(crate) fn is_known_outdated(&self, page: &PageKey, meta: &Meta) -> bool {
        let known = |tag: &Tag| {
            let key = tag.key(page.tenant());
            let cached = self.epochs.cached.get(&key).and_then(|cached| cached.epoch);
            self.epochs.pending(&key).into_iter().chain(cached)
        };
        let epochs: Vec<Epoch> = tags_of(page, meta).iter().flat_map(known).collect();
        meta.is_outdated(&epochs, self.epoch_terms.skew)
    }

    /// Whether a change of the page with this row, or of one of its tags, has become known since the change with this number.
    pub(crate) fn has_changed(&self, page: &PageKey, meta: &Meta, since: u64) -> bool {
        let own = std::iter::once_with(|| Subject::of(page.pk()));
        let tags = std::iter::once_with(|| tags_of(page, meta)).flatten();
        let tags = tags.map(|tag| Subject::of(&tag.key(page.tenant()).pk));
        self.known_changes.has_changed(since, own.chain(tags))
    }

    /// The most rows that are read to find out whether a page is fresh: its own, and one for each of its tags.
    pub(crate) fn rows_of_check(&self, page: &PageKey, meta: &Meta) -> usize {
        1 + tags_of(page, meta).len()
    }

    /// Whether a response that was requested at this time may be older than an invalidation of the page with this row.
    pub(crate) fn invalidated_since(&self, row: &Meta, requested: Timestamp) -> bool {
        let since = row.stale_since.map(|since| Timestamp::from_seconds(since) + self.epoch_terms.skew);
        row.must_not_serve || since.is_some_and(|since| requested.seconds() <= since.seconds())
    }

    /// The epochs of these tags. A tag that was never invalidated has none; one whose row cannot be read makes everything
    /// stale.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> facetheory::Result<()> {
    /// # use std::sync::Arc;
    /// use facetheory::Tag;
    ///
    /// let store = facetheory::PageStore::new(Arc::new(tabletheory::MemoryTable::new()));
    /// assert_eq!(store.epochs(&[Tag::new("news")?], None).await?, []);
    /// # Ok(()) }
    /// ```
    pub async fn epochs(&self, tags: &[Tag], tenant: Option<&Tenant>) -> Result<Vec<Epoch>> {
        let (now, known) = (self.now(), self.known_changes.number());
        let (mut found, mut unknown) = (Vec::new(), Vec::new());
        for tag in tags {
            let key = tag.key(tenant);
            found.extend(self.epochs.pending(&key));
            match self.epochs.get(&key, self.epoch_terms.max_age, now, &self.known_changes) {
                Some(epoch) => found.extend(epoch),
                None => unknown.push(key),
            }
        }
        if unknown.is_empty() {
            return Ok(found);
        }
        let rows = self.table.batch_get(&unknown, Consistency::Strong).await?;
        for (key, row) in unknown.iter().zip(&rows) {
            let Ok(epoch) = row.as_ref().map(Epoch::read).transpose() else {
                // The time of the invalidation is unknown, so no page with the tag is fresh. This is not cached.
                found.push(Epoch::at(i64::MAX));
                continue;
            };
            self.epochs.insert(key, epoch, now, known);
            found.extend(epoch);
        }
        Ok(found)
    }
}

/// The tags of a page: its implicit tags, and those of its row.
fn tags_of(page: &PageKey, meta: &Meta) -> Vec<Tag> {
    // Another language may have written a tag that is invalid here. It cannot be invalidated, so it is ignored.
    let explicit = meta.generation.content.tags.iter().filter_map(|tag| Tag::new(tag.as_str()).ok());
    page.tags().iter().cloned().chain(explicit).collect()
}
