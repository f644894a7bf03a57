//! The table in memory, with the defects that mutants give it.

use std::collections::BTreeMap;
use std::time::Duration;

use facetheory::protocol::Lock;
use parking_lot::Mutex;
use tabletheory::{Commit, Consistency, Item, Key, MemoryTable, Page, Query, Result, Table as _, Txn, Write};

use crate::mutant::Mutant;

/// After the end of any simulation, in epoch seconds.
const NEVER: i64 = 4_000_000_000;
/// How long a hung table takes to respond: longer than any request may take, but not forever.
pub(crate) const HUNG: Duration = Duration::from_hours(24);

/// The reason why calls below all faults succeed.
pub(crate) const IN_MEMORY: &str = "a store in memory does not fail";

/// Rows in memory. Correct unless a mutant is set.
#[derive(Debug)]
pub(crate) struct MutantTable {
    rows: MemoryTable,
    mutant: Option<Mutant>,
    /// The first publish of each page, and the number of publishes.
    seen: Mutex<(BTreeMap<String, Txn>, u64)>,
    /// Rows of completed requests that are deleted at the next commit.
    results: Mutex<Vec<Key>>,
    /// The last acquisition of each page's lease.
    acquired: Mutex<BTreeMap<String, Txn>>,
    /// Earlier rows of each `META`, oldest first.
    earlier: Mutex<BTreeMap<Key, Vec<Item>>>,
}

impl MutantTable {
    pub(crate) fn new(rows: MemoryTable, mutant: Option<Mutant>) -> Self {
        let (seen, results, acquired, earlier) = Default::default();
        MutantTable { rows, mutant, seen, results, acquired, earlier }
    }

    pub(crate) fn rows(&self) -> &MemoryTable {
        &self.rows
    }

    pub(crate) async fn query(&self, query: &Query) -> Result<Page> {
        let mut page = self.rows.query(query).await?;
        // Only the check of a replaced body reads all rows of a page.
        let is_check = page.next.is_none() && query.clone().limit(1) == Query::of(query.pk()).limit(1);
        if is_check && self.mutant == Some(Mutant::BlindCheck) {
            page.items.clear();
        }
        Ok(page)
    }

    pub(crate) async fn commit(&self, txn: &Txn) -> Result<Commit> {
        let kind = Transaction::of(txn);
        match (self.mutant, &kind) {
            (Some(Mutant::UnguardedEviction), Transaction::Eviction) => {
                let deletes = txn.writes().iter().map(|write| Write::delete(write.key().clone()));
                self.rows.commit(&Txn::new(deletes)).await
            }
            (Some(Mutant::FalseEviction), Transaction::Eviction) => Ok(Commit::Done),
            (Some(Mutant::AnyLock), Transaction::Publish(page)) => self.publish_without_lock(txn, page).await,
            (Some(Mutant::Replay), Transaction::Publish(page)) => self.publish_again(txn, page).await,
            (Some(Mutant::RepeatedAcquire), Transaction::Acquisition(lock)) => {
                let commit = self.rows.commit(txn).await?;
                if commit.is_done() {
                    self.acquired.lock().insert(lock.pk.clone(), txn.clone());
                }
                Ok(commit)
            }
            (Some(Mutant::RepeatedAcquire), Transaction::Invalidation) => {
                let commit = self.rows.commit(txn).await?;
                let late = self.acquired.lock().get(&txn.writes()[0].key().pk).cloned();
                if let Some(late) = late {
                    drop(self.rows.commit(&late).await?);
                }
                Ok(commit)
            }
            (Some(Mutant::HalfTransaction), Transaction::Publish(_)) => self.publish_half(txn).await,
            (Some(Mutant::VersionStuck), Transaction::Publish(page)) => {
                let before = self.row(&page.sibling("META")).await;
                let commit = self.rows.commit(txn).await?;
                if let (Some(before), Some(mut after)) = (before, self.row(&page.sibling("META")).await)
                    && let Some(version) = before.get("version")
                {
                    after.set("version", version.clone());
                    self.put(page.sibling("META"), after).await;
                }
                Ok(commit)
            }
            (Some(Mutant::FalseAck), Transaction::Publish(_)) => Ok(Commit::Done),
            (Some(Mutant::BlindExtension), _) => self.extend_blindly(txn, &kind).await,
            (Some(Mutant::ForgottenResult), _) => {
                // Deleted only at the next commit, so that the checker has seen the result.
                let forgotten = std::mem::take(&mut *self.results.lock());
                for key in forgotten {
                    self.delete(key).await;
                }
                let commit = self.rows.commit(txn).await?;
                if let (true, Transaction::Publish(_)) = (commit.is_done(), &kind) {
                    let requests =
                        txn.writes().iter().map(Write::key).filter(|key| key.sk.starts_with("REQ#"));
                    self.results.lock().extend(requests.cloned());
                }
                Ok(commit)
            }
            (Some(Mutant::Unfenced), Transaction::Invalidation) => {
                let unfenced = txn.writes().iter().filter(|write| write.key().sk != "LOCK").cloned();
                self.rows.commit(&Txn::new(unfenced)).await
            }
            (Some(Mutant::IgnoredTag), Transaction::Tag) => Ok(Commit::Done),
            (Some(Mutant::UncountedTag), Transaction::Tag) => {
                let tag = txn.writes()[0].key();
                let before = self.row(tag).await;
                let commit = self.rows.commit(txn).await?;
                if let (Some(before), Some(mut after)) = (before, self.row(tag).await)
                    && let Some(seq) = before.get("seq")
                {
                    after.set("seq", seq.clone());
                    self.put(tag.clone(), after).await;
                }
                Ok(commit)
            }
            (Some(Mutant::LostFeedEntries), Transaction::FeedEntry) => Ok(Commit::Done),
            (Some(Mutant::EternalLock), Transaction::Acquisition(lock)) => match self.row(lock).await {
                Some(held) => Ok(Commit::Refused { index: txn.writes().len() - 1, seen: Some(held) }),
                None => self.rows.commit(txn).await,
            },
            (Some(Mutant::LostHardInvalidation), Transaction::Invalidation) => {
                let commit = self.rows.commit(txn).await?;
                self.remove_hard_mark(txn).await;
                Ok(commit)
            }
            (Some(Mutant::TwoEngines), Transaction::Acquisition(lock)) => {
                self.delete(lock.clone()).await;
                self.rows.commit(txn).await
            }
            (Some(Mutant::UnrecordedLease), Transaction::Acquisition(_)) => Ok(Commit::Done),
            (Some(Mutant::HungTable), Transaction::Acquisition(_)) => {
                tokio::time::sleep(HUNG).await;
                self.rows.commit(txn).await
            }
            _ => self.rows.commit(txn).await,
        }
    }

    /// Removes the mark of a hard invalidation.
    async fn remove_hard_mark(&self, txn: &Txn) {
        let key = txn.writes().iter().map(Write::key).find(|key| key.sk == "META");
        if let Some(key) = key
            && let Some(mut meta) = self.row(key).await
        {
            meta.remove("must_not_serve");
            self.put(key.clone(), meta).await;
        }
    }

    /// Gives the lock to the publisher if it does not hold it.
    async fn publish_without_lock(&self, txn: &Txn, page: &Key) -> Result<Commit> {
        let commit = self.rows.commit(txn).await?;
        let (true, Some(token)) = (commit.is_refused(), txn.token()) else { return Ok(commit) };
        let before = self.row(&page.sibling("LOCK")).await;
        self.forge_lock(page, token.as_str()).await;
        let again = self.rows.commit(txn).await?;
        match before {
            Some(lock) if again.is_refused() => self.put(page.sibling("LOCK"), lock).await,
            None if again.is_refused() => self.delete(page.sibling("LOCK")).await,
            _ => {}
        }
        Ok(again)
    }

    /// Extends a page whatever became of it since it was read: an extension that is refused finds the earlier row.
    async fn extend_blindly(&self, txn: &Txn, kind: &Transaction) -> Result<Commit> {
        let meta = txn.writes().iter().map(Write::key).find(|key| key.sk == "META");
        let before = match meta {
            Some(meta) => self.row(meta).await,
            None => None,
        };
        let commit = self.rows.commit(txn).await?;
        let (Some(meta), Some(before)) = (meta, before) else { return Ok(commit) };
        if commit.is_done() {
            self.earlier.lock().entry(meta.clone()).or_default().push(before);
            return Ok(commit);
        }
        if let Transaction::Extension = kind {
            let earlier = self.earlier.lock().get(meta).cloned().unwrap_or_default();
            for row in earlier.into_iter().rev() {
                self.put(meta.clone(), row).await;
                if self.rows.commit(txn).await?.is_done() {
                    return Ok(Commit::Done);
                }
            }
            self.put(meta.clone(), before).await;
        }
        Ok(commit)
    }

    /// After a publish, executes the first publish of that page again.
    async fn publish_again(&self, txn: &Txn, page: &Key) -> Result<Commit> {
        let commit = self.rows.commit(txn).await?;
        if commit.is_refused() {
            return Ok(commit);
        }
        let first = {
            let mut seen = self.seen.lock();
            seen.0.entry(page.pk.clone()).or_insert_with(|| txn.clone()).clone()
        };
        if let Some(token) = first.token().filter(|token| Some(*token) != txn.token()) {
            self.forge_lock(page, token.as_str()).await;
            let writes =
                first.writes().iter().filter(|write| ["META", "LOCK"].contains(&write.key().sk.as_str()));
            let repeated = self.rows.commit(&Txn::new(writes.cloned())).await?;
            debug_assert!(repeated.is_done() || repeated.is_refused());
        }
        Ok(commit)
    }

    /// Executes the first or the second half of a publish, alternately.
    async fn publish_half(&self, txn: &Txn) -> Result<Commit> {
        let turn = {
            let mut seen = self.seen.lock();
            seen.1 += 1;
            seen.1 % 2
        };
        let (first, second) = txn.writes().split_at(txn.writes().len() / 2);
        let half = if turn == 0 { first } else { second };
        self.rows.commit(&Txn::new(half.iter().cloned())).await
    }

    async fn forge_lock(&self, page: &Key, token: &str) {
        let lock = Lock::new(token, NEVER);
        self.put(page.sibling("LOCK"), lock.to_item()).await;
    }

    /// Damages a row.
    pub(crate) async fn damage(&self, key: &Key) {
        if self.mutant == Some(Mutant::UndetectedDamage) {
            self.delete(key.clone()).await;
        } else {
            self.rows.damage(key);
        }
    }

    async fn row(&self, key: &Key) -> Option<Item> {
        self.rows.get(key, Consistency::Strong).await.expect(IN_MEMORY)
    }

    async fn delete(&self, key: Key) {
        let deleted = self.rows.commit(&Txn::from(Write::delete(key))).await.expect(IN_MEMORY);
        debug_assert!(deleted.is_done());
    }

    async fn put(&self, key: Key, item: Item) {
        let put = self.rows.commit(&Txn::from(Write::put(key, item))).await.expect(IN_MEMORY);
        debug_assert!(put.is_done());
    }
}

/// The purpose of a transaction.
enum Transaction {
    /// A publish, with a key of its page.
    Publish(Key),
    /// The deletion of a page.
    Eviction,
    /// The update of an unchanged page.
    Extension,
    Invalidation,
    Tag,
    FeedEntry,
    /// The acquisition of this lock, possibly together with a request.
    Acquisition(Key),
    Other,
}

impl Transaction {
    fn of(txn: &Txn) -> Self {
        let write = |sk: &str| txn.writes().iter().find(|write| write.key().sk == sk);
        let condition = |write: &Write| write.condition().map(ToString::to_string).unwrap_or_default();
        match (write("META"), write("LOCK")) {
            (Some(_), Some(lock)) if condition(lock).contains("attribute_not_exists") => {
                Transaction::Eviction
            }
            (Some(meta), Some(lock)) if lock.condition().is_some() => {
                Transaction::Publish(meta.key().clone())
            }
            // A rollback has a third write, of a version.
            (Some(_), Some(_)) if txn.writes().len() == 2 => Transaction::Invalidation,
            (None, Some(lock)) if condition(lock).contains("attribute_not_exists") => {
                Transaction::Acquisition(lock.key().clone())
            }
            (Some(meta), None) if condition(meta).contains("mark = ") => Transaction::Extension,
            (None, None) if write("TAG").is_some() => Transaction::Tag,
            (None, None) if txn.writes().iter().all(|write| write.key().pk.starts_with("FEED#")) => {
                Transaction::FeedEntry
            }
            _ => Transaction::Other,
        }
    }
}
