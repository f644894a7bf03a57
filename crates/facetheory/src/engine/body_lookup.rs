//! Reads the body that `META` names: from memory, or from the object storage, once for all lookups of the page.
//!
//! An object storage that hangs must not delay pages that are in memory. If memory has an older copy of the page, a lookup
//! waits for the newer body only for a moment; the read continues behind it.

use std::sync::Arc;
use std::time::Duration;

use super::circuit_breaker::Permit;
use super::memory::{Entry, Metadata, MetadataCheck};
use super::metrics::MemoryUse;
use super::single_flight::{Begin, Flight};
use super::{BypassReason, CachedPage, Engine, FailedStore, Phase};
use crate::bodies::ReadBody;
use crate::protocol::{Freshness, Meta};
use crate::{Body, Error, Kind, PageKey};

/// How long a lookup waits for a newer body if memory has an older copy. A healthy store responds sooner.
const NEWER_BODY_TIMEOUT: Duration = Duration::from_millis(200);

/// The result of reading the body that `META` names.
#[derive(Clone, Debug)]
pub(super) enum BodyLookup {
    Found(Arc<Entry>),
    /// There is no page, or it must not be served.
    None,
    /// The body is missing or damaged.
    Missing,
    /// The body is still being read, and memory has an older copy of the page.
    Pending,
    /// The body could not be read.
    Unreachable,
    /// The body does not fit into the memory budget now.
    MemoryFull,
}

impl BodyLookup {
    pub(super) fn entry(&self) -> Option<&Arc<Entry>> {
        if let BodyLookup::Found(entry) = self { Some(entry) } else { None }
    }

    /// Why the body was not read although it may be there.
    pub(super) fn failure(&self) -> Option<BypassReason> {
        match self {
            BodyLookup::Unreachable => Some(BypassReason::Unreachable(FailedStore::Bodies)),
            BodyLookup::MemoryFull => Some(BypassReason::MemoryFull),
            BodyLookup::Found(_) | BodyLookup::None | BodyLookup::Missing | BodyLookup::Pending => None,
        }
    }
}

/// The read of a body that several lookups may share: the metadata that names it, and the result.
pub(super) type SharedBody = (Arc<Meta>, BodyLookup);

impl Engine {
    /// The page in memory. If only its metadata is there, and is current, the body is read.
    pub(super) async fn read_known(self: &Arc<Self>, page: &PageKey) -> Option<Arc<Entry>> {
        match self.memory.get(page) {
            None => self.read_evicted(page).await,
            known => known,
        }
    }

    /// Reads the body of a page whose metadata is in memory, and current. `None` if there is no such metadata, or the body
    /// cannot be read.
    pub(super) async fn read_evicted(self: &Arc<Self>, page: &PageKey) -> Option<Arc<Entry>> {
        let now = self.now();
        let metadata = self.memory.evicted(page).filter(|known| self.is_current(page, known, now))?;
        // Boxed, so that the future of a hit stays small.
        let body = Box::pin(self.read_body(page, &metadata)).await;
        if let BodyLookup::Missing = body {
            self.memory.forget_evicted(page);
        }
        // The table may have named a page that must not be served meanwhile.
        body.entry().filter(|entry| !self.memory.must_not_serve(page, entry)).cloned()
    }

    /// Returns the body that `META` names, from memory if it is there. It is `Pending` if the object storage is slow and
    /// memory has an older copy of the page.
    pub(super) async fn read_body(self: &Arc<Self>, page: &PageKey, metadata: &Arc<Metadata>) -> BodyLookup {
        let Metadata { meta, check, .. } = &**metadata;
        let known = self.memory.get(page);
        if let Some(entry) = known.as_ref().filter(|entry| has_body_of(entry, meta)) {
            return BodyLookup::Found(self.insert_checked(page, entry, metadata));
        }
        let permit = self.bodies_breaker.permit(self.now());
        let body = match (permit, &known) {
            (Permit::Denied, _) => BodyLookup::Unreachable,
            (Permit::Trial, _) => {
                // No client waits for a store that failed a moment ago. If it is back, the next lookup finds the body.
                drop(self.join_body_read(page, metadata));
                BodyLookup::Unreachable
            }
            (Permit::Granted, None) => self.await_body(page, metadata).await,
            (Permit::Granted, Some(_)) => {
                let waiting = tokio::time::timeout(NEWER_BODY_TIMEOUT, self.await_body(page, metadata));
                waiting.await.unwrap_or(BodyLookup::Pending)
            }
        };
        let is_unread = matches!(body, BodyLookup::Pending) || body.failure().is_some();
        let Some(older) = known.as_ref().filter(|_| is_unread) else { return body };
        let may_have_expired = meta.may_have_expired(older.page.generation(), self.pages.store().skew());
        if !may_have_expired && !self.has_expired_tag(page, older).await {
            self.mark_superseded(page, older, meta, *check).await;
            return body;
        }
        // The older copy must not be served, so the lookup waits as if memory had none.
        self.memory.remove_generation(page, older.page.generation());
        if matches!(body, BodyLookup::Pending) { self.await_body(page, metadata).await } else { body }
    }

    /// Whether a tag of a page in memory was hard invalidated since its render began, or that cannot be found out.
    async fn has_expired_tag(&self, page: &PageKey, entry: &Entry) -> bool {
        let freshness = self.pages.store().freshness(page, entry.page.meta());
        !matches!(self.within_table_timeout(freshness).await, Ok(Freshness::Fresh | Freshness::Stale))
    }

    /// Waits for the body that `META` names, for as long as the object storage may take.
    pub(super) async fn await_body(self: &Arc<Self>, page: &PageKey, metadata: &Arc<Metadata>) -> BodyLookup {
        let meta = &metadata.meta;
        // The first read may be that of another body, which an earlier `META` named.
        for _ in 0..2 {
            let Some((read, body)) = self.join_body_read(page, metadata).result().await else { break };
            match body {
                BodyLookup::Found(entry) if has_body_of(&entry, meta) => {
                    return BodyLookup::Found(self.insert_checked(page, &entry, metadata));
                }
                body if read.generation.s3_key == meta.generation.s3_key => return body,
                _ => {}
            }
        }
        BodyLookup::Unreachable
    }

    fn join_body_read(self: &Arc<Self>, page: &PageKey, metadata: &Arc<Metadata>) -> Flight<SharedBody> {
        let start = |_| {
            let (engine, page, metadata) = (self.clone(), page.clone(), metadata.clone());
            async move {
                let body = engine.read_object(&page, &metadata).await;
                (metadata.meta.clone(), body)
            }
        };
        self.body_reads.join(self, page, Begin::AtOnce, start)
    }

    async fn read_object(self: &Arc<Self>, page: &PageKey, metadata: &Arc<Metadata>) -> BodyLookup {
        let meta = &metadata.meta;
        let budget = &self.memory.budget;
        let body = self.pages.admitted_body(meta, |length| budget.acquire(length)).await;
        if body.is_ok() {
            self.bodies_breaker.record_success();
        }
        match body {
            Ok(ReadBody::Found(body, permit)) => {
                // From here on the body has a permit of its own.
                let bytes = budget.count_body(body.bytes);
                drop(permit);
                let read = CachedPage::new(meta.clone(), Body { bytes, ..body });
                BodyLookup::Found(self.insert(page, Entry::with_metadata(read.into(), metadata.clone())))
            }
            Ok(ReadBody::Refused) => {
                self.metrics.memory_full(MemoryUse::Body);
                BodyLookup::MemoryFull
            }
            Ok(ReadBody::Missing) if self.is_replaced(page, meta).await => BodyLookup::Missing,
            Ok(ReadBody::Missing) => {
                let s3_key = &meta.generation.s3_key;
                let context = format!("the body {s3_key} is missing or damaged; the page is rendered again");
                self.metrics.incident(Phase::Body, page, &Error::new(Kind::Corrupt, context));
                BodyLookup::Missing
            }
            Err(error) => {
                self.bodies_breaker.record_failure(self.now(), &*self.random);
                self.metrics.incident(Phase::Body, page, &error);
                BodyLookup::Unreachable
            }
        }
    }

    /// Whether the table names another body by now, so that it is no fault that this one is missing. A process that relies on
    /// the change feed may hold the metadata of a page longer than replaced bodies are stored.
    async fn is_replaced(&self, page: &PageKey, meta: &Meta) -> bool {
        let view = self.within_table_timeout(self.pages.store().lookup(page)).await;
        let current = view.ok().and_then(|view| view.meta);
        current.is_some_and(|current| current.generation.s3_key != meta.generation.s3_key)
    }

    /// Stores an entry again after another check, with the metadata that was read.
    fn insert_checked(
        self: &Arc<Self>,
        page: &PageKey,
        entry: &Arc<Entry>,
        metadata: &Arc<Metadata>,
    ) -> Arc<Entry> {
        // The body was just read, and stored, for this check.
        if entry.has_metadata(metadata) {
            return entry.clone();
        }
        let Metadata { meta, check, .. } = &**metadata;
        if entry.meta == *meta {
            return self.memory.insert(page, entry.checked_again(*check));
        }
        let updated = CachedPage::with_body(meta.clone(), entry.page.body.clone());
        self.insert(page, Entry::new(updated.into(), *check, entry.render_time))
    }

    /// Remembers that the table names a newer body than that of an entry, so that the next requests do not read the table
    /// just to learn it again. The entry is stale since the newer page was generated, if it was fresh until then.
    async fn mark_superseded(&self, page: &PageKey, older: &Arc<Entry>, newer: &Meta, check: MetadataCheck) {
        let store = self.pages.store();
        let invalidated = older.page.follows_origin() && {
            let outdated = store.is_outdated(page, older.page.meta());
            self.within_table_timeout(outdated).await.unwrap_or(true)
        };
        let check = MetadataCheck { stale: true, invalidated, superseded: true, ..check };
        let mut meta = older.page.meta().clone();
        let stale_since = meta.stale_since.unwrap_or_else(|| meta.generation.expires_at());
        meta.stale_since = Some(stale_since.min(newer.generation.generated_at));
        let superseded = CachedPage::with_body(meta, older.page.body.clone());
        self.memory.replace(page, older, Entry::new(superseded.into(), check, older.render_time));
    }
}

fn has_body_of(entry: &Entry, meta: &Meta) -> bool {
    entry.page.generation().s3_key == meta.generation.s3_key
}
