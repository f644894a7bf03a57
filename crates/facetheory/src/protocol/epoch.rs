//! Epochs: since when everything with a tag is stale, in one row however many pages have it.

use std::sync::Arc;
use std::time::Duration;

use tabletheory::{Item, Key};

use crate::error::{Error, Result};
use crate::protocol::attribute as name;
use crate::protocol::key::{Tenant, sha256_hex};
use crate::protocol::row::Reader;

/// A tag by which pages are invalidated together.
///
/// ```
/// use facetheory::{Tag, Tenant};
///
/// let tag = Tag::new("news")?;
/// assert_eq!(tag.key(None).pk, "TAG#news");
/// assert_eq!(tag.key(Some(&Tenant::new("acme")?)).pk, "TENANT#acme#TAG#news");
/// # Ok::<(), facetheory::Error>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Tag(Arc<str>);

impl Tag {
    /// The longest tag, in bytes.
    pub const MAX_BYTES: usize = 1024;
    /// The deepest path that can be invalidated with all below it, in segments.
    pub const MAX_DEPTH: usize = 32;
    /// The digits by which addresses are told apart.
    const TARGET_DIGITS: usize = 24;

    /// The tag of this name: 1 to 1,024 bytes, without control characters.
    ///
    /// Names that begin with `path=`, `route=` or `tenant=` are those of implicit tags, which every page has.
    ///
    /// ```
    /// assert!(facetheory::Tag::new("a\r\nb").is_err());
    /// assert_eq!(
    ///     facetheory::Tag::new("path=/docs").unwrap_err().to_string(),
    ///     "the tag `path=/docs` is one that pages have by themselves; choose another name"
    /// );
    /// ```
    pub fn new(name: impl Into<String>) -> Result<Self> {
        let name = name.into();
        if IMPLICIT.iter().any(|prefix| name.starts_with(prefix)) {
            return Err(Error::invalid(format!(
                "the tag `{name}` is one that pages have by themselves; choose another name"
            )));
        }
        Tag::checked(name)
    }

    /// Everything at a path and below it: `/docs` has `/docs`, `/docs/` and `/docs/a/b`, but not `/docsets`.
    ///
    /// ```
    /// use facetheory::Tag;
    ///
    /// assert_eq!(Tag::path("/docs/")?.as_str(), "path=/docs");
    /// assert!(Tag::path("docs").is_err(), "a path begins with a slash");
    /// # Ok::<(), facetheory::Error>(())
    /// ```
    pub fn path(prefix: &str) -> Result<Self> {
        if !prefix.starts_with('/') {
            return Err(Error::invalid(format!("the path `{prefix}` does not begin with `/`")));
        }
        let path = prefix.trim_end_matches('/');
        let depth = path.matches('/').count();
        if depth > Self::MAX_DEPTH {
            return Err(Error::invalid(format!(
                "a path of {depth} segments cannot be invalidated with all below it; at most {} can",
                Self::MAX_DEPTH
            )));
        }
        Tag::checked(format!("path={path}"))
    }

    /// Every page of a route, named as it was configured.
    ///
    /// ```
    /// assert_eq!(facetheory::Tag::route("/posts/{slug}")?.as_str(), "route=/posts/{slug}");
    /// # Ok::<(), facetheory::Error>(())
    /// ```
    pub fn route(pattern: &str) -> Result<Self> {
        Tag::checked(format!("route={pattern}"))
    }

    /// Every page of a tenant, or every page of nobody in particular.
    ///
    /// ```
    /// use facetheory::{Tag, Tenant};
    ///
    /// assert_eq!(Tag::everything().key(Some(&Tenant::new("acme")?)).pk, "TENANT#acme#TAG#tenant=");
    /// # Ok::<(), facetheory::Error>(())
    /// ```
    #[must_use]
    pub fn everything() -> Self {
        Tag("tenant=".into())
    }

    /// Everything that is stored of one address, of which this is the cache key without what selects a variant.
    pub(crate) fn target(primary: &str) -> Self {
        Tag(format!("target={}", &sha256_hex(primary.as_bytes())[..Self::TARGET_DIGITS]).into())
    }

    /// The tags of all paths at which this one is found: of itself and of everything above it.
    ///
    /// A path that is too deep or too long has those of the upper part, since no others can be invalidated.
    pub(crate) fn paths_above(path: &str) -> Vec<Tag> {
        let path = path.trim_end_matches('/');
        let ends = path.match_indices('/').map(|(index, _)| index).chain([path.len()]);
        let tag = |end: usize| Tag::path(if end == 0 { "/" } else { &path[..end] }).ok();
        let mut tags: Vec<Tag> = ends.take(Self::MAX_DEPTH + 1).filter_map(tag).collect();
        tags.dedup();
        tags
    }

    fn checked(name: String) -> Result<Self> {
        if name.is_empty() || name.len() > Self::MAX_BYTES {
            return Err(Error::invalid(format!(
                "a tag has {} bytes; it must have 1 to {}",
                name.len(),
                Self::MAX_BYTES
            )));
        }
        if let Some(bad) = name.chars().find(|c| c.is_control()) {
            return Err(Error::invalid(format!(
                "a tag has the character {bad:?}; control characters are refused"
            )));
        }
        Ok(Tag(name.into()))
    }

    /// The name.
    ///
    /// ```
    /// assert_eq!(facetheory::Tag::new("news")?.as_str(), "news");
    /// # Ok::<(), facetheory::Error>(())
    /// ```
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// The key of its epoch, for one tenant or for pages of nobody in particular.
    ///
    /// ```
    /// assert_eq!(facetheory::Tag::new("news")?.key(None).sk, "TAG");
    /// # Ok::<(), facetheory::Error>(())
    /// ```
    #[must_use]
    pub fn key(&self, tenant: Option<&Tenant>) -> Key {
        // A tenant has no `#`, so the tenant's part ends where it seems to, whatever the tag contains.
        let owner = tenant.map_or_else(String::new, |tenant| format!("TENANT#{tenant}#"));
        Key::new(format!("{owner}TAG#{}", self.0), "TAG")
    }
}

/// What the tags begin with that a page has by itself: of its path, its route and its tenant.
const IMPLICIT: [&str; 4] = ["path=", "route=", "target=", "tenant="];

/// The row of a tag: everything that was generated until then is stale.
///
/// ```
/// use facetheory::protocol::Epoch;
///
/// let epoch = Epoch::at(1_700_000_000);
/// assert_eq!(Epoch::read(&epoch.to_item())?, epoch);
/// # Ok::<(), facetheory::Error>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Epoch {
    /// When the tag was invalidated last, in epoch seconds.
    pub invalidated_at: i64,
}

impl Epoch {
    /// The epoch of a tag that was last invalidated at this time, in epoch seconds.
    ///
    /// ```
    /// assert_eq!(facetheory::protocol::Epoch::at(1).invalidated_at, 1);
    /// ```
    #[must_use]
    pub fn at(invalidated_at: i64) -> Self {
        Epoch { invalidated_at }
    }

    /// The row as the table has it.
    ///
    /// ```
    /// assert!(facetheory::protocol::Epoch::read(&tabletheory::Item::new()).is_err());
    /// ```
    pub fn read(item: &Item) -> Result<Self> {
        Ok(Epoch { invalidated_at: Reader::of("TAG", item).seconds(&name::INVALIDATED_AT)? })
    }

    /// The attributes of the row, without its key.
    ///
    /// ```
    /// assert_eq!(facetheory::protocol::Epoch::at(1).to_item().len(), 1);
    /// ```
    #[must_use]
    pub fn to_item(&self) -> Item {
        let mut item = Item::new();
        item.set(name::INVALIDATED_AT.name(), self.invalidated_at);
        item
    }
}

/// How invalidations of tags reach this process, and how far clocks may differ.
///
/// ```
/// let terms = facetheory::protocol::EpochTerms::default();
/// assert_eq!((terms.max_age.as_secs(), terms.skew.as_secs()), (1, 2));
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct EpochTerms {
    /// For how long an epoch is max_age once it was read; zero reads it every time.
    pub max_age: Duration,
    /// A page that was generated so shortly after an invalidation is stale all the same: hosts' clocks differ.
    pub skew: Duration,
}

impl Default for EpochTerms {
    fn default() -> Self {
        EpochTerms { max_age: Duration::from_secs(1), skew: Duration::from_secs(2) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_has_the_tags_of_all_above_it() {
        let above = |path: &str| -> Vec<String> {
            Tag::paths_above(path).iter().map(|tag| tag.as_str().to_owned()).collect()
        };
        assert_eq!(above("/"), ["path="]);
        assert_eq!(above("/docs/a/"), ["path=", "path=/docs", "path=/docs/a"]);
        assert_eq!(above("/docsets"), ["path=", "path=/docsets"]);
        assert_eq!(above("/a//b"), ["path=", "path=/a", "path=/a//b"], "also with an empty segment");
        assert_eq!(above("/x".repeat(100).as_str()).len(), Tag::MAX_DEPTH + 1);
        assert_eq!(above(&format!("/{}", "x".repeat(2000))), ["path="]);
    }

    #[test]
    fn what_can_be_invalidated_is_what_pages_have() {
        for prefix in ["/", "/docs", "/docs/", "/docs/a", "/a/b//"] {
            let tag = Tag::path(prefix).expect("a path");
            let page = format!("{}/below/it", prefix.trim_end_matches('/'));
            assert!(Tag::paths_above(&page).contains(&tag), "{prefix}");
            assert!(Tag::paths_above(prefix).contains(&tag), "{prefix}");
        }
        let deep = "/x".repeat(33);
        assert_eq!(
            Tag::path(&deep).expect_err("too deep").to_string(),
            "a path of 33 segments cannot be invalidated with all below it; at most 32 can"
        );
    }
}
