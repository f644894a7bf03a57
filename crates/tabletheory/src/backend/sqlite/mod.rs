//! The embedded table: one SQLite file, which other processes may open too.

mod error;
mod file;
mod reader;
mod row;
mod sweeper;
mod token;
mod writer;

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use rusqlite::Connection;

use self::reader::Readers;
use self::sweeper::Sweeper;
use self::writer::Writer;
use crate::clock::{Clock, SystemClock};
use crate::error::{Error, Result};
use crate::item::{Item, Key};
use crate::query::{Consistency, Page, Query, Scan};
use crate::table::Table;
use crate::ttl;
use crate::txn::{Commit, Txn};

/// The longest read that runs on the caller's own thread: beyond it a page may take milliseconds.
const INLINE_ROWS: usize = 8;

/// How a [`SqliteTable`] behaves. The defaults suit one machine with a few processes.
///
/// ```
/// use std::time::Duration;
/// use tabletheory::SqliteSettings;
///
/// let settings = SqliteSettings { busy_timeout: Duration::from_secs(1), ..SqliteSettings::default() };
/// assert_eq!(settings.queue, 1024);
/// ```
#[derive(Clone, Debug)]
pub struct SqliteSettings {
    /// How long to wait for another process that is writing to the file.
    pub busy_timeout: Duration,
    /// How many transactions may wait for the writer before committers wait for room.
    pub queue: usize,
    /// How many waiting transactions at most share one write to the disk.
    pub group: usize,
    /// When expired rows are deleted; none leaves them to [`SqliteTable::sweep`].
    pub sweep: Option<SweepSettings>,
}

impl Default for SqliteSettings {
    fn default() -> Self {
        SqliteSettings {
            busy_timeout: Duration::from_secs(5),
            queue: 1024,
            group: 256,
            sweep: Some(SweepSettings::default()),
        }
    }
}

/// When rows whose `ttl` has passed are deleted.
///
/// ```
/// use std::time::Duration;
///
/// assert_eq!(tabletheory::SweepSettings::default().every, Duration::from_secs(60));
/// ```
#[derive(Clone, Debug)]
pub struct SweepSettings {
    /// How often to look for them.
    pub every: Duration,
    /// How long after its `ttl` a row is left alone.
    pub lag: Duration,
}

impl Default for SweepSettings {
    fn default() -> Self {
        SweepSettings { every: Duration::from_secs(60), lag: Duration::from_secs(60) }
    }
}

/// A table in one SQLite file, in write-ahead-log mode, durable once a commit is acknowledged.
///
/// One thread writes: it takes all transactions that wait, up to a limit, and commits them with one
/// write to the disk, each answered on its own. Readers never wait for it. Point reads and short
/// queries run on the caller's thread, since they take microseconds; longer ones go to tokio's
/// blocking pool. Other processes may use the same file at the same time.
///
/// Dropping the table finishes what was queued.
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
    // Dropped in this order: the sweeper holds a way to the writer, and the writer closes the file last.
    _sweeper: Option<Sweeper>,
    writer: Writer,
    readers: Arc<Readers>,
    clock: Arc<dyn Clock>,
}

impl SqliteTable {
    /// Opens the file with the default settings and the machine's clock, or makes it.
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

    /// Opens the file with these settings on this clock, or makes it.
    ///
    /// ```
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// use std::sync::Arc;
    /// use tabletheory::{SqliteSettings, SqliteTable, SystemClock};
    ///
    /// let directory = tempfile::tempdir()?;
    /// let settings = SqliteSettings { sweep: None, ..SqliteSettings::default() };
    /// let table = SqliteTable::open_with(directory.path().join("table.db"), &settings, Arc::new(SystemClock))?;
    /// # Ok(()) }
    /// ```
    pub fn open_with(
        path: impl Into<PathBuf>,
        settings: &SqliteSettings,
        clock: Arc<dyn Clock>,
    ) -> Result<Self> {
        if settings.queue == 0 || settings.group == 0 {
            return Err(Error::invalid("the queue and the group of a SQLite table must be at least 1"));
        }
        let path = path.into();
        let connection = file::open_to_write(&path, settings.busy_timeout)?;
        let writer = Writer::start(connection, &path, settings, Arc::clone(&clock))?;
        let sweeper =
            settings.sweep.as_ref().map(|sweep| Sweeper::start(writer.queue(), sweep.clone())).transpose()?;
        let readers = Arc::new(Readers::new(path, settings.busy_timeout));
        Ok(SqliteTable { _sweeper: sweeper, writer, readers, clock })
    }

    /// The file.
    ///
    /// ```
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let directory = tempfile::tempdir()?;
    /// let path = directory.path().join("table.db");
    /// assert_eq!(tabletheory::SqliteTable::open(&path)?.path(), path);
    /// # Ok(()) }
    /// ```
    #[must_use]
    pub fn path(&self) -> &Path {
        self.readers.path()
    }

    /// Deletes the rows whose `ttl` passed at least `lag` ago, a few at a time, and says how many.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// use std::time::Duration;
    ///
    /// let directory = tempfile::tempdir()?;
    /// let table = tabletheory::SqliteTable::open(directory.path().join("table.db"))?;
    /// assert_eq!(table.sweep(Duration::ZERO).await?, 0);
    /// # Ok(()) }
    /// ```
    pub async fn sweep(&self, lag: Duration) -> Result<u64> {
        let mut deleted = 0;
        loop {
            let swept = self.writer.sweep(lag).await?;
            deleted += swept.rows;
            if !swept.more {
                return Ok(deleted);
            }
        }
    }

    /// Reads the whole file and every row, and says how many rows there are, or what is damaged.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let directory = tempfile::tempdir()?;
    /// let table = tabletheory::SqliteTable::open(directory.path().join("table.db"))?;
    /// assert_eq!(table.verify().await?, 0);
    /// # Ok(()) }
    /// ```
    pub async fn verify(&self) -> Result<u64> {
        self.read_elsewhere(reader::verify).await
    }

    /// Reads on this thread; only if another process is in the way, on one that may wait.
    async fn read_here<T, F>(&self, read: F) -> Result<T>
    where
        T: Send + 'static,
        F: Fn(&Connection) -> Result<T, error::Fault> + Send + 'static,
    {
        match self.readers.read_at_once(&read) {
            Some(outcome) => outcome,
            None => self.read_elsewhere(read).await,
        }
    }

    /// Reads on tokio's blocking pool, waiting for other processes up to the limit.
    async fn read_elsewhere<T, F>(&self, read: F) -> Result<T>
    where
        T: Send + 'static,
        F: FnOnce(&Connection) -> Result<T, error::Fault> + Send + 'static,
    {
        let readers = Arc::clone(&self.readers);
        let Ok(runtime) = tokio::runtime::Handle::try_current() else {
            // Without a runtime there is nobody to be kept waiting but the caller.
            return readers.read_patiently(read);
        };
        let _turn = self.readers.turn().await;
        runtime
            .spawn_blocking(move || readers.read_patiently(read))
            .await
            .map_err(|cause| Error::unavailable("the reader was stopped").caused_by(cause))?
    }
}

#[async_trait]
impl Table for SqliteTable {
    async fn get(&self, key: &Key, _: Consistency) -> Result<Option<Item>> {
        key.check()?;
        match self.readers.read_at_once(|connection| reader::get(connection, key)) {
            Some(outcome) => outcome,
            None => {
                let key = key.clone();
                self.read_elsewhere(move |connection| reader::get(connection, &key)).await
            }
        }
    }

    async fn batch_get(&self, keys: &[Key], _: Consistency) -> Result<Vec<Option<Item>>> {
        keys.iter().try_for_each(Key::check)?;
        let short = keys.len() <= INLINE_ROWS;
        let keys = keys.to_vec();
        let read =
            move |connection: &Connection| keys.iter().map(|key| reader::get(connection, key)).collect();
        if short { self.read_here(read).await } else { self.read_elsewhere(read).await }
    }

    async fn query(&self, query: &Query) -> Result<Page> {
        query.check()?;
        let short = query.limit.is_some_and(|limit| limit <= INLINE_ROWS);
        let query = query.clone();
        let read = move |connection: &Connection| reader::query(connection, &query);
        if short { self.read_here(read).await } else { self.read_elsewhere(read).await }
    }

    async fn scan(&self, scan: &Scan) -> Result<Page> {
        scan.check()?;
        let scan = scan.clone();
        self.read_elsewhere(move |connection| reader::scan(connection, &scan)).await
    }

    async fn commit(&self, txn: &Txn) -> Result<Commit> {
        txn.check()?;
        self.writer.commit(txn).await
    }

    fn clock(&self) -> &dyn Clock {
        &*self.clock
    }

    async fn expired(&self, lag: Duration) -> Result<u64> {
        let expired = ttl::Expired::at(self.clock.now(), lag);
        self.read_elsewhere(move |connection| reader::count_expired(connection, expired)).await
    }

    async fn sweep(&self, lag: Duration) -> Result<u64> {
        SqliteTable::sweep(self, lag).await
    }
}
