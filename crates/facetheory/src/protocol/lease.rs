//! Leases of pages: the right to regenerate one, which row `LOCK` stands for.

use std::sync::Arc;

use tabletheory::{Commit, Timestamp, Txn, Write};

use crate::protocol::PageKey;

pub use tabletheory::LeaseTerms;

/// Whether the lease of a page was granted.
///
/// ```
/// use facetheory::protocol::Acquire;
///
/// assert_ne!(Acquire::Held { until: 1 }, Acquire::Held { until: 2 });
/// ```
pub type Acquire = tabletheory::Acquire<Lease>;

/// Whether the lease of a page was extended.
///
/// ```
/// assert_eq!(facetheory::protocol::Refresh::Lost, facetheory::protocol::Refresh::Lost);
/// ```
pub type Refresh = tabletheory::Refresh<Lease>;

/// The right to regenerate one page, until it expires or is released: a [`tabletheory::Lease`] on `LOCK`.
///
/// ```
/// use facetheory::PageKey;
/// use facetheory::protocol::{Lease, LeaseTerms};
/// use tabletheory::Timestamp;
///
/// let now = Timestamp::from_millis(1_700_000_000_250);
/// let lease = Lease::starting(PageKey::new("/")?, "token", now, &LeaseTerms::default());
/// assert_eq!((lease.page().cache_key(), lease.token()), ("/", "token"));
/// assert_eq!(lease.expires_at(), 1_700_000_009, "the expiry rounds up");
/// # Ok::<(), facetheory::Error>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Lease {
    page: Arc<PageKey>,
    row: tabletheory::Lease,
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
    /// assert_eq!(lease.expires_at(), 108);
    /// # Ok::<(), facetheory::Error>(())
    /// ```
    pub fn starting(
        page: impl Into<Arc<PageKey>>,
        token: impl Into<String>,
        now: Timestamp,
        terms: &LeaseTerms,
    ) -> Self {
        let page = page.into();
        let row = tabletheory::Lease::starting(page.lock(), token, now, terms);
        Lease { page, row }
    }

    /// The lease of a page that its `LOCK` row stands for.
    pub(crate) fn of(page: impl Into<Arc<PageKey>>, row: tabletheory::Lease) -> Self {
        Lease { page: page.into(), row }
    }

    /// The page.
    #[must_use]
    pub fn page(&self) -> &PageKey {
        &self.page
    }

    /// The token, which only the holder knows.
    #[must_use]
    pub fn token(&self) -> &str {
        self.row.token()
    }

    /// When the lease expires, in epoch seconds.
    #[must_use]
    pub fn expires_at(&self) -> i64 {
        self.row.expires_at()
    }

    /// The lease on the row `LOCK`.
    pub(crate) fn row(&self) -> &tabletheory::Lease {
        &self.row
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
        Txn::from(self.row.acquire(now, terms))
    }

    /// The result of [`acquire`](Lease::acquire), given the result of its commit.
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
        let page = self.page;
        self.row.acquired(commit).map(|row| Lease { page, row })
    }

    /// The lease for another term, and the write that extends it while it is held.
    ///
    /// ```
    /// # use facetheory::PageKey;
    /// # use facetheory::protocol::{Lease, LeaseTerms};
    /// # use tabletheory::Timestamp;
    /// let terms = LeaseTerms::default();
    /// let lease = Lease::starting(PageKey::new("/")?, "t", Timestamp::from_seconds(1), &terms);
    /// let (extended, _txn) = lease.refresh(Timestamp::from_seconds(4), &terms);
    /// assert_eq!(extended.expires_at(), 12);
    /// # Ok::<(), facetheory::Error>(())
    /// ```
    pub fn refresh(&self, now: Timestamp, terms: &LeaseTerms) -> (Lease, Txn) {
        let (row, write) = self.row.refresh(now, terms);
        (Lease { page: self.page.clone(), row }, Txn::from(write))
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
        self.row.release()
    }

    /// The write that releases the lease if it has not expired.
    pub(crate) fn release_held(&self, now: Timestamp) -> Write {
        self.row.release_held(now)
    }

    /// Whether a refusal shows that the lease is lost for good.
    pub(crate) fn is_gone(&self, txn: &Txn, commit: &Commit) -> bool {
        self.row.is_gone(txn, commit)
    }
}
