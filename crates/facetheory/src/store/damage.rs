//! Reports damaged rows, once each. What a damaged row counts as is decided where rows are read.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use metrics::counter;
use quick_cache::sync::Cache;
use tabletheory::{Clock, Commit, Consistency, Item, Key, Page, Query, Result, Scan, Table, TableUsage, Txn};

/// The most rows that are remembered as reported.
const MAX_REPORTED: usize = 10_000;

/// A table whose damaged rows are logged and counted when they are read.
#[derive(Debug)]
pub(super) struct ReportingTable {
    table: Arc<dyn Table>,
    reported: Cache<Key, ()>,
}

impl ReportingTable {
    pub(super) fn new(table: Arc<dyn Table>) -> Self {
        ReportingTable { table, reported: Cache::new(MAX_REPORTED) }
    }

    fn report<'i>(&self, rows: impl IntoIterator<Item = &'i Item>) {
        for row in rows.into_iter().filter(|row| row.is_damaged()) {
            let Ok(key) = row.key() else { continue };
            if self.reported.get(&key).is_some() {
                continue;
            }
            let role = role(&key.sk);
            counter!("facetheory_damaged_rows_total", "row" => role).increment(1);
            tracing::error!(%key, row = role, "a row of the table is damaged: {}", meaning(role));
            self.reported.insert(key, ());
        }
    }
}

/// The kind of row with this sort key.
fn role(sk: &str) -> &'static str {
    match sk {
        "META" => "META",
        "LOCK" => "LOCK",
        "TAG" => "TAG",
        _ if sk.starts_with("VER#") => "VER#",
        _ if sk.starts_with("REQ#") => "REQ#",
        _ => "other",
    }
}

fn meaning(role: &str) -> &'static str {
    match role {
        "META" => "the page counts as missing, and its next render writes the row again",
        "LOCK" => "the lease counts as free, and the next render of the page writes the row again",
        "TAG" => "the tag counts as invalidated now, and the row is written again",
        "VER#" => "the version counts as deleted",
        "REQ#" => "the request counts as new",
        _ => "it counts as missing",
    }
}

#[async_trait]
impl Table for ReportingTable {
    async fn get(&self, key: &Key, consistency: Consistency) -> Result<Option<Item>> {
        let row = self.table.get(key, consistency).await?;
        self.report(&row);
        Ok(row)
    }

    async fn batch_get(&self, keys: &[Key], consistency: Consistency) -> Result<Vec<Option<Item>>> {
        let rows = self.table.batch_get(keys, consistency).await?;
        self.report(rows.iter().flatten());
        Ok(rows)
    }

    async fn query(&self, query: &Query) -> Result<Page> {
        let page = self.table.query(query).await?;
        self.report(&page.items);
        Ok(page)
    }

    async fn scan(&self, scan: &Scan) -> Result<Page> {
        let page = self.table.scan(scan).await?;
        self.report(&page.items);
        Ok(page)
    }

    async fn commit(&self, txn: &Txn) -> Result<Commit> {
        let commit = self.table.commit(txn).await?;
        if commit.is_done() && !self.reported.is_empty() {
            // A row that was written again, and is damaged again, is reported again.
            txn.writes().iter().for_each(|write| drop(self.reported.remove(write.key())));
        }
        Ok(commit)
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
        let rows = self.table.least_recently_used(limit).await?;
        self.report(&rows);
        Ok(rows)
    }

    async fn expired_used(&self, lag: Duration, limit: usize) -> Result<Vec<Item>> {
        let rows = self.table.expired_used(lag, limit).await?;
        self.report(&rows);
        Ok(rows)
    }

    async fn usage(&self) -> Result<Option<TableUsage>> {
        self.table.usage().await
    }
}
