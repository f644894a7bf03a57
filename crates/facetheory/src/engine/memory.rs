//! The memory tier: pages that this process has served, bounded by their bytes.

use std::hash::{BuildHasher, DefaultHasher, Hash, Hasher};
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};
use std::time::Duration;

use quick_cache::sync::{Cache, DefaultLifecycle};
use quick_cache::sync::{EntryAction, EntryResult};
use quick_cache::{Equivalent, UnitWeighter, Weighter};
use tabletheory::{Random, Timestamp};

use super::cached_page::CachedPage;
use crate::protocol::generation::Generation;
use crate::protocol::key::PageKey;

/// What an entry costs besides the bytes that it names: the cache's own slot and key, reference counts, and what the
/// allocator rounds up. Measured, see docs/internals/benchmarks.md.
const OVERHEAD: u64 = 512;
/// The size of a page for which the cache's tables are laid out.
const TYPICAL_WEIGHT: u64 = 8 * 1024;
/// Invalidations of single pages are told apart by so many counters.
const COUNTERS: usize = 1024;
/// So many pages are remembered as forbidden.
const MOST_FORBIDDEN: usize = 1024;
/// As so many invalidations counts one that forbids a page. More of the others only make a page forgotten in vain.
const FORBIDDEN: u64 = 1 << 32;

/// Which page an entry is of.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Slot {
    tenant: Option<Box<str>>,
    cache_key: Box<str>,
}

impl Slot {
    pub(super) fn of(page: &PageKey) -> Self {
        Slot {
            tenant: page.tenant().map(|tenant| tenant.as_str().into()),
            cache_key: page.cache_key().into(),
        }
    }
}

impl Hash for Slot {
    fn hash<H: Hasher>(&self, state: &mut H) {
        SlotRef(self.tenant.as_deref(), &self.cache_key).hash(state);
    }
}

/// The same without owning it, so that a look-up allocates nothing.
#[derive(Hash)]
struct SlotRef<'a>(Option<&'a str>, &'a str);

impl<'a> SlotRef<'a> {
    fn of(page: &'a PageKey) -> Self {
        SlotRef(page.tenant().map(crate::Tenant::as_str), page.cache_key())
    }

    /// The page that a page is a variant of.
    fn of_address(page: &'a PageKey) -> Self {
        SlotRef(page.tenant().map(crate::Tenant::as_str), page.address())
    }
}

impl Equivalent<Slot> for SlotRef<'_> {
    fn equivalent(&self, slot: &Slot) -> bool {
        self.0 == slot.tenant.as_deref() && self.1 == &*slot.cache_key
    }
}

/// A page in memory, and what the table said of it when it was last asked. Another answer is another entry.
#[derive(Debug)]
pub(super) struct Entry {
    pub(super) page: Arc<CachedPage>,
    /// The bytes that it counts for. The cache must find it as heavy as it was when it came.
    weight: usize,
    checked: MetadataCheck,
    /// How long it took to render here, in milliseconds; 0 if it was not rendered here.
    render_millis: u64,
    /// Until when another process holds the lease, in epoch seconds, as far as is known.
    held_until: AtomicI64,
}

impl Entry {
    pub(super) fn new(page: CachedPage, checked: MetadataCheck, render_millis: u64) -> Self {
        Entry::of(Arc::new(page), checked, render_millis)
    }

    fn of(page: Arc<CachedPage>, checked: MetadataCheck, render_millis: u64) -> Self {
        let (weight, held_until) = (page.weight(), AtomicI64::new(checked.held_until));
        Entry { page, weight, checked, render_millis, held_until }
    }

    /// The same page, of which the table has said this since.
    pub(super) fn checked_again(&self, checked: MetadataCheck) -> Self {
        Entry::of(self.page.clone(), checked, self.render_millis)
    }

    /// What the table said of it when it was asked last.
    pub(super) fn checked(&self) -> MetadataCheck {
        self.checked
    }

    /// Whether the table said that it is stale, if only by its tags.
    pub(super) fn is_outdated(&self) -> bool {
        self.checked.outdated
    }

    pub(super) fn is_held(&self, now: Timestamp) -> bool {
        self.held_until.load(Ordering::Relaxed) > now.seconds()
    }

    pub(super) fn hold_until(&self, until: i64) {
        self.held_until.store(until, Ordering::Relaxed);
    }

    pub(super) fn render_millis(&self) -> u64 {
        self.render_millis
    }
}

/// What the table said when it was asked.
#[derive(Clone, Copy, Debug)]
pub(super) struct MetadataCheck {
    /// Before the table was asked, since its answer may be older than its arrival.
    pub(super) at: Timestamp,
    /// As it was before the table was asked: an invalidation since then makes the answer too old.
    pub(super) sequence: u64,
    /// Whether it said that the page is stale, by its times or its tags.
    pub(super) outdated: bool,
    /// Whether it said that the page was invalidated; asked only of pages that follow their origin.
    pub(super) invalidated: bool,
    pub(super) held_until: i64,
}

/// When a visitor came, and how many invalidations this process had made by then.
#[derive(Clone, Copy, Debug)]
pub(super) struct RequestStart {
    pub(super) at: Timestamp,
    pub(super) sequence: u64,
}

impl RequestStart {
    /// Whether what the table said is recent enough for this visitor, although it was asked for somebody else.
    pub(super) fn believes(&self, checked: MetadataCheck, for_long: Duration) -> bool {
        let age = self.at.millis() - checked.at.millis();
        age < millis(for_long) && checked.sequence >= self.sequence
    }
}

fn millis(duration: Duration) -> i64 {
    i64::try_from(duration.as_millis()).unwrap_or(i64::MAX)
}

/// Pages in memory.
#[derive(Debug)]
pub(super) struct Memory {
    pages: Cache<Slot, Arc<Entry>, Weigh, Keyed>,
    hasher: Keyed,
    /// How often pages of each of some groups were invalidated through this process.
    invalidated: Box<[AtomicU64]>,
    /// How often anything else was: a tag, say.
    swept: AtomicU64,
    /// Which bodies the table has lately said must not be served, as of which time.
    forbidden: Cache<Slot, (Box<str>, i64), UnitWeighter, Keyed>,
}

/// Hashes with a secret: visitors choose the keys of pages, and must not be able to choose many that are found in one place.
/// The secret is drawn like everything random, so that a simulation is the same each time.
#[derive(Clone, Debug)]
struct Keyed(DefaultHasher);

impl Keyed {
    fn new(random: &dyn Random) -> Self {
        let mut hasher = DefaultHasher::new();
        hasher.write_u64(random.next_u64());
        hasher.write_u64(random.next_u64());
        Keyed(hasher)
    }
}

impl BuildHasher for Keyed {
    type Hasher = DefaultHasher;

    fn build_hasher(&self) -> DefaultHasher {
        self.0.clone()
    }
}

#[derive(Clone, Debug)]
struct Weigh;

impl Weighter<Slot, Arc<Entry>> for Weigh {
    fn weight(&self, slot: &Slot, entry: &Arc<Entry>) -> u64 {
        let key = slot.cache_key.len() + slot.tenant.as_ref().map_or(0, |tenant| tenant.len());
        OVERHEAD + u64::try_from(key + entry.weight).unwrap_or(u64::MAX / 2)
    }
}

impl Memory {
    /// At most so many bytes.
    pub(super) fn new(bytes: u64, random: &dyn Random) -> Self {
        let items = usize::try_from(bytes / TYPICAL_WEIGHT).unwrap_or(usize::MAX).max(16);
        let hasher = Keyed::new(random);
        Memory {
            pages: Cache::with(items, bytes, Weigh, hasher.clone(), DefaultLifecycle::default()),
            forbidden: Cache::with(
                MOST_FORBIDDEN,
                MOST_FORBIDDEN as u64,
                UnitWeighter,
                hasher.clone(),
                DefaultLifecycle::default(),
            ),
            hasher,
            invalidated: (0..COUNTERS).map(|_| AtomicU64::new(0)).collect(),
            swept: AtomicU64::new(0),
        }
    }

    pub(super) fn get(&self, page: &PageKey) -> Option<Arc<Entry>> {
        self.pages.get(&SlotRef::of(page))
    }

    /// Keeps a page, and returns its entry, which is good even if it did not fit.
    pub(super) fn keep(&self, page: &PageKey, entry: Entry) -> Arc<Entry> {
        let entry = Arc::new(entry);
        self.pages.insert(Slot::of(page), entry.clone());
        self.forget_if_forbidden(page, &entry);
        entry
    }

    /// What was forbidden while it was read must not come back after it was forgotten. Looked at after the insert, since whoever
    /// forbids says so first and forgets then. What only went stale is not believed, but there if the table goes away.
    fn forget_if_forbidden(&self, page: &PageKey, entry: &Entry) {
        let seen = (!self.forbidden.is_empty()).then(|| self.forbidden.get(&SlotRef::of(page))).flatten();
        let is_seen = seen.is_some_and(|(s3_key, generated_at)| {
            let generation = entry.page.generation();
            *s3_key == *generation.s3_key && generation.generated_at <= generated_at
        });
        if is_seen || entry.checked.sequence / FORBIDDEN != self.sequence(page) / FORBIDDEN {
            self.forget(page);
        }
    }

    /// A page has become heavier, if it is still here.
    pub(super) fn update_weight(&self, page: &PageKey, entry: &Arc<Entry>) {
        let is_it = |_: &Slot, kept: &mut Arc<Entry>| {
            if Arc::ptr_eq(kept, entry) { EntryAction::ReplaceWithGuard } else { EntryAction::Retain(()) }
        };
        // Nothing newer is replaced: whoever keeps or forgets the page meanwhile takes its place away.
        if let EntryResult::Replaced(place, _) =
            self.pages.entry(&Slot::of(page), Some(Duration::ZERO), is_it)
        {
            let heavier = Arc::new(entry.checked_again(entry.checked()));
            if place.insert(heavier.clone()).is_ok() {
                self.forget_if_forbidden(page, &heavier);
            }
        }
    }

    pub(super) fn forget(&self, page: &PageKey) {
        self.pages.remove(&SlotRef::of(page));
    }

    /// How many bytes its entries count for.
    pub(super) fn weight(&self) -> u64 {
        self.pages.weight()
    }

    pub(super) fn len(&self) -> usize {
        self.pages.len()
    }

    /// How many invalidations through this process concerned a page so far.
    pub(super) fn sequence(&self, page: &PageKey) -> u64 {
        // What concerns a page concerns its variants.
        let of_all = if page.is_variant() {
            self.counter_at(&SlotRef::of_address(page)).load(Ordering::Acquire)
        } else {
            0
        };
        self.counter(page).load(Ordering::Acquire) + self.swept.load(Ordering::Acquire) + of_all
    }

    /// A page must not be served any more, not even if the table cannot be reached, and neither must its variants.
    pub(super) fn forbid(&self, page: &PageKey) {
        self.counter(page).fetch_add(FORBIDDEN, Ordering::AcqRel);
        self.forget(page);
        if page.has_variants() {
            let (tenant, prefix) = (page.tenant().map(crate::Tenant::as_str), page.variant_prefix());
            self.pages
                .retain(|slot, _| slot.tenant.as_deref() != tenant || !slot.cache_key.starts_with(&*prefix));
        }
    }

    /// The table says that a page must not be served as it was generated then. Said of what is asked about again and again, so it
    /// makes no other page doubtful.
    pub(super) fn forbid_generation(&self, page: &PageKey, generation: &Generation) {
        let (s3_key, generated_at) = (generation.s3_key.as_str().into(), generation.generated_at);
        self.forbidden.insert(Slot::of(page), (s3_key, generated_at));
        self.forget(page);
    }

    /// A page was invalidated: nothing that was read of it or of its variants before is believed any more.
    pub(super) fn mark_unverified(&self, page: &PageKey) {
        self.counter(page).fetch_add(1, Ordering::AcqRel);
    }

    /// A tag was invalidated: whose pages are concerned is for the table to say.
    pub(super) fn mark_all_unverified(&self) {
        self.swept.fetch_add(1, Ordering::AcqRel);
    }

    /// Whether what the table said of an entry is recent enough. A clock that was set back makes it too old.
    pub(super) fn believes(&self, page: &PageKey, entry: &Entry, now: Timestamp, for_long: Duration) -> bool {
        let age = now.millis() - entry.checked.at.millis();
        (0..millis(for_long)).contains(&age) && entry.checked.sequence == self.sequence(page)
    }

    fn counter(&self, page: &PageKey) -> &AtomicU64 {
        self.counter_at(&SlotRef::of(page))
    }

    fn counter_at(&self, slot: &SlotRef<'_>) -> &AtomicU64 {
        let index = usize::try_from(self.hasher.hash_one(slot) % COUNTERS as u64).unwrap_or(0);
        &self.invalidated[index]
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashSet;
    use tabletheory::{SeededRandom, SystemRandom};

    fn entry(memory: &Memory, page: &PageKey, body: &'static str) -> Entry {
        let meta = crate::protocol::Meta::of(Generation::new(body, 1, 60));
        let (at, sequence) = (Timestamp::from_seconds(1), memory.sequence(page));
        let checked = MetadataCheck { at, sequence, outdated: false, invalidated: false, held_until: 0 };
        let body = crate::Body { bytes: body.into(), ..crate::Body::default() };
        Entry::new(CachedPage::new(meta, body), checked, 0)
    }

    #[test]
    fn a_page_that_became_heavier_replaces_nothing_newer_and_does_not_come_back() {
        let (memory, page) = (Memory::new(1 << 20, &SystemRandom), PageKey::new("/a").expect("a page"));
        let first = memory.keep(&page, entry(&memory, &page, "first"));
        memory.update_weight(&page, &first);
        assert_eq!(memory.get(&page).expect("it is here").page.bytes(), "first");
        memory.keep(&page, entry(&memory, &page, "second"));
        memory.update_weight(&page, &first);
        assert_eq!(memory.get(&page).expect("it is here").page.bytes(), "second");
        for _ in 0..2000 {
            let kept = memory.keep(&page, entry(&memory, &page, "first"));
            std::thread::scope(|scope| {
                scope.spawn(|| memory.update_weight(&page, &kept));
                memory.forbid(&page);
            });
            assert!(memory.get(&page).is_none(), "it is forbidden");
            memory.update_weight(&page, &kept);
            assert!(memory.get(&page).is_none(), "it is gone");
        }
    }

    #[test]
    fn what_the_table_forbids_is_not_kept_and_what_was_generated_since_is() {
        let (memory, page) = (Memory::new(1 << 20, &SystemRandom), PageKey::new("/a").expect("a page"));
        let (slow, newer) = (entry(&memory, &page, "first"), entry(&memory, &page, "second"));
        memory.forbid_generation(&page, slow.page.generation());
        memory.keep(&page, slow);
        assert!(memory.get(&page).is_none(), "it was read before");
        memory.keep(&page, newer);
        assert_eq!(memory.get(&page).expect("it is here").page.bytes(), "second");
    }

    #[test]
    fn the_same_random_numbers_put_keys_in_the_same_places() {
        let place = |seed| {
            Memory::new(1 << 20, &SeededRandom::new(seed))
                .hasher
                .hash_one(SlotRef::of(&PageKey::new("/a").expect("a page")))
        };
        assert_eq!(place(1), place(1), "a simulation is the same each time");
        assert_ne!(place(1), place(2));
    }

    #[test]
    fn keys_that_meet_in_the_memory_of_one_process_are_scattered_in_that_of_another() {
        const PLACES: u64 = 256;
        const KEYS: usize = 64;
        const BYTES: u64 = 1 << 20;
        let [one, other] = [(); 2].map(|()| Memory::new(BYTES, &SystemRandom));
        let place = |memory: &Memory, page: &PageKey| memory.hasher.hash_one(SlotRef::of(page)) % PLACES;
        let pages = (0..).map(|number: u64| PageKey::new(format!("/page?{number}")).expect("a page"));
        let crafted: Vec<PageKey> = pages.filter(|page| place(&one, page) == 0).take(KEYS).collect();
        let places: HashSet<u64> = crafted.iter().map(|page| place(&other, page)).collect();
        assert!(places.len() > KEYS / 2, "{KEYS} keys are in {} places", places.len());
    }
}
