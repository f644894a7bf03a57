//! Tags, by which pages are invalidated together.

use std::sync::{Arc, LazyLock};

use tabletheory::Key;

use crate::error::{Error, Result};
use crate::protocol::{Tenant, digest::sha256_hex};

/// A tag, by which pages are invalidated together.
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

/// Prefixes of implicit tags: those of the path, route, address and tenant of a page.
const IMPLICIT: [&str; 4] = ["path=", "route=", "target=", "tenant="];

impl Tag {
    /// The longest tag, in bytes.
    pub const MAX_BYTES: usize = 1024;
    /// The deepest path prefix that can be invalidated, in segments.
    pub const MAX_DEPTH: usize = 32;
    /// Digits of the hash in the tag of an address.
    const TARGET_DIGITS: usize = 24;

    /// The tag with this name: 1 to 1,024 bytes, without control characters.
    ///
    /// Names that begin with `path=`, `route=`, `target=` or `tenant=` are reserved for implicit tags, which every page has.
    ///
    /// ```
    /// assert!(facetheory::Tag::new("a\r\nb").is_err());
    /// assert_eq!(
    ///     facetheory::Tag::new("path=/docs").unwrap_err().to_string(),
    ///     "the tag `path=/docs` is reserved: pages have such tags implicitly; choose another name"
    /// );
    /// ```
    pub fn new(name: impl Into<String>) -> Result<Self> {
        let name = name.into();
        if IMPLICIT.iter().any(|prefix| name.starts_with(prefix)) {
            return Err(Error::invalid(format!(
                "the tag `{name}` is reserved: pages have such tags implicitly; choose another name"
            )));
        }
        Tag::checked(name)
    }

    /// The tag that a header of another product names. A name that is reserved for implicit tags gets the prefix `t:`.
    ///
    /// ```
    /// use facetheory::Tag;
    ///
    /// assert_eq!(Tag::of_header("node:1")?.as_str(), "node:1");
    /// assert_eq!(Tag::of_header("path=/docs")?.as_str(), "t:path=/docs");
    /// # Ok::<(), facetheory::Error>(())
    /// ```
    pub fn of_header(name: &str) -> Result<Self> {
        let is_reserved = IMPLICIT.iter().any(|prefix| name.starts_with(prefix));
        Tag::new(if is_reserved { format!("t:{name}") } else { name.to_owned() })
    }

    /// The tag of every page at a path or below it: `/docs` covers `/docs`, `/docs/` and `/docs/a/b`, but not `/docsets`.
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
                "a path prefix with {depth} segments cannot be invalidated; at most {} are allowed",
                Self::MAX_DEPTH
            )));
        }
        Tag::checked(["path=", path].concat())
    }

    /// The tag of every page of a route, which is named by its pattern.
    ///
    /// ```
    /// assert_eq!(facetheory::Tag::route("/posts/{slug}")?.as_str(), "route=/posts/{slug}");
    /// # Ok::<(), facetheory::Error>(())
    /// ```
    pub fn route(pattern: &str) -> Result<Self> {
        Tag::checked(["route=", pattern].concat())
    }

    /// The tag of every page of a tenant, or of every page without a tenant.
    ///
    /// ```
    /// use facetheory::{Tag, Tenant};
    ///
    /// assert_eq!(Tag::everything().key(Some(&Tenant::new("acme")?)).pk, "TENANT#acme#TAG#tenant=");
    /// # Ok::<(), facetheory::Error>(())
    /// ```
    #[must_use]
    pub fn everything() -> Self {
        static EVERYTHING: LazyLock<Tag> = LazyLock::new(|| Tag("tenant=".into()));
        EVERYTHING.clone()
    }

    /// The tag of a page and all its variants. `primary` is the cache key of the page.
    pub(crate) fn target(primary: &str) -> Self {
        Tag(format!("target={}", &sha256_hex(primary.as_bytes())[..Self::TARGET_DIGITS]).into())
    }

    /// The path tags of a page: of its path, and of every path above it.
    ///
    /// A path that is too deep or too long has the tags of its upper part: no other path prefix can be invalidated.
    pub(crate) fn paths_above(path: &str) -> Vec<Tag> {
        let path = path.trim_end_matches('/');
        let ends = path.match_indices('/').map(|(index, _)| index).chain([path.len()]);
        let tag = |end: usize| Tag::path(if end == 0 { "/" } else { &path[..end] }).ok();
        let mut tags: Vec<Tag> = ends.take(Self::MAX_DEPTH + 1).filter_map(tag).collect();
        tags.dedup();
        tags
    }

    fn checked(name: String) -> Result<Self> {
        Error::check_length("a tag", &name, Self::MAX_BYTES)?;
        // Most names are plain ASCII, which is checked faster.
        let is_plain = name.bytes().fold(true, |is_plain, byte| is_plain & matches!(byte, b' '..=b'~'));
        if !is_plain && let Some(bad) = name.chars().find(|c| c.is_control()) {
            return Err(Error::invalid(format!(
                "a tag contains the character {bad:?}; control characters are not allowed"
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

    /// The key of the epoch row of this tag, for a tenant or for pages without one.
    ///
    /// ```
    /// assert_eq!(facetheory::Tag::new("news")?.key(None).sk, "TAG");
    /// # Ok::<(), facetheory::Error>(())
    /// ```
    #[must_use]
    pub fn key(&self, tenant: Option<&Tenant>) -> Key {
        // A tenant contains no `#`, so no tag can make the key of one tenant look like the key of another.
        let prefix = Tenant::prefix(tenant);
        Key::new([prefix.as_str(), "TAG#", &self.0].concat(), "TAG")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_page_has_the_tags_of_all_paths_above_it() {
        let above = |path: &str| -> Vec<String> {
            Tag::paths_above(path).iter().map(|tag| tag.as_str().to_owned()).collect()
        };
        assert_eq!(above("/"), ["path="]);
        assert_eq!(above("/docs/a/"), ["path=", "path=/docs", "path=/docs/a"]);
        assert_eq!(above("/docsets"), ["path=", "path=/docsets"]);
        assert_eq!(above("/a//b"), ["path=", "path=/a", "path=/a//b"], "an empty segment counts");
        assert_eq!(above("/x".repeat(100).as_str()).len(), Tag::MAX_DEPTH + 1);
        assert_eq!(above(&format!("/{}", "x".repeat(2000))), ["path="]);
    }

    #[test]
    fn every_path_tag_that_can_be_invalidated_is_a_tag_of_the_pages_below() {
        for prefix in ["/", "/docs", "/docs/", "/docs/a", "/a/b//"] {
            let tag = Tag::path(prefix).expect("a path");
            let page = format!("{}/below/it", prefix.trim_end_matches('/'));
            assert!(Tag::paths_above(&page).contains(&tag), "{prefix}");
            assert!(Tag::paths_above(prefix).contains(&tag), "{prefix}");
        }
        let deep = "/x".repeat(33);
        assert_eq!(
            Tag::path(&deep).expect_err("too deep").to_string(),
            "a path prefix with 33 segments cannot be invalidated; at most 32 are allowed"
        );
    }
}
