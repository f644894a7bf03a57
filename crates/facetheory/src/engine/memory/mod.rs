//! The memory tier: pages that this process has served, bounded by their bytes.

mod entry;
mod evicted;
mod invalidations;
mod key;

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use quick_cache::sync::{Cache, DefaultLifecycle, EntryAction, EntryResult};
use quick_cache::{Equivalent as _, UnitWeighter, Weighter};
use tabletheory::{Random, Timestamp};

pub(super) use self::entry::{Entry, Metadata, MetadataCheck, Snapshot};
use self::evicted::{CollectEvicted, Evicted, EvictedPages, METADATA_DIVISOR};
use self::invalidations::Invalidations;
pub(super) use self::key::{MemoryKey, MemoryKeyRef, SecretHasher};

use crate::engine::{CachedPage, MemoryBudget};
use crate::protocol::Generation;
use crate::store::{KnownChanges, Moment};
use crate::{PageKey, Tenant};

/// The bytes of an entry besides those that it counts itself: the slot and the key in the cache, reference counts, and the
/// rounding of the allocator. Measured: see docs/internals/benchmarks.md.
const OVERHEAD: u64 = 512;
/// The size of a page for which the tables of the cache are laid out.
const TYPICAL_WEIGHT: u64 = 8 * 1024;
/// The number of generations that are remembered as hard invalidated.
const MAX_HARD_INVALIDATED: usize = 1024;

/// Pages in memory.
#[derive(Debug)]
pub(super) struct Memory {
    pages: Cache<MemoryKey, Arc<Entry>, ByWeight, SecretHasher, CollectEvicted>,
    /// The metadata of pages whose bodies are not in memory any more.
    evicted: EvictedPages,
    invalidations: Invalidations,
    /// Generations that must not be served, according to the table.
    hard_invalidated: Cache<MemoryKey, HardInvalidated, UnitWeighter, SecretHasher>,
    /// Changes of other processes.
    changes: Arc<KnownChanges>,
    /// The budget of which the pages are a part. The metadata of evicted pages has a part of its own.
    pub(super) budget: Arc<MemoryBudget>,
    /// The most bytes of the metadata of evicted pages.
    for_metadata: u64,
}

/// An S3 key, and the latest `generated_at` with it that must not be served. (Renders without a change share a body.)
#[derive(Clone, Debug)]
struct HardInvalidated {
    s3_key: Box<str>,
    generated_at: i64,
}

/// A value of a cache that has a limit of bytes.
trait Weighed {
    /// The bytes that it takes in the cache, with its key.
    fn weight(&self, key: &MemoryKey) -> u64;
}

impl Weighed for Entry {
    fn weight(&self, key: &MemoryKey) -> u64 {
        OVERHEAD + u64::try_from(key.len() + self.weight).unwrap_or(u64::MAX / 2)
    }
}

#[derive(Clone, Debug)]
struct ByWeight;

impl<T: Weighed> Weighter<MemoryKey, Arc<T>> for ByWeight {
    fn weight(&self, key: &MemoryKey, value: &Arc<T>) -> u64 {
        value.weight(key)
    }
}

impl Memory {
    /// A tier for this many bytes of pages, and this many bytes of bodies in flight besides.
    pub(super) fn new(
        max_bytes: u64,
        in_flight: u64,
        random: &dyn Random,
        changes: Arc<KnownChanges>,
    ) -> Self {
        let for_metadata = max_bytes / METADATA_DIVISOR;
        let max_bytes = max_bytes - for_metadata;
        let items = usize::try_from(max_bytes / TYPICAL_WEIGHT).unwrap_or(usize::MAX).max(16);
        let hasher = SecretHasher::new(random);
        Memory {
            pages: Cache::with(items, max_bytes, ByWeight, hasher.clone(), CollectEvicted),
            evicted: EvictedPages::new(for_metadata, hasher.clone()),
            invalidations: Invalidations::new(hasher.clone()),
            hard_invalidated: Cache::with(
                MAX_HARD_INVALIDATED,
                MAX_HARD_INVALIDATED as u64,
                UnitWeighter,
                hasher,
                DefaultLifecycle::default(),
            ),
            changes,
            for_metadata,
            budget: MemoryBudget::new(max_bytes.saturating_add(in_flight)),
        }
    }

    pub(super) fn get(&self, page: &PageKey) -> Option<Arc<Entry>> {
        self.pages.get(&MemoryKeyRef::from(page))
    }

    /// Like [`get`](Self::get), and does not count as a use of the page.
    pub(super) fn peek(&self, page: &PageKey) -> Option<Arc<Entry>> {
        self.pages.peek(&MemoryKeyRef::from(page))
    }

    /// Stores a page, and returns its entry even if that is too large for the cache.
    pub(super) fn insert(&self, page: &PageKey, entry: Entry) -> Arc<Entry> {
        let (entry, mut evicted) = (Arc::new(self.counted(page, entry)), Evicted::new());
        self.pages.insert_with_lifecycle(page.into(), entry.clone(), &mut evicted);
        self.keep_metadata(page, &entry, evicted);
        self.remove_if_hard_invalidated(page, &entry);
        entry
    }

    /// Counts the bytes of an entry besides its body in the budget.
    fn counted(&self, page: &PageKey, mut entry: Entry) -> Entry {
        let key = page.cache_key().len() + page.tenant().map_or(0, |tenant| tenant.as_str().len());
        entry.permit = Some(self.budget.count(OVERHEAD + (key + entry.weight_without_body()) as u64));
        entry
    }

    /// Keeps the metadata of the pages that the insert of this one has evicted.
    fn keep_metadata(&self, page: &PageKey, inserted: &Arc<Entry>, evicted: Evicted) {
        // A new entry replaces the metadata of an earlier one, and is evicted itself if it is too large.
        self.evicted.remove(page);
        let page = MemoryKeyRef::from(page);
        for (key, entry) in evicted {
            // A page that is not published yet has no body that could be read again.
            let is_stored = !entry.page.generation().s3_key.is_empty();
            if is_stored && (Arc::ptr_eq(&entry, inserted) || !page.equivalent(&key)) {
                self.evicted.insert(key, &entry);
            }
        }
    }

    /// The metadata of a page whose body is not in memory any more.
    pub(super) fn evicted(&self, page: &PageKey) -> Option<Arc<Metadata>> {
        self.evicted.get(page).filter(|metadata| !self.must_not_serve(page, metadata))
    }

    /// Forgets the metadata of a page whose body is not in memory any more.
    pub(super) fn forget_evicted(&self, page: &PageKey) {
        self.evicted.remove(page);
    }

    /// Removes a page that was hard invalidated while it was read. Called after an insert: an invalidation is recorded
    /// before the page is removed, so that either this call or the invalidation removes it. A page that only became stale
    /// stays, for the time when the table is unreachable.
    fn remove_if_hard_invalidated(&self, page: &PageKey, entry: &Entry) {
        if self.must_not_serve(page, entry) {
            self.remove(page);
        }
    }

    /// Whether this process knows that a page was hard invalidated since its metadata was read.
    pub(super) fn must_not_serve(&self, page: &PageKey, metadata: &Metadata) -> bool {
        let known = &self.hard_invalidated;
        let known = (!known.is_empty()).then(|| known.get(&MemoryKeyRef::from(page)));
        let is_known = known.flatten().is_some_and(|invalidated| {
            let generation = &metadata.meta.generation;
            *invalidated.s3_key == *generation.s3_key && generation.generated_at <= invalidated.generated_at
        });
        is_known || metadata.check.before.invalidations.hard != self.invalidations.count(page).hard
    }

    /// Recounts the bytes of an entry after its page has grown (compressed forms), if it is still in memory.
    pub(super) fn update_weight(&self, page: &PageKey, entry: &Arc<Entry>) {
        self.replace(page, entry, entry.checked_again(entry.check));
    }

    /// Replaces an entry by another one, if it is still in memory.
    pub(super) fn replace(&self, page: &PageKey, entry: &Arc<Entry>, other: Entry) {
        let replace_same = |_: &MemoryKey, present: &mut Arc<Entry>| {
            if Arc::ptr_eq(present, entry) { EntryAction::ReplaceWithGuard } else { EntryAction::Retain(()) }
        };
        // A concurrent insert or removal invalidates the guard, so that nothing newer is replaced.
        if let EntryResult::Replaced(guard, _) =
            self.pages.entry(&MemoryKey::from(page), Some(Duration::ZERO), replace_same)
        {
            let (other, mut evicted) = (Arc::new(self.counted(page, other)), Evicted::new());
            if guard.insert_with_lifecycle(other.clone(), &mut evicted).is_ok() {
                self.keep_metadata(page, &other, evicted);
                self.remove_if_hard_invalidated(page, &other);
            }
        }
    }

    /// Forgets a page that does not exist any more.
    pub(super) fn forget(&self, page: &PageKey) {
        self.remove(page);
    }

    /// Removes a page, unless memory has another one by now.
    pub(super) fn remove_page(&self, key: &PageKey, page: &Arc<CachedPage>) {
        self.pages.remove_if(&MemoryKeyRef::from(key), |present| Arc::ptr_eq(&present.page, page));
    }

    fn remove(&self, page: &PageKey) {
        self.pages.remove(&MemoryKeyRef::from(page));
        self.evicted.remove(page);
    }

    /// The number of entries, and the bytes that they and the metadata of evicted pages count for.
    pub(super) fn size(&self) -> (usize, u64) {
        (self.pages.len(), self.pages.weight() + self.evicted.weight())
    }

    /// The bytes of the budget that are used, and the limit. They include the metadata of evicted pages.
    pub(super) fn budget(&self) -> (u64, u64) {
        (self.budget.used() + self.evicted.weight(), self.budget.limit() + self.for_metadata)
    }

    /// This time, the invalidations of a page that this process has made until now, and the number of changes of other
    /// processes that it knows.
    pub(super) fn snapshot(&self, page: &PageKey, now: Timestamp) -> Snapshot {
        let (invalidations, known_changes) = (self.invalidations.count(page), self.changes.number());
        Snapshot { at: Moment::now(now), invalidations, known_changes }
    }

    /// Removes a page and its variants, which must not be served any more, not even while the table is unreachable.
    ///
    /// Pages share counters, so other pages are read again too before they are served.
    pub(super) fn invalidate_hard(&self, page: &PageKey) {
        self.invalidations.counter(&page.into()).hard.fetch_add(1, Ordering::AcqRel);
        self.remove(page);
        if page.has_variants() {
            let (tenant, prefix) = (page.tenant().map(Tenant::as_str), page.variant_prefix());
            let is_other =
                |key: &MemoryKey| key.tenant.as_deref() != tenant || !key.cache_key.starts_with(&*prefix);
            self.pages.retain(|key, _| is_other(key));
            self.evicted.retain(is_other);
        }
    }

    /// Removes a page because the table says that this generation must not be served. This happens at every lookup of
    /// such a page, so it must not make other pages be read again as [`invalidate_hard`](Self::invalidate_hard) does.
    pub(super) fn remove_generation(&self, page: &PageKey, generation: &Generation) {
        let (s3_key, generated_at) = (generation.s3_key.as_str().into(), generation.generated_at);
        self.hard_invalidated.insert(page.into(), HardInvalidated { s3_key, generated_at });
        self.remove(page);
    }

    /// Makes the next request for a page or one of its variants read the metadata again.
    pub(super) fn mark_unverified(&self, page: &PageKey) {
        self.invalidations.counter(&page.into()).soft.fetch_add(1, Ordering::AcqRel);
    }

    /// Makes the next request for every page read the metadata again. Used for tags: only the table knows their pages.
    pub(super) fn mark_all_unverified(&self) {
        self.invalidations.all.fetch_add(1, Ordering::AcqRel);
    }

    /// Whether metadata was read recently enough. After the clock was set back it was not.
    pub(super) fn is_current(
        &self,
        page: &PageKey,
        metadata: &Metadata,
        now: Timestamp,
        max_age: Duration,
    ) -> bool {
        let before = metadata.check.before;
        before.at.is_recent(now, max_age) && before.invalidations == self.invalidations.count(page)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Bodies, Isr, PageStore, Pages};
    use std::hash::{BuildHasher as _, BuildHasherDefault, DefaultHasher};
    use tabletheory::{MemoryTable, SeededRandom};

    fn memory() -> (Memory, PageKey) {
        (Memory::new(1 << 20, 0, &SeededRandom::new(1), Arc::default()), PageKey::new("/a").expect("a page"))
    }

    #[test]
    fn each_process_hashes_the_keys_of_pages_with_a_secret_of_its_own() {
        let [one, other] = [(); 2].map(|()| {
            let store = PageStore::new(Arc::new(MemoryTable::new()));
            Isr::new(Pages::new(store, Bodies::memory()))
        });
        let page = MemoryKeyRef(None, "/a");
        let hash = |isr: &Isr| isr.engine.memory.invalidations.hasher.hash_one(&page);
        let without_secret = BuildHasherDefault::<DefaultHasher>::default().hash_one(&page);
        assert_ne!(hash(&one), without_secret);
        assert_ne!(hash(&one), hash(&other));
    }

    fn entry(memory: &Memory, page: &PageKey, body: &'static str) -> Entry {
        let meta = crate::protocol::Meta::of(Generation::new(body, 1, 60));
        let check = MetadataCheck::before_render(memory.snapshot(page, Timestamp::from_seconds(1)));
        let body = crate::Body { bytes: body.into(), ..crate::Body::default() };
        Entry::new(CachedPage::new(meta, body).into(), check, Duration::ZERO)
    }

    #[test]
    fn an_update_of_the_weight_neither_replaces_a_newer_entry_nor_restores_a_removed_one() {
        let (memory, page) = memory();
        let first = memory.insert(&page, entry(&memory, &page, "first"));
        memory.update_weight(&page, &first);
        assert_eq!(memory.get(&page).expect("an entry").page.bytes(), "first");
        memory.insert(&page, entry(&memory, &page, "second"));
        memory.update_weight(&page, &first);
        assert_eq!(memory.get(&page).expect("an entry").page.bytes(), "second");
        for _ in 0..2000 {
            let inserted = memory.insert(&page, entry(&memory, &page, "first"));
            std::thread::scope(|scope| {
                scope.spawn(|| memory.update_weight(&page, &inserted));
                memory.invalidate_hard(&page);
            });
            assert!(memory.get(&page).is_none(), "hard invalidated");
            memory.update_weight(&page, &inserted);
            assert!(memory.get(&page).is_none(), "removed");
        }
    }

    #[test]
    fn a_generation_that_must_not_be_served_is_not_stored_but_a_later_one_is() {
        let (memory, page) = memory();
        let (slow, newer) = (entry(&memory, &page, "first"), entry(&memory, &page, "second"));
        memory.remove_generation(&page, slow.page.generation());
        memory.insert(&page, slow);
        assert!(memory.get(&page).is_none(), "it was read before");
        memory.insert(&page, newer);
        assert_eq!(memory.get(&page).expect("an entry").page.bytes(), "second");
    }

    /// Stores a page, and then others, which are used more often, until its body is evicted.
    fn insert_and_evict(memory: &Memory, page: &PageKey, body: &'static str) -> Arc<Entry> {
        let inserted = memory.insert(page, entry(memory, page, body));
        for number in 0..100_000 {
            let other = PageKey::new(format!("/{body}/{number}")).expect("a page");
            memory.insert(&other, entry(memory, &other, "other"));
            memory.get(&other);
            if memory.peek(page).is_none() {
                return inserted;
            }
        }
        panic!("the page is not evicted");
    }

    #[test]
    fn the_metadata_of_an_evicted_page_stays_until_the_page_is_replaced() {
        let (memory, page) = memory();
        let first = insert_and_evict(&memory, &page, "first");
        first.set_known_changes(7);
        let kept = memory.evicted(&page).expect("metadata");
        assert_eq!((&*kept.meta.generation.s3_key, kept.known_changes()), ("first", 7));
        memory.insert(&page, entry(&memory, &page, "second"));
        assert!(memory.evicted(&page).is_none(), "the page is in memory");
        insert_and_evict(&memory, &page, "second");
        assert_eq!(memory.evicted(&page).expect("metadata").meta.generation.s3_key, "second");
        assert!(memory.size().1 <= 1 << 20, "bodies and metadata share the bytes");
    }

    #[test]
    fn a_page_counts_in_the_budget_while_it_is_in_memory() {
        let (memory, page) = memory();
        let inserted = memory.insert(&page, entry(&memory, &page, "first"));
        // The body of this test has no permit of its own.
        assert_eq!(memory.budget.used() + 5, memory.pages.weight());
        memory.update_weight(&page, &inserted);
        drop(inserted);
        assert_eq!(memory.budget.used() + 5, memory.pages.weight(), "one of two entries is left");
        memory.remove(&page);
        assert_eq!(memory.budget(), (0, 1 << 20));
    }

    #[test]
    fn the_metadata_of_a_page_that_must_not_be_served_does_not_stay() {
        let (memory, page) = memory();
        let page = page.with_variants();
        let variant = page.variant("1").expect("a variant");
        for invalidated in [&page, &variant] {
            insert_and_evict(&memory, &variant, "first");
            assert!(memory.evicted.get(&variant).is_some());
            memory.invalidate_hard(invalidated);
            assert!(memory.evicted.get(&variant).is_none(), "hard invalidated");
        }
        let entry = insert_and_evict(&memory, &variant, "second");
        memory.remove_generation(&variant, &entry.meta.generation);
        assert!(memory.evicted.get(&variant).is_none(), "the table says that it must not be served");
        // An insert that evicted the page before may store its metadata only now.
        memory.evicted.insert((&variant).into(), &entry);
        assert!(memory.evicted(&variant).is_none());
    }

    #[test]
    fn an_invalidation_makes_the_metadata_of_a_page_and_its_variants_outdated() {
        let (memory, page) = memory();
        let page = page.with_variants();
        let (variant, other) = (page.variant("1").expect("a variant"), PageKey::new("/b").expect("a page"));
        let current = |of: &PageKey, entry: &Entry| {
            memory.is_current(of, entry, Timestamp::from_seconds(1), Duration::from_secs(10))
        };
        let entries = [&page, &variant, &other].map(|page| (page, entry(&memory, page, "a")));
        memory.mark_unverified(&page);
        assert_eq!(entries.each_ref().map(|(page, entry)| current(page, entry)), [false, false, true]);
        memory.mark_all_unverified();
        assert!(!current(&other, &entries[2].1));
    }
}
