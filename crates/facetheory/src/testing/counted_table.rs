//! A table in memory that counts its calls and fails on demand.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::time::Duration;

use async_trait::async_trait;
use parking_lot::Mutex;
use tabletheory::{Clock, Commit, Error, Faults, Faulty, Key, Kind, MemoryTable, Result, Table, Txn};

use super::observed_table::{Call, ObservedTable, TableHooks};

/// Counts the calls to a table in memory; see [`CountedTable::new`].
#[derive(Debug)]
pub struct Counters {
    table: Faulty<MemoryTable>,
    reads: AtomicU32,
    commits: AtomicU32,
    writes: AtomicU32,
    rejected: Mutex<Option<&'static str>>,
    held: Mutex<Option<&'static str>>,
    replacements: AtomicU64,
}

/// A table in memory that counts its calls.
pub type CountedTable = ObservedTable<Counters>;

impl CountedTable {
    /// An empty table with this clock.
    #[must_use]
    pub fn new(clock: Arc<dyn Clock>) -> Self {
        let count = || AtomicU32::new(0);
        let table = Faulty::new(MemoryTable::with_clock(clock), 1, Faults::default());
        let (rejected, held) = (Mutex::new(None), Mutex::new(None));
        let replacements = AtomicU64::new(0);
        ObservedTable(Counters {
            table,
            reads: count(),
            commits: count(),
            writes: count(),
            rejected,
            held,
            replacements,
        })
    }
}

impl Counters {
    /// Returns the reads and the commits since the last call, and resets the counters.
    pub fn take(&self) -> (u32, u32) {
        let (reads, commits, _) = self.take_all();
        (reads, commits)
    }

    /// Returns the reads, the commits and the rows in them since the last call, and resets the counters.
    pub fn take_all(&self) -> (u32, u32, u32) {
        let take = |counter: &AtomicU32| counter.swap(0, Ordering::SeqCst);
        (take(&self.reads), take(&self.commits), take(&self.writes))
    }

    /// Sets how calls fail from now on.
    pub fn set_faults(&self, faults: Faults) {
        self.table.set_faults(faults);
    }

    /// Makes every call fail.
    pub fn break_down(&self) {
        self.set_faults(Faults { fail: 1.0, ..Faults::default() });
    }

    /// Delays every call by up to this long.
    pub fn slow_down(&self, longest_delay: Duration) {
        self.set_faults(Faults { delay: 1.0, longest_delay, ..Faults::default() });
    }

    /// Rejects the commits that write to a partition with this prefix.
    pub fn reject_writes_to(&self, prefix: &'static str) {
        *self.rejected.lock() = Some(prefix);
    }

    /// Lets the commits that write to a partition with this prefix hang.
    pub fn hold_writes_to(&self, prefix: &'static str) {
        *self.held.lock() = Some(prefix);
    }

    /// Damages the row with this key. Returns whether there is one.
    pub fn damage(&self, key: &Key) -> bool {
        self.table.inner().damage(key)
    }

    /// Pretends that an empty table took the place of this one.
    pub fn pretend_to_be_replaced(&self) {
        self.replacements.fetch_add(1, Ordering::SeqCst);
    }

    /// Ends all faults. A commit that hangs continues to do so.
    pub fn come_back(&self) {
        self.set_faults(Faults::default());
        (*self.rejected.lock(), *self.held.lock()) = (None, None);
    }
}

#[async_trait]
impl TableHooks for Counters {
    fn table(&self) -> &dyn Table {
        &self.table
    }

    async fn before(&self, call: Call) {
        match call {
            Call::Read | Call::Scan => self.reads.fetch_add(1, Ordering::SeqCst),
            Call::Commit { writes } => {
                self.writes.fetch_add(u32::try_from(writes).unwrap_or(u32::MAX), Ordering::SeqCst);
                self.commits.fetch_add(1, Ordering::SeqCst)
            }
        };
    }

    fn replacements(&self) -> Result<u64> {
        Ok(self.replacements.load(Ordering::SeqCst))
    }

    async fn commit(&self, txn: &Txn) -> Result<Commit> {
        let (rejected, held) = (*self.rejected.lock(), *self.held.lock());
        let writes_to = |prefix| txn.writes().iter().any(|write| write.key().pk.starts_with(prefix));
        if held.is_some_and(writes_to) {
            std::future::pending::<()>().await;
        }
        if rejected.is_some_and(writes_to) {
            return Err(Error::new(Kind::Unavailable, "the test rejects this commit"));
        }
        self.table.commit(txn).await
    }
}
