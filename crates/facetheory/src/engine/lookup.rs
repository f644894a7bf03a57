//! Reads the metadata of a page from the table, and its body: once for all concurrent requests.

use std::sync::Arc;
use std::time::Duration;

use tabletheory::Timestamp;
use tracing::Instrument as _;

use super::body_lookup::BodyLookup;
use super::memory::{Metadata, MetadataCheck, Snapshot};
use super::single_flight::Begin;
use super::{CachedPage, Engine, EntryView, Isr, Phase, ReusePolicy, ServeDecision};
use crate::protocol::{Freshness, Meta};
use crate::{Error, Kind, PageKey, RegenerateReason, Result};

/// The metadata of a page, and its body.
#[derive(Clone, Debug)]
pub(super) struct LookupResult {
    pub(super) meta: Option<Arc<Meta>>,
    /// The freshness of the page by its times and tags, when the table was read.
    pub(super) freshness: Freshness,
    pub(super) check: MetadataCheck,
    pub(super) body: BodyLookup,
}

impl LookupResult {
    /// Decides how the page may be used now. It may have gone stale while its body was read. A page whose body is
    /// missing or damaged (`BodyLookup::Missing`) is `Unusable`. Callers deal with a body that is pending or
    /// unreachable before this.
    pub(super) fn decide(
        &self,
        reuse: &dyn ReusePolicy,
        deployment: Option<&str>,
        now: Timestamp,
    ) -> ServeDecision {
        // `Stale` is also the reason for a missing page.
        let Some(meta) = &self.meta else { return ServeDecision::Unusable(RegenerateReason::Stale) };
        if matches!(self.body, BodyLookup::Missing) {
            let s3_key = meta.generation.s3_key.clone();
            return ServeDecision::Unusable(RegenerateReason::BodyMissing(s3_key));
        }
        let freshness = match self.freshness {
            Freshness::Fresh => meta.freshness(now),
            other => other,
        };
        let page = self.body.entry().map(|entry| &*entry.page);
        let invalidated = self.check.invalidated;
        reuse.decide(&EntryView { meta, page, freshness, invalidated, deployment, now })
    }
}

/// A lookup that several requests may share.
pub(super) type SharedLookup = Result<Arc<LookupResult>, Arc<Error>>;

fn unavailable(context: &str) -> SharedLookup {
    Err(Arc::new(Error::new(Kind::Unavailable, context)))
}

impl Isr {
    /// Returns the stored page, stale or not, and how it may be used. Renders nothing. While the table is
    /// unreachable, it returns the page in memory.
    pub(crate) async fn lookup_with(
        &self,
        page: &PageKey,
        reuse: &dyn ReusePolicy,
    ) -> Option<(Arc<CachedPage>, ServeDecision)> {
        let engine = &self.engine;
        let known = engine.read_known(page).await;
        let now = engine.now();
        if let Some(entry) = known.as_ref().filter(|entry| engine.is_current(page, entry, now)) {
            return Some((entry.page.clone(), engine.decide(entry, reuse, now)));
        }
        let start = engine.memory.snapshot(page, now);
        let Ok(found) = engine.lookup(page, start).await else {
            return known.map(|entry| (entry.page.clone(), engine.decide_offline(page, &entry, reuse, now)));
        };
        if matches!(found.body, BodyLookup::Pending) {
            let older = engine.memory.get(page)?;
            return Some((older.page.clone(), engine.decide_offline(page, &older, reuse, engine.now())));
        }
        let entry = found.body.entry()?;
        Some((entry.page.clone(), found.decide(reuse, engine.deployment.as_deref(), engine.now())))
    }
}

impl Engine {
    /// Looks a page up, together with all requests that do so now.
    pub(super) async fn lookup(self: &Arc<Self>, page: &PageKey, start: Snapshot) -> SharedLookup {
        if !self.table_breaker.allows_call(self.now()) {
            return unavailable(
                "the table was unreachable a moment ago, and is not called for up to a second",
            );
        }
        // With `metadata_max_age = 0`, every request reads for itself, and shares no lookup.
        if self.metadata_max_age.is_zero() {
            return self.read(page).await;
        }
        let known = self.recent_lookups.get(page);
        if let Some(found) = known.filter(|found| start.accepts(found.check, self.metadata_max_age)) {
            return Ok(found);
        }
        let found = self.shared_read(page).await;
        match &found {
            // The read that we joined began before this request and may miss an invalidation, so read once more; the
            // next read begins later.
            Ok(found) if !start.accepts(found.check, self.metadata_max_age) => self.shared_read(page).await,
            _ => found,
        }
    }

    async fn shared_read(self: &Arc<Self>, page: &PageKey) -> SharedLookup {
        let start = |_| {
            let (engine, page) = (self.clone(), page.clone());
            async move { engine.read(&page).await }
        };
        let mut flight = self.lookups.join(self, page, Begin::AtOnce, start);
        flight
            .result()
            .await
            .unwrap_or_else(|| unavailable("table lookup failed: the task panicked or was stopped"))
    }

    /// Reads the metadata of a page from the table, and its body unless that is in memory.
    pub(super) async fn read(self: &Arc<Self>, page: &PageKey) -> SharedLookup {
        let (before, store) = (self.memory.snapshot(page, self.now()), self.pages.store());
        let reading = async {
            let view = store.lookup(page).await?;
            let freshness = match &view.meta {
                Some(meta) => store.freshness(page, meta).await?,
                None => Freshness::MustNotServe,
            };
            // A response that follows its origin must be revalidated after an invalidation, even if it was stale before.
            let invalidated = match &view.meta {
                Some(meta) if meta.generation.follows_origin() && !meta.is_pinned(before.at.wall) => {
                    store.is_outdated(page, meta).await?
                }
                _ => false,
            };
            Ok((view, freshness, invalidated))
        };
        let reading = reading.instrument(tracing::debug_span!("lookup", page = %page.redacted()));
        let (view, freshness, invalidated) = match self.within_table_timeout(reading).await {
            Ok(read) => read,
            Err(error) => {
                self.table_breaker.record_failure(self.now(), &*self.random);
                self.metrics.incident(Phase::Table, page, &error);
                return Err(Arc::new(error));
            }
        };
        self.table_breaker.record_success();
        let stale = freshness == Freshness::Stale;
        let leased_until = view.lock.map_or(0, |lock| lock.lease_expires_at);
        let check = MetadataCheck { before, stale, invalidated, leased_until, superseded: false };
        let meta = view.meta.map(Arc::new);
        let body = match &meta {
            Some(meta) if freshness != Freshness::MustNotServe => {
                self.read_body(page, &Metadata::new(meta.clone(), check, Duration::ZERO).into()).await
            }
            Some(meta) => {
                self.memory.remove_generation(page, &meta.generation);
                BodyLookup::None
            }
            // The page stays in memory: a table that is failing may return no row although there is one. It is served
            // only while the table is unreachable. If the change feed has named it, it was evicted, and invalidated after that.
            None => {
                if self.memory.peek(page).is_some_and(|known| self.has_changed(page, &known)) {
                    self.memory.forget(page);
                }
                BodyLookup::None
            }
        };
        let found = Arc::new(LookupResult { meta, freshness, check, body });
        self.recent_lookups.record(page, &found);
        Ok(found)
    }

    /// Runs a call of the table within its timeout.
    pub(super) async fn within_table_timeout<T>(&self, call: impl Future<Output = Result<T>>) -> Result<T> {
        let limit = self.table_timeout;
        tokio::time::timeout(limit, call).await.unwrap_or_else(|_| {
            Err(Error::new(Kind::Unavailable, format!("the table did not respond within {limit:?}")))
        })
    }
}
