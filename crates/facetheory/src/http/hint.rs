//! Caching instructions of a service in the same process.

use std::time::Duration;

use crate::protocol::tag::Tag;

/// Says how a response is cached: put it into the extensions of the response.
///
/// It does not override `no-store`, `private` or `Set-Cookie`: a response with one of them is not cached because of a hint.
///
/// ```
/// use facetheory::{CacheHint, Tag};
/// use std::time::Duration;
///
/// let mut response = http::Response::new("<h1>News</h1>");
/// response.extensions_mut().insert(CacheHint::new().fresh_for(Duration::from_secs(5)).tag(Tag::new("news")?));
/// # Ok::<(), facetheory::Error>(())
/// ```
#[must_use]
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CacheHint {
    pub(crate) fresh_for: Option<Duration>,
    pub(crate) tags: Vec<Tag>,
    pub(crate) never_cached: bool,
}

impl CacheHint {
    /// Creates a hint without instructions.
    ///
    /// ```
    /// assert_eq!(facetheory::CacheHint::new(), facetheory::CacheHint::default());
    /// ```
    pub fn new() -> Self {
        CacheHint::default()
    }

    /// Sets how long the page is fresh, instead of `s-maxage` of the response or the interval of the policy.
    ///
    /// It has no effect on routes that [follow the origin](crate::Route::follow_origin): there, only headers count.
    ///
    /// ```
    /// let hint = facetheory::CacheHint::new().fresh_for(std::time::Duration::from_secs(5));
    /// assert_ne!(hint, facetheory::CacheHint::new());
    /// ```
    pub fn fresh_for(mut self, time: Duration) -> Self {
        self.fresh_for = Some(time);
        self
    }

    /// Adds a tag to the page.
    ///
    /// ```
    /// use facetheory::{CacheHint, Tag};
    ///
    /// assert_ne!(CacheHint::new().tag(Tag::new("news")?), CacheHint::new());
    /// # Ok::<(), facetheory::Error>(())
    /// ```
    pub fn tag(mut self, tag: Tag) -> Self {
        self.tags.push(tag);
        self
    }

    /// Forbids caching the response: it is for one client alone.
    ///
    /// ```
    /// assert_ne!(facetheory::CacheHint::new().never_cached(), facetheory::CacheHint::new());
    /// ```
    pub fn never_cached(mut self) -> Self {
        self.never_cached = true;
        self
    }
}
