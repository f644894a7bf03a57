//! The change feed: a small log of what changed before its interval ended, so that a process need not read each page again.
//!
//! A writer appends an entry after its change and before it acknowledges it. The position of an entry is higher than every
//! position that the writer saw in the feed just before, so positions are a logical clock. A reader remembers the highest
//! position of each of its reads, and reads again from the one that it had seen [`LATE`] before its previous read began:
//! an entry that is stored later than that was written by a writer who saw that position. See
//! `docs/concepts/change-feed.md`.

use std::collections::{BTreeSet, VecDeque};
use std::ops::Range;
use std::time::Duration;

use tabletheory::{Item, Key, Query, Random, Timestamp, Txn, Write};

use crate::protocol::digest::sha256_hex;
use crate::protocol::row::codec;
use crate::protocol::ttl::after;

/// The partition of the feed. There is one: it takes more entries per second than readers can follow, and each more would cost
/// every reader another read per interval.
pub(crate) const PK: &str = "FEED#0";
/// How long entries are stored.
pub(crate) const TTL: Duration = Duration::from_secs(3600);
/// A writer stores an entry within this time after it has read the newest position, or starts again.
pub(crate) const APPEND_LIMIT: Duration = Duration::from_secs(5);
/// How long after reading the newest position a writer may store an entry, with a margin for clocks that run at different
/// speeds.
pub(crate) const LATE: Duration = Duration::from_secs(10);
/// After a longer pause between two reads, entries that the reader has not seen may have been deleted.
pub(crate) const MAX_PAUSE: Duration = Duration::from_secs(1800);
/// The most changes that one entry announces: with so many, it still costs one write unit.
pub(crate) const MAX_CHANGED: usize = 40;
/// The most entries that a reader remembers, besides those that a read finds again.
const MAX_KNOWN: usize = 10_000;

codec::row! {
    "FEED#"
    /// An entry of the change feed: some rows have changed.
    ///
    /// ```
    /// use facetheory::protocol::FeedEntry;
    ///
    /// let mut entry = FeedEntry::default();
    /// entry.changed = ["0f3c".to_owned()].into();
    /// assert_eq!(FeedEntry::read(&entry.to_item())?, entry);
    /// # Ok::<(), facetheory::Error>(())
    /// ```
    pub struct FeedEntry {
        /// The first 24 hexadecimal digits of the SHA-256 of the partition key of each row that changed: `META` of a page, or
        /// the epoch of a tag.
        pub changed: BTreeSet<String> = CHANGED,
        /// When the entry may be deleted.
        pub ttl: Option<i64> = TTL,
    }
}

/// A partition whose rows changed: a page or a tag. Only a digest is stored, so that long keys do not make reads expensive.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Subject(Box<str>);

impl Subject {
    const DIGITS: usize = 24;

    pub(crate) fn of(pk: &str) -> Self {
        Subject(sha256_hex(pk.as_bytes())[..Self::DIGITS].into())
    }
}

/// The place of an entry in the feed, which is also its sort key.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Position {
    /// Milliseconds since the Unix epoch by the clock of the writer, or more if an earlier entry has more.
    pub(crate) sequence: u64,
    /// Distinguishes entries with the same sequence number.
    suffix: u64,
}

impl Position {
    const DIGITS: usize = 15;
    const MAX_SEQUENCE: u64 = 999_999_999_999_999;

    /// A position after the newest one.
    pub(crate) fn after(newest: Option<Position>, now: Timestamp, random: &dyn Random) -> Self {
        // Zero is the position before the first entry.
        let next = newest.map_or(1, |newest| newest.sequence.saturating_add(1));
        let sequence = next.max(u64::try_from(now.millis()).unwrap_or(0)).min(Self::MAX_SEQUENCE);
        Position { sequence, suffix: random.next_u64() }
    }

    /// The position with this sort key; `None` if it is not the sort key of an entry.
    pub(crate) fn parse(sk: &str) -> Option<Self> {
        let (sequence, suffix) = sk.split_at_checked(Self::DIGITS)?;
        let is_sequence = sequence.bytes().all(|digit| digit.is_ascii_digit());
        let suffix = suffix.strip_prefix('-').filter(|suffix| suffix.len() == 16)?;
        let suffix = u64::from_str_radix(suffix, 16).ok()?;
        Some(Position { sequence: sequence.parse().ok().filter(|_| is_sequence)?, suffix })
    }

    /// When the entry may be deleted. While a position is ahead of the clock, its entry stays, so that no later entry gets a
    /// lower position.
    fn ttl(self, now: Timestamp) -> i64 {
        let written = Timestamp::from_millis(i64::try_from(self.sequence).unwrap_or(i64::MAX));
        after(now.max(written), TTL)
    }

    pub(crate) fn key(self) -> Key {
        Key::new(PK, format!("{:0width$}-{:016x}", self.sequence, self.suffix, width = Self::DIGITS))
    }
}

/// A query for the entries, newest first. Rows with sort keys of other forms must not hide them from a writer, which looks at
/// few rows only.
pub(crate) fn newest_first() -> Query {
    Query::of(PK).sk_between("0", ":").backward()
}

/// Appends an entry about these changes, at most [`MAX_CHANGED`].
pub(crate) fn append(position: Position, changed: &BTreeSet<Subject>, now: Timestamp) -> Txn {
    let changed = changed.iter().map(|subject| subject.0.to_string()).collect();
    let entry = FeedEntry { changed, ttl: Some(position.ttl(now)) };
    Txn::from(Write::put(position.key(), entry.to_item()))
}

/// An entry as a reader sees it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Appended {
    pub(crate) position: Position,
    /// `None` if the row cannot be read: it may concern everything.
    pub(crate) changed: Option<Vec<Subject>>,
}

impl Appended {
    /// The entry of a row; `None` if its sort key is not that of an entry.
    pub(crate) fn of(row: &Item) -> Option<Self> {
        let position = Position::parse(&row.key().ok()?.sk)?;
        let subjects =
            |entry: FeedEntry| entry.changed.into_iter().map(|text| Subject(text.into())).collect();
        let entry = FeedEntry::read(row).ok().filter(|_| !row.is_damaged());
        Some(Appended { position, changed: entry.map(subjects) })
    }
}

/// One read of the feed.
#[derive(Clone, Debug)]
pub(crate) struct FeedRead {
    /// When it began, by the wall clock. It runs while a machine is suspended, but may be set.
    pub(crate) at: Timestamp,
    /// From its beginning to its end, by the monotonic clock, which nobody can set.
    pub(crate) during: Range<Duration>,
    /// The newest entries, newest first: all after the position from which the reader reads, if it is `complete`.
    pub(crate) entries: Vec<Appended>,
    /// Whether no entry between that position and the oldest of `entries` was left out.
    pub(crate) complete: bool,
}

/// Why entries may have been missed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Gap {
    /// The feed was not read for too long, or the clock was set.
    Pause,
    /// There are more new entries than one read may return.
    TooMany,
    /// The positions began again.
    Reset,
    /// The last position is in use, so new entries cannot be told from old ones.
    LastPosition,
}

impl Gap {
    pub(crate) fn as_str(self) -> &'static str {
        match self {
            Gap::Pause => "pause",
            Gap::TooMany => "too-many",
            Gap::Reset => "reset",
            Gap::LastPosition => "last-position",
        }
    }
}

/// Which rows changed. After a read, every change that was acknowledged before the read began has been announced.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Changes {
    Of(Vec<Subject>),
    /// Any row may have changed: at the start, and after a gap.
    Everything,
}

/// Reads the feed without missing an entry that is stored late.
#[derive(Clone, Debug, Default, Hash)]
pub(crate) struct FeedReader {
    watching: Option<Watching>,
}

#[derive(Clone, Debug, Hash)]
struct Watching {
    /// When the previous read began, by both clocks.
    previous: (Duration, Timestamp),
    /// Entries up to this sequence number are known.
    bound: u64,
    /// The highest sequence number.
    newest: u64,
    /// When a read that saw a new highest sequence number finished, oldest first.
    reads: VecDeque<(Duration, u64)>,
    /// The entries that are known: all after the bound, and some before it.
    seen: BTreeSet<Position>,
}

impl FeedReader {
    /// Entries up to this sequence number need not be read. `None` for the first read, which needs only the newest entry.
    pub(crate) fn bound(&self) -> Option<u64> {
        self.watching.as_ref().map(|watching| watching.bound)
    }

    /// The number of known entries after the bound, which the next read finds again.
    pub(crate) fn known(&self) -> usize {
        self.watching.as_ref().map_or(0, |watching| watching.after_bound().count())
    }

    /// The highest sequence number that it has seen.
    #[cfg(test)]
    pub(crate) fn newest(&self) -> Option<u64> {
        self.watching.as_ref().map(|watching| watching.newest)
    }

    /// Why entries before this read may have been missed; `None` for the first read.
    pub(crate) fn gap(&self, read: &FeedRead) -> Option<Gap> {
        self.watching.as_ref()?.gap(read)
    }

    /// Takes note of a read, and returns what changed.
    pub(crate) fn observe(&mut self, read: &FeedRead) -> Changes {
        match &mut self.watching {
            Some(watching) if watching.gap(read).is_none() => {
                let changes = watching.take_new(&read.entries);
                watching.advance(read);
                changes
            }
            // An entry that is stored later, at a position that this read skips, is of a writer that had not seen the newest
            // entry. Its change was made before, so a page that is read from now on includes it.
            start_again => {
                *start_again = Some(Watching::from(read));
                Changes::Everything
            }
        }
    }
}

impl Watching {
    fn from(read: &FeedRead) -> Self {
        let newest = read.entries.first().map_or(0, |entry| entry.position.sequence);
        let seen = read.entries.iter().map(|entry| entry.position).collect();
        Watching {
            previous: (read.during.start, read.at),
            bound: newest,
            newest,
            reads: VecDeque::new(),
            seen,
        }
    }

    /// Why entries may be missing.
    fn gap(&self, read: &FeedRead) -> Option<Gap> {
        let (began, at) = self.previous;
        let wall_millis = u128::from(read.at.millis().abs_diff(at.millis()));
        if read.during.start.saturating_sub(began) > MAX_PAUSE || wall_millis > MAX_PAUSE.as_millis() {
            return Some(Gap::Pause);
        }
        if !read.complete {
            return Some(Gap::TooMany);
        }
        let newest = read.entries.first()?.position;
        if newest.sequence >= Position::MAX_SEQUENCE {
            return Some(Gap::LastPosition);
        }
        // Entries expire in any order, so the newest one may be one that is older than the newest before. If it is not known,
        // the feed was deleted, and its sequence numbers began again.
        let began_again = newest.sequence < self.newest && !self.seen.contains(&newest);
        began_again.then_some(Gap::Reset)
    }

    /// The known entries after the bound.
    fn after_bound(&self) -> impl Iterator<Item = &Position> {
        let bound = self.bound;
        self.seen.iter().rev().take_while(move |position| position.sequence > bound)
    }

    fn take_new(&mut self, entries: &[Appended]) -> Changes {
        let bound = self.bound;
        let new = entries
            .iter()
            .filter(|entry| self.seen.insert(entry.position) && entry.position.sequence > bound);
        let changed: Vec<Option<Vec<Subject>>> = new.map(|entry| entry.changed.clone()).collect();
        let changed: Option<Vec<Vec<Subject>>> = changed.into_iter().collect();
        changed.map_or(Changes::Everything, |changed| Changes::Of(changed.concat()))
    }

    /// Moves the bound to the highest sequence number that was known [`LATE`] before this read began.
    fn advance(&mut self, read: &FeedRead) {
        self.previous = (read.during.start, read.at);
        let newest = read.entries.first().map(|entry| entry.position.sequence);
        if let Some(newest) = newest.filter(|newest| *newest > self.newest) {
            self.newest = newest;
            self.reads.push_back((read.during.end, newest));
        }
        while let Some((_, newest)) =
            self.reads.pop_front_if(|(finished, _)| finished.saturating_add(LATE) <= read.during.start)
        {
            self.bound = newest;
        }
        while self.seen.len() > MAX_KNOWN
            && self.seen.first().is_some_and(|oldest| oldest.sequence <= self.bound)
        {
            self.seen.pop_first();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tabletheory::SeededRandom;

    const SECOND: Duration = Duration::from_secs(1);

    fn entry(sequence: u64) -> Appended {
        Appended {
            position: Position { sequence, suffix: 0 },
            changed: Some(vec![Subject::of(&sequence.to_string())]),
        }
    }

    /// A read of these entries, oldest first, after so many seconds.
    fn read(seconds: u32, entries: &[u64]) -> FeedRead {
        let began = seconds * SECOND;
        let entries = entries.iter().rev().map(|sequence| entry(*sequence)).collect();
        FeedRead { at: Timestamp::from_seconds(0) + began, during: began..began, entries, complete: true }
    }

    fn changed(sequences: &[u64]) -> Changes {
        Changes::Of(sequences.iter().filter_map(|sequence| entry(*sequence).changed).flatten().collect())
    }

    #[test]
    fn a_damaged_entry_may_name_everything() {
        let position = Position::after(None, Timestamp::from_seconds(9), &SeededRandom::new(1));
        let damaged = Item::damaged(&position.key());
        assert_eq!(Appended::of(&damaged), Some(Appended { position, changed: None }));
        let mut reader = reader();
        let read = FeedRead { entries: vec![Appended { position, changed: None }], ..read(11, &[]) };
        assert_eq!(reader.observe(&read), Changes::Everything);
    }

    #[test]
    fn an_entry_at_the_last_position_makes_every_read_a_gap() {
        let mut reader = reader();
        for seconds in 11..15 {
            assert_eq!(reader.observe(&read(seconds, &[100, Position::MAX_SEQUENCE])), Changes::Everything);
        }
    }

    /// A reader whose first read, at second 10, found the newest entry 100.
    fn reader() -> FeedReader {
        let mut reader = FeedReader::default();
        assert_eq!(reader.observe(&read(10, &[99, 100])), Changes::Everything, "pages were read before");
        reader
    }

    #[test]
    fn an_entry_that_is_stored_late_is_read_and_each_entry_is_announced_once() {
        let mut reader = reader();
        assert_eq!(reader.observe(&read(11, &[100, 105])), changed(&[105]));
        assert_eq!(reader.observe(&read(12, &[100, 103, 105])), changed(&[103]), "it was stored late");
        assert_eq!(reader.observe(&read(13, &[100, 103, 105])), changed(&[]));
        assert_eq!(reader.bound(), Some(100));
        reader.observe(&read(21, &[100, 103, 105]));
        assert_eq!(reader.bound(), Some(105), "no writer that has not seen 105 can store an entry any more");
    }

    #[test]
    fn after_a_gap_everything_counts_as_changed_and_the_reader_starts_again() {
        let gap = Changes::Everything;
        assert_eq!(reader().observe(&read(10 + 1801, &[100])), gap, "it was away");
        assert_eq!(reader().observe(&read(11, &[50])), gap, "the positions began again");
        assert_eq!(
            reader().observe(&FeedRead { complete: false, ..read(11, &[105]) }),
            gap,
            "there are too many"
        );
        let suspended = FeedRead { at: Timestamp::from_seconds(3600), ..read(11, &[100]) };
        assert_eq!(reader().observe(&suspended), gap, "the machine was suspended, or its clock was set");
        assert_eq!(reader().observe(&read(11, &[])), changed(&[]), "expired entries make no gap");
    }

    #[test]
    fn entries_that_expire_in_any_order_are_no_gap() {
        let mut reader = reader();
        assert_eq!(reader.observe(&read(11, &[99, 100, 105, 107])), changed(&[107, 105]));
        assert_eq!(reader.observe(&read(1000, &[99, 100, 105, 107])), changed(&[]));
        for (seconds, left) in [(2000, &[99, 100, 105][..]), (3000, &[99, 105]), (4000, &[99]), (5000, &[])] {
            assert_eq!(reader.gap(&read(seconds, left)), None, "{left:?}");
            assert_eq!(reader.observe(&read(seconds, left)), changed(&[]), "{left:?}");
        }
        assert_eq!(reader.gap(&read(5001, &[98])), Some(Gap::Reset), "it was not there before");
        assert_eq!(reader.observe(&read(5002, &[108])), changed(&[108]));
    }

    #[test]
    fn a_reader_remembers_a_limited_number_of_old_entries() {
        let mut reader = reader();
        let many: Vec<u64> = (101..20_000).collect();
        reader.observe(&read(11, &many));
        assert_eq!(reader.known(), many.len(), "a read finds them again");
        reader.observe(&read(1000, &many));
        reader.observe(&read(1001, &many[many.len() - 1..]));
        assert_eq!(reader.known(), 0);
        assert_eq!(reader.watching.as_ref().map(|watching| watching.seen.len()), Some(MAX_KNOWN));
    }

    #[test]
    fn an_entry_expires_after_its_position_although_the_clock_of_its_writer_is_behind() {
        let has_ttl = |seconds, ttl: &str| {
            let position = Position { sequence: 1_700_000_000_000, suffix: 0 };
            let changed = BTreeSet::from([Subject::of("TAG#news")]);
            let txn = append(position, &changed, Timestamp::from_seconds(seconds));
            format!("{txn:?}").contains(ttl)
        };
        assert!(has_ttl(1_700_000_001, "1700003601"));
        assert!(has_ttl(0, "1700003600"));
    }

    #[test]
    fn an_entry_that_cannot_be_read_concerns_everything_and_another_row_nothing() {
        let mut row = FeedEntry { changed: ["0f".to_owned()].into(), ttl: None }.to_item();
        for (sk, is_entry) in [
            ("000001700000000-00000000000000ff", true),
            ("000001700000000", false),
            ("000001700000000-ff", false),
            ("+00001700000000-00000000000000ff", false),
            ("0000017000000é0-00000000000000ff", false),
            ("META", false),
        ] {
            row.set("pk", PK);
            row.set("sk", sk);
            assert_eq!(Appended::of(&row).is_some(), is_entry, "{sk}");
        }
        row.set("sk", Position { sequence: 101, suffix: 1 }.key().sk);
        row.set("changed", 1);
        let unreadable = Appended::of(&row).expect("an entry");
        let news = reader().observe(&FeedRead { entries: vec![unreadable, entry(100)], ..read(11, &[]) });
        assert_eq!(news, Changes::Everything);
    }

    #[test]
    fn a_position_is_higher_than_the_newest_whatever_the_clock_of_the_writer() {
        let random = SeededRandom::new(1);
        let after = |newest, seconds| Position::after(newest, Timestamp::from_seconds(seconds), &random);
        let first = after(None, 1_700_000_000);
        assert_eq!(Position::parse(&first.key().sk), Some(first));
        let behind = after(Some(first), 0);
        assert!(behind > first && behind.key().sk > first.key().sk);
        assert!(
            after(Some(behind), 1_700_000_100).sequence > behind.sequence + 1,
            "it follows the clock again"
        );
    }
}
