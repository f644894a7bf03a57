//! The embedded stores: a table, and a store of blobs, each in one SQLite file that several processes may use.

mod blobs;
mod commit;
mod error;
mod file;
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
use self::file::{Format, SqliteFile};
use self::reader::Readers;
use self::sweeper::{Sweep, Sweeper};
use self::writer::Writer;
use crate::clock::{Clock, SystemClock};
use crate::error::{Error, Result};
use crate::item::{Item, Key};
use crate::query::{Consistency, Page, Query, Scan};
use crate::table::Table;
use crate::ttl;
use crate::txn::{Commit, Txn};

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
    shrinks: false,
    page_bytes: 4096,
    // It reads rows before it writes them.
    writer_cache_kib: 32 * 1024,
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
}

impl Default for SqliteSettings {
    /// A busy timeout of 5 seconds, a queue of 1024, groups of up to 256, and the default [`SweepSettings`].
    fn default() -> Self {
        SqliteSettings {
            busy_timeout: Duration::from_secs(5),
            queue: 1024,
            group: 256,
            sweep: Some(SweepSettings::default()),
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
    // Dropped in this order: the sweeper holds a sender of the writer's queue, and the writer closes the file last.
    _sweeper: Option<Sweeper>,
    writer: Writer,
    readers: Arc<Readers>,
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
        let (writer, readers) = open(path.into(), &TABLE, settings, Arc::clone(&clock))?;
        let sweeper =
            settings.sweep.as_ref().map(|sweep| Sweeper::start(writer.queue(), sweep.clone())).transpose()?;
        Ok(SqliteTable { _sweeper: sweeper, writer, readers, clock })
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
        self.readers.read_blocking(reader::verify).await
    }
}

/// Opens or creates a file: the thread that writes it, and the connections that read it.
fn open(
    path: PathBuf,
    format: &'static Format,
    settings: &SqliteSettings,
    clock: Arc<dyn Clock>,
) -> Result<(Writer, Arc<Readers>)> {
    if settings.queue == 0 || settings.group == 0 {
        return Err(Error::invalid("the settings `queue` and `group` of a SQLite file must be at least 1"));
    }
    let file = SqliteFile::new(path, format);
    let connection = file.open_to_write(settings.busy_timeout)?;
    let writer = Writer::start(connection, file.clone(), settings, clock)?;
    Ok((writer, Arc::new(Readers::new(file, settings.busy_timeout))))
}

#[async_trait]
impl Table for SqliteTable {
    async fn get(&self, key: &Key, _: Consistency) -> Result<Option<Item>> {
        key.check()?;
        match self.readers.try_read(|connection| reader::get(connection, key)) {
            Some(result) => result,
            None => {
                let key = key.clone();
                self.readers.read_blocking(move |connection| reader::get(connection, &key)).await
            }
        }
    }

    async fn batch_get(&self, keys: &[Key], _: Consistency) -> Result<Vec<Option<Item>>> {
        keys.iter().try_for_each(Key::check)?;
        let short = keys.len() <= INLINE_ROWS;
        let keys = keys.to_vec();
        let read =
            move |connection: &Connection| keys.iter().map(|key| reader::get(connection, key)).collect();
        if short { self.readers.read_inline(read).await } else { self.readers.read_blocking(read).await }
    }

    async fn query(&self, query: &Query) -> Result<Page> {
        query.check()?;
        let short = query.limit.is_some_and(|limit| limit <= INLINE_ROWS);
        let query = query.clone();
        let read = move |connection: &Connection| reader::query(connection, &query);
        if short { self.readers.read_inline(read).await } else { self.readers.read_blocking(read).await }
    }

    async fn scan(&self, scan: &Scan) -> Result<Page> {
        scan.check()?;
        let scan = scan.clone();
        self.readers.read_blocking(move |connection| reader::scan(connection, &scan)).await
    }

    async fn commit(&self, txn: &Txn) -> Result<Commit> {
        txn.check()?;
        self.writer.submit(PreparedTxn::new(txn)).await
    }

    fn clock(&self) -> &dyn Clock {
        &*self.clock
    }

    async fn expired(&self, lag: Duration) -> Result<u64> {
        let expired = ttl::Expired::at(self.clock.now(), lag);
        self.readers.read_blocking(move |connection| reader::count_expired(connection, expired)).await
    }

    async fn sweep(&self, lag: Duration) -> Result<u64> {
        let mut deleted = 0;
        loop {
            let swept = self.writer.submit(Sweep { lag }).await?;
            deleted += swept.rows;
            if !swept.more {
                return Ok(deleted);
            }
        }
    }
}
