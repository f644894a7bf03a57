//! A table to tell a story on, and a partition that no other story uses.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use tabletheory::{
    Commit, Consistency, DynamoSettings, DynamoTable, Item, Key, MemoryTable, Query, Random, Result,
    SqliteTable, SystemRandom, Table, Txn, Value, Write,
};

use tokio::sync::OnceCell;

use crate::support::{dynamodb_client, dynamodb_endpoint};

/// More pages than any story reads: a cursor that stands still must fail a test, not hang it.
const MOST_PAGES: usize = 1000;

pub(crate) struct Fixture {
    pub(crate) table: Arc<dyn Table>,
    /// Whether rows that have expired vanish at any time.
    pub(crate) expires_by_itself: bool,
    /// Tells this story's partitions from those of others, which share a table on a server.
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

/// All stories share one table on the server, since making one takes a while.
pub(crate) async fn dynamodb() -> Fixture {
    static MADE: OnceCell<String> = OnceCell::const_new();
    let open = |name: &str| {
        let settings = DynamoSettings::default().endpoint(dynamodb_endpoint());
        DynamoTable::new(&dynamodb_client(), name, settings).expect("name and settings are right")
    };
    let make = || async {
        let name = format!("tabletheory-contract-{:x}", SystemRandom.next_u64());
        open(&name).create_table_if_missing().await.expect("a new table");
        name
    };
    // A connection belongs to the runtime that made it, so every story has its own.
    let table = Arc::new(open(MADE.get_or_init(make).await));
    Fixture { expires_by_itself: true, ..Fixture::new(table, None) }
}

impl Fixture {
    fn new(table: Arc<dyn Table>, directory: Option<tempfile::TempDir>) -> Self {
        static STORIES: AtomicU64 = AtomicU64::new(0);
        let story = STORIES.fetch_add(1, Ordering::Relaxed);
        let scope = format!("{:x}-{story}", SystemRandom.next_u64());
        Fixture { table, expires_by_itself: false, scope, _directory: directory }
    }

    /// The name of a partition of this story's own.
    pub(crate) fn pk(&self, name: &str) -> String {
        format!("{}#{name}", self.scope)
    }

    /// A row of this story's own partition.
    pub(crate) fn key(&self, sk: &str) -> Key {
        Key::new(self.pk("p"), sk)
    }

    /// A text of up to 36 bytes that no other story uses.
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

    /// All rows of a query, page by page, through the textual form of each cursor.
    pub(crate) async fn query_all(&self, query: &Query) -> Vec<Item> {
        let (mut query, mut rows) = (query.clone(), Vec::new());
        for _ in 0..MOST_PAGES {
            let page = self.table.query(&query).await.expect("a query");
            rows.extend(page.items);
            match page.next {
                Some(cursor) => query = query.after(cursor.to_string().parse().expect("its own text")),
                None => return rows,
            }
        }
        panic!("the query has come back with {MOST_PAGES} pages and does not end");
    }

    /// The rows of this story's partition.
    pub(crate) async fn rows(&self) -> Vec<Item> {
        self.query_all(&Query::of(self.pk("p"))).await
    }

    /// The item as it comes back: with its key.
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
    rows.iter().map(|row| row.key().expect("a row has a key").sk).collect()
}
