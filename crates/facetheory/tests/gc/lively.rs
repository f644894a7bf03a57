//! A table on which something else happens between the steps of a collection.

use std::fmt;
use std::pin::Pin;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use async_trait::async_trait;
use tabletheory::{Clock, Commit, Consistency, Item, Key, Page, Query, Result, Scan, Table, Txn};

/// What happens before a step, which is told by its number.
pub(crate) type Meanwhile = Arc<dyn Fn(usize) -> Pin<Box<dyn Future<Output = ()> + Send>> + Send + Sync>;

/// Gives pages of a few rows, so that a partition comes in several, and lets something happen before each step.
pub(crate) struct Lively {
    pub(crate) table: Arc<dyn Table>,
    state: Mutex<(usize, Option<Meanwhile>)>,
}

/// Rows that a scan returns at most.
const ROWS: usize = 2;

impl fmt::Debug for Lively {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Lively")
    }
}

impl Lively {
    pub(crate) fn new(table: Arc<dyn Table>) -> Self {
        Lively { table, state: Mutex::default() }
    }

    /// From now on this happens; none ends it.
    pub(crate) fn meanwhile(&self, meanwhile: Option<Meanwhile>) {
        *self.state.lock().expect("not poisoned") = (0, meanwhile);
    }

    async fn step(&self) {
        let (step, meanwhile) = {
            let mut state = self.state.lock().expect("not poisoned");
            state.0 += 1;
            (state.0, state.1.clone())
        };
        if let Some(meanwhile) = meanwhile {
            meanwhile(step).await;
        }
    }
}

#[async_trait]
impl Table for Lively {
    async fn get(&self, key: &Key, consistency: Consistency) -> Result<Option<Item>> {
        self.table.get(key, consistency).await
    }

    async fn batch_get(&self, keys: &[Key], consistency: Consistency) -> Result<Vec<Option<Item>>> {
        self.table.batch_get(keys, consistency).await
    }

    async fn query(&self, query: &Query) -> Result<Page> {
        self.table.query(query).await
    }

    async fn scan(&self, scan: &Scan) -> Result<Page> {
        self.step().await;
        self.table.scan(&scan.clone().limit(ROWS)).await
    }

    async fn commit(&self, txn: &Txn) -> Result<Commit> {
        self.step().await;
        self.table.commit(txn).await
    }

    fn clock(&self) -> &dyn Clock {
        self.table.clock()
    }

    async fn expired(&self, lag: Duration) -> Result<u64> {
        self.table.expired(lag).await
    }

    async fn sweep(&self, lag: Duration) -> Result<u64> {
        self.table.sweep(lag).await
    }
}
