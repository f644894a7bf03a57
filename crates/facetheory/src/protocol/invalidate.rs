//! Invalidation: what was rendered before it is never fresh after it, in any language.

use tabletheory::{Item, Key, Timestamp, Txn, Update, Write};

use crate::protocol::attribute as name;
use crate::protocol::epoch::{Epoch, Tag};
use crate::protocol::key::{PageKey, Tenant};
use crate::protocol::lease::Lease;
use crate::protocol::row::Meta;

/// What becomes of a page that is invalidated.
///
/// ```
/// assert_ne!(facetheory::InvalidationMode::Soft, facetheory::InvalidationMode::Hard);
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum InvalidationMode {
    /// It may be served while it is renewed. A pinned page is left alone.
    Soft,
    /// It may not be served any more: the next request waits. This ends a pin.
    Hard,
}

/// What an invalidation met.
///
/// ```
/// assert_ne!(facetheory::Invalidated::Stale, facetheory::Invalidated::Pinned);
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Invalidated {
    /// The page is stale now, and renders that began before cannot publish.
    Stale,
    /// The page is pinned, and a soft invalidation leaves it alone.
    Pinned,
    /// There is no page; renders that began before cannot publish one.
    Absent,
}

/// What was found of a page before it is invalidated.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Found {
    Nothing,
    Page,
    Pinned,
}

impl Found {
    /// A row that cannot be read is a page all the same, and can be invalidated.
    pub(crate) fn of(row: Option<&Item>, now: Timestamp) -> Self {
        match row.map(Meta::read) {
            None => Found::Nothing,
            Some(Ok(meta)) if meta.is_pinned(now) => Found::Pinned,
            Some(_) => Found::Page,
        }
    }
}

/// Makes one page stale, and fences renders that began before: they lose their lease, so they cannot publish.
///
/// None if there is nothing to do: a pinned page is left alone by a soft invalidation.
pub(crate) fn page(page: &PageKey, found: Found, mode: InvalidationMode, now: Timestamp) -> Option<Txn> {
    let fence = Write::delete(page.lock());
    match (found, mode) {
        // Together with the fence, so that no page can slip in between.
        (Found::Nothing, _) => {
            return Some(Txn::new([Write::check(page.meta(), name::PK.absent()), fence]));
        }
        (Found::Pinned, InvalidationMode::Soft) => return None,
        (Found::Page, _) | (Found::Pinned, InvalidationMode::Hard) => {}
    }
    let update = Write::update(page.meta(), stale_update(mode, now));
    // What is no number is no pin either.
    let unpinned = !name::PINNED_UNTIL.gt(now.seconds());
    let update = match mode {
        InvalidationMode::Soft => update.when(name::PK.exists()).when(unpinned),
        InvalidationMode::Hard => update.when(name::PK.exists()),
    };
    Some(Txn::new([update, fence]))
}

/// Makes what was seen of a page unusable and gives the lease back, by whoever holds it: nobody else has published since.
pub(crate) fn page_under_lease(lease: &Lease, seen: &Meta, now: Timestamp) -> Txn {
    let page = lease.page();
    Txn::new([
        Write::update(page.meta(), stale_update(InvalidationMode::Hard, now))
            .when(name::S3_KEY.is(seen.generation.s3_key.as_str())),
        // DynamoDB refuses two writes to one row, so the guard rides on the delete.
        Write::delete(page.lock()).when(lease.held_at(now)),
    ])
}

/// What becomes of `META`.
fn stale_update(mode: InvalidationMode, now: Timestamp) -> Update {
    let stale = Update::new([name::REVALIDATE_SECONDS.set(0), name::STALE_SINCE.set(now.seconds())]);
    match mode {
        InvalidationMode::Soft => stale,
        InvalidationMode::Hard => {
            stale.with(name::MUST_NOT_SERVE.set(true)).with(name::PINNED_UNTIL.remove())
        }
    }
}

/// Makes everything with a tag stale: one write, however many pages have it.
///
/// A clock that is behind never takes a later invalidation back.
pub(crate) fn tag(tag: &Tag, tenant: Option<&Tenant>, now: Timestamp) -> Txn {
    epoch(tag.key(tenant), Epoch { invalidated_at: now.seconds() })
}

/// The transaction that tells of an epoch, unless a later one is known there.
pub(crate) fn epoch(tag: Key, epoch: Epoch) -> Txn {
    // A row without a number is replaced, or nothing could ever be invalidated by it.
    let rises = !name::INVALIDATED_AT.ge(epoch.invalidated_at);
    Txn::from(Write::put(tag, epoch.to_item()).when(rises))
}
