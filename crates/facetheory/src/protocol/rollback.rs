//! Rollback to a stored version of a page.

use std::time::Duration;

use tabletheory::{Commit, Cond, Item, Timestamp, Txn, Update, Write};

use crate::protocol::{
    Meta, PageKey, SeenEpochs, Version, attribute as name, pointer,
    publish::{next_version, replace_meta},
    ttl::{after, seconds},
};

/// The result of a rollback.
///
/// ```
/// assert_ne!(facetheory::RolledBack::Done, facetheory::RolledBack::NoSuchVersion);
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use = "there may be no such version"]
pub enum RolledBack {
    /// The version is served now.
    Done,
    /// The page or the version does not exist, or no longer exists.
    NoSuchVersion,
}

/// A rollback to a stored version.
pub(crate) struct Rollback<'a> {
    pub(crate) page: &'a PageKey,
    /// The sort key of the version.
    pub(crate) target_sk: &'a str,
    pub(crate) target: &'a Version,
    /// `META` as it was read.
    pub(crate) seen: &'a Meta,
    /// How long the page is pinned; zero makes it stale at once.
    pub(crate) pin: Duration,
    /// The `ttl` of `META`, in epoch seconds.
    pub(crate) ttl: Option<i64>,
    /// The `ttl` of the version that is replaced, in epoch seconds.
    pub(crate) superseded_ttl: Option<i64>,
    /// The counts of the tags of the version now: a pin ends with a later hard invalidation of one of them, and not with an earlier
    /// one.
    pub(crate) epochs: SeenEpochs,
    pub(crate) now: Timestamp,
}

impl Rollback<'_> {
    /// Moves the pointer, and deletes the lock so that a render under way cannot publish the bad page again.
    ///
    /// A current version never expires, so the target loses its `ttl`, and the version that it replaces gets one.
    pub(crate) fn txn(&self) -> Txn {
        let without_ttl = Update::new([name::TTL.remove()]);
        let pointer = replace_meta(self.page, &self.meta()).with(next_version(self.seen.version.is_some()));
        let writes = [
            Write::update(self.page.meta().sibling(self.target_sk), without_ttl).when(name::PK.exists()),
            Write::update(self.page.meta(), pointer).when(is_as_read(self.seen)),
            Write::delete(self.page.lock()),
        ];
        Txn::new(writes.into_iter().chain(self.supersede()))
    }

    fn supersede(&self) -> Option<Write> {
        let sk = self.seen.current_sk.as_deref().filter(|sk| *sk != self.target_sk)?;
        Some(expire(self.page, sk, self.superseded_ttl?))
    }

    /// `META` as it will be, except for its version.
    fn meta(&self) -> Meta {
        let mut meta = Meta::of(self.target.generation.clone());
        meta.current_sk = Some(self.target_sk.to_owned());
        meta.expired_at = self.seen.last_hard_invalidation();
        meta.ttl = self.ttl;
        meta.used_at = self.seen.used_at.map(|_| self.now.seconds());
        if self.pin.is_zero() {
            // The version may be young enough to be fresh, although the page was invalidated since.
            meta.generation.revalidate_seconds = 0;
            meta.stale_since = Some(self.now.seconds());
        } else {
            // Readers in every language use these two attributes, so they honour the pin without knowing about pins.
            meta.generation.generated_at = self.now.seconds();
            meta.generation.epochs = Some(self.epochs.clone().of_copy_at(self.now.seconds()));
            meta.generation.revalidate_seconds = seconds(self.pin);
            meta.pinned_until = Some(after(self.now, self.pin));
        }
        meta
    }
}

/// Gives a version a `ttl`. The version must exist: the update alone would create an empty row.
pub(crate) fn expire(page: &PageKey, version_sk: &str, ttl: i64) -> Write {
    let update = Update::new([name::TTL.set(ttl)]);
    Write::update(page.meta().sibling(version_sk), update).when(name::PK.exists())
}

/// Whether a refusal means that the version to be replaced no longer exists, which need not stop the transaction.
pub(crate) fn is_gone(page: &PageKey, seen: Option<&Meta>, txn: &Txn, commit: &Commit) -> bool {
    let Commit::Refused { index, .. } = commit else { return false };
    let current = seen.and_then(|seen| seen.current_sk.as_deref());
    let refused = txn.writes().get(*index).map(Write::key);
    current.is_some_and(|sk| refused == Some(&page.meta().sibling(sk)))
}

/// Ends the pin of the page with this `META` row: it is stale from now on.
pub(crate) fn unpin(page: &PageKey, row: &Item, now: Timestamp) -> Txn {
    let update = Update::new([
        name::PINNED_UNTIL.remove(),
        name::REVALIDATE_SECONDS.set(0),
        name::STALE_SINCE.set(now.seconds()),
    ]);
    Txn::from(Write::update(page.meta(), update).when(pointer::decides_pin_as_in(row)))
}

/// The pointer has not moved since it was read.
fn is_as_read(seen: &Meta) -> Cond {
    let version = match seen.version {
        Some(version) => name::VERSION.is(version),
        // A service in another language has replaced the row.
        None => !name::VERSION.ge(0_u64),
    };
    // A row that was deleted or damaged since counts its versions from the start, so it may have the same one.
    version.and(pointer::is_as_read(seen))
}

impl Meta {
    /// Whether the page is pinned now.
    ///
    /// ```
    /// use facetheory::protocol::{Generation, Meta};
    /// use tabletheory::Timestamp;
    ///
    /// let mut meta = Meta::of(Generation::new("a.html", 1, 60));
    /// meta.pinned_until = Some(100);
    /// assert!(meta.is_pinned(Timestamp::from_seconds(99)));
    /// assert!(!meta.is_pinned(Timestamp::from_seconds(100)));
    /// ```
    #[must_use]
    pub fn is_pinned(&self, now: Timestamp) -> bool {
        self.pinned_until.is_some_and(|until| until > now.seconds())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::protocol::Generation;
    use std::time::Duration;
    use tabletheory::{MemoryTable, Table as _};

    #[tokio::test]
    async fn a_rollback_does_not_replace_a_page_that_counts_its_versions_from_the_start_again() {
        let (table, page) = (MemoryTable::new(), PageKey::new("/").expect("a page"));
        let version = |body: &str| {
            let mut meta = Meta::of(Generation::new(body, 100, 60));
            (meta.version, meta.current_sk) = (Some(1), Some(format!("VER#{body}")));
            meta
        };
        let (seen, target) = (version("seen"), Version::of(Generation::new("target", 90, 60)));
        let rollback = Rollback {
            page: &page,
            target_sk: "VER#target",
            target: &target,
            seen: &seen,
            pin: Duration::from_secs(60),
            ttl: None,
            epochs: SeenEpochs::default(),
            superseded_ttl: None,
            now: Timestamp::from_seconds(200),
        };
        for (stored, is_done) in [("later", false), ("seen", true)] {
            let rows = [
                Write::put(page.meta(), version(stored).to_item()),
                Write::put(page.version("target"), target.to_item()),
            ];
            assert!(table.commit(&Txn::new(rows)).await.expect("rows").is_done());
            let commit = table.commit(&rollback.txn()).await.expect("a result");
            assert_eq!(commit.is_done(), is_done, "{stored}");
        }
    }
}
