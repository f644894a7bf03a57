//! Invalidation: a page that was rendered before it is never fresh after it, in any language.

use tabletheory::{Cond, Item, Key, Number, Timestamp, Txn, Update, Value, Write};

use crate::protocol::row::codec::Reader;
use crate::protocol::{Lease, Meta, PageKey, attribute as name, pointer};

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

/// The invalidation of all pages with a tag: one write to its epoch row, however many pages there are.
///
/// It always counts. The time rises too, for pages without counts, unless the row has a later one: a clock that is behind must
/// not cancel the invalidation of another one.
#[derive(Debug)]
pub(crate) struct TagInvalidation {
    pub(crate) tag: Key,
    pub(crate) now: Timestamp,
    /// The `ttl` of the row, in epoch seconds.
    ttl: Option<i64>,
    /// The base of the count, if the row has none.
    base: u64,
}

impl TagInvalidation {
    /// Counts are less than this number, which is exact in every language.
    const MAX: u64 = 1 << 52;

    /// The invalidation of the tag with this row, given a random number.
    pub(crate) fn new(tag: Key, now: Timestamp, ttl: Option<i64>, random: u64) -> Self {
        TagInvalidation { tag, now, ttl, base: 1 + random % (Self::MAX - 1) }
    }

    /// The write if there is no row. A damaged row, which conditions do not see, is replaced by it, and begins to count again.
    pub(crate) fn of_absent_row(&self) -> Txn {
        let txn = self.txn(None);
        Txn::new(txn.writes().iter().cloned().map(|write| write.when(name::PK.absent())))
    }

    /// The write, given the row that refused the previous attempt. The first attempt fits nearly every row.
    pub(crate) fn txn(&self, refused_by: Option<&Item>) -> Txn {
        let now = self.now.seconds();
        let read = |attribute: &str| refused_by.and_then(|row| row.get(attribute));
        let counts = [name::SEQ, name::SEQ_BASE];
        let (update, guards) = if counts.iter().all(|count| is_count(read(count.name()))) {
            let update = Update::new([name::SEQ.add(1_u64), name::SEQ_BASE.set_if_absent(self.base)]);
            (update, counts.map(|count| count.absent().or(count.between(0_u64, Self::MAX))))
        } else {
            // Without a new count, nothing with the tag could be invalidated any more. It differs from every earlier one.
            let update = Update::new([name::SEQ.set(1_u64), name::SEQ_BASE.set(self.base)]);
            (update, counts.map(|count| pointer::is_value(&count.any(), read(count.name()))))
        };
        let time = read(name::INVALIDATED_AT.name()).and_then(Value::as_number).map(Number::whole);
        let write = if time.is_some_and(|time| time > now) {
            Write::update(self.tag.clone(), update)
        } else {
            let ttl = self.ttl.map_or_else(|| name::TTL.remove(), |ttl| name::TTL.set(ttl));
            let update = update.with(name::INVALIDATED_AT.set(now)).with(name::SEQ_AT.set(now)).with(ttl);
            Write::update(self.tag.clone(), update).when(!name::INVALIDATED_AT.gt(now))
        };
        Txn::from(guards.into_iter().fold(write, Write::when))
    }
}

/// Whether a value can be counted up: it is absent, or a number in the range of counts.
fn is_count(value: Option<&Value>) -> bool {
    let range = Number::from(0_u64)..=Number::from(TagInvalidation::MAX);
    value.is_none_or(|value| value.as_number().is_some_and(|number| range.contains(number)))
}
