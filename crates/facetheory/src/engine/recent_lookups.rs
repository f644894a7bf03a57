//! Lookups that found no page to put into memory: it is missing, must not be served, or its body cannot be read.
//!
//! A page in memory is served without reading the table for as long as its metadata is recent. A page that is not in memory
//! would cost every request a read: those that wait for its render, and all of them while the object storage is down. Its
//! lookup is shared instead, for the same time, until the page is rendered.

use std::sync::Arc;

use quick_cache::UnitWeighter;
use quick_cache::sync::{Cache, DefaultLifecycle};
use tabletheory::Random;

use super::lookup::LookupResult;
use super::memory::{MemoryKey, MemoryKeyRef, SecretHasher};
use crate::PageKey;

/// The number of pages whose lookups are shared.
const MAX_PAGES: usize = 1024;

#[derive(Debug)]
pub(super) struct RecentLookups {
    lookups: Cache<MemoryKey, Arc<LookupResult>, UnitWeighter, SecretHasher>,
}

impl RecentLookups {
    pub(super) fn new(random: &dyn Random) -> Self {
        let (hasher, lifecycle) = (SecretHasher::new(random), DefaultLifecycle::default());
        RecentLookups { lookups: Cache::with(MAX_PAGES, MAX_PAGES as u64, UnitWeighter, hasher, lifecycle) }
    }

    /// The last lookup of the page, if it found none to put into memory. The caller decides whether it is recent enough.
    pub(super) fn get(&self, page: &PageKey) -> Option<Arc<LookupResult>> {
        // Most of the time there are none.
        if self.lookups.is_empty() {
            return None;
        }
        self.lookups.get(&MemoryKeyRef::from(page))
    }

    /// Records a lookup.
    pub(super) fn record(&self, page: &PageKey, found: &Arc<LookupResult>) {
        if found.body.entry().is_none() {
            self.lookups.insert(page.into(), found.clone());
        } else {
            self.forget(page);
        }
    }

    /// Forgets a lookup: the page may have been published since.
    pub(super) fn forget(&self, page: &PageKey) {
        if !self.lookups.is_empty() {
            self.lookups.remove(&MemoryKeyRef::from(page));
        }
    }
}
