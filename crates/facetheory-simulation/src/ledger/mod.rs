//! What really happened, in order, checked as it happens.
//!
//! The ledger is told by the table and by the store of objects what was done to them, and by the workers what they were
//! told. It keeps its own copy of every row and body, so that a store that forgets or invents something is noticed.

mod body;
mod page;
mod reader;
mod request;
mod visit;

use std::collections::hash_map::DefaultHasher;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::hash::{Hash as _, Hasher as _};
use std::sync::{Mutex, MutexGuard, PoisonError};

use facetheory::protocol::{Lock, Meta};
use tabletheory::{Clock as _, Item, Key, Timestamp};

use self::body::Object;
use self::page::PageLedger;
use self::visit::Site;
pub(crate) use self::visit::{Order, Visit};
use crate::clock::SimulatedClock;
use crate::tally::{Count, Tally};
use crate::violation::{Invariant, Violation};

/// The record of one simulation.
#[derive(Debug)]
pub(crate) struct Ledger {
    clock: SimulatedClock,
    state: Mutex<State>,
}

#[derive(Debug)]
pub(crate) struct State {
    /// The time of what is being recorded.
    now: Timestamp,
    elapsed: i64,
    retention: usize,
    rows: BTreeMap<Key, Item>,
    /// How often the row of a request was deleted, which begins another life of its key.
    request_lives: BTreeMap<Key, u64>,
    pages: BTreeMap<String, PageLedger>,
    objects: BTreeMap<String, Object>,
    /// When each tag was invalidated last, by an invalidation that was acknowledged.
    tags: BTreeMap<Key, Timestamp>,
    /// Which token each operation was granted, and when the render under each token started.
    tokens: BTreeMap<String, String>,
    starts: BTreeMap<String, Timestamp>,
    /// The same by the body that was published, for versions that come back.
    body_starts: BTreeMap<String, Timestamp>,
    /// Operations that were told that they have not published.
    denied: BTreeSet<String>,
    /// What is known of visitors.
    site: Site,
    heard: u64,
    tally: Tally,
    events: VecDeque<String>,
    most_events: usize,
    fingerprint: DefaultHasher,
    violation: Option<Violation>,
}

/// What is left of a simulation.
#[derive(Debug)]
pub(crate) struct Closed {
    pub(crate) tally: Tally,
    pub(crate) fingerprint: u64,
    pub(crate) events: Vec<String>,
    pub(crate) violation: Option<Violation>,
}

impl Ledger {
    pub(crate) fn new(clock: SimulatedClock, retention: usize, most_events: usize) -> Self {
        let state = State {
            now: clock.now(),
            elapsed: 0,
            retention,
            rows: BTreeMap::new(),
            request_lives: BTreeMap::new(),
            pages: BTreeMap::new(),
            objects: BTreeMap::new(),
            tags: BTreeMap::new(),
            tokens: BTreeMap::new(),
            starts: BTreeMap::new(),
            body_starts: BTreeMap::new(),
            denied: BTreeSet::new(),
            site: Site::default(),
            heard: 0,
            tally: Tally::default(),
            events: VecDeque::new(),
            most_events,
            fingerprint: DefaultHasher::new(),
            violation: None,
        };
        Ledger { clock, state: Mutex::new(state) }
    }

    /// The record, at the present time. A panic elsewhere ends the simulation anyway, so poison says nothing.
    pub(crate) fn state(&self) -> MutexGuard<'_, State> {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        state.now = self.clock.now();
        state.elapsed = self.clock.elapsed();
        state
    }

    /// The true time, whatever a worker's clock says.
    pub(crate) fn now(&self) -> Timestamp {
        self.clock.now()
    }

    pub(crate) fn is_broken(&self) -> bool {
        self.state().violation.is_some()
    }

    pub(crate) fn close(&self) -> Closed {
        let mut state = self.state();
        let unheard = state.tally.of(Count::Published) + state.tally.of(Count::Unchanged);
        // Engines do not tell what they heard.
        let unheard = if state.site.is_visited() { 0 } else { unheard.saturating_sub(state.heard) };
        state.tally.add(Count::Unheard, unheard);
        Closed {
            tally: std::mem::take(&mut state.tally),
            fingerprint: state.fingerprint.finish(),
            events: std::mem::take(&mut state.events).into(),
            violation: state.violation.take(),
        }
    }
}

impl State {
    pub(crate) fn count(&mut self, count: Count) {
        self.tally.add(count, 1);
    }

    /// Notes what happened; the oldest is forgotten when there is too much.
    pub(crate) fn note(&mut self, what: String) {
        let millis = self.elapsed;
        let event = format!("{:>5}.{:03} s  {what}", millis / 1000, millis % 1000);
        event.hash(&mut self.fingerprint);
        if self.events.len() >= self.most_events {
            self.events.pop_front();
        }
        self.events.push_back(event);
    }

    /// Requires that something holds. Only the first violation counts: what follows from it is no news.
    pub(crate) fn ensure(&mut self, holds: bool, invariant: Invariant, what: impl FnOnce() -> String) {
        if holds || self.violation.is_some() {
            return;
        }
        let events = self.events.iter().cloned().collect();
        self.violation = Some(Violation { invariant, what: what(), events });
    }

    fn meta(&self, pk: &str) -> Option<Meta> {
        self.rows.get(&Key::new(pk, "META")).and_then(|row| Meta::read(row).ok())
    }

    fn lock(&self, pk: &str) -> Option<Lock> {
        self.rows.get(&Key::new(pk, "LOCK")).and_then(|row| Lock::read(row).ok())
    }

    /// The rows of a page whose sort keys begin with this.
    fn rows_of(&self, pk: &str, prefix: &str) -> impl DoubleEndedIterator<Item = (&Key, &Item)> {
        let (pk, prefix) = (pk.to_owned(), prefix.to_owned());
        let first = Key::new(pk.as_str(), prefix.as_str());
        let end = Key::new(pk, format!("{prefix}\u{10FFFF}"));
        self.rows.range(first..end)
    }
}

/// A partition key as an event shows it: its tenant, and the beginning of its hash.
pub(crate) fn short(pk: &str) -> String {
    match pk.rsplit_once('#') {
        Some((rest, hash)) => format!("{rest}#{}", hash.get(..6).unwrap_or(hash)),
        None => pk.to_owned(),
    }
}
