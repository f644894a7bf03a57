//! Reading: a pool of connections, and the statements that they execute.

use std::borrow::Cow;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use rusqlite::{Connection, OptionalExtension, params_from_iter};
use tokio::sync::Semaphore;

use super::error::BackendError;
use super::file::SqliteFile;
use super::row::{COLUMNS, decode};
use crate::backend::PageBuilder;
use crate::cond::Comparison;
use crate::error::{Error, Kind, Result};
use crate::item::{Item, Key};
use crate::query::{Page, Query, Scan, Sort};
use crate::ttl::Expired;

/// Number of connections that stay open between reads; more are opened temporarily for more concurrent reads.
const IDLE_CONNECTIONS: usize = 16;

/// The connections for reading, each used by one caller at a time.
#[derive(Debug)]
pub(super) struct Readers {
    file: SqliteFile,
    busy_timeout: Duration,
    idle: Mutex<Vec<Connection>>,
    /// Limits concurrent reads on the blocking pool, each of which has a connection and so open files.
    permits: Semaphore,
}

impl Readers {
    pub(super) fn new(file: SqliteFile, busy_timeout: Duration) -> Self {
        Readers { file, busy_timeout, idle: Mutex::default(), permits: Semaphore::new(IDLE_CONNECTIONS) }
    }

    /// Reads on this thread, or on tokio's blocking pool if the file is locked.
    pub(super) async fn read_inline<T, F>(self: &Arc<Self>, read: F) -> Result<T>
    where
        T: Send + 'static,
        F: Fn(&Connection) -> Result<T, BackendError> + Send + 'static,
    {
        match self.try_read(&read) {
            Some(result) => result,
            None => self.read_blocking(read).await,
        }
    }

    /// Reads on tokio's blocking pool, where it waits while the file is locked.
    pub(super) async fn read_blocking<T, F>(self: &Arc<Self>, read: F) -> Result<T>
    where
        T: Send + 'static,
        F: FnOnce(&Connection) -> Result<T, BackendError> + Send + 'static,
    {
        let readers = Arc::clone(self);
        let Ok(runtime) = tokio::runtime::Handle::try_current() else {
            // Without a runtime, blocking affects only the caller.
            return readers.blocking_read(read);
        };
        let _permit = self.permits.acquire().await;
        runtime
            .spawn_blocking(move || readers.blocking_read(read))
            .await
            .map_err(|cause| Error::unavailable("the read was aborted").caused_by(cause))?
    }

    /// Reads without waiting for other processes; `None` if the file is locked.
    pub(super) fn try_read<T>(
        &self,
        read: impl FnOnce(&Connection) -> Result<T, BackendError>,
    ) -> Option<Result<T>> {
        match self.with_connection(read) {
            Err(error) if error.is_busy() => None,
            result => Some(result.map_err(|error| error.into_error(&self.file))),
        }
    }

    /// Reads, and waits while the file is locked. Must not be called on an async thread.
    fn blocking_read<T>(&self, read: impl FnOnce(&Connection) -> Result<T, BackendError>) -> Result<T> {
        self.with_connection(|connection| {
            connection.busy_timeout(self.busy_timeout)?;
            let result = read(connection);
            connection.busy_timeout(Duration::ZERO)?;
            result
        })
        .map_err(|error| error.into_error(&self.file))
    }

    fn with_connection<T>(
        &self,
        read: impl FnOnce(&Connection) -> Result<T, BackendError>,
    ) -> Result<T, BackendError> {
        // Not in the `match` itself, which would hold the lock while a file is opened.
        let idle = self.idle.lock().pop();
        let connection = match idle {
            Some(connection) => connection,
            // The file existed when the table was opened, so the cause is probably a limit of this process.
            None => self.file.open_to_read().map_err(|error| match error.into_error(&self.file) {
                error if error.kind() == Kind::Invalid => Error::unavailable(format!(
                    "{} cannot be opened again for reading; this process may have too many open files",
                    self.file
                ))
                .caused_by(error)
                .into(),
                error => BackendError::from(error),
            })?,
        };
        let result = read(&connection)?;
        let mut idle = self.idle.lock();
        if idle.len() < IDLE_CONNECTIONS {
            idle.push(connection);
        }
        Ok(result)
    }
}

pub(super) fn get(connection: &Connection, key: &Key) -> Result<Option<Item>, BackendError> {
    let mut statement =
        connection.prepare_cached("SELECT pk, sk, item, crc FROM item WHERE pk = ?1 AND sk = ?2")?;
    let mut rows = statement.query([&key.pk, &key.sk])?;
    rows.next()?.map(decode).transpose()
}

pub(super) fn query(connection: &Connection, query: &Query) -> Result<Page, BackendError> {
    let (low, high) = sort_key_bounds(query);
    let direction = if query.backward { "DESC" } else { "ASC" };
    let mut conditions = String::from("pk = ?1");
    let mut values = vec![query.pk.as_str()];
    for (operator, bound) in [&low, &high].into_iter().flatten() {
        values.push(bound);
        conditions.push_str(&format!(" AND sk {operator} ?{}", values.len()));
    }
    let mut statement = connection
        .prepare_cached(&format!("SELECT {COLUMNS} FROM item WHERE {conditions} ORDER BY sk {direction}"))?;
    page(statement.query(params_from_iter(values))?, query.limit)
}

pub(super) fn scan(connection: &Connection, scan: &Scan) -> Result<Page, BackendError> {
    let (condition, values) = match &scan.after {
        Some(cursor) => ("WHERE (pk, sk) > (?1, ?2)", vec![cursor.0.pk.as_str(), cursor.0.sk.as_str()]),
        None => ("", Vec::new()),
    };
    let mut statement =
        connection.prepare_cached(&format!("SELECT {COLUMNS} FROM item {condition} ORDER BY pk, sk"))?;
    page(statement.query(params_from_iter(values))?, scan.limit)
}

fn page(mut rows: rusqlite::Rows<'_>, limit: Option<usize>) -> Result<Page, BackendError> {
    let mut page = PageBuilder::new(limit);
    while let Some(row) = rows.next()?
        && page.push(decode(row)?)?
    {}
    Ok(page.finish())
}

/// Counts expired rows, using only the index on `ttl`.
pub(super) fn count_expired(connection: &Connection, expired: Expired) -> Result<u64, BackendError> {
    let mut statement =
        connection.prepare_cached("SELECT count(*) FROM item WHERE ttl > ?1 AND ttl <= ?2")?;
    let rows: i64 = statement.query_row([expired.after, expired.until], |row| row.get(0))?;
    Ok(rows.unsigned_abs())
}

/// Checks the file with SQLite and every row with its checksum; returns the number of rows.
pub(super) fn verify(connection: &Connection) -> Result<u64, BackendError> {
    let problem: Option<String> = connection
        .query_row("PRAGMA integrity_check(1)", [], |row| row.get(0))
        .optional()?
        .filter(|problem| problem != "ok");
    if let Some(problem) = problem {
        return Err(Error::corrupt(format!(
            "the file is damaged ({problem}); restore it from a backup, or move it away to start with an empty table"
        ))
        .into());
    }
    let mut statement = connection.prepare_cached(&format!("SELECT {COLUMNS} FROM item"))?;
    let mut rows = statement.query([])?;
    let mut count = 0;
    while let Some(row) = rows.next()? {
        decode(row)?;
        count += 1;
    }
    Ok(count)
}

/// An operator and its operand.
type Bound<'q> = Option<(&'static str, Cow<'q, str>)>;

/// Returns the lower and the upper bound of the sort keys that a query matches, in a form for which SQLite uses the index.
fn sort_key_bounds(query: &Query) -> (Bound<'_>, Bound<'_>) {
    let (mut low, mut high) = match &query.sort {
        Sort::All => (None, None),
        Sort::Compare(Comparison::Equal, sk) => (Some((">=", sk.into())), Some(("<=", sk.into()))),
        Sort::Compare(comparison @ (Comparison::Less | Comparison::LessOrEqual), sk) => {
            (None, Some((comparison.symbol(), sk.into())))
        }
        Sort::Compare(comparison, sk) => (Some((comparison.symbol(), sk.into())), None),
        Sort::Between(low, high) => (Some((">=", low.into())), Some(("<=", high.into()))),
        Sort::BeginsWith(prefix) => {
            (Some((">=", prefix.into())), end_of_prefix(prefix).map(|end| ("<", end.into())))
        }
    };
    // A cursor is within the bounds of its query, so it only narrows them.
    if let Some(cursor) = &query.after {
        let sk = cursor.0.sk.as_str();
        if query.backward {
            high = Some(("<", sk.into()));
        } else {
            low = Some((">", sk.into()));
        }
    }
    (low, high)
}

/// Returns the least string that is greater than every string with this prefix, if there is one.
fn end_of_prefix(prefix: &str) -> Option<String> {
    let mut rest = prefix.to_owned();
    while let Some(last) = rest.pop() {
        // Ranges of characters skip the surrogates.
        if let Some(next) = (last..=char::MAX).nth(1) {
            rest.push(next);
            return Some(rest);
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::backend::sqlite::error::failure;
    use rusqlite::ffi;

    const BUSY_TIMEOUT: Duration = Duration::from_millis(1234);

    fn readers(directory: &tempfile::TempDir) -> Readers {
        let file = SqliteFile::new(directory.path().join("table.db"), &crate::backend::sqlite::TABLE);
        drop(file.open_to_write(Duration::ZERO).expect("a new file"));
        Readers::new(file, BUSY_TIMEOUT)
    }

    #[test]
    fn a_read_that_would_have_to_wait_returns_none() {
        let directory = tempfile::tempdir().expect("a temporary directory");
        let readers = readers(&directory);
        for code in [ffi::SQLITE_BUSY, ffi::SQLITE_BUSY_RECOVERY, ffi::SQLITE_LOCKED] {
            assert!(readers.try_read::<()>(|_| Err(failure(code).into())).is_none(), "{code}");
        }
        let damaged = readers.try_read::<()>(|_| Err(failure(ffi::SQLITE_CORRUPT).into()));
        assert!(damaged.expect("not busy").is_err());
        assert_eq!(readers.try_read(|_| Ok(7)).expect("not busy").expect("a read"), 7);
    }

    #[test]
    fn only_a_blocking_read_waits_and_the_timeout_is_reset_after_it() {
        let directory = tempfile::tempdir().expect("a temporary directory");
        let readers = readers(&directory);
        let timeout = |connection: &Connection| -> Result<u128, BackendError> {
            let milliseconds: u32 = connection.pragma_query_value(None, "busy_timeout", |row| row.get(0))?;
            Ok(milliseconds.into())
        };
        for _ in 0..2 {
            assert_eq!(readers.try_read(timeout).expect("not busy").expect("a read"), 0);
            assert_eq!(readers.blocking_read(timeout).expect("a read"), BUSY_TIMEOUT.as_millis());
        }
        assert_eq!(readers.idle.lock().len(), 1, "all reads share one connection");
    }

    #[test]
    fn the_end_of_a_prefix_is_the_next_string_in_byte_order() {
        assert_eq!(end_of_prefix("VER#").as_deref(), Some("VER$"));
        assert_eq!(end_of_prefix("a\u{D7FF}").as_deref(), Some("a\u{E000}"));
        assert_eq!(end_of_prefix("a\u{10FFFF}").as_deref(), Some("b"));
        assert_eq!(end_of_prefix("\u{10FFFF}\u{10FFFF}"), None);
    }
}
