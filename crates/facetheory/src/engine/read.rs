//! Reads of the table and the bodies for operators, past the memory tier. An engine offers no writes past it.

use object_store::ObjectStoreExt as _;
use tabletheory::Timestamp;

use super::Isr;
use crate::bodies::{object_path, unavailable};
use crate::protocol::{Freshness, Meta, Version, View};
use crate::{Body, Diff, Listed, Listing, PageKey, Result};

/// An object below the prefix of the bodies that does not exist.
const MISSING_OBJECT: &str = "facetheory-readiness/none.html";

impl Isr {
    /// The time by the clock of the table.
    ///
    /// ```no_run
    /// # fn f(isr: facetheory::Isr) {
    /// assert!(isr.now().seconds() > 1_700_000_000);
    /// # }
    /// ```
    #[must_use]
    pub fn now(&self) -> Timestamp {
        self.engine.now()
    }

    /// Reads the metadata and the lease of a page from the table.
    ///
    /// ```no_run
    /// # async fn f(isr: facetheory::Isr, page: facetheory::PageKey) -> facetheory::Result<()> {
    /// let is_leased = isr.lookup(&page).await?.lock.is_some_and(|lock| lock.is_held(isr.now()));
    /// # Ok(()) }
    /// ```
    pub async fn lookup(&self, page: &PageKey) -> Result<View> {
        self.pages().store().lookup(page).await
    }

    /// Whether a page is fresh by its times and its tags.
    ///
    /// ```no_run
    /// # async fn f(isr: facetheory::Isr, page: facetheory::PageKey) -> facetheory::Result<()> {
    /// if let Some(meta) = isr.lookup(&page).await?.meta {
    ///     println!("{:?}", isr.freshness(&page, &meta).await?);
    /// }
    /// # Ok(()) }
    /// ```
    pub async fn freshness(&self, page: &PageKey, meta: &Meta) -> Result<Freshness> {
        self.pages().store().freshness(page, meta).await
    }

    /// Returns at most `limit` versions of a page, the newest first, with their sort keys.
    ///
    /// ```no_run
    /// # async fn f(isr: facetheory::Isr, page: facetheory::PageKey) -> facetheory::Result<()> {
    /// let newest = isr.versions(&page, 1).await?;
    /// # Ok(()) }
    /// ```
    pub async fn versions(&self, page: &PageKey, limit: usize) -> Result<Vec<(String, Version)>> {
        self.pages().store().versions(page, limit).await
    }

    /// Lists pages.
    ///
    /// ```no_run
    /// # async fn f(isr: facetheory::Isr) -> facetheory::Result<()> {
    /// let first = isr.list(&facetheory::Listing::new(100)).await?;
    /// # Ok(()) }
    /// ```
    pub async fn list(&self, listing: &Listing) -> Result<Listed> {
        self.pages().store().list(listing).await
    }

    /// Reads a page, stale or not, with its body: see [`Pages::read`](crate::Pages::read).
    ///
    /// ```no_run
    /// # async fn f(isr: facetheory::Isr, page: facetheory::PageKey) -> facetheory::Result<()> {
    /// let length = isr.read(&page).await?.map(|(_, body)| body.bytes.len());
    /// # Ok(()) }
    /// ```
    pub async fn read(&self, page: &PageKey) -> Result<Option<(Meta, Body)>> {
        self.pages().read(page).await
    }

    /// Reads a version of a page with its body: see [`Pages::read_version`](crate::Pages::read_version).
    ///
    /// ```no_run
    /// # async fn f(isr: facetheory::Isr, page: facetheory::PageKey) -> facetheory::Result<()> {
    /// let version = isr.read_version(&page, "VER#01").await?;
    /// # Ok(()) }
    /// ```
    pub async fn read_version(&self, page: &PageKey, sk: &str) -> Result<Option<(Version, Option<Body>)>> {
        self.pages().read_version(page, sk).await
    }

    /// Compares two versions of a page: see [`Pages::diff`](crate::Pages::diff).
    ///
    /// ```no_run
    /// # async fn f(isr: facetheory::Isr, page: facetheory::PageKey) -> facetheory::Result<()> {
    /// let is_same = isr.diff(&page, "VER#01", "VER#02").await?.is_some_and(|diff| diff.is_empty());
    /// # Ok(()) }
    /// ```
    pub async fn diff(&self, page: &PageKey, from_sk: &str, to_sk: &str) -> Result<Option<Diff>> {
        self.pages().diff(page, from_sk, to_sk).await
    }

    /// Returns an error if the object storage does not respond. Each call requests the same object, which does not exist.
    ///
    /// ```no_run
    /// # async fn f(isr: facetheory::Isr) {
    /// let is_reachable = isr.check_bodies().await.is_ok();
    /// # }
    /// ```
    pub async fn check_bodies(&self) -> Result<()> {
        let bodies = self.pages().bodies();
        // Not `Bodies::get`, which would look for it outside of the prefix as well.
        let path = object_path(&format!("{}{MISSING_OBJECT}", bodies.prefix))?;
        match bodies.objects.get(&path).await {
            Ok(_) | Err(object_store::Error::NotFound { .. }) => Ok(()),
            Err(cause) => Err(unavailable("a test object cannot be read", cause)),
        }
    }
}
