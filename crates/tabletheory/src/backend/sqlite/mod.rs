//! The embedded stores: a table, and a store of blobs, each in one SQLite file that several processes may use.

mod blobs;
mod commit;
mod error;
mod file;
mod key_check;
mod open_file;
mod place;
mod reader;
mod row;
mod sweeper;
mod token;
mod worker;
mod writer;

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use rusqlite::Connection;

pub use self::blobs::{Blob, BlobInfo, SqliteBlobs};
use self::commit::PreparedTxn;
pub use self::file::OnCorruption;
use self::file::{Addition, Format};
use self::key_check::KeyCheck;
use self::open_file::OpenFile;
use self::reader::ReadError;
use self::sweeper::{Sweep, Sweeper};
use crate::clock::{Clock, SystemClock};
use crate::error::Result;
use crate::item::{Item, Key};
use crate::query::{Consistency, Page, Query, Scan};
use crate::table::Table;
use crate::ttl;
use crate::txn::{Commit, Txn};
use crate::use_order::TableUsage;

/// The file of a table.
///
/// `item` is DynamoDB-JSON without the key; `crc` is the checksum of key and item; `ttl` repeats the attribute. The rows are
/// apart from their keys: in a table `WITHOUT ROWID`, as files of earlier versions have it, a page of the tree has room for
/// four rows with their keys, so the tree of 100,000 rows is seven levels deep. The statements are the same for both.
/// `token` stores client tokens in time buckets, so that old ones can be found without an index.
const TABLE: Format = Format {
    name: "table file",
    // "ttbl"
    application_id: 0x7474_626c,
    version: 1,
    schema: "
    CREATE TABLE item (
        pk   TEXT NOT NULL,
        sk   TEXT NOT NULL,
        ttl  INTEGER,
        item TEXT NOT NULL,
        crc  INTEGER NOT NULL,
        PRIMARY KEY (pk, sk)
    );
    CREATE INDEX item_ttl ON item (ttl) WHERE ttl IS NOT NULL;
    CREATE TABLE token (
        bucket INTEGER NOT NULL,
        token  TEXT NOT NULL,
        at     INTEGER NOT NULL,
        digest BLOB NOT NULL,
        PRIMARY KEY (bucket, token)
    ) WITHOUT ROWID;
",
    tables: &["item", "token"],
    addition: USE_ORDER,
    shrinks: false,
    page_bytes: 4096,
    // It reads rows before it writes them.
    writer_cache_kib: 32 * 1024,
};

/// The order in which rows were last used. `used_at` repeats the attribute, and `counter` counts the rows that have it, so that
/// neither the number of rows nor the least recently used ones have to be searched.
const USE_ORDER: Addition = Addition {
    missing: "item_used_at",
    schema: "
    ALTER TABLE item ADD COLUMN used_at INTEGER;
    CREATE INDEX item_used_at ON item (used_at) WHERE used_at IS NOT NULL;
    CREATE TABLE counter (name TEXT PRIMARY KEY, n INTEGER NOT NULL) WITHOUT ROWID;
    INSERT INTO counter (name, n) VALUES ('used rows', 0);
    CREATE TRIGGER item_inserted AFTER INSERT ON item WHEN NEW.used_at IS NOT NULL BEGIN
        UPDATE counter SET n = n + 1 WHERE name = 'used rows';
    END;
    CREATE TRIGGER item_deleted AFTER DELETE ON item WHEN OLD.used_at IS NOT NULL BEGIN
        UPDATE counter SET n = n - 1 WHERE name = 'used rows';
    END;
    CREATE TRIGGER item_updated AFTER UPDATE OF used_at ON item
    WHEN (OLD.used_at IS NULL) <> (NEW.used_at IS NULL) BEGIN
        UPDATE counter SET n = n + (NEW.used_at IS NOT NULL) - (OLD.used_at IS NOT NULL) WHERE name = 'used rows';
    END;
",
};

/// Maximum number of rows that are read on the caller's thread; more may take milliseconds.
const INLINE_ROWS: usize = 8;

/// Settings of a [`SqliteTable`]. The defaults are suitable for one machine with a few processes.
///
/// ```
/// use std::time::Duration;
/// use tabletheory::SqliteSettings;
///
/// let settings = SqliteSettings::default().busy_timeout(Duration::from_secs(1)).sweep(None);
/// ```
#[derive(Clone, Debug)]
pub struct SqliteSettings {
    busy_timeout: Duration,
    queue: usize,
    group: usize,
    sweep: Option<SweepSettings>,
    on_corruption: OnCorruption,
}

impl Default for SqliteSettings {
    /// A busy timeout of 5 seconds, a queue of 1024, groups of up to 256, the default [`SweepSettings`], and
    /// [`OnCorruption::Refuse`].
    fn default() -> Self {
        SqliteSettings {
            busy_timeout: Duration::from_secs(5),
            queue: 1024,
            group: 256,
            sweep: Some(SweepSettings::default()),
            on_corruption: OnCorruption::default(),
        }
    }
}

setters! {
    SqliteSettings {
        /// How long to wait while another process writes to the file.
        busy_timeout: Duration,
        /// How many transactions may wait for the writer; further commits wait for room in the queue.
        queue: usize,
        /// Maximum number of transactions that are committed with one write to disk.
        group: usize,
        /// When to delete expired rows; with `None` only [`SqliteTable::sweep`] does.
        sweep: Option<SweepSettings>,
        /// The action when the file turns out to be damaged.
        on_corruption: OnCorruption,
    }
}

/// When to delete rows whose `ttl` has passed.
///
/// ```
/// use std::time::Duration;
/// use tabletheory::SweepSettings;
///
/// let hourly = SweepSettings::default().interval(Duration::from_secs(3600));
/// ```
#[derive(Clone, Debug)]
pub struct SweepSettings {
    interval: Duration,
    lag: Duration,
}

impl Default for SweepSettings {
    /// An interval and a lag of 60 seconds.
    fn default() -> Self {
        SweepSettings { interval: Duration::from_secs(60), lag: Duration::from_secs(60) }
    }
}

setters! {
    SweepSettings {
        /// Time between sweeps.
        interval: Duration,
        /// How long after its `ttl` a row is deleted at the earliest.
        lag: Duration,
    }
}

/// A table in one SQLite file, in write-ahead-log mode. Acknowledged commits are durable.
///
/// One thread commits all waiting transactions, up to a limit, with one write to disk, and reports each result separately.
/// Readers never wait for it. Point reads and short queries take microseconds and run on the caller's thread; longer ones
/// run on tokio's blocking pool. Other processes may use the file at the same time.
///
/// Dropping the table waits for queued transactions.
///
/// ```
/// use tabletheory::{Consistency, Item, Key, SqliteTable, Table, Txn, Write};
///
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let directory = tempfile::tempdir()?;
/// let table = SqliteTable::open(directory.path().join("table.db"))?;
/// let key = Key::new("CACHE#1", "META");
/// assert!(table.commit(&Txn::from(Write::put(key.clone(), Item::new()))).await?.is_done());
/// assert!(table.get(&key, Consistency::Strong).await?.is_some());
/// # Ok(()) }
/// ```
#[derive(Debug)]
pub struct SqliteTable {
    // Dropped first, because the sweeper holds a sender of the writer's queue.
    _sweeper: Option<Sweeper>,
    file: OpenFile,
    clock: Arc<dyn Clock>,
}

impl SqliteTable {
    /// Opens or creates the file, with the default settings and the system clock.
    ///
    /// ```
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let directory = tempfile::tempdir()?;
    /// let table = tabletheory::SqliteTable::open(directory.path().join("table.db"))?;
    /// # Ok(()) }
    /// ```
    pub fn open(path: impl Into<PathBuf>) -> Result<Self> {
        SqliteTable::open_with(path, &SqliteSettings::default(), Arc::new(SystemClock))
    }

    /// Opens or creates the file, with these settings and this clock.
    ///
    /// ```
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// use std::sync::Arc;
    /// use tabletheory::{SqliteSettings, SqliteTable, SystemClock};
    ///
    /// let directory = tempfile::tempdir()?;
    /// let settings = SqliteSettings::default().sweep(None);
    /// let table = SqliteTable::open_with(directory.path().join("table.db"), &settings, Arc::new(SystemClock))?;
    /// # Ok(()) }
    /// ```
    pub fn open_with(
        path: impl Into<PathBuf>,
        settings: &SqliteSettings,
        clock: Arc<dyn Clock>,
    ) -> Result<Self> {
        let file = OpenFile::open(path.into(), &TABLE, settings, Arc::clone(&clock))?;
        let sweep = settings.sweep.as_ref();
        let sweeper = sweep.map(|sweep| Sweeper::start(file.writer.queue(), sweep.clone())).transpose()?;
        Ok(SqliteTable { _sweeper: sweeper, file, clock })
    }

    /// Checks the whole file and every row. Returns the number of rows, or an error that says what is damaged.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let directory = tempfile::tempdir()?;
    /// let table = tabletheory::SqliteTable::open(directory.path().join("table.db"))?;
    /// assert_eq!(table.verify().await?, 0);
    /// # Ok(()) }
    /// ```
    pub async fn verify(&self) -> Result<u64> {
        self.file.read_blocking(reader::verify).await
    }
}

#[async_trait]
impl Table for SqliteTable {
    async fn get(&self, key: &Key, _: Consistency) -> Result<Option<Item>> {
        key.check()?;
        match self.file.readers.try_read(|connection| reader::get(connection, key)) {
            Some(Ok(row)) => Ok(row),
            Some(Err(ReadError::Other(error))) => Err(error),
            Some(Err(ReadError::Lost { .. })) | None => {
                let key = key.clone();
                self.file.read_blocking(move |connection| reader::get(connection, &key)).await
            }
        }
    }

    async fn batch_get(&self, keys: &[Key], _: Consistency) -> Result<Vec<Option<Item>>> {
        keys.iter().try_for_each(Key::check)?;
        if keys.len() <= INLINE_ROWS {
            match self.file.readers.try_read(|connection| reader::batch_get(connection, keys)) {
                Some(Ok(rows)) => return Ok(rows),
                Some(Err(ReadError::Other(error))) => return Err(error),
                Some(Err(ReadError::Lost { .. })) | None => {}
            }
        }
        let keys = keys.to_vec();
        self.file.read_blocking(move |connection| reader::batch_get(connection, &keys)).await
    }

    async fn query(&self, query: &Query) -> Result<Page> {
        query.check()?;
        let short = query.limit.is_some_and(|limit| limit <= INLINE_ROWS);
        let query = query.clone();
        let read = move |connection: &Connection| reader::query(connection, &query);
        if short { self.file.read_inline(read).await } else { self.file.read_blocking(read).await }
    }

    async fn scan(&self, scan: &Scan) -> Result<Page> {
        scan.check()?;
        let scan = scan.clone();
        self.file.read_blocking(move |connection| reader::scan(connection, &scan)).await
    }

    async fn commit(&self, txn: &Txn) -> Result<Commit> {
        txn.check()?;
        self.file.submit(PreparedTxn::new(txn)).await
    }

    fn clock(&self) -> &dyn Clock {
        &*self.clock
    }

    fn batches_are_snapshots(&self) -> bool {
        true
    }

    fn replacements(&self) -> Result<u64> {
        self.file.readers.replacements()
    }

    async fn expired(&self, lag: Duration) -> Result<u64> {
        let expired = ttl::Expired::at(self.clock.now(), lag);
        self.file.read_blocking(move |connection| reader::count_expired(connection, expired)).await
    }

    async fn sweep(&self, lag: Duration) -> Result<u64> {
        let mut deleted = 0;
        loop {
            let swept = self.file.submit(Sweep { lag }).await?;
            deleted += swept.rows;
            if !swept.more {
                break;
            }
        }
        let mut next = Some(KeyCheck::START.after);
        while let Some(after) = next {
            next = self.file.submit(KeyCheck { after }).await?;
        }
        Ok(deleted)
    }

    async fn least_recently_used(&self, limit: usize) -> Result<Vec<Item>> {
        self.file.read_blocking(move |connection| reader::least_recently_used(connection, limit)).await
    }

    async fn expired_used(&self, lag: Duration, limit: usize) -> Result<Vec<Item>> {
        let expired = ttl::Expired::at(self.clock.now(), lag);
        self.file.read_blocking(move |connection| reader::expired_used(connection, expired, limit)).await
    }

    async fn usage(&self) -> Result<Option<TableUsage>> {
        let used_rows = self.file.read_inline(|connection| reader::counter(connection, "used rows")).await?;
        Ok(Some(TableUsage { used_rows, file: Some(self.file.usage().await?) }))
    }
}
