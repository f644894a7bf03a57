//! A table that reports every committed change to the checker.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use facetheory::testing::{ObservedTable, TableHooks};
use tabletheory::{Commit, Consistency, Item, Key, Page, Query, Result, Table, Txn};

use crate::checker::Checker;
use crate::mutant_table::{IN_MEMORY, MutantTable};

/// The rows, below all injected faults.
pub(crate) type RecordedTable = ObservedTable<Recorder>;

/// Reports to the checker which rows each commit has left.
#[derive(Debug)]
pub(crate) struct Recorder {
    table: MutantTable,
    checker: Arc<Checker>,
}

pub(crate) fn recorded_table(table: MutantTable, checker: Arc<Checker>) -> RecordedTable {
    ObservedTable(Recorder { table, checker })
}

impl Recorder {
    /// Deletes the rows whose `ttl` has passed, as a table with TTL does in the background.
    pub(crate) async fn sweep_expired(&self) {
        let expiring = self.checker.expiring_rows();
        self.table.rows().sweep(Duration::ZERO).await.expect(IN_MEMORY);
        let mut deleted = Vec::new();
        for key in expiring {
            if self.row(&key).await.is_none() {
                deleted.push(key);
            }
        }
        self.checker.expired(deleted);
    }

    /// Damages a row, as a bit that flips on a disk does.
    pub(crate) async fn damage(&self, key: &Key) {
        self.table.damage(key).await;
        self.checker.row_damaged(key);
    }

    /// The row with this key. To the checker, a damaged row is none.
    async fn row(&self, key: &Key) -> Option<Item> {
        let row = self.table.rows().get(key, Consistency::Strong).await.expect(IN_MEMORY);
        row.filter(|row| !row.is_damaged())
    }
}

#[async_trait]
impl TableHooks for Recorder {
    fn table(&self) -> &dyn Table {
        self.table.rows()
    }

    async fn query(&self, query: &Query) -> Result<Page> {
        self.table.query(query).await
    }

    async fn commit(&self, txn: &Txn) -> Result<Commit> {
        let commit = self.table.commit(txn).await?;
        // A table in memory never waits, so nothing happens between the commit and these reads.
        let mut keys: Vec<Key> = txn.writes().iter().map(|write| write.key().clone()).collect();
        if let Some(first) = keys.first().cloned() {
            keys.extend([first.sibling("LOCK"), first.sibling("META")]);
        }
        keys.sort_unstable();
        keys.dedup();
        let mut rows = Vec::with_capacity(keys.len());
        for key in keys {
            let row = self.row(&key).await;
            rows.push((key, row));
        }
        self.checker.committed(rows);
        Ok(commit)
    }
}
