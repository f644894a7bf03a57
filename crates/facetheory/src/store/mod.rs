//! The rows of pages in a table: the steps of a regeneration, for those who bring their own loop.
//!
//! Decisions are pure functions in the other modules; this is the one place that carries them out.

mod epochs;
mod listing;
mod publish;
mod request;
mod version;
mod versions;

use std::sync::Arc;
use std::time::Duration;

use tabletheory::{ClientToken, Commit, Query, Random, SystemRandom, Table, Txn};

pub use listing::{Entry, Listed, Listing};

use self::epochs::KnownEpochs;
use crate::error::{Error, Kind, Result};
use crate::protocol::epoch::EpochTerms;
use crate::protocol::key::PageKey;
use crate::protocol::lease::LeaseTerms;
use crate::protocol::publish::Guards;
use crate::protocol::request::RequestTerms;
use crate::protocol::row::{Lock, Meta, View};
use crate::protocol::ttl::Ttls;

/// How often a decision is made again because rows have moved since they were read.
const ROUNDS: u32 = 16;
/// How often a write whose outcome is unknown is repeated before it is resolved by reading back.
const ATTEMPTS: u32 = 3;

/// Pages in a table, and the leases to renew them.
///
/// ```
/// use facetheory::protocol::{Acquire, Generation, Published};
/// use facetheory::{History, PageKey, PageStore};
/// use std::sync::Arc;
/// use tabletheory::MemoryTable;
///
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> facetheory::Result<()> {
/// let store = PageStore::new(Arc::new(MemoryTable::new()));
/// let page = PageKey::new("/about")?;
/// let Acquire::Granted(lease) = store.try_acquire(&page).await? else { panic!("nobody else is there") };
/// assert!(matches!(store.try_acquire(&page).await?, Acquire::Held { .. }));
///
/// let seen = store.lookup(&page).await?.meta;
/// let rendered = Generation::new("isr/0/1-a.html", store.now().seconds(), 60);
/// let published = store.commit_generation(&lease, &rendered, seen.as_ref(), History::Latest).await?;
/// assert_eq!(published, Published::Done);
/// assert_eq!(store.lookup(&page).await?.meta.unwrap().generation, rendered);
/// # Ok(()) }
/// ```
#[derive(Clone, Debug)]
pub struct PageStore {
    table: Arc<dyn Table>,
    random: Arc<dyn Random>,
    terms: LeaseTerms,
    guards: Guards,
    request_terms: RequestTerms,
    ttls: Ttls,
    epoch_terms: EpochTerms,
    epochs: KnownEpochs,
}

impl PageStore {
    /// The pages in this table, with leases on the default terms.
    ///
    /// ```
    /// use std::sync::Arc;
    ///
    /// let store = facetheory::PageStore::new(Arc::new(tabletheory::MemoryTable::new()));
    /// ```
    pub fn new(table: Arc<dyn Table>) -> Self {
        PageStore {
            table,
            random: Arc::new(SystemRandom),
            terms: LeaseTerms::default(),
            guards: Guards::default(),
            request_terms: RequestTerms::default(),
            ttls: Ttls::default(),
            epoch_terms: EpochTerms::default(),
            epochs: KnownEpochs::new(),
        }
    }

    /// The same with leases on these terms.
    ///
    /// ```
    /// use facetheory::protocol::LeaseTerms;
    /// use facetheory::PageStore;
    /// use std::sync::Arc;
    ///
    /// let store = PageStore::new(Arc::new(tabletheory::MemoryTable::new())).with_lease_terms(LeaseTerms::default());
    /// ```
    #[must_use]
    pub fn with_lease_terms(mut self, terms: LeaseTerms) -> Self {
        self.terms = terms;
        self
    }

    /// The same with these guards on publishing.
    ///
    /// ```
    /// use facetheory::protocol::Guards;
    /// use facetheory::PageStore;
    /// use std::sync::Arc;
    ///
    /// let mut guards = Guards::default();
    /// guards.version = true;
    /// let store = PageStore::new(Arc::new(tabletheory::MemoryTable::new())).with_guards(guards);
    /// ```
    #[must_use]
    pub fn with_guards(mut self, guards: Guards) -> Self {
        self.guards = guards;
        self
    }

    /// The same with requests on these terms.
    ///
    /// ```
    /// use facetheory::protocol::RequestTerms;
    /// use facetheory::PageStore;
    /// use std::sync::Arc;
    ///
    /// let store = PageStore::new(Arc::new(tabletheory::MemoryTable::new()))
    ///     .with_request_terms(RequestTerms::default());
    /// ```
    #[must_use]
    pub fn with_request_terms(mut self, terms: RequestTerms) -> Self {
        self.request_terms = terms;
        self
    }

    /// The same with rows that may be collected after these times.
    ///
    /// ```
    /// use facetheory::protocol::Ttls;
    /// use facetheory::PageStore;
    /// use std::sync::Arc;
    /// use std::time::Duration;
    ///
    /// let mut ttls = Ttls::default();
    /// ttls.superseded = Some(Duration::from_secs(7 * 86_400));
    /// let store = PageStore::new(Arc::new(tabletheory::MemoryTable::new())).with_ttls(ttls);
    /// ```
    #[must_use]
    pub fn with_ttls(mut self, ttls: Ttls) -> Self {
        self.ttls = ttls;
        self
    }

    /// The same with invalidations of tags on these terms.
    ///
    /// ```
    /// use facetheory::protocol::EpochTerms;
    /// use facetheory::PageStore;
    /// use std::sync::Arc;
    /// use std::time::Duration;
    ///
    /// let mut always_read = EpochTerms::default();
    /// always_read.max_age = Duration::ZERO;
    /// let store = PageStore::new(Arc::new(tabletheory::MemoryTable::new())).with_epoch_terms(always_read);
    /// ```
    #[must_use]
    pub fn with_epoch_terms(mut self, terms: EpochTerms) -> Self {
        self.epoch_terms = terms;
        self
    }

    /// Sets how long tag epochs are used after they were read.
    #[must_use]
    pub(crate) fn with_epoch_max_age(mut self, max_age: Duration) -> Self {
        self.epoch_terms.max_age = max_age;
        self
    }

    /// The same with this source of tokens and ids, for tests.
    ///
    /// ```
    /// use std::sync::Arc;
    /// use tabletheory::{MemoryTable, SeededRandom};
    ///
    /// let store = facetheory::PageStore::new(Arc::new(MemoryTable::new())).with_random(Arc::new(SeededRandom::new(1)));
    /// ```
    #[must_use]
    pub fn with_random(mut self, random: Arc<dyn Random>) -> Self {
        self.random = random;
        self
    }

    /// The time by the table's clock.
    ///
    /// ```
    /// use std::sync::Arc;
    ///
    /// let store = facetheory::PageStore::new(Arc::new(tabletheory::MemoryTable::new()));
    /// assert!(store.now().seconds() > 1_700_000_000);
    /// ```
    #[must_use]
    pub fn now(&self) -> tabletheory::Timestamp {
        self.table.clock().now()
    }

    /// How long a lease is held unless it is refreshed.
    pub(crate) fn lease_duration(&self) -> std::time::Duration {
        self.terms.term()
    }

    /// The terms on which leases are given.
    pub(crate) fn terms(&self) -> &LeaseTerms {
        &self.terms
    }

    /// The rows of all pages.
    pub(crate) fn table(&self) -> &dyn Table {
        &*self.table
    }

    /// `META` and `LOCK` of a page, in one strong query.
    ///
    /// A `META` that cannot be read counts as absent: it is rendered again.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> facetheory::Result<()> {
    /// # use std::sync::Arc;
    /// let store = facetheory::PageStore::new(Arc::new(tabletheory::MemoryTable::new()));
    /// assert_eq!(store.lookup(&facetheory::PageKey::new("/")?).await?, facetheory::protocol::View::default());
    /// # Ok(()) }
    /// ```
    pub async fn lookup(&self, page: &PageKey) -> Result<View> {
        /// More than the two rows that there are, in case other services keep some between them.
        const ROWS: usize = 8;
        let query = Query::of(page.pk()).sk_between("LOCK", "META").limit(ROWS);
        let rows = self.table.query(&query).await?.items;
        let row = |sk: &str| rows.iter().find(|row| row.key().is_ok_and(|key| key.sk == sk));
        Ok(View {
            meta: row("META").and_then(|item| Meta::read(item).ok()),
            lock: row("LOCK").and_then(|item| Lock::read(item).ok()),
        })
    }

    /// The same transaction under a token of its own, so that repeating it is harmless.
    fn once(&self, txn: Txn) -> Txn {
        txn.with_token(ClientToken::random(&*self.random))
    }

    /// Commits, and repeats what had no answer: only for transactions that come out the same.
    async fn persist(&self, txn: &Txn) -> Result<Commit> {
        let is_unknown = |error: &tabletheory::Error| error.kind() == tabletheory::Kind::Unknown;
        let unknown = match self.table.commit(txn).await {
            Err(error) if is_unknown(&error) => error,
            outcome => return Ok(outcome?),
        };
        for _ in 1..ATTEMPTS {
            match self.table.commit(txn).await {
                Ok(commit) => return Ok(commit),
                Err(error) if is_unknown(&error) => {}
                // That this attempt was not applied says nothing of an earlier one.
                Err(_) => break,
            }
        }
        Err(unknown.into())
    }
}

fn restless(what: &str) -> Error {
    Error::new(
        Kind::Unavailable,
        format!("the page could not be {what}: its rows moved {ROUNDS} times meanwhile; try again"),
    )
}
