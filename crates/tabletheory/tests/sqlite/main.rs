//! What only the embedded table has: a file, with other processes, age and damage.

mod damage;
mod expiry;
mod token;
mod writing;

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use rusqlite::Connection;
use tabletheory::{
    Attr, ClientToken, Commit, Consistency, Item, Key, Kind, ManualClock, MemoryTable, Random, Scan,
    SeededRandom, SqliteSettings, SqliteTable, SweepSettings, Table, Timestamp, Txn, Update, Value, Write,
};

const N: Attr<i64> = Attr::new("n");
const NOW: i64 = 1_700_000_000;

struct Place {
    directory: tempfile::TempDir,
    clock: Arc<ManualClock>,
}

impl Place {
    fn new() -> Self {
        let clock = Arc::new(ManualClock::at(Timestamp::from_seconds(NOW)));
        Place { directory: tempfile::tempdir().expect("a temporary directory"), clock }
    }

    fn file(&self) -> PathBuf {
        self.directory.path().join("table.db")
    }

    fn open(&self) -> SqliteTable {
        self.try_open().expect("it opens")
    }

    fn try_open(&self) -> tabletheory::Result<SqliteTable> {
        self.try_open_with_clock(self.clock.clone())
    }

    /// As a process would whose clock is another.
    fn try_open_with_clock(&self, clock: Arc<ManualClock>) -> tabletheory::Result<SqliteTable> {
        let settings = SqliteSettings::default().busy_timeout(Duration::from_millis(20)).sweep(None);
        SqliteTable::open_with(self.file(), &settings, clock)
    }

    /// The file through SQLite alone, as another program would use it.
    fn raw(&self) -> Connection {
        Connection::open(self.file()).expect("SQLite opens it")
    }

    /// Lets SQLite fail whenever such a row is inserted into one of our tables.
    fn fail_inserts(&self, table: &str, when: &str) {
        let trigger = format!(
            "CREATE TRIGGER failure BEFORE INSERT ON {table} {when} BEGIN SELECT RAISE(ABORT, 'injected'); END"
        );
        self.raw().execute_batch(&trigger).expect("a trigger");
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
