//! Counts the invalidations that were made through this process.

use std::hash::BuildHasher as _;
use std::sync::atomic::{AtomicU64, Ordering};

use super::key::{MemoryKeyRef, SecretHasher};
use crate::{PageKey, Tenant};

/// Pages share this many counters, by their hash. Sharing makes some pages be checked against the table in vain.
const COUNTERS: usize = 1024;

/// The number of invalidations through this process that may concern a page. Both numbers only grow.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(in crate::engine) struct InvalidationCount {
    /// Invalidations after which the table is read to learn whether the page is still fresh.
    soft: u64,
    /// Invalidations after which the page must not be served.
    pub(super) hard: u64,
}

impl InvalidationCount {
    /// Whether this count was taken no earlier than the other one.
    pub(super) fn includes(self, earlier: InvalidationCount) -> bool {
        self.soft >= earlier.soft && self.hard >= earlier.hard
    }
}

#[derive(Debug, Default)]
pub(super) struct Counter {
    pub(super) soft: AtomicU64,
    pub(super) hard: AtomicU64,
}

/// The counters of all pages.
#[derive(Debug)]
pub(super) struct Invalidations {
    pub(super) hasher: SecretHasher,
    pages: Box<[Counter]>,
    /// Invalidations that may concern every page, such as those of a tag.
    pub(super) all: AtomicU64,
}

impl Invalidations {
    pub(super) fn new(hasher: SecretHasher) -> Self {
        let pages = (0..COUNTERS).map(|_| Counter::default()).collect();
        Invalidations { hasher, pages, all: AtomicU64::new(0) }
    }

    pub(super) fn count(&self, page: &PageKey) -> InvalidationCount {
        let mut count = InvalidationCount { soft: self.all.load(Ordering::Acquire), hard: 0 };
        let mut add = |counter: &Counter| {
            count.soft += counter.soft.load(Ordering::Acquire);
            count.hard += counter.hard.load(Ordering::Acquire);
        };
        add(self.counter(&page.into()));
        if page.is_variant() {
            // An invalidation of a page concerns its variants.
            add(self.counter(&MemoryKeyRef(page.tenant().map(Tenant::as_str), page.address())));
        }
        count
    }

    pub(super) fn counter(&self, key: &MemoryKeyRef<'_>) -> &Counter {
        let index = usize::try_from(self.hasher.hash_one(key) % COUNTERS as u64).unwrap_or(0);
        &self.pages[index]
    }
}
