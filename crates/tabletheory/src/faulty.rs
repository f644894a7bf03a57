//! Fault injection: a table with faults that depend only on a seed.

use std::collections::VecDeque;
use std::time::Duration;

use async_trait::async_trait;
use parking_lot::Mutex;

use crate::clock::Clock;
use crate::error::{Error, Kind, Result};
use crate::item::{Item, Key};
use crate::query::{Consistency, Page, Query, Scan};
use crate::random::{Random, SeededRandom};
use crate::table::Table;
use crate::txn::{Commit, Txn};
use crate::use_order::TableUsage;

/// The probability of each fault, from 0 to 1.
///
/// ```
/// use tabletheory::Faults;
///
/// let faults = Faults { lose_response: 0.1, ..Faults::default() };
/// assert_eq!(faults.fail, 0.0);
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Faults {
    /// A call is delayed, by up to [`longest_delay`](Faults::longest_delay), before it reaches the table.
    pub delay: f64,
    /// The maximum delay.
    pub longest_delay: Duration,
    /// A call fails without reaching the table: [`Kind::Unavailable`].
    pub fail: f64,
    /// A commit is applied, but its response is lost: [`Kind::Unknown`].
    pub lose_response: f64,
    /// A commit is lost before it reaches the table, so it is not applied: [`Kind::Unknown`].
    pub lose_request: f64,
    /// A commit gets no response and reaches the table later, before one of the next calls: [`Kind::Unknown`].
    pub late: f64,
    /// A commit conflicts with another one and is not applied: [`Kind::Unavailable`].
    pub conflict: f64,
    /// A call is throttled: [`Kind::Unavailable`].
    pub throttle: f64,
}

/// The number of injected faults of each kind.
///
/// ```
/// assert_eq!(tabletheory::FaultCounts::default().delayed, 0);
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct FaultCounts {
    /// Calls that were delayed.
    pub delayed: u64,
    /// Calls that failed.
    pub failed: u64,
    /// Commits that were applied, but whose response was lost.
    pub responses_lost: u64,
    /// Commits that were lost and not applied.
    pub requests_lost: u64,
    /// Commits that reached the table after their error was returned.
    pub late: u64,
    /// Commits that conflicted with another one.
    pub conflicts: u64,
    /// Calls that were throttled.
    pub throttled: u64,
}

/// Wraps a table and injects faults, for tests and simulations.
///
/// Delays use tokio's time, so a runtime with paused time skips them. Equal seeds and equal sequences of calls give equal
/// faults.
///
/// ```
/// use tabletheory::{Faults, Faulty, Item, Key, Kind, MemoryTable, Table, Txn, Write};
///
/// # #[tokio::main(flavor = "current_thread")] async fn main() {
/// let faults = Faults { lose_response: 1.0, ..Faults::default() };
/// let table = Faulty::new(MemoryTable::new(), 42, faults);
/// let put = Txn::from(Write::put(Key::new("CACHE#1", "META"), Item::new()));
/// assert_eq!(table.commit(&put).await.unwrap_err().kind(), Kind::Unknown);
/// assert_eq!(table.counts().responses_lost, 1);
/// # }
/// ```
#[derive(Debug)]
pub struct Faulty<T> {
    table: T,
    random: SeededRandom,
    state: Mutex<(Faults, FaultCounts)>,
    /// Commits that have not reached the table yet.
    in_flight: Mutex<VecDeque<Txn>>,
}

/// The number of faults in [`draw`] that reads can have too.
const READ_FAULTS: usize = 2;

/// The fault that a call gets.
enum Fault {
    None,
    Fail(Error),
    LoseResponse,
    Late,
}

impl<T: Table> Faulty<T> {
    /// Wraps a table.
    ///
    /// ```
    /// use tabletheory::{Faults, Faulty, MemoryTable};
    ///
    /// let table = Faulty::new(MemoryTable::new(), 1, Faults::default());
    /// assert_eq!(table.counts().failed, 0);
    /// ```
    pub fn new(table: T, seed: u64, faults: Faults) -> Self {
        Faulty {
            table,
            random: SeededRandom::new(seed),
            state: Mutex::new((faults, FaultCounts::default())),
            in_flight: Mutex::default(),
        }
    }

    /// Replaces the probabilities; [`Faults::default()`] stops all faults.
    ///
    /// ```
    /// use tabletheory::{Faults, Faulty, MemoryTable};
    ///
    /// let table = Faulty::new(MemoryTable::new(), 1, Faults { fail: 1.0, ..Faults::default() });
    /// table.set_faults(Faults::default());
    /// ```
    pub fn set_faults(&self, faults: Faults) {
        self.state.lock().0 = faults;
    }

    /// Returns the number of faults so far.
    ///
    /// ```
    /// use tabletheory::{FaultCounts, Faults, Faulty, MemoryTable};
    ///
    /// assert_eq!(Faulty::new(MemoryTable::new(), 1, Faults::default()).counts(), FaultCounts::default());
    /// ```
    #[must_use]
    pub fn counts(&self) -> FaultCounts {
        self.state.lock().1
    }

    /// Returns the wrapped table, to read rows without faults.
    ///
    /// ```
    /// use tabletheory::{Faults, Faulty, MemoryTable};
    ///
    /// let table = Faulty::new(MemoryTable::new(), 1, Faults::default());
    /// let reliable: &MemoryTable = table.inner();
    /// ```
    pub fn inner(&self) -> &T {
        &self.table
    }

    async fn before_read(&self) -> Result<()> {
        match self.next_fault(false).await {
            Fault::Fail(error) => Err(error),
            Fault::None | Fault::LoseResponse | Fault::Late => Ok(()),
        }
    }

    /// Delivers one late commit with a probability of one half.
    async fn deliver_late_commit(&self) {
        let late = {
            let mut in_flight = self.in_flight.lock();
            if in_flight.is_empty() || self.random.fraction() < 0.5 { None } else { in_flight.pop_front() }
        };
        if let Some(txn) = late {
            // The caller was given an error already.
            let _ignored = self.table.commit(&txn).await;
        }
    }

    /// Every call draws equally many random numbers, so that the fault of one call does not affect the next.
    async fn next_fault(&self, commits: bool) -> Fault {
        self.deliver_late_commit().await;
        let (delayed, delay, luck) = (self.random.fraction(), self.random.fraction(), self.random.fraction());
        let (delay, fault) = {
            let (faults, counts) = &mut *self.state.lock();
            let delay = (delayed < faults.delay).then(|| {
                counts.delayed += 1;
                faults.longest_delay.mul_f64(delay)
            });
            (delay, draw(faults, counts, luck, commits))
        };
        if let Some(delay) = delay {
            tokio::time::sleep(delay).await;
        }
        fault
    }
}

fn draw(faults: &Faults, counts: &mut FaultCounts, luck: f64, commits: bool) -> Fault {
    let unavailable = |message| Fault::Fail(Error::unavailable(message));
    let lost = Fault::Fail(Error::new(Kind::Unknown, "injected: the request was lost"));
    let faults = [
        (faults.fail, &mut counts.failed, unavailable("injected: the table cannot be reached")),
        (faults.throttle, &mut counts.throttled, unavailable("injected: the table is throttled")),
        (
            faults.conflict,
            &mut counts.conflicts,
            unavailable("injected: the transaction conflicts with another one"),
        ),
        (faults.lose_request, &mut counts.requests_lost, lost),
        (faults.late, &mut counts.late, Fault::Late),
        (faults.lose_response, &mut counts.responses_lost, Fault::LoseResponse),
    ];
    let possible = if commits { faults.len() } else { READ_FAULTS };
    let mut below = 0.0;
    for (probability, count, fault) in faults.into_iter().take(possible) {
        below += probability;
        if luck < below {
            *count += 1;
            return fault;
        }
    }
    Fault::None
}

#[async_trait]
impl<T: Table> Table for Faulty<T> {
    async fn get(&self, key: &Key, consistency: Consistency) -> Result<Option<Item>> {
        self.before_read().await?;
        self.table.get(key, consistency).await
    }

    async fn batch_get(&self, keys: &[Key], consistency: Consistency) -> Result<Vec<Option<Item>>> {
        self.before_read().await?;
        self.table.batch_get(keys, consistency).await
    }

    async fn query(&self, query: &Query) -> Result<Page> {
        self.before_read().await?;
        self.table.query(query).await
    }

    async fn scan(&self, scan: &Scan) -> Result<Page> {
        self.before_read().await?;
        self.table.scan(scan).await
    }

    async fn commit(&self, txn: &Txn) -> Result<Commit> {
        match self.next_fault(true).await {
            Fault::None => self.table.commit(txn).await,
            Fault::Fail(error) => Err(error),
            Fault::Late => {
                txn.check()?;
                self.in_flight.lock().push_back(txn.clone());
                Err(Error::new(Kind::Unknown, "injected: the commit is late"))
            }
            Fault::LoseResponse => {
                // Refusals are lost as well.
                let _lost = self.table.commit(txn).await?;
                Err(Error::new(Kind::Unknown, "injected: the response was lost"))
            }
        }
    }

    fn clock(&self) -> &dyn Clock {
        self.table.clock()
    }

    fn batches_are_snapshots(&self) -> bool {
        self.table.batches_are_snapshots()
    }

    fn replacements(&self) -> Result<u64> {
        self.table.replacements()
    }

    async fn expired(&self, lag: Duration) -> Result<u64> {
        self.before_read().await?;
        self.table.expired(lag).await
    }

    async fn sweep(&self, lag: Duration) -> Result<u64> {
        self.before_read().await?;
        self.table.sweep(lag).await
    }

    async fn least_recently_used(&self, limit: usize) -> Result<Vec<Item>> {
        self.before_read().await?;
        self.table.least_recently_used(limit).await
    }

    async fn expired_used(&self, lag: Duration, limit: usize) -> Result<Vec<Item>> {
        self.before_read().await?;
        self.table.expired_used(lag, limit).await
    }

    async fn usage(&self) -> Result<Option<TableUsage>> {
        self.before_read().await?;
        self.table.usage().await
    }
}
