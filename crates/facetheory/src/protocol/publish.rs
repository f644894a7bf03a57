//! Publishing: what a render produced becomes what everyone is served, in one transaction, or not at all.
//!
//! The lease is checked by its own conditional delete: a transaction may name a row only once.

use tabletheory::{Change, Cond, Item, Key, Timestamp, Txn, Update, Value, Write};

use crate::protocol::attribute as name;
use crate::protocol::generation::Generation;
use crate::protocol::key::PageKey;
use crate::protocol::lease::Lease;
use crate::protocol::request::Claim;
use crate::protocol::rollback;
use crate::protocol::row::{Meta, Version};

/// Which generations of a page are kept.
///
/// ```
/// assert_ne!(facetheory::History::Latest, facetheory::History::Versions);
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum History {
    /// The latest alone: `META` is replaced.
    Latest,
    /// Earlier ones too: each has a row, and `META` points at one of them.
    Versions,
}

/// How a publish ended.
///
/// ```
/// assert_ne!(facetheory::protocol::Published::Done, facetheory::protocol::Published::Lost);
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use = "a lost lease means that nothing was published"]
pub enum Published {
    /// It is what everyone is served now.
    Done,
    /// The lease was lost, or a guard refused: nothing was written.
    Lost,
    /// Its answer was lost, and the page has changed or vanished since: whether it was served meanwhile is not known.
    Superseded,
}

/// Which conditions a publish must meet besides the lease's token, which alone makes it safe.
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
    /// What is published was generated later than what is served.
    pub newer: bool,
}

impl Default for Guards {
    fn default() -> Self {
        Guards { not_expired: true, version: false, newer: false }
    }
}

/// What is to be published, under which lease.
///
/// ```
/// use facetheory::protocol::{Generation, Lease, LeaseTerms, Publication};
/// use facetheory::PageKey;
/// use tabletheory::Timestamp;
///
/// let now = Timestamp::from_seconds(1_700_000_000);
/// let lease = Lease::starting(PageKey::new("/")?, "t", now, &LeaseTerms::default());
/// let page = Generation::new("isr/0/1-a.html", now.seconds(), 60);
/// let publication = Publication::new(&lease, &page, now);
/// assert_eq!(publication.in_place().writes().len(), 2);
/// # Ok::<(), facetheory::Error>(())
/// ```
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct Publication<'a> {
    /// The right to publish.
    pub lease: &'a Lease,
    /// What was rendered.
    pub page: &'a Generation,
    /// `META` as it was read after the lease was taken.
    pub seen: Option<&'a Meta>,
    /// When `META` may be collected, in epoch seconds.
    pub ttl: Option<i64>,
    /// When the version that was served until now may be collected, in epoch seconds.
    pub superseded_ttl: Option<i64>,
    /// The request that it finishes, if it was made for one.
    pub request: Option<&'a Claim>,
    /// The conditions.
    pub guards: Guards,
    /// The time of the attempt; a repetition keeps it.
    pub now: Timestamp,
}

impl<'a> Publication<'a> {
    /// The first publication of a page, with the default guards and without any `ttl`.
    ///
    /// ```
    /// # use facetheory::protocol::{Generation, Lease, LeaseTerms, Publication};
    /// # use facetheory::PageKey;
    /// # use tabletheory::Timestamp;
    /// # let now = Timestamp::from_seconds(1_700_000_000);
    /// # let lease = Lease::starting(PageKey::new("/")?, "t", now, &LeaseTerms::default());
    /// # let page = Generation::new("isr/0/1-a.html", now.seconds(), 60);
    /// assert_eq!(Publication::new(&lease, &page, now).ttl, None);
    /// # Ok::<(), facetheory::Error>(())
    /// ```
    #[must_use]
    pub fn new(lease: &'a Lease, page: &'a Generation, now: Timestamp) -> Self {
        let guards = Guards::default();
        Publication { lease, page, seen: None, ttl: None, superseded_ttl: None, request: None, guards, now }
    }

    /// Recipe A: one `META`, replaced.
    ///
    /// ```
    /// # use facetheory::protocol::{Generation, Lease, LeaseTerms, Publication};
    /// # use facetheory::PageKey;
    /// # use tabletheory::Timestamp;
    /// # let now = Timestamp::from_seconds(1_700_000_000);
    /// # let lease = Lease::starting(PageKey::new("/")?, "t", now, &LeaseTerms::default());
    /// # let page = Generation::new("isr/0/1-a.html", now.seconds(), 60);
    /// let publication = Publication::new(&lease, &page, now);
    /// let txn = publication.in_place();
    /// let rows: Vec<&str> = txn.writes().iter().map(|write| write.key().sk.as_str()).collect();
    /// assert_eq!(rows, ["META", "LOCK"]);
    /// # Ok::<(), facetheory::Error>(())
    /// ```
    pub fn in_place(&self) -> Txn {
        let mut meta = Meta::of(self.page.clone());
        meta.ttl = self.ttl;
        meta.mark = Some(self.lease.token().to_owned());
        // A page that once had versions goes on counting, so that no version is ever used twice.
        meta.version = self.seen.and_then(|seen| seen.version).map(|version| version + 1);
        let mut item = meta.to_item();
        for (attr, text) in self.lease.page().told() {
            item.set(attr.name(), text);
        }
        let put = Write::put(self.lease.page().meta(), item);
        let writes = [self.guarded(put), self.give_back()];
        self.finished(writes.into_iter().chain(self.supersede()), &self.page.s3_key)
    }

    /// Recipe B: one more version, `META` pointed at it.
    ///
    /// ```
    /// # use facetheory::protocol::{Generation, Lease, LeaseTerms, Publication};
    /// # use facetheory::PageKey;
    /// # use tabletheory::Timestamp;
    /// # let now = Timestamp::from_seconds(1_700_000_000);
    /// # let lease = Lease::starting(PageKey::new("/")?, "t", now, &LeaseTerms::default());
    /// # let page = Generation::new("isr/0/1-a.html", now.seconds(), 60);
    /// let publication = Publication::new(&lease, &page, now);
    /// let txn = publication.versioned("01HF7YAT00TTTTTTTTTTTTTTTT");
    /// let rows: Vec<&str> = txn.writes().iter().map(|write| write.key().sk.as_str()).collect();
    /// assert_eq!(rows, ["VER#01HF7YAT00TTTTTTTTTTTTTTTT", "META", "LOCK"]);
    /// # Ok::<(), facetheory::Error>(())
    /// ```
    pub fn versioned(&self, id: &str) -> Txn {
        let key = self.lease.page().version(id);
        let version = Version { generation: self.page.clone(), ttl: None };
        let mut meta = Meta::of(self.page.clone());
        meta.ttl = self.ttl;
        meta.mark = Some(self.lease.token().to_owned());
        meta.current_sk = Some(key.sk.clone());
        let counts = self.seen.is_none_or(|seen| seen.version.is_some());
        let pointer = changes_to(self.lease.page(), &meta).with(next_version(counts));
        let writes = [
            Write::put(key, version.to_item()).when(name::PK.absent()),
            self.guarded(Write::update(self.lease.page().meta(), pointer)),
            self.give_back(),
        ];
        self.finished(writes.into_iter().chain(self.supersede()), &self.page.s3_key)
    }

    /// The body is the one that is served already: its times move, and what is told of it, but not the pointer.
    ///
    /// Its version, where there is one, goes on telling how it was first published. Guarded by the pointer that was
    /// read, so that it cannot renew what somebody else has published meanwhile.
    ///
    /// ```
    /// # use facetheory::protocol::{Generation, Lease, LeaseTerms, Meta, Publication};
    /// # use facetheory::PageKey;
    /// # use tabletheory::Timestamp;
    /// # let now = Timestamp::from_seconds(1_700_000_000);
    /// # let lease = Lease::starting(PageKey::new("/")?, "t", now, &LeaseTerms::default());
    /// # let page = Generation::new("isr/0/1-a.html", now.seconds(), 60);
    /// let seen = Meta::of(page.clone());
    /// let mut publication = Publication::new(&lease, &page, now);
    /// publication.seen = Some(&seen);
    /// let txn = publication.unchanged(&seen);
    /// assert_eq!(txn.writes()[0].condition().unwrap().to_string(), r#"s3_key = "isr/0/1-a.html""#);
    /// # Ok::<(), facetheory::Error>(())
    /// ```
    pub fn unchanged(&self, current: &Meta) -> Txn {
        let mut meta =
            Meta::of(Generation { s3_key: current.generation.s3_key.clone(), ..self.page.clone() });
        meta.ttl = self.ttl;
        meta.mark = Some(self.lease.token().to_owned());
        meta.current_sk = current.current_sk.clone();
        let update = Write::update(self.lease.page().meta(), changes_to(self.lease.page(), &meta))
            .when(name::S3_KEY.is(current.generation.s3_key.as_str()));
        self.finished([self.guarded(update), self.give_back()], &current.generation.s3_key)
    }

    /// The version that was served until now may be collected some day: a current one never expires.
    fn supersede(&self) -> Option<Write> {
        let (sk, ttl) = (self.seen?.current_sk.as_deref()?, self.superseded_ttl?);
        Some(rollback::expire(self.lease.page(), sk, ttl))
    }

    /// The transaction of these writes, with the end of the request that it was made for.
    fn finished(&self, writes: impl IntoIterator<Item = Write>, s3_key: &str) -> Txn {
        let request = self.request.map(|claim| claim.complete(s3_key));
        Txn::new(writes.into_iter().chain(request))
    }

    /// The guards that concern `META`.
    fn guarded(&self, write: Write) -> Write {
        let mut conds = Vec::new();
        if self.guards.version {
            conds.push(match self.seen.and_then(|seen| seen.version) {
                Some(version) => name::VERSION.is(version),
                // Nothing, or nothing that counts.
                None => !name::VERSION.ge(0_u64),
            });
        }
        if self.guards.newer {
            conds.push(name::PK.absent().or(name::GENERATED_AT.lt(self.page.generated_at)));
        }
        conds.into_iter().fold(write, Write::when)
    }

    fn give_back(&self) -> Write {
        let held: Cond =
            if self.guards.not_expired { self.lease.held_at(self.now) } else { self.lease.is_ours() };
        Write::delete(self.lease.page().lock()).when(held)
    }
}

/// What `META` says of a publish whose lock is gone.
pub(crate) fn judge(lease: &Lease, page: &Generation, seen: Option<&Meta>, now: Option<&Meta>) -> Published {
    match now {
        Some(meta) if meta.mark.as_deref() == Some(lease.token()) => Published::Done,
        // A service in another language may have dropped our mark, but not the pointer.
        Some(meta)
            if meta.generation.s3_key == page.s3_key
                && seen.is_none_or(|seen| seen.generation.s3_key != page.s3_key) =>
        {
            Published::Done
        }
        // No page before and none now: it may have been published and collected in between.
        Some(meta) if Some(meta) == seen => Published::Lost,
        _ => Published::Superseded,
    }
}

/// One version more, or the first one where the row that was read does not count, or not in numbers.
pub(crate) fn next_version(counts: bool) -> Change {
    if counts { name::VERSION.add(1_u64) } else { name::VERSION.set(1_u64) }
}

/// The update that makes a row so, whatever it was before: what is absent is removed.
pub(crate) fn changes_to(page: &PageKey, meta: &Meta) -> Update {
    /// Everything that a `META` of ours may have, but for the version, which only ever rises.
    const ATTRIBUTES: [&str; 18] = [
        "s3_key",
        "generated_at",
        "revalidate_seconds",
        "etag",
        "ttl",
        "current_sk",
        "http_status",
        "content_type",
        "headers",
        "digest",
        "tags",
        "deployment",
        "initial_age",
        "variant",
        "stale_since",
        "must_not_serve",
        "pinned_until",
        "mark",
    ];
    let item: Item = meta.to_item();
    let change = |name: &'static str| -> Change {
        let attr = tabletheory::Attr::<Value>::new(name);
        match item.get(name) {
            Some(value) => attr.set(value.clone()),
            None => attr.remove(),
        }
    };
    let told = page.told().map(|(attr, text)| attr.set(text));
    Update::new(ATTRIBUTES.into_iter().map(change).chain(told))
}

impl Meta {
    /// Whether a render came out with the body that is served already.
    pub(crate) fn has_the_body_of(&self, page: &Generation) -> bool {
        let served = &self.generation.content.digest;
        served.is_some() && *served == page.content.digest
    }
}

impl PageKey {
    /// The key of a version.
    ///
    /// ```
    /// let page = facetheory::PageKey::new("/")?;
    /// assert_eq!(page.version("01").sk, "VER#01");
    /// # Ok::<(), facetheory::Error>(())
    /// ```
    #[must_use]
    pub fn version(&self, id: &str) -> Key {
        Key::new(self.pk(), format!("VER#{id}"))
    }
}
