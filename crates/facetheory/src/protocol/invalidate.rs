//! Invalidation: a page that was rendered before it is never fresh after it, in any language.

use tabletheory::{Cond, Item, Key, Timestamp, Txn, Update, Write};

use crate::protocol::row::codec::Reader;
use crate::protocol::{Epoch, Lease, Meta, PageKey, attribute as name, pointer};

/// Whether an invalidated page may be served while it is regenerated.
///
/// ```
/// assert_ne!(facetheory::InvalidationMode::Soft, facetheory::InvalidationMode::Hard);
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum InvalidationMode {
    /// The page may be served stale while it is regenerated. A pinned page does not change.
    Soft,
    /// The page must not be served: the next request waits for its regeneration. This ends a pin.
    Hard,
}

/// The result of the invalidation of a page.
///
/// ```
/// assert_ne!(facetheory::Invalidated::Stale, facetheory::Invalidated::Pinned);
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Invalidated {
    /// The page is stale, and renders that began earlier cannot publish.
    Stale,
    /// The page is pinned, so a soft invalidation did not change it.
    Pinned,
    /// There is no page; renders that began earlier cannot publish one.
    Absent,
}

/// The state of a page before it is invalidated.
#[derive(Debug)]
pub(crate) enum Found {
    Nothing,
    Page,
    /// A page whose row has a pin that another service has ended, by a publish or by moving the pointer. The condition holds
    /// as long as no attribute that decides this has changed.
    PinEnded(Cond),
    Pinned,
}

impl Found {
    /// The state of the page with this `META` row, which readers resolve to `page`.
    ///
    /// A row that cannot be read is a page too, and can be invalidated.
    pub(crate) fn of(row: Option<&Item>, page: Option<&Meta>, now: Timestamp) -> Self {
        let Some(row) = row else { return Found::Nothing };
        if page.is_some_and(|page| page.is_pinned(now)) {
            return Found::Pinned;
        }
        let until: Option<i64> =
            Reader { role: "META", item: row }.field(&name::PINNED_UNTIL).unwrap_or_default();
        if until.is_some_and(|until| until > now.seconds()) {
            return Found::PinEnded(pointer::decides_pin_as_in(row));
        }
        Found::Page
    }
}

/// Makes a page stale, and deletes its lock so that a render that began earlier cannot publish.
///
/// Returns `None` for a soft invalidation of a pinned page: there is nothing to do.
pub(crate) fn page(page: &PageKey, found: Found, mode: InvalidationMode, now: Timestamp) -> Option<Txn> {
    let fence = Write::delete(page.lock());
    let update = |update: Update| Write::update(page.meta(), update).when(name::PK.exists());
    let stale = stale_update(mode, now);
    let write = match (found, mode) {
        // The check and the delete are one transaction, so no page can be published between them.
        (Found::Nothing, _) => Write::check(page.meta(), name::PK.absent()),
        (Found::Pinned, InvalidationMode::Soft) => return None,
        // A value that is not a number is not a pin.
        (Found::Page, InvalidationMode::Soft) => update(stale).when(!name::PINNED_UNTIL.gt(now.seconds())),
        (Found::PinEnded(is_as_read), InvalidationMode::Soft) => {
            update(stale.with(name::PINNED_UNTIL.remove())).when(is_as_read)
        }
        (_, InvalidationMode::Hard) => update(stale),
    };
    Some(Txn::new([write, fence]))
}

/// The hard invalidation of a page by the holder of its lease, which it releases, unless another worker has published since.
pub(crate) fn page_under_lease(lease: &Lease, seen: &Meta, now: Timestamp) -> Txn {
    Txn::new([
        Write::update(lease.page().meta(), stale_update(InvalidationMode::Hard, now))
            .when(pointer::is_as_read(seen)),
        lease.release_held(now),
    ])
}

/// The change of `META`.
fn stale_update(mode: InvalidationMode, now: Timestamp) -> Update {
    let stale = Update::new([name::REVALIDATE_SECONDS.set(0), name::STALE_SINCE.set(now.seconds())]);
    match mode {
        InvalidationMode::Soft => stale,
        InvalidationMode::Hard => {
            stale.with(name::MUST_NOT_SERVE.set(true)).with(name::PINNED_UNTIL.remove())
        }
    }
}

/// Makes all pages with a tag stale: one write to its epoch row, however many pages have it.
///
/// A later epoch is never replaced by an earlier one, so a clock that is behind cannot undo an invalidation.
pub(crate) fn tag(tag: Key, epoch: Epoch) -> Txn {
    // A row without a number is replaced; otherwise nothing with the tag could be invalidated any more.
    let rises = !name::INVALIDATED_AT.ge(epoch.invalidated_at);
    Txn::from(Write::put(tag, epoch.to_item()).when(rises))
}
