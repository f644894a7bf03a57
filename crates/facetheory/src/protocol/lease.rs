//! Leases: the right to regenerate a page, granted by one conditional write.

use std::sync::Arc;
use std::time::Duration;

use tabletheory::{Commit, Cond, Timestamp, Txn, Update, Value, Write};

use crate::protocol::{Lock, PageKey, attribute as name, ttl::seconds};

/// How long leases are held.
///
/// ```
/// use std::time::Duration;
///
/// assert_eq!(facetheory::protocol::LeaseTerms::default().duration, Duration::from_secs(30));
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct LeaseTerms {
    /// How long a lease is held unless it is refreshed; at least one second.
    pub duration: Duration,
    /// How long after its expiry the row may be deleted by TTL.
    pub ttl_buffer: Duration,
    /// How long after its expiry other workers leave a lease alone, since their clocks may be ahead.
    pub skew: Duration,
    /// The name of the holder, for humans.
    pub owner: Option<String>,
}

impl LeaseTerms {
    /// The default terms, with leases of this duration.
    ///
    /// ```
    /// use facetheory::protocol::LeaseTerms;
    /// use std::time::Duration;
    ///
    /// assert_eq!(LeaseTerms::lasting(Duration::from_secs(5)).duration.as_secs(), 5);
    /// ```
    #[must_use]
    pub fn lasting(duration: Duration) -> Self {
        LeaseTerms { duration, ..LeaseTerms::default() }
    }

    /// How long a lease is held. Rows have whole seconds, so a shorter lease would be refreshed without a pause.
    pub(crate) fn term(&self) -> Duration {
        const SHORTEST: Duration = Duration::from_secs(1);
        self.duration.max(SHORTEST)
    }
}

impl Default for LeaseTerms {
    fn default() -> Self {
        LeaseTerms {
            duration: Duration::from_secs(30),
            ttl_buffer: Duration::from_secs(3600),
            skew: Duration::ZERO,
            owner: None,
        }
    }
}

/// The right to regenerate one page, until it expires or is released.
///
/// ```
/// use facetheory::PageKey;
/// use facetheory::protocol::{Lease, LeaseTerms};
/// use tabletheory::Timestamp;
///
/// let now = Timestamp::from_millis(1_700_000_000_250);
/// let lease = Lease::starting(PageKey::new("/")?, "token", now, &LeaseTerms::default());
/// assert_eq!((lease.page().cache_key(), lease.token()), ("/", "token"));
/// assert_eq!(lease.expires_at(), 1_700_000_031, "the expiry rounds up");
/// # Ok::<(), facetheory::Error>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Lease {
    page: Arc<PageKey>,
    token: String,
    expires_at: i64,
}

/// Whether a lease was granted.
///
/// ```
/// use facetheory::protocol::Acquire;
///
/// assert_ne!(Acquire::Held { until: 1 }, Acquire::Held { until: 2 });
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
#[must_use = "a lease that is not released blocks other workers until it expires"]
pub enum Acquire {
    /// The lease was granted.
    Granted(Lease),
    /// Another worker holds the lease.
    Held {
        /// Until when, in epoch seconds, unless it is refreshed or released.
        until: i64,
    },
}

/// Whether a lease was extended.
///
/// ```
/// assert_eq!(facetheory::protocol::Refresh::Lost, facetheory::protocol::Refresh::Lost);
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
#[must_use = "after a lease is lost its render can no longer be published"]
pub enum Refresh {
    /// The lease is held for another term.
    Extended(Lease),
    /// The lease expired, or another worker holds it.
    Lost,
}

impl Lease {
    /// The lease that would start now. It is held once [`acquire`](Lease::acquire) is committed.
    ///
    /// ```
    /// use facetheory::PageKey;
    /// use facetheory::protocol::{Lease, LeaseTerms};
    /// use tabletheory::Timestamp;
    ///
    /// let now = Timestamp::from_seconds(100);
    /// let lease = Lease::starting(PageKey::new("/")?, "token", now, &LeaseTerms::default());
    /// assert_eq!(lease.expires_at(), 130);
    /// # Ok::<(), facetheory::Error>(())
    /// ```
    pub fn starting(
        page: impl Into<Arc<PageKey>>,
        token: impl Into<String>,
        now: Timestamp,
        terms: &LeaseTerms,
    ) -> Self {
        Lease {
            page: page.into(),
            token: token.into(),
            expires_at: (now + terms.term()).seconds_rounded_up(),
        }
    }

    /// The page.
    #[must_use]
    pub fn page(&self) -> &PageKey {
        &self.page
    }

    /// The token, which only the holder knows.
    #[must_use]
    pub fn token(&self) -> &str {
        &self.token
    }

    /// When the lease expires, in epoch seconds.
    #[must_use]
    pub fn expires_at(&self) -> i64 {
        self.expires_at
    }

    /// Acquires the lease if nobody holds it.
    ///
    /// ```
    /// # use facetheory::PageKey;
    /// # use facetheory::protocol::{Lease, LeaseTerms};
    /// # use tabletheory::Timestamp;
    /// let (now, terms) = (Timestamp::from_seconds(100), LeaseTerms::default());
    /// let lease = Lease::starting(PageKey::new("/")?, "t", now, &terms);
    /// let txn = lease.acquire(now, &terms);
    /// let free = txn.writes()[0].condition().unwrap().to_string();
    /// assert_eq!(free, "attribute_not_exists(pk) OR lease_expires_at <= 100");
    /// # Ok::<(), facetheory::Error>(())
    /// ```
    pub fn acquire(&self, now: Timestamp, terms: &LeaseTerms) -> Txn {
        let free = name::PK.absent().or(name::LEASE_EXPIRES_AT.le((now - terms.skew).seconds()));
        Txn::from(Write::put(self.page.lock(), self.row(terms).to_item()).when(free))
    }

    /// The result of [`acquire`](Lease::acquire), given the result of its commit.
    ///
    /// A refusal that shows our own token means that an earlier attempt was applied and its response was lost: the lease is
    /// held.
    ///
    /// ```
    /// # use facetheory::PageKey;
    /// # use facetheory::protocol::{Acquire, Lease, LeaseTerms};
    /// # use tabletheory::{Commit, Timestamp};
    /// let lease = Lease::starting(PageKey::new("/")?, "t", Timestamp::from_seconds(1), &LeaseTerms::default());
    /// assert_eq!(lease.clone().acquired(Commit::Done), Acquire::Granted(lease));
    /// # Ok::<(), facetheory::Error>(())
    /// ```
    pub fn acquired(self, commit: Commit) -> Acquire {
        let seen = match commit {
            Commit::Done => return Acquire::Granted(self),
            Commit::Refused { seen, .. } => seen.map(|item| Lock::read(&item)),
        };
        match seen {
            Some(Ok(lock)) if lock.lease_token == self.token => Acquire::Granted(self),
            Some(Ok(lock)) => Acquire::Held { until: lock.lease_expires_at },
            // A row that cannot be read has no expiry either: it blocks the page until it is deleted. Trying again after
            // the term of one lease is a reasonable interval.
            Some(Err(_)) | None => Acquire::Held { until: self.expires_at },
        }
    }

    /// The lease for another term, and the write that extends it while it is held.
    ///
    /// ```
    /// # use facetheory::PageKey;
    /// # use facetheory::protocol::{Lease, LeaseTerms};
    /// # use tabletheory::Timestamp;
    /// let terms = LeaseTerms::default();
    /// let lease = Lease::starting(PageKey::new("/")?, "t", Timestamp::from_seconds(1), &terms);
    /// let (extended, _txn) = lease.refresh(Timestamp::from_seconds(11), &terms);
    /// assert_eq!(extended.expires_at(), 41);
    /// # Ok::<(), facetheory::Error>(())
    /// ```
    pub fn refresh(&self, now: Timestamp, terms: &LeaseTerms) -> (Lease, Txn) {
        let mut extended = Lease::starting(self.page.clone(), self.token.as_str(), now, terms);
        // A clock that was set back must not shorten the lease.
        extended.expires_at = extended.expires_at.max(self.expires_at);
        let update = Update::new([
            name::LEASE_EXPIRES_AT.set(extended.expires_at),
            name::TTL.set(extended.row(terms).ttl.unwrap_or(extended.expires_at)),
        ]);
        let txn = Txn::from(Write::update(self.page.lock(), update).when(self.held_at(now)));
        (extended, txn)
    }

    /// Releases the lease.
    ///
    /// ```
    /// # use facetheory::PageKey;
    /// # use facetheory::protocol::{Lease, LeaseTerms};
    /// # use tabletheory::Timestamp;
    /// let lease = Lease::starting(PageKey::new("/")?, "t", Timestamp::from_seconds(1), &LeaseTerms::default());
    /// assert_eq!(lease.release().writes()[0].condition().unwrap().to_string(), r#"lease_token = "t""#);
    /// # Ok::<(), facetheory::Error>(())
    /// ```
    pub fn release(&self) -> Txn {
        Txn::from(self.release_write())
    }

    /// The write that releases the lease, as a part of another transaction.
    pub(crate) fn release_write(&self) -> Write {
        Write::delete(self.page.lock()).when(self.is_ours())
    }

    /// The write that releases the lease if it has not expired.
    pub(crate) fn release_held(&self, now: Timestamp) -> Write {
        Write::delete(self.page.lock()).when(self.held_at(now))
    }

    /// Whether a refusal shows that the lease is lost for good: a token is granted only once.
    ///
    /// Any other refusal may come from a guard, or from an expiry that a refresh under way may still extend.
    pub(crate) fn is_gone(&self, txn: &Txn, commit: &Commit) -> bool {
        let Commit::Refused { index, seen } = commit else { return false };
        let of_lock = txn.writes().get(*index).is_some_and(|write| *write.key() == self.page.lock());
        let token = seen.as_ref().and_then(|row| row.get(name::LEASE_TOKEN.name())).and_then(Value::as_str);
        of_lock && token != Some(self.token.as_str())
    }

    /// The row has our token, expired or not.
    fn is_ours(&self) -> Cond {
        name::LEASE_TOKEN.is(self.token.as_str())
    }

    /// The row has our token, and has not expired.
    fn held_at(&self, now: Timestamp) -> Cond {
        self.is_ours().and(name::LEASE_EXPIRES_AT.gt(now.seconds()))
    }

    fn row(&self, terms: &LeaseTerms) -> Lock {
        let mut lock = Lock::new(self.token.as_str(), self.expires_at);
        lock.ttl = Some(self.expires_at.saturating_add(seconds(terms.ttl_buffer)));
        lock.owner.clone_from(&terms.owner);
        lock
    }
}
