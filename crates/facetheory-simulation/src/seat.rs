//! The table as one worker has it: the same rows, its own clock, and its own death.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use async_trait::async_trait;
use tabletheory::{Clock, Commit, Consistency, Item, Key, Page, Query, Result, Scan, Table, Txn};
use tokio::sync::Notify;

use crate::clock::SimulatedClock;

/// For a worker that lives on.
const MANY: u64 = u64::MAX;

/// A worker's way to the table.
#[derive(Debug)]
pub(crate) struct Seat {
    table: Arc<dyn Table>,
    clock: SimulatedClock,
    /// So many calls are answered before the worker dies.
    answers_left: AtomicU64,
    death: Notify,
    /// How many calls were made, and how many were answered.
    calls: AtomicU64,
}

impl Seat {
    pub(crate) fn new(table: Arc<dyn Table>, clock: SimulatedClock) -> Self {
        Seat {
            table,
            clock,
            answers_left: AtomicU64::new(MANY),
            death: Notify::new(),
            calls: AtomicU64::new(0),
        }
    }

    /// Does something, and drops it where the table has done the call after so many others: the worst moment to die,
    /// since a commit has happened and nobody has heard. Says whether it came to that.
    pub(crate) async fn die_after(&self, answers: u64, life: impl Future<Output = ()>) -> bool {
        self.answers_left.store(answers, Ordering::SeqCst);
        let died = tokio::select! {
            biased;
            () = self.death.notified() => true,
            () = life => false,
        };
        self.answers_left.store(MANY, Ordering::SeqCst);
        died
    }

    /// How many calls were made and answered so far: it stands still where nothing goes on.
    pub(crate) fn calls(&self) -> u64 {
        self.calls.load(Ordering::SeqCst)
    }

    fn table(&self) -> &dyn Table {
        self.calls.fetch_add(1, Ordering::SeqCst);
        &*self.table
    }

    /// An answer on its way to the worker, which may be dead by now.
    async fn hear<T>(&self, answer: T) -> T {
        let left = self.answers_left.load(Ordering::SeqCst);
        if left == 0 {
            self.death.notify_one();
            std::future::pending::<()>().await;
        }
        self.answers_left.store(left - 1, Ordering::SeqCst);
        self.calls.fetch_add(1, Ordering::SeqCst);
        answer
    }
}

#[async_trait]
impl Table for Seat {
    async fn get(&self, key: &Key, consistency: Consistency) -> Result<Option<Item>> {
        self.hear(self.table().get(key, consistency).await).await
    }

    async fn batch_get(&self, keys: &[Key], consistency: Consistency) -> Result<Vec<Option<Item>>> {
        self.hear(self.table().batch_get(keys, consistency).await).await
    }

    async fn query(&self, query: &Query) -> Result<Page> {
        self.hear(self.table().query(query).await).await
    }

    async fn scan(&self, scan: &Scan) -> Result<Page> {
        self.hear(self.table().scan(scan).await).await
    }

    async fn commit(&self, txn: &Txn) -> Result<Commit> {
        self.hear(self.table().commit(txn).await).await
    }

    fn clock(&self) -> &dyn Clock {
        &self.clock
    }
}
