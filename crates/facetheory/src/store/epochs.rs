//! Reads and caches tag epochs, and decides with them whether a page is fresh.

use std::collections::BTreeMap;
use std::hash::{BuildHasher as _, BuildHasherDefault, DefaultHasher};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use parking_lot::Mutex;
use quick_cache::sync::Cache;
use tabletheory::{Consistency, Item, Key, Timestamp};

use super::moment::Moment;
use super::{KnownChanges, PageStore, Pending};
use crate::error::Result;
use crate::protocol::feed::Subject;
use crate::protocol::ttl::seconds;
use crate::protocol::{
    Epoch, Freshness, Generation, InvalidationMode, Meta, PageKey, SeenEpochs, Tag, Tenant,
};

/// The most epochs in the cache.
const MAX_CACHED: usize = 10_000;
/// How long an epoch is used while the change feed says that it has not changed.
const MAX_AGE_WITH_FEED: Duration = Duration::from_secs(3600);
/// Tags share this many counters of the writes of this process, by their hash. Sharing makes some epochs be read in vain.
const COUNTERS: usize = 1024;

/// Epochs as they were last read.
#[derive(Debug)]
pub(super) struct EpochCache {
    cached: Cache<Key, CachedEpoch>,
    /// Held while an entry is replaced, since the new entry depends on the old one.
    replacing: Mutex<()>,
    /// The number of epochs that this process has written.
    written: AtomicU64,
    /// The number of the last one of each group of tags. What was read before it is outdated.
    last_written: Box<[AtomicU64]>,
    /// Writes that the table has not received yet, by the row that they are about.
    pub(super) pending: Mutex<BTreeMap<Key, Pending>>,
}

/// Knowledge about the row of a tag.
#[derive(Clone, Copy, Debug)]
enum Known {
    Row(Option<Epoch>),
    /// This process has invalidated the tag, and has not read its row since.
    Invalidated {
        /// The last of these invalidations was hard, or an earlier one.
        is_hard: bool,
        /// The row as it was last read before.
        before: Option<Epoch>,
    },
}

#[derive(Clone, Copy, Debug)]
struct CachedEpoch {
    known: Known,
    read: ReadOf,
}

impl CachedEpoch {
    /// The row as it was read.
    fn row(self) -> Option<Option<Epoch>> {
        match self.known {
            Known::Row(epoch) => Some(epoch),
            Known::Invalidated { .. } => None,
        }
    }
}

/// When a read of epochs began.
#[derive(Clone, Copy, Debug)]
struct ReadOf {
    at: Moment,
    /// The number of changes that were known.
    changes: u64,
    /// The number of epochs that this process had written.
    written: u64,
}

impl EpochCache {
    pub(super) fn new() -> Self {
        EpochCache {
            cached: Cache::new(MAX_CACHED),
            replacing: Mutex::default(),
            written: AtomicU64::new(0),
            last_written: (0..COUNTERS).map(|_| AtomicU64::new(0)).collect(),
            pending: Mutex::default(),
        }
    }

    fn last_written(&self, key: &Key) -> &AtomicU64 {
        let hash = BuildHasherDefault::<DefaultHasher>::default().hash_one(key);
        &self.last_written[usize::try_from(hash % COUNTERS as u64).unwrap_or(0)]
    }

    /// The epoch of a tag as it was last read, however long ago, unless it is known to have changed since. The tag had this
    /// epoch when the read began, or later.
    fn last_read(&self, key: &Key, changes: &KnownChanges) -> Option<(Option<Epoch>, Moment)> {
        let cached = self.cached.get(key)?;
        cached
            .row()
            .filter(|_| !self.has_changed_since(key, cached.read, changes))
            .map(|epoch| (epoch, cached.read.at))
    }

    /// Whether the epoch of a tag is known to have changed since it was last read, if it was read at all.
    fn has_changed(&self, key: &Key, changes: &KnownChanges) -> bool {
        match self.cached.get(key) {
            Some(CachedEpoch { known: Known::Invalidated { .. }, .. }) => true,
            Some(CachedEpoch { read, .. }) => self.has_changed_since(key, read, changes),
            None => changes.has_changed(0, std::iter::once_with(|| Subject::of(&key.pk))),
        }
    }

    /// Whether the epoch of a tag is known to have changed since then.
    fn has_changed_since(&self, key: &Key, then: ReadOf, changes: &KnownChanges) -> bool {
        let was_written = || self.last_written(key).load(Ordering::Acquire) > then.written;
        // Usually this process has written no epoch at all since then, and no hash has to be computed.
        self.written.load(Ordering::Acquire) > then.written && was_written()
            || changes.has_changed(then.changes, std::iter::once_with(|| Subject::of(&key.pk)))
    }

    /// The cached epoch of a tag, unless it was read longer ago than `max_age`, or has changed. As long as the change feed is
    /// read, an epoch need not be read again because of its age.
    fn get(
        &self,
        key: &Key,
        max_age: Duration,
        now: Timestamp,
        changes: &KnownChanges,
    ) -> Option<Option<Epoch>> {
        let (epoch, read_at) = self.last_read(key, changes)?;
        let max_age =
            if changes.is_complete(now, max_age) { MAX_AGE_WITH_FEED.max(max_age) } else { max_age };
        read_at.is_recent(now, max_age).then_some(epoch)
    }

    /// Caches an epoch that was read, unless a later read was faster, or this process has invalidated the tag since.
    fn insert(&self, key: &Key, epoch: Option<Epoch>, read: ReadOf) {
        let _replacing = self.replacing.lock();
        let is_late = self.cached.get(key).is_some_and(|cached| cached.read.at.monotonic > read.at.monotonic);
        let is_outdated = self.written.load(Ordering::Acquire) > read.written
            && self.last_written(key).load(Ordering::Acquire) > read.written;
        if !is_late && !is_outdated {
            self.cached.insert(key.clone(), CachedEpoch { known: Known::Row(epoch), read });
        }
    }

    /// Takes note of an epoch that this process has written, or may have written: it must be read again.
    pub(super) fn record_write(&self, key: &Key, mode: InvalidationMode, now: Timestamp, changes: u64) {
        let _replacing = self.replacing.lock();
        let (was_hard, before) = match self.cached.get(key).map(|cached| cached.known) {
            Some(Known::Invalidated { is_hard, before }) => (is_hard, before),
            Some(Known::Row(before)) => (false, before),
            None => (false, None),
        };
        let known = Known::Invalidated { is_hard: was_hard || mode == InvalidationMode::Hard, before };
        let written = self.written.fetch_add(1, Ordering::AcqRel) + 1;
        self.last_written(key).fetch_max(written, Ordering::AcqRel);
        let read = ReadOf { at: Moment::now(now), changes, written };
        self.cached.insert(key.clone(), CachedEpoch { known, read });
    }

    /// Whether an invalidation of the tag has not reached the table. It applies to every page in this process: the order of a
    /// render and the invalidation is known once the table has counted it.
    fn is_pending(&self, key: &Key) -> bool {
        matches!(self.pending.lock().get(key), Some(Pending::Epoch { .. }))
    }
}

/// The counts of the tags of a page that a render saw when it began.
#[derive(Debug)]
pub(crate) struct EpochsBeforeRender {
    counts: BTreeMap<Tag, u64>,
    began: ReadOf,
}

impl PageStore {
    /// The freshness of a page, given its implicit tags and those of its row.
    ///
    /// Epochs are read only for a page that may be served otherwise, and only if they are not cached.
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
        if meta.must_not_serve {
            return Ok(Freshness::MustNotServe);
        }
        let epochs = self.epochs_of(page, meta).await?;
        let freshness = meta.freshness_with(&epochs, now, self.epoch_terms.skew);
        let may_miss_epochs = meta.outlives_epochs(now) && !meta.is_pinned(now);
        // Rows of soft invalidations may have expired. Those of hard ones that are left still apply.
        Ok(if may_miss_epochs && freshness == Freshness::Fresh { Freshness::Stale } else { freshness })
    }

    /// Whether the page is fresh, given its implicit tags and those of its row. Epochs are not read for a page that is stale anyway.
    pub(crate) async fn is_fresh(&self, page: &PageKey, meta: Option<&Meta>) -> Result<bool> {
        let Some(meta) = meta else { return Ok(false) };
        let own = meta.freshness(self.now());
        Ok(own == Freshness::Fresh && self.freshness(page, meta).await? == Freshness::Fresh)
    }

    /// Whether a tag of the page was invalidated since its render began, even if the page is stale anyway.
    pub(crate) async fn is_outdated(&self, page: &PageKey, meta: &Meta) -> Result<bool> {
        if meta.outlives_epochs(self.now()) {
            return Ok(true);
        }
        let epochs = self.epochs_of(page, meta).await?;
        Ok(meta.is_outdated(&epochs, self.epoch_terms.skew))
    }

    /// How a tag of the page was invalidated since its render began, according to the cache of this process alone.
    pub(crate) fn known_invalidation(&self, page: &PageKey, meta: &Meta) -> Option<InvalidationMode> {
        let (generation, now, skew) = (&meta.generation, self.now(), self.epoch_terms.skew);
        let is_hard = |mode: InvalidationMode| mode == InvalidationMode::Hard;
        let modes = tags_of(page, meta).into_iter().filter_map(|tag| {
            let key = tag.key(page.tenant());
            let by = |epoch: Option<&Epoch>| generation.invalidation_by(&tag, epoch, now, skew);
            let known = match self.epochs.cached.get(&key).map(|cached| cached.known) {
                Some(Known::Invalidated { is_hard: false, before }) => {
                    let before = by(before.as_ref()).filter(|_| !is_older(before, &tag, generation));
                    before.or(Some(InvalidationMode::Soft))
                }
                Some(Known::Invalidated { is_hard: true, .. }) => Some(InvalidationMode::Hard),
                // An epoch from before the render says nothing about the page.
                Some(Known::Row(epoch)) if !is_older(epoch, &tag, generation) => by(epoch.as_ref()),
                _ => None,
            };
            known.or_else(|| self.epochs.is_pending(&key).then_some(InvalidationMode::Soft))
        });
        modes.reduce(|one, other| if is_hard(one) { one } else { other })
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

    /// These tags with their epochs. A tag that was never invalidated has none; one whose row cannot be read makes every page
    /// stale. A damaged row is replaced, as if the tag had been invalidated now.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> facetheory::Result<()> {
    /// # use std::sync::Arc;
    /// use facetheory::Tag;
    ///
    /// let store = facetheory::PageStore::new(Arc::new(tabletheory::MemoryTable::new()));
    /// let news = Tag::new("news")?;
    /// assert_eq!(store.epochs(&[news.clone()], None).await?, [(news, None)]);
    /// # Ok(()) }
    /// ```
    pub async fn epochs(&self, tags: &[Tag], tenant: Option<&Tenant>) -> Result<Vec<(Tag, Option<Epoch>)>> {
        let now = self.now();
        self.read_epochs(tags, tenant, |key, _| {
            self.epochs.get(key, self.epoch_terms.max_age, now, &self.known_changes)
        })
        .await
    }

    /// The tags of a page with their epochs. An epoch in the cache that is older than the page is read again: another process
    /// has rendered the page after an invalidation that this process has not noticed yet.
    async fn epochs_of(&self, page: &PageKey, meta: &Meta) -> Result<Vec<(Tag, Option<Epoch>)>> {
        let (now, max_age) = (self.now(), self.epoch_terms.max_age);
        self.read_epochs(&tags_of(page, meta), page.tenant(), |key, tag| {
            let cached = self.epochs.get(key, max_age, now, &self.known_changes);
            cached.filter(|epoch| !is_older(*epoch, tag, &meta.generation))
        })
        .await
    }

    /// These tags with their epochs, which are read if they are not `known`.
    async fn read_epochs(
        &self,
        tags: &[Tag],
        tenant: Option<&Tenant>,
        known: impl Fn(&Key, &Tag) -> Option<Option<Epoch>>,
    ) -> Result<Vec<(Tag, Option<Epoch>)>> {
        /// The time of this invalidation is unknown, so no page with the tag is fresh.
        const ANY_TIME: i64 = i64::MAX;
        let read = self.begin_read();
        let (mut found, mut unknown) = (Vec::with_capacity(tags.len()), Vec::new());
        for tag in tags {
            let key = tag.key(tenant);
            let epoch =
                if self.epochs.is_pending(&key) { Some(Some(Epoch::at(ANY_TIME))) } else { known(&key, tag) };
            if epoch.is_none() {
                unknown.push((found.len(), key));
            }
            found.push((tag.clone(), epoch.flatten()));
        }
        if unknown.is_empty() {
            return Ok(found);
        }
        let (places, keys): (Vec<usize>, Vec<Key>) = unknown.into_iter().unzip();
        let rows = self.table().batch_get(&keys, Consistency::Strong).await?;
        for ((place, key), row) in places.into_iter().zip(&keys).zip(&rows) {
            if row.as_ref().is_some_and(Item::is_damaged)
                && let Err(error) = self.replace_damaged_epoch(key).await
            {
                tracing::warn!(%error, %key, "a damaged tag row could not be replaced; its pages stay stale");
            }
            found[place].1 = match row.as_ref().map(Epoch::read).transpose() {
                Ok(epoch) => {
                    self.epochs.insert(key, epoch, read);
                    epoch
                }
                // This is not cached.
                Err(_) => Some(Epoch::at(ANY_TIME)),
            };
        }
        Ok(found)
    }

    /// Reads rows of a page, and with them the epochs of its implicit tags that are not in the cache, which then has them.
    pub(super) async fn rows_and_epochs<const ROWS: usize>(
        &self,
        page: &PageKey,
        rows: [Key; ROWS],
    ) -> Result<[Option<Item>; ROWS]> {
        let (read, now, max_age) = (self.begin_read(), self.now(), self.epoch_terms.max_age);
        // Without a maximum age, whoever needs an epoch reads it for itself.
        let tags = if max_age.is_zero() { &[] } else { page.tags() };
        let unknown = tags.iter().map(|tag| tag.key(page.tenant()));
        let unknown = unknown.filter(|key| self.epochs.get(key, max_age, now, &self.known_changes).is_none());
        let keys: Vec<Key> = rows.into_iter().chain(unknown).collect();
        let mut found = self.table().batch_get(&keys, Consistency::Strong).await?;
        for (key, row) in keys.iter().zip(&found).skip(ROWS) {
            // One that cannot be read is read again by whoever needs it.
            if let Ok(epoch) = row.as_ref().map(Epoch::read).transpose() {
                self.epochs.insert(key, epoch, read);
            }
        }
        Ok(std::array::from_fn(|index| found[index].take()))
    }

    fn begin_read(&self) -> ReadOf {
        ReadOf {
            at: Moment::now(self.now()),
            changes: self.known_changes.number(),
            written: self.epochs.written.load(Ordering::Acquire),
        }
    }

    /// The counts of the tags of a page that a render which begins now sees: of its implicit tags, those of its route, and those
    /// of the previous version.
    ///
    /// Any count that a tag had before now is safe: if the tag was invalidated later, it has another one. So a row is read only
    /// if no count is known from a moment ago, from the cache or from the previous version, or if it is known to have changed.
    pub(crate) async fn epochs_before_render(
        &self,
        page: &PageKey,
        previous: Option<&Meta>,
    ) -> Result<EpochsBeforeRender> {
        /// How old a count may be that is used without reading the row. With an older one, a page that nobody has requested for
        /// long would be regenerated twice after an invalidation by another process.
        const MAX_AGE: Duration = Duration::from_secs(60);
        let (began, now) = (self.begin_read(), self.now());
        let of_previous = previous.map(|meta| tags_of(page, meta)).unwrap_or_default();
        let is_recent =
            |meta: &&Meta| now.seconds() <= meta.generation.expires_at().saturating_add(seconds(MAX_AGE));
        let seen_before = |tag: &Tag| {
            let seen =
                previous.filter(is_recent)?.generation.seen_epochs().filter(|_| of_previous.contains(tag))?;
            Some(seen.count_of(tag))
        };
        let (mut counts, mut unknown) = (BTreeMap::new(), Vec::new());
        for tag in page.tags().iter().chain(page.expected_tags()).chain(&of_previous) {
            let key = tag.key(page.tenant());
            let cached = self.epochs.get(&key, MAX_AGE, now, &self.known_changes).map(count_of);
            let has_changed = cached.is_none() && self.epochs.has_changed(&key, &self.known_changes);
            // If they differ, one is outdated. It need not be the lesser one: a row that was deleted or damaged counts from
            // another base, and a page that keeps the count from before that would be stale for ever.
            let known = match (cached, seen_before(tag)) {
                (Some(cached), Some(seen)) if cached != seen => None,
                (cached, seen) => cached.or(seen),
            };
            match known.filter(|_| !has_changed) {
                Some(count) => drop(counts.insert(tag.clone(), count)),
                None => unknown.push(tag.clone()),
            }
        }
        let read = self.read_epochs(&unknown, page.tenant(), |_, _| None).await?;
        counts.extend(read.into_iter().map(|(tag, epoch)| (tag, count_of(epoch))));
        Ok(EpochsBeforeRender { counts, began })
    }

    /// The counts of the tags of this page with this generation, as the table has them now.
    pub(super) async fn current_epochs(&self, page: &PageKey, generation: &Generation) -> Result<SeenEpochs> {
        let tags = tags_of(page, &Meta::of(generation.clone()));
        let mut current = SeenEpochs::of_render_at(self.now().seconds());
        for (tag, epoch) in self.read_epochs(&tags, page.tenant(), |_, _| None).await? {
            current.insert(&tag, count_of(epoch));
        }
        Ok(current)
    }

    /// The counts that a render saw, with those of tags that it has brought.
    ///
    /// The row of such a tag could not be read before the render began, unless it is in the cache from before. So its time is
    /// compared: if the tag was last invalidated clearly before the render, its count is the one that the render would have seen.
    /// Otherwise the page has not seen the count, and is regenerated once more.
    pub(crate) async fn seen_epochs(
        &self,
        page: &PageKey,
        rendered: &Generation,
        before: EpochsBeforeRender,
    ) -> SeenEpochs {
        let EpochsBeforeRender { mut counts, began } = before;
        let tags = tags_of(page, &Meta::of(rendered.clone()));
        // New tags, with the count that they had before the render as far as it is known.
        let (mut new, mut earlier) = (Vec::new(), Vec::new());
        for tag in &tags {
            let key = tag.key(page.tenant());
            match self.epochs.cached.get(&key) {
                _ if counts.contains_key(tag) => {}
                // It is known to have changed during the render, by this process or according to the feed.
                _ if self.epochs.has_changed_since(&key, began, &self.known_changes) => {}
                cached => {
                    let before = cached.filter(|cached| cached.read.at.monotonic <= began.at.monotonic);
                    new.push(tag.clone());
                    earlier.push(before.and_then(CachedEpoch::row).map(count_of));
                }
            }
        }
        match self.epochs(&new, page.tenant()).await {
            Ok(read) => {
                for ((tag, epoch), earlier) in read.into_iter().zip(earlier) {
                    let is_before =
                        |epoch: Epoch| !rendered.is_outdated_by_time(&epoch, self.epoch_terms.skew);
                    if earlier == Some(count_of(epoch)) || epoch.is_some_and(is_before) {
                        counts.insert(tag, count_of(epoch));
                    }
                }
            }
            // If one of the tags was ever invalidated, the page is regenerated once more.
            Err(error) => tracing::debug!(%error, "the epochs of new tags could not be read"),
        }
        let mut seen = SeenEpochs::of_render_at(rendered.generated_at);
        tags.iter().for_each(|tag| seen.insert(tag, counts.get(tag).copied().unwrap_or(0)));
        seen
    }
}

/// The count of a tag; zero if its row has none.
fn count_of(epoch: Option<Epoch>) -> u64 {
    epoch.map_or(0, |epoch| epoch.count())
}

/// Whether the epoch of a tag was read before the one that this render saw was written.
fn is_older(epoch: Option<Epoch>, tag: &Tag, generation: &Generation) -> bool {
    generation.seen_epochs().is_some_and(|seen| count_of(epoch) < seen.count_of(tag))
}

/// The tags of a page: its implicit tags, and those of its row.
fn tags_of(page: &PageKey, meta: &Meta) -> Vec<Tag> {
    // Another language may have written a tag that is invalid here. It cannot be invalidated, so it is ignored.
    let explicit = meta.generation.content.tags.iter().filter_map(|tag| Tag::new(tag.as_str()).ok());
    page.tags().iter().cloned().chain(explicit).collect()
}
