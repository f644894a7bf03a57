//! GcOptions: what is no longer needed goes, and what is served never does.

use tabletheory::{Key, Txn, Write};

use crate::protocol::attribute as name;
use crate::protocol::row::Version;

/// How much of a page's history is kept.
///
/// ```
/// let retention = facetheory::Retention::newest(5);
/// assert_eq!(retention.versions, 5);
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Retention {
    /// The newest so many are kept, besides the one that is served.
    pub versions: usize,
    /// Of those, ones that were generated before this are not, in epoch seconds.
    pub oldest: Option<i64>,
}

impl Retention {
    /// Retains this many versions of each page, besides the one that is served, however old they are.
    ///
    /// ```
    /// assert_eq!(facetheory::Retention::newest(5).oldest, None);
    /// ```
    #[must_use]
    pub fn newest(versions: usize) -> Self {
        Retention { versions, oldest: None }
    }

    /// The sort keys of the versions that may go, of all versions newest first.
    ///
    /// ```
    /// use facetheory::protocol::{Generation, Version};
    /// use facetheory::Retention;
    ///
    /// let version = |id: &str| {
    ///     (format!("VER#{id}"), Version::of(Generation::new("a.html", 1, 60)))
    /// };
    /// let versions = [version("3"), version("2"), version("1")];
    /// let keep_one = Retention::newest(1);
    /// assert_eq!(keep_one.superfluous(&versions, Some("VER#1")), ["VER#2"]);
    /// ```
    #[must_use]
    pub fn superfluous<'v>(
        &self,
        versions: &'v [(String, Version)],
        current_sk: Option<&str>,
    ) -> Vec<&'v str> {
        let others = versions.iter().filter(|(sk, _)| Some(sk.as_str()) != current_sk);
        others
            .enumerate()
            .filter(|(index, (_, version))| {
                let old = self.oldest.is_some_and(|oldest| version.generation.generated_at < oldest);
                *index >= self.versions || old
            })
            .map(|(_, (sk, _))| sk.as_str())
            .collect()
    }
}

/// Deletes a version, unless `META` points at it by then: a rollback may have come in between.
pub(crate) fn version(meta: &Key, version_sk: &str) -> Txn {
    Txn::new([
        Write::check(meta.clone(), name::CURRENT_SK.is_not(version_sk)),
        Write::delete(meta.sibling(version_sk)),
    ])
}
