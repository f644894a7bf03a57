//! Opening the file and configuring its connections.

use std::path::Path;
use std::time::Duration;

use rusqlite::{Connection, OpenFlags, Transaction, TransactionBehavior};

use super::error::{BackendError, is_busy};
use crate::error::{Result, ensure};

/// SQLite's application id of table files: "ttbl" in ASCII.
const APPLICATION_ID: i64 = 0x7474_626c;
/// Version of the schema.
const SCHEMA_VERSION: i64 = 1;

/// `item` is DynamoDB-JSON without the key; `crc` is the checksum of key and item; `ttl` repeats the attribute.
/// `token` stores client tokens in time buckets, so that old ones can be found without an index.
const SCHEMA: &str = "
    CREATE TABLE item (
        pk   TEXT NOT NULL,
        sk   TEXT NOT NULL,
        ttl  INTEGER,
        item TEXT NOT NULL,
        crc  INTEGER NOT NULL,
        PRIMARY KEY (pk, sk)
    ) WITHOUT ROWID;
    CREATE INDEX item_ttl ON item (ttl) WHERE ttl IS NOT NULL;
    CREATE TABLE token (
        bucket INTEGER NOT NULL,
        token  TEXT NOT NULL,
        at     INTEGER NOT NULL,
        digest BLOB NOT NULL,
        PRIMARY KEY (bucket, token)
    ) WITHOUT ROWID;
";

/// Number of attempts to enable the write-ahead log while another process opens the same new file.
const WAL_ATTEMPTS: u32 = 100;
const WAL_RETRY_DELAY: Duration = Duration::from_millis(20);
/// Size to which the log is truncated after a checkpoint.
const MAX_LOG_BYTES: u32 = 64 * 1024 * 1024;
/// Page cache of the writer, which reads rows before it writes them.
const WRITER_CACHE_KIB: i32 = 32 * 1024;
/// Capacity for prepared statements per connection: more than there are.
const CACHED_STATEMENTS: usize = 64;

/// Opens the connection for writing; creates the file and its tables if they are missing.
pub(super) fn open_to_write(path: &Path, busy_timeout: Duration) -> Result<Connection> {
    let flags =
        OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_CREATE | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let open = || -> Result<Connection, BackendError> {
        let connection = Connection::open_with_flags(path, flags)?;
        connection.busy_timeout(busy_timeout)?;
        check_format(&connection)?;
        enable_wal(&connection)?;
        connection.pragma_update(None, "synchronous", "FULL")?;
        connection.pragma_update(None, "journal_size_limit", MAX_LOG_BYTES)?;
        // SQLite interprets negative numbers as KiB, positive ones as pages.
        connection.pragma_update(None, "cache_size", -WRITER_CACHE_KIB)?;
        harden(&connection)?;
        // From here on `begin` waits for locks, not SQLite.
        connection.busy_timeout(Duration::ZERO)?;
        create_tables(&connection, busy_timeout)?;
        Ok(connection)
    };
    open().map_err(|error| error.into_error(path))
}

/// Opens a connection for reading, which fails at once if the file is locked.
pub(super) fn open_to_read(path: &Path) -> Result<Connection, BackendError> {
    let flags = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let connection = Connection::open_with_flags(path, flags)?;
    connection.busy_timeout(Duration::ZERO)?;
    connection.pragma_update(None, "query_only", true)?;
    harden(&connection)?;
    Ok(connection)
}

/// Makes SQLite validate the schema and the pages of a possibly damaged file.
fn harden(connection: &Connection) -> Result<(), BackendError> {
    connection.pragma_update(None, "trusted_schema", false)?;
    connection.pragma_update(None, "cell_size_check", true)?;
    connection.set_prepared_statement_cache_capacity(CACHED_STATEMENTS);
    Ok(())
}

/// Rejects files of other programs, and of later versions of this one, before anything is changed in them.
fn check_format(connection: &Connection) -> Result<(), BackendError> {
    // Tables first: another process that creates the file writes its tables and these numbers in one transaction, so
    // once there are tables, the numbers are there, too.
    let has_tables = has_tables(connection)?;
    let number = |name: &str| connection.pragma_query_value(None, name, |row| row.get::<_, i64>(0));
    let (application, layout) = (number("application_id")?, number("user_version")?);
    if application == 0 && !has_tables {
        return Ok(());
    }
    ensure!(application == APPLICATION_ID, "this SQLite file belongs to another program; use another file");
    ensure!(
        layout <= SCHEMA_VERSION,
        "this table file has schema version {layout}, but this program supports at most {SCHEMA_VERSION}; \
         use a newer version of the program"
    );
    Ok(())
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

/// Takes the write lock only if tables are missing, so that opening a busy file does not wait.
fn create_tables(connection: &Connection, busy_timeout: Duration) -> Result<(), BackendError> {
    if has_tables(connection)? {
        return Ok(());
    }
    let transaction = begin(connection, busy_timeout)?;
    if !has_tables(&transaction)? {
        transaction.execute_batch(SCHEMA)?;
        transaction.pragma_update(None, "application_id", APPLICATION_ID)?;
        transaction.pragma_update(None, "user_version", SCHEMA_VERSION)?;
    }
    transaction.commit()?;
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

    /// Checks the settings, because killing a process does not lose the page cache of the operating system.
    #[test]
    fn commits_are_synced_to_disk() {
        let directory = tempfile::tempdir().expect("a directory");
        let connection =
            open_to_write(&directory.path().join("table.db"), Duration::ZERO).expect("a new file");
        let setting = |name: &str| -> String {
            let read = |row: &rusqlite::Row<'_>| row.get::<_, rusqlite::types::Value>(0);
            format!("{:?}", connection.pragma_query_value(None, name, read).expect("a setting"))
        };
        assert_eq!(setting("synchronous"), "Integer(2)", "FULL");
        assert_eq!(setting("journal_mode"), "Text(\"wal\")");
    }
}
