//! Invalidating everything with a tag, and telling what a page is good for given its tags.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use quick_cache::sync::Cache;
use tabletheory::{Consistency, Key, Timestamp};

use super::PageStore;
use crate::error::Result;
use crate::protocol::epoch::{Epoch, Tag};
use crate::protocol::freshness::Freshness;
use crate::protocol::invalidate;
use crate::protocol::key::{PageKey, Tenant};
use crate::protocol::row::Meta;

/// The most epochs that are remembered.
const MOST_EPOCHS: usize = 10_000;
/// The most epochs that the table is owed.
const MOST_OWED: usize = 10_000;

/// Epochs as they were read last.
#[derive(Clone, Debug)]
pub(super) struct KnownEpochs {
    known: Arc<Cache<Key, Known>>,
    /// Held while something is learnt, since that looks at what is known before.
    learning: Arc<Mutex<()>>,
    /// Those that the table could not be told of yet, and that hold here all the same.
    owed: Arc<Mutex<BTreeMap<Key, Epoch>>>,
}

#[derive(Clone, Copy, Debug)]
struct Known {
    epoch: Option<Epoch>,
    read_at: Timestamp,
}

impl KnownEpochs {
    pub(super) fn new() -> Self {
        KnownEpochs {
            known: Arc::new(Cache::new(MOST_EPOCHS)),
            learning: Arc::default(),
            owed: Arc::default(),
        }
    }

    fn owed(&self) -> MutexGuard<'_, BTreeMap<Key, Epoch>> {
        self.owed.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What is known of a tag, unless it is too old. A clock that was set back makes everything too old.
    fn get(&self, key: &Key, max_age: Duration, now: Timestamp) -> Option<Option<Epoch>> {
        let known = self.known.get(key)?;
        (known.read_at <= now && now < known.read_at + max_age).then_some(known.epoch)
    }

    /// Epochs only rise, so a read that was overtaken by an invalidation does not take it back.
    fn learn(&self, key: &Key, epoch: Option<Epoch>, read_at: Timestamp) {
        let _learning = self.learning.lock().unwrap_or_else(PoisonError::into_inner);
        let later = self.known.get(key).and_then(|known| known.epoch);
        let epoch = epoch.into_iter().chain(later).max_by_key(|epoch| epoch.invalidated_at);
        self.known.insert(key.clone(), Known { epoch, read_at });
    }
}

impl PageStore {
    /// Makes everything with a tag stale, with one write. This process knows of it at once.
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
        let now = self.now();
        // A refusal means that the tag was invalidated later still, so nothing is left to do.
        let _ = self.persist(&invalidate::tag(tag, tenant, now)).await?;
        self.epochs.learn(&tag.key(tenant), Some(Epoch { invalidated_at: now.seconds() }), now);
        Ok(())
    }

    /// What a page is good for, given the tags that it has by itself and those of its row.
    ///
    /// The table is asked only about a page that would be fresh otherwise, and not about epochs that are known.
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
        let epochs = self.epochs_of(page, meta).await?;
        Ok(meta.freshness_with(&epochs, now, self.epoch_terms.skew))
    }

    /// Whether one of its tags was invalidated since it was generated, however old it is by itself.
    pub(crate) async fn is_outdated(&self, page: &PageKey, meta: &Meta) -> Result<bool> {
        let epochs = self.epochs_of(page, meta).await?;
        Ok(meta.is_outdated(&epochs, self.epoch_terms.skew))
    }

    /// Whether content that was asked for at this time may be from before an invalidation of the page that has this row.
    pub(crate) fn invalidated_since(&self, row: &Meta, asked: Timestamp) -> bool {
        let since = row.stale_since.map(|since| Timestamp::from_seconds(since) + self.epoch_terms.skew);
        row.must_not_serve || since.is_some_and(|since| asked.seconds() <= since.seconds())
    }

    /// Whether one of a page's tags was invalidated since it was generated, as far as this process remembers.
    pub(crate) fn is_known_outdated(&self, page: &PageKey, meta: &Meta) -> bool {
        let known = |key: Key| {
            let owed = self.epochs.owed().get(&key).copied();
            owed.into_iter().chain(self.epochs.known.get(&key).and_then(|known| known.epoch))
        };
        let epochs: Vec<Epoch> =
            tags_of(page, meta).iter().flat_map(|tag| known(tag.key(page.tenant()))).collect();
        meta.is_outdated(&epochs, self.epoch_terms.skew)
    }

    async fn epochs_of(&self, page: &PageKey, meta: &Meta) -> Result<Vec<Epoch>> {
        self.epochs(&tags_of(page, meta), page.tenant()).await
    }

    /// The epochs of these tags; a tag that was never invalidated has none, and one that cannot be read never ends.
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
        let now = self.now();
        let (mut found, mut unknown) = (Vec::new(), Vec::new());
        for tag in tags {
            let key = tag.key(tenant);
            found.extend(self.epochs.owed().get(&key).copied());
            match self.epochs.get(&key, self.epoch_terms.max_age, now) {
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
                // It hides when it was, so nothing with its tag is known to be fresh. That is not remembered.
                found.push(Epoch { invalidated_at: i64::MAX });
                continue;
            };
            self.epochs.learn(key, epoch, now);
            found.extend(epoch);
        }
        Ok(found)
    }
}

/// The tags of a page: those that it has by itself, and those of its row.
fn tags_of(page: &PageKey, meta: &Meta) -> Vec<Tag> {
    // A tag that another language wrote and that no tag can be invalidated by is none.
    let explicit = meta.generation.content.tags.iter().filter_map(|tag| Tag::new(tag.as_str()).ok());
    page.tags().iter().cloned().chain(explicit).collect()
}

/// What holds before the table knows of it.
impl PageStore {
    /// Makes everything with a tag stale for this process, until the table [is told](PageStore::pay). None if the table is owed too
    /// much already.
    pub(crate) fn owe(&self, tag: &Key) -> Option<Epoch> {
        let mut owed = self.epochs.owed();
        if owed.len() >= MOST_OWED && !owed.contains_key(tag) {
            return None;
        }
        // A clock that was set back takes nothing back.
        let epoch = owed.entry(tag.clone()).or_insert(Epoch { invalidated_at: i64::MIN });
        epoch.invalidated_at = epoch.invalidated_at.max(self.now().seconds());
        Some(*epoch)
    }

    /// What the table is owed.
    pub(crate) fn owed(&self) -> Vec<(Key, Epoch)> {
        self.epochs.owed().iter().map(|(tag, epoch)| (tag.clone(), *epoch)).collect()
    }

    /// Tells the table what it is owed.
    pub(crate) async fn pay(&self, tag: &Key, epoch: Epoch) -> Result<()> {
        let now = self.now();
        // A refusal means that the tag was invalidated later still, so nothing is left to do.
        let _ = self.persist(&invalidate::epoch(tag.clone(), epoch)).await?;
        self.epochs.learn(tag, Some(epoch), now);
        self.write_off(tag, epoch);
        Ok(())
    }

    /// Whether anything may be stored of an address that was asked for before now, or come to be. Variants are found by the page
    /// that they are variants of, and stored only where there is one, so that it is enough to ask for that.
    pub(crate) async fn may_have_entries(&self, page: &PageKey) -> Result<bool> {
        if self.ttls.page.is_some() {
            // A variant may have outlived that page, and is found again once there is another.
            return Ok(true);
        }
        // In this order: a lease that is not there any more has published before `META` is read, or never will. Whoever takes
        // one after that asks the origin after that.
        for row in [page.lock(), page.meta()] {
            if self.table.get(&row, Consistency::Strong).await?.is_some() {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// The table is owed this no longer.
    pub(crate) fn write_off(&self, tag: &Key, epoch: Epoch) {
        let mut owed = self.epochs.owed();
        if owed.get(tag) == Some(&epoch) {
            owed.remove(tag);
        }
    }
}
