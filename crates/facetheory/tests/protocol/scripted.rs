//! A table whose commits fare as a script says.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex};

use tabletheory::{
    Clock, Commit, Consistency, Error, Item, Key, Kind, Page, Query, Result, Scan, Table, Txn,
};

/// What becomes of one commit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fate {
    Pass,
    /// It happens, and nobody hears of it.
    LoseAnswer,
    /// It does not happen, and nobody hears of it.
    LoseRequest,
    /// It is turned away.
    Deny,
    /// Nobody hears of it, and it happens later.
    Delay,
    /// All that was delayed happens first.
    ComeLate,
}

#[derive(Debug)]
pub(crate) struct Scripted {
    table: Arc<dyn Table>,
    script: Mutex<VecDeque<Fate>>,
    delayed: Mutex<Vec<Txn>>,
}

impl Scripted {
    pub(crate) fn new(table: Arc<dyn Table>) -> Self {
        Scripted { table, script: Mutex::default(), delayed: Mutex::default() }
    }

    /// The fates of the next commits; those after them pass.
    pub(crate) fn script(&self, fates: &[Fate]) {
        *self.script.lock().expect("not poisoned") = fates.iter().copied().collect();
    }

    /// What was delayed happens now, whatever comes of it.
    pub(crate) async fn come_late(&self) {
        let delayed = std::mem::take(&mut *self.delayed.lock().expect("not poisoned"));
        for txn in delayed {
            let _unheard = self.table.commit(&txn).await;
        }
    }
}

#[async_trait::async_trait]
impl Table for Scripted {
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
        let fate = self.script.lock().expect("not poisoned").pop_front().unwrap_or(Fate::Pass);
        let lost = || Error::new(Kind::Unknown, "no answer came");
        match fate {
            Fate::Pass => self.table.commit(txn).await,
            Fate::LoseAnswer => {
                let _unheard = self.table.commit(txn).await?;
                Err(lost())
            }
            Fate::LoseRequest => Err(lost()),
            Fate::Deny => Err(Error::new(Kind::Unavailable, "too many requests")),
            Fate::Delay => {
                self.delayed.lock().expect("not poisoned").push(txn.clone());
                Err(lost())
            }
            Fate::ComeLate => {
                self.come_late().await;
                self.table.commit(txn).await
            }
        }
    }

    fn clock(&self) -> &dyn Clock {
        self.table.clock()
    }
}
