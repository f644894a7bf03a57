//! A table whose commits fail as a test scripts.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex};

use facetheory::testing::{ObservedTable, TableHooks};
use tabletheory::{Commit, Error, Kind, Result, Table, Txn};

/// The scripted outcome of one commit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fate {
    Pass,
    /// It is applied, and the response is lost.
    LoseResponse,
    /// It is not applied, and the caller cannot tell.
    LoseRequest,
    /// It is rejected as throttled.
    Deny,
    /// The caller gets no response, and it is applied later.
    Delay,
    /// All delayed commits are applied first.
    ComeLate,
}

/// A table whose commits fail as a test scripts.
pub(crate) type Scripted = ObservedTable<Script>;

#[derive(Debug)]
pub(crate) struct Script {
    table: Arc<dyn Table>,
    script: Mutex<VecDeque<Fate>>,
    delayed: Mutex<Vec<Txn>>,
}

pub(crate) fn scripted(table: Arc<dyn Table>) -> Scripted {
    ObservedTable(Script { table, script: Mutex::default(), delayed: Mutex::default() })
}

impl Script {
    /// Sets what happens to the next commits; those after them pass.
    pub(crate) fn script(&self, fates: &[Fate]) {
        *self.script.lock().expect("not poisoned") = fates.iter().copied().collect();
    }

    /// Applies the delayed commits now and ignores their results.
    pub(crate) async fn come_late(&self) {
        let delayed = std::mem::take(&mut *self.delayed.lock().expect("not poisoned"));
        for txn in delayed {
            let _unheard = self.table.commit(&txn).await;
        }
    }
}

#[async_trait::async_trait]
impl TableHooks for Script {
    fn table(&self) -> &dyn Table {
        &*self.table
    }

    async fn commit(&self, txn: &Txn) -> Result<Commit> {
        let fate = self.script.lock().expect("not poisoned").pop_front().unwrap_or(Fate::Pass);
        let lost = || Error::new(Kind::Unknown, "no response");
        match fate {
            Fate::Pass => self.table.commit(txn).await,
            Fate::LoseResponse => {
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
}
