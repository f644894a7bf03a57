//! What visitors were given.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::{Mutex, MutexGuard};
use std::time::Duration;

use tokio::time::Instant;

/// So many faults are told of; the others are like them.
const MAX_SHOWN: usize = 10;
/// Of a hundred requests that only the origin can answer, at most so many may fail. It fails five of them by itself.
const MAX_FAILURES: u64 = 10;

/// What is asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Kind {
    /// A page that everybody asks for, and that must always be served.
    Hot,
    /// The same over HTTP/2.
    Http2,
    /// A page that nobody has asked for before.
    Cold,
    /// A page that may not be served any more.
    Hard,
    /// A form.
    Post,
    /// A connection that switches to another protocol.
    Socket,
    /// What an operator wants.
    Invalidate,
}

/// What was given to whom, and what should not have been.
#[derive(Default)]
pub(crate) struct Stats(Mutex<Counts>);

#[derive(Default)]
struct Counts {
    outcomes: BTreeMap<Kind, BTreeMap<String, u64>>,
    slowest: BTreeMap<Kind, Duration>,
    faults: Vec<String>,
    all_faults: u64,
}

impl Stats {
    /// Somebody who began then was given this.
    pub(crate) fn count(&self, kind: Kind, outcome: &str, began: Instant) {
        let mut counts = self.lock();
        let slowest = counts.slowest.entry(kind).or_default();
        *slowest = began.elapsed().max(*slowest);
        let outcomes = counts.outcomes.entry(kind).or_default();
        match outcomes.get_mut(outcome) {
            Some(count) => *count += 1,
            None => {
                outcomes.insert(outcome.to_owned(), 1);
            }
        }
    }

    /// Somebody was given what nobody should be.
    pub(crate) fn fault(&self, fault: String) {
        let mut counts = self.lock();
        counts.all_faults += 1;
        if counts.faults.len() < MAX_SHOWN {
            counts.faults.push(fault);
        }
    }

    /// How many requests there were.
    pub(crate) fn total(&self) -> u64 {
        self.lock().outcomes.values().flat_map(BTreeMap::values).sum()
    }

    /// Whether anybody was given what nobody should be.
    pub(crate) fn has_faults(&self) -> bool {
        self.lock().all_faults > 0
    }

    /// Fails if anybody was given what nobody should be, if something was never asked, or if more has failed than the origin
    /// explains.
    pub(crate) fn check(&self) {
        let counts = self.lock();
        assert!(counts.faults.is_empty(), "{} faults, such as: {:#?}", counts.all_faults, counts.faults);
        let kinds =
            [Kind::Hot, Kind::Http2, Kind::Cold, Kind::Hard, Kind::Post, Kind::Socket, Kind::Invalidate];
        for kind in kinds {
            assert!(counts.outcomes.contains_key(&kind), "nobody has asked for {kind:?}");
        }
        for kind in [Kind::Cold, Kind::Post, Kind::Socket] {
            let outcomes = &counts.outcomes[&kind];
            let all: u64 = outcomes.values().sum();
            let is_failure = |outcome: &str| outcome.starts_with('5');
            let failed: u64 =
                outcomes.iter().filter(|(name, _)| is_failure(name)).map(|(_, count)| count).sum();
            assert!(failed * 100 <= all * MAX_FAILURES, "{failed} of {all} {kind:?} failed: {outcomes:?}");
        }
    }

    fn lock(&self) -> MutexGuard<'_, Counts> {
        self.0.lock().expect("counts")
    }
}

impl fmt::Display for Stats {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let counts = self.lock();
        write!(f, "{:<11} {:>9} {:>11}  what they were given", "asked for", "requests", "slowest")?;
        for (kind, outcomes) in &counts.outcomes {
            let given: Vec<_> =
                outcomes.iter().map(|(outcome, count)| format!("{count} {outcome}")).collect();
            let (name, all) = (format!("{kind:?}"), outcomes.values().sum::<u64>());
            let slowest = format!("{} ms", counts.slowest[kind].as_millis());
            write!(f, "\n{name:<11} {all:>9} {slowest:>11}  {}", given.join(", "))?;
        }
        write!(f, "\nfaults      {:>9}", counts.all_faults)
    }
}
