//! Beginning a request, and giving it up; finishing it is a part of publishing.

use tabletheory::{ClientToken, Commit, Consistency};

use super::{PageStore, ROUNDS, restless};
use crate::error::Result;
use crate::protocol::freshness::Freshness;
use crate::protocol::key::PageKey;
use crate::protocol::lease::{Acquire, Lease};
use crate::protocol::request::{self, Begin, Claim, Next, Wish};
use crate::protocol::row::{Lock, Meta, Request};

impl PageStore {
    /// Begins a request to regenerate, or says what became of it: one wish is done once, however often it comes.
    ///
    /// The hash tells what was asked for; the same key with another one is [`Begin::OtherRequest`], and writes
    /// nothing. A page that is fresh needs no work.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> facetheory::Result<()> {
    /// # use std::sync::Arc;
    /// use facetheory::protocol::Begin;
    /// use facetheory::PageKey;
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
        let wish = Wish { key: &key, hash };
        for _ in 0..ROUNDS {
            // A new one each time: an attempt of an earlier round may still arrive, and must not grant it twice.
            let token = ClientToken::random(&*self.random).as_str().to_owned();
            let now = self.now();
            let keys = [page.meta(), page.lock(), key.clone()];
            let rows = self.table.batch_get(&keys, Consistency::Strong).await?;
            let row = |index: usize| rows.get(index).and_then(Option::as_ref);
            let meta = row(0).and_then(|item| Meta::read(item).ok());
            let lock = row(1).and_then(|item| Lock::read(item).ok());
            let found = row(2).map(Request::read).transpose()?;
            let lease = Lease::starting(page.clone(), token, now, &self.terms);
            let terms = (&self.terms, &self.request_terms);
            let (txn, claim) = match request::next(wish, found.as_ref(), lock.as_ref(), &lease, terms, now) {
                Next::Mismatch => return Ok(Begin::OtherRequest),
                Next::Replay(s3_key) => return Ok(Begin::Replayed { s3_key }),
                // Whoever made it so: a worker that began this request may have crashed long ago.
                Next::InProgress(_) | Next::Start(..) if self.is_fresh(page, meta.as_ref()).await? => {
                    return Ok(Begin::Fresh);
                }
                Next::InProgress(until) => return Ok(Begin::InProgress { until }),
                Next::Start(txn, claim) => (txn, claim),
            };
            match self.persist(&self.once(*txn)).await? {
                Commit::Done => return Ok(Begin::Started { lease, claim }),
                // The row of the request has moved: look at it again.
                Commit::Refused { index: 0, .. } => {}
                refused @ Commit::Refused { .. } => {
                    if let Acquire::Held { until } = lease.acquired(refused) {
                        return Ok(Begin::Held { until });
                    }
                }
            }
        }
        Err(restless("requested"))
    }

    /// Says whether an idempotency key has stood for this wish since it first came, whatever page that was about.
    ///
    /// [`begin_request`](PageStore::begin_request) looks at one page only, so it cannot tell that a key came for another page
    /// before. Whoever takes keys from outside asks this first, and does nothing if it is false.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> facetheory::Result<()> {
    /// # use std::sync::Arc;
    /// let store = facetheory::PageStore::new(Arc::new(tabletheory::MemoryTable::new()));
    /// assert!(store.bind_request("order-7", "hash").await?);
    /// assert!(store.bind_request("order-7", "hash").await?, "the same once more");
    /// assert!(!store.bind_request("order-7", "other").await?);
    /// # Ok(()) }
    /// ```
    pub async fn bind_request(&self, idempotency_key: &str, hash: &str) -> Result<bool> {
        // In a partition of its own, which is no page's: keys spread evenly, and no page's rows grow by them.
        let key = PageKey::new(format!("idempotency-key:{idempotency_key}"))?.request(idempotency_key)?;
        let bound = request::bind(&key, hash, &self.request_terms, self.now());
        Ok(self.persist(&self.once(bound)).await?.is_done())
    }

    async fn is_fresh(&self, page: &PageKey, meta: Option<&Meta>) -> Result<bool> {
        let Some(meta) = meta else { return Ok(false) };
        Ok(self.freshness(page, meta).await? == Freshness::Fresh)
    }

    /// Gives a request up together with its lease, if that is still held, so that anyone may try it again.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> facetheory::Result<()> {
    /// # use std::sync::Arc;
    /// use facetheory::protocol::Begin;
    /// use facetheory::PageKey;
    ///
    /// let store = facetheory::PageStore::new(Arc::new(tabletheory::MemoryTable::new()));
    /// let page = PageKey::new("/")?;
    /// let Begin::Started { lease, claim } = store.begin_request(&page, "order-7", "hash").await? else { panic!() };
    /// store.fail_request(&lease, &claim).await?;
    /// assert!(matches!(store.begin_request(&page, "order-7", "hash").await?, Begin::Started { .. }));
    /// # Ok(()) }
    /// ```
    pub async fn fail_request(&self, lease: &Lease, claim: &Claim) -> Result<()> {
        let txn = self.once(claim.fail(lease));
        let commit = self.persist(&txn).await?;
        if lease.is_gone(&txn, &commit) {
            // An invalidation, say, took the lease but not the request, on which nobody works any more.
            let _ = self.persist(&self.once(claim.fail_alone())).await?;
        }
        // Any other refusal means that another worker has taken it over, which is as good.
        Ok(())
    }
}
