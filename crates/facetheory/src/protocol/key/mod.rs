//! Which rows belong to a page: from a tenant and a cache key to the keys of the table.

mod tenant;

use std::fmt;
use std::hash::{Hash, Hasher};
use std::ops::Range;
use std::sync::{Arc, OnceLock};

use sha2::{Digest, Sha256};
use tabletheory::{Attr, Key, limit};

use crate::error::{Error, Result};
use crate::protocol::attribute as name;
use crate::protocol::epoch::Tag;
pub use tenant::Tenant;

/// The most bytes in a cache key: more than any address that a server accepts.
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
    /// `CACHE#<sha256 of the cache key>`: short, and spread evenly whatever the keys look like.
    #[default]
    Hashed,
    /// `CACHE#<cache key>`, or another prefix: for tables that TableTheory's TypeScript store wrote by default.
    #[non_exhaustive]
    Raw {
        /// What stands before the cache key.
        prefix: String,
    },
}

/// What partition keys of other kinds begin with: a raw key must never be able to spell one of them.
const RESERVED: [&str; 2] = ["TENANT#", "TAG#"];

impl KeyScheme {
    /// The raw scheme with this prefix, which must keep raw keys apart from all other rows.
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

    /// The page of a tenant, or of nobody in particular, under a cache key.
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
        if cache_key.is_empty() || cache_key.len() > MAX_CACHE_KEY_BYTES {
            return Err(Error::invalid(format!(
                "a cache key has {} bytes; it must have 1 to {MAX_CACHE_KEY_BYTES}",
                cache_key.len()
            )));
        }
        let page = PageKey {
            cache_key,
            tenant: tenant.cloned(),
            scheme: self.clone(),
            path: None,
            route: None,
            target: None,
            private: 0..0,
            pk: OnceLock::new(),
            tags: OnceLock::new(),
        };
        if matches!(self, KeyScheme::Raw { .. }) && page.pk().len() > limit::MAX_PK_BYTES {
            return Err(Error::invalid(format!(
                "the raw partition key of a cache key has {} bytes and DynamoDB allows {}; use the hashed scheme",
                page.pk().len(),
                limit::MAX_PK_BYTES
            )));
        }
        Ok(page)
    }

    fn pk(&self, tenant: Option<&Tenant>, cache_key: &str) -> String {
        let owner = tenant.map_or_else(String::new, |tenant| format!("TENANT#{tenant}#"));
        match self {
            KeyScheme::Hashed => format!("{owner}CACHE#{}", sha256_hex(cache_key.as_bytes())),
            KeyScheme::Raw { prefix } => format!("{owner}{prefix}{cache_key}"),
        }
    }
}

/// One page, and the keys of its rows.
///
/// ```
/// use facetheory::PageKey;
///
/// let page = PageKey::new("/about")?;
/// assert_eq!(page.meta().sk, "META");
/// assert_eq!(page.lock().pk, page.pk());
/// # Ok::<(), facetheory::Error>(())
/// ```
#[derive(Clone, Debug)]
pub struct PageKey {
    cache_key: String,
    tenant: Option<Tenant>,
    scheme: KeyScheme,
    path: Option<String>,
    route: Option<Arc<str>>,
    /// The cache key of the page whose variant it is, or its own, if others are to be invalidated with it.
    target: Option<Arc<str>>,
    /// The part of the cache key that is a query which no rule lists: what is in it is known to nobody.
    private: Range<usize>,
    // Made when they are asked for: a page that is found in memory needs neither.
    pk: OnceLock<String>,
    tags: OnceLock<Vec<Tag>>,
}

/// Where it is found on a site does not tell one page from another.
impl PartialEq for PageKey {
    fn eq(&self, other: &Self) -> bool {
        self.cache_key == other.cache_key && self.tenant == other.tenant && self.scheme == other.scheme
    }
}

impl Eq for PageKey {}

impl Hash for PageKey {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.cache_key.hash(state);
        self.tenant.hash(state);
    }
}

impl PageKey {
    /// The page of nobody in particular under this cache key, hashed.
    ///
    /// ```
    /// assert!(facetheory::PageKey::new("").is_err());
    /// ```
    pub fn new(cache_key: impl Into<String>) -> Result<Self> {
        KeyScheme::Hashed.page(None, cache_key)
    }

    /// The same page, found at this path: it goes stale with all that is at or below a path above it.
    ///
    /// ```
    /// use facetheory::{PageKey, Tag};
    ///
    /// let page = PageKey::new("default::/docs/{name}?name=a")?.at_path("/docs/a");
    /// assert!(page.tags().contains(&Tag::path("/docs")?));
    /// # Ok::<(), facetheory::Error>(())
    /// ```
    #[must_use]
    pub fn at_path(mut self, path: impl Into<String>) -> Self {
        self.path = Some(path.into());
        self
    }

    /// The same page, of this route: it goes stale with all pages of the route.
    ///
    /// ```
    /// use facetheory::{PageKey, Tag};
    ///
    /// let page = PageKey::new("/docs/a")?.of_route("/docs/{name}")?;
    /// assert!(page.tags().contains(&Tag::route("/docs/{name}")?));
    /// # Ok::<(), facetheory::Error>(())
    /// ```
    pub fn of_route(self, pattern: &str) -> Result<Self> {
        Tag::route(pattern)?;
        Ok(self.of_known_route(pattern.into()))
    }

    /// Whether variants of it may be stored, which go stale with it.
    pub(crate) fn has_variants(&self) -> bool {
        self.target.as_deref().is_some_and(|address| address == self.cache_key)
    }

    /// Whether it is one of several answers for its address, and is found by the headers that another one of them names.
    pub(crate) fn is_variant(&self) -> bool {
        self.target.as_deref().is_some_and(|address| address != self.cache_key)
    }

    /// The same, which is invalidated with all its variants.
    pub(crate) fn with_variants(mut self) -> Self {
        self.target = Some(self.cache_key.as_str().into());
        self
    }

    /// The same, of whose cache key this part is not [shown](PageKey::redacted).
    pub(crate) fn with_private_part(mut self, part: Range<usize>) -> Self {
        self.private = part;
        self
    }

    /// The cache key of the page whose variant it is, or its own.
    pub(crate) fn address(&self) -> &str {
        self.target.as_deref().unwrap_or(&self.cache_key)
    }

    /// The page whose variant it is, or itself.
    pub(crate) fn primary(&self) -> Result<Self> {
        self.with_cache_key(self.address().to_owned())
    }

    /// The variant of this page for requests whose selecting headers have this digest.
    pub(crate) fn variant(&self, digest: &str) -> Result<Self> {
        self.with_cache_key(self.variant_prefix() + digest)
    }

    /// The prefix of the cache keys of all variants of this page, and of no other page.
    pub(crate) fn variant_prefix(&self) -> String {
        // An address contains no `#`, so anything after one is not part of the address.
        let separator = if self.cache_key.contains('#') { '&' } else { '#' };
        format!("{}{separator}vary=", self.cache_key)
    }

    fn with_cache_key(&self, cache_key: String) -> Result<Self> {
        let page = self.scheme.page(self.tenant.as_ref(), cache_key)?;
        Ok(PageKey {
            path: self.path.clone(),
            route: self.route.clone(),
            target: self.target.clone(),
            private: self.private.clone(),
            ..page
        })
    }

    /// The same for a route that was checked before.
    pub(crate) fn of_known_route(mut self, pattern: Arc<str>) -> Self {
        self.route = Some(pattern);
        self
    }

    /// The route that it is of, where that is known.
    ///
    /// ```
    /// let page = facetheory::PageKey::new("/docs/a")?.of_route("/docs/{name}")?;
    /// assert_eq!(page.route(), Some("/docs/{name}"));
    /// # Ok::<(), facetheory::Error>(())
    /// ```
    #[must_use]
    pub fn route(&self) -> Option<&str> {
        self.route.as_deref()
    }

    /// The tags that it has by itself: of its tenant, and of its path and its route where they are known.
    ///
    /// ```
    /// use facetheory::{PageKey, Tag};
    ///
    /// assert_eq!(PageKey::new("/a")?.tags(), [Tag::everything()]);
    /// # Ok::<(), facetheory::Error>(())
    /// ```
    #[must_use]
    pub fn tags(&self) -> &[Tag] {
        self.tags.get_or_init(|| {
            let paths = self.path.as_deref().map(Tag::paths_above).unwrap_or_default();
            let route = self.route.as_deref().and_then(|pattern| Tag::route(pattern).ok());
            let target = self.target.as_deref().map(Tag::target);
            [Tag::everything()].into_iter().chain(paths).chain(route).chain(target).collect()
        })
    }

    /// The cache key.
    ///
    /// ```
    /// assert_eq!(facetheory::PageKey::new("/a")?.cache_key(), "/a");
    /// # Ok::<(), facetheory::Error>(())
    /// ```
    #[must_use]
    pub fn cache_key(&self) -> &str {
        &self.cache_key
    }

    /// The cache key as a log may show it: queries may have secrets in them, so one whose parameters no route lists is left
    /// out, and `…` stands in its place.
    ///
    /// ```
    /// assert_eq!(facetheory::PageKey::new("/a")?.redacted().to_string(), "/a");
    /// # Ok::<(), facetheory::Error>(())
    /// ```
    #[must_use]
    pub fn redacted(&self) -> impl fmt::Display {
        let Range { start, end } = self.private;
        let [before, private, after] = [0..start, start..end, end..self.cache_key.len()]
            .map(|range| self.cache_key.get(range).unwrap_or_default());
        let private = if private.is_empty() { "" } else { "…" };
        fmt::from_fn(move |f| write!(f, "{before}{private}{after}"))
    }

    /// Whose page it is.
    ///
    /// ```
    /// assert!(facetheory::PageKey::new("/a")?.tenant().is_none());
    /// # Ok::<(), facetheory::Error>(())
    /// ```
    #[must_use]
    pub fn tenant(&self) -> Option<&Tenant> {
        self.tenant.as_ref()
    }

    /// What `META` tells of it, for people to read: its cache key, and its path where that is known.
    ///
    /// A partition key of the hashed scheme gives neither away. No decision reads them.
    pub(crate) fn told(&self) -> impl Iterator<Item = (Attr<String>, &str)> {
        /// What is longer is told to nobody: a row costs by its bytes, with every write.
        const MAX_TOLD_BYTES: usize = 2048;
        let told = [(name::CACHE_KEY, Some(self.cache_key.as_str())), (name::PATH, self.path.as_deref())];
        let fits = |text: &&str| !text.is_empty() && text.len() <= MAX_TOLD_BYTES;
        told.into_iter().filter_map(move |(attr, text)| Some((attr, text.filter(fits)?)))
    }

    /// The partition that all its rows are in.
    ///
    /// ```
    /// assert!(facetheory::PageKey::new("/a")?.pk().starts_with("CACHE#"));
    /// # Ok::<(), facetheory::Error>(())
    /// ```
    #[must_use]
    pub fn pk(&self) -> &str {
        self.pk.get_or_init(|| self.scheme.pk(self.tenant.as_ref(), &self.cache_key))
    }

    /// The key of what was generated.
    ///
    /// ```
    /// assert_eq!(facetheory::PageKey::new("/a")?.meta().sk, "META");
    /// # Ok::<(), facetheory::Error>(())
    /// ```
    #[must_use]
    pub fn meta(&self) -> Key {
        Key::new(self.pk(), "META")
    }

    /// The key of who generates.
    ///
    /// ```
    /// assert_eq!(facetheory::PageKey::new("/a")?.lock().sk, "LOCK");
    /// # Ok::<(), facetheory::Error>(())
    /// ```
    #[must_use]
    pub fn lock(&self) -> Key {
        Key::new(self.pk(), "LOCK")
    }

    /// The key of a request to regenerate, under a key that comes from outside.
    ///
    /// A plain key (letters, digits, `-`, `_`, `.` and `:`, at most 128 bytes) is used as it is; any other is
    /// hashed, so that no text can name another row.
    ///
    /// ```
    /// use facetheory::PageKey;
    ///
    /// let page = PageKey::new("/a")?;
    /// assert_eq!(page.request("order-7")?.sk, "REQ#order-7");
    /// assert!(page.request("../META")?.sk.starts_with("REQ#sha256="));
    /// assert!(page.request("x".repeat(5000)).is_err());
    /// # Ok::<(), facetheory::Error>(())
    /// ```
    pub fn request(&self, idempotency_key: impl AsRef<str>) -> Result<Key> {
        /// Longer keys are refused: nobody means them.
        const MAX_BYTES: usize = 4096;
        /// Plain keys longer than this are hashed as well.
        const MAX_PLAIN_BYTES: usize = 128;
        let key = idempotency_key.as_ref();
        if key.is_empty() || key.len() > MAX_BYTES {
            return Err(Error::invalid(format!(
                "an idempotency key has {} bytes; it must have 1 to {MAX_BYTES}",
                key.len()
            )));
        }
        let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.:".contains(&byte);
        let sk = if key.len() <= MAX_PLAIN_BYTES && key.bytes().all(plain) {
            format!("REQ#{key}")
        } else {
            // A plain key has no `=`, so the two kinds never meet.
            format!("REQ#sha256={}", sha256_hex(key.as_bytes()))
        };
        Ok(Key::new(self.pk(), sk))
    }
}

/// Lower-case hexadecimal SHA-256.
pub(crate) fn sha256_hex(bytes: &[u8]) -> String {
    const DIGITS: &[u8; 16] = b"0123456789abcdef";
    let halves = |byte: &u8| [byte >> 4, byte & 15];
    Sha256::digest(bytes).iter().flat_map(halves).map(|half| char::from(DIGITS[usize::from(half)])).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn the_key_of_a_variant_is_never_the_key_of_another_page() {
        let variant = |key: &str| PageKey::new(key).and_then(|page| page.variant("00")).expect("a variant");
        assert_eq!(variant("default::a/b?").cache_key(), "default::a/b?#vary=00");
        assert_eq!(variant("default::a/b?#auth=1").cache_key(), "default::a/b?#auth=1&vary=00");
    }

    #[test]
    fn hostile_names_are_refused_with_a_reason() {
        for (made, reason) in [
            (Tenant::new("t".repeat(129)).map(drop), "a tenant has 129 bytes; it must have 1 to 128"),
            (
                Tenant::new("a#CACHE#b").map(drop),
                "a tenant has the character '#'; `#` and control characters are refused",
            ),
            (
                Tenant::new("a\0").map(drop),
                "a tenant has the character '\\0'; `#` and control characters are refused",
            ),
            (PageKey::new("").map(drop), "a cache key has 0 bytes; it must have 1 to 65536"),
            (
                PageKey::new("k".repeat(65_537)).map(drop),
                "a cache key has 65537 bytes; it must have 1 to 65536",
            ),
            (
                KeyScheme::raw("CACHE#").and_then(|raw| raw.page(None, "k".repeat(2043))).map(drop),
                "the raw partition key of a cache key has 2049 bytes and DynamoDB allows 2048; use the hashed scheme",
            ),
            (
                KeyScheme::raw("TEN").map(drop),
                "with the raw prefix \"TEN\" a cache key could name rows that begin with TENANT#; use CACHE#",
            ),
            (
                KeyScheme::raw("TAG#x").map(drop),
                "with the raw prefix \"TAG#x\" a cache key could name rows that begin with TAG#; use CACHE#",
            ),
        ] {
            assert_eq!(made.expect_err(reason).to_string(), reason);
        }
    }

    proptest! {
        #[test]
        fn two_pages_share_a_partition_only_if_they_are_the_same(
            one in ("[a-b]{0,2}", "[#a-bCAHET]{1,12}"),
            other in ("[a-b]{0,2}", "[#a-bCAHET]{1,12}"),
            raw: bool,
        ) {
            let scheme = if raw { KeyScheme::raw("CACHE#").expect("a prefix") } else { KeyScheme::Hashed };
            let page = |(tenant, key): &(String, String)| {
                let tenant = Tenant::new(tenant.as_str()).ok();
                scheme.page(tenant.as_ref(), key.as_str()).expect("a short key")
            };
            prop_assert_eq!(page(&one).pk() == page(&other).pk(), one == other);
        }

        #[test]
        fn no_idempotency_key_names_another_row(key in "\\PC{1,200}") {
            let page = PageKey::new("/").expect("a page");
            let request = page.request(&key).expect("a key");
            prop_assert!(request.check().is_ok());
            prop_assert!(request.sk.starts_with("REQ#"));
            prop_assert_eq!(request.sk.matches('#').count(), 1);
        }
    }
}
