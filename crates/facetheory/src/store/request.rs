//! Starts and fails requests. A publish completes them.

use tabletheory::{Commit, Consistency, Table as _, Txn};

use super::{MAX_ROUNDS, PageStore, contended};
use crate::error::Result;
use crate::protocol::{
    Acquire, Begin, Claim, Lease, Lock, PageKey, Request, RequestDecision, RequestStep, request,
};

impl PageStore {
    /// Starts a request to regenerate a page, or returns what became of it: it is executed once, however often it is repeated.
    ///
    /// `hash` identifies the content of the request. The same key with another hash is [`Begin::OtherRequest`], and nothing is
    /// written. A request for a fresh page is not started.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> facetheory::Result<()> {
    /// # use std::sync::Arc;
    /// use facetheory::PageKey;
    /// use facetheory::protocol::Begin;
    ///
    /// let store = facetheory::PageStore::new(Arc::new(tabletheory::MemoryTable::new()));
    /// let page = PageKey::new("/")?;
    /// assert!(matches!(store.begin_request(&page, "order-7", "hash").await?, Begin::Started { .. }));
    /// assert!(matches!(store.begin_request(&page, "order-7", "hash").await?, Begin::InProgress { .. }));
    /// assert_eq!(store.begin_request(&page, "order-7", "other").await?, Begin::OtherRequest);
    /// # Ok(()) }
    /// ```
    pub async fn begin_request(&self, page: &PageKey, idempotency_key: &str, hash: &str) -> Result<Begin> {
        let key = page.request(idempotency_key)?;
        for _ in 0..MAX_ROUNDS {
            let now = self.now();
            let keys = [page.meta(), page.lock(), key.clone()];
            let rows = self.table.batch_get(&keys, Consistency::Strong).await?;
            let row = |index: usize| rows.get(index).and_then(Option::as_ref);
            let meta = match row(0) {
                Some(row) => self.resolve(row, page.interval()).await?,
                None => None,
            };
            let lock = row(1).and_then(|item| Lock::read(item).ok());
            let found = row(2).filter(|row| !row.is_damaged()).map(Request::read).transpose()?;
            // A new token in each round: an attempt of an earlier round may still arrive, and must not grant this lease.
            let lease = Lease::starting(page.clone(), self.new_token(), now, &self.lease_terms);
            let decision = RequestDecision {
                key: &key,
                hash,
                found: found.as_ref(),
                lock: lock.as_ref(),
                lease_terms: &self.lease_terms,
                terms: &self.request_terms,
                now,
            };
            let (txn, claim) = match decision.next(&lease) {
                RequestStep::Mismatch => return Ok(Begin::OtherRequest),
                RequestStep::Replay(s3_key) => return Ok(Begin::Replayed { s3_key }),
                // Also if the request is in progress: the worker that started it may have crashed long ago.
                RequestStep::InProgress(_) | RequestStep::Start(..)
                    if self.is_fresh(page, meta.as_ref()).await? =>
                {
                    return Ok(Begin::Fresh);
                }
                RequestStep::InProgress(until) => return Ok(Begin::InProgress { until }),
                RequestStep::Start(txn, claim) => (txn, claim),
            };
            match self.persist(&self.once(*txn)).await? {
                Commit::Done => return Ok(Begin::Started { lease, claim }),
                // The row of the request has changed: read it again.
                Commit::Refused { index: 0, .. } => {}
                refused @ Commit::Refused { .. } => {
                    if let Acquire::Held { until } = lease.acquired(refused) {
                        return Ok(Begin::Held { until });
                    }
                }
            }
        }
        Err(contended("requested"))
    }

    /// Records the request that an idempotency key stands for. Returns whether it is the first one with this key, for any page.
    ///
    /// [`begin_request`](PageStore::begin_request) reads the rows of one page, so it cannot detect that a key was used for
    /// another page. A service that accepts keys from clients calls this first, and rejects the request if it returns false.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> facetheory::Result<()> {
    /// # use std::sync::Arc;
    /// let store = facetheory::PageStore::new(Arc::new(tabletheory::MemoryTable::new()));
    /// assert!(store.bind_request("order-7", "hash").await?);
    /// assert!(store.bind_request("order-7", "hash").await?, "a repetition");
    /// assert!(!store.bind_request("order-7", "other").await?);
    /// # Ok(()) }
    /// ```
    pub async fn bind_request(&self, idempotency_key: &str, hash: &str) -> Result<bool> {
        // A partition of its own: keys are evenly distributed, and the partitions of pages do not grow.
        let key = PageKey::new(format!("idempotency-key:{idempotency_key}"))?.request(idempotency_key)?;
        let bound = request::bind_key(&key, hash, &self.request_terms, self.now());
        Ok(self.persist(&self.once(bound)).await?.is_done())
    }

    /// Fails a request and releases its lease, so that anyone may try it again.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> facetheory::Result<()> {
    /// # use std::sync::Arc;
    /// use facetheory::PageKey;
    /// use facetheory::protocol::Begin;
    ///
    /// let store = facetheory::PageStore::new(Arc::new(tabletheory::MemoryTable::new()));
    /// let page = PageKey::new("/")?;
    /// let Begin::Started { lease, claim } = store.begin_request(&page, "order-7", "hash").await? else { panic!() };
    /// store.fail_request(&lease, &claim).await?;
    /// assert!(matches!(store.begin_request(&page, "order-7", "hash").await?, Begin::Started { .. }));
    /// # Ok(()) }
    /// ```
    pub async fn fail_request(&self, lease: &Lease, claim: &Claim) -> Result<()> {
        let txn = self.once(Txn::new([claim.fail(), lease.release_write()]));
        let commit = self.persist(&txn).await?;
        if lease.is_gone(&txn, &commit) {
            // An invalidation, for example, deleted the lease. The request is still ours to fail.
            let _ = self.persist(&self.once(Txn::from(claim.fail()))).await?;
        }
        // Any other refusal means that another worker has taken the request over.
        Ok(())
    }
}
