//! Versions of a page: list, roll back, unpin, delete.

use std::time::Duration;

use tabletheory::{Commit, Consistency, Key, Query, Table as _, TableExt as _};

use super::{MAX_ROUNDS, PageStore, contended};
use crate::error::{Error, Result};
use crate::protocol::{
    PageKey, Retention, Rollback, RolledBack, StoredMeta, Version, retention, rollback, ttl::seconds,
};

impl PageStore {
    /// The version of a page with this sort key, or `None` if it is not stored.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> facetheory::Result<()> {
    /// # use std::sync::Arc;
    /// use facetheory::PageKey;
    ///
    /// let store = facetheory::PageStore::new(Arc::new(tabletheory::MemoryTable::new()));
    /// assert_eq!(store.version(&PageKey::new("/")?, "VER#01").await?, None);
    /// assert!(store.version(&PageKey::new("/")?, "META").await.is_err(), "not a version");
    /// # Ok(()) }
    /// ```
    pub async fn version(&self, page: &PageKey, sk: &str) -> Result<Option<Version>> {
        check_version_sk(sk)?;
        let row = self.table.get(&page.meta().sibling(sk), Consistency::Strong).await?;
        row.as_ref().filter(|row| !row.is_damaged()).map(Version::read).transpose()
    }

    /// The stored versions of a page with their sort keys, newest first, at most this many. Rows that cannot be read are
    /// skipped.
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
        for row in rows.iter().filter(|row| !row.is_damaged()) {
            let sk = row.key()?.sk;
            match Version::read(row) {
                Ok(version) => versions.push((sk, version)),
                Err(error) => {
                    tabletheory::warn_limited!(%error, sk, page = %page.redacted(), "a version cannot be read and is skipped")
                }
            }
        }
        Ok(versions)
    }

    /// Rolls a page back to a stored version, and pins it for this long.
    ///
    /// Without a pin the page would be stale at once, and the next render would replace the version.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> facetheory::Result<()> {
    /// # use std::sync::Arc;
    /// use facetheory::{PageKey, RolledBack};
    /// use std::time::Duration;
    ///
    /// let store = facetheory::PageStore::new(Arc::new(tabletheory::MemoryTable::new()));
    /// let result = store.roll_back(&PageKey::new("/")?, "VER#01", Duration::from_secs(3600)).await?;
    /// assert_eq!(result, RolledBack::NoSuchVersion);
    /// # Ok(()) }
    /// ```
    pub async fn roll_back(&self, page: &PageKey, version_sk: &str, pin: Duration) -> Result<RolledBack> {
        check_version_sk(version_sk)?;
        let outcome = self.move_pointer(page, version_sk, pin).await;
        self.announce(&page.meta(), outcome).await
    }

    async fn move_pointer(&self, page: &PageKey, version_sk: &str, pin: Duration) -> Result<RolledBack> {
        let mut superseded_ttl = self.ttls.of_superseded(self.now());
        for _ in 0..MAX_ROUNDS {
            let keys = [page.meta(), page.meta().sibling(version_sk)];
            let rows = self.table.batch_get(&keys, Consistency::Strong).await?;
            let [Some(meta), Some(target)] = rows.as_slice() else { return Ok(RolledBack::NoSuchVersion) };
            if meta.is_damaged() || target.is_damaged() {
                return Ok(RolledBack::NoSuchVersion);
            }
            let (seen, target) =
                (StoredMeta::read(meta)?.into_copy(self.epoch_terms.skew), Version::read(target)?);
            let epochs = self.current_epochs(page, &target.generation).await?;
            let now = self.now();
            let (target, seen, target_sk) = (&target, &seen, version_sk);
            let ttl = self.ttls.of_page(seconds(pin), now);
            let rollback = Rollback { page, target_sk, target, seen, pin, ttl, superseded_ttl, epochs, now };
            let txn = self.once(rollback.txn());
            match self.persist(&txn).await? {
                Commit::Done => return Ok(RolledBack::Done),
                // The current version was deleted, so it cannot be given a `ttl`.
                refused if rollback::is_gone(page, Some(seen), &txn, &refused) => superseded_ttl = None,
                Commit::Refused { .. } => {}
            }
        }
        Err(contended("rolled back"))
    }

    /// Ends a pin: the page is stale from now on. Returns false if it was not pinned.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> facetheory::Result<()> {
    /// # use std::sync::Arc;
    /// let store = facetheory::PageStore::new(Arc::new(tabletheory::MemoryTable::new()));
    /// assert!(!store.unpin(&facetheory::PageKey::new("/")?).await?);
    /// # Ok(()) }
    /// ```
    pub async fn unpin(&self, page: &PageKey) -> Result<bool> {
        let outcome = self.end_pin(page).await;
        // Also if there is no pin: an earlier call may have ended it and failed to announce that.
        self.announce(&page.meta(), outcome).await
    }

    async fn end_pin(&self, page: &PageKey) -> Result<bool> {
        for _ in 0..MAX_ROUNDS {
            let Some(row) = self.table.get(&page.meta(), Consistency::Strong).await? else {
                return Ok(false);
            };
            // Another service may have ended the pin and left it in the row.
            let seen = self.resolve(&row, None).await?;
            if seen.is_none_or(|meta| meta.pinned_until.is_none()) {
                return Ok(false);
            }
            if self.persist(&self.once(rollback::unpin(page, &row, self.now()))).await?.is_done() {
                return Ok(true);
            }
        }
        Err(contended("unpinned"))
    }

    /// Deletes the versions of a page that are not retained, and returns the S3 keys of their bodies.
    ///
    /// The current version is never deleted, even if a rollback chooses it while this runs. A request may still refer to one of
    /// the bodies: [`Pages::gc`](crate::Pages::gc) deletes those to which no row refers.
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
        /// The most versions that one call reads; older ones are deleted by a later call.
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

    /// Deletes a version of the page with this `META`. Returns false if it is the current one.
    pub(crate) async fn delete_version(&self, meta: &Key, version_sk: &str) -> Result<bool> {
        Ok(self.persist(&self.once(retention::delete_version(meta, version_sk))).await?.is_done())
    }
}

/// A caller must not be able to name another row of the page.
fn check_version_sk(sk: &str) -> Result<()> {
    let invalid =
        || Error::invalid(format!("{sk:?} is not the sort key of a version; it must begin with VER#"));
    sk.strip_prefix("VER#").map(|_| ()).ok_or_else(invalid)
}
