//! Page keys: a tenant and a cache key, and the keys of the rows of a page.

mod rows;
mod scheme;
mod tenant;

use std::fmt;
use std::hash::{Hash, Hasher};
use std::ops::Range;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use tabletheory::Attr;

pub use self::scheme::{KeyScheme, MAX_CACHE_KEY_BYTES};
pub use self::tenant::Tenant;
use crate::error::Result;
use crate::protocol::{Tag, attribute as name};

/// The key of a page: its tenant and its cache key.
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
    /// For a page with variants, and for its variants: the cache key of the page. They are invalidated together.
    target: Option<Arc<str>>,
    /// The part of the cache key that logs must not show: a query whose parameters no route lists.
    private: Range<usize>,
    /// How long the page is fresh if its rows do not say.
    interval: Option<Duration>,
    // Computed on first use: a page that is served from memory needs neither.
    pk: OnceLock<Arc<str>>,
    tags: OnceLock<Arc<[Tag]>>,
    /// The tags of its route, which the next render will give it.
    expected_tags: Option<Arc<Vec<Tag>>>,
}

/// Path, route and interval do not distinguish pages.
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
    /// The page with this cache key in the hashed scheme, without a tenant.
    ///
    /// ```
    /// assert!(facetheory::PageKey::new("").is_err());
    /// ```
    pub fn new(cache_key: impl Into<String>) -> Result<Self> {
        KeyScheme::Hashed.page(None, cache_key)
    }

    fn with_scheme(scheme: KeyScheme, tenant: Option<Tenant>, cache_key: String) -> Self {
        PageKey {
            cache_key,
            tenant,
            scheme,
            path: None,
            route: None,
            target: None,
            private: 0..0,
            interval: None,
            pk: OnceLock::new(),
            tags: OnceLock::new(),
            expected_tags: None,
        }
    }

    /// The page whose rows are in this partition. Its cache key is not known, and its rows are all that can be named.
    pub(crate) fn of_partition(pk: &str) -> Self {
        PageKey {
            pk: OnceLock::from(Arc::from(pk)),
            ..PageKey::with_scheme(KeyScheme::default(), None, String::new())
        }
    }

    /// Sets the path of the page. The page is invalidated with the path and every path above it.
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
        self.tags = OnceLock::new();
        self
    }

    /// Sets the route of the page. The page is invalidated with its route.
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

    /// Sets the route, whose pattern has been checked before.
    pub(crate) fn of_known_route(mut self, pattern: Arc<str>) -> Self {
        self.route = Some(pattern);
        self.tags = OnceLock::new();
        self
    }

    /// Lets the page have variants, which are invalidated with it.
    pub(crate) fn with_variants(mut self) -> Self {
        self.target = Some(self.cache_key.as_str().into());
        self.tags = OnceLock::new();
        self
    }

    /// Whether the page may have variants.
    pub(crate) fn has_variants(&self) -> bool {
        self.target.as_deref().is_some_and(|primary| primary == self.cache_key)
    }

    /// Whether this is a variant, which is selected by the request headers that the `Vary` of another page names.
    pub(crate) fn is_variant(&self) -> bool {
        self.target.as_deref().is_some_and(|primary| primary != self.cache_key)
    }

    /// The cache key of the page of which this is a variant, or its own.
    pub(crate) fn address(&self) -> &str {
        self.target.as_deref().unwrap_or(&self.cache_key)
    }

    /// Sets how long the page is fresh if its rows do not say, because another service wrote a version without an interval.
    ///
    /// [`Isr`](crate::Isr) and [`Pages`](crate::Pages) set it to the interval of the policy.
    ///
    /// ```
    /// use facetheory::PageKey;
    /// use std::time::Duration;
    ///
    /// let page = PageKey::new("/about")?.with_interval(Duration::from_secs(60));
    /// # Ok::<(), facetheory::Error>(())
    /// ```
    #[must_use]
    pub fn with_interval(mut self, interval: Duration) -> Self {
        self.interval = Some(interval);
        self
    }

    pub(crate) fn interval(&self) -> Option<Duration> {
        self.interval
    }

    /// The page of which this is a variant, or itself.
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

    /// The part of the cache key after the address: the headers and cookies that distinguish the variants of a page.
    pub(crate) fn distinction(&self) -> &str {
        self.cache_key.find('#').map_or("", |start| &self.cache_key[start..])
    }

    /// The variant of the same page with this [distinction](Self::distinction).
    pub(crate) fn distinguished_by(&self, distinction: &str) -> Result<Self> {
        let address = self.cache_key.split('#').next().unwrap_or_default();
        self.with_cache_key(format!("{address}{distinction}"))
    }

    fn with_cache_key(&self, cache_key: String) -> Result<Self> {
        let page = self.scheme.page(self.tenant.as_ref(), cache_key)?;
        Ok(PageKey {
            path: self.path.clone(),
            route: self.route.clone(),
            target: self.target.clone(),
            private: self.private.clone(),
            interval: self.interval,
            expected_tags: self.expected_tags.clone(),
            ..page
        })
    }

    /// Sets the part of the cache key that is [redacted](PageKey::redacted) in logs.
    pub(crate) fn with_private_part(mut self, part: Range<usize>) -> Self {
        self.private = part;
        self
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

    /// The cache key for logs. A query whose parameters no route lists may contain secrets, so it is replaced by `…`.
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

    /// The tenant.
    ///
    /// ```
    /// assert!(facetheory::PageKey::new("/a")?.tenant().is_none());
    /// # Ok::<(), facetheory::Error>(())
    /// ```
    #[must_use]
    pub fn tenant(&self) -> Option<&Tenant> {
        self.tenant.as_ref()
    }

    /// The pattern of the route, if it is known.
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

    /// The implicit tags of the page: of its tenant, and of its path and route if they are known.
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

    /// A copy for a task that reads the rows of the page. Both have its partition key and its tags, which are computed once.
    pub(crate) fn for_reading(&self) -> Self {
        let _ = (self.pk(), self.tags());
        self.clone()
    }

    /// Sets the tags that the next render will give the page, as far as they are known before it.
    pub(crate) fn expecting_tags(mut self, tags: Arc<Vec<Tag>>) -> Self {
        self.expected_tags = Some(tags);
        self
    }

    /// The tags that the next render will give the page, as far as they are known before it.
    pub(crate) fn expected_tags(&self) -> &[Tag] {
        self.expected_tags.as_deref().map_or(&[], Vec::as_slice)
    }

    /// The attributes of `META` that describe the page for humans: its cache key, and its path if it is known.
    ///
    /// A hashed partition key reveals neither. No decision reads them.
    pub(crate) fn descriptions(&self) -> impl Iterator<Item = (Attr<String>, &str)> {
        /// Longer texts are not written: the cost of a row grows with its size.
        const MAX_BYTES: usize = 2048;
        let texts = [(name::CACHE_KEY, Some(self.cache_key.as_str())), (name::PATH, self.path.as_deref())];
        let fits = |text: &&str| !text.is_empty() && text.len() <= MAX_BYTES;
        texts.into_iter().filter_map(move |(attr, text)| Some((attr, text.filter(fits)?)))
    }
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
    fn hostile_names_are_rejected_with_a_reason() {
        let raw_page = |tenant: Option<&str>, key: &str| {
            let tenant = tenant.map(|name| Tenant::new(name).expect("a tenant"));
            KeyScheme::raw("CACHE#").and_then(|raw| raw.page(tenant.as_ref(), key)).map(drop)
        };
        for (made, reason) in [
            (Tenant::new("t".repeat(129)).map(drop), "a tenant has 129 bytes; it must have 1 to 128"),
            (
                Tenant::new("a#CACHE#b").map(drop),
                "a tenant contains the character '#'; `#` and control characters are not allowed",
            ),
            (
                Tenant::new("a\0").map(drop),
                "a tenant contains the character '\\0'; `#` and control characters are not allowed",
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
                raw_page(Some("acme"), "/a"),
                "the raw cache key of a page of the tenant `acme` must begin with `acme::`",
            ),
            (
                raw_page(Some("a:"), "a:::/a"),
                "the tenant `a:` is not possible with raw keys, where `::` ends the tenant; use the hashed scheme",
            ),
            (
                raw_page(Some("default"), "default::/a"),
                "raw cache keys begin with `default::` for pages without a tenant, so no tenant may be named `default`",
            ),
            (
                raw_page(None, "acme::/a"),
                "a raw cache key names a tenant before `::`, but its page has none; name the tenant, or begin the key \
                 with `default::`",
            ),
            (
                KeyScheme::raw("p".repeat(256)).map(drop),
                "the prefix of raw keys has 256 bytes; it must have 1 to 255",
            ),
            (
                KeyScheme::raw("TAG#x").map(drop),
                "with the raw prefix \"TAG#x\" a cache key could name rows that begin with TAG#; use CACHE#",
            ),
            (
                KeyScheme::raw("FEED#").map(drop),
                "with the raw prefix \"FEED#\" a cache key could name rows that begin with FEED#; use CACHE#",
            ),
            (
                KeyScheme::raw("FACE").map(drop),
                "with the raw prefix \"FACE\" a cache key could name rows that begin with FACETHEORY#; use CACHE#",
            ),
        ] {
            assert_eq!(made.expect_err(reason).to_string(), reason);
        }
    }

    proptest! {
        #[test]
        fn two_pages_share_a_partition_only_if_they_are_equal(
            tenants in ("[a-b]{0,2}", "[a-b]{0,2}"),
            keys in ("[#a-bCAHET]{1,12}", "[#a-bCAHET]{1,12}"),
        ) {
            let page = |tenant: &str, key: &str| {
                KeyScheme::Hashed.page(Tenant::new(tenant).ok().as_ref(), key).expect("a short key")
            };
            // Each tenant with each key, so that every case has pages that differ in one of them only.
            let pages = [(&tenants.0, &keys.0), (&tenants.0, &keys.1), (&tenants.1, &keys.0), (&tenants.1, &keys.1)];
            for one in pages {
                for other in pages {
                    prop_assert_eq!(page(one.0, one.1).pk() == page(other.0, other.1).pk(), one == other);
                }
            }
        }

        #[test]
        fn two_raw_pages_share_a_partition_only_if_they_are_equal(
            one in ("(a|b|a:|a::b|default){0,1}", "(a|b|default){0,1}:{0,3}(a|b|/){0,3}"),
            other in ("(a|b|a:|a::b|default){0,1}", "(a|b|default){0,1}:{0,3}(a|b|/){0,3}"),
        ) {
            let scheme = KeyScheme::raw("CACHE#").expect("a prefix");
            let page = |(tenant, key): &(String, String)| {
                let tenant = Tenant::new(tenant.as_str()).ok();
                scheme.page(tenant.as_ref(), key.as_str()).ok()
            };
            if let (Some(first), Some(second)) = (page(&one), page(&other)) {
                prop_assert_eq!(first.pk() == second.pk(), one == other);
                prop_assert_eq!(scheme.tenant_of(first.pk()), first.tenant().map(Tenant::as_str));
                prop_assert_eq!(scheme.cache_key_of(first.pk()), Some(first.cache_key()));
            }
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
