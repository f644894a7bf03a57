//! Retention: which versions of a page are deleted by garbage collection. The current version never is.

use tabletheory::{Key, Txn, Write};

use crate::protocol::{Version, attribute as name};

/// How many versions of a page are retained.
///
/// ```
/// let retention = facetheory::Retention::newest(5);
/// assert_eq!(retention.versions, 5);
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Retention {
    /// How many of the newest versions are retained, besides the current one.
    pub versions: usize,
    /// Versions that were generated before this time are not retained, in epoch seconds.
    pub oldest: Option<i64>,
}

impl Retention {
    /// Retains this many versions of each page, besides the current one, however old they are.
    ///
    /// ```
    /// assert_eq!(facetheory::Retention::newest(5).oldest, None);
    /// ```
    #[must_use]
    pub fn newest(versions: usize) -> Self {
        Retention { versions, oldest: None }
    }

    /// The sort keys of the versions that are not retained. `versions` are all versions, newest first.
    ///
    /// ```
    /// use facetheory::Retention;
    /// use facetheory::protocol::{Generation, Version};
    ///
    /// let version = |id: &str| (format!("VER#{id}"), Version::of(Generation::new("a.html", 1, 60)));
    /// let versions = [version("3"), version("2"), version("1")];
    /// assert_eq!(Retention::newest(1).superfluous(&versions, Some("VER#1")), ["VER#2"]);
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

/// Deletes a version, unless it is the current one by then: a rollback may have chosen it in the meantime.
pub(crate) fn delete_version(meta: &Key, version_sk: &str) -> Txn {
    Txn::new([
        Write::check(meta.clone(), name::CURRENT_SK.is_not(version_sk)),
        Write::delete(meta.sibling(version_sk)),
    ])
}
