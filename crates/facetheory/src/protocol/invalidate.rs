//! Invalidation: a page that was rendered before it is never fresh after it, in any language.

use tabletheory::{Attr, Cond, Item, Key, Number, Timestamp, Txn, Update, Value, Write};

use crate::protocol::row::codec::Reader;
use crate::protocol::{Epoch, Lease, Meta, PageKey, attribute as name, pointer};

/// Whether an invalidated page, or a page with an invalidated tag, may be served while it is regenerated.
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
    pub(crate) mode: InvalidationMode,
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
    pub(crate) fn new(
        tag: Key,
        mode: InvalidationMode,
        now: Timestamp,
        ttl: Option<i64>,
        random: u64,
    ) -> Self {
        TagInvalidation { tag, mode, now, ttl, base: 1 + random % (Self::MAX - 1) }
    }

    /// The write if there is no row. A damaged row, which conditions do not see, is replaced by it, and begins to count again.
    pub(crate) fn of_absent_row(&self) -> Txn {
        let txn = self.txn(None);
        Txn::new(txn.writes().iter().cloned().map(|write| write.when(name::PK.absent())))
    }

    /// The write, given the row as it was read, or as it has refused the previous attempt. Without one, a soft invalidation fits
    /// nearly every row, and a hard one a row that was never hard invalidated and does not count.
    pub(crate) fn txn(&self, row: Option<&Item>) -> Txn {
        let row = RowOfTag(row);
        Txn::from(self.guards(row).into_iter().fold(self.update(row), Write::when))
    }

    /// The write without its conditions.
    pub(crate) fn update(&self, row: RowOfTag<'_>) -> Write {
        let now = self.now.seconds();
        let mut update = if row.is_counting() {
            Update::new([name::SEQ.add(1_u64), name::SEQ_BASE.set_if_absent(self.base)])
        } else {
            // Without a new count, nothing with the tag could be invalidated any more. It differs from every earlier one.
            Update::new([name::SEQ.set(1_u64), name::SEQ_BASE.set(self.base)])
        };
        if self.mode == InvalidationMode::Hard {
            let seq = row.number(&name::SEQ.any()).filter(|_| row.is_counting()).unwrap_or(0);
            // A later time that was counted stays, because a clock that is behind must not cancel that invalidation. Another
            // language may have written a time that is still to come: for pages of before, it comes now.
            let earlier = row.number(&name::EXPIRED_AT.any());
            let counted = earlier.filter(|at| row.number(&name::EXPIRED_SEQ_AT.any()) == Some(*at));
            let expired_at = counted.map_or(now, |counted| counted.max(now));
            update = update
                .with(name::EXPIRED_SEQ.set(u64::try_from(seq).unwrap_or(0).saturating_add(1)))
                .with(name::EXPIRED_AT.set(expired_at))
                .with(name::EXPIRED_SEQ_AT.set(expired_at));
        }
        if !row.is_later_than(now) {
            let ttl = self.ttl.map_or_else(|| name::TTL.remove(), |ttl| name::TTL.set(ttl));
            update = update.with(name::INVALIDATED_AT.set(now)).with(name::SEQ_AT.set(now)).with(ttl);
        }
        Write::update(self.tag.clone(), update)
    }

    fn guards(&self, row: RowOfTag<'_>) -> Vec<Cond> {
        let now = self.now.seconds();
        let is_in_range = |count: &Attr<u64>| count.absent().or(count.between(0_u64, Self::MAX));
        let mut guards: Vec<Cond> = if row.is_counting() {
            RowOfTag::COUNTS.iter().map(is_in_range).collect()
        } else {
            RowOfTag::COUNTS.iter().map(|count| row.is_as_read(&count.any())).collect()
        };
        if self.mode == InvalidationMode::Hard {
            // The update names the count, so the row must not have counted since it was read.
            guards.extend([name::SEQ.any(), name::EXPIRED_AT.any()].iter().map(|attr| row.is_as_read(attr)));
        }
        guards.extend((!row.is_later_than(now)).then(|| !name::INVALIDATED_AT.gt(now)));
        guards
    }

    /// Whether another process has hard invalidated the tag between two reads of its row. Then this one need not do it again.
    pub(crate) fn was_done(before: Option<&Item>, after: Option<&Item>) -> bool {
        let expired = |row: Option<&Item>| row.and_then(|row| Epoch::read(row).ok()?.expired_count());
        expired(after).is_some_and(|after| expired(before) != Some(after))
    }
}

/// The row of a tag as it was read, with whatever other languages have written into it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct RowOfTag<'a>(pub(crate) Option<&'a Item>);

impl RowOfTag<'_> {
    const COUNTS: [Attr<u64>; 2] = [name::SEQ, name::SEQ_BASE];

    fn value(&self, attribute: &Attr<Value>) -> Option<&Value> {
        self.0.and_then(|row| row.get(attribute.name()))
    }

    fn number(&self, attribute: &Attr<Value>) -> Option<i64> {
        self.value(attribute).and_then(Value::as_number).map(Number::whole)
    }

    /// Whether it can count up: its counts are absent, or numbers in their range.
    fn is_counting(&self) -> bool {
        let range = Number::from(0_u64)..=Number::from(TagInvalidation::MAX);
        let is_count = |value: &Value| value.as_number().is_some_and(|number| range.contains(number));
        Self::COUNTS.iter().all(|count| self.value(&count.any()).is_none_or(is_count))
    }

    /// Whether the tag was last invalidated after this time.
    fn is_later_than(&self, now: i64) -> bool {
        self.number(&name::INVALIDATED_AT.any()).is_some_and(|time| time > now)
    }

    fn is_as_read(&self, attribute: &Attr<Value>) -> Cond {
        pointer::is_value(attribute, self.value(attribute))
    }
}
