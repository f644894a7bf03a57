//! A table, and a partition that no other test uses.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use tabletheory::{
    Commit, Consistency, DynamoSettings, DynamoTable, Item, Key, MemoryTable, Query, Random, Result,
    SqliteTable, SystemRandom, Table, Txn, Value, Write,
};

use tokio::sync::OnceCell;

use crate::support::{dynamodb_client, dynamodb_endpoint};

/// More pages than any test reads: a cursor that does not advance must fail the test, not hang it.
const MAX_PAGES: usize = 1000;

pub(crate) struct Fixture {
    pub(crate) table: Arc<dyn Table>,
    /// Whether the backend deletes expired rows by itself.
    pub(crate) expires_by_itself: bool,
    /// Prefix of this test's partitions; tests share one table on DynamoDB.
    scope: String,
    /// The directory of the SQLite file, deleted at the end.
    _directory: Option<tempfile::TempDir>,
}

pub(crate) async fn memory() -> Fixture {
    Fixture::new(Arc::new(MemoryTable::new()), None)
}

pub(crate) async fn sqlite() -> Fixture {
    let directory = tempfile::tempdir().expect("a temporary directory");
    let table = SqliteTable::open(directory.path().join("table.db")).expect("a new file");
    Fixture::new(Arc::new(table), Some(directory))
}

/// All tests share one table, because creating one is slow.
pub(crate) async fn dynamodb() -> Fixture {
    static CREATED: OnceCell<String> = OnceCell::const_new();
    let open = |name: &str| {
        let settings = DynamoSettings::default().endpoint(dynamodb_endpoint());
        DynamoTable::new(&dynamodb_client(), name, settings).expect("valid name and settings")
    };
    let create = || async {
        let name = format!("tabletheory-contract-{:x}", SystemRandom.next_u64());
        open(&name).create_table_if_missing().await.expect("a new table");
        name
    };
    // Connections belong to a runtime, so each test has its own client.
    let table = Arc::new(open(CREATED.get_or_init(create).await));
    Fixture { expires_by_itself: true, ..Fixture::new(table, None) }
}

impl Fixture {
    fn new(table: Arc<dyn Table>, directory: Option<tempfile::TempDir>) -> Self {
        static TESTS: AtomicU64 = AtomicU64::new(0);
        let test = TESTS.fetch_add(1, Ordering::Relaxed);
        let scope = format!("{:x}-{test}", SystemRandom.next_u64());
        Fixture { table, expires_by_itself: false, scope, _directory: directory }
    }

    /// A partition key that only this test uses.
    pub(crate) fn pk(&self, name: &str) -> String {
        format!("{}#{name}", self.scope)
    }

    /// The key of a row in this test's partition.
    pub(crate) fn key(&self, sk: &str) -> Key {
        Key::new(self.pk("p"), sk)
    }

    /// A client token that only this test uses.
    pub(crate) fn token(&self, name: &str) -> tabletheory::ClientToken {
        tabletheory::ClientToken::new(format!("{}-{name}", self.scope)).expect("a short name")
    }

    pub(crate) async fn put(&self, sk: &str, item: Item) {
        let done = self.commit([Write::put(self.key(sk), item)]).await;
        assert_eq!(done.expect("a put"), Commit::Done);
    }

    pub(crate) async fn commit(&self, writes: impl IntoIterator<Item = Write>) -> Result<Commit> {
        self.table.commit(&Txn::new(writes)).await
    }

    pub(crate) async fn get(&self, sk: &str) -> Option<Item> {
        self.table.get(&self.key(sk), Consistency::Strong).await.expect("a get")
    }

    /// Returns all rows of a query, page by page, through the text form of each cursor.
    pub(crate) async fn query_all(&self, query: &Query) -> Vec<Item> {
        let (mut query, mut rows) = (query.clone(), Vec::new());
        for _ in 0..MAX_PAGES {
            let page = self.table.query(&query).await.expect("a query");
            rows.extend(page.items);
            match page.next {
                Some(cursor) => query = query.after(cursor.to_string().parse().expect("a cursor")),
                None => return rows,
            }
        }
        panic!("the query does not end after {MAX_PAGES} pages");
    }

    /// Returns the rows of this test's partition.
    pub(crate) async fn rows(&self) -> Vec<Item> {
        self.query_all(&Query::of(self.pk("p"))).await
    }

    /// Returns the item as it is read: with its key.
    pub(crate) fn stored(&self, sk: &str, mut item: Item) -> Item {
        item.set("pk", self.pk("p"));
        item.set("sk", sk);
        item
    }
}

/// An item of these attributes.
pub(crate) fn item<const N: usize>(attributes: [(&str, Value); N]) -> Item {
    Item::from(attributes)
}

/// The sort keys of these rows.
pub(crate) fn sks(rows: &[Item]) -> Vec<String> {
    rows.iter().map(|row| row.key().expect("a key").sk).collect()
}
