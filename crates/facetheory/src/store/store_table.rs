//! The table of a store: its damaged rows are reported, and its writes have a time limit.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use tabletheory::{
    Clock, Commit, Consistency, Error, Item, Key, Kind, Page, Query, Result, Scan, Table, TableUsage, Txn,
};

use super::damage::DamageReports;

/// The only wrapper of a store around its table. It must forward every method of [`Table`], also those with a default.
#[derive(Clone, Debug)]
pub(super) struct StoreTable {
    table: Arc<dyn Table>,
    damage: Arc<DamageReports>,
    write_timeout: Option<Duration>,
}

impl StoreTable {
    pub(super) fn new(table: Arc<dyn Table>) -> Self {
        StoreTable { table, damage: Arc::new(DamageReports::new()), write_timeout: None }
    }

    /// Reports a write as unknown if it takes longer than this. The disk of an embedded table has no limit of its own.
    pub(super) fn with_write_timeout(&self, timeout: Duration) -> Self {
        StoreTable { write_timeout: Some(timeout), ..self.clone() }
    }
}

#[async_trait]
impl Table for StoreTable {
    async fn get(&self, key: &Key, consistency: Consistency) -> Result<Option<Item>> {
        let row = (*self.table).get(key, consistency).await?;
        self.damage.report(&row);
        Ok(row)
    }

    async fn batch_get(&self, keys: &[Key], consistency: Consistency) -> Result<Vec<Option<Item>>> {
        let rows = (*self.table).batch_get(keys, consistency).await?;
        self.damage.report(rows.iter().flatten());
        Ok(rows)
    }

    async fn query(&self, query: &Query) -> Result<Page> {
        let page = (*self.table).query(query).await?;
        self.damage.report(&page.items);
        Ok(page)
    }

    async fn scan(&self, scan: &Scan) -> Result<Page> {
        let page = (*self.table).scan(scan).await?;
        self.damage.report(&page.items);
        Ok(page)
    }

    async fn commit(&self, txn: &Txn) -> Result<Commit> {
        let write = (*self.table).commit(txn);
        let commit = match self.write_timeout {
            None => write.await?,
            Some(timeout) => {
                tokio::time::timeout(timeout, write).await.unwrap_or_else(|_| Err(timed_out(timeout)))?
            }
        };
        if commit.is_done() {
            self.damage.forget(txn);
        }
        Ok(commit)
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
        self.table.expired(lag).await
    }

    async fn sweep(&self, lag: Duration) -> Result<u64> {
        self.table.sweep(lag).await
    }

    async fn least_recently_used(&self, limit: usize) -> Result<Vec<Item>> {
        let rows = self.table.least_recently_used(limit).await?;
        self.damage.report(&rows);
        Ok(rows)
    }

    async fn expired_used(&self, lag: Duration, limit: usize) -> Result<Vec<Item>> {
        let rows = self.table.expired_used(lag, limit).await?;
        self.damage.report(&rows);
        Ok(rows)
    }

    async fn usage(&self) -> Result<Option<TableUsage>> {
        self.table.usage().await
    }
}

fn timed_out(timeout: Duration) -> Error {
    let what =
        format!("the table did not respond to a write within {timeout:?}; check its disk or its server");
    Error::new(Kind::Unknown, what)
}
