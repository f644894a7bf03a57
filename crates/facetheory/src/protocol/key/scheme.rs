//! How a cache key becomes a partition key.

use tabletheory::limit;

use super::{PageKey, Tenant};
use crate::error::{Error, Result};
use crate::protocol::digest::sha256_hex;

/// The longest cache key, in bytes: longer than any URL that a server accepts.
pub const MAX_CACHE_KEY_BYTES: usize = 64 * 1024;

/// How a cache key becomes a partition key.
///
/// ```
/// use facetheory::KeyScheme;
///
/// let raw = KeyScheme::raw("CACHE#")?;
/// assert_eq!(raw.page(None, "/about")?.pk(), "CACHE#/about");
/// # Ok::<(), facetheory::Error>(())
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum KeyScheme {
    /// `CACHE#<sha256 of the cache key>`: short, and evenly distributed whatever the keys look like.
    #[default]
    Hashed,
    /// `CACHE#<cache key>`, or another prefix: for tables that TableTheory's TypeScript store wrote by default.
    #[non_exhaustive]
    Raw {
        /// The prefix of the cache key.
        prefix: String,
    },
}

/// Prefixes of other partition keys. A raw key must not be able to name such a row.
const RESERVED: [&str; 2] = ["TENANT#", "TAG#"];

impl KeyScheme {
    /// The raw scheme with this prefix, which must distinguish raw keys from all other rows.
    ///
    /// ```
    /// use facetheory::KeyScheme;
    ///
    /// assert!(KeyScheme::raw("PAGE#").is_ok());
    /// assert!(KeyScheme::raw("").is_err(), "a key could then name any row");
    /// assert!(KeyScheme::raw("TENANT#").is_err());
    /// ```
    pub fn raw(prefix: impl Into<String>) -> Result<Self> {
        let prefix = prefix.into();
        if let Some(reserved) =
            RESERVED.iter().find(|word| word.starts_with(&prefix) || prefix.starts_with(*word))
        {
            return Err(Error::invalid(format!(
                "with the raw prefix {prefix:?} a cache key could name rows that begin with {reserved}; use CACHE#"
            )));
        }
        Ok(KeyScheme::Raw { prefix })
    }

    /// The page with this cache key, of a tenant or of none.
    ///
    /// ```
    /// use facetheory::{KeyScheme, Tenant};
    ///
    /// let acme = Tenant::new("acme")?;
    /// let page = KeyScheme::Hashed.page(Some(&acme), "/")?;
    /// assert!(page.pk().starts_with("TENANT#acme#CACHE#8a5edab282632443219e051e4ade2d1d"));
    /// # Ok::<(), facetheory::Error>(())
    /// ```
    pub fn page(&self, tenant: Option<&Tenant>, cache_key: impl Into<String>) -> Result<PageKey> {
        let cache_key = cache_key.into();
        Error::check_length("a cache key", &cache_key, MAX_CACHE_KEY_BYTES)?;
        let page = PageKey::with_scheme(self.clone(), tenant.cloned(), cache_key);
        if matches!(self, KeyScheme::Raw { .. }) && page.pk().len() > limit::MAX_PK_BYTES {
            return Err(Error::invalid(format!(
                "the raw partition key of a cache key has {} bytes and DynamoDB allows {}; use the hashed scheme",
                page.pk().len(),
                limit::MAX_PK_BYTES
            )));
        }
        Ok(page)
    }

    pub(super) fn pk(&self, tenant: Option<&Tenant>, cache_key: &str) -> String {
        let tenant = Tenant::prefix(tenant);
        match self {
            KeyScheme::Hashed => format!("{tenant}CACHE#{}", sha256_hex(cache_key.as_bytes())),
            KeyScheme::Raw { prefix } => format!("{tenant}{prefix}{cache_key}"),
        }
    }
}
