//! Follows the pointer of `META` to the version that is current, if `META` alone does not describe the page.

use std::time::Duration;

use quick_cache::sync::Cache;
use tabletheory::{Consistency, Item, Key, Table as _};

use super::PageStore;
use crate::error::Result;
use crate::protocol::{Content, Generation, Meta, StoredMeta, Version};

/// The most versions whose S3 key is remembered.
const MAX_KNOWN: usize = 10_000;

/// Versions as they were read. They never change, so a copy in `META` with the same S3 key and digest is of this version.
#[derive(Debug)]
pub(super) struct KnownVersions(Cache<Key, KnownVersion>);

#[derive(Clone, Debug)]
struct KnownVersion {
    s3_key: String,
    digest: Option<String>,
    /// Whether its row has no attributes of our own, as those of other services.
    is_foreign: bool,
}

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
        let skew = self.epoch_terms.skew;
        let Some(sk) = stored.unread() else { return Ok(Some(stored.into_copy(skew))) };
        let key = row.key()?.sibling(sk);
        if let Some(KnownVersion { s3_key, digest, is_foreign }) = self.known_versions.0.get(&key) {
            if is_foreign && stored.s3_key() == Some(&s3_key) {
                return Ok(Some(stored.into_copy_with(Content::default(), skew)));
            }
            if stored.is_copy_of(&s3_key, digest.as_deref()) {
                return Ok(Some(stored.into_copy(skew)));
            }
        }
        let version = self.table.get(&key, Consistency::Strong).await?;
        let version = version.and_then(|row| Version::read(&row).ok());
        if let Some(version) = &version {
            let Generation { s3_key, content, .. } = &version.generation;
            let (digest, is_foreign) = (content.digest.clone(), *content == Content::default());
            self.known_versions.0.insert(key, KnownVersion { s3_key: s3_key.clone(), digest, is_foreign });
        }
        Ok(Some(stored.follow(version, policy, skew)))
    }
}
