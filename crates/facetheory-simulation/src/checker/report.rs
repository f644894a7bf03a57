//! Results that workers report: of publishes, invalidations and reads.

use facetheory::protocol::{Freshness, Meta};
use facetheory::{Body, InvalidationMode, PageKey, Tag};
use tabletheory::Timestamp;

use super::{Checker, State};
use crate::stats::Counter;
use crate::violation::Invariant;
use crate::world::SimPage;

/// The acknowledged state of a page when a read started.
#[derive(Debug)]
pub(crate) struct ReadBaseline {
    invalidated: Option<Timestamp>,
    hard_invalidated: Option<Timestamp>,
    tag_invalidated: Option<Timestamp>,
    version: Option<u64>,
    exists: bool,
}

impl Checker {
    /// An operation starts to render under its lease.
    pub(crate) fn render_started(&self, owner: &str) {
        let mut state = self.state();
        let now = state.now();
        if let Some(token) = state.tokens.get(owner).and_then(|tokens| tokens.last()).cloned() {
            state.starts.insert(token, now);
        }
    }

    /// A publish was reported to its operation as done.
    pub(crate) fn reported_published(&self, owner: &str) {
        let mut state = self.state();
        state.confirmed += 1;
        let published = state.has_published(owner);
        state.ensure(published, Invariant::TruthfulReport, || {
            format!("{owner} got the result `published` and has not published")
        });
    }

    /// A publish was reported to its operation as not done, now or later.
    pub(crate) fn reported_not_published(&self, owner: &str) {
        let mut state = self.state();
        state.count(Counter::NotPublished);
        let published = state.has_published(owner);
        state.ensure(!published, Invariant::TruthfulReport, || {
            format!("{owner} got the result `not published` and has published")
        });
        state.not_published.insert(owner.to_owned());
    }

    /// An invalidation that was requested at this time was acknowledged.
    pub(crate) fn reported_invalidated(&self, page: &PageKey, mode: InvalidationMode, requested: Timestamp) {
        let mut state = self.state();
        let page = state.pages.entry(page.pk().to_owned()).or_default();
        page.invalidated = page.invalidated.max(Some(requested));
        if mode == InvalidationMode::Hard {
            page.hard_invalidated = page.hard_invalidated.max(Some(requested));
        }
    }

    /// A tag invalidation that was requested at this time was acknowledged.
    pub(crate) fn reported_tag_invalidated(&self, page: &SimPage, tag: &Tag, requested: Timestamp) {
        let mut state = self.state();
        let latest = state.tags.entry(tag.key(Some(&page.tenant))).or_insert(requested);
        *latest = requested.max(*latest);
    }

    /// A read starts.
    pub(crate) fn read_started(&self, page: &SimPage, tags: &[Tag]) -> ReadBaseline {
        let state = self.state();
        let history = state.pages.get(page.key.pk());
        let meta = state.meta(page.key.pk());
        ReadBaseline {
            invalidated: history.and_then(|history| history.invalidated),
            hard_invalidated: history.and_then(|history| history.hard_invalidated),
            tag_invalidated: tags
                .iter()
                .filter_map(|tag| state.tags.get(&tag.key(Some(&page.tenant))).copied())
                .max(),
            version: meta.as_ref().and_then(|meta| meta.version),
            exists: meta.is_some(),
        }
    }

    /// A read has found this row.
    pub(crate) fn row_read(
        &self,
        page: &SimPage,
        baseline: &ReadBaseline,
        meta: Option<&Meta>,
        freshness: Option<Freshness>,
    ) {
        let mut state = self.state();
        let Some(meta) = meta else {
            state.ensure(!baseline.exists, Invariant::StaysReadable, || format!("{page} lost its row"));
            return;
        };
        state.ensure(meta.version >= baseline.version, Invariant::StaysReadable, || {
            format!("{page} was read at version {:?} after {:?}", meta.version, baseline.version)
        });
        // Pinned: an operator chose this version, whenever it was rendered.
        if meta.pinned_until.is_some() {
            return;
        }
        // A rollback removes the mark of the last publish.
        let rendered = meta.mark.as_ref().map(|token| state.starts.get(token));
        let start = rendered.unwrap_or_else(|| state.body_starts.get(&meta.generation.s3_key)).copied();
        let Some(start) = start else { return };
        let outdated = |invalidated: Option<Timestamp>| invalidated.is_some_and(|at| start < at);
        let fresh = freshness == Some(Freshness::Fresh);
        if fresh {
            state.count(Counter::ServedFresh);
        }
        let ok = !(fresh && (outdated(baseline.invalidated) || outdated(baseline.tag_invalidated)));
        state.ensure(ok, Invariant::NotFreshAfterInvalidation, || {
            format!("{page} is fresh, but was rendered at {start:?} and invalidated at {baseline:?}")
        });
        // A rollback allows a version to be served again.
        let ok = freshness == Some(Freshness::MustNotServe)
            || meta.mark.is_none()
            || !outdated(baseline.hard_invalidated);
        state.ensure(ok, Invariant::NotFreshAfterInvalidation, || {
            format!(
                "{page} may be served, but was rendered at {start:?} and hard-invalidated at {baseline:?}"
            )
        });
    }

    /// A read has found this body for this row.
    pub(crate) fn body_read(&self, page: &SimPage, meta: &Meta, body: &Body) {
        let mut state = self.state();
        state.count(Counter::Served);
        let s3_key = &meta.generation.s3_key;
        let own = body.bytes.starts_with(page.signature().as_bytes());
        state.ensure(own, Invariant::TenantIsolation, || format!("{page} was served {:?}", body.bytes));
        let right = state.objects.get(s3_key).is_some_and(|object| object.bytes == body.bytes);
        state.ensure(right, Invariant::StaysReadable, || format!("{s3_key} was read as {:?}", body.bytes));
    }

    /// A read has found no intact body for this row. Returns whether it was damaged on purpose and must be replaced.
    pub(crate) fn body_missing(&self, page: &SimPage, meta: &Meta) -> bool {
        let mut state = self.state();
        let s3_key = &meta.generation.s3_key;
        let now = state.meta(page.key.pk());
        let current = now.is_some_and(|now| now.generation.s3_key == *s3_key);
        let object = state.objects.get(s3_key);
        let damaged = object.is_some_and(|object| object.damaged);
        let deleted = object.is_some_and(|object| object.deleted);
        // A version may be superseded and deleted by gc between the reads of its row and its body.
        let ok = damaged || deleted && !current;
        state.ensure(ok, Invariant::StaysReadable, || format!("{s3_key} of {page} cannot be read"));
        damaged
    }
}

impl State {
    fn has_published(&self, owner: &str) -> bool {
        // A put of `LOCK` that it had given up may be granted after it has published with a later token.
        let mut tokens = self.tokens.get(owner).into_iter().flatten();
        tokens.any(|token| self.pages.values().any(|page| page.publishers.contains(token)))
    }
}
