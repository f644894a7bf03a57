//! How a cache key becomes a partition key.

use std::sync::Arc;

use tabletheory::limit;

use super::{PageKey, Tenant};
use crate::error::{Error, Result};
use crate::protocol::digest::sha256_hex;

/// The longest cache key, in bytes: longer than any URL that a server accepts.
pub const MAX_CACHE_KEY_BYTES: usize = 64 * 1024;

/// The text before `::` in the cache keys of pages without a tenant.
const NO_TENANT: &str = "default";

/// How a cache key becomes a partition key.
///
/// ```
/// use facetheory::{KeyScheme, Tenant};
///
/// let raw = KeyScheme::raw("CACHE#")?;
/// assert_eq!(raw.page(None, "default::/about?")?.pk(), "CACHE#default::/about?");
/// let acme = Tenant::new("acme")?;
/// assert_eq!(raw.page(Some(&acme), "acme::/about?")?.pk(), "CACHE#acme::/about?");
/// # Ok::<(), facetheory::Error>(())
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum KeyScheme {
    /// `CACHE#<sha256 of the cache key>`, or `TENANT#<tenant>#CACHE#<…>`: short, and evenly distributed whatever the keys
    /// look like.
    #[default]
    Hashed,
    /// `CACHE#<cache key>`, or another prefix: for tables that TableTheory's TypeScript store wrote by default. The tenant is
    /// the text before `::` in the cache key.
    #[non_exhaustive]
    Raw {
        /// The prefix of the cache key.
        prefix: Arc<str>,
    },
}

/// Prefixes of other partition keys. A raw key must not be able to name such a row.
const RESERVED: [&str; 4] = ["TENANT#", "TAG#", "FEED#", "FACETHEORY#"];

impl KeyScheme {
    /// The longest prefix of raw keys, in bytes.
    pub const MAX_PREFIX_BYTES: usize = 255;

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
        Error::check_length("the prefix of raw keys", &prefix, Self::MAX_PREFIX_BYTES)?;
        Ok(KeyScheme::Raw { prefix: prefix.into() })
    }

    /// The page with this cache key, of a tenant or of none.
    ///
    /// In the raw scheme the cache key names the tenant before `::`, or `default`. A key that names another one is rejected, so
    /// that tenants never share a row.
    ///
    /// ```
    /// use facetheory::{KeyScheme, Tenant};
    ///
    /// let acme = Tenant::new("acme")?;
    /// let page = KeyScheme::Hashed.page(Some(&acme), "/")?;
    /// assert!(page.pk().starts_with("TENANT#acme#CACHE#8a5edab282632443219e051e4ade2d1d"));
    ///
    /// let error = KeyScheme::raw("CACHE#")?.page(Some(&acme), "other::/").unwrap_err();
    /// assert_eq!(error.to_string(), "the raw cache key of a page of the tenant `acme` must begin with `acme::`");
    /// # Ok::<(), facetheory::Error>(())
    /// ```
    pub fn page(&self, tenant: Option<&Tenant>, cache_key: impl Into<String>) -> Result<PageKey> {
        let cache_key = cache_key.into();
        Error::check_length("a cache key", &cache_key, MAX_CACHE_KEY_BYTES)?;
        if let KeyScheme::Raw { prefix } = self {
            check_raw(prefix, tenant, &cache_key)?;
        }
        Ok(PageKey::with_scheme(self.clone(), tenant.cloned(), cache_key))
    }

    /// The longest cache key that this scheme can store, in bytes.
    #[cfg(feature = "http")]
    pub(crate) fn max_cache_key_bytes(&self) -> usize {
        match self {
            KeyScheme::Hashed => MAX_CACHE_KEY_BYTES,
            KeyScheme::Raw { prefix } => limit::MAX_PK_BYTES.saturating_sub(prefix.len()),
        }
    }

    /// Returns the cache key of a page, if its partition key contains it.
    pub(crate) fn cache_key_of<'p>(&self, pk: &'p str) -> Option<&'p str> {
        match self {
            KeyScheme::Hashed => None,
            KeyScheme::Raw { prefix } => pk.strip_prefix(&**prefix),
        }
    }

    /// Returns the name of the tenant of a page by its partition key, or `None` for a page without a tenant.
    pub(crate) fn tenant_of<'p>(&self, pk: &'p str) -> Option<&'p str> {
        let in_front = pk.strip_prefix("TENANT#").and_then(|rest| rest.split_once('#')).map(|(name, _)| name);
        let in_key = || self.cache_key_of(pk).and_then(named_tenant).filter(|name| *name != NO_TENANT);
        in_front.or_else(in_key)
    }

    pub(super) fn pk(&self, tenant: Option<&Tenant>, cache_key: &str) -> String {
        match self {
            KeyScheme::Hashed => {
                [Tenant::prefix(tenant).as_str(), "CACHE#", &sha256_hex(cache_key.as_bytes())].concat()
            }
            KeyScheme::Raw { prefix } => format!("{prefix}{cache_key}"),
        }
    }
}

/// Returns the text before the first `::` of a cache key.
fn named_tenant(cache_key: &str) -> Option<&str> {
    cache_key.split_once("::").map(|(name, _)| name)
}

/// Checks that a raw key fits into a table, and that it can only be a page of this tenant.
fn check_raw(prefix: &str, tenant: Option<&Tenant>, cache_key: &str) -> Result<()> {
    let bytes = prefix.len() + cache_key.len();
    if bytes > limit::MAX_PK_BYTES {
        return Err(Error::invalid(format!(
            "the raw partition key of a cache key has {bytes} bytes and DynamoDB allows {}; use the hashed scheme",
            limit::MAX_PK_BYTES
        )));
    }
    let reason = match (tenant.map(Tenant::as_str), named_tenant(cache_key)) {
        (None, None | Some(NO_TENANT)) => return Ok(()),
        (Some(NO_TENANT), _) => {
            "raw cache keys begin with `default::` for pages without a tenant, so no tenant may be named `default`".into()
        }
        (Some(tenant), Some(named)) if tenant == named => return Ok(()),
        (Some(tenant), _) if tenant.contains("::") || tenant.ends_with(':') => format!(
            "the tenant `{tenant}` is not possible with raw keys, where `::` ends the tenant; use the hashed scheme"
        ),
        (Some(tenant), _) => {
            format!("the raw cache key of a page of the tenant `{tenant}` must begin with `{tenant}::`")
        }
        (None, Some(_)) => {
            "a raw cache key names a tenant before `::`, but its page has none; name the tenant, or begin the key \
             with `default::`"
                .into()
        }
    };
    Err(Error::invalid(reason))
}
