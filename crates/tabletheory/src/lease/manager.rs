//! Acquires, refreshes and releases leases on a table.

use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;

use super::{Acquire, Lease, LeaseTerms, Refresh, expiry};
use crate::clock::Timestamp;
use crate::error::{Error, Kind, Result};
use crate::item::{Item, Key};
use crate::query::Consistency;
use crate::random::{Random, SystemRandom};
use crate::table::Table;
use crate::table_ext::TableExt as _;
use crate::txn::{ClientToken, Commit, Txn, Write};

/// How many puts, each with a token of its own, one acquisition sends if their responses are lost.
const MAX_TOKENS: usize = 2;
/// How often a lease is refreshed within its term.
const HEARTBEATS_PER_TERM: u32 = 3;

/// Leases for any keys of a table. The clock is that of the table.
///
/// No write waits for a local disk ([`Txn::without_sync`]): the holders of leases in an embedded table are processes of one
/// machine, and do not survive its failure either.
///
/// ```
/// use std::sync::Arc;
/// use std::time::Duration;
/// use tabletheory::{Acquire, Key, LeaseManager, LeaseTerms, ManualClock, MemoryTable, Timestamp};
///
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> tabletheory::Result<()> {
/// let clock = Arc::new(ManualClock::at(Timestamp::from_seconds(1_700_000_000)));
/// let table = Arc::new(MemoryTable::with_clock(clock.clone()));
/// let leases = LeaseManager::new(table).with_terms(LeaseTerms::lasting(Duration::from_secs(10)));
///
/// let key = Key::new("JOB#nightly", "LOCK");
/// let Acquire::Granted(lease) = leases.acquire(&key).await? else { panic!("nobody else holds it") };
/// assert_eq!(leases.acquire(&key).await?, Acquire::Held { until: 1_700_000_010 });
///
/// leases.release(&lease).await?;
/// assert!(matches!(leases.acquire(&key).await?, Acquire::Granted(_)));
/// # Ok(()) }
/// ```
#[derive(Clone, Debug)]
pub struct LeaseManager {
    table: Arc<dyn Table>,
    random: Arc<dyn Random>,
    terms: LeaseTerms,
}

impl LeaseManager {
    /// Creates a manager of leases in this table, with default terms.
    ///
    /// ```
    /// use std::sync::Arc;
    ///
    /// let leases = tabletheory::LeaseManager::new(Arc::new(tabletheory::MemoryTable::new()));
    /// ```
    pub fn new(table: Arc<dyn Table>) -> Self {
        LeaseManager { table, random: Arc::new(SystemRandom), terms: LeaseTerms::default() }
    }

    /// Sets how long leases are held.
    ///
    /// ```
    /// use std::{sync::Arc, time::Duration};
    /// use tabletheory::{LeaseManager, LeaseTerms, MemoryTable};
    ///
    /// let terms = LeaseTerms::lasting(Duration::from_secs(5));
    /// let leases = LeaseManager::new(Arc::new(MemoryTable::new())).with_terms(terms);
    /// ```
    #[must_use]
    pub fn with_terms(mut self, terms: LeaseTerms) -> Self {
        self.terms = terms;
        self
    }

    /// Sets the source of tokens, for tests.
    ///
    /// ```
    /// use std::sync::Arc;
    /// use tabletheory::{LeaseManager, MemoryTable, SeededRandom};
    ///
    /// let leases = LeaseManager::new(Arc::new(MemoryTable::new())).with_random(Arc::new(SeededRandom::new(1)));
    /// ```
    #[must_use]
    pub fn with_random(mut self, random: Arc<dyn Random>) -> Self {
        self.random = random;
        self
    }

    /// Acquires a lease if nobody holds it: one conditional put, which returns the row of the holder if it is refused.
    ///
    /// A put has no client token, which would double its price on DynamoDB, so each token is sent **once**. A put that was sent
    /// twice could arrive a second time after its lease was released, used up, or deleted to stop its holder, and bring the
    /// lease back to life: its former holder could then write as if it had never been stopped.
    ///
    /// If the response is lost, the row is read back. Our token in it is a granted lease: its only put was applied, and cannot
    /// arrive again. Otherwise the put may still arrive, so its token is given up, and the next attempt has a new one. Such a
    /// late put is harmless: its condition holds only if no lease is in force, nobody writes under its token, and it expires
    /// when its lease would have, counted from when it was sent. The row is released if this method gives up altogether.
    ///
    /// ```
    /// # use std::sync::Arc;
    /// # use tabletheory::{Acquire, Key, LeaseManager, MemoryTable};
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> tabletheory::Result<()> {
    /// let leases = LeaseManager::new(Arc::new(MemoryTable::new()));
    /// assert!(matches!(leases.acquire(&Key::new("JOB#1", "LOCK")).await?, Acquire::Granted(_)));
    /// # Ok(()) }
    /// ```
    pub async fn acquire(&self, key: &Key) -> Result<Acquire> {
        let mut sent: Vec<Lease> = Vec::new();
        let unknown = loop {
            let now = self.now();
            let lease = Lease::starting(key.clone(), self.new_token(), now, &self.terms);
            let put = Txn::from(lease.acquire(now, &self.terms)).without_sync();
            sent.push(lease.clone());
            let error = match (*self.table).commit(&put).await {
                Ok(commit) => {
                    let seen = if let Commit::Refused { seen, .. } = &commit { seen.as_ref() } else { None };
                    return Ok(granted_to(&sent, seen).unwrap_or_else(|| lease.acquired(commit)));
                }
                Err(error) if error.kind() == Kind::Unknown => error,
                // The first put was not applied.
                Err(error) if sent.len() == 1 => return Err(error),
                Err(error) => break error,
            };
            let Ok(row) = self.table.get(key, Consistency::Strong).await else { break error };
            if let Some(granted) = granted_to(&sent, row.as_ref()) {
                return Ok(granted);
            }
            let held = |until: &i64| *until > (self.now() - self.terms.skew).seconds();
            if let Some(until) = expiry(row.as_ref()).filter(held) {
                return Ok(Acquire::Held { until });
            }
            if sent.len() >= MAX_TOKENS {
                break error;
            }
        };
        self.give_up(key, &sent).await;
        let what = "it is unknown whether the lease was acquired, so it was given up; try again";
        Err(Error::new(Kind::Unavailable, what).caused_by(unknown))
    }

    /// Extends a lease for another term.
    ///
    /// ```
    /// # use std::sync::Arc;
    /// # use tabletheory::{Acquire, Key, LeaseManager, MemoryTable, Refresh};
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> tabletheory::Result<()> {
    /// # let leases = LeaseManager::new(Arc::new(MemoryTable::new()));
    /// let Acquire::Granted(lease) = leases.acquire(&Key::new("JOB#1", "LOCK")).await? else { panic!("it is free") };
    /// assert!(matches!(leases.refresh(&lease).await?, Refresh::Extended(_)));
    /// leases.release(&lease).await?;
    /// assert_eq!(leases.refresh(&lease).await?, Refresh::Lost);
    /// # Ok(()) }
    /// ```
    pub async fn refresh(&self, lease: &Lease) -> Result<Refresh> {
        let (extended, write) = lease.refresh(self.now(), &self.terms);
        // A retry sets the same expiry again, so it needs no client token.
        Ok(match (*self.table).commit_until_known(&Txn::from(write).without_sync()).await? {
            Commit::Done => Refresh::Extended(extended),
            Commit::Refused { .. } => Refresh::Lost,
        })
    }

    /// Releases a lease. It is not an error if the lease was lost before.
    ///
    /// ```
    /// # use std::sync::Arc;
    /// # use tabletheory::{Acquire, Key, LeaseManager, MemoryTable};
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> tabletheory::Result<()> {
    /// # let leases = LeaseManager::new(Arc::new(MemoryTable::new()));
    /// let Acquire::Granted(lease) = leases.acquire(&Key::new("JOB#1", "LOCK")).await? else { panic!("it is free") };
    /// leases.release(&lease).await?;
    /// leases.release(&lease).await?;
    /// # Ok(()) }
    /// ```
    pub async fn release(&self, lease: &Lease) -> Result<()> {
        (*self.table).commit_until_known(&Txn::from(lease.release()).without_sync()).await.map(|_| ())
    }

    /// Refreshes a lease three times in each term until it is lost. Returns only then, and no later than the lease expires
    /// even if the table does not respond to a refresh.
    ///
    /// Run it beside the work that needs the lease, and stop the work if it returns first:
    ///
    /// ```
    /// # use std::sync::Arc;
    /// # use tabletheory::{Acquire, Key, LeaseManager, MemoryTable};
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> tabletheory::Result<()> {
    /// # let leases = LeaseManager::new(Arc::new(MemoryTable::new()));
    /// # let work = async { 7 };
    /// let Acquire::Granted(lease) = leases.acquire(&Key::new("JOB#1", "LOCK")).await? else { panic!("it is free") };
    /// let done = tokio::select! {
    ///     biased;
    ///     done = work => Some(done),
    ///     () = leases.heartbeat(&lease) => None,
    /// };
    /// assert_eq!(done, Some(7));
    /// # Ok(()) }
    /// ```
    pub async fn heartbeat(&self, lease: &Lease) {
        let mut lease = lease.clone();
        let mut expiry = Instant::now() + self.time_left(&lease);
        loop {
            let pause = self.terms.term() / HEARTBEATS_PER_TERM;
            tokio::time::sleep_until(expiry.min(Instant::now() + pause)).await;
            let began = Instant::now();
            match tokio::time::timeout_at(expiry, self.refresh(&lease)).await {
                Ok(Ok(Refresh::Extended(extended))) => {
                    lease = extended;
                    expiry = began + self.terms.term();
                }
                Ok(Ok(Refresh::Lost)) => return,
                // The next heartbeat may succeed before the lease expires.
                Ok(Err(error)) if Instant::now() < expiry && self.now().seconds() < lease.expires_at() => {
                    crate::warn_limited!(%error, "a lease could not be refreshed");
                }
                Ok(Err(_)) => return,
                Err(_) => {
                    crate::warn_limited!(
                        "a lease has expired: the table did not respond to its refresh in time"
                    );
                    return;
                }
            }
        }
    }

    /// How long a lease that was just granted is held, at most a term: a clock that was set back makes no lease last longer.
    fn time_left(&self, lease: &Lease) -> Duration {
        let millis = lease.expires_at().saturating_mul(1000).saturating_sub(self.now().millis());
        Duration::from_millis(u64::try_from(millis).unwrap_or(0)).min(self.terms.term())
    }

    fn now(&self) -> Timestamp {
        self.table.clock().now()
    }

    /// A token for one attempt to acquire a lease.
    fn new_token(&self) -> String {
        ClientToken::random(&*self.random).as_str().to_owned()
    }

    /// Releases the row if one of these leases is in it. A put that arrives later still expires by itself.
    async fn give_up(&self, key: &Key, sent: &[Lease]) {
        let Some(ours) = sent.iter().map(Lease::is_ours).reduce(|ours, other| ours.or(other)) else { return };
        let release = Txn::from(Write::delete(key.clone()).when(ours));
        if let Err(error) = self.table.commit(&release).await {
            tracing::debug!(%error, "a lease that was given up could not be released; it expires by itself");
        }
    }
}

/// The lease in a row, if it is one of these: its put was sent once and was applied, so it cannot arrive again.
fn granted_to(sent: &[Lease], row: Option<&Item>) -> Option<Acquire> {
    sent.iter().find(|lease| lease.is_in(row)).cloned().map(Acquire::Granted)
}
