//! A page store for tests.

use std::sync::Arc;
use std::time::Duration;

use facetheory::protocol::{Acquire, Freshness, Generation, Lease, Meta, Published};
use facetheory::{History, PageKey, PageStore};
use tabletheory::{
    ManualClock, MemoryTable, Query, SeededRandom, SqliteSettings, SqliteTable, Table, Timestamp,
};

use crate::scripted::{Scripted, scripted};

pub(crate) const NOW: i64 = 1_700_000_000;
pub(crate) const LEASE: Duration = Duration::from_secs(8);
pub(crate) const SECOND: Duration = Duration::from_secs(1);

/// A store on a table whose clock and faults a test controls.
pub(crate) struct Test {
    pub(crate) store: PageStore,
    pub(crate) table: Arc<Scripted>,
    pub(crate) clock: Arc<ManualClock>,
    pub(crate) page: PageKey,
    _directory: Option<tempfile::TempDir>,
}

impl Test {
    pub(crate) fn on_each_table() -> [Test; 2] {
        let clock = || Arc::new(ManualClock::at(Timestamp::from_seconds(NOW)));
        let (one, other) = (clock(), clock());
        let directory = tempfile::tempdir().expect("a directory");
        let settings = SqliteSettings::default().sweep(None);
        let sqlite = SqliteTable::open_with(directory.path().join("table.db"), &settings, other.clone());
        [
            Test::new(Arc::new(MemoryTable::with_clock(one.clone())), one, None),
            Test::new(Arc::new(sqlite.expect("a file")), other, Some(directory)),
        ]
    }

    fn new(table: Arc<dyn Table>, clock: Arc<ManualClock>, directory: Option<tempfile::TempDir>) -> Test {
        let table = Arc::new(scripted(table));
        let store = PageStore::new(table.clone()).with_random(Arc::new(SeededRandom::new(7)));
        Test { store, table, clock, page: PageKey::new("/").expect("a page"), _directory: directory }
    }

    /// Replaces the store by another one on the same table.
    pub(crate) fn with(self, change: impl FnOnce(PageStore) -> PageStore) -> Test {
        Test { store: change(self.store), ..self }
    }

    pub(crate) fn advance(&self, by: Duration) {
        self.clock.advance(by);
    }

    pub(crate) async fn acquire(&self) -> Lease {
        match self.store.try_acquire(&self.page).await.expect("no error") {
            Acquire::Granted(lease) => lease,
            Acquire::Held { until } => panic!("it is held until {until}"),
        }
    }

    pub(crate) fn rendered(&self, body: &str) -> Generation {
        Generation::new(body, self.store.now().seconds(), 60)
    }

    pub(crate) async fn publish(&self, lease: &Lease, body: &str, history: History) -> Published {
        let seen = self.meta().await;
        self.store.publish(lease, &self.rendered(body), seen.as_ref(), history, None).await.expect("no error")
    }

    pub(crate) async fn meta(&self) -> Option<Meta> {
        self.store.lookup(&self.page).await.expect("no error").meta
    }

    /// The freshness of the page with this row.
    pub(crate) async fn freshness(&self, meta: &Meta) -> Freshness {
        self.store.freshness(&self.page, meta).await.expect("no error")
    }

    pub(crate) async fn row(&self, sk: &str) -> Option<tabletheory::Item> {
        let key = self.page.meta().sibling(sk);
        self.table.get(&key, tabletheory::Consistency::Strong).await.expect("a read")
    }

    pub(crate) async fn rows(&self) -> Vec<String> {
        let page = self.table.query(&Query::of(self.page.pk())).await.expect("a query");
        page.items.iter().map(|row| row.key().expect("a key").sk).collect()
    }
}

/// The number of objects in a store.
pub(crate) async fn count_objects(store: &object_store::memory::InMemory) -> usize {
    use futures_util::StreamExt as _;
    use object_store::ObjectStore as _;

    store.list(None).count().await
}
