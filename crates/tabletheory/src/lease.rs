//! Leases: mutual exclusion for any row key, granted by one conditional put.
//!
//! The functions of [`Lease`] are pure: they build the writes and decide what their results mean. [`LeaseManager`] executes
//! them on a table.

mod manager;

use std::time::Duration;

pub use self::manager::LeaseManager;
use crate::attr::Attr;
use crate::clock::Timestamp;
use crate::cond::Cond;
use crate::item::{Item, Key, PK, TTL};
use crate::txn::{Commit, Txn, Write};
use crate::update::Update;
use crate::value::Value;

const TOKEN: Attr<String> = Attr::new("lease_token");
const EXPIRES_AT: Attr<i64> = Attr::new("lease_expires_at");
/// The name of the holder; only humans read it.
const OWNER: &str = "owner";

/// The default duration. A holder that dies blocks the others for this long, and for up to a second more because the expiry
/// rounds up. It leaves time for two more attempts to refresh a lease while the table takes seconds to respond.
const DURATION: Duration = Duration::from_secs(8);

/// How long leases are held.
///
/// ```
/// use std::time::Duration;
///
/// assert_eq!(tabletheory::LeaseTerms::default().duration, Duration::from_secs(8));
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
    /// use std::time::Duration;
    /// use tabletheory::LeaseTerms;
    ///
    /// assert_eq!(LeaseTerms::lasting(Duration::from_secs(5)).duration.as_secs(), 5);
    /// ```
    #[must_use]
    pub fn lasting(duration: Duration) -> Self {
        LeaseTerms { duration, ..LeaseTerms::default() }
    }

    /// Returns how long a lease is held. Rows have whole seconds, so a shorter lease would be refreshed without a pause.
    ///
    /// ```
    /// use std::time::Duration;
    /// use tabletheory::LeaseTerms;
    ///
    /// assert_eq!(LeaseTerms::lasting(Duration::ZERO).term(), Duration::from_secs(1));
    /// ```
    #[must_use]
    pub fn term(&self) -> Duration {
        const SHORTEST: Duration = Duration::from_secs(1);
        self.duration.max(SHORTEST)
    }
}

impl Default for LeaseTerms {
    fn default() -> Self {
        LeaseTerms {
            duration: DURATION,
            ttl_buffer: Duration::from_secs(3600),
            skew: Duration::ZERO,
            owner: None,
        }
    }
}

/// The exclusive right that the row with this key stands for, until it expires or is released.
///
/// The row has the attributes `lease_token`, `lease_expires_at` and `ttl`, as in the other languages of TableTheory.
///
/// ```
/// use tabletheory::{Key, Lease, LeaseTerms, Timestamp};
///
/// let now = Timestamp::from_millis(1_700_000_000_250);
/// let lease = Lease::starting(Key::new("JOB#1", "LOCK"), "token", now, &LeaseTerms::default());
/// assert_eq!((lease.key().pk.as_str(), lease.token()), ("JOB#1", "token"));
/// assert_eq!(lease.expires_at(), 1_700_000_009, "the expiry rounds up");
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Lease {
    key: Key,
    token: String,
    expires_at: i64,
}

/// Whether a lease was granted.
///
/// ```
/// use tabletheory::{Acquire, Lease};
///
/// assert_ne!(Acquire::<Lease>::Held { until: 1 }, Acquire::Held { until: 2 });
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
#[must_use = "a lease that is not released blocks other workers until it expires"]
pub enum Acquire<L = Lease> {
    /// The lease was granted.
    Granted(L),
    /// Another worker holds the lease.
    Held {
        /// Until when, in epoch seconds, unless it is refreshed or released.
        until: i64,
    },
}

impl<L> Acquire<L> {
    /// Converts the lease, if one was granted.
    ///
    /// ```
    /// use tabletheory::Acquire;
    ///
    /// assert_eq!(Acquire::Granted(1).map(|number| number + 1), Acquire::Granted(2));
    /// ```
    pub fn map<M>(self, convert: impl FnOnce(L) -> M) -> Acquire<M> {
        match self {
            Acquire::Granted(lease) => Acquire::Granted(convert(lease)),
            Acquire::Held { until } => Acquire::Held { until },
        }
    }
}

/// Whether a lease was extended.
///
/// ```
/// use tabletheory::{Lease, Refresh};
///
/// assert_eq!(Refresh::<Lease>::Lost, Refresh::Lost);
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
#[must_use = "a holder that lost its lease must stop"]
pub enum Refresh<L = Lease> {
    /// The lease is held for another term.
    Extended(L),
    /// The lease expired, or another worker holds it.
    Lost,
}

impl<L> Refresh<L> {
    /// Converts the lease, if it was extended.
    ///
    /// ```
    /// use tabletheory::Refresh;
    ///
    /// assert_eq!(Refresh::Extended(1).map(|number| number + 1), Refresh::Extended(2));
    /// ```
    pub fn map<M>(self, convert: impl FnOnce(L) -> M) -> Refresh<M> {
        match self {
            Refresh::Extended(lease) => Refresh::Extended(convert(lease)),
            Refresh::Lost => Refresh::Lost,
        }
    }
}

impl Lease {
    /// The lease that would start now. It is held once the write of [`acquire`](Lease::acquire) is applied.
    ///
    /// ```
    /// use tabletheory::{Key, Lease, LeaseTerms, Timestamp};
    ///
    /// let now = Timestamp::from_seconds(100);
    /// let lease = Lease::starting(Key::new("JOB#1", "LOCK"), "token", now, &LeaseTerms::default());
    /// assert_eq!(lease.expires_at(), 108);
    /// ```
    pub fn starting(key: Key, token: impl Into<String>, now: Timestamp, terms: &LeaseTerms) -> Self {
        Lease { key, token: token.into(), expires_at: (now + terms.term()).seconds_rounded_up() }
    }

    /// Returns the key of the row.
    #[must_use]
    pub fn key(&self) -> &Key {
        &self.key
    }

    /// Returns the token, which only the holder knows.
    #[must_use]
    pub fn token(&self) -> &str {
        &self.token
    }

    /// Returns when the lease expires, in epoch seconds.
    #[must_use]
    pub fn expires_at(&self) -> i64 {
        self.expires_at
    }

    /// The write that acquires the lease if nobody holds it.
    ///
    /// Send it once for each token. [`LeaseManager::acquire`] explains why, and what to do if the response is lost.
    ///
    /// ```
    /// # use tabletheory::{Key, Lease, LeaseTerms, Timestamp};
    /// let (now, terms) = (Timestamp::from_seconds(100), LeaseTerms::default());
    /// let put = Lease::starting(Key::new("JOB#1", "LOCK"), "t", now, &terms).acquire(now, &terms);
    /// assert_eq!(put.condition().unwrap().to_string(), "attribute_not_exists(pk) OR lease_expires_at <= 100");
    /// ```
    pub fn acquire(&self, now: Timestamp, terms: &LeaseTerms) -> Write {
        let free = Attr::<String>::new(PK).absent().or(EXPIRES_AT.le((now - terms.skew).seconds()));
        let mut row = Item::from([
            (TOKEN.name(), Value::from(self.token.as_str())),
            (EXPIRES_AT.name(), self.expires_at.into()),
            (TTL, self.ttl(terms).into()),
        ]);
        if let Some(owner) = terms.owner.as_deref().filter(|owner| !owner.is_empty()) {
            row.set(OWNER, owner);
        }
        Write::put(self.key.clone(), row).when(free)
    }

    /// The result of [`acquire`](Lease::acquire), given the result of its commit.
    ///
    /// A refusal that shows our own token means that this attempt was applied and its response was lost: the lease is held.
    ///
    /// ```
    /// # use tabletheory::{Acquire, Commit, Key, Lease, LeaseTerms, Timestamp};
    /// let lease = Lease::starting(Key::new("JOB#1", "LOCK"), "t", Timestamp::from_seconds(1), &LeaseTerms::default());
    /// assert_eq!(lease.clone().acquired(Commit::Done), Acquire::Granted(lease));
    /// ```
    pub fn acquired(self, commit: Commit) -> Acquire {
        let seen = match commit {
            Commit::Done => return Acquire::Granted(self),
            Commit::Refused { seen, .. } => seen,
        };
        if self.is_in(seen.as_ref()) {
            return Acquire::Granted(self);
        }
        // A row without an expiry blocks the lease until it is deleted. Trying again after one term is a reasonable interval.
        Acquire::Held { until: expiry(seen.as_ref()).unwrap_or(self.expires_at) }
    }

    /// The lease for another term, and the write that extends it while it is held.
    ///
    /// ```
    /// # use tabletheory::{Key, Lease, LeaseTerms, Timestamp};
    /// let terms = LeaseTerms::default();
    /// let lease = Lease::starting(Key::new("JOB#1", "LOCK"), "t", Timestamp::from_seconds(1), &terms);
    /// let (extended, _write) = lease.refresh(Timestamp::from_seconds(4), &terms);
    /// assert_eq!(extended.expires_at(), 12);
    /// ```
    pub fn refresh(&self, now: Timestamp, terms: &LeaseTerms) -> (Lease, Write) {
        let mut extended = Lease::starting(self.key.clone(), self.token.as_str(), now, terms);
        // A clock that was set back must not shorten the lease.
        extended.expires_at = extended.expires_at.max(self.expires_at);
        let ttl = Attr::<i64>::new(TTL).set(extended.ttl(terms));
        let update = Update::new([EXPIRES_AT.set(extended.expires_at), ttl]);
        let write = Write::update(self.key.clone(), update).when(self.held_at(now));
        (extended, write)
    }

    /// The write that releases the lease, expired or not.
    ///
    /// ```
    /// # use tabletheory::{Key, Lease, LeaseTerms, Timestamp};
    /// let lease = Lease::starting(Key::new("JOB#1", "LOCK"), "t", Timestamp::from_seconds(1), &LeaseTerms::default());
    /// assert_eq!(lease.release().condition().unwrap().to_string(), r#"lease_token = "t""#);
    /// ```
    pub fn release(&self) -> Write {
        Write::delete(self.key.clone()).when(self.is_ours())
    }

    /// The write that releases the lease if it has not expired: the last write of a transaction that needs the lease.
    ///
    /// ```
    /// # use tabletheory::{Key, Lease, LeaseTerms, Timestamp};
    /// let now = Timestamp::from_seconds(1);
    /// let lease = Lease::starting(Key::new("JOB#1", "LOCK"), "t", now, &LeaseTerms::default());
    /// let condition = lease.release_held(now).condition().unwrap().to_string();
    /// assert_eq!(condition, r#"lease_token = "t" AND lease_expires_at > 1"#);
    /// ```
    pub fn release_held(&self, now: Timestamp) -> Write {
        Write::delete(self.key.clone()).when(self.held_at(now))
    }

    /// The check that the lease is held, for a transaction that needs the lease and does not release it.
    ///
    /// ```
    /// use tabletheory::{Acquire, Item, Key, LeaseManager, MemoryTable, Table, Txn, Write};
    /// use std::sync::Arc;
    ///
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> tabletheory::Result<()> {
    /// let table = Arc::new(MemoryTable::new());
    /// let leases = LeaseManager::new(table.clone());
    /// let Acquire::Granted(lease) = leases.acquire(&Key::new("JOB#1", "LOCK")).await? else { panic!("it is free") };
    /// let progress = || Write::put(Key::new("JOB#1", "PROGRESS"), Item::new());
    ///
    /// let guarded = Txn::new([progress(), lease.guard(table.clock().now())]);
    /// assert!(table.commit(&guarded).await?.is_done());
    ///
    /// leases.release(&lease).await?;
    /// assert!(table.commit(&guarded).await?.is_refused(), "the lease is no longer held");
    /// # Ok(()) }
    /// ```
    pub fn guard(&self, now: Timestamp) -> Write {
        Write::check(self.key.clone(), self.held_at(now))
    }

    /// Whether a refusal shows that the lease is lost for good: a token is granted only once.
    ///
    /// Any other refusal may come from another condition, or from an expiry that a refresh under way may still extend.
    ///
    /// ```
    /// # use tabletheory::{Commit, Key, Lease, LeaseTerms, Timestamp, Txn};
    /// let lease = Lease::starting(Key::new("JOB#1", "LOCK"), "t", Timestamp::from_seconds(1), &LeaseTerms::default());
    /// let release = Txn::from(lease.release());
    /// assert!(lease.is_gone(&release, &Commit::Refused { index: 0, seen: None }));
    /// assert!(!lease.is_gone(&release, &Commit::Done));
    /// ```
    #[must_use]
    pub fn is_gone(&self, txn: &Txn, commit: &Commit) -> bool {
        let Commit::Refused { index, seen } = commit else { return false };
        let of_this_row = txn.writes().get(*index).is_some_and(|write| *write.key() == self.key);
        of_this_row && !self.is_in(seen.as_ref())
    }

    /// Whether a row has the token of this lease.
    fn is_in(&self, row: Option<&Item>) -> bool {
        row.and_then(|row| row.get(TOKEN.name())).and_then(Value::as_str) == Some(&self.token)
    }

    /// The row has our token, expired or not.
    fn is_ours(&self) -> Cond {
        TOKEN.is(self.token.as_str())
    }

    /// The row has our token, and has not expired.
    fn held_at(&self, now: Timestamp) -> Cond {
        self.is_ours().and(EXPIRES_AT.gt(now.seconds()))
    }

    fn ttl(&self, terms: &LeaseTerms) -> i64 {
        let buffer = i64::try_from(terms.ttl_buffer.as_secs()).unwrap_or(i64::MAX);
        self.expires_at.saturating_add(buffer)
    }
}

/// When the lease in a row expires. A fraction, as JavaScript sometimes writes it, is cut off.
fn expiry(row: Option<&Item>) -> Option<i64> {
    row?.get(EXPIRES_AT.name())?.as_number().map(|number| number.whole())
}
