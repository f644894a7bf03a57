//! Leases: who may renew a page, decided by one conditional write.

use std::sync::Arc;
use std::time::Duration;

use tabletheory::{Commit, Cond, Timestamp, Txn, Update, Value, Write};

use crate::protocol::attribute as name;
use crate::protocol::key::PageKey;
use crate::protocol::row::Lock;
use crate::protocol::ttl::seconds;

/// For how long leases are given.
///
/// ```
/// use std::time::Duration;
///
/// assert_eq!(facetheory::protocol::LeaseTerms::default().duration, Duration::from_secs(30));
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct LeaseTerms {
    /// How long a lease is held unless it is refreshed; less than a second counts as one.
    pub duration: Duration,
    /// How much longer the row stays before it may be collected.
    pub ttl_buffer: Duration,
    /// How much longer than its expiry others leave a lease alone, since their clocks may be ahead.
    pub skew: Duration,
    /// Who takes them, for people to read.
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

    /// How long a lease is held: rows tell whole seconds, so a shorter one would be refreshed without a pause.
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

/// The right to renew one page, until it expires or is given back.
///
/// ```
/// use facetheory::protocol::{Lease, LeaseTerms};
/// use facetheory::PageKey;
/// use tabletheory::Timestamp;
///
/// let now = Timestamp::from_millis(1_700_000_000_250);
/// let lease = Lease::starting(PageKey::new("/")?, "token", now, &LeaseTerms::default());
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
/// assert_ne!(facetheory::protocol::Acquire::Held { until: 1 }, facetheory::protocol::Acquire::Held { until: 2 });
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
#[must_use = "a lease that is not released keeps others waiting until it expires"]
pub enum Acquire {
    /// It is yours.
    Granted(Lease),
    /// Somebody else has it.
    Held {
        /// Until when, in epoch seconds, unless it is refreshed or given back.
        until: i64,
    },
}

/// Whether a lease could be kept.
///
/// ```
/// assert_eq!(facetheory::protocol::Refresh::Lost, facetheory::protocol::Refresh::Lost);
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
#[must_use = "a lost lease means that the render is in vain"]
pub enum Refresh {
    /// It is held until later.
    Extended(Lease),
    /// Somebody else has it, or it has expired.
    Lost,
}

impl Lease {
    /// The lease that would start now; it is held once [`acquire`](Lease::acquire) is committed.
    ///
    /// ```
    /// use facetheory::protocol::{Lease, LeaseTerms};
    /// use facetheory::PageKey;
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
    ///
    /// ```
    /// # use facetheory::protocol::{Lease, LeaseTerms};
    /// # use facetheory::PageKey;
    /// # use tabletheory::Timestamp;
    /// let lease = Lease::starting(PageKey::new("/")?, "t", Timestamp::from_seconds(1), &LeaseTerms::default());
    /// assert_eq!(lease.page().cache_key(), "/");
    /// # Ok::<(), facetheory::Error>(())
    /// ```
    #[must_use]
    pub fn page(&self) -> &PageKey {
        &self.page
    }

    /// What only its holder knows.
    ///
    /// ```
    /// # use facetheory::protocol::{Lease, LeaseTerms};
    /// # use facetheory::PageKey;
    /// # use tabletheory::Timestamp;
    /// let lease = Lease::starting(PageKey::new("/")?, "t", Timestamp::from_seconds(1), &LeaseTerms::default());
    /// assert_eq!(lease.token(), "t");
    /// # Ok::<(), facetheory::Error>(())
    /// ```
    #[must_use]
    pub fn token(&self) -> &str {
        &self.token
    }

    /// When it ends, in epoch seconds.
    ///
    /// ```
    /// # use facetheory::protocol::{Lease, LeaseTerms};
    /// # use facetheory::PageKey;
    /// # use tabletheory::Timestamp;
    /// let lease = Lease::starting(PageKey::new("/")?, "t", Timestamp::from_seconds(1), &LeaseTerms::default());
    /// assert_eq!(lease.expires_at(), 31);
    /// # Ok::<(), facetheory::Error>(())
    /// ```
    #[must_use]
    pub fn expires_at(&self) -> i64 {
        self.expires_at
    }

    /// Takes it, if nobody holds it.
    ///
    /// ```
    /// # use facetheory::protocol::{Lease, LeaseTerms};
    /// # use facetheory::PageKey;
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

    /// What the commit of [`acquire`](Lease::acquire) means.
    ///
    /// A refusal that shows our own token comes from an attempt whose answer was lost: the lease is ours.
    ///
    /// ```
    /// # use facetheory::protocol::{Acquire, Lease, LeaseTerms};
    /// # use facetheory::PageKey;
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
            // A row that cannot be read has no expiry either: it is in the way until somebody deletes it, and
            // looking again after one lease is the least that helps.
            Some(Err(_)) | None => Acquire::Held { until: self.expires_at },
        }
    }

    /// The same lease from now on, and the write that makes it so while it is still held.
    ///
    /// ```
    /// # use facetheory::protocol::{Lease, LeaseTerms};
    /// # use facetheory::PageKey;
    /// # use tabletheory::Timestamp;
    /// let terms = LeaseTerms::default();
    /// let lease = Lease::starting(PageKey::new("/")?, "t", Timestamp::from_seconds(1), &terms);
    /// let (longer, _txn) = lease.refresh(Timestamp::from_seconds(11), &terms);
    /// assert_eq!(longer.expires_at(), 41);
    /// # Ok::<(), facetheory::Error>(())
    /// ```
    pub fn refresh(&self, now: Timestamp, terms: &LeaseTerms) -> (Lease, Txn) {
        let mut longer = Lease::starting(self.page.clone(), self.token.as_str(), now, terms);
        // A clock that was put back must not give away what is held already.
        longer.expires_at = longer.expires_at.max(self.expires_at);
        let update = Update::new([
            name::LEASE_EXPIRES_AT.set(longer.expires_at),
            name::TTL.set(longer.row(terms).ttl.unwrap_or(longer.expires_at)),
        ]);
        let txn = Txn::from(Write::update(self.page.lock(), update).when(self.held_at(now)));
        (longer, txn)
    }

    /// Gives it back.
    ///
    /// ```
    /// # use facetheory::protocol::{Lease, LeaseTerms};
    /// # use facetheory::PageKey;
    /// # use tabletheory::Timestamp;
    /// let lease = Lease::starting(PageKey::new("/")?, "t", Timestamp::from_seconds(1), &LeaseTerms::default());
    /// assert_eq!(lease.release().writes()[0].condition().unwrap().to_string(), r#"lease_token = "t""#);
    /// # Ok::<(), facetheory::Error>(())
    /// ```
    pub fn release(&self) -> Txn {
        Txn::from(Write::delete(self.page.lock()).when(self.is_ours()))
    }

    /// Whether a refusal shows that the lock is not ours: then it never will be again, since a token is granted once.
    ///
    /// Any other refusal may rest on a guard, or on an expiry that a refresh under way can still put off.
    pub(crate) fn is_gone(&self, txn: &Txn, commit: &Commit) -> bool {
        let Commit::Refused { index, seen } = commit else { return false };
        let of_lock = txn.writes().get(*index).is_some_and(|write| *write.key() == self.page.lock());
        let token = seen.as_ref().and_then(|row| row.get(name::LEASE_TOKEN.name())).and_then(Value::as_str);
        of_lock && token != Some(self.token.as_str())
    }

    /// The row is ours, expired or not.
    pub(crate) fn is_ours(&self) -> Cond {
        name::LEASE_TOKEN.is(self.token.as_str())
    }

    /// The row is ours, and has not expired.
    pub(crate) fn held_at(&self, now: Timestamp) -> Cond {
        self.is_ours().and(name::LEASE_EXPIRES_AT.gt(now.seconds()))
    }

    fn row(&self, terms: &LeaseTerms) -> Lock {
        Lock {
            lease_token: self.token.clone(),
            lease_expires_at: self.expires_at,
            ttl: Some(self.expires_at.saturating_add(seconds(terms.ttl_buffer))),
            owner: terms.owner.clone(),
        }
    }
}
