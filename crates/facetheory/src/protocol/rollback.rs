//! History: earlier versions of a page, and the way back to them.

use std::time::Duration;

use tabletheory::{Commit, Cond, Timestamp, Txn, Update, Write};

use crate::protocol::attribute as name;
use crate::protocol::key::PageKey;
use crate::protocol::publish::{changes_to, next_version};
use crate::protocol::row::{Meta, Version};
use crate::protocol::ttl::seconds;

/// What became of a rollback.
///
/// ```
/// assert_ne!(facetheory::RolledBack::Done, facetheory::RolledBack::NoSuchVersion);
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use = "there may be no such version"]
pub enum RolledBack {
    /// That version is served now.
    Done,
    /// The page, or that version of it, is not there (any more).
    NoSuchVersion,
}

/// The way back to a version that is kept.
pub(crate) struct Rollback<'a> {
    pub(crate) page: &'a PageKey,
    /// The sort key of the version.
    pub(crate) target_sk: &'a str,
    pub(crate) target: &'a Version,
    /// `META` as it was read.
    pub(crate) seen: &'a Meta,
    /// For how long the page is kept as it is; zero leaves it to be renewed at once.
    pub(crate) pin: Duration,
    /// When the version that was served until now may be collected, in epoch seconds.
    pub(crate) superseded_ttl: Option<i64>,
    pub(crate) now: Timestamp,
}

impl Rollback<'_> {
    /// Moves the pointer, and fences a render in flight, which would bring the bad page back.
    ///
    /// A version that is served never expires, so it loses its `ttl`, and the one before it gets one.
    pub(crate) fn txn(&self) -> Txn {
        let keep = Update::new([name::TTL.remove()]);
        let writes = [
            Write::update(self.page.meta().sibling(self.target_sk), keep).when(name::PK.exists()),
            Write::update(
                self.page.meta(),
                changes_to(self.page, &self.meta()).with(next_version(self.seen.version.is_some())),
            )
            .when(is_as_read(self.seen)),
            Write::delete(self.page.lock()),
        ];
        Txn::new(writes.into_iter().chain(self.supersede()))
    }

    fn supersede(&self) -> Option<Write> {
        let sk = self.seen.current_sk.as_deref().filter(|sk| *sk != self.target_sk)?;
        Some(expire(self.page, sk, self.superseded_ttl?))
    }

    /// `META` as it will be, but for its version.
    fn meta(&self) -> Meta {
        let mut meta = Meta::of(self.target.generation.clone());
        meta.current_sk = Some(self.target_sk.to_owned());
        if !self.pin.is_zero() {
            // Readers in every language go by these two, so they hold the pin without knowing of pins.
            let seconds = seconds(self.pin);
            meta.generation.generated_at = self.now.seconds();
            meta.generation.revalidate_seconds = seconds;
            meta.pinned_until = Some(self.now.seconds().saturating_add(seconds));
        } else {
            // The version may be young enough to be fresh, although an invalidation has come since.
            meta.generation.revalidate_seconds = 0;
            meta.stale_since = Some(self.now.seconds());
        }
        meta
    }
}

/// Lets a version be collected from a time on. It must be there: an update alone would bring it back as an empty row.
pub(crate) fn expire(page: &PageKey, version_sk: &str, ttl: i64) -> Write {
    let update = Update::new([name::TTL.set(ttl)]);
    Write::update(page.meta().sibling(version_sk), update).when(name::PK.exists())
}

/// Whether a refusal means that the version to be superseded is gone, which need not keep anyone from going on.
pub(crate) fn is_gone(page: &PageKey, seen: Option<&Meta>, txn: &Txn, commit: &Commit) -> bool {
    let Commit::Refused { index, .. } = commit else { return false };
    let current = seen.and_then(|seen| seen.current_sk.as_deref());
    let refused = txn.writes().get(*index).map(Write::key);
    current.is_some_and(|sk| refused == Some(&page.meta().sibling(sk)))
}

/// Ends a pin: the page is stale from now on.
pub(crate) fn unpin(page: &PageKey, now: Timestamp) -> Txn {
    let update = Update::new([
        name::PINNED_UNTIL.remove(),
        name::REVALIDATE_SECONDS.set(0),
        name::STALE_SINCE.set(now.seconds()),
    ]);
    Txn::from(Write::update(page.meta(), update).when(name::PINNED_UNTIL.exists()))
}

/// Nobody has moved the pointer since.
fn is_as_read(seen: &Meta) -> Cond {
    match seen.version {
        Some(version) => name::VERSION.is(version),
        // A service in another language has replaced the row: its pointer tells whether it did so again.
        None => (!name::VERSION.ge(0_u64)).and(name::S3_KEY.is(seen.generation.s3_key.as_str())),
    }
}

impl Meta {
    /// Whether it is kept as it is for now.
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
