//! History: earlier versions of a page, and the way back to them.

use std::time::Duration;

use tabletheory::{Cond, Timestamp, Txn, Update, Write};

use crate::attribute as name;
use crate::key::PageKey;
use crate::publish::changes_to;
use crate::row::{Meta, Version};

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
    pub(crate) now: Timestamp,
}

impl Rollback<'_> {
    /// Moves the pointer, and fences a render in flight, which would bring the bad page back.
    pub(crate) fn txn(&self) -> Txn {
        Txn::new([
            Write::check(self.page.meta().sibling(self.target_sk), name::PK.exists()),
            Write::update(self.page.meta(), changes_to(&self.meta()).with(name::VERSION.add(1_u64)))
                .when(is_as_read(self.seen)),
            Write::delete(self.page.lock()),
        ])
    }

    /// `META` as it will be, but for its version.
    fn meta(&self) -> Meta {
        let mut meta = Meta::of(self.target.generation.clone());
        meta.current_sk = Some(self.target_sk.to_owned());
        if !self.pin.is_zero() {
            // Readers in every language go by these two, so they hold the pin without knowing of pins.
            let seconds = i64::try_from(self.pin.as_secs()).unwrap_or(i64::MAX);
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
        None => name::VERSION.absent().and(name::S3_KEY.is(seen.generation.s3_key.as_str())),
    }
}

impl Meta {
    /// Whether it is kept as it is for now.
    ///
    /// ```
    /// use facetheory::{Generation, Meta};
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
