//! The recorded history of a simulation, with every invariant checked as events arrive.
//!
//! The table and the body store report what they executed; workers and clients report which results they received. The
//! checker has its own copy of every row and body, so it notices a store that loses or invents data. It uses true time,
//! whatever the clock of a process shows.

mod body;
mod client;
mod damage;
mod page;
mod report;
mod request;

use std::collections::hash_map::DefaultHasher;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::hash::{Hash as _, Hasher as _};

use facetheory::protocol::{Lock, Meta};
use facetheory::testing::RuntimeClock;
use parking_lot::{Mutex, MutexGuard};
use tabletheory::{Clock as _, Item, Key, Timestamp};

use self::body::Object;
pub(crate) use self::body::READER_MILLIS;
use self::client::ClientHistory;
pub(crate) use self::client::{ClientRequest, Invalidation};
use self::page::PageHistory;
use crate::Report;
use crate::stats::{Counter, Stats};
use crate::violation::{Invariant, Violation};

/// Records and checks the history of one simulation.
#[derive(Debug)]
pub(crate) struct Checker {
    clock: RuntimeClock,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
pub(crate) struct State {
    /// The time of the current event, since the start of the simulation.
    elapsed_millis: i64,
    retention: usize,
    /// Without damaged rows.
    rows: BTreeMap<Key, Item>,
    /// Damaged rows that nobody has replaced.
    damaged: BTreeSet<Key>,
    /// How often the row of each request has expired; after that its key may be used again.
    request_expiries: BTreeMap<Key, u64>,
    pages: BTreeMap<String, PageHistory>,
    objects: BTreeMap<String, Object>,
    /// When `META` ceased to refer to each body, since the start of the simulation.
    replaced_millis: BTreeMap<String, i64>,
    /// When the last acknowledged invalidation of each tag was requested.
    tags: BTreeMap<Key, Timestamp>,
    /// The lease token of each operation.
    tokens: BTreeMap<String, Vec<String>>,
    /// When the render of each token started.
    starts: BTreeMap<String, Timestamp>,
    /// When the render of each published body started, for versions that a rollback restores.
    body_starts: BTreeMap<String, Timestamp>,
    /// Operations that reported that they have not published.
    not_published: BTreeSet<String>,
    clients: ClientHistory,
    /// How many publishes were reported to their workers.
    confirmed: u64,
    stats: Stats,
    events: VecDeque<String>,
    max_events: usize,
    fingerprint: DefaultHasher,
    violation: Option<Violation>,
}

impl Checker {
    pub(crate) fn new(clock: RuntimeClock, retention: usize, max_events: usize) -> Self {
        let state = State { retention, max_events, ..State::default() };
        Checker { clock, state: Mutex::new(state) }
    }

    /// Locks the history and sets the time of the next event.
    pub(crate) fn state(&self) -> MutexGuard<'_, State> {
        let mut state = self.state.lock();
        state.elapsed_millis = self.clock.elapsed_millis();
        state
    }

    /// The true time.
    pub(crate) fn now(&self) -> Timestamp {
        self.clock.now()
    }

    pub(crate) fn is_broken(&self) -> bool {
        self.state().violation.is_some()
    }

    /// Ends the history.
    pub(crate) fn report(&self, seed: u64) -> Report {
        let mut state = self.state();
        // Engines do not report the result of a publish.
        if !state.clients.has_renders() {
            let published = state.stats.of(Counter::Published) + state.stats.of(Counter::Unchanged);
            let unconfirmed = published.saturating_sub(state.confirmed);
            state.stats.add(Counter::PublishedUnconfirmed, unconfirmed);
        }
        Report {
            seed,
            stats: std::mem::take(&mut state.stats),
            fingerprint: state.fingerprint.finish(),
            events: std::mem::take(&mut state.events).into(),
            violation: state.violation.take(),
        }
    }
}

impl State {
    /// The time of the current event.
    fn now(&self) -> Timestamp {
        Timestamp::from_millis(crate::START * 1000 + self.elapsed_millis)
    }

    pub(crate) fn count(&mut self, counter: Counter) {
        self.stats.add(counter, 1);
    }

    /// Records an event. Beyond the limit the oldest one is dropped.
    pub(crate) fn note(&mut self, what: String) {
        let millis = self.elapsed_millis;
        let event = format!("{:>5}.{:03} s  {what}", millis / 1000, millis % 1000);
        event.hash(&mut self.fingerprint);
        if self.events.len() >= self.max_events {
            self.events.pop_front();
        }
        self.events.push_back(event);
    }

    /// Records a violation unless the condition holds. Only the first one counts; the others may be its consequences.
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

    /// The rows of a page whose sort keys start with `prefix`.
    fn rows_of(&self, pk: &str, prefix: &str) -> impl DoubleEndedIterator<Item = (&Key, &Item)> {
        let (pk, prefix) = (pk.to_owned(), prefix.to_owned());
        let first = Key::new(pk.as_str(), prefix.as_str());
        let end = Key::new(pk, format!("{prefix}\u{10FFFF}"));
        self.rows.range(first..end)
    }
}

/// A partition key as events show it: with the first characters of its hash.
pub(crate) fn short(pk: &str) -> String {
    match pk.rsplit_once('#') {
        Some((rest, hash)) => format!("{rest}#{}", hash.get(..6).unwrap_or(hash)),
        None => pk.to_owned(),
    }
}
