//! The counts of tag invalidations that a render saw when it began. Comparing counts needs no clock.

use std::collections::BTreeMap;
use std::time::Duration;

use sha2::{Digest as _, Sha256};
use tabletheory::{Number, Timestamp, Value};

use crate::error::Result;
use crate::protocol::generation::Generation;
use crate::protocol::row::codec::{Field, Place};
use crate::protocol::ttl::seconds;
use crate::protocol::{Epoch, InvalidationMode, Tag};

/// The count of each tag of a page, as the render of the page saw it when it began.
///
/// A tag whose epoch row had no [count](Epoch::count) takes no space. A tag is named by 12 hexadecimal digits of its SHA-256.
///
/// ```
/// use facetheory::Tag;
/// use facetheory::protocol::{Epoch, Generation, SeenEpochs};
///
/// let tag = Tag::new("news")?;
/// let mut seen = SeenEpochs::of_render_at(1_700_000_000);
/// seen.insert(&tag, 1002);
/// assert_eq!(seen.count_of(&tag), 1002);
/// assert_eq!(seen.count_of(&Tag::everything()), 0);
/// # Ok::<(), facetheory::Error>(())
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SeenEpochs {
    /// The `generated_at` of the render. Another language that updates a row of ours, and leaves this attribute, sets another
    /// `generated_at`: its render has not seen these counts.
    generated_at: i64,
    /// By the number that names the tag. A count is never zero.
    counts: BTreeMap<u64, u64>,
}

impl SeenEpochs {
    /// The name of the attribute beside the tags.
    const AT: &'static str = "at";
    const DIGITS: usize = 12;

    /// A render that began at this time, in epoch seconds, and saw no tag that was ever invalidated.
    ///
    /// ```
    /// let seen = facetheory::protocol::SeenEpochs::of_render_at(1);
    /// assert_eq!(seen.count_of(&facetheory::Tag::everything()), 0);
    /// ```
    #[must_use]
    pub fn of_render_at(generated_at: i64) -> Self {
        SeenEpochs { generated_at, counts: BTreeMap::new() }
    }

    /// Returns these counts for a copy of the render, or an update of it, with this `generated_at`.
    pub(crate) fn of_copy_at(self, generated_at: i64) -> Self {
        SeenEpochs { generated_at, ..self }
    }

    /// Adds the count of a tag.
    ///
    /// ```
    /// use facetheory::{Tag, protocol::SeenEpochs};
    ///
    /// let mut seen = SeenEpochs::of_render_at(1);
    /// seen.insert(&Tag::everything(), 7);
    /// assert_eq!(seen.count_of(&Tag::everything()), 7);
    /// ```
    pub fn insert(&mut self, tag: &Tag, count: u64) {
        match count {
            0 if self.counts.is_empty() => None,
            0 => self.counts.remove(&number_of(tag)),
            count => self.counts.insert(number_of(tag), count),
        };
    }

    /// The count of a tag; zero if its row had none.
    ///
    /// ```
    /// let none = facetheory::protocol::SeenEpochs::default();
    /// assert_eq!(none.count_of(&facetheory::Tag::everything()), 0);
    /// ```
    #[must_use]
    pub fn count_of(&self, tag: &Tag) -> u64 {
        // Most pages have seen no invalidation, so usually no hash has to be computed.
        if self.counts.is_empty() { 0 } else { self.counts.get(&number_of(tag)).copied().unwrap_or(0) }
    }

    /// The bytes of memory that it takes.
    pub(crate) fn weight(&self) -> usize {
        self.counts.len() * 2 * size_of::<(u64, u64)>()
    }
}

/// The number that names a tag: the first digits of its SHA-256.
fn number_of(tag: &Tag) -> u64 {
    let digest = Sha256::digest(tag.as_str().as_bytes());
    digest.iter().take(SeenEpochs::DIGITS / 2).fold(0, |number, byte| number << 8 | u64::from(*byte))
}

/// A map without its time, or another type, counts as absent. A count that cannot be read counts as zero, which no row has.
impl Field for Option<SeenEpochs> {
    fn read(_: Place<'_>, value: Option<&Value>) -> Result<Self> {
        let Some(Value::M(map)) = value else { return Ok(None) };
        let whole = |value: &Value| value.as_number().map(Number::whole);
        let Some(generated_at) = map.get(SeenEpochs::AT).and_then(whole) else { return Ok(None) };
        let count = |(name, value): (&String, &Value)| {
            let tag = u64::from_str_radix(name, 16).ok().filter(|_| name.len() == SeenEpochs::DIGITS)?;
            Some((tag, u64::try_from(whole(value)?).ok().filter(|count| *count > 0)?))
        };
        Ok(Some(SeenEpochs { generated_at, counts: map.iter().filter_map(count).collect() }))
    }

    fn to_value(&self) -> Option<Value> {
        let seen = self.as_ref()?;
        let width = SeenEpochs::DIGITS;
        let counts = seen.counts.iter().map(|(tag, count)| (format!("{tag:0width$x}"), (*count).into()));
        let at = (SeenEpochs::AT.to_owned(), seen.generated_at.into());
        Some(Value::M(counts.chain([at]).collect()))
    }
}

impl Generation {
    /// The counts that this render saw; `None` for a render of another language, or of an earlier version of this library.
    pub(crate) fn seen_epochs(&self) -> Option<&SeenEpochs> {
        self.epochs.as_ref().filter(|seen| seen.generated_at == self.generated_at)
    }

    /// Whether a tag was invalidated since this render began, given the epoch row of the tag.
    ///
    /// Any other count than the one that the render saw means that the tag was invalidated since: a count occurs only once. If
    /// the row has another one because it was deleted or replaced, invalidations may have been lost with it.
    ///
    /// If the render saw no counts, or the row does not count, times are compared, and `skew` is by how much clocks may differ.
    pub(crate) fn is_outdated_by(&self, tag: &Tag, epoch: Option<&Epoch>, skew: Duration) -> bool {
        let by_time = epoch.is_some_and(|epoch| self.is_outdated_by_time(epoch, skew));
        let Some(seen) = self.seen_epochs() else { return by_time };
        seen.count_of(tag) != epoch.map_or(0, Epoch::count)
            || by_time && epoch.is_some_and(Epoch::has_uncounted_time)
    }

    /// How a tag was invalidated since this render began, given the epoch row of the tag; `None` if it was not.
    ///
    /// It was hard invalidated if the render saw a count from before the last hard invalidation, or one that the row does not
    /// know. A page that was rendered after the last hard invalidation, and before a soft one, may be served stale.
    pub(crate) fn invalidation_by(
        &self,
        tag: &Tag,
        epoch: Option<&Epoch>,
        now: Timestamp,
        skew: Duration,
    ) -> Option<InvalidationMode> {
        if !self.is_outdated_by(tag, epoch, skew) {
            return None;
        }
        let is_hard = epoch.is_some_and(|epoch| {
            self.is_expired_by_count(tag, epoch) || self.is_expired_by_time(epoch, now, skew)
        });
        Some(if is_hard { InvalidationMode::Hard } else { InvalidationMode::Soft })
    }

    fn is_expired_by_count(&self, tag: &Tag, epoch: &Epoch) -> bool {
        let (Some(seen), Some(expired)) = (self.seen_epochs(), epoch.expired_count()) else { return false };
        !(expired..=epoch.count()).contains(&seen.count_of(tag))
    }

    /// Whether this render began at most `skew` after a tag was hard invalidated, by the clocks. They are compared if the counts do
    /// not show it. Another language may have written a time that is still to come; ours was over when it was written, even if
    /// clocks have been set back since.
    fn is_expired_by_time(&self, epoch: &Epoch, now: Timestamp, skew: Duration) -> bool {
        let is_uncounted = epoch.has_uncounted_expiry();
        let is_compared = is_uncounted || self.seen_epochs().is_none();
        let has_come = |at: &i64| !is_uncounted || *at <= now.seconds();
        let expired_at = epoch.expired_at.filter(has_come).filter(|_| is_compared);
        expired_at.is_some_and(|at| self.generated_at <= at.saturating_add(seconds(skew)))
    }

    /// Whether this render began at most `skew` after a tag was invalidated, by the clocks.
    pub(crate) fn is_outdated_by_time(&self, epoch: &Epoch, skew: Duration) -> bool {
        self.generated_at <= epoch.invalidated_at.saturating_add(seconds(skew))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::protocol::Meta;
    use crate::protocol::invalidate::TagInvalidation;
    use proptest::prelude::*;
    use tabletheory::{Item, MemoryTable, Table as _, Timestamp, Txn, Write};

    const SKEW: Duration = Duration::from_secs(2);

    /// A change of the row of a tag.
    #[derive(Clone, Copy, Debug)]
    enum Event {
        /// An invalidation, at this time.
        Counted(i32, InvalidationMode),
        /// A put by another service, at this time.
        Put(i32),
        Deleted,
        /// A render begins, at this time.
        Render(i32),
    }

    fn event() -> impl Strategy<Value = Event> {
        let time = -7200..7200_i32;
        prop_oneof![
            4 => time.clone().prop_map(|at| Event::Counted(at, InvalidationMode::Soft)),
            2 => time.clone().prop_map(|at| Event::Counted(at, InvalidationMode::Hard)),
            1 => time.clone().prop_map(Event::Put),
            1 => Just(Event::Deleted),
            3 => time.prop_map(Event::Render),
        ]
    }

    proptest! {
        #[test]
        fn a_render_is_outdated_by_every_later_invalidation_and_by_no_earlier_one(
            events in proptest::collection::vec(event(), 1..20),
            seed: u64,
        ) {
            let runtime = tokio::runtime::Builder::new_current_thread().build().expect("a runtime");
            runtime.block_on(async {
                let (table, tag) = (MemoryTable::new(), Tag::everything());
                let key = tag.key(None);
                let row = async || table.get(&key, tabletheory::Consistency::Strong).await.expect("a read");
                // The last render, whether the tag was invalidated since, and whether the row has changed at all.
                let mut page: Option<(Generation, bool, bool)> = None;
                // Whether it was hard invalidated since; `None` if another service has replaced the row.
                let mut expired = None;
                for (number, event) in (0_u64..).zip(events) {
                    let write = match event {
                        Event::Render(at) => {
                            let mut render = Generation::new("a.html", at.into(), 60);
                            let mut seen = SeenEpochs::of_render_at(at.into());
                            let epoch = row().await.map(|row| Epoch::read(&row).expect("a row"));
                            seen.insert(&tag, epoch.map_or(0, |epoch| epoch.count()));
                            render.epochs = Some(seen);
                            // As the table stores it.
                            let item = Meta::of(render).to_item();
                            page = Some((Meta::read(&item).expect("META").generation, false, false));
                            expired = Some(false);
                            continue;
                        }
                        Event::Counted(at, mode) => {
                            let now = Timestamp::from_seconds(at.into());
                            let random = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(number * 7919);
                            let invalidation = TagInvalidation::new(key.clone(), mode, now, None, random);
                            if !table.commit(&invalidation.txn(None)).await.expect("a write").is_done() {
                                let again = invalidation.txn(row().await.as_ref());
                                assert!(table.commit(&again).await.expect("a write").is_done(), "{event:?}");
                            }
                            page = page.map(|(render, ..)| (render, true, true));
                            expired = expired.map(|expired| expired || mode == InvalidationMode::Hard);
                            continue;
                        }
                        Event::Put(at) => Write::put(key.clone(), Item::from([("invalidated_at", i64::from(at).into())])),
                        Event::Deleted => Write::delete(key.clone()),
                    };
                    assert!(table.commit(&Txn::from(write)).await.expect("a write").is_done());
                    page = page.map(|(render, invalidated, _)| (render, invalidated, true));
                    expired = None;
                }
                let Some((render, invalidated, changed)) = page else { return };
                let epoch = row().await.map(|row| Epoch::read(&row).expect("a row"));
                // A put by another service is compared by its time, and a row without a count that is gone says nothing.
                let is_counted = epoch.is_some_and(|epoch| !epoch.has_uncounted_time());
                let is_outdated = render.is_outdated_by(&tag, epoch.as_ref(), SKEW);
                if invalidated && is_counted {
                    assert!(is_outdated, "{render:?} {epoch:?}");
                }
                if !changed && is_counted {
                    assert!(!is_outdated, "{render:?} {epoch:?}");
                }
                for now in [-9000, 0, 9000].map(Timestamp::from_seconds) {
                    let mode = render.invalidation_by(&tag, epoch.as_ref(), now, SKEW);
                    if let Some(expired) = expired {
                        assert_eq!(mode == Some(InvalidationMode::Hard), expired, "{render:?} {epoch:?}");
                    }
                }
            });
        }

        #[test]
        fn counts_are_read_as_they_were_written(counts in proptest::collection::btree_map("[a-z]{1,9}", 0_u64..1 << 53, 0..9)) {
            let mut seen = SeenEpochs::of_render_at(7);
            for (tag, count) in &counts {
                seen.insert(&Tag::new(tag.as_str()).expect("a tag"), *count);
            }
            let mut page = Generation::new("a.html", 7, 60);
            page.epochs = Some(seen);
            let read = Meta::read(&Meta::of(page.clone()).to_item()).expect("META");
            prop_assert_eq!(&read.generation, &page);
            for (tag, count) in &counts {
                let tag = Tag::new(tag.as_str()).expect("a tag");
                prop_assert_eq!(read.generation.seen_epochs().expect("counts").count_of(&tag), *count);
            }
        }
    }

    #[test]
    fn a_count_that_cannot_be_read_counts_as_zero_and_a_map_without_its_time_as_absent() {
        let entries = |entries: &[(&str, Value)]| {
            let mut item = Meta::of(Generation::new("a.html", 7, 60)).to_item();
            let map = entries.iter().map(|(name, value)| ((*name).to_owned(), value.clone()));
            item.set("epochs", Value::M(map.collect()));
            Meta::read(&item).expect("META").generation.epochs
        };
        let name = format!("{:012x}", number_of(&Tag::everything()));
        let read = |count: Value| entries(&[("at", 7.into()), (&name, count)]).expect("counts");
        assert_eq!(read(9.into()).count_of(&Tag::everything()), 9);
        for count in [Value::from("9"), (-9).into(), 0.into(), Value::Null] {
            assert_eq!(read(count), SeenEpochs::of_render_at(7));
        }
        assert_eq!(entries(&[(&name, 9.into())]), None);
        assert_eq!(entries(&[("at", "7".into())]), None);
    }
}
