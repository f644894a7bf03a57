//! What operators do to a page: invalidate it, look at its versions, go back to one.

use std::time::Duration;

use tabletheory::{Commit, Consistency, Key, Query, TableExt as _};

use super::version::check_version_sk;
use super::{PageStore, ROUNDS, restless};
use crate::error::Result;
use crate::protocol::invalidate::{self, Found, Invalidated, InvalidationMode};
use crate::protocol::key::PageKey;
use crate::protocol::lease::Lease;
use crate::protocol::retention::{self, Retention};
use crate::protocol::rollback::{self, Rollback, RolledBack};
use crate::protocol::row::{Meta, Version};

impl PageStore {
    /// Makes a page stale, and keeps renders that began before from being published as fresh.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> facetheory::Result<()> {
    /// # use std::sync::Arc;
    /// use facetheory::{Invalidated, PageKey, InvalidationMode};
    ///
    /// let store = facetheory::PageStore::new(Arc::new(tabletheory::MemoryTable::new()));
    /// assert_eq!(store.invalidate(&PageKey::new("/")?, InvalidationMode::Soft).await?, Invalidated::Absent);
    /// # Ok(()) }
    /// ```
    pub async fn invalidate(&self, page: &PageKey, mode: InvalidationMode) -> Result<Invalidated> {
        for _ in 0..ROUNDS {
            let row = self.table.get(&page.meta(), Consistency::Strong).await?;
            let now = self.now();
            let found = Found::of(row.as_ref(), now);
            let Some(txn) = invalidate::page(page, found, mode, now) else {
                return Ok(Invalidated::Pinned);
            };
            if self.persist(&self.once(txn)).await?.is_done() {
                return Ok(if found == Found::Nothing { Invalidated::Absent } else { Invalidated::Stale });
            }
        }
        Err(restless("invalidated"))
    }

    /// Makes what was seen of a page unusable, under the lease of whoever found that it is. False if that was lost, or the page
    /// is another by now.
    pub(crate) async fn invalidate_under_lease(&self, lease: &Lease, seen: &Meta) -> Result<bool> {
        let txn = invalidate::page_under_lease(lease, seen, self.now());
        Ok(self.persist(&self.once(txn)).await?.is_done())
    }

    /// The versions of a page that are kept, newest first, at most so many, with their sort keys. Rows that cannot be
    /// read are left out.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> facetheory::Result<()> {
    /// # use std::sync::Arc;
    /// let store = facetheory::PageStore::new(Arc::new(tabletheory::MemoryTable::new()));
    /// assert!(store.versions(&facetheory::PageKey::new("/")?, 10).await?.is_empty());
    /// # Ok(()) }
    /// ```
    pub async fn versions(&self, page: &PageKey, most: usize) -> Result<Vec<(String, Version)>> {
        let query = Query::of(page.pk()).begins_with("VER#").backward();
        let rows = self.table.query_all(&query, most).await?.items;
        let mut versions = Vec::with_capacity(rows.len());
        for row in &rows {
            let sk = row.key()?.sk;
            match Version::read(row) {
                Ok(version) => versions.push((sk, version)),
                Err(error) => tracing::warn!(%error, sk, page = %page.redacted(), "a version cannot be read"),
            }
        }
        Ok(versions)
    }

    /// Goes back to a version that is kept, and keeps it for as long as the pin.
    ///
    /// Without a pin it would be stale at once, and the next render would bring back what was rolled away.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> facetheory::Result<()> {
    /// # use std::sync::Arc;
    /// use facetheory::{PageKey, RolledBack};
    /// use std::time::Duration;
    ///
    /// let store = facetheory::PageStore::new(Arc::new(tabletheory::MemoryTable::new()));
    /// let nowhere = store.roll_back(&PageKey::new("/")?, "VER#01", Duration::from_secs(3600)).await?;
    /// assert_eq!(nowhere, RolledBack::NoSuchVersion);
    /// # Ok(()) }
    /// ```
    pub async fn roll_back(&self, page: &PageKey, version_sk: &str, pin: Duration) -> Result<RolledBack> {
        check_version_sk(version_sk)?;
        let mut superseded_ttl = self.ttls.of_superseded(self.now());
        for _ in 0..ROUNDS {
            let keys = [page.meta(), page.meta().sibling(version_sk)];
            let rows = self.table.batch_get(&keys, Consistency::Strong).await?;
            let [Some(meta), Some(target)] = rows.as_slice() else { return Ok(RolledBack::NoSuchVersion) };
            let (seen, target) = (Meta::read(meta)?, Version::read(target)?);
            let now = self.now();
            let target_sk = version_sk;
            let rollback =
                Rollback { page, target_sk, target: &target, seen: &seen, pin, superseded_ttl, now };
            let txn = self.once(rollback.txn());
            match self.persist(&txn).await? {
                Commit::Done => return Ok(RolledBack::Done),
                // Somebody has deleted the version that is served, which is no reason to keep serving it.
                refused if rollback::is_gone(page, Some(&seen), &txn, &refused) => superseded_ttl = None,
                Commit::Refused { .. } => {}
            }
        }
        Err(restless("rolled back"))
    }

    /// Ends a pin: the page is stale from now on. False if it was not pinned.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> facetheory::Result<()> {
    /// # use std::sync::Arc;
    /// let store = facetheory::PageStore::new(Arc::new(tabletheory::MemoryTable::new()));
    /// assert!(!store.unpin(&facetheory::PageKey::new("/")?).await?);
    /// # Ok(()) }
    /// ```
    pub async fn unpin(&self, page: &PageKey) -> Result<bool> {
        Ok(self.persist(&self.once(rollback::unpin(page, self.now()))).await?.is_done())
    }

    /// Deletes the versions past the retention of one page, and returns the bodies that they named.
    ///
    /// The version that is served stays, even if a rollback chooses it while this runs. A request may still name
    /// one of the bodies; [`Pages::gc`](crate::Pages::gc) finds out, and deletes those that nothing names.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> facetheory::Result<()> {
    /// # use std::sync::Arc;
    /// use facetheory::{PageKey, Retention};
    ///
    /// let store = facetheory::PageStore::new(Arc::new(tabletheory::MemoryTable::new()));
    /// assert!(store.gc_versions(&PageKey::new("/")?, Retention::newest(5)).await?.is_empty());
    /// # Ok(()) }
    /// ```
    pub async fn gc_versions(&self, page: &PageKey, retention: Retention) -> Result<Vec<String>> {
        /// The most that one call looks at; what is older than these goes with the next.
        const MOST: usize = 1000;
        let versions = self.versions(page, MOST).await?;
        let current = self.lookup(page).await?.meta.and_then(|meta| meta.current_sk);
        let mut bodies = Vec::new();
        for sk in retention.superfluous(&versions, current.as_deref()) {
            if self.delete_version(&page.meta(), sk).await? {
                let gone = versions.iter().find(|(other, _)| other == sk);
                bodies.extend(gone.map(|(_, version)| version.generation.s3_key.clone()));
            }
        }
        Ok(bodies)
    }

    /// Deletes a version of the page that has this `META`. False if it is the one that is served.
    pub(crate) async fn delete_version(&self, meta: &Key, version_sk: &str) -> Result<bool> {
        Ok(self.persist(&self.once(retention::version(meta, version_sk))).await?.is_done())
    }
}
