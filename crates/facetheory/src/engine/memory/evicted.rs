//! The metadata of pages whose bodies were evicted: a request for such a page reads only its body.

use std::sync::Arc;

use quick_cache::Lifecycle;
use quick_cache::sync::{Cache, DefaultLifecycle};

use super::entry::{Entry, Metadata};
use super::key::{MemoryKey, MemoryKeyRef, SecretHasher};
use super::{ByWeight, Weighed};
use crate::PageKey;

/// A tenth of the memory is for the metadata of evicted pages: of as many pages as bodies of 8 KiB fit in the rest.
pub(super) const METADATA_DIVISOR: u64 = 10;
/// The bytes of the metadata of a page besides those that it counts itself: the slot and the key in the cache, reference
/// counts, and the rounding of the allocator. Measured: see docs/internals/benchmarks.md.
const OVERHEAD: u64 = 256;
/// The size of metadata for which the tables of the cache are laid out.
const TYPICAL_WEIGHT: u64 = 1024;

/// Pages that an insert has evicted or not admitted, in that order.
pub(super) type Evicted = Vec<(MemoryKey, Arc<Entry>)>;

/// Collects the pages that an insert evicts. Their metadata is stored after the insert, which holds a lock.
#[derive(Clone, Debug)]
pub(super) struct CollectEvicted;

impl Lifecycle<MemoryKey, Arc<Entry>> for CollectEvicted {
    type RequestState = Evicted;

    fn on_evict(&self, evicted: &mut Evicted, key: MemoryKey, entry: Arc<Entry>) {
        evicted.push((key, entry));
    }
}

#[derive(Debug)]
pub(super) struct EvictedPages(Cache<MemoryKey, Arc<Metadata>, ByWeight, SecretHasher>);

impl Weighed for Metadata {
    fn weight(&self, key: &MemoryKey) -> u64 {
        OVERHEAD + u64::try_from(key.len() + self.weight).unwrap_or(u64::MAX / 2)
    }
}

impl EvictedPages {
    pub(super) fn new(max_bytes: u64, hasher: SecretHasher) -> Self {
        let items = usize::try_from(max_bytes / TYPICAL_WEIGHT).unwrap_or(usize::MAX).max(16);
        EvictedPages(Cache::with(items, max_bytes, ByWeight, hasher, DefaultLifecycle::default()))
    }

    pub(super) fn get(&self, page: &PageKey) -> Option<Arc<Metadata>> {
        self.0.get(&MemoryKeyRef::from(page))
    }

    pub(super) fn insert(&self, key: MemoryKey, entry: &Entry) {
        self.0.insert(key, entry.metadata.clone());
    }

    pub(super) fn remove(&self, page: &PageKey) {
        self.0.remove(&MemoryKeyRef::from(page));
    }

    pub(super) fn retain(&self, keeps: impl Fn(&MemoryKey) -> bool) {
        self.0.retain(|key, _| keeps(key));
    }

    pub(super) fn weight(&self) -> u64 {
        self.0.weight()
    }
}
