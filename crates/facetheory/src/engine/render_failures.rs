//! Remembers pages whose last render failed, was not cacheable, or said that the page is gone.

use std::hash::{BuildHasher as _, RandomState};
use std::time::Duration;

use quick_cache::sync::Cache;
use tabletheory::{Backoff, Random, Timestamp};

use crate::{PageKey, Tenant};

/// The number of pages that each map remembers.
const MAX_PAGES: usize = 10_000;
/// The longest delay before a failed render is tried again.
const LONGEST_BACKOFF: Duration = Duration::from_secs(60);
/// How long requests do not wait for each other's render of a page that was not cacheable.
const DECLINED_FOR: Duration = Duration::from_secs(5);

/// Pages whose render went wrong a short time ago. Their keys are hashed with a secret: clients choose the length of keys.
#[derive(Debug)]
pub(super) struct RenderFailures {
    hasher: RandomState,
    failures: Cache<u64, Failure>,
    /// The time until which renders are expected to be uncacheable.
    declined: Cache<u64, Timestamp>,
    /// Pages that the renderer reported gone. A single report may be a mistake.
    gone: Cache<u64, GoneReport>,
}

#[derive(Clone, Copy, Debug)]
struct Failure {
    count: u32,
    retry_at: Timestamp,
}

#[derive(Clone, Copy, Debug)]
struct GoneReport {
    /// The `generated_at` of the page that is reported gone, in epoch seconds.
    generated_at: i64,
    first_reported: Timestamp,
}

impl RenderFailures {
    pub(super) fn new() -> Self {
        RenderFailures {
            hasher: RandomState::new(),
            failures: Cache::new(MAX_PAGES),
            declined: Cache::new(MAX_PAGES),
            gone: Cache::new(MAX_PAGES),
        }
    }

    /// Whether a page should not be rendered now because its last render failed.
    pub(super) fn is_backing_off(&self, page: &PageKey, now: Timestamp) -> bool {
        let failure = self.failures.get(&self.key(page));
        failure.is_some_and(|failure| is_pending(failure.retry_at, LONGEST_BACKOFF, now))
    }

    /// Records a failed render. The next one waits for `first`, and twice as long after each further failure.
    pub(super) fn record_failure(
        &self,
        page: &PageKey,
        first: Duration,
        now: Timestamp,
        random: &dyn Random,
    ) {
        let key = self.key(page);
        let count = self.failures.get(&key).map_or(0, |failure| failure.count);
        let retry_at = now + Backoff::new(first, LONGEST_BACKOFF).delay(count, random);
        self.failures.insert(key, Failure { count: count.saturating_add(1), retry_at });
    }

    /// Forgets everything about a page, after a render of it succeeded.
    pub(super) fn record_success(&self, page: &PageKey) {
        if self.failures.is_empty() && self.declined.is_empty() && self.gone.is_empty() {
            return;
        }
        let key = self.key(page);
        self.failures.remove(&key);
        self.declined.remove(&key);
        self.gone.remove(&key);
    }

    /// Whether requests should not wait for each other's render of a page, because it will not be cacheable.
    pub(super) fn is_declined(&self, page: &PageKey, now: Timestamp) -> bool {
        let until = (!self.declined.is_empty()).then(|| self.declined.get(&self.key(page))).flatten();
        until.is_some_and(|until| is_pending(until, DECLINED_FOR, now))
    }

    pub(super) fn record_declined(&self, page: &PageKey, now: Timestamp) {
        self.declined.insert(self.key(page), now + DECLINED_FOR);
    }

    /// Makes requests wait for each other's render of a page again, because it may be cacheable after all.
    pub(super) fn forget_declined(&self, page: &PageKey) {
        if !self.declined.is_empty() {
            self.declined.remove(&self.key(page));
        }
    }

    /// Records that the renderer reports a page gone, and returns whether the same was reported at least `min_age` ago of
    /// the same generation. If the page was regenerated in between, here or elsewhere, its `generated_at` differs.
    pub(super) fn confirms_gone(
        &self,
        page: &PageKey,
        generated_at: i64,
        min_age: Duration,
        now: Timestamp,
    ) -> bool {
        let key = self.key(page);
        let report = self.gone.get(&key).filter(|report| report.generated_at == generated_at);
        // After the clock was set back, the report counts as the first one.
        match report.filter(|report| report.first_reported <= now) {
            Some(report) => report.first_reported + min_age <= now,
            None => {
                self.gone.insert(key, GoneReport { generated_at, first_reported: now });
                false
            }
        }
    }

    fn key(&self, page: &PageKey) -> u64 {
        self.hasher.hash_one((page.tenant().map(Tenant::as_str), page.cache_key()))
    }
}

/// Whether a time is still to come, and no farther away than `longest`: a clock that was set back must not prolong a wait.
fn is_pending(time: Timestamp, longest: Duration, now: Timestamp) -> bool {
    now < time && time <= now + longest
}

#[cfg(test)]
mod tests {
    use super::*;
    use tabletheory::SeededRandom;

    fn at(seconds: i64) -> Timestamp {
        Timestamp::from_seconds(1_700_000_000 + seconds)
    }

    fn page(key: impl Into<String>) -> PageKey {
        PageKey::new(key).expect("a page")
    }

    #[test]
    fn the_backoff_grows_up_to_a_limit_and_ends_with_a_success() {
        let (failures, random, page) = (RenderFailures::new(), SeededRandom::new(1), page("/"));
        assert!(!failures.is_backing_off(&page, at(0)));
        failures.record_failure(&page, Duration::from_secs(2), at(0), &random);
        assert!(failures.is_backing_off(&page, at(0)) && !failures.is_backing_off(&page, at(2)));
        for _ in 0..100 {
            failures.record_failure(&page, Duration::from_secs(2), at(0), &random);
        }
        assert!(failures.is_backing_off(&page, at(29)) && !failures.is_backing_off(&page, at(60)));
        assert!(!failures.is_backing_off(&page, at(-3600)), "the clock was set back");
        failures.record_success(&page);
        assert!(!failures.is_backing_off(&page, at(0)));
    }

    #[test]
    fn an_uncacheable_page_is_remembered_for_five_seconds() {
        let (failures, page) = (RenderFailures::new(), page("/"));
        assert!(!failures.is_declined(&page, at(0)));
        failures.record_declined(&page, at(0));
        assert!(failures.is_declined(&page, at(4)) && !failures.is_declined(&page, at(5)));
    }

    #[test]
    fn the_second_report_confirms_that_a_page_is_gone() {
        let (failures, page) = (RenderFailures::new(), page("/"));
        let confirms =
            |generated_at, seconds| failures.confirms_gone(&page, generated_at, Duration::ZERO, at(seconds));
        assert!(!confirms(1, 0));
        assert!(confirms(1, 0));
        failures.record_success(&page);
        assert!(!confirms(1, 0), "the page was rendered in between");
        assert!(!confirms(2, 0), "another process regenerated the page in between");
        assert!(!confirms(2, -1), "the clock was set back");
    }

    #[test]
    fn a_report_that_is_repeated_too_soon_does_not_confirm_that_a_page_is_gone() {
        let (failures, page) = (RenderFailures::new(), page("/"));
        let confirms = |seconds| failures.confirms_gone(&page, 1, Duration::from_secs(10), at(seconds));
        assert!(!confirms(0) && !confirms(1) && !confirms(9));
        assert!(confirms(10));
    }

    #[test]
    fn pages_with_other_keys_or_tenants_are_remembered_separately() {
        let failures = RenderFailures::new();
        let tenant = Tenant::new("acme").expect("a tenant");
        let of_tenant = crate::KeyScheme::Hashed.page(Some(&tenant), "/a").expect("a page");
        let pages = [page("/a"), page("/b"), of_tenant];
        for (index, page) in pages.iter().enumerate() {
            failures.record_declined(page, at(0));
            let declined = pages.iter().filter(|page| failures.is_declined(page, at(0))).count();
            assert_eq!(declined, index + 1);
        }
    }

    #[test]
    fn the_memory_for_a_page_does_not_depend_on_the_length_of_its_key() {
        /// A `Copy` type owns no memory elsewhere.
        fn bytes<T: Copy>(_: T) -> usize {
            size_of::<T>()
        }
        let (failures, page) = (RenderFailures::new(), page("/a".repeat(4096)));
        failures.record_failure(&page, Duration::from_secs(2), at(0), &SeededRandom::new(1));
        failures.record_declined(&page, at(0));
        assert!(!failures.confirms_gone(&page, 1, Duration::ZERO, at(0)));
        let failed: usize = failures.failures.iter().map(bytes).sum();
        let declined: usize = failures.declined.iter().map(bytes).sum();
        let gone: usize = failures.gone.iter().map(bytes).sum();
        assert_eq!((failed, declined, gone), (24, 16, 24));
    }
}
