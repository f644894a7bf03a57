//! A table that misbehaves on purpose, the same way for the same seed.

use std::collections::VecDeque;
use std::sync::Mutex;
use std::sync::PoisonError;
use std::time::Duration;

use async_trait::async_trait;

use crate::clock::Clock;
use crate::error::{Error, Kind, Result};
use crate::item::{Item, Key};
use crate::query::{Consistency, Page, Query, Scan};
use crate::random::{Random, SeededRandom};
use crate::table::Table;
use crate::txn::{Commit, Txn};

/// How often each thing goes wrong: a probability from 0 to 1.
///
/// ```
/// use tabletheory::Faults;
///
/// let faults = Faults { lose_answer: 0.1, ..Faults::NONE };
/// assert_eq!(faults.fail, 0.0);
/// ```
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Faults {
    /// The call takes a while, up to [`longest_delay`](Faults::longest_delay), before it reaches the table.
    pub delay: f64,
    /// The longest delay.
    pub longest_delay: Duration,
    /// The call fails and has not reached the table: [`Kind::Unavailable`].
    pub fail: f64,
    /// A commit reaches the table, but its answer is lost: [`Kind::Unknown`], although it happened.
    pub lose_answer: f64,
    /// A commit is lost before it reaches the table: [`Kind::Unknown`], although it did not happen.
    pub lose_request: f64,
    /// A commit has no answer and reaches the table later, before one of the next calls: [`Kind::Unknown`].
    pub late: f64,
    /// A commit meets another one and is given up: [`Kind::Unavailable`].
    pub conflict: f64,
    /// The table has had too many calls: [`Kind::Unavailable`].
    pub throttle: f64,
}

impl Faults {
    /// Nothing goes wrong.
    pub const NONE: Faults = Faults {
        delay: 0.0,
        longest_delay: Duration::ZERO,
        fail: 0.0,
        lose_answer: 0.0,
        lose_request: 0.0,
        late: 0.0,
        conflict: 0.0,
        throttle: 0.0,
    };
}

/// How often each thing went wrong so far.
///
/// ```
/// assert_eq!(tabletheory::FaultCounts::default().delayed, 0);
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FaultCounts {
    /// Calls that took a while.
    pub delayed: u64,
    /// Calls that failed.
    pub failed: u64,
    /// Commits that happened without an answer.
    pub answers_lost: u64,
    /// Commits that did not happen, without an answer.
    pub requests_lost: u64,
    /// Commits that were answered before they arrived.
    pub late: u64,
    /// Commits that met another one.
    pub conflicts: u64,
    /// Calls that were too many.
    pub throttled: u64,
}

/// Any table, with faults that a seed decides: for tests of what stands on a table, and for simulations.
///
/// Delays use tokio's time, so a paused runtime skips them. The same seed and the same order of calls
/// give the same faults.
///
/// ```
/// use tabletheory::{Faults, Faulty, Item, Key, Kind, MemoryTable, Table, Txn, Write};
///
/// # #[tokio::main(flavor = "current_thread")] async fn main() {
/// let faults = Faults { lose_answer: 1.0, ..Faults::NONE };
/// let table = Faulty::new(MemoryTable::new(), 42, faults);
/// let put = Txn::from(Write::put(Key::new("CACHE#1", "META"), Item::new()));
/// assert_eq!(table.commit(&put).await.unwrap_err().kind(), Kind::Unknown);
/// assert_eq!(table.counts().answers_lost, 1);
/// # }
/// ```
#[derive(Debug)]
pub struct Faulty<T> {
    table: T,
    random: SeededRandom,
    state: Mutex<(Faults, FaultCounts)>,
    /// Commits that are on their way.
    under_way: Mutex<VecDeque<Txn>>,
}

/// What happens to one call.
enum Fate {
    Pass,
    Fail(Error),
    LoseAnswer,
    Late,
}

impl<T: Table> Faulty<T> {
    /// The table with these faults, decided by this seed.
    ///
    /// ```
    /// use tabletheory::{Faults, Faulty, MemoryTable};
    ///
    /// let table = Faulty::new(MemoryTable::new(), 1, Faults::NONE);
    /// assert_eq!(table.counts().failed, 0);
    /// ```
    pub fn new(table: T, seed: u64, faults: Faults) -> Self {
        Faulty {
            table,
            random: SeededRandom::new(seed),
            state: Mutex::new((faults, FaultCounts::default())),
            under_way: Mutex::default(),
        }
    }

    /// From now on these faults; [`Faults::NONE`] ends them.
    ///
    /// ```
    /// use tabletheory::{Faults, Faulty, MemoryTable};
    ///
    /// let table = Faulty::new(MemoryTable::new(), 1, Faults { fail: 1.0, ..Faults::NONE });
    /// table.set_faults(Faults::NONE);
    /// ```
    pub fn set_faults(&self, faults: Faults) {
        self.with_state(|(now, _)| *now = faults);
    }

    /// What went wrong so far.
    ///
    /// ```
    /// use tabletheory::{FaultCounts, Faults, Faulty, MemoryTable};
    ///
    /// assert_eq!(Faulty::new(MemoryTable::new(), 1, Faults::NONE).counts(), FaultCounts::default());
    /// ```
    #[must_use]
    pub fn counts(&self) -> FaultCounts {
        self.with_state(|(_, counts)| *counts)
    }

    /// The table without its faults, to look at what is really there.
    ///
    /// ```
    /// use tabletheory::{Faults, Faulty, MemoryTable};
    ///
    /// let table = Faulty::new(MemoryTable::new(), 1, Faults::NONE);
    /// let honest: &MemoryTable = table.inner();
    /// ```
    pub fn inner(&self) -> &T {
        &self.table
    }

    /// Numbers and counters are whole at any moment, so a poisoned lock guards nothing broken.
    fn with_state<R>(&self, act: impl FnOnce(&mut (Faults, FaultCounts)) -> R) -> R {
        act(&mut self.state.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Waits, then says what happens to a read.
    async fn read_fate(&self) -> Result<()> {
        match self.fate(false).await {
            Fate::Fail(error) => Err(error),
            Fate::Pass | Fate::LoseAnswer | Fate::Late => Ok(()),
        }
    }

    /// Lets a commit that is on its way arrive, or not yet.
    async fn arrive(&self) {
        let one = {
            let mut under_way = self.under_way.lock().unwrap_or_else(PoisonError::into_inner);
            if under_way.is_empty() || self.random.fraction() < 0.5 { None } else { under_way.pop_front() }
        };
        if let Some(txn) = one {
            // Whatever becomes of it, nobody waits for its answer any more.
            let _unheard = self.table.commit(&txn).await;
        }
    }

    /// Every call draws the same number of times, so that one call's luck does not shift the next one's.
    async fn fate(&self, commits: bool) -> Fate {
        self.arrive().await;
        let (delayed, delay, luck) = (self.random.fraction(), self.random.fraction(), self.random.fraction());
        let (pause, fate) = self.with_state(|(faults, counts)| {
            let pause = (delayed < faults.delay).then(|| {
                counts.delayed += 1;
                faults.longest_delay.mul_f64(delay)
            });
            (pause, draw(faults, counts, luck, commits))
        });
        if let Some(pause) = pause {
            tokio::time::sleep(pause).await;
        }
        fate
    }
}

fn draw(faults: &Faults, counts: &mut FaultCounts, luck: f64, commits: bool) -> Fate {
    let mut below = 0.0;
    let mut hit = |probability: f64| {
        below += probability;
        luck < below
    };
    if hit(faults.fail) {
        counts.failed += 1;
        return Fate::Fail(Error::unavailable("injected: the table cannot be reached"));
    }
    if hit(faults.throttle) {
        counts.throttled += 1;
        return Fate::Fail(Error::unavailable("injected: the table is throttled"));
    }
    if !commits {
        return Fate::Pass;
    }
    if hit(faults.conflict) {
        counts.conflicts += 1;
        return Fate::Fail(Error::unavailable("injected: the transaction met another one"));
    }
    if hit(faults.lose_request) {
        counts.requests_lost += 1;
        return Fate::Fail(Error::new(Kind::Unknown, "injected: no answer came"));
    }
    if hit(faults.late) {
        counts.late += 1;
        return Fate::Late;
    }
    if hit(faults.lose_answer) {
        counts.answers_lost += 1;
        return Fate::LoseAnswer;
    }
    Fate::Pass
}

#[async_trait]
impl<T: Table> Table for Faulty<T> {
    async fn get(&self, key: &Key, consistency: Consistency) -> Result<Option<Item>> {
        self.read_fate().await?;
        self.table.get(key, consistency).await
    }

    async fn batch_get(&self, keys: &[Key], consistency: Consistency) -> Result<Vec<Option<Item>>> {
        self.read_fate().await?;
        self.table.batch_get(keys, consistency).await
    }

    async fn query(&self, query: &Query) -> Result<Page> {
        self.read_fate().await?;
        self.table.query(query).await
    }

    async fn scan(&self, scan: &Scan) -> Result<Page> {
        self.read_fate().await?;
        self.table.scan(scan).await
    }

    async fn commit(&self, txn: &Txn) -> Result<Commit> {
        match self.fate(true).await {
            Fate::Pass => self.table.commit(txn).await,
            Fate::Fail(error) => Err(error),
            Fate::Late => {
                txn.check()?;
                self.under_way.lock().unwrap_or_else(PoisonError::into_inner).push_back(txn.clone());
                Err(Error::new(Kind::Unknown, "injected: no answer came yet"))
            }
            Fate::LoseAnswer => {
                // A refusal's answer is lost as well: the caller cannot know which it was.
                let _lost = self.table.commit(txn).await?;
                Err(Error::new(Kind::Unknown, "injected: no answer came"))
            }
        }
    }

    fn clock(&self) -> &dyn Clock {
        self.table.clock()
    }

    async fn expired(&self, lag: Duration) -> Result<u64> {
        self.read_fate().await?;
        self.table.expired(lag).await
    }

    async fn sweep(&self, lag: Duration) -> Result<u64> {
        self.read_fate().await?;
        self.table.sweep(lag).await
    }
}
