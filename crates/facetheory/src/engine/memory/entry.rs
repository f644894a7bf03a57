//! A page in memory, with the metadata that was read from the table.

use std::ops::Deref;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};
use std::time::Duration;

use tabletheory::Timestamp;

use super::invalidations::InvalidationCount;
use crate::engine::MemoryPermit;
use crate::engine::cached_page::{CachedPage, weight_of};
use crate::protocol::Meta;
use crate::store::Moment;

/// A page in memory: its metadata, and its body.
#[derive(Debug)]
pub(in crate::engine) struct Entry {
    pub(in crate::engine) page: Arc<CachedPage>,
    pub(super) metadata: Arc<Metadata>,
    /// The bytes that this entry counts for. They must not change while it is in the cache.
    pub(super) weight: usize,
    /// For the bytes besides the body and its compressed forms, which have permits of their own, while this is in memory.
    pub(super) permit: Option<MemoryPermit>,
}

/// The metadata of a page, and the result of the last check against the table. Another check makes another one. It stays in
/// memory after the body was evicted.
#[derive(Debug)]
pub(in crate::engine) struct Metadata {
    pub(in crate::engine) meta: Arc<Meta>,
    /// The bytes of memory that this takes.
    pub(super) weight: usize,
    pub(in crate::engine) check: MetadataCheck,
    /// How long the page took to render; zero if it was not rendered by this process.
    pub(in crate::engine) render_time: Duration,
    /// When the lease of another process ends, in epoch seconds, as far as is known.
    leased_until: AtomicI64,
    /// The number of changes that are known not to concern this page.
    known_changes: AtomicU64,
    /// The last use that was recorded in the table, as far as this process knows, and after how many seconds the next one has to
    /// be, in epoch seconds. A page without a record has neither.
    used_at: AtomicI64,
    use_slack: i64,
}

impl Entry {
    pub(in crate::engine) fn new(page: Arc<CachedPage>, check: MetadataCheck, render_time: Duration) -> Self {
        let metadata = Metadata::new(page.meta.clone(), check, render_time);
        Entry::with_metadata(page, metadata.into())
    }

    /// A page whose body was read after its metadata.
    pub(in crate::engine) fn with_metadata(page: Arc<CachedPage>, metadata: Arc<Metadata>) -> Self {
        let weight = metadata.weight + page.weight();
        Entry { page, metadata, weight, permit: None }
    }

    /// The bytes that this entry counts for, without those of the body and its compressed forms.
    pub(super) fn weight_without_body(&self) -> usize {
        self.weight.saturating_sub(self.page.body_bytes())
    }

    pub(in crate::engine) fn has_metadata(&self, metadata: &Arc<Metadata>) -> bool {
        Arc::ptr_eq(&self.metadata, metadata)
    }

    /// This page after another check.
    pub(in crate::engine) fn checked_again(&self, check: MetadataCheck) -> Self {
        Entry::new(self.page.clone(), check, self.render_time)
    }
}

impl Deref for Entry {
    type Target = Metadata;

    fn deref(&self) -> &Metadata {
        &self.metadata
    }
}

impl Metadata {
    pub(in crate::engine) fn new(meta: Arc<Meta>, check: MetadataCheck, render_time: Duration) -> Self {
        let leased_until = AtomicI64::new(check.leased_until);
        let known_changes = AtomicU64::new(check.before.known_changes);
        let weight = size_of::<Metadata>() + weight_of(&meta);
        let used_at = AtomicI64::new(meta.used_at.unwrap_or(i64::MAX));
        let use_slack = meta.use_slack().unwrap_or(i64::MAX);
        Metadata { meta, weight, check, render_time, leased_until, known_changes, used_at, use_slack }
    }

    pub(in crate::engine) fn is_leased(&self, now: Timestamp) -> bool {
        self.leased_until.load(Ordering::Relaxed) > now.seconds()
    }

    pub(in crate::engine) fn known_changes(&self) -> u64 {
        self.known_changes.load(Ordering::Relaxed)
    }

    pub(in crate::engine) fn set_known_changes(&self, number: u64) {
        self.known_changes.store(number, Ordering::Relaxed);
    }

    /// Whether a use now has to be recorded, if another one is recorded after at most so many seconds.
    pub(in crate::engine) fn is_use_due(&self, now: i64, after: i64) -> bool {
        now.saturating_sub(self.used_at.load(Ordering::Relaxed)) >= after.min(self.use_slack)
    }

    pub(in crate::engine) fn set_used_at(&self, now: i64) {
        self.used_at.store(now, Ordering::Relaxed);
    }

    pub(in crate::engine) fn set_leased_until(&self, until: i64) {
        self.leased_until.store(until, Ordering::Relaxed);
    }
}

/// The result of reading a page's metadata from the table.
#[derive(Clone, Copy, Debug)]
pub(in crate::engine) struct MetadataCheck {
    /// Before the read: the result may be older than the time at which it arrived, and a later invalidation makes it
    /// outdated.
    pub(in crate::engine) before: Snapshot,
    /// Whether the page is stale, by its times or its tags.
    pub(in crate::engine) stale: bool,
    /// Whether the page was invalidated. This is read only for pages that follow their origin.
    pub(in crate::engine) invalidated: bool,
    /// When the lease on the page ends, in epoch seconds; zero if there is none.
    pub(in crate::engine) leased_until: i64,
    /// Whether the table names a newer body, which could not be read yet.
    pub(in crate::engine) superseded: bool,
}

impl MetadataCheck {
    /// The check of a page that was just rendered: its tags were last read before the render began.
    pub(in crate::engine) fn before_render(before: Snapshot) -> Self {
        MetadataCheck { before, stale: false, invalidated: false, leased_until: 0, superseded: false }
    }
}

/// A time, and the invalidations of a page that this process had made by then.
#[derive(Clone, Copy, Debug)]
pub(in crate::engine) struct Snapshot {
    pub(in crate::engine) at: Moment,
    pub(in crate::engine) invalidations: InvalidationCount,
    /// The number of changes of other processes that were known by then.
    pub(in crate::engine) known_changes: u64,
}

impl Snapshot {
    /// Whether a check that was made for another request is recent enough for the request that arrived at this time.
    pub(in crate::engine) fn accepts(&self, check: MetadataCheck, max_age: Duration) -> bool {
        self.at.is_within(check.before.at, max_age)
            && check.before.invalidations.includes(self.invalidations)
            && check.before.known_changes >= self.known_changes
    }
}
