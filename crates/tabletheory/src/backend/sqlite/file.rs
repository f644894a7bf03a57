//! Opening the file and configuring its connections.

use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use rusqlite::config::DbConfig;
use rusqlite::{Connection, OpenFlags, Transaction, TransactionBehavior};

use super::error::{BackendError, is_busy};
use super::place::{self, Beside, FileId, PlaceLock, directory_of};
use crate::error::{Error, Kind, Result, ensure, is_storage_full};
use crate::use_order::FileUsage;

/// A kind of SQLite file, by which a file of another program is recognized.
#[derive(Debug)]
pub(super) struct Format {
    /// The name of such a file in messages.
    pub(super) name: &'static str,
    /// SQLite's application id: four bytes of ASCII.
    pub(super) application_id: i64,
    /// Version of the schema.
    pub(super) version: i64,
    pub(super) schema: &'static str,
    /// The names of its tables, without those of the addition.
    pub(super) tables: &'static [&'static str],
    /// The additions to files of earlier versions of this program. Those versions can still use a file that has them.
    pub(super) addition: Addition,
    /// Whether `PRAGMA incremental_vacuum` can make the file shorter after rows were deleted.
    pub(super) shrinks: bool,
    /// The size of SQLite's pages in new files.
    pub(super) page_bytes: u32,
    /// SQLite's own page cache for the connection of the writer.
    pub(super) writer_cache_kib: i32,
}

/// A part of the schema that was added without a new version.
#[derive(Debug)]
pub(super) struct Addition {
    /// The name of an index or a table that files without this part lack.
    pub(super) missing: &'static str,
    pub(super) schema: &'static str,
}

/// A SQLite file, which several processes may use.
#[derive(Clone, Debug)]
pub(super) struct SqliteFile {
    pub(super) path: PathBuf,
    format: &'static Format,
    on_corruption: OnCorruption,
    /// The directory when the file was opened first.
    directory: Option<FileId>,
    is_read_only: Arc<AtomicBool>,
}

/// The action when a SQLite file turns out to be damaged.
///
/// ```
/// use tabletheory::{OnCorruption, SqliteSettings};
///
/// let cache = SqliteSettings::default().on_corruption(OnCorruption::Replace);
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum OnCorruption {
    /// Every call that comes across the damage fails. An operator restores the file.
    #[default]
    Refuse,
    /// The file is renamed to a name that ends with `.damaged`, and an empty one is begun in its place: for data that can be
    /// made again, such as a cache. All processes that use the file should have this setting. A process also continues with
    /// the file that another process, or an operator, has put in the place of the one that it had opened, or with an empty
    /// one if there is none.
    Replace,
}

/// An open connection.
#[derive(Debug)]
pub(super) struct Opened {
    pub(super) connection: Connection,
    /// The file that it reads and writes.
    pub(super) id: FileId,
    pub(super) beside: Beside,
    /// Whether a commit waits until it is on the disk.
    syncs_commits: bool,
}

impl Opened {
    /// Sets whether the next commits wait until they are on the disk. One that does not becomes safe with the next one that does:
    /// both are in the log, in this order.
    pub(super) fn sync_commits(&mut self, syncs: bool) -> Result<(), BackendError> {
        if self.syncs_commits != syncs {
            self.connection.pragma_update(None, "synchronous", if syncs { "FULL" } else { "NORMAL" })?;
            self.syncs_commits = syncs;
        }
        Ok(())
    }
}

impl fmt::Display for SqliteFile {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "the {} {}", self.format.name, self.path.display())
    }
}

/// Number of attempts to enable the write-ahead log while another process opens the same new file.
const WAL_ATTEMPTS: u32 = 100;
const WAL_RETRY_DELAY: Duration = Duration::from_millis(20);
/// A checkpoint copies the log into the file once it has this many pages. Pages that change often are then copied once for
/// many changes; SQLite's default is 1000.
const CHECKPOINT_PAGES: u32 = 4000;
/// There will be no other versions of the schema: another number is damaged.
const PLAUSIBLE_VERSIONS: std::ops::RangeInclusive<i64> = 1..=99;
/// Size to which the log is truncated after a checkpoint.
const MAX_LOG_BYTES: u32 = 64 * 1024 * 1024;
/// Capacity for prepared statements per connection: more than there are.
const CACHED_STATEMENTS: usize = 64;

impl SqliteFile {
    pub(super) fn new(path: PathBuf, format: &'static Format, on_corruption: OnCorruption) -> Self {
        let directory = FileId::of(directory_of(&path));
        SqliteFile { path, format, on_corruption, directory, is_read_only: Arc::default() }
    }

    /// Whether a damaged file is replaced by an empty one.
    pub(super) fn is_replaceable(&self) -> bool {
        self.on_corruption == OnCorruption::Replace
    }

    /// Whether this process may continue with the file that has the name now, or with a new one.
    pub(super) fn may_be_followed(&self) -> bool {
        self.is_replaceable() && FileId::of(directory_of(&self.path)) == self.directory
    }

    /// The error of a call that would be lost, because the file that is open does not have its name any more.
    pub(super) fn lost(&self) -> Error {
        Error::unavailable(format!(
            "{self}, or its directory, was replaced or removed while it was in use, so a write would be lost; \
             restart this process to use what is there now"
        ))
    }

    /// Opens the connection for writing; creates the file and its tables if they are missing.
    pub(super) fn open_to_write(&self, busy_timeout: Duration) -> Result<Opened> {
        let flags = OpenFlags::SQLITE_OPEN_READ_WRITE
            | OpenFlags::SQLITE_OPEN_CREATE
            | OpenFlags::SQLITE_OPEN_NO_MUTEX;
        let _lock = PlaceLock::to_open(&self.path)?;
        let open = || -> Result<Opened, BackendError> {
            let connection = Connection::open_with_flags(&self.path, flags)?;
            connection.busy_timeout(busy_timeout)?;
            self.format.check(&connection)?;
            // These two have no effect once there is a table.
            connection.pragma_update(None, "page_size", self.format.page_bytes)?;
            if self.format.shrinks {
                connection.pragma_update(None, "auto_vacuum", "INCREMENTAL")?;
            }
            enable_wal(&connection)?;
            connection.pragma_update(None, "synchronous", "FULL")?;
            connection.pragma_update(None, "wal_autocheckpoint", CHECKPOINT_PAGES)?;
            connection.pragma_update(None, "journal_size_limit", MAX_LOG_BYTES)?;
            // SQLite interprets negative numbers as KiB, positive ones as pages.
            connection.pragma_update(None, "cache_size", -self.format.writer_cache_kib)?;
            configure(&connection)?;
            // From here on `begin` waits for locks, not SQLite.
            connection.busy_timeout(Duration::ZERO)?;
            self.format.create_tables(&connection, busy_timeout)?;
            self.format.add(&connection, busy_timeout)?;
            self.opened(connection)
        };
        open().map_err(|error| error.into_error(self))
    }

    /// Opens the connection for writing; a damaged file is replaced by an empty one first, if the settings allow it. While the
    /// disk is full, the file is [read only](Self::is_read_only).
    ///
    /// Returns whether it was replaced.
    pub(super) fn open_or_replace(&self, busy_timeout: Duration) -> Result<(Opened, bool)> {
        place::leave_missing(self)?;
        match self.open_to_write(busy_timeout) {
            Err(error) if error.kind() == Kind::Corrupt && self.is_replaceable() => {
                let damaged = FileId::of(&self.path);
                place::set_aside(self, damaged, &error.to_string())?;
                Ok((self.open_to_write(busy_timeout)?, true))
            }
            // Rows that are stored can still be read.
            Err(error) if is_storage_full(&error) => {
                let Ok(Some(opened)) = self.open_while_full() else { return Err(error) };
                tracing::error!(
                    "the disk is full: {self} is only read, and is written again when there is room"
                );
                self.set_read_only(true);
                Ok((opened, false))
            }
            opened => opened.map(|opened| (opened, false)),
        }
    }

    /// Opens a connection for reading while the disk is too full for the files that SQLite puts beside this one. `None` if
    /// there are changes in the log alone, as there are if another process writes the file again.
    pub(super) fn open_while_full(&self) -> Result<Option<Opened>, BackendError> {
        let log = PathBuf::from(format!("{}-wal", self.path.display()));
        let has_changes = std::fs::metadata(log).is_ok_and(|log| log.len() > 0);
        let Some(uri) = immutable_uri(&self.path).filter(|_| !has_changes) else { return Ok(None) };
        let flags =
            OpenFlags::SQLITE_OPEN_READ_ONLY | OpenFlags::SQLITE_OPEN_NO_MUTEX | OpenFlags::SQLITE_OPEN_URI;
        let connection = Connection::open_with_flags(uri, flags)?;
        self.format.check(&connection)?;
        configure(&connection)?;
        self.opened(connection).map(Some)
    }

    /// Whether the disk was full when this process opened the file, and the file has not been opened to write since.
    pub(super) fn is_read_only(&self) -> bool {
        self.is_read_only.load(Ordering::Acquire)
    }

    pub(super) fn set_read_only(&self, is_read_only: bool) {
        self.is_read_only.store(is_read_only, Ordering::Release);
    }

    /// Opens a connection for reading, which fails at once if the file is locked.
    pub(super) fn open_to_read(&self) -> Result<Opened, BackendError> {
        let flags = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_NO_MUTEX;
        let _lock = PlaceLock::to_open(&self.path)?;
        let connection = Connection::open_with_flags(&self.path, flags)?;
        connection.busy_timeout(Duration::ZERO)?;
        connection.pragma_update(None, "query_only", true)?;
        configure(&connection)?;
        // SQLite opens the log with the first read, and finds it by its name.
        has_tables(&connection)?;
        self.opened(connection)
    }

    fn opened(&self, connection: Connection) -> Result<Opened, BackendError> {
        let id = FileId::of(&self.path).ok_or_else(|| self.lost())?;
        Ok(Opened { connection, id, beside: Beside::of(&self.path), syncs_commits: true })
    }
}

/// The address of a file that nobody changes: SQLite then needs no other files to read it. `None` if its name is not UTF-8.
fn immutable_uri(path: &Path) -> Option<String> {
    let path = path.to_str()?.replace('%', "%25").replace('?', "%3f").replace('#', "%23");
    Some(format!("file:{path}?immutable=1"))
}

/// Makes SQLite validate the schema and the pages of a possibly damaged file, and prepare each statement once.
fn configure(connection: &Connection) -> Result<(), BackendError> {
    // Without it, SQLite plans a cached statement again whenever another value is bound to it.
    connection.set_db_config(DbConfig::SQLITE_DBCONFIG_ENABLE_QPSG, true)?;
    connection.pragma_update(None, "trusted_schema", false)?;
    connection.pragma_update(None, "cell_size_check", true)?;
    connection.set_prepared_statement_cache_capacity(CACHED_STATEMENTS);
    Ok(())
}

impl Format {
    /// Rejects files of other programs, and of later versions of this one, before anything is changed in them.
    fn check(&self, connection: &Connection) -> Result<(), BackendError> {
        // Tables first: another process that creates the file writes its tables and these numbers in one transaction, so
        // once there are tables, the numbers are there, too.
        let has_tables = has_tables(connection)?;
        let number = |name: &str| connection.pragma_query_value(None, name, |row| row.get::<_, i64>(0));
        let (application, version) = (number("application_id")?, number("user_version")?);
        if application == 0 && !has_tables {
            return Ok(());
        }
        if (application != self.application_id || !PLAUSIBLE_VERSIONS.contains(&version))
            && has_tables_of(connection, self)?
        {
            let context = format!("the header of this {} is damaged", self.name);
            return Err(BackendError::Damage(Error::new(Kind::Corrupt, context)));
        }
        ensure!(
            application == self.application_id,
            "this SQLite file belongs to another program; use another file"
        );
        ensure!(
            version <= self.version,
            "this {} has schema version {version}, but this program supports at most {}; \
             use a newer version of the program",
            self.name,
            self.version
        );
        Ok(())
    }

    /// Takes the write lock only if tables are missing, so that opening a busy file does not wait.
    fn create_tables(&self, connection: &Connection, busy_timeout: Duration) -> Result<(), BackendError> {
        if has_tables(connection)? {
            return Ok(());
        }
        let transaction = begin(connection, busy_timeout)?;
        if !has_tables(&transaction)? {
            transaction.execute_batch(self.schema)?;
            transaction.pragma_update(None, "application_id", self.application_id)?;
            transaction.pragma_update(None, "user_version", self.version)?;
        }
        transaction.commit()?;
        Ok(())
    }
}

impl Format {
    /// Adds what a file of an earlier version lacks. Takes the write lock only if something is missing.
    fn add(&self, connection: &Connection, busy_timeout: Duration) -> Result<(), BackendError> {
        let is_missing = |connection: &Connection| -> rusqlite::Result<bool> {
            let query = "SELECT count(*) = 0 FROM sqlite_schema WHERE name = ?1";
            connection.query_row(query, [self.addition.missing], |row| row.get(0))
        };
        if is_missing(connection)? {
            let transaction = begin(connection, busy_timeout)?;
            if is_missing(&transaction)? {
                transaction.execute_batch(self.addition.schema)?;
            }
            transaction.commit()?;
        }
        Ok(())
    }
}

impl SqliteFile {
    /// Returns the size of the file, as this connection sees it, and of the files that SQLite has put beside it.
    pub(super) fn usage(&self, connection: &Connection) -> Result<FileUsage, BackendError> {
        let number = |name: &str| -> rusqlite::Result<u64> {
            connection.pragma_query_value(None, name, |row| Ok(row.get::<_, i64>(0)?.unsigned_abs()))
        };
        let (page_bytes, pages, free) =
            (number("page_size")?, number("page_count")?, number("freelist_count")?);
        let beside = |suffix: &str| {
            let mut path = self.path.clone().into_os_string();
            path.push(suffix);
            // SQLite removes them when the last connection is closed.
            std::fs::metadata(path).map_or(0, |file| file.len())
        };
        Ok(FileUsage {
            file_bytes: pages * page_bytes,
            free_bytes: free * page_bytes,
            log_bytes: beside("-wal") + beside("-shm"),
        })
    }
}

/// Enabling the log needs exclusive access to the file, for which SQLite does not wait by itself.
fn enable_wal(connection: &Connection) -> Result<(), BackendError> {
    for _ in 1..WAL_ATTEMPTS {
        match set_wal_mode(connection) {
            Err(BackendError::Sqlite(error)) if is_busy(&error) => std::thread::sleep(WAL_RETRY_DELAY),
            outcome => return outcome,
        }
    }
    set_wal_mode(connection)
}

fn set_wal_mode(connection: &Connection) -> Result<(), BackendError> {
    let mode: String = connection.pragma_update_and_check(None, "journal_mode", "WAL", |row| row.get(0))?;
    ensure!(
        mode.eq_ignore_ascii_case("wal"),
        "the file system of the table file supports only the journal mode `{mode}`; put the file on a local disk"
    );
    Ok(())
}

fn has_tables(connection: &Connection) -> Result<bool, BackendError> {
    let tables: i64 = connection.query_row("SELECT count(*) FROM sqlite_schema", [], |row| row.get(0))?;
    Ok(tables > 0)
}

/// Whether the tables are those of this format, whatever the header of the file says.
fn has_tables_of(connection: &Connection, format: &Format) -> Result<bool, BackendError> {
    let mut statement =
        connection.prepare("SELECT name FROM sqlite_schema WHERE type = 'table' ORDER BY name")?;
    let names = statement.query_map([], |row| row.get::<_, String>(0))?;
    let names = names.collect::<rusqlite::Result<Vec<String>>>()?;
    Ok(format.tables.iter().all(|table| names.iter().any(|name| name == table)))
}

/// Begins a write transaction; waits while another process writes.
///
/// SQLite's own busy handler sleeps up to 100 ms at a time, during which a busy process commits many times. Short delays
/// are fairer.
pub(super) fn begin(connection: &Connection, busy_timeout: Duration) -> rusqlite::Result<Transaction<'_>> {
    const DELAY: Duration = Duration::from_millis(1);
    let mut waited = Duration::ZERO;
    loop {
        match Transaction::new_unchecked(connection, TransactionBehavior::Immediate) {
            Err(error) if is_busy(&error) && waited < busy_timeout => {
                std::thread::sleep(DELAY);
                waited += DELAY;
            }
            outcome => return outcome,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn setting(connection: &Connection, name: &str) -> String {
        let read = |row: &rusqlite::Row<'_>| row.get::<_, rusqlite::types::Value>(0);
        format!("{:?}", connection.pragma_query_value(None, name, read).expect("a setting"))
    }

    /// Checks the settings, because killing a process does not lose the page cache of the operating system.
    #[test]
    fn commits_are_synced_to_disk() {
        let directory = tempfile::tempdir().expect("a directory");
        let file = SqliteFile::new(
            directory.path().join("table.db"),
            &crate::backend::sqlite::TABLE,
            OnCorruption::Refuse,
        );
        let connection = file.open_to_write(Duration::ZERO).expect("a new file").connection;
        assert_eq!(setting(&connection, "synchronous"), "Integer(2)", "FULL");
        assert_eq!(setting(&connection, "journal_mode"), "Text(\"wal\")");
        assert_eq!(setting(&connection, "wal_autocheckpoint"), "Integer(4000)");
    }

    /// SQLite ignores a page size that is set too late.
    #[test]
    fn new_files_have_the_page_size_of_their_format() {
        let directory = tempfile::tempdir().expect("a directory");
        for (format, bytes) in
            [(&crate::backend::sqlite::TABLE, 4096), (&crate::backend::sqlite::blobs::BLOBS, 8192)]
        {
            let file = SqliteFile::new(directory.path().join(format.name), format, OnCorruption::Refuse);
            let connection = file.open_to_write(Duration::ZERO).expect("a new file").connection;
            assert_eq!(setting(&connection, "page_size"), format!("Integer({bytes})"), "{}", format.name);
        }
    }
}
