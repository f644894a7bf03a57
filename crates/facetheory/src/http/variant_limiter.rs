//! Variants that were not kept before: how many of them a page may have.

use std::collections::HashSet;
use std::hash::{BuildHasher as _, RandomState};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use quick_cache::sync::Cache;
use tabletheory::Timestamp;

use crate::protocol::key::PageKey;

/// The most variants of one page that are kept in the time below, unless another limit is chosen.
pub(crate) const VARIANTS_A_PAGE: usize = 64;
/// For so long a variant counts.
const COUNTED: Duration = Duration::from_secs(3600);
/// The most pages whose variants are counted.
const MOST_PAGES: usize = 10_000;

/// Counts new variants, page by page. Both go by keyed hashes: visitors choose how long the keys of pages are.
#[derive(Debug)]
pub(crate) struct VariantLimiter {
    most: usize,
    hasher: RandomState,
    pages: Cache<u64, Arc<Mutex<Counted>>>,
}

#[derive(Debug, Default)]
struct Counted {
    since: i64,
    variants: HashSet<u64>,
}

impl VariantLimiter {
    /// At most so many variants of a page, together with the page itself.
    pub(crate) fn of_all(most: usize) -> Self {
        VariantLimiter::new(most.saturating_sub(1))
    }

    /// At most so many variants besides the page itself.
    fn new(most: usize) -> Self {
        VariantLimiter { most, hasher: RandomState::new(), pages: Cache::new(MOST_PAGES) }
    }

    /// Whether one more variant may be kept.
    pub(crate) fn welcomes(&self, variant: &PageKey, now: Timestamp) -> bool {
        // What follows the address in a key is what tells variants of it apart.
        let page = variant.address().split('#').next().unwrap_or_default();
        let (page, name) = (self.hasher.hash_one(page), self.hasher.hash_one(variant.cache_key()));
        let Ok(counted) =
            self.pages.get_or_insert_with::<_, std::convert::Infallible>(&page, || Ok(Arc::default()));
        let mut counted = counted.lock().unwrap_or_else(PoisonError::into_inner);
        let age = now.seconds().saturating_sub(counted.since);
        // A clock that was set back does not stop the count for as long.
        if !(0..i64::try_from(COUNTED.as_secs()).unwrap_or(i64::MAX)).contains(&age) {
            *counted = Counted { since: now.seconds(), variants: HashSet::new() };
        }
        if counted.variants.contains(&name) {
            return true;
        }
        let welcome = counted.variants.len() < self.most;
        if welcome {
            counted.variants.insert(name);
        }
        welcome
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_page_has_so_many_variants_in_an_hour_and_each_counts_once() {
        let crowd = VariantLimiter::new(2);
        let page = |name: &str| PageKey::new(name).expect("a page").with_variants();
        let at = |second: i64| Timestamp::from_seconds(1_700_000_000 + second);
        let variant = |primary: &PageKey, name: &str| primary.variant(name).expect("a variant");
        let (one, other) = (page("/a"), page("/b"));
        assert!(crowd.welcomes(&variant(&one, "1"), at(0)));
        assert!(crowd.welcomes(&variant(&one, "2"), at(0)));
        assert!(!crowd.welcomes(&variant(&one, "3"), at(0)));
        assert!(crowd.welcomes(&variant(&one, "1"), at(0)), "it was kept before");
        assert!(crowd.welcomes(&variant(&other, "3"), at(0)), "another page has its own");
        assert!(crowd.welcomes(&variant(&one, "3"), at(3600)), "an hour later");
        assert!(crowd.welcomes(&variant(&one, "4"), at(0)), "a clock that was set back");
    }
    #[test]
    fn what_is_remembered_of_a_variant_is_as_small_however_long_its_key_is() {
        /// What can be copied bit by bit owns nothing elsewhere.
        fn bytes<T: Copy>(_: &T) -> usize {
            size_of::<T>()
        }
        let crowd = VariantLimiter::new(2);
        let page = PageKey::new("/a".repeat(4096)).expect("a page").with_variants();
        let variant = page.variant("1").expect("a variant");
        assert!(crowd.welcomes(&variant, Timestamp::from_seconds(1_700_000_000)));
        for (page, counted) in crowd.pages.iter() {
            let counted = counted.lock().expect("the count");
            let variants: usize = counted.variants.iter().map(bytes).sum();
            assert_eq!(bytes(&page) + variants, 16);
        }
        assert_eq!(crowd.pages.len(), 1);
    }
}
