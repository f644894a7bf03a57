//! Acquires, refreshes and releases the leases of pages.

use tabletheory::{ClientToken, LeaseManager};
use tracing::Instrument as _;

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
        let acquired = self.leases().acquire(&page.lock()).await?;
        Ok(acquired.map(|row| Lease::of(page.clone(), row)))
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
        let refreshed = self.leases().refresh(lease.row()).await?;
        Ok(refreshed.map(|row| Lease::of(lease.page().clone(), row)))
    }

    /// Refreshes a lease three times in each term until it is lost. Returns only then.
    pub(crate) async fn heartbeat(&self, lease: &Lease) {
        let span = tracing::info_span!("heartbeat", page = %lease.page().redacted());
        self.leases().heartbeat(lease.row()).instrument(span).await;
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
        Ok(self.leases().release(lease.row()).await?)
    }

    /// A token for one attempt to start a request.
    pub(super) fn new_token(&self) -> String {
        ClientToken::random(&*self.random).as_str().to_owned()
    }

    fn leases(&self) -> LeaseManager {
        LeaseManager::new(self.table.clone())
            .with_terms(self.lease_terms.clone())
            .with_random(self.random.clone())
    }
}
