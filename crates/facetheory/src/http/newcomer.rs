//! Pages that were not kept before: how many of them may be, in a second.

use std::collections::HashSet;
use std::hash::{BuildHasher as _, RandomState};
use std::sync::{Arc, Mutex, PoisonError};

use quick_cache::sync::Cache;
use tabletheory::Timestamp;

/// The most pages whose variants are counted. Of those that are forgotten for others, more variants are let in again.
const COUNTED_PAGES: usize = 10_000;

/// Counts new pages, second by second, and the variants of each page.
#[derive(Debug)]
pub(crate) struct Newcomers {
    most: u32,
    /// The second that is counted in, and how many came in it.
    counted: Mutex<(i64, u32)>,
    most_variants: usize,
    /// The variants that were let in, of each page that has some: digests of what tells them apart.
    variants: Cache<u64, Arc<Mutex<HashSet<u64>>>>,
    digest: RandomState,
}

impl Default for Newcomers {
    /// Everyone is welcome.
    fn default() -> Self {
        Newcomers {
            most: u32::MAX,
            counted: Mutex::new((i64::MIN, 0)),
            most_variants: usize::MAX,
            variants: Cache::new(COUNTED_PAGES),
            digest: RandomState::new(),
        }
    }
}

impl Newcomers {
    /// At most so many in a second.
    pub(crate) fn per_second(self: &Arc<Self>, most: u32) -> Arc<Self> {
        Arc::new(Newcomers { most, most_variants: self.most_variants, ..Newcomers::default() })
    }

    /// At most so many that differ by headers or cookies alone.
    pub(crate) fn variants(self: &Arc<Self>, most: usize) -> Arc<Self> {
        Arc::new(Newcomers { most: self.most, most_variants: most, ..Newcomers::default() })
    }

    /// Whether the page of this key may be kept.
    pub(crate) fn welcomes(&self, cache_key: &str, now: Timestamp) -> bool {
        self.is_one_of_few(cache_key) && self.is_in_time(now)
    }

    fn is_in_time(&self, now: Timestamp) -> bool {
        let mut counted = self.counted.lock().unwrap_or_else(PoisonError::into_inner);
        let (second, count) = &mut *counted;
        // A clock that was set back does not stop the count for as long.
        if *second != now.seconds() {
            (*second, *count) = (now.seconds(), 0);
        }
        let welcome = *count < self.most;
        *count = count.saturating_add(u32::from(welcome));
        welcome
    }

    /// What headers and cookies tell apart stands behind the only `#` of a key.
    fn is_one_of_few(&self, cache_key: &str) -> bool {
        let Some((page, variant)) = cache_key.split_once('#') else { return true };
        if self.most_variants == usize::MAX {
            return true;
        }
        let (page, variant) = (self.digest.hash_one(page), self.digest.hash_one(variant));
        let known =
            self.variants.get_or_insert_with(&page, || Ok::<_, ()>(Arc::default())).unwrap_or_default();
        let mut known = known.lock().unwrap_or_else(PoisonError::into_inner);
        known.contains(&variant) || (known.len() < self.most_variants && known.insert(variant))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn so_many_are_welcome_in_each_second() {
        let newcomers = Arc::new(Newcomers::default()).per_second(2);
        let at = |second: i64| Timestamp::from_seconds(second);
        let welcome: Vec<bool> =
            [1, 1, 1, 2, 2, 2, 1].map(|second| newcomers.welcomes("/", at(second))).to_vec();
        assert_eq!(welcome, [true, true, false, true, true, false, true]);
    }

    #[test]
    fn so_many_variants_of_a_page_are_welcome_and_those_again() {
        let newcomers = Arc::new(Newcomers::default()).variants(2);
        let welcome = |key: &str| newcomers.welcomes(key, Timestamp::from_seconds(1));
        assert!(welcome("/a#auth=1") && welcome("/a#auth=2"));
        assert!(!welcome("/a#auth=3"), "it has enough of them");
        assert!(welcome("/a#auth=1"), "this one is known");
        assert!(welcome("/b#auth=3") && welcome("/a") && welcome("/a?page=3"), "these are other pages");
    }
}
