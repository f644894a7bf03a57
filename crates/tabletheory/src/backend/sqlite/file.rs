//! Opening the file: what it must be, and how its connections are set up.

use std::path::Path;
use std::time::Duration;

use rusqlite::{Connection, OpenFlags, Transaction, TransactionBehavior};

use super::error::{Fault, is_busy};
use crate::error::{Error, Result};

/// Marks a SQLite file as one of ours: "ttbl" in ASCII.
const APPLICATION_ID: i64 = 0x7474_626c;
/// The layout of the tables below.
const LAYOUT: i64 = 1;

/// `item` is DynamoDB-JSON without the key; `crc` is of key and item; `ttl` repeats the attribute.
/// `token` keeps client tokens in buckets of time, so that old ones can be found without an index.
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

/// How often the switch to the write-ahead log is tried again while another process opens the same new file.
const WAL_ATTEMPTS: u32 = 100;
const WAL_PAUSE: Duration = Duration::from_millis(20);
/// The size to which the log is cut after it has been copied into the file.
const LOG_BYTES: u32 = 64 * 1024 * 1024;
/// Pages that the writer keeps in memory, since it reads every row before it writes it.
const WRITER_CACHE_KIB: i32 = 32 * 1024;
/// Statements that a connection keeps prepared: more than there are.
const STATEMENTS: usize = 64;

/// The one connection that writes; it makes the file and its tables where they are missing.
pub(super) fn open_to_write(path: &Path, busy_timeout: Duration) -> Result<Connection> {
    let flags =
        OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_CREATE | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let open = || -> Result<Connection, Fault> {
        let connection = Connection::open_with_flags(path, flags)?;
        connection.busy_timeout(busy_timeout)?;
        recognise(&connection)?;
        use_log(&connection)?;
        connection.pragma_update(None, "synchronous", "FULL")?;
        connection.pragma_update(None, "journal_size_limit", LOG_BYTES)?;
        // SQLite takes a negative number as KiB, a positive one as pages.
        connection.pragma_update(None, "cache_size", -WRITER_CACHE_KIB)?;
        harden(&connection)?;
        // From here on waiting for a turn to write is our own.
        connection.busy_timeout(Duration::ZERO)?;
        create_tables(&connection, busy_timeout)?;
        Ok(connection)
    };
    open().map_err(|fault| fault.explain(path))
}

/// A connection that reads. It gives up at once where it would have to wait.
pub(super) fn open_to_read(path: &Path) -> Result<Connection, Fault> {
    let flags = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let connection = Connection::open_with_flags(path, flags)?;
    connection.busy_timeout(Duration::ZERO)?;
    connection.pragma_update(None, "query_only", true)?;
    harden(&connection)?;
    Ok(connection)
}

/// A damaged file must not be believed further than it can be checked.
fn harden(connection: &Connection) -> Result<(), Fault> {
    connection.pragma_update(None, "trusted_schema", false)?;
    connection.pragma_update(None, "cell_size_check", true)?;
    connection.set_prepared_statement_cache_capacity(STATEMENTS);
    Ok(())
}

/// Refuses another program's file, and one of a later version of ours, before anything is changed in it.
fn recognise(connection: &Connection) -> Result<(), Fault> {
    let number = |name: &str| connection.pragma_query_value(None, name, |row| row.get::<_, i64>(0));
    let tables: i64 = connection.query_row("SELECT count(*) FROM sqlite_schema", [], |row| row.get(0))?;
    let (application, layout) = (number("application_id")?, number("user_version")?);
    if tables == 0 && application == 0 {
        return Ok(());
    }
    if application != APPLICATION_ID {
        return Err(Error::invalid("this SQLite file belongs to another program; name another file").into());
    }
    if layout > LAYOUT {
        return Err(Error::invalid(format!(
            "this table file has layout {layout} and this program knows {LAYOUT} at most; use a newer program"
        ))
        .into());
    }
    Ok(())
}

/// The switch needs the file for a moment alone, and SQLite does not wait for that by itself.
fn use_log(connection: &Connection) -> Result<(), Fault> {
    for _ in 1..WAL_ATTEMPTS {
        match switch_to_log(connection) {
            Err(Fault::Sqlite(error)) if is_busy(&error) => std::thread::sleep(WAL_PAUSE),
            outcome => return outcome,
        }
    }
    switch_to_log(connection)
}

fn switch_to_log(connection: &Connection) -> Result<(), Fault> {
    let mode: String = connection.pragma_update_and_check(None, "journal_mode", "WAL", |row| row.get(0))?;
    if mode.eq_ignore_ascii_case("wal") {
        return Ok(());
    }
    Err(Error::invalid(format!(
        "the table file's disk allows only the journal mode `{mode}`; put the file on a local disk"
    ))
    .into())
}

/// A file that has its tables is opened without a turn to write, for which a busy file would have to be waited.
fn create_tables(connection: &Connection, patience: Duration) -> Result<(), Fault> {
    if has_tables(connection)? {
        return Ok(());
    }
    let transaction = begin(connection, patience)?;
    if !has_tables(&transaction)? {
        transaction.execute_batch(SCHEMA)?;
        transaction.pragma_update(None, "application_id", APPLICATION_ID)?;
        transaction.pragma_update(None, "user_version", LAYOUT)?;
    }
    transaction.commit()?;
    Ok(())
}

fn has_tables(connection: &Connection) -> Result<bool, Fault> {
    let tables: i64 = connection.query_row("SELECT count(*) FROM sqlite_schema", [], |row| row.get(0))?;
    Ok(tables > 0)
}

/// Begins to write, and waits for another process that does.
///
/// SQLite's own waiting sleeps for longer and longer, up to a tenth of a second, in which a busy process
/// begins again many times; short pauses give both their turn.
pub(super) fn begin(connection: &Connection, patience: Duration) -> rusqlite::Result<Transaction<'_>> {
    const PAUSE: Duration = Duration::from_millis(1);
    let mut waited = Duration::ZERO;
    loop {
        match Transaction::new_unchecked(connection, TransactionBehavior::Immediate) {
            Err(error) if is_busy(&error) && waited < patience => {
                std::thread::sleep(PAUSE);
                waited += PAUSE;
            }
            outcome => return outcome,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Nothing but the settings can show this: a process that is killed leaves the system's cache behind.
    #[test]
    fn a_commit_waits_for_the_disk() {
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
