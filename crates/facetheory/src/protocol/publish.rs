//! Publishing: one transaction makes a render the page that is served, or changes nothing.
//!
//! The lease is verified by its own conditional delete: a transaction may name a row only once.

use std::time::Duration;

use tabletheory::{Attr, Change, Timestamp, Txn, Update, Value, Write};

use crate::protocol::{
    Claim, Generation, Lease, Meta, PageKey, Version, attribute as name, pointer, rollback,
    row::codec::Row as _,
    ttl::{after, seconds},
    version_id::is_version_of,
};

/// Which generations of a page are stored.
///
/// ```
/// assert_ne!(facetheory::History::Latest, facetheory::History::Versions);
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum History {
    /// Only the latest: each publish replaces `META`. If `META` points at a version, because another service publishes
    /// versions of the page, the pointer is moved to a new version instead.
    Latest,
    /// Earlier ones too: each has a `VER#` row, and `META` points at one of them.
    Versions,
}

/// The result of a publish.
///
/// ```
/// assert_ne!(facetheory::protocol::Published::Done, facetheory::protocol::Published::Lost);
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use = "a lost lease means that nothing was published"]
pub enum Published {
    /// The render is now the page that is served.
    Done,
    /// The lease was lost, or a guard failed: nothing was written.
    Lost,
    /// The response was lost, and the page has changed or was deleted since: the render may have been served for a while.
    Superseded,
}

impl Published {
    /// The result of a publish whose response was lost and whose lock is gone, given `META` before and after it.
    pub(crate) fn resolve(
        lease: &Lease,
        page: &Generation,
        before: Option<&Meta>,
        after: Option<&Meta>,
    ) -> Self {
        let is_new = |key: &str| before.is_none_or(|before| before.generation.s3_key != *key);
        match after {
            Some(meta) if meta.mark.as_deref() == Some(lease.token()) => Published::Done,
            // A service in another language may have removed our mark, but not the pointer.
            Some(meta) if meta.generation.s3_key == page.s3_key && is_new(&page.s3_key) => Published::Done,
            Some(meta) if Some(meta) == before => Published::Lost,
            // If there was no page before and there is none now, it may have been published and deleted in between.
            _ => Published::Superseded,
        }
    }
}

/// Conditions of a publish besides the token of the lease, which alone makes it safe.
///
/// ```
/// let guards = facetheory::protocol::Guards::default();
/// assert!(guards.not_expired && !guards.version && !guards.newer);
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Guards {
    /// The lease has not expired.
    pub not_expired: bool,
    /// `META` has the version that was read before.
    pub version: bool,
    /// The new generation has a later `generated_at` than the current one.
    pub newer: bool,
}

impl Default for Guards {
    fn default() -> Self {
        Guards { not_expired: true, version: false, newer: false }
    }
}

/// A render to be published under a lease.
///
/// ```
/// use facetheory::PageKey;
/// use facetheory::protocol::{Generation, Lease, LeaseTerms, Meta, Publication};
/// use tabletheory::{Timestamp, Txn};
///
/// let now = Timestamp::from_seconds(1_700_000_000);
/// let lease = Lease::starting(PageKey::new("/")?, "t", now, &LeaseTerms::default());
/// let page = Generation::new("isr/0/1-a.html", now.seconds(), 60);
/// let publication = Publication::new(&lease, &page, now);
///
/// let rows = |txn: Txn| txn.writes().iter().map(|write| write.key().sk.clone()).collect::<Vec<_>>();
/// assert_eq!(rows(publication.in_place()), ["META", "LOCK"]);
/// assert_eq!(rows(publication.versioned("01HF7YAT00")), ["VER#01HF7YAT00", "META", "LOCK"]);
///
/// let current = Meta::of(page.clone());
/// let txn = publication.unchanged(&current);
/// assert_eq!(txn.writes()[0].condition().unwrap().to_string(), r#"s3_key = "isr/0/1-a.html""#);
/// # Ok::<(), facetheory::Error>(())
/// ```
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct Publication<'a> {
    /// The right to publish.
    pub lease: &'a Lease,
    /// The render.
    pub page: &'a Generation,
    /// `META` as it was read after the lease was acquired.
    pub seen: Option<&'a Meta>,
    /// The `ttl` of `META`, in epoch seconds.
    pub ttl: Option<i64>,
    /// When the page was last used, in epoch seconds: now, or absent.
    pub used_at: Option<i64>,
    /// If there was no page: generations up to this time, in epoch seconds, may have been deleted, and invalidated after that.
    /// A process that still has one in memory must not serve it in place of this one.
    pub first_after: Option<i64>,
    /// The `ttl` of the version that is replaced, in epoch seconds.
    pub superseded_ttl: Option<i64>,
    /// The request that the publish completes, if there is one.
    pub request: Option<&'a Claim>,
    /// The conditions.
    pub guards: Guards,
    /// The time of the attempt. A retry has the same time.
    pub now: Timestamp,
}

impl<'a> Publication<'a> {
    /// The first publication of a page, with the default guards and without a `ttl`.
    #[must_use]
    pub fn new(lease: &'a Lease, page: &'a Generation, now: Timestamp) -> Self {
        let guards = Guards::default();
        Publication {
            lease,
            page,
            seen: None,
            ttl: None,
            used_at: None,
            first_after: None,
            superseded_ttl: None,
            request: None,
            guards,
            now,
        }
    }

    /// Recipe A: replaces `META`.
    pub fn in_place(&self) -> Txn {
        let mut meta = self.meta(self.page.clone());
        // A page that once had versions continues to count, so that no version number is used twice.
        meta.version = self.seen.and_then(|seen| seen.version).map(|version| version + 1);
        let mut item = meta.to_item();
        for (attr, text) in self.lease.page().descriptions() {
            item.set(attr.name(), text);
        }
        let put = Write::put(self.lease.page().meta(), item);
        let writes = [self.guarded(put), self.release()];
        self.finished(writes.into_iter().chain(self.supersede()), &self.page.s3_key)
    }

    /// Recipe B: adds a `VER#` row with this id, and points `META` at it.
    pub fn versioned(&self, id: &str) -> Txn {
        let key = self.lease.page().version(id);
        let mut meta = self.meta(self.page.clone());
        meta.current_sk = Some(key.sk.clone());
        let counts = self.seen.is_some_and(|seen| seen.version.is_some());
        let pointer = replace_meta(self.lease.page(), &meta).with(next_version(counts));
        let writes = [
            Write::put(key, Version::of(self.page.clone()).to_item()).when(name::PK.absent()),
            self.guarded(Write::update(self.lease.page().meta(), pointer)),
            self.release(),
        ];
        self.finished(writes.into_iter().chain(self.supersede()), &self.page.s3_key)
    }

    /// The body is the current one: the times and headers of `META` change, but not its pointer.
    ///
    /// The `VER#` row, if there is one, still describes the first publish of the body. The write is guarded by the pointer that
    /// was read, so it cannot refresh what another worker published in the meantime.
    pub fn unchanged(&self, current: &Meta) -> Txn {
        let s3_key = &current.generation.s3_key;
        let update = Write::update(self.lease.page().meta(), self.moved_times(current))
            .when(pointer::is_as_read(current));
        self.finished([self.guarded(update), self.release()], s3_key)
    }

    /// The update of `META` that leaves the pointer where it was read.
    pub(crate) fn moved_times(&self, current: &Meta) -> Update {
        let s3_key = current.generation.s3_key.clone();
        let mut meta = self.meta(Generation { s3_key, ..self.page.clone() });
        meta.current_sk.clone_from(&current.current_sk);
        replace_meta(self.lease.page(), &meta)
    }

    /// The transaction that publishes. `version_id` is the id of a new version, if the page has versions.
    pub(crate) fn txn(&self, history: History, version_id: &str) -> Txn {
        // The same body under a new key replaces one that was missing, so the pointer has to move.
        match self.seen.filter(|seen| seen.generation.s3_key == self.page.s3_key) {
            Some(current) => self.unchanged(current),
            None if history == History::Versions => self.versioned(version_id),
            // Readers of the service that wrote the pointer follow it, so a put of `META` would take the page from them.
            None if self.seen.is_some_and(|seen| seen.current_sk.is_some()) => self.pointed(version_id),
            None => self.in_place(),
        }
    }

    /// Recipe B for a page of which no history is stored: the version that is replaced expires soon if it is one of ours.
    fn pointed(&self, id: &str) -> Txn {
        /// As long as gc retains a body that was replaced, by default.
        const DAY: Duration = Duration::from_secs(86_400);
        let is_own = self.seen.is_some_and(Meta::is_own_version);
        let soon = if is_own { after(self.now, DAY) } else { i64::MAX };
        let superseded_ttl = self.superseded_ttl.map(|ttl| ttl.min(soon));
        Publication { superseded_ttl, ..*self }.versioned(id)
    }

    /// `META` as it will be.
    fn meta(&self, generation: Generation) -> Meta {
        let mut meta = Meta::of(generation);
        (meta.ttl, meta.used_at) = (self.ttl, self.used_at);
        meta.mark = Some(self.lease.token().to_owned());
        meta.expired_at = match self.seen {
            Some(seen) => seen.last_hard_invalidation(),
            None => self.first_after,
        };
        meta
    }

    /// Gives the version that is replaced a `ttl`. A current version has none.
    fn supersede(&self) -> Option<Write> {
        let (sk, ttl) = (self.seen?.current_sk.as_deref()?, self.superseded_ttl?);
        Some(rollback::expire(self.lease.page(), sk, ttl))
    }

    /// The transaction of these writes, which also completes the request.
    fn finished(&self, writes: impl IntoIterator<Item = Write>, s3_key: &str) -> Txn {
        let request = self.request.map(|claim| claim.complete(s3_key));
        Txn::new(writes.into_iter().chain(request))
    }

    /// Adds the guards that concern `META`.
    pub(crate) fn guarded(&self, write: Write) -> Write {
        let mut conds = Vec::new();
        if self.guards.version {
            conds.push(match self.seen.and_then(|seen| seen.version) {
                Some(version) => name::VERSION.is(version),
                // The attribute is absent, or not a number.
                None => !name::VERSION.ge(0_u64),
            });
        }
        if self.guards.newer {
            conds.push(name::PK.absent().or(name::GENERATED_AT.lt(self.page.generated_at)));
        }
        conds.into_iter().fold(write, Write::when)
    }

    fn release(&self) -> Write {
        if self.guards.not_expired { self.lease.release_held(self.now) } else { self.lease.release_write() }
    }
}

/// Adds 1 to the version, or sets it to 1 if the row that was read has no version that is a number.
pub(crate) fn next_version(counts: bool) -> Change {
    if counts { name::VERSION.add(1_u64) } else { name::VERSION.set(1_u64) }
}

/// The update that makes `META` this row: every attribute that the row can have is set, or removed if the row lacks it.
/// Only `version` is left out, which is never removed, and attributes of other languages.
pub(crate) fn replace_meta(page: &PageKey, meta: &Meta) -> Update {
    let mut changes = Vec::new();
    meta.visit(&mut |attribute, value| {
        if attribute != name::VERSION.name() {
            let attribute = Attr::<Value>::named(attribute);
            changes.push(value.map_or_else(|| attribute.remove(), |value| attribute.set(value)));
        }
    });
    Update::new(changes.into_iter().chain(page.descriptions().map(|(attr, text)| attr.set(text))))
}

impl Meta {
    /// Whether the current version was published by this implementation, as far as its id shows.
    fn is_own_version(&self) -> bool {
        self.current_sk.as_deref().is_some_and(|sk| is_version_of(sk, &self.generation.s3_key))
    }

    /// Whether another service has published this page, which then belongs to no deployment. Our own rows have a mark; a
    /// rollback removes it, but their versions have a digest.
    fn is_foreign(&self) -> bool {
        self.mark.is_none() && self.generation.content.digest.is_none()
    }

    /// Whether another deployment than this one has rendered the page.
    pub(crate) fn is_of_other_deployment(&self, ours: &str) -> bool {
        match self.generation.content.deployment.as_deref() {
            Some(deployment) => deployment != ours,
            None => !self.is_foreign(),
        }
    }

    /// When the page was last hard invalidated, in epoch seconds.
    pub(crate) fn last_hard_invalidation(&self) -> Option<i64> {
        if self.must_not_serve { self.stale_since } else { self.expired_at }
    }

    /// Whether an earlier generation may have been hard invalidated before this one was published. Unless this
    /// implementation has published the row, that is unknown.
    pub(crate) fn may_have_expired(&self, earlier: &Generation, skew: Duration) -> bool {
        let until = self.expired_at.map(|at| at.saturating_add(seconds(skew)));
        self.mark.is_none() || until.is_some_and(|until| earlier.generated_at <= until)
    }

    /// Whether a render has the body of the current generation.
    pub(crate) fn has_same_body(&self, page: &Generation) -> bool {
        let current = &self.generation.content.digest;
        current.is_some() && *current == page.content.digest
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::protocol::SeenEpochs;
    use tabletheory::{Consistency, MemoryTable, Table as _};

    /// `META` with a value in every attribute that it can have.
    fn full() -> Meta {
        let text = || Some("x".to_owned());
        let mut meta = Meta::of(Generation::new("a.html", 1, 60));
        meta.generation.etag = text();
        meta.generation.epochs = Some(SeenEpochs::of_render_at(1));
        meta.generation.content = crate::protocol::Content {
            status: Some(200),
            content_type: text(),
            headers: vec![("a".into(), "b".into())],
            digest: text(),
            tags: vec!["news".into()],
            deployment: text(),
            initial_age: Some(1),
            variant: text(),
        };
        Meta {
            ttl: Some(1),
            used_at: Some(1),
            current_sk: text(),
            version: Some(7),
            stale_since: Some(1),
            must_not_serve: true,
            expired_at: Some(1),
            pinned_until: Some(1),
            mark: text(),
            ..meta
        }
    }

    #[tokio::test]
    async fn an_update_removes_every_attribute_that_the_new_row_lacks() {
        let (table, page) = (MemoryTable::new(), PageKey::new("/").expect("a page"));
        let mut item = full().to_item();
        let mut possible = 0;
        full().visit(&mut |attribute, value| {
            possible += 1;
            assert!(value.is_some(), "the row of this test has no {attribute}");
        });
        assert_eq!(item.len(), possible);
        item.set("theirs", "of another language");
        let plain = Meta::of(Generation::new("b.html", 2, 30));
        for write in [Write::put(page.meta(), item), Write::update(page.meta(), replace_meta(&page, &plain))]
        {
            assert!(table.commit(&Txn::from(write)).await.expect("a write").is_done());
        }
        let row = table.get(&page.meta(), Consistency::Strong).await.expect("a read").expect("a row");
        let left: Vec<&str> = row.iter().map(|(attribute, _)| attribute).collect();
        let expected =
            ["cache_key", "generated_at", "pk", "revalidate_seconds", "s3_key", "sk", "theirs", "version"];
        assert_eq!(left, expected);
    }
}
