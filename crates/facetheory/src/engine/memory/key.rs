//! Keys of pages in memory, and their hash.

use std::hash::{BuildHasher, DefaultHasher, Hasher as _};

use quick_cache::Equivalent;
use tabletheory::Random;

use crate::{PageKey, Tenant};

/// The tenant and the cache key of a page.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(in crate::engine) struct MemoryKey {
    pub(super) tenant: Option<Box<str>>,
    pub(super) cache_key: Box<str>,
}

impl MemoryKey {
    /// The number of its bytes.
    pub(super) fn len(&self) -> usize {
        self.cache_key.len() + self.tenant.as_ref().map_or(0, |tenant| tenant.len())
    }
}

impl From<&PageKey> for MemoryKey {
    fn from(page: &PageKey) -> Self {
        let tenant = page.tenant().map(|tenant| tenant.as_str().into());
        MemoryKey { tenant, cache_key: page.cache_key().into() }
    }
}

/// A borrowed [`MemoryKey`] with the same hash: a lookup does not allocate.
#[derive(Hash)]
pub(in crate::engine) struct MemoryKeyRef<'a>(pub(super) Option<&'a str>, pub(super) &'a str);

impl<'a> From<&'a PageKey> for MemoryKeyRef<'a> {
    fn from(page: &'a PageKey) -> Self {
        MemoryKeyRef(page.tenant().map(Tenant::as_str), page.cache_key())
    }
}

impl Equivalent<MemoryKey> for MemoryKeyRef<'_> {
    fn equivalent(&self, key: &MemoryKey) -> bool {
        self.0 == key.tenant.as_deref() && self.1 == &*key.cache_key
    }
}

/// Hashes with a secret. Clients choose the keys of pages, and must not be able to choose many with the same hash.
/// The secret comes from the injected random source, so that simulations are reproducible.
#[derive(Clone, Debug)]
pub(in crate::engine) struct SecretHasher(DefaultHasher);

impl SecretHasher {
    pub(in crate::engine) fn new(random: &dyn Random) -> Self {
        let mut hasher = DefaultHasher::new();
        hasher.write_u64(random.next_u64());
        hasher.write_u64(random.next_u64());
        SecretHasher(hasher)
    }
}

impl BuildHasher for SecretHasher {
    type Hasher = DefaultHasher;

    fn build_hasher(&self) -> DefaultHasher {
        self.0.clone()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashSet;
    use tabletheory::{SeededRandom, SystemRandom};

    fn hash(hasher: &SecretHasher, page: &PageKey) -> u64 {
        hasher.hash_one(MemoryKeyRef::from(page))
    }

    #[test]
    fn the_same_random_numbers_give_the_same_hashes() {
        let page = PageKey::new("/a").expect("a page");
        let seeded = |seed| hash(&SecretHasher::new(&SeededRandom::new(seed)), &page);
        assert_eq!(seeded(1), seeded(1), "a simulation is reproducible");
        assert_ne!(seeded(1), seeded(2));
    }

    #[test]
    fn keys_that_collide_in_one_process_do_not_collide_in_another() {
        const BUCKETS: u64 = 256;
        const KEYS: usize = 64;
        let [one, other] = [(); 2].map(|()| SecretHasher::new(&SystemRandom));
        let bucket = |hasher: &SecretHasher, page: &PageKey| hash(hasher, page) % BUCKETS;
        let pages = (0..).map(|number: u64| PageKey::new(format!("/page?{number}")).expect("a page"));
        let crafted: Vec<PageKey> = pages.filter(|page| bucket(&one, page) == 0).take(KEYS).collect();
        let buckets: HashSet<u64> = crafted.iter().map(|page| bucket(&other, page)).collect();
        assert!(buckets.len() > KEYS / 2, "{KEYS} keys are in {} buckets", buckets.len());
    }
}
