//! The limit of variants of one page, by which the least used of them are evicted.

use std::collections::HashMap;
use std::hash::{BuildHasher as _, RandomState};
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use quick_cache::sync::Cache;
use tabletheory::Timestamp;

use crate::protocol::key::PageKey;

/// How often the numbers of uses are halved, so that variants which are not used any more are evicted.
const HALVED_EVERY: Duration = Duration::from_secs(3600);
/// The most pages whose variants are counted.
const MAX_COUNTED_PAGES: usize = 4_000;
/// The longest part of a key that is remembered, so that its variant can be evicted. It contains digests.
const MAX_DISTINCTION_BYTES: usize = 128;

/// Limits how many variants of a page are cached. Clients choose how many there are and how long their keys are, so they are
/// counted by keyed hashes.
#[derive(Debug)]
pub(crate) struct VariantLimiter {
    /// Besides the page itself.
    limit: usize,
    hasher: RandomState,
    pages: Cache<u64, Arc<Mutex<Variants>>>,
}

#[derive(Debug, Default)]
struct Variants {
    halved_at: i64,
    /// How many variants were counted so far.
    counted: u64,
    by_hash: HashMap<u64, Variant>,
}

#[derive(Debug)]
struct Variant {
    /// The text that distinguishes it from the others, unless that is too long.
    distinction: Option<Box<str>>,
    /// How often it was served from the cache.
    uses: u32,
    /// The order in which variants were cached.
    number: u64,
}

/// Whether a variant may be cached.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Admission {
    Admitted,
    /// It takes the place of this variant, which must be evicted first.
    Replaces(Box<PageKey>),
    Refused,
}

impl VariantLimiter {
    /// The page itself counts as a variant.
    pub(crate) fn new(variants_per_page: usize) -> Self {
        VariantLimiter {
            limit: variants_per_page.saturating_sub(1),
            hasher: RandomState::new(),
            pages: Cache::new(MAX_COUNTED_PAGES),
        }
    }

    /// Whether a variant could be cached now: there is room for it, or it could replace another one.
    pub(crate) fn has_place(&self, variant: &PageKey) -> bool {
        let (page, hash) = self.hashes(variant);
        let Some(variants) = self.pages.get(&page) else { return self.limit > 0 };
        let variants = variants.lock();
        variants.by_hash.contains_key(&hash)
            || variants.by_hash.len() < self.limit
            || variants.least_used(variant).is_some()
    }

    /// Counts a variant that is about to be cached.
    pub(crate) fn admit(&self, variant: &PageKey, now: Timestamp) -> Admission {
        let (page, hash) = self.hashes(variant);
        let Ok(variants) =
            self.pages.get_or_insert_with::<_, std::convert::Infallible>(&page, || Ok(Arc::default()));
        let mut variants = variants.lock();
        variants.forget_old_uses(now);
        if variants.by_hash.contains_key(&hash) {
            return Admission::Admitted;
        }
        let mut admission = Admission::Admitted;
        if variants.by_hash.len() >= self.limit {
            let Some((least, page)) = variants.least_used(variant) else { return Admission::Refused };
            variants.by_hash.remove(&least);
            admission = Admission::Replaces(Box::new(page));
        }
        variants.counted += 1;
        let distinction = Some(variant.distinction()).filter(|text| text.len() <= MAX_DISTINCTION_BYTES);
        let variant = Variant { distinction: distinction.map(Box::from), uses: 0, number: variants.counted };
        variants.by_hash.insert(hash, variant);
        admission
    }

    /// Counts that a variant was served from the cache. Called for each hit in memory, so it does not wait for the other threads
    /// that serve variants of the page: the count may be lost.
    pub(crate) fn used(&self, variant: &PageKey) {
        let (page, hash) = self.hashes(variant);
        if let Some(variants) = self.pages.get(&page)
            && let Some(mut variants) = variants.try_lock()
            && let Some(variant) = variants.by_hash.get_mut(&hash)
        {
            variant.uses = variant.uses.saturating_add(1);
        }
    }

    fn hashes(&self, variant: &PageKey) -> (u64, u64) {
        let address = variant.address().split('#').next().unwrap_or_default();
        (self.hasher.hash_one(address), self.hasher.hash_one(variant.cache_key()))
    }
}

impl Variants {
    fn forget_old_uses(&mut self, now: Timestamp) {
        let age = now.seconds().saturating_sub(self.halved_at);
        // Also if the clock was set back.
        if !(0..i64::try_from(HALVED_EVERY.as_secs()).unwrap_or(i64::MAX)).contains(&age) {
            self.halved_at = now.seconds();
            self.by_hash.values_mut().for_each(|variant| variant.uses /= 2);
        }
    }

    /// The variant with the fewest uses; of several, the one that was cached first.
    fn least_used(&self, other: &PageKey) -> Option<(u64, PageKey)> {
        let known = self.by_hash.iter().filter(|(_, variant)| variant.distinction.is_some());
        let (hash, variant) = known.min_by_key(|(_, variant)| (variant.uses, variant.number))?;
        Some((*hash, other.distinguished_by(variant.distinction.as_deref()?).ok()?))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn page(name: &str) -> PageKey {
        PageKey::new(name).expect("a valid key").with_variants()
    }

    fn variant(name: &str) -> PageKey {
        page("/a").variant(name).expect("a valid key")
    }

    fn replaces(name: &str) -> Admission {
        Admission::Replaces(Box::new(variant(name)))
    }

    fn at(second: i64) -> Timestamp {
        Timestamp::from_seconds(1_700_000_000 + second)
    }

    #[test]
    fn the_least_used_variant_makes_room_for_a_new_one() {
        let limiter = VariantLimiter::new(4);
        for name in ["1", "2", "3"] {
            assert_eq!(limiter.admit(&variant(name), at(0)), Admission::Admitted);
        }
        assert_eq!(limiter.admit(&variant("1"), at(0)), Admission::Admitted, "it was counted before");
        limiter.used(&variant("1"));
        limiter.used(&variant("3"));
        assert_eq!(limiter.admit(&variant("4"), at(0)), replaces("2"));
        for junk in 5..100 {
            let admission = limiter.admit(&variant(&junk.to_string()), at(0));
            assert_eq!(admission, replaces(&(junk - 1).to_string()), "used variants stay");
        }
        let other = page("/b").variant("1").expect("a valid key");
        assert_eq!(limiter.admit(&other, at(0)), Admission::Admitted, "each page has its own limit");
    }

    #[test]
    fn a_use_is_not_counted_while_another_thread_counts() {
        let limiter = VariantLimiter::new(2);
        limiter.admit(&variant("1"), at(0));
        let (page, hash) = limiter.hashes(&variant("1"));
        let variants = limiter.pages.get(&page).expect("it is counted");
        let locked = variants.lock();
        let (sender, receiver) = std::sync::mpsc::channel();
        std::thread::scope(|scope| {
            scope.spawn(|| {
                limiter.used(&variant("1"));
                sender.send(()).expect("the test waits");
            });
            let outcome = receiver.recv_timeout(Duration::from_secs(60));
            let uses = locked.by_hash[&hash].uses;
            drop(locked);
            assert_eq!((outcome, uses), (Ok(()), 0), "a hit does not wait");
        });
    }

    #[test]
    fn uses_count_less_with_time() {
        let limiter = VariantLimiter::new(3);
        for name in ["1", "2"] {
            limiter.admit(&variant(name), at(0));
        }
        limiter.used(&variant("1"));
        assert_eq!(
            limiter.admit(&variant("3"), at(3600)),
            replaces("1"),
            "none is used now, and it is the oldest"
        );
    }

    #[test]
    fn without_room_for_variants_none_is_cached() {
        let none = VariantLimiter::new(1);
        assert!(!none.has_place(&variant("1")));
        assert_eq!(none.admit(&variant("1"), at(0)), Admission::Refused);
        let limiter = VariantLimiter::new(2);
        let long = variant(&"1".repeat(MAX_DISTINCTION_BYTES));
        assert!(limiter.has_place(&long));
        assert_eq!(limiter.admit(&long, at(0)), Admission::Admitted);
        assert!(limiter.has_place(&long), "it was counted before");
        assert!(!limiter.has_place(&variant("2")));
        assert_eq!(limiter.admit(&variant("2"), at(0)), Admission::Refused, "no variant can be evicted");
    }

    #[test]
    fn a_variant_is_found_again_by_its_distinction() {
        let listed =
            |distinction: &str| PageKey::new(format!("default::a/b?c=d{distinction}")).expect("a key");
        for (one, other) in
            [(variant("1"), variant("2")), (listed("#auth=1&cookies=2"), listed("#cookies=3"))]
        {
            assert_eq!(one.distinguished_by(other.distinction()).expect("a key"), other);
            assert_eq!(other.distinguished_by(one.distinction()).expect("a key"), one);
        }
    }
}
