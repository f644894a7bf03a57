//! Tests of the SQLite backend: the file, other processes, expiry and damage.

mod blobs;
mod damage;
mod earlier;
mod expiry;
mod full_disk;
mod index;
mod replaced;
mod token;
mod writing;

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use rusqlite::Connection;
use tabletheory::{
    Attr, ClientToken, Commit, Consistency, Item, Key, Kind, ManualClock, MemoryTable, OnCorruption, Query,
    Random, Scan, SeededRandom, SqliteSettings, SqliteTable, SweepSettings, SystemClock, Table, Timestamp,
    Txn, Update, Value, Write,
};

const N: Attr<i64> = Attr::new("n");
const NOW: i64 = 1_700_000_000;

struct TestFile {
    directory: tempfile::TempDir,
    clock: Arc<ManualClock>,
}

impl TestFile {
    fn new() -> Self {
        let clock = Arc::new(ManualClock::at(Timestamp::from_seconds(NOW)));
        TestFile { directory: tempfile::tempdir().expect("a temporary directory"), clock }
    }

    fn path(&self) -> PathBuf {
        self.directory.path().join("table.db")
    }

    fn open(&self) -> SqliteTable {
        self.try_open().expect("the file opens")
    }

    fn try_open(&self) -> tabletheory::Result<SqliteTable> {
        self.try_open_with_clock(self.clock.clone())
    }

    /// Opens the table like a process with another clock.
    fn try_open_with_clock(&self, clock: Arc<ManualClock>) -> tabletheory::Result<SqliteTable> {
        SqliteTable::open_with(self.path(), &settings(), clock)
    }

    /// Opens the table like a process that replaces a damaged file.
    fn open_to_replace(&self) -> SqliteTable {
        let settings = SqliteSettings::default().sweep(None).on_corruption(OnCorruption::Replace);
        SqliteTable::open_with(self.path(), &settings, self.clock.clone()).expect("the file opens")
    }

    /// Opens the file with SQLite directly, like another program.
    fn raw(&self) -> Connection {
        Connection::open(self.path()).expect("a connection")
    }

    /// Makes SQLite fail when such a row is inserted into a table.
    fn fail_inserts(&self, table: &str, when: &str) {
        let trigger = format!(
            "CREATE TRIGGER failure BEFORE INSERT ON {table} {when} BEGIN SELECT RAISE(ABORT, 'injected'); END"
        );
        self.raw().execute_batch(&trigger).expect("a trigger");
    }
}

fn settings() -> SqliteSettings {
    SqliteSettings::default().busy_timeout(Duration::from_millis(20)).sweep(None)
}

/// Puts this many rows, in transactions of up to a hundred.
async fn put_rows(table: &SqliteTable, count: i64, row: impl Fn(i64) -> (String, Item)) {
    let writes: Vec<Write> = (0..count).map(row).map(|(sk, item)| Write::put(key(&sk), item)).collect();
    for chunk in writes.chunks(100) {
        assert!(table.commit(&Txn::new(chunk.to_vec())).await.expect("puts").is_done());
    }
}

fn key(sk: &str) -> Key {
    Key::new("CACHE#1", sk)
}

fn put(sk: &str, n: i64) -> Txn {
    Txn::from(Write::put(key(sk), Item::from([("n", Value::from(n))])))
}

fn add_one() -> Txn {
    Txn::from(Write::update(key("count"), Update::new([N.add(1)])))
}

async fn n(table: &SqliteTable, sk: &str) -> Option<i64> {
    let row = table.get(&key(sk), Consistency::Strong).await.expect("a get")?;
    row.get("n").and_then(Value::as_i64)
}

fn token(text: &str) -> ClientToken {
    ClientToken::new(text).expect("a token")
}
