//! Lookups that found a page whose body could not be read.
//!
//! Such a page is not in memory, so every request for it would read the table again while the object storage is down. A
//! lookup is shared instead, for as long as metadata is used without reading the table.

use std::sync::Arc;

use quick_cache::UnitWeighter;
use quick_cache::sync::{Cache, DefaultLifecycle};
use tabletheory::Random;

use super::body_lookup::BodyLookup;
use super::lookup::LookupResult;
use super::memory::{MemoryKey, MemoryKeyRef, SecretHasher};
use crate::PageKey;

/// The number of pages whose lookups are shared.
const MAX_PAGES: usize = 1024;

#[derive(Debug)]
pub(super) struct UnreadableBodies {
    lookups: Cache<MemoryKey, Arc<LookupResult>, UnitWeighter, SecretHasher>,
}

impl UnreadableBodies {
    pub(super) fn new(random: &dyn Random) -> Self {
        let (hasher, lifecycle) = (SecretHasher::new(random), DefaultLifecycle::default());
        UnreadableBodies {
            lookups: Cache::with(MAX_PAGES, MAX_PAGES as u64, UnitWeighter, hasher, lifecycle),
        }
    }

    /// The last lookup of the page, if it found a body that could not be read.
    pub(super) fn get(&self, page: &PageKey) -> Option<Arc<LookupResult>> {
        // Most of the time there are none.
        if self.lookups.is_empty() {
            return None;
        }
        self.lookups.get(&MemoryKeyRef::from(page))
    }

    /// Records a lookup.
    pub(super) fn record(&self, page: &PageKey, found: &Arc<LookupResult>) {
        if matches!(found.body, BodyLookup::Unreachable) {
            self.lookups.insert(page.into(), found.clone());
        } else if !self.lookups.is_empty() {
            self.lookups.remove(&MemoryKeyRef::from(page));
        }
    }
}
