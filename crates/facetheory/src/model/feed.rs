//! The change feed in every interleaving of a writer that changes a page, entries about another page, and a process with
//! the page in memory, within bounds.
//!
//! The process reads the feed with the production reader. Whenever it could serve the page without reading the table, the
//! page must include every change that was acknowledged long enough ago.

use std::collections::HashSet;
use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::sync::LazyLock;
use std::time::Duration;

use tabletheory::{SeededRandom, Timestamp};

use crate::protocol::feed::{
    APPEND_LIMIT, Appended, Changes, FeedRead, FeedReader, LATE, MAX_PAUSE, Position, Subject, TTL,
};
use crate::protocol::replacement::must_be_announced;
use crate::protocol::{Generation, Meta};
use crate::store::KnownChanges;

/// One step of time. A writer may need one to store an entry; the reader waits for two.
const TICK: Duration = APPEND_LIMIT;
/// How long the process may rely on a read of the feed, and thus how late it may notice a change.
const MAX_AGE: u32 = 1;
/// Longer than entries are stored, in ticks.
const LONG: u32 = 1000;
/// The bounds of an exploration.
struct Scope {
    /// How often time advances by one tick.
    ticks: u32,
    /// How often the process reads the feed. It reads the page once.
    reads: u32,
    /// Whether other steps happen between the beginning and the end of a read.
    slow_reads: bool,
    /// Whether entries expire.
    expires: bool,
    /// Whether the page is replaced by one with a tag before the change, which then invalidates that tag.
    publishes: bool,
    /// Whether the wall clock of the process is set back.
    clock_steps: bool,
}

const PLAIN: Scope =
    Scope { ticks: 3, reads: 3, slow_reads: false, expires: false, publishes: false, clock_steps: false };
const SCOPES: [Scope; 4] = [
    Scope { slow_reads: true, expires: true, ..PLAIN },
    Scope { ticks: 4, reads: 4, ..PLAIN },
    Scope { publishes: true, ..PLAIN },
    Scope { clock_steps: true, ..PLAIN },
];

/// How often the writer appends.
const APPENDS: u32 = 2;

/// A deliberate defect.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Mutant {
    /// A writer acknowledges its change without appending to the feed.
    NoAppend,
    /// A writer appends to the feed before it makes its change.
    AppendsFirst,
    /// A writer does not append again if an entry was stored late.
    AcceptsLate,
    /// The reader ignores entries below the highest position that it has seen.
    NoOverlap,
    /// The process does not read pages again that it read before its first read of the feed, or before a gap.
    KeepsOldPages,
    /// The reader does not notice that it was away longer than entries are stored.
    IgnoresPause,
    /// The reader does not notice that the positions began again.
    IgnoresReset,
    /// The process does not mark the pages that the feed names.
    DoesNotMark,
    /// A change joins a group of changes whose newest position was read before the change.
    JoinsLate,
    /// The reader takes only the first change of an entry.
    ReadsOneChange,
    /// The reader counts it as a gap that the newest entry has expired before older ones.
    GapAtExpiry,
    /// A page that gets a tag before its interval ends is published without an entry in the feed.
    SilentPublish,
    /// The process looks only at the wall clock to decide how old a read of the feed is.
    TrustsWallClock,
}

const MUTANTS: [Mutant; 13] = [
    Mutant::NoAppend,
    Mutant::AppendsFirst,
    Mutant::AcceptsLate,
    Mutant::NoOverlap,
    Mutant::KeepsOldPages,
    Mutant::IgnoresPause,
    Mutant::IgnoresReset,
    Mutant::DoesNotMark,
    Mutant::JoinsLate,
    Mutant::ReadsOneChange,
    Mutant::GapAtExpiry,
    Mutant::SilentPublish,
    Mutant::TrustsWallClock,
];

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Step {
    /// The writer is about to publish a page.
    Publish,
    /// The writer is about to make its change.
    Change,
    /// The writer is about to make its change, although its group has read the newest position, at this time.
    ChangeInGroup(Position, u32),
    /// The writer is about to read the newest position.
    ReadNewest,
    /// An entry is on its way to the table since this time.
    Store(Position, u32),
    /// The change was acknowledged at this time.
    Acknowledged(u32),
    /// The writer gave up: its change is not acknowledged.
    Failed,
}

/// A page in memory.
#[derive(Clone, Copy, Debug, Hash)]
struct Copy {
    /// Whether it includes the change.
    is_changed: bool,
    /// Whether it has the tag.
    has_tag: bool,
    /// The number of changes that were known before it was read.
    known: u64,
}

/// A row that the feed names.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
enum Row {
    OtherPage,
    Page,
    Tag,
}

/// An entry: its position, and the row that it is about. An entry about the page or the tag is about another page too, which
/// another task of the writer has changed.
type Entry = (Position, Row);

#[derive(Clone, Debug, Hash)]
struct State {
    now: u32,
    ticks: u32,
    /// How much of `now` the reader does not know about, for a mutant.
    hidden: u32,
    /// How far the wall clock of the process was set back.
    set_back: u32,
    /// Whether all entries of the feed have been deleted at once.
    expired: bool,
    log: Vec<Entry>,
    /// Whether an entry about another page was appended.
    has_other: bool,
    step: Step,
    is_changed: bool,
    /// Whether the page in the table has the tag.
    has_tag: bool,
    appends: u32,
    reader: FeedReader,
    reads: u32,
    /// A read that has begun: when, also by the wall clock, and the entries that it finds.
    reading: Option<(u32, u32, Vec<Entry>)>,
    /// The changes that the reader has returned, in order.
    news: Vec<Changes>,
    /// When the last read began, also by the wall clock, and the entries that it found.
    read_at: Option<(u32, u32)>,
    read_log: Vec<Entry>,
    /// Whether the reader took the expiry of entries for a gap.
    false_gap: bool,
    page: Option<Copy>,
}

fn subject(row: Row) -> Subject {
    static SUBJECTS: LazyLock<[Subject; 3]> =
        LazyLock::new(|| ["CACHE#other", "CACHE#page", "TAG#x"].map(Subject::of));
    SUBJECTS[row as usize].clone()
}

impl State {
    /// The page has the tag already, or gets it.
    fn start(scope: &Scope, has_tag: bool) -> Self {
        State {
            now: 1,
            ticks: 0,
            hidden: 0,
            set_back: 0,
            expired: false,
            log: Vec::new(),
            has_other: false,
            step: if scope.publishes { Step::Publish } else { Step::Change },
            is_changed: false,
            has_tag,
            appends: 0,
            reader: FeedReader::default(),
            reads: 0,
            reading: None,
            news: Vec::new(),
            read_at: None,
            read_log: Vec::new(),
            false_gap: false,
            page: None,
        }
    }

    /// The changes that the process knows of, as production code stores them.
    fn known_changes(&self) -> KnownChanges {
        let known = KnownChanges::default();
        for changes in &self.news {
            known.add(changes.clone());
        }
        if let Some((at, wall)) = self.read_at {
            known.apply(Changes::Of(Vec::new()), wall_time(wall), known.started() + TICK * at);
        }
        known
    }

    /// The page includes the change if it was acknowledged `MAX_AGE` ago, and the page would be served from memory.
    fn violation(&self, mutant: Option<Mutant>) -> Option<String> {
        if self.false_gap {
            return Some(format!("expired entries are taken for a gap: {self:?}"));
        }
        let page = self.page?;
        let is_due = matches!(self.step, Step::Acknowledged(at) if at + MAX_AGE <= self.now);
        if page.is_changed || !is_due {
            return None;
        }
        let (known, (read_at, _)) = (self.known_changes(), self.read_at?);
        let instant = if mutant == Some(Mutant::TrustsWallClock) { read_at } else { self.now };
        let instant = || known.started() + TICK * instant;
        let relies = known.is_complete_at(wall_time(self.wall()), instant, TICK * MAX_AGE);
        let rows = [Row::Page, Row::Tag].into_iter().take(1 + usize::from(page.has_tag));
        let is_served = relies && !known.has_changed(page.known, rows.map(subject));
        is_served.then(|| format!("the change is not known: {self:?}"))
    }

    /// The time by the wall clock of the process.
    fn wall(&self) -> u32 {
        self.now - self.set_back
    }

    fn successors(&self, scope: &Scope, mutant: Option<Mutant>) -> Vec<State> {
        let mut next = Vec::new();
        // After the last read of the feed, or with a page that includes the change, nothing can go wrong.
        let has_read_all = self.reads == scope.reads && self.reading.is_none();
        if has_read_all || self.page.is_some_and(|page| page.is_changed) {
            return next;
        }
        let mut with = |change: &dyn Fn(&mut State)| {
            let mut state = self.clone();
            change(&mut state);
            next.push(state);
        };
        if self.ticks < scope.ticks {
            with(&|state| (state.now, state.ticks) = (state.now + 1, state.ticks + 1));
        }
        // The clock is set back once.
        if scope.clock_steps && self.set_back == 0 && self.now > 1 {
            with(&|state| state.set_back = 1);
        }
        // Nothing is in progress over a long time: every step has a timeout.
        let is_appending = matches!(self.step, Step::ChangeInGroup(..) | Step::Store(..) | Step::ReadNewest);
        let is_idle = self.reading.is_none() && !is_appending;
        if scope.expires && !self.expired && is_idle && self.read_at.is_some() {
            with(&|state| {
                state.now += LONG;
                (state.expired, state.log) = (true, Vec::new());
                state.hidden = if mutant == Some(Mutant::IgnoresPause) { LONG } else { 0 };
            });
        }
        // The process has read the feed all the time, and saw each entry before it was deleted. They are deleted in any order.
        if scope.expires && is_idle && self.has_read_all_entries() {
            for index in 0..self.log.len() {
                with(&|state| {
                    state.log.remove(index);
                });
            }
        }
        if !self.has_other {
            // The clock of this writer is right, and that of the other one far behind.
            let now = Timestamp::from_millis(i64::from(self.now) * 1000);
            let position = Position::after(self.newest(), now, &SeededRandom::new(1));
            with(&|state| {
                state.has_other = true;
                state.log.push((position, Row::OtherPage));
            });
        }
        next.extend(self.writer_step(scope, mutant));
        self.reader_steps(scope, mutant, &mut next);
        next
    }

    fn newest(&self) -> Option<Position> {
        self.log.iter().map(|(position, _)| *position).max()
    }

    /// Whether the process has read all entries that are in the feed.
    fn has_read_all_entries(&self) -> bool {
        self.read_at.is_some() && self.log.iter().all(|entry| self.read_log.contains(entry))
    }

    /// Publishes the page with its tag, although the interval of the page before it is not over.
    fn publish(&mut self, mutant: Option<Mutant>) -> Step {
        let generation = |has_tag| {
            let mut generation = Generation::new("a.html", 0, i64::from(LONG));
            generation.content.tags.extend(std::iter::once("x".to_owned()).filter(|_| has_tag));
            generation
        };
        let (before, now) = (Meta::of(generation(self.has_tag)), Timestamp::from_millis(0));
        self.has_tag = true;
        let is_announced = must_be_announced(Some(&before), &generation(true), false, now);
        if is_announced && mutant != Some(Mutant::SilentPublish) { self.append() } else { Step::Change }
    }

    /// The row that the writer announces, and its next step.
    fn announcement(&self, scope: &Scope) -> (Row, Step) {
        match (self.is_changed, scope.publishes) {
            (false, true) => (Row::Page, Step::Change),
            (true, true) => (Row::Tag, Step::Acknowledged(self.now)),
            (_, false) => (Row::Page, Step::Acknowledged(self.now)),
        }
    }

    fn writer_step(&self, scope: &Scope, mutant: Option<Mutant>) -> Option<State> {
        let mut state = self.clone();
        let appends_first = mutant == Some(Mutant::AppendsFirst) && !scope.publishes;
        state.step = match self.step {
            Step::Publish => state.publish(mutant),
            Step::Change if appends_first && self.appends == 0 => state.append(),
            Step::Change if mutant == Some(Mutant::JoinsLate) => match state.append() {
                Step::Store(position, since) => Step::ChangeInGroup(position, since),
                other => other,
            },
            Step::ChangeInGroup(position, since) => {
                state.is_changed = true;
                Step::Store(position, since)
            }
            Step::Change => {
                (state.is_changed, state.appends) = (true, self.appends % APPENDS);
                if appends_first || mutant == Some(Mutant::NoAppend) {
                    Step::Acknowledged(self.now)
                } else {
                    state.append()
                }
            }
            Step::ReadNewest if self.appends == APPENDS => Step::Failed,
            Step::ReadNewest => state.append(),
            Step::Store(position, since) => {
                let in_time = self.now - since <= 1 || mutant == Some(Mutant::AcceptsLate);
                let (row, next) = self.announcement(scope);
                state.log.push((position, row));
                match in_time {
                    true if appends_first => Step::Change,
                    true => next,
                    false => Step::ReadNewest,
                }
            }
            Step::Acknowledged(_) | Step::Failed => return None,
        };
        Some(state)
    }

    /// The writer reads the newest position, and sends an entry.
    fn append(&mut self) -> Step {
        self.appends += 1;
        let random = SeededRandom::new(1 + u64::from(self.appends));
        Step::Store(Position::after(self.newest(), Timestamp::from_millis(0), &random), self.now)
    }

    fn reader_steps(&self, scope: &Scope, mutant: Option<Mutant>, next: &mut Vec<State>) {
        let mut state = self.clone();
        match &self.reading {
            None if self.reads < scope.reads => {
                state.reads += 1;
                if scope.slow_reads {
                    state.reading = Some((self.now, self.wall(), self.log.clone()));
                } else {
                    state.apply((self.now, self.wall()), self.log.clone(), mutant);
                }
                next.push(state);
            }
            None => {}
            // A read has a timeout.
            Some((began, ..)) if self.now > began + 1 => {
                state.reading = None;
                next.push(state);
            }
            Some((began, wall, log)) => {
                state.reading = None;
                state.apply((*began, *wall), log.clone(), mutant);
                next.push(state);
            }
        }
        // A page that arrives later is served later, so that this need not be two steps.
        if self.page.is_none() {
            let mut state = self.clone();
            let known = u64::try_from(self.news.len()).expect("few");
            state.page = Some(Copy { is_changed: self.is_changed, has_tag: self.has_tag, known });
            next.push(state);
        }
    }

    fn apply(&mut self, (began, wall): (u32, u32), mut log: Vec<Entry>, mutant: Option<Mutant>) {
        let has_paused = self.read_at.is_none_or(|(previous, _)| TICK * (began - previous) > MAX_PAUSE);
        let is_all_known = !has_paused && log.iter().all(|entry| self.read_log.contains(entry));
        self.read_log.clone_from(&log);
        let highest = self.reader.newest();
        if mutant == Some(Mutant::NoOverlap) {
            log.retain(|(position, _)| highest.is_none_or(|highest| position.sequence > highest));
        }
        log.sort_unstable();
        log.reverse();
        let newest = log.first().map(|(position, _)| position.sequence);
        if mutant == Some(Mutant::IgnoresReset) && newest < highest {
            log.clear();
        }
        let entry = |(position, row): &Entry| {
            let mut changed = vec![subject(Row::OtherPage)];
            if mutant != Some(Mutant::ReadsOneChange) {
                changed.push(subject(*row));
            }
            Appended { position: *position, changed: Some(changed) }
        };
        let entries = log.iter().map(entry).collect();
        let time = |ticks: u32| TICK * (ticks - self.hidden);
        let (at, began_at) = (wall_time(wall - self.hidden), time(began));
        let complete = mutant != Some(Mutant::GapAtExpiry) || newest >= highest;
        let read = FeedRead { at, during: began_at..time(self.now), entries, complete };
        let changes = self.reader.observe(&read);
        self.false_gap = is_all_known && changes == Changes::Everything;
        let is_ignored = match &changes {
            Changes::Of(changed) => changed.is_empty() || mutant == Some(Mutant::DoesNotMark),
            Changes::Everything => mutant == Some(Mutant::KeepsOldPages),
        };
        if !is_ignored {
            self.news.push(changes);
        }
        self.read_at = Some((began, wall));
    }
}

fn wall_time(ticks: u32) -> Timestamp {
    Timestamp::from_millis(0) + TICK * ticks
}

fn fingerprint(state: &State) -> u64 {
    let mut hasher = DefaultHasher::new();
    state.hash(&mut hasher);
    hasher.finish()
}

/// Explores all states, and returns their number, or a violation.
fn explore(scope: &Scope, mutant: Option<Mutant>) -> Result<usize, String> {
    const MOST: usize = 500_000;
    let starts = [false, true].map(|has_tag| State::start(scope, has_tag && scope.publishes));
    let (mut seen, mut open) = (HashSet::new(), starts.to_vec());
    while let Some(state) = open.pop() {
        if let Some(violation) = state.violation(mutant) {
            return Err(violation);
        }
        for next in state.successors(scope, mutant) {
            if seen.insert(fingerprint(&next)) {
                open.push(next);
            }
        }
        assert!(seen.len() < MOST, "the scope is too large");
    }
    Ok(seen.len())
}

#[test]
fn no_acknowledged_change_is_missed_in_any_interleaving() {
    const { assert!(LATE.as_secs() == 2 * TICK.as_secs()) };
    assert!(LONG * TICK > MAX_PAUSE.max(TTL));
    for scope in &SCOPES {
        let states = explore(scope, None).expect("no violation");
        println!("{states} states");
        assert!(states > 1_000, "{states} states");
    }
}

#[test]
fn every_defect_of_the_feed_is_detected() {
    for mutant in MUTANTS {
        let is_detected = SCOPES.iter().any(|scope| explore(scope, Some(mutant)).is_err());
        assert!(is_detected, "{mutant:?} was not detected");
    }
}
