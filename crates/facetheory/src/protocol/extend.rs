//! Extends a page whose render did not change: one conditional update of `META`, for less than half the cost of a transaction.
//!
//! The update does not verify the lease, which the writer may have lost. It is applied only if `META` is still the row that
//! was read under the lease, so it never replaces a change of another writer.

use tabletheory::{Attr, Cond, Txn, Write};

use crate::protocol::{Meta, Publication, attribute as name};

/// A part of `META` that shows whether the row has changed since it was read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Witness {
    /// The current body and version. Another service may move the pointer and leave all other attributes.
    Pointer,
    /// An invalidation sets the interval to zero.
    Interval,
    /// Each publish of ours sets another mark, and a rollback removes it; a publish of another service moves the time.
    Publish,
}

impl Witness {
    pub(crate) const ALL: [Witness; 3] = [Witness::Pointer, Witness::Interval, Witness::Publish];

    /// This part of the row is as it was read.
    fn is_as_read(self, seen: &Meta) -> Cond {
        let text = |attribute: &Attr<String>, value: Option<&str>| {
            value.map_or_else(|| attribute.absent(), |value| attribute.is(value))
        };
        let page = &seen.generation;
        match self {
            Witness::Pointer => {
                name::S3_KEY.is(page.s3_key.as_str()).and(text(&name::CURRENT_SK, seen.current_sk.as_deref()))
            }
            Witness::Interval => name::REVALIDATE_SECONDS.is(page.revalidate_seconds),
            Witness::Publish => {
                text(&name::MARK, seen.mark.as_deref()).and(name::GENERATED_AT.is(page.generated_at))
            }
        }
    }
}

impl Publication<'_> {
    /// The single update that publishes this render, if the page has not changed and one write is enough.
    ///
    /// The lease has to be released afterwards.
    pub(crate) fn extension(&self) -> Option<Txn> {
        let seen = self.seen.filter(|seen| seen.generation.s3_key == self.page.s3_key)?;
        // The row of an invalidated page may look the same after another invalidation: only the lock shows that one. A row
        // without a mark was written by another service, and may look the same after its next publish.
        let shows_changes = seen.generation.revalidate_seconds > 0 && seen.mark.is_some();
        (shows_changes && self.request.is_none()).then(|| self.extend_if(seen, &Witness::ALL))
    }

    /// The update that moves the times of `META`, if these parts of the row are as they were read.
    pub(crate) fn extend_if(&self, seen: &Meta, witnesses: &[Witness]) -> Txn {
        let update = self.guarded(Write::update(self.lease.page().meta(), self.moved_times(seen)));
        Txn::from(witnesses.iter().map(|witness| witness.is_as_read(seen)).fold(update, Write::when))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::protocol::{Generation, Lease, LeaseTerms, PageKey};
    use tabletheory::Timestamp;

    #[test]
    fn only_a_row_that_shows_every_change_is_extended_by_one_update() {
        let now = Timestamp::from_seconds(100);
        let lease = Lease::starting(PageKey::new("/").expect("a page"), "t", now, &LeaseTerms::default());
        let page = Generation::new("a.html", 100, 60);
        let mut seen = Meta::of(Generation::new("a.html", 1, 60));
        seen.mark = Some("m".to_owned());
        let extension = |seen: &Meta| {
            let publication = Publication { seen: Some(seen), ..Publication::new(&lease, &page, now) };
            publication.extension().map(|txn| txn.writes()[0].condition().expect("a condition").to_string())
        };
        let condition = r#"s3_key = "a.html" AND attribute_not_exists(current_sk) AND revalidate_seconds = 60 AND (mark = "m" AND generated_at = 1)"#;
        assert_eq!(extension(&seen).expect("an update"), condition);

        let without_mark = Meta { mark: None, ..seen.clone() };
        assert_eq!(extension(&without_mark), None, "written by another service");
        let mut invalidated = seen.clone();
        invalidated.generation.revalidate_seconds = 0;
        assert_eq!(extension(&invalidated), None);
        let mut changed = seen.clone();
        changed.generation.s3_key = "b.html".to_owned();
        assert_eq!(extension(&changed), None, "another body");
    }
}
