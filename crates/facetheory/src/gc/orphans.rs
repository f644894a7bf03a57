//! Decides which bodies in the object storage are orphans.

use object_store::ObjectMeta;
use object_store::path::Path;
use tabletheory::Timestamp;

use super::GcReport;
use super::live_set::LiveSet;
use crate::bodies::s3_key::S3Key;

/// The most bodies of one page that are held in memory.
const MAX_SIBLINGS: usize = 4096;

/// A body that may be an orphan.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Candidate {
    /// When its render started, and its path: the order in which the bodies of a page replaced each other.
    order: (i64, Path),
    /// When it was stored, in epoch milliseconds.
    stored: i64,
    pub(super) size: u64,
}

impl Candidate {
    fn of(object: ObjectMeta, key: &S3Key<'_>) -> Self {
        // A render can take long, and the clock of the store can be wrong: the later of both times counts.
        let stored = object.last_modified.timestamp_millis().max(key.millis);
        Candidate { order: (key.millis, object.location), stored, size: object.size }
    }

    pub(super) fn path(&self) -> &Path {
        &self.order.1
    }
}

/// The bodies of one page, in order: whether a body is deleted also depends on when the next one replaced it.
pub(super) struct Siblings<'r> {
    live: &'r LiveSet,
    /// The prefix of S3 keys.
    prefix: &'r str,
    /// Bodies that were stored after this are not deleted.
    cutoff: Timestamp,
    /// The directory of the page.
    directory: String,
    held: Vec<Candidate>,
    /// The key of the last object.
    last: Option<String>,
    /// The last key of the last page of which all bodies were decided.
    pub(super) through: Option<String>,
}

impl<'r> Siblings<'r> {
    pub(super) fn new(live: &'r LiveSet, prefix: &'r str, cutoff: Timestamp) -> Self {
        let (directory, held) = (String::new(), Vec::new());
        Siblings { live, prefix, cutoff, directory, held, last: None, through: None }
    }

    /// Adds the next object of the listing, and those bodies to `orphans` that are known to be orphans now.
    pub(super) fn add(&mut self, object: ObjectMeta, report: &mut GcReport, orphans: &mut Vec<Candidate>) {
        let key = object.location.to_string();
        let Some(parsed) = S3Key::parse(self.prefix, &key) else {
            report.foreign += 1;
            return;
        };
        report.objects += 1;
        if parsed.directory != self.directory {
            self.finish(report, orphans);
            parsed.directory.clone_into(&mut self.directory);
        } else if self.held.len() >= MAX_SIBLINGS {
            // The newest is held back, since its successor may follow. A body that is listed out of order is compared with a
            // later successor than its own, which can only protect it.
            self.held.sort_unstable_by(|one, other| one.order.cmp(&other.order));
            let newest = self.held.pop();
            self.decide(newest.as_ref(), report, orphans);
            self.held.extend(newest);
        }
        self.held.push(Candidate::of(object, &parsed));
        self.last = Some(key);
    }

    /// Decides the bodies of the page: there are no more.
    pub(super) fn finish(&mut self, report: &mut GcReport, orphans: &mut Vec<Candidate>) {
        self.held.sort_unstable_by(|one, other| one.order.cmp(&other.order));
        self.decide(None, report, orphans);
        self.through = self.last.take().or(self.through.take());
    }

    /// Decides all bodies that are held, which are sorted; `after` is the next one.
    fn decide(&mut self, after: Option<&Candidate>, report: &mut GcReport, orphans: &mut Vec<Candidate>) {
        let young = |body: &Candidate| body.stored > self.cutoff.millis();
        let protected = !self.held.is_empty() && self.live.may_contain(&self.directory);
        let mut replaced_recently = after.is_some_and(young);
        // From the newest to the oldest, so that the successor of each body is known.
        for body in self.held.drain(..).rev() {
            let file = body.path().filename().unwrap_or_default();
            let is_young = young(&body);
            if self.live.may_contain(file) {
                report.named += 1;
            } else if is_young || replaced_recently {
                report.young += 1;
            } else if protected {
                report.protected += 1;
            } else {
                orphans.push(body);
            }
            replaced_recently = is_young;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tabletheory::SeededRandom;

    const UUID: &str = "01234567-89ab-4def-8123-456789abcdef";

    fn object(page: u32, millis: i64) -> ObjectMeta {
        ObjectMeta {
            location: Path::from(format!("isr/{page:024x}/{millis}-{UUID}.html")),
            last_modified: Default::default(),
            size: 1,
            e_tag: None,
            version: None,
        }
    }

    /// The times of the orphans among bodies that are listed in this order.
    fn orphans_of(millis: impl IntoIterator<Item = i64>, cutoff: i64) -> Vec<i64> {
        let live = LiveSet::new(64, &SeededRandom::new(1));
        let mut siblings = Siblings::new(&live, "isr/", Timestamp::from_millis(cutoff));
        let (mut report, mut orphans) = (GcReport::default(), Vec::new());
        for millis in millis {
            siblings.add(object(1, millis), &mut report, &mut orphans);
            assert!(siblings.held.len() <= MAX_SIBLINGS, "memory is bounded");
        }
        siblings.finish(&mut report, &mut orphans);
        assert_eq!(report.objects, report.young + orphans.len() as u64);
        let mut millis: Vec<i64> = orphans.iter().map(|orphan| orphan.order.0).collect();
        millis.sort_unstable();
        millis
    }

    #[test]
    fn an_old_body_that_was_replaced_recently_is_not_deleted() {
        assert_eq!(orphans_of([10, 20, 30], 100), [10, 20, 30]);
        assert_eq!(orphans_of([10, 20, 300], 100), [10], "readers may still fetch 20");
        assert_eq!(orphans_of([300, 20, 10], 100), [10], "in any order");
        assert_eq!(orphans_of([10], 100), [10], "nothing replaced it, so it was never served");
        assert_eq!(orphans_of([100, 101], 100), [0; 0]);
    }

    #[test]
    fn a_page_with_many_bodies_is_decided_in_parts_and_never_deletes_too_much() {
        let most = i64::try_from(MAX_SIBLINGS).expect("a small number");
        let all = 3 * most;
        assert_eq!(orphans_of(0..all, all), (0..all).collect::<Vec<i64>>());
        assert_eq!(orphans_of(0..all, 2 * most), (0..2 * most).collect::<Vec<i64>>());
        let backward = orphans_of((0..all).rev(), 2 * most);
        assert!(backward.iter().all(|millis| *millis < 2 * most));
        assert!(backward.len() >= usize::try_from(2 * most).expect("a small number") - 3);
    }

    #[test]
    fn a_run_resumes_after_the_last_page_that_was_decided() {
        let live = LiveSet::new(64, &SeededRandom::new(1));
        let mut siblings = Siblings::new(&live, "isr/", Timestamp::from_millis(100));
        let (mut report, mut orphans) = (GcReport::default(), Vec::new());
        for (page, millis) in [(1, 10), (1, 20), (2, 10)] {
            siblings.add(object(page, millis), &mut report, &mut orphans);
        }
        assert_eq!(siblings.through, Some(object(1, 20).location.to_string()));
        siblings.finish(&mut report, &mut orphans);
        assert_eq!(siblings.through, Some(object(2, 10).location.to_string()));
    }
}
