//! Follows the pointer of `META` to the version that is current, if `META` alone does not describe the page.

use std::time::Duration;

use quick_cache::sync::Cache;
use tabletheory::{Consistency, Item, Key};

use super::PageStore;
use crate::error::Result;
use crate::protocol::{Meta, StoredMeta, Version};

/// The most versions whose S3 key is remembered.
const MAX_KNOWN: usize = 10_000;

/// The S3 keys of versions, as they were read. They never change, so a copy in `META` with the same S3 key is of this version.
#[derive(Debug)]
pub(super) struct KnownVersions(Cache<Key, Box<str>>);

impl KnownVersions {
    pub(super) fn new() -> Self {
        KnownVersions(Cache::new(MAX_KNOWN))
    }
}

impl PageStore {
    /// The page that a `META` row describes, or the version that it points at; `None` if the row cannot be read.
    ///
    /// `policy` is the interval of a version that has none, if `META` has none either. Our own copies are recognized by the id
    /// of their version, and a copy of another service is compared with its version once, so usually nothing more is read.
    pub(super) async fn resolve(&self, row: &Item, policy: Option<Duration>) -> Result<Option<Meta>> {
        let Ok(stored) = StoredMeta::read(row) else { return Ok(None) };
        let Some(sk) = stored.unread() else { return Ok(Some(stored.into_copy())) };
        let key = row.key()?.sibling(sk);
        let is_known = |s3_key: &str| self.known_versions.0.get(&key).is_some_and(|known| *known == *s3_key);
        if stored.s3_key().is_some_and(is_known) {
            return Ok(Some(stored.into_copy()));
        }
        let version = self.table.get(&key, Consistency::Strong).await?;
        let version = version.and_then(|row| Version::read(&row).ok());
        if let Some(version) = &version {
            self.known_versions.0.insert(key, version.generation.s3_key.as_str().into());
        }
        Ok(Some(stored.follow(version, policy, self.epoch_terms.skew)))
    }
}
