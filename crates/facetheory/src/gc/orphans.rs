//! Objects in the store: which are ours by their names, and which of them may go.

use object_store::ObjectMeta;
use object_store::path::Path;
use tabletheory::Timestamp;

use super::GcReport;
use super::live_set::References;

/// The most objects of one page that are held at once.
const MOST_SIBLINGS: usize = 4096;

/// The name of a body: `<prefix><24 hex of the page>/<milliseconds>-<uuid>.<extension>`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Name<'a> {
    /// What all bodies of a page have in common.
    pub(super) page: &'a str,
    /// When its render started.
    pub(super) millis: i64,
    /// What no other body has.
    pub(super) file: &'a str,
}

impl<'a> Name<'a> {
    /// None for an object that has another kind of name: it is somebody else's.
    pub(super) fn parse(prefix: &str, key: &'a str) -> Option<Self> {
        const PAGE_DIGITS: usize = 24;
        /// The lengths of the parts of a UUID.
        const UUID: [usize; 5] = [8, 4, 4, 4, 12];
        /// Enough for the next thousand years, and few enough for a number of 64 bits.
        const MOST_DIGITS: usize = 15;
        const LONGEST_EXTENSION: usize = 8;
        let is_hex = |text: &str, digits: usize| {
            text.len() == digits && text.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'))
        };
        let (page, file) = key.strip_prefix(prefix)?.split_once('/')?;
        let (stem, extension) = file.split_once('.')?;
        let (millis, uuid) = stem.split_once('-')?;
        let mut parts = uuid.split('-');
        let is_uuid = UUID.iter().all(|digits| parts.next().is_some_and(|part| is_hex(part, *digits)))
            && parts.next().is_none();
        let is_number =
            (1..=MOST_DIGITS).contains(&millis.len()) && millis.bytes().all(|byte| byte.is_ascii_digit());
        let is_extension = (1..=LONGEST_EXTENSION).contains(&extension.len())
            && extension.bytes().all(|byte| byte.is_ascii_alphanumeric());
        let ours = is_hex(page, PAGE_DIGITS) && is_number && is_uuid && is_extension;
        ours.then_some(Name { page, millis: millis.parse().ok()?, file })
    }
}

/// An object whose name is one of ours.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Found {
    /// When its render started, and its path: the order in which the bodies of a page replaced each other.
    order: (i64, Path),
    /// When it was stored, as far as can be told.
    stored: i64,
    pub(super) size: u64,
}

impl Found {
    pub(super) fn of(object: ObjectMeta, name: &Name<'_>) -> Self {
        // A render can take long, and the clock of the store can be wrong: the later of both is believed.
        let stored = object.last_modified.timestamp_millis().max(name.millis);
        let order = (name.millis, object.location.clone());
        Found { order, stored, size: object.size }
    }

    pub(super) fn path(&self) -> &Path {
        &self.order.1
    }
}

/// The bodies of one page, side by side, since it depends on the next one whether a body may go.
pub(super) struct Siblings<'r> {
    references: &'r References,
    /// The prefix of all names.
    prefix: &'r str,
    /// What was stored after this stays.
    cut_off: Timestamp,
    page: String,
    held: Vec<Found>,
    /// The key of the last object.
    last: Option<String>,
    /// The last key of the last page of which everything was decided.
    pub(super) through: Option<String>,
}

impl<'r> Siblings<'r> {
    pub(super) fn new(references: &'r References, prefix: &'r str, cut_off: Timestamp) -> Self {
        let (page, held) = (String::new(), Vec::new());
        Siblings { references, prefix, cut_off, page, held, last: None, through: None }
    }

    /// Takes the next object of the store, and adds those to the orphans of which that is certain now.
    pub(super) fn add(&mut self, object: ObjectMeta, collected: &mut GcReport, orphans: &mut Vec<Found>) {
        let key = object.location.to_string();
        let Some(name) = Name::parse(self.prefix, &key) else {
            collected.foreign += 1;
            return;
        };
        collected.objects += 1;
        if name.page != self.page {
            self.finish(collected, orphans);
            name.page.clone_into(&mut self.page);
        } else if self.held.len() >= MOST_SIBLINGS {
            // The newest is held back, since the next one may be its successor. What comes out of order sees a
            // later successor than its own, and that only ever keeps it.
            self.held.sort_unstable_by(|one, other| one.order.cmp(&other.order));
            let newest = self.held.pop();
            self.decide(newest.as_ref(), collected, orphans);
            self.held.extend(newest);
        }
        self.held.push(Found::of(object, &name));
        self.last = Some(key);
    }

    /// There are no more objects of this page.
    pub(super) fn finish(&mut self, collected: &mut GcReport, orphans: &mut Vec<Found>) {
        self.held.sort_unstable_by(|one, other| one.order.cmp(&other.order));
        self.decide(None, collected, orphans);
        self.through = self.last.take().or(self.through.take());
    }

    /// Decides about all that are held, which are sorted; after them comes this one.
    fn decide(&mut self, after: Option<&Found>, collected: &mut GcReport, orphans: &mut Vec<Found>) {
        let young = |found: &Found| found.stored > self.cut_off.millis();
        let protected = !self.held.is_empty() && self.references.may_contain(&self.page);
        let mut replaced_lately = after.is_some_and(young);
        // From the newest to the oldest, so that each one's successor has been seen.
        for found in self.held.drain(..).rev() {
            let file = found.path().filename().unwrap_or_default();
            let is_young = young(&found);
            if self.references.may_contain(file) {
                collected.named += 1;
            } else if is_young || replaced_lately {
                collected.young += 1;
            } else if protected {
                collected.protected += 1;
            } else {
                orphans.push(found);
            }
            replaced_lately = is_young;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tabletheory::SeededRandom;

    const PAGE: &str = "8a5edab282632443219e051e";
    const UUID: &str = "01234567-89ab-4def-8123-456789abcdef";

    #[test]
    fn only_names_of_ours_are_ours() {
        let key = format!("isr/{PAGE}/1700000000123-{UUID}.html");
        let name = Name::parse("isr/", &key).expect("it is ours");
        assert_eq!((name.page, name.millis), (PAGE, 1_700_000_000_123));
        assert_eq!(name.file, format!("1700000000123-{UUID}.html"));
        for other in [
            format!("other/{PAGE}/1700000000123-{UUID}.html"),
            format!("isr/{PAGE}/sub/1700000000123-{UUID}.html"),
            format!("isr/{}/1700000000123-{UUID}.html", &PAGE[1..]),
            format!("isr/{}/1700000000123-{UUID}.html", PAGE.to_uppercase()),
            format!("isr/{PAGE}/1700000000123-{UUID}"),
            format!("isr/{PAGE}/1700000000123-{UUID}.html.bak"),
            format!("isr/{PAGE}/1700000000123-{UUID}-1.html"),
            format!("isr/{PAGE}/1700000000123-{}.html", &UUID[1..]),
            format!("isr/{PAGE}/-{UUID}.html"),
            format!("isr/{PAGE}/1e9-{UUID}.html"),
            format!("isr/{PAGE}/1234567890123456-{UUID}.html"),
            format!("isr/{PAGE}/index.html"),
            "isr/index.html".to_owned(),
            "isr/".to_owned(),
        ] {
            assert_eq!(Name::parse("isr/", &other), None, "{other}");
        }
    }

    fn object(page: u32, millis: i64) -> ObjectMeta {
        ObjectMeta {
            location: Path::from(format!("isr/{page:024x}/{millis}-{UUID}.html")),
            last_modified: Default::default(),
            size: 1,
            e_tag: None,
            version: None,
        }
    }

    /// The times of those that go, of objects that come in this order.
    fn gone(millis: impl IntoIterator<Item = i64>, cut_off: i64) -> Vec<i64> {
        let references = References::new(64, &SeededRandom::new(1));
        let mut siblings = Siblings::new(&references, "isr/", Timestamp::from_millis(cut_off));
        let (mut collected, mut orphans) = (GcReport::default(), Vec::new());
        for millis in millis {
            siblings.add(object(1, millis), &mut collected, &mut orphans);
            assert!(siblings.held.len() <= MOST_SIBLINGS, "memory is bounded");
        }
        siblings.finish(&mut collected, &mut orphans);
        assert_eq!(collected.objects, collected.young + orphans.len() as u64);
        let mut gone: Vec<i64> = orphans.iter().map(|found| found.order.0).collect();
        gone.sort_unstable();
        gone
    }

    #[test]
    fn what_was_replaced_lately_stays_although_it_is_old() {
        assert_eq!(gone([10, 20, 30], 100), [10, 20, 30]);
        assert_eq!(gone([10, 20, 300], 100), [10], "readers may still be on their way to 20");
        assert_eq!(gone([300, 20, 10], 100), [10], "in whatever order they come");
        assert_eq!(gone([10], 100), [10], "nothing has replaced it, so it never was served");
        assert_eq!(gone([100, 101], 100), [0; 0]);
    }

    #[test]
    fn a_page_of_many_bodies_is_decided_in_parts_and_never_too_boldly() {
        let most = i64::try_from(MOST_SIBLINGS).expect("a small number");
        let all = 3 * most;
        assert_eq!(gone(0..all, all), (0..all).collect::<Vec<i64>>());
        assert_eq!(gone(0..all, 2 * most), (0..2 * most).collect::<Vec<i64>>());
        let backward = gone((0..all).rev(), 2 * most);
        assert!(backward.iter().all(|millis| *millis < 2 * most));
        assert!(backward.len() >= usize::try_from(2 * most).expect("a small number") - 3);
    }

    #[test]
    fn a_run_goes_on_after_the_last_page_that_was_decided() {
        let references = References::new(64, &SeededRandom::new(1));
        let mut siblings = Siblings::new(&references, "isr/", Timestamp::from_millis(100));
        let (mut collected, mut orphans) = (GcReport::default(), Vec::new());
        for (page, millis) in [(1, 10), (1, 20), (2, 10)] {
            siblings.add(object(page, millis), &mut collected, &mut orphans);
        }
        assert_eq!(siblings.through, Some(object(1, 20).location.to_string()));
        siblings.finish(&mut collected, &mut orphans);
        assert_eq!(siblings.through, Some(object(2, 10).location.to_string()));
    }
}
