//! Opening the file and configuring its connections.

use std::fmt;
use std::path::PathBuf;
use std::time::Duration;

use rusqlite::config::DbConfig;
use rusqlite::{Connection, OpenFlags, Transaction, TransactionBehavior};

use super::error::{BackendError, is_busy};
use crate::error::{Result, ensure};

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
    /// Whether `PRAGMA incremental_vacuum` can make the file shorter after rows were deleted.
    pub(super) shrinks: bool,
    /// The size of SQLite's pages in new files.
    pub(super) page_bytes: u32,
    /// SQLite's own page cache for the connection of the writer.
    pub(super) writer_cache_kib: i32,
}

/// A SQLite file, which several processes may use.
#[derive(Clone, Debug)]
pub(super) struct SqliteFile {
    pub(super) path: PathBuf,
    format: &'static Format,
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
/// Size to which the log is truncated after a checkpoint.
const MAX_LOG_BYTES: u32 = 64 * 1024 * 1024;
/// Capacity for prepared statements per connection: more than there are.
const CACHED_STATEMENTS: usize = 64;

impl SqliteFile {
    pub(super) fn new(path: PathBuf, format: &'static Format) -> Self {
        SqliteFile { path, format }
    }

    /// Opens the connection for writing; creates the file and its tables if they are missing.
    pub(super) fn open_to_write(&self, busy_timeout: Duration) -> Result<Connection> {
        let flags = OpenFlags::SQLITE_OPEN_READ_WRITE
            | OpenFlags::SQLITE_OPEN_CREATE
            | OpenFlags::SQLITE_OPEN_NO_MUTEX;
        let open = || -> Result<Connection, BackendError> {
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
            Ok(connection)
        };
        open().map_err(|error| error.into_error(self))
    }

    /// Opens a connection for reading, which fails at once if the file is locked.
    pub(super) fn open_to_read(&self) -> Result<Connection, BackendError> {
        let flags = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_NO_MUTEX;
        let connection = Connection::open_with_flags(&self.path, flags)?;
        connection.busy_timeout(Duration::ZERO)?;
        connection.pragma_update(None, "query_only", true)?;
        configure(&connection)?;
        Ok(connection)
    }
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
        let file = SqliteFile::new(directory.path().join("table.db"), &crate::backend::sqlite::TABLE);
        let connection = file.open_to_write(Duration::ZERO).expect("a new file");
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
            let file = SqliteFile::new(directory.path().join(format.name), format);
            let connection = file.open_to_write(Duration::ZERO).expect("a new file");
            assert_eq!(setting(&connection, "page_size"), format!("Integer({bytes})"), "{}", format.name);
        }
    }
}
