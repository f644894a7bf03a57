//! What is not tried again for a while: renders that failed, and pages that are not to be kept.

use std::hash::{BuildHasher as _, RandomState};
use std::time::Duration;

use quick_cache::sync::Cache;
use tabletheory::{Random, Timestamp};

use crate::protocol::key::{PageKey, Tenant};

/// The most pages of which this is remembered.
const MOST_PAGES: usize = 10_000;
/// A page whose render fails again and again is tried at least this often.
const LONGEST: Duration = Duration::from_secs(60);
/// For how long nobody waits for a page that was not to be kept.
const DECLINED: Duration = Duration::from_secs(5);

/// Pages whose render went wrong not long ago. They go by a keyed hash: visitors choose how long the keys of pages are.
#[derive(Debug)]
pub(super) struct RenderFailures {
    hasher: RandomState,
    failures: Cache<u64, Failure>,
    /// Until when answers are expected to be nobody else's, in milliseconds.
    declined: Cache<u64, i64>,
    /// Pages of which it was said that there is none, or none for everyone, where there had been one: one such answer proves
    /// nothing.
    vanished: Cache<u64, Sight>,
}

#[derive(Clone, Copy, Debug)]
struct Failure {
    count: u32,
    /// Until when it is not tried again, in milliseconds.
    until: i64,
}

/// What it was said of, and since when.
#[derive(Clone, Copy, Debug)]
struct Sight {
    /// When the page was generated that seems to be gone, in epoch seconds.
    generated_at: i64,
    /// When that was said first, in milliseconds.
    first: i64,
}

impl RenderFailures {
    pub(super) fn new() -> Self {
        RenderFailures {
            hasher: RandomState::new(),
            failures: Cache::new(MOST_PAGES),
            declined: Cache::new(MOST_PAGES),
            vanished: Cache::new(MOST_PAGES),
        }
    }

    /// Whether a page that can be served is better left alone for now.
    pub(super) fn is_on(&self, page: &PageKey, now: Timestamp) -> bool {
        let Some(failure) = self.failures.get(&self.slot(page)) else { return false };
        // A clock that was set back must not prolong it.
        (1..=millis(LONGEST)).contains(&(failure.until - now.millis()))
    }

    pub(super) fn failed(&self, page: &PageKey, first: Duration, now: Timestamp, random: &dyn Random) {
        const MOST_DOUBLINGS: u32 = 16;
        let slot = self.slot(page);
        let count = self.failures.get(&slot).map_or(0, |failure| failure.count);
        let pause = first.saturating_mul(2_u32.pow(count.min(MOST_DOUBLINGS))).min(LONGEST);
        let pause = pause.mul_f64(0.5 + random.fraction() / 2.0);
        let failure = Failure { count: count.saturating_add(1), until: now.millis() + millis(pause) };
        self.failures.insert(slot, failure);
    }

    /// A render went well.
    pub(super) fn succeeded(&self, page: &PageKey) {
        if self.failures.is_empty() && self.declined.is_empty() && self.vanished.is_empty() {
            return;
        }
        let slot = self.slot(page);
        self.failures.remove(&slot);
        self.declined.remove(&slot);
        self.vanished.remove(&slot);
    }

    /// Whether nobody should wait for another's render of a page, since it will not be kept.
    pub(super) fn is_declined(&self, page: &PageKey, now: Timestamp) -> bool {
        if self.declined.is_empty() {
            return false;
        }
        let until = self.declined.get(&self.slot(page));
        until.is_some_and(|until| (1..=millis(DECLINED)).contains(&(until - now.millis())))
    }

    pub(super) fn declined(&self, page: &PageKey, now: Timestamp) {
        self.declined.insert(self.slot(page), now.millis() + millis(DECLINED));
    }

    /// Others should wait for the next render of a page, since it may be kept after all.
    pub(super) fn forget_declined(&self, page: &PageKey) {
        if !self.declined.is_empty() {
            self.declined.remove(&self.slot(page));
        }
    }

    /// A page that was there seems to be gone. False if that was said before of the one that was generated then, so long ago at
    /// least, and is believed now: had it been renewed meanwhile, here or elsewhere, it would be another.
    pub(super) fn vanished_at_first_sight(
        &self,
        page: &PageKey,
        generated_at: i64,
        least: Duration,
        now: Timestamp,
    ) -> bool {
        let (slot, now) = (self.slot(page), now.millis());
        let seen = self.vanished.get(&slot).filter(|seen| seen.generated_at == generated_at);
        // A clock that was set back makes it the first time again.
        match seen.filter(|seen| seen.first <= now) {
            Some(seen) => now - seen.first < millis(least),
            None => {
                self.vanished.insert(slot, Sight { generated_at, first: now });
                true
            }
        }
    }

    fn slot(&self, page: &PageKey) -> u64 {
        self.hasher.hash_one((page.tenant().map(Tenant::as_str), page.cache_key()))
    }
}

fn millis(duration: Duration) -> i64 {
    i64::try_from(duration.as_millis()).unwrap_or(i64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;
    use tabletheory::SeededRandom;

    fn at(seconds: i64) -> Timestamp {
        Timestamp::from_seconds(1_700_000_000 + seconds)
    }

    #[test]
    fn pauses_grow_up_to_a_limit_and_end_with_a_success() {
        let (back_off, random) = (RenderFailures::new(), SeededRandom::new(1));
        let page = PageKey::new("/").expect("a page");
        assert!(!back_off.is_on(&page, at(0)));
        back_off.failed(&page, Duration::from_secs(2), at(0), &random);
        assert!(back_off.is_on(&page, at(0)) && !back_off.is_on(&page, at(2)));
        for _ in 0..100 {
            back_off.failed(&page, Duration::from_secs(2), at(0), &random);
        }
        assert!(back_off.is_on(&page, at(29)) && !back_off.is_on(&page, at(60)));
        assert!(!back_off.is_on(&page, at(-3600)), "a clock that was set back");
        back_off.succeeded(&page);
        assert!(!back_off.is_on(&page, at(0)));
    }

    #[test]
    fn what_is_not_kept_is_remembered_for_a_while() {
        let back_off = RenderFailures::new();
        let page = PageKey::new("/").expect("a page");
        assert!(!back_off.is_declined(&page, at(0)));
        back_off.declined(&page, at(0));
        assert!(back_off.is_declined(&page, at(4)) && !back_off.is_declined(&page, at(5)));
    }

    #[test]
    fn that_a_page_is_gone_is_believed_at_second_sight() {
        let back_off = RenderFailures::new();
        let page = PageKey::new("/").expect("a page");
        let at_first_sight = |generated_at, seconds| {
            back_off.vanished_at_first_sight(&page, generated_at, Duration::ZERO, at(seconds))
        };
        assert!(at_first_sight(1, 0));
        assert!(!at_first_sight(1, 0));
        back_off.succeeded(&page);
        assert!(at_first_sight(1, 0), "it was there again meanwhile");
        assert!(at_first_sight(2, 0), "another process has renewed it meanwhile");
        assert!(at_first_sight(2, -1), "the clock was set back");
    }

    #[test]
    fn what_is_said_again_too_soon_is_believed_later() {
        let (back_off, least) = (RenderFailures::new(), Duration::from_secs(10));
        let page = PageKey::new("/").expect("a page");
        let at_first_sight = |seconds| back_off.vanished_at_first_sight(&page, 1, least, at(seconds));
        assert!(at_first_sight(0) && at_first_sight(1) && at_first_sight(9));
        assert!(!at_first_sight(10));
    }

    #[test]
    fn pages_are_told_apart_by_their_keys_and_their_tenants() {
        let back_off = RenderFailures::new();
        let tenant = Tenant::new("acme").expect("a tenant");
        let pages = [
            PageKey::new("/a").expect("a page"),
            PageKey::new("/b").expect("a page"),
            crate::KeyScheme::Hashed.page(Some(&tenant), "/a").expect("a page"),
        ];
        for (index, page) in pages.iter().enumerate() {
            back_off.declined(page, at(0));
            let declined = pages.iter().filter(|page| back_off.is_declined(page, at(0))).count();
            assert_eq!(declined, index + 1);
        }
    }

    #[test]
    fn what_is_remembered_of_a_page_is_as_small_however_long_its_key_is() {
        /// What can be copied bit by bit owns nothing elsewhere.
        fn bytes<T: Copy>(_: T) -> usize {
            size_of::<T>()
        }
        let back_off = RenderFailures::new();
        let page = PageKey::new("/a".repeat(4096)).expect("a page");
        back_off.failed(&page, Duration::from_secs(2), at(0), &SeededRandom::new(1));
        back_off.declined(&page, at(0));
        assert!(back_off.vanished_at_first_sight(&page, 1, Duration::ZERO, at(0)));
        let failures: usize = back_off.failures.iter().map(bytes).sum();
        let declined: usize = back_off.declined.iter().map(bytes).sum();
        let vanished: usize = back_off.vanished.iter().map(bytes).sum();
        assert_eq!((failures, declined, vanished), (24, 16, 24));
    }
}
