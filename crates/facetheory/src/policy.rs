//! How a page is renewed.

use std::time::Duration;

use crate::store::Keep;

/// How a page is renewed.
///
/// ```
/// use facetheory::{Keep, Policy};
/// use std::time::Duration;
///
/// let policy = Policy::every(Duration::from_secs(60)).keeping(Keep::Versions);
/// assert_eq!(policy.revalidate, Duration::from_secs(60));
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Policy {
    /// For how long a render is fresh.
    pub revalidate: Duration,
    /// Which generations are kept.
    pub keep: Keep,
}

impl Policy {
    /// Fresh for this long after a render; only the latest is kept.
    ///
    /// ```
    /// use std::time::Duration;
    ///
    /// assert_eq!(facetheory::Policy::every(Duration::from_secs(5)).revalidate.as_secs(), 5);
    /// ```
    #[must_use]
    pub fn every(revalidate: Duration) -> Self {
        Policy { revalidate, keep: Keep::Latest }
    }

    /// The same, keeping these generations.
    ///
    /// ```
    /// use facetheory::{Keep, Policy};
    /// use std::time::Duration;
    ///
    /// assert_eq!(Policy::every(Duration::ZERO).keeping(Keep::Versions).keep, Keep::Versions);
    /// ```
    #[must_use]
    pub fn keeping(mut self, keep: Keep) -> Self {
        self.keep = keep;
        self
    }
}
