//! Statistics of the responses.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::{Mutex, MutexGuard};
use std::time::Duration;

use tokio::time::Instant;

/// The most errors that are printed.
const MAX_SHOWN: usize = 10;
/// The allowed percentage of failed requests among those that need the origin, which fails 5 % by itself.
const MAX_FAILURES: u64 = 10;

/// The kind of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Kind {
    /// A hot page, which must always be served.
    Hot,
    /// A hot page over HTTP/2.
    Http2,
    /// A page that was not requested before.
    Cold,
    /// A hard-invalidated page.
    Hard,
    /// A form.
    Post,
    /// A connection that switches to another protocol.
    Socket,
    /// An invalidation.
    Invalidate,
}

/// Counts of responses, and unexpected responses.
#[derive(Default)]
pub(crate) struct Stats(Mutex<Counts>);

#[derive(Default)]
struct Counts {
    outcomes: BTreeMap<Kind, BTreeMap<String, u64>>,
    slowest: BTreeMap<Kind, Duration>,
    unexpected: Vec<String>,
    all_unexpected: u64,
}

impl Stats {
    /// Counts the outcome of a request that started at this time.
    pub(crate) fn count(&self, kind: Kind, outcome: &str, started: Instant) {
        let mut counts = self.lock();
        let slowest = counts.slowest.entry(kind).or_default();
        *slowest = started.elapsed().max(*slowest);
        let outcomes = counts.outcomes.entry(kind).or_default();
        match outcomes.get_mut(outcome) {
            Some(count) => *count += 1,
            None => {
                outcomes.insert(outcome.to_owned(), 1);
            }
        }
    }

    /// Records an unexpected response.
    pub(crate) fn unexpected(&self, fault: String) {
        let mut counts = self.lock();
        counts.all_unexpected += 1;
        if counts.unexpected.len() < MAX_SHOWN {
            counts.unexpected.push(fault);
        }
    }

    /// The number of requests.
    pub(crate) fn total(&self) -> u64 {
        self.lock().outcomes.values().flat_map(BTreeMap::values).sum()
    }

    /// Whether there were unexpected responses.
    pub(crate) fn has_unexpected(&self) -> bool {
        self.lock().all_unexpected > 0
    }

    /// Fails after an unexpected response, if a kind of request never occurred, or if more requests failed than the
    /// origin explains.
    pub(crate) fn check(&self) {
        let counts = self.lock();
        assert!(
            counts.unexpected.is_empty(),
            "{} unexpected responses, such as: {:#?}",
            counts.all_unexpected,
            counts.unexpected
        );
        let kinds =
            [Kind::Hot, Kind::Http2, Kind::Cold, Kind::Hard, Kind::Post, Kind::Socket, Kind::Invalidate];
        for kind in kinds {
            assert!(counts.outcomes.contains_key(&kind), "no request of kind {kind:?}");
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
        write!(f, "{:<11} {:>9} {:>11}  outcomes", "kind", "requests", "slowest")?;
        for (kind, outcomes) in &counts.outcomes {
            let given: Vec<_> =
                outcomes.iter().map(|(outcome, count)| format!("{count} {outcome}")).collect();
            let (name, all) = (format!("{kind:?}"), outcomes.values().sum::<u64>());
            let slowest = format!("{} ms", counts.slowest[kind].as_millis());
            write!(f, "\n{name:<11} {all:>9} {slowest:>11}  {}", given.join(", "))?;
        }
        write!(f, "\nunexpected  {:>9}", counts.all_unexpected)
    }
}
