//! What readers and publishers were told.

use facetheory::protocol::{Freshness, Meta};
use facetheory::{Body, InvalidationMode, PageKey, Tag};
use tabletheory::Timestamp;

use super::{Ledger, State};
use crate::tally::Count;
use crate::violation::Invariant;
use crate::world::Place;

/// What had been acknowledged when a read began.
#[derive(Debug)]
pub(crate) struct Fences {
    soft: Option<Timestamp>,
    hard: Option<Timestamp>,
    tag: Option<Timestamp>,
    version: Option<u64>,
    exists: bool,
}

impl Ledger {
    /// An operation starts to render, under the lease that it was granted.
    pub(crate) fn render_starts(&self, owner: &str) {
        let mut state = self.state();
        let now = state.now;
        if let Some(token) = state.tokens.get(owner).cloned() {
            state.starts.insert(token, now);
        }
    }

    /// An operation was told that it has published.
    pub(crate) fn told_published(&self, owner: &str) {
        let mut state = self.state();
        state.heard += 1;
        let published = state.has_published(owner);
        state.ensure(published, Invariant::TruthfulReport, || {
            format!("{owner} was told that it has published")
        });
    }

    /// An operation was told that it has not published, and never will.
    pub(crate) fn told_denied(&self, owner: &str) {
        let mut state = self.state();
        state.count(Count::Denied);
        let published = state.has_published(owner);
        state.ensure(!published, Invariant::TruthfulReport, || {
            format!("{owner} was told that it has not published")
        });
        state.denied.insert(owner.to_owned());
    }

    /// An invalidation that was asked for at this time was acknowledged.
    pub(crate) fn told_invalidated(&self, page: &PageKey, strength: InvalidationMode, asked: Timestamp) {
        let mut state = self.state();
        let page = state.pages.entry(page.pk().to_owned()).or_default();
        page.soft_fence = page.soft_fence.max(Some(asked));
        if strength == InvalidationMode::Hard {
            page.hard_fence = page.hard_fence.max(Some(asked));
        }
    }

    /// The invalidation of a tag that was asked for at this time was acknowledged.
    pub(crate) fn told_tag_invalidated(&self, place: &Place, tag: &Tag, asked: Timestamp) {
        let mut state = self.state();
        let fence = state.tags.entry(tag.key(Some(&place.tenant))).or_insert(asked);
        *fence = asked.max(*fence);
    }

    /// A read begins.
    pub(crate) fn reading(&self, place: &Place, tags: &[Tag]) -> Fences {
        let state = self.state();
        let page = state.pages.get(place.key.pk());
        let meta = state.meta(place.key.pk());
        Fences {
            soft: page.and_then(|page| page.soft_fence),
            hard: page.and_then(|page| page.hard_fence),
            tag: tags.iter().filter_map(|tag| state.tags.get(&tag.key(Some(&place.tenant))).copied()).max(),
            version: meta.as_ref().and_then(|meta| meta.version),
            exists: meta.is_some(),
        }
    }

    /// A read has found this row.
    pub(crate) fn read_row(
        &self,
        place: &Place,
        fences: &Fences,
        meta: Option<&Meta>,
        freshness: Option<Freshness>,
    ) {
        let mut state = self.state();
        let Some(meta) = meta else {
            state.ensure(!fences.exists, Invariant::StaysReadable, || format!("{place} had vanished"));
            return;
        };
        state.ensure(meta.version >= fences.version, Invariant::StaysReadable, || {
            format!("{place} was read at version {:?} after {:?}", meta.version, fences.version)
        });
        // A pin holds what an operator chose, whenever it was rendered.
        if meta.pinned_until.is_some() {
            return;
        }
        // A rollback takes the mark of the last publish away.
        let rendered = meta.mark.as_ref().map(|token| state.starts.get(token));
        let start = rendered.unwrap_or_else(|| state.body_starts.get(&meta.generation.s3_key)).copied();
        let Some(start) = start else { return };
        let outdated = |fence: Option<Timestamp>| fence.is_some_and(|fence| start < fence);
        let fresh = freshness == Some(Freshness::Fresh);
        if fresh {
            state.count(Count::ServedFresh);
        }
        let ok = !(fresh && (outdated(fences.soft) || outdated(fences.tag)));
        state.ensure(ok, Invariant::NotFreshAfterInvalidation, || {
            format!("{place} is fresh, was rendered at {start:?} and invalidated at {fences:?}")
        });
        // Whoever rolls back decides that it may be served again.
        let ok = freshness == Some(Freshness::MustNotServe) || meta.mark.is_none() || !outdated(fences.hard);
        state.ensure(ok, Invariant::NotFreshAfterInvalidation, || {
            format!("{place} may be served, was rendered at {start:?} and forbidden at {fences:?}")
        });
    }

    /// A read has got this body for this row.
    pub(crate) fn read_body(&self, place: &Place, meta: &Meta, body: &Body) {
        let mut state = self.state();
        state.count(Count::Served);
        let s3_key = &meta.generation.s3_key;
        let own = body.bytes.starts_with(place.signature().as_bytes());
        state.ensure(own, Invariant::TenantsApart, || format!("{place} was served {:?}", body.bytes));
        let right = state.objects.get(s3_key).is_some_and(|object| object.bytes == body.bytes);
        state.ensure(right, Invariant::StaysReadable, || format!("{s3_key} was read as {:?}", body.bytes));
    }

    /// A read has got no body, or none that is whole, for this row. Says whether it is one to heal.
    pub(crate) fn read_no_body(&self, place: &Place, meta: &Meta) -> bool {
        let mut state = self.state();
        let s3_key = &meta.generation.s3_key;
        let now = state.meta(place.key.pk());
        let named = now.is_some_and(|now| now.generation.s3_key == *s3_key);
        let object = state.objects.get(s3_key);
        let broken = object.is_some_and(|object| object.broken);
        let deleted = object.is_some_and(|object| object.deleted);
        // A version that a reader has just looked up may be superseded and collected before it gets there.
        let ok = broken || deleted && !named;
        state.ensure(ok, Invariant::StaysReadable, || format!("{s3_key} of {place} cannot be read"));
        broken
    }
}

impl State {
    fn has_published(&self, owner: &str) -> bool {
        let token = self.tokens.get(owner);
        token.is_some_and(|token| self.pages.values().any(|page| page.publishers.contains(token)))
    }
}
