//! Limits on new entries: pages per second, and variants per page.

use std::collections::HashSet;
use std::hash::{BuildHasher as _, RandomState};
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use quick_cache::sync::Cache;
use tabletheory::Timestamp;

use crate::protocol::key::PageKey;

/// How long a variant counts.
const VARIANT_WINDOW: Duration = Duration::from_secs(3600);
/// The most pages whose variants are counted.
const MAX_COUNTED_PAGES: usize = 10_000;

/// Limits how many pages are cached for the first time in a second.
#[derive(Debug)]
pub(crate) struct NewPageLimiter {
    limit: u32,
    /// The current second, and how many pages were counted in it.
    window: Mutex<(i64, u32)>,
}

impl NewPageLimiter {
    pub(crate) fn new(pages_per_second: u32) -> Self {
        NewPageLimiter { limit: pages_per_second, window: Mutex::new((i64::MIN, 0)) }
    }

    /// Counts one more page, and returns whether it may be cached.
    pub(crate) fn allows(&self, now: Timestamp) -> bool {
        let mut window = self.window.lock();
        // Any other second starts a new window, so that a clock that was set back does not block new pages.
        if window.0 != now.seconds() {
            *window = (now.seconds(), 0);
        }
        let is_allowed = window.1 < self.limit;
        window.1 += u32::from(is_allowed);
        is_allowed
    }
}

/// Limits how many variants of a page are cached within an hour. Pages and variants are counted by keyed hashes, since clients
/// choose how long keys are.
#[derive(Debug)]
pub(crate) struct VariantLimiter {
    /// Besides the page itself.
    limit: usize,
    hasher: RandomState,
    pages: Cache<u64, Arc<Mutex<VariantWindow>>>,
}

#[derive(Debug, Default)]
struct VariantWindow {
    since: i64,
    variants: HashSet<u64>,
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

    /// Counts a variant, and returns whether it may be cached.
    pub(crate) fn allows(&self, variant: &PageKey, now: Timestamp) -> bool {
        // The part of a key after `#` distinguishes the variants of an address.
        let address = variant.address().split('#').next().unwrap_or_default();
        let (page, variant) = (self.hasher.hash_one(address), self.hasher.hash_one(variant.cache_key()));
        let Ok(window) =
            self.pages.get_or_insert_with::<_, std::convert::Infallible>(&page, || Ok(Arc::default()));
        let mut window = window.lock();
        let age = now.seconds().saturating_sub(window.since);
        // A negative age, of a clock that was set back, also starts a new window.
        if !(0..i64::try_from(VARIANT_WINDOW.as_secs()).unwrap_or(i64::MAX)).contains(&age) {
            *window = VariantWindow { since: now.seconds(), variants: HashSet::new() };
        }
        let has_room = window.variants.len() < self.limit;
        window.variants.contains(&variant) || (has_room && window.variants.insert(variant))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn new_pages_are_limited_per_second() {
        let limiter = NewPageLimiter::new(2);
        let at = |second: i64| Timestamp::from_seconds(second);
        let allowed: Vec<bool> = [1, 1, 1, 2, 2, 2, 1].map(|second| limiter.allows(at(second))).to_vec();
        assert_eq!(allowed, [true, true, false, true, true, false, true]);
    }

    #[test]
    fn variants_are_limited_per_page_and_hour_and_each_counts_once() {
        let limiter = VariantLimiter::new(3);
        let page = |name: &str| PageKey::new(name).expect("a valid key").with_variants();
        let at = |second: i64| Timestamp::from_seconds(1_700_000_000 + second);
        let variant = |primary: &PageKey, name: &str| primary.variant(name).expect("a valid key");
        let (one, other) = (page("/a"), page("/b"));
        assert!(limiter.allows(&variant(&one, "1"), at(0)));
        assert!(limiter.allows(&variant(&one, "2"), at(0)));
        assert!(!limiter.allows(&variant(&one, "3"), at(0)));
        assert!(limiter.allows(&variant(&one, "1"), at(0)), "it was counted before");
        assert!(limiter.allows(&variant(&other, "3"), at(0)), "each page has its own limit");
        assert!(limiter.allows(&variant(&one, "3"), at(3600)), "an hour later");
        assert!(limiter.allows(&variant(&one, "4"), at(0)), "the clock was set back");
    }

    #[test]
    fn the_memory_of_a_counted_variant_does_not_depend_on_the_length_of_its_key() {
        /// A `Copy` type owns no memory elsewhere.
        fn bytes<T: Copy>(_: &T) -> usize {
            size_of::<T>()
        }
        let limiter = VariantLimiter::new(3);
        let page = PageKey::new("/a".repeat(4096)).expect("a valid key").with_variants();
        let variant = page.variant("1").expect("a valid key");
        assert!(limiter.allows(&variant, Timestamp::from_seconds(1_700_000_000)));
        for (page, window) in limiter.pages.iter() {
            let variants: usize = window.lock().variants.iter().map(bytes).sum();
            assert_eq!(bytes(&page) + variants, 16);
        }
        assert_eq!(limiter.pages.len(), 1);
    }
}
