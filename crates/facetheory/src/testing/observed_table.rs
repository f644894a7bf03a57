//! A table that calls hooks of a test around each call.

use std::fmt;
use std::ops::Deref;
use std::time::Duration;

use async_trait::async_trait;
use tabletheory::{Clock, Commit, Consistency, Item, Key, Page, Query, Result, Scan, Table, TableUsage, Txn};

/// A call to a table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Call {
    /// A get, a batch get or a query.
    Read,
    /// One page of a scan.
    Scan,
    /// A transaction with this many writes.
    Commit {
        /// The number of rows that it writes or checks.
        writes: usize,
    },
}

/// Hooks that a test runs around the calls to a table. By default every call is forwarded unchanged.
#[async_trait]
pub trait TableHooks: fmt::Debug + Send + Sync {
    /// The table that executes the calls.
    fn table(&self) -> &dyn Table;

    /// Runs before each call.
    async fn before(&self, _call: Call) {}

    /// Runs after each call, before the caller gets its result.
    async fn after(&self) {}

    /// Executes a query.
    async fn query(&self, query: &Query) -> Result<Page> {
        self.table().query(query).await
    }

    /// Executes a scan.
    async fn scan(&self, scan: &Scan) -> Result<Page> {
        self.table().scan(scan).await
    }

    /// Executes a transaction.
    async fn commit(&self, txn: &Txn) -> Result<Commit> {
        self.table().commit(txn).await
    }

    /// The clock that users of the table see.
    fn clock(&self) -> &dyn Clock {
        self.table().clock()
    }

    /// How often the table was replaced.
    fn replacements(&self) -> Result<u64> {
        self.table().replacements()
    }
}

/// A table with the hooks of a test, which it dereferences to.
#[derive(Debug)]
pub struct ObservedTable<H>(pub H);

impl<H: TableHooks> ObservedTable<H> {
    async fn observe<T>(&self, call: Call, result: impl Future<Output = T>) -> T {
        self.0.before(call).await;
        let result = result.await;
        self.0.after().await;
        result
    }
}

impl<H> Deref for ObservedTable<H> {
    type Target = H;

    fn deref(&self) -> &H {
        &self.0
    }
}

#[async_trait]
impl<H: TableHooks> Table for ObservedTable<H> {
    async fn get(&self, key: &Key, consistency: Consistency) -> Result<Option<Item>> {
        self.observe(Call::Read, self.table().get(key, consistency)).await
    }

    async fn batch_get(&self, keys: &[Key], consistency: Consistency) -> Result<Vec<Option<Item>>> {
        self.observe(Call::Read, self.table().batch_get(keys, consistency)).await
    }

    async fn query(&self, query: &Query) -> Result<Page> {
        self.observe(Call::Read, self.0.query(query)).await
    }

    async fn scan(&self, scan: &Scan) -> Result<Page> {
        self.observe(Call::Scan, self.0.scan(scan)).await
    }

    async fn commit(&self, txn: &Txn) -> Result<Commit> {
        self.observe(Call::Commit { writes: txn.writes().len() }, self.0.commit(txn)).await
    }

    fn clock(&self) -> &dyn Clock {
        self.0.clock()
    }

    fn replacements(&self) -> Result<u64> {
        self.0.replacements()
    }

    async fn expired(&self, lag: Duration) -> Result<u64> {
        self.table().expired(lag).await
    }

    async fn sweep(&self, lag: Duration) -> Result<u64> {
        self.table().sweep(lag).await
    }

    async fn least_recently_used(&self, limit: usize) -> Result<Vec<Item>> {
        self.table().least_recently_used(limit).await
    }

    async fn expired_used(&self, lag: Duration, limit: usize) -> Result<Vec<Item>> {
        self.table().expired_used(lag, limit).await
    }

    async fn usage(&self) -> Result<Option<TableUsage>> {
        self.table().usage().await
    }
}
