//! Acquires, refreshes and releases leases.

use tabletheory::{ClientToken, Commit};

use super::PageStore;
use crate::error::Result;
use crate::protocol::{Acquire, Lease, PageKey, Refresh};

impl PageStore {
    /// Acquires the lease of a page if nobody holds it.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> facetheory::Result<()> {
    /// # use std::sync::Arc;
    /// use facetheory::protocol::Acquire;
    ///
    /// let store = facetheory::PageStore::new(Arc::new(tabletheory::MemoryTable::new()));
    /// let page = facetheory::PageKey::new("/")?;
    /// assert!(matches!(store.try_acquire(&page).await?, Acquire::Granted(_)));
    /// # Ok(()) }
    /// ```
    pub async fn try_acquire(&self, page: &PageKey) -> Result<Acquire> {
        let now = self.now();
        let lease = Lease::starting(page.clone(), self.new_token(), now, &self.lease_terms);
        // Applied at most once, however often it is sent: an attempt that arrives late must not bring back a lease that was
        // released, published under, or deleted by an invalidation.
        let commit = self.persist(&self.once(lease.acquire(now, &self.lease_terms))).await?;
        Ok(lease.acquired(commit))
    }

    /// Extends a lease for another term.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> facetheory::Result<()> {
    /// # use std::sync::Arc;
    /// use facetheory::protocol::{Acquire, Refresh};
    ///
    /// let store = facetheory::PageStore::new(Arc::new(tabletheory::MemoryTable::new()));
    /// let Acquire::Granted(lease) = store.try_acquire(&facetheory::PageKey::new("/")?).await? else { panic!() };
    /// assert!(matches!(store.refresh(&lease).await?, Refresh::Extended(_)));
    /// # Ok(()) }
    /// ```
    pub async fn refresh(&self, lease: &Lease) -> Result<Refresh> {
        let (extended, txn) = lease.refresh(self.now(), &self.lease_terms);
        // A retry sets the same expiry again, so it needs no client token.
        Ok(match self.persist(&txn).await? {
            Commit::Done => Refresh::Extended(extended),
            Commit::Refused { .. } => Refresh::Lost,
        })
    }

    /// Releases a lease. It is not an error if the lease was lost before.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> facetheory::Result<()> {
    /// # use std::sync::Arc;
    /// use facetheory::protocol::Acquire;
    ///
    /// let store = facetheory::PageStore::new(Arc::new(tabletheory::MemoryTable::new()));
    /// let page = facetheory::PageKey::new("/")?;
    /// let Acquire::Granted(lease) = store.try_acquire(&page).await? else { panic!() };
    /// store.release(&lease).await?;
    /// assert!(store.lookup(&page).await?.lock.is_none());
    /// # Ok(()) }
    /// ```
    pub async fn release(&self, lease: &Lease) -> Result<()> {
        self.persist(&lease.release()).await.map(|_| ())
    }

    /// A token for one attempt to acquire a lease.
    pub(super) fn new_token(&self) -> String {
        ClientToken::random(&*self.random).as_str().to_owned()
    }
}
