//! Statistics of a run: how often each kind of event happened.

use std::collections::BTreeMap;
use std::fmt;

use crate::named_enum::named_enum;

named_enum! {
    /// A kind of event.
    ///
    /// ```
    /// assert_eq!(facetheory_simulation::Counter::Granted.to_string(), "leases granted");
    /// ```
    pub enum Counter {
        Granted = "leases granted", Published = "renders published",
        Unchanged = "renders unchanged", PublishedUnconfirmed = "publishes without a response",
        NotPublished = "renders not published", Crashed = "crashes",
        Served = "pages served", ServedFresh = "pages served fresh",
        Invalidated = "invalidations", TagInvalidated = "tag invalidations",
        RolledBack = "rollbacks", Unpinned = "pins removed",
        RequestStarted = "requests started", RequestCompleted = "requests completed",
        RequestFailed = "requests failed", RequestReplayed = "requests replayed",
        RequestInProgress = "requests in progress", RequestTakenOver = "requests taken over",
        RequestMismatched = "requests mismatched", Collected = "versions deleted by gc",
        Expired = "rows expired", Stored = "bodies stored",
        Lost = "bodies lost", Damaged = "bodies damaged",
        Repaired = "bodies replaced", Rendered = "renders for clients",
        Hit = "responses: hit", Stale = "responses: stale",
        WaitHit = "responses: wait-hit", Miss = "responses: miss",
        Bypass = "responses: bypass", StaleError = "responses: stale-error",
        DeletedReplaced = "replaced bodies deleted", Evicted = "pages evicted",
        RowDamaged = "rows damaged",
        StaleMetadataError = "responses: stale-metadata-error", NoPage = "responses: no page",
    }
}

impl Counter {
    /// Whether only histories with clients count it.
    ///
    /// ```
    /// assert!(facetheory_simulation::Counter::Hit.is_about_clients());
    /// ```
    #[must_use]
    pub fn is_about_clients(self) -> bool {
        self >= Counter::Rendered
    }
}

/// The number of events of each kind.
///
/// ```
/// use facetheory_simulation::{Counter, Stats};
///
/// let mut stats = Stats::default();
/// stats.add(Counter::Granted, 2);
/// assert_eq!(stats.of(Counter::Granted), 2);
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Stats(BTreeMap<Counter, u64>);

impl Stats {
    /// Adds to a counter.
    ///
    /// ```
    /// # use facetheory_simulation::{Counter, Stats};
    /// Stats::default().add(Counter::Lost, 1);
    /// ```
    pub fn add(&mut self, counter: Counter, number: u64) {
        *self.0.entry(counter).or_default() += number;
    }

    /// The value of a counter.
    ///
    /// ```
    /// # use facetheory_simulation::{Counter, Stats};
    /// assert_eq!(Stats::default().of(Counter::Lost), 0);
    /// ```
    #[must_use]
    pub fn of(&self, counter: Counter) -> u64 {
        self.0.get(&counter).copied().unwrap_or(0)
    }

    /// Adds the counters of another run.
    ///
    /// ```
    /// # use facetheory_simulation::Stats;
    /// let mut all = Stats::default();
    /// all.merge(&Stats::default());
    /// assert_eq!(all, Stats::default());
    /// ```
    pub fn merge(&mut self, other: &Stats) {
        for (counter, number) in &other.0 {
            self.add(*counter, *number);
        }
    }
}

/// Prints one line for each counter that is not zero.
impl fmt::Display for Stats {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut counters = Counter::ALL.iter().filter(|counter| self.of(**counter) > 0);
        counters
            .try_for_each(|counter| writeln!(f, "  {:<30} {:>10}", counter.to_string(), self.of(*counter)))
    }
}
