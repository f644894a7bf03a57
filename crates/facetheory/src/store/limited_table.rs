//! A table whose writes have a time limit.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use tabletheory::{
    Clock, Commit, Consistency, Error, Item, Key, Kind, Page, Query, Result, Scan, Table, TableUsage, Txn,
};

/// A table that reports a write as unknown if it takes too long. The disk of an embedded table has no limit of its own.
#[derive(Debug)]
pub(super) struct LimitedTable {
    pub(super) table: Arc<dyn Table>,
    pub(super) limit: Duration,
}

#[async_trait]
impl Table for LimitedTable {
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
        self.table.scan(scan).await
    }

    async fn commit(&self, txn: &Txn) -> Result<Commit> {
        let limit = self.limit;
        tokio::time::timeout(limit, self.table.commit(txn)).await.unwrap_or_else(|_| {
            let what = format!(
                "the table did not respond to a write within {limit:?}; check its disk or its server"
            );
            Err(Error::new(Kind::Unknown, what))
        })
    }

    fn clock(&self) -> &dyn Clock {
        self.table.clock()
    }

    fn replacements(&self) -> Result<u64> {
        self.table.replacements()
    }

    async fn expired(&self, lag: Duration) -> Result<u64> {
        self.table.expired(lag).await
    }

    async fn sweep(&self, lag: Duration) -> Result<u64> {
        self.table.sweep(lag).await
    }

    async fn least_recently_used(&self, limit: usize) -> Result<Vec<Item>> {
        self.table.least_recently_used(limit).await
    }

    async fn expired_used(&self, lag: Duration, limit: usize) -> Result<Vec<Item>> {
        self.table.expired_used(lag, limit).await
    }

    async fn usage(&self) -> Result<Option<TableUsage>> {
        self.table.usage().await
    }
}
