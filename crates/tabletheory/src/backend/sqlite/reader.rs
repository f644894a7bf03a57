//! Reading: connections that are shared among callers, and the statements that they run.

use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use rusqlite::{Connection, OptionalExtension, params_from_iter};
use tokio::sync::{Semaphore, SemaphorePermit};

use super::error::Fault;
use super::file;
use super::row::{COLUMNS, decode};
use crate::backend::PageBuilder;
use crate::error::{Error, Kind, Result};
use crate::item::{Item, Key};
use crate::query::{Page, Query, Scan, Sort};
use crate::ttl::Expired;

/// How many connections are kept open between reads; more are opened for a moment when more read at once.
const IDLE_CONNECTIONS: usize = 16;

/// The connections that read, each used by one caller at a time.
#[derive(Debug)]
pub(super) struct Readers {
    path: PathBuf,
    busy_timeout: Duration,
    idle: Mutex<Vec<Connection>>,
    /// How many may read at once on the blocking pool, each with a connection and so with open files.
    turns: Semaphore,
}

impl Readers {
    pub(super) fn new(path: PathBuf, busy_timeout: Duration) -> Self {
        Readers { path, busy_timeout, idle: Mutex::default(), turns: Semaphore::new(IDLE_CONNECTIONS) }
    }

    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    /// Waits until there are few enough others; the semaphore is never closed, so it always comes.
    pub(super) async fn turn(&self) -> Option<SemaphorePermit<'_>> {
        self.turns.acquire().await.ok()
    }

    /// Reads without ever waiting for another process; none if it would have to.
    pub(super) fn read_at_once<T>(
        &self,
        read: impl FnOnce(&Connection) -> Result<T, Fault>,
    ) -> Option<Result<T>> {
        match self.lend(read) {
            Err(fault) if fault.is_busy() => None,
            outcome => Some(outcome.map_err(|fault| fault.explain(&self.path))),
        }
    }

    /// Reads, and waits for another process where it must: not for the threads that serve requests.
    pub(super) fn read_patiently<T>(&self, read: impl FnOnce(&Connection) -> Result<T, Fault>) -> Result<T> {
        self.lend(|connection| {
            connection.busy_timeout(self.busy_timeout)?;
            let outcome = read(connection);
            connection.busy_timeout(Duration::ZERO)?;
            outcome
        })
        .map_err(|fault| fault.explain(&self.path))
    }

    fn lend<T>(&self, read: impl FnOnce(&Connection) -> Result<T, Fault>) -> Result<T, Fault> {
        // The connections hold no state between reads, so a lock that a panic poisoned guards nothing broken.
        let idle = || self.idle.lock().unwrap_or_else(PoisonError::into_inner);
        let kept = idle().pop();
        let connection = match kept {
            Some(connection) => connection,
            // The file was there when the table was opened, so what is missing now is something else.
            None => file::open_to_read(&self.path).map_err(|fault| match fault.explain(&self.path) {
                error if error.kind() == Kind::Invalid => Error::unavailable(
                    "the table file cannot be opened once more to read; this process may have too many files open",
                )
                .caused_by(error)
                .into(),
                error => Fault::from(error),
            })?,
        };
        let outcome = read(&connection)?;
        let mut idle = idle();
        if idle.len() < IDLE_CONNECTIONS {
            idle.push(connection);
        }
        Ok(outcome)
    }
}

pub(super) fn get(connection: &Connection, key: &Key) -> Result<Option<Item>, Fault> {
    let mut statement =
        connection.prepare_cached("SELECT pk, sk, item, crc FROM item WHERE pk = ?1 AND sk = ?2")?;
    let mut rows = statement.query([&key.pk, &key.sk])?;
    rows.next()?.map(decode).transpose()
}

pub(super) fn query(connection: &Connection, query: &Query) -> Result<Page, Fault> {
    let range = Range::of(query);
    let direction = if query.backward { "DESC" } else { "ASC" };
    let mut conditions = String::from("pk = ?1");
    let mut values = vec![query.pk.as_str()];
    for (operator, bound) in [&range.low, &range.high].into_iter().flatten() {
        values.push(bound);
        conditions.push_str(&format!(" AND sk {operator} ?{}", values.len()));
    }
    let mut statement = connection
        .prepare_cached(&format!("SELECT {COLUMNS} FROM item WHERE {conditions} ORDER BY sk {direction}"))?;
    page(statement.query(params_from_iter(values))?, query.limit)
}

pub(super) fn scan(connection: &Connection, scan: &Scan) -> Result<Page, Fault> {
    let (condition, values) = match &scan.after {
        Some(cursor) => ("WHERE (pk, sk) > (?1, ?2)", vec![cursor.0.pk.as_str(), cursor.0.sk.as_str()]),
        None => ("", Vec::new()),
    };
    let mut statement =
        connection.prepare_cached(&format!("SELECT {COLUMNS} FROM item {condition} ORDER BY pk, sk"))?;
    page(statement.query(params_from_iter(values))?, scan.limit)
}

fn page(mut rows: rusqlite::Rows<'_>, limit: Option<usize>) -> Result<Page, Fault> {
    let mut page = PageBuilder::new(limit);
    while let Some(row) = rows.next()?
        && page.push(decode(row)?)?
    {}
    Ok(page.finish())
}

/// How many rows have expired, by the index of expiry times alone.
pub(super) fn count_expired(connection: &Connection, expired: Expired) -> Result<u64, Fault> {
    let mut statement =
        connection.prepare_cached("SELECT count(*) FROM item WHERE ttl > ?1 AND ttl <= ?2")?;
    let rows: i64 = statement.query_row([expired.after, expired.until], |row| row.get(0))?;
    Ok(rows.unsigned_abs())
}

/// Everything that SQLite can check, then every row's checksum; the number of rows if all is well.
pub(super) fn verify(connection: &Connection) -> Result<u64, Fault> {
    let problem: Option<String> = connection
        .query_row("PRAGMA integrity_check(1)", [], |row| row.get(0))
        .optional()?
        .filter(|answer| answer != "ok");
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

/// The stretch of sort keys that a query asks for, as bounds that the index can use.
struct Range<'q> {
    low: Option<(&'static str, std::borrow::Cow<'q, str>)>,
    high: Option<(&'static str, std::borrow::Cow<'q, str>)>,
}

impl<'q> Range<'q> {
    fn of(query: &'q Query) -> Self {
        let (mut low, mut high) = match &query.sort {
            Sort::All => (None, None),
            Sort::Is(sk) => (Some((">=", sk.into())), Some(("<=", sk.into()))),
            Sort::Lt(sk) => (None, Some(("<", sk.into()))),
            Sort::Le(sk) => (None, Some(("<=", sk.into()))),
            Sort::Gt(sk) => (Some((">", sk.into())), None),
            Sort::Ge(sk) => (Some((">=", sk.into())), None),
            Sort::Between(low, high) => (Some((">=", low.into())), Some(("<=", high.into()))),
            Sort::BeginsWith(prefix) => {
                (Some((">=", prefix.into())), end_of_prefix(prefix).map(|end| ("<", end.into())))
            }
        };
        // A cursor lies within the query's own bounds, so it only ever narrows them.
        if let Some(cursor) = &query.after {
            let sk = cursor.0.sk.as_str();
            if query.backward {
                high = Some(("<", sk.into()));
            } else {
                low = Some((">", sk.into()));
            }
        }
        Range { low, high }
    }
}

/// The least text that is greater than every text with this prefix, if there is one.
fn end_of_prefix(prefix: &str) -> Option<String> {
    let mut rest = prefix.to_owned();
    while let Some(last) = rest.pop() {
        // The range of characters knows of the gap where surrogates would be.
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

    const PATIENCE: Duration = Duration::from_millis(1234);

    fn readers(directory: &tempfile::TempDir) -> Readers {
        let path = directory.path().join("table.db");
        drop(file::open_to_write(&path, Duration::ZERO).expect("a new file"));
        Readers::new(path, PATIENCE)
    }

    #[test]
    fn whoever_would_have_to_wait_is_told_so_at_once() {
        let directory = tempfile::tempdir().expect("a temporary directory");
        let readers = readers(&directory);
        for code in [ffi::SQLITE_BUSY, ffi::SQLITE_BUSY_RECOVERY, ffi::SQLITE_LOCKED] {
            assert!(readers.read_at_once::<()>(|_| Err(failure(code).into())).is_none(), "{code}");
        }
        let damaged = readers.read_at_once::<()>(|_| Err(failure(ffi::SQLITE_CORRUPT).into()));
        assert!(damaged.expect("waiting does not help").is_err());
        assert_eq!(readers.read_at_once(|_| Ok(7)).expect("nobody is in the way").expect("a read"), 7);
    }

    #[test]
    fn only_a_patient_reader_waits_and_its_connection_forgets_it() {
        let directory = tempfile::tempdir().expect("a temporary directory");
        let readers = readers(&directory);
        let timeout = |connection: &Connection| -> Result<u128, Fault> {
            let milliseconds: u32 = connection.pragma_query_value(None, "busy_timeout", |row| row.get(0))?;
            Ok(milliseconds.into())
        };
        for _ in 0..2 {
            assert_eq!(readers.read_at_once(timeout).expect("no wait").expect("a read"), 0);
            assert_eq!(readers.read_patiently(timeout).expect("a read"), PATIENCE.as_millis());
        }
        assert_eq!(readers.idle.lock().expect("not poisoned").len(), 1, "they shared one connection");
    }

    #[test]
    fn the_end_of_a_prefix_is_the_next_text_in_byte_order() {
        assert_eq!(end_of_prefix("VER#").as_deref(), Some("VER$"));
        assert_eq!(end_of_prefix("a\u{D7FF}").as_deref(), Some("a\u{E000}"));
        assert_eq!(end_of_prefix("a\u{10FFFF}").as_deref(), Some("b"));
        assert_eq!(end_of_prefix("\u{10FFFF}\u{10FFFF}"), None);
    }
}
