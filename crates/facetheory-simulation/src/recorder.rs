//! A table that tells the ledger what really happens to it.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use tabletheory::{Clock, Commit, Consistency, Item, Key, Page, Query, Result, Scan, Table, Txn};

use crate::ledger::Ledger;
use crate::saboteur::Saboteur;

/// The rows, beneath all faults.
#[derive(Debug)]
pub(crate) struct Recorder {
    pub(crate) table: Saboteur,
    pub(crate) ledger: Arc<Ledger>,
}

impl Recorder {
    /// Deletes the rows whose `ttl` has passed, as the table does by itself at some time or other.
    pub(crate) async fn sweep(&self) {
        let mortal = self.ledger.mortal_rows();
        self.table.rows().sweep(Duration::ZERO);
        let mut gone = Vec::new();
        for key in mortal {
            if self.row(&key).await.is_none() {
                gone.push(key);
            }
        }
        self.ledger.expired(gone);
    }

    async fn row(&self, key: &Key) -> Option<Item> {
        self.table.rows().get(key, Consistency::Strong).await.expect("memory answers")
    }
}

#[async_trait]
impl Table for Recorder {
    async fn get(&self, key: &Key, consistency: Consistency) -> Result<Option<Item>> {
        self.table.rows().get(key, consistency).await
    }

    async fn batch_get(&self, keys: &[Key], consistency: Consistency) -> Result<Vec<Option<Item>>> {
        self.table.rows().batch_get(keys, consistency).await
    }

    async fn query(&self, query: &Query) -> Result<Page> {
        self.table.rows().query(query).await
    }

    async fn scan(&self, scan: &Scan) -> Result<Page> {
        self.table.rows().scan(scan).await
    }

    async fn commit(&self, txn: &Txn) -> Result<Commit> {
        let commit = self.table.commit(txn).await?;
        // Memory answers at once, so nothing comes between the commit and these reads.
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
        self.ledger.committed(rows);
        Ok(commit)
    }

    fn clock(&self) -> &dyn Clock {
        self.table.rows().clock()
    }
}
