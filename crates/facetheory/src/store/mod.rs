//! The rows of pages in a table.
//!
//! The steps of the protocol are pure functions in [`protocol`](crate::protocol). This module reads the rows that they need
//! and commits the transactions that they return. It is the only place that does so.

mod announcements;
mod damage;
mod epochs;
mod eviction;
mod feed;
mod invalidate;
mod lease;
mod listing;
mod moment;
mod pending;
mod pointer;
mod publish;
mod request;
mod store_table;
mod versions;

use std::sync::Arc;
use std::time::Duration;

use tabletheory::{ClientToken, Commit, Item, Query, Random, SystemRandom, Table, TableExt as _, Txn};

use self::announcements::Announcements;
use self::epochs::EpochCache;
pub(crate) use self::eviction::Evicted;
use self::eviction::UseState;
pub(crate) use self::feed::KnownChanges;
pub use self::listing::{Entry, Listed, Listing};
pub(crate) use self::moment::Moment;
pub(crate) use self::pending::Pending;
use self::pointer::KnownVersions;
pub(crate) use self::publish::Publish;
use self::store_table::StoreTable;
use crate::error::{Error, Kind, Result};
use crate::protocol::key::KeyScheme;
use crate::protocol::{EpochTerms, Guards, LeaseTerms, Lock, PageKey, RequestTerms, Ttls, View};

/// How often an operation starts again because rows have changed since they were read.
const MAX_ROUNDS: u32 = 16;

/// Pages in a table, and the leases to regenerate them.
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
/// let Acquire::Granted(lease) = store.try_acquire(&page).await? else { panic!("nobody else holds it") };
/// assert!(matches!(store.try_acquire(&page).await?, Acquire::Held { .. }));
///
/// let seen = store.lookup(&page).await?.meta;
/// let rendered = Generation::new("isr/0/1-a.html", store.now().seconds(), 60);
/// let published = store.publish(&lease, &rendered, seen.as_ref(), History::Latest, None).await?;
/// assert_eq!(published, Published::Done);
/// assert_eq!(store.lookup(&page).await?.meta.unwrap().generation, rendered);
/// # Ok(()) }
/// ```
#[derive(Clone, Debug)]
pub struct PageStore {
    table: Arc<StoreTable>,
    random: Arc<dyn Random>,
    lease_terms: LeaseTerms,
    guards: Guards,
    request_terms: RequestTerms,
    ttls: Ttls,
    epoch_terms: EpochTerms,
    epochs: Arc<EpochCache>,
    known_versions: Arc<KnownVersions>,
    key_scheme: KeyScheme,
    /// Whether changes are appended to the feed.
    announces: bool,
    announcements: Arc<Announcements>,
    known_changes: Arc<KnownChanges>,
    uses: Arc<UseState>,
}

impl PageStore {
    /// The pages in this table, with default terms.
    ///
    /// ```
    /// use std::sync::Arc;
    ///
    /// let store = facetheory::PageStore::new(Arc::new(tabletheory::MemoryTable::new()));
    /// ```
    pub fn new(table: Arc<dyn Table>) -> Self {
        PageStore {
            table: Arc::new(StoreTable::new(table)),
            random: Arc::new(SystemRandom),
            lease_terms: LeaseTerms::default(),
            guards: Guards::default(),
            request_terms: RequestTerms::default(),
            ttls: Ttls::default(),
            epoch_terms: EpochTerms::default(),
            epochs: Arc::new(EpochCache::new()),
            known_versions: Arc::new(KnownVersions::new()),
            key_scheme: KeyScheme::default(),
            announces: false,
            announcements: Arc::default(),
            known_changes: Arc::default(),
            uses: Arc::default(),
        }
    }

    /// The key scheme of the pages.
    pub(crate) fn key_scheme(&self) -> &KeyScheme {
        &self.key_scheme
    }

    setters! {
        /// Sets the key scheme of the pages. Listings, garbage collection and `IsrLayer` use it.
        ///
        /// ```
        /// use facetheory::{KeyScheme, PageStore};
        /// use std::sync::Arc;
        ///
        /// let store = PageStore::new(Arc::new(tabletheory::MemoryTable::new()))
        ///     .with_key_scheme(KeyScheme::raw("CACHE#")?);
        /// # Ok::<(), facetheory::Error>(())
        /// ```
        pub fn with_key_scheme(key_scheme: KeyScheme);

        /// Sets how long leases are held.
        ///
        /// ```
        /// use facetheory::PageStore;
        /// use facetheory::protocol::LeaseTerms;
        /// use std::sync::Arc;
        ///
        /// let store = PageStore::new(Arc::new(tabletheory::MemoryTable::new())).with_lease_terms(LeaseTerms::default());
        /// ```
        pub fn with_lease_terms(lease_terms: LeaseTerms);

        /// Sets the conditions of a publish.
        ///
        /// ```
        /// use facetheory::PageStore;
        /// use facetheory::protocol::Guards;
        /// use std::sync::Arc;
        ///
        /// let mut guards = Guards::default();
        /// guards.version = true;
        /// let store = PageStore::new(Arc::new(tabletheory::MemoryTable::new())).with_guards(guards);
        /// ```
        pub fn with_guards(guards: Guards);

        /// Sets how long requests count as in progress, and how long they are stored.
        ///
        /// ```
        /// use facetheory::PageStore;
        /// use facetheory::protocol::RequestTerms;
        /// use std::sync::Arc;
        ///
        /// let store = PageStore::new(Arc::new(tabletheory::MemoryTable::new()))
        ///     .with_request_terms(RequestTerms::default());
        /// ```
        pub fn with_request_terms(request_terms: RequestTerms);

        /// Sets when rows may be deleted by TTL.
        ///
        /// ```
        /// use facetheory::PageStore;
        /// use facetheory::protocol::Ttls;
        /// use std::sync::Arc;
        /// use std::time::Duration;
        ///
        /// let mut ttls = Ttls::default();
        /// ttls.superseded = Some(Duration::from_secs(7 * 86_400));
        /// let store = PageStore::new(Arc::new(tabletheory::MemoryTable::new())).with_ttls(ttls);
        /// ```
        pub fn with_ttls(ttls: Ttls);

        /// Sets how tag epochs are cached.
        ///
        /// ```
        /// use facetheory::PageStore;
        /// use facetheory::protocol::EpochTerms;
        /// use std::sync::Arc;
        /// use std::time::Duration;
        ///
        /// let mut always_read = EpochTerms::default();
        /// always_read.max_age = Duration::ZERO;
        /// let store = PageStore::new(Arc::new(tabletheory::MemoryTable::new())).with_epoch_terms(always_read);
        /// ```
        pub fn with_epoch_terms(epoch_terms: EpochTerms);

        /// Sets whether every invalidation, rollback and unpin appends an entry to the change feed, before it returns. Off by
        /// default. All processes that write the table must do so if one [relies on the feed](crate::Feed::Exclusive).
        ///
        /// ```
        /// use facetheory::PageStore;
        /// use std::sync::Arc;
        ///
        /// let store = PageStore::new(Arc::new(tabletheory::MemoryTable::new())).with_announcements(true);
        /// ```
        pub fn with_announcements(announces: bool);

        /// Sets the source of tokens and ids, for tests.
        ///
        /// ```
        /// use std::sync::Arc;
        /// use tabletheory::{MemoryTable, SeededRandom};
        ///
        /// let store = facetheory::PageStore::new(Arc::new(MemoryTable::new())).with_random(Arc::new(SeededRandom::new(1)));
        /// ```
        pub fn with_random(random: Arc<dyn Random>);
    }

    /// Sets for how long pages that are no longer used are stored.
    #[must_use]
    pub(crate) fn with_page_retention(mut self, retention: Duration) -> Self {
        // An operator who wants pages to be stored for ever says so for the whole store.
        self.ttls.page = self.ttls.page.map(|_| retention);
        self
    }

    /// Sets how long tag epochs are used after they were read.
    #[must_use]
    pub(crate) fn with_epoch_max_age(mut self, max_age: Duration) -> Self {
        self.epoch_terms.max_age = max_age;
        self
    }

    /// Limits how long each write of the table may take. After that its outcome is unknown.
    #[must_use]
    pub(crate) fn with_write_timeout(mut self, limit: Duration) -> Self {
        self.table = Arc::new(self.table.with_write_timeout(limit));
        self
    }

    /// By how much the clocks of two processes may differ.
    pub(crate) fn skew(&self) -> Duration {
        self.epoch_terms.skew
    }

    /// The time of the table's clock.
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

    pub(crate) fn lease_terms(&self) -> &LeaseTerms {
        &self.lease_terms
    }

    pub(crate) fn table(&self) -> &dyn Table {
        &*self.table
    }

    /// Reads `META` and `LOCK` of a page, in one strongly consistent query.
    ///
    /// A `META` that cannot be read counts as absent, so the page is rendered again. If another service has moved its pointer,
    /// or wrote nothing but the pointer, the page is that version, which takes a second read.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> facetheory::Result<()> {
    /// # use std::sync::Arc;
    /// use facetheory::protocol::View;
    ///
    /// let store = facetheory::PageStore::new(Arc::new(tabletheory::MemoryTable::new()));
    /// assert_eq!(store.lookup(&facetheory::PageKey::new("/")?).await?, View::default());
    /// # Ok(()) }
    /// ```
    pub async fn lookup(&self, page: &PageKey) -> Result<View> {
        if self.table.batches_are_snapshots() {
            let [meta, lock] = self.rows_and_epochs(page, [page.meta(), page.lock()]).await?;
            return self.view(page, meta.as_ref(), lock.as_ref()).await;
        }
        /// More than the two rows, in case other services store some between them.
        const ROWS: usize = 8;
        // Backward, so that `META` is read before `LOCK`: a holder that still finds its lock has read `META` under it.
        let query = Query::of(page.pk()).sk_between("LOCK", "META").backward().limit(ROWS);
        let rows = self.table().query(&query).await?.items;
        let row = |sk: &str| rows.iter().find(|row| row.key().is_ok_and(|key| key.sk == sk));
        self.view(page, row("META"), row("LOCK")).await
    }

    /// The page that these rows describe.
    async fn view(&self, page: &PageKey, meta: Option<&Item>, lock: Option<&Item>) -> Result<View> {
        let meta = match meta {
            Some(row) => self.resolve(row, page.interval()).await?,
            None => None,
        };
        Ok(View { meta, lock: lock.and_then(|item| Lock::read(item).ok()) })
    }

    /// Gives a transaction its own client token, so that a retry is applied at most once.
    fn once(&self, txn: Txn) -> Txn {
        txn.with_token(ClientToken::random(&*self.random))
    }

    /// Commits a transaction, and retries it while its outcome is unknown: only for transactions that may be repeated.
    async fn persist(&self, txn: &Txn) -> Result<Commit> {
        Ok(self.table().commit_until_known(txn).await?)
    }
}

fn contended(what: &str) -> Error {
    Error::new(
        Kind::Unavailable,
        format!("the page could not be {what}: other writers changed its rows {MAX_ROUNDS} times; try again"),
    )
}
