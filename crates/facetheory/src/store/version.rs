//! One version of a page.

use tabletheory::Consistency;

use super::PageStore;
use crate::error::{Error, Result};
use crate::protocol::key::PageKey;
use crate::protocol::row::Version;

impl PageStore {
    /// A version of a page by its sort key; none if it is not kept.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> facetheory::Result<()> {
    /// # use std::sync::Arc;
    /// use facetheory::PageKey;
    ///
    /// let store = facetheory::PageStore::new(Arc::new(tabletheory::MemoryTable::new()));
    /// assert_eq!(store.version(&PageKey::new("/")?, "VER#01").await?, None);
    /// assert!(store.version(&PageKey::new("/")?, "META").await.is_err(), "no version");
    /// # Ok(()) }
    /// ```
    pub async fn version(&self, page: &PageKey, sk: &str) -> Result<Option<Version>> {
        check_version_sk(sk)?;
        let row = self.table.get(&page.meta().sibling(sk), Consistency::Strong).await?;
        row.as_ref().map(Version::read).transpose()
    }
}

/// A caller must not be able to name another row of the page.
pub(super) fn check_version_sk(sk: &str) -> Result<()> {
    if sk.starts_with("VER#") {
        return Ok(());
    }
    Err(Error::invalid(format!("{sk:?} is not the sort key of a version; those begin with VER#")))
}
