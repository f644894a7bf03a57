//! Reading: a pool of connections, and the statements that they execute.

use std::borrow::Cow;
use std::sync::{Arc, LazyLock};
use std::time::Duration;

use parking_lot::{Mutex, MutexGuard};
use rusqlite::{Connection, OptionalExtension, params, params_from_iter};
use tokio::sync::Semaphore;

use super::error::BackendError;
use super::file::{Opened, SqliteFile};
use super::place::{self, Beside, FileId};
use super::row::{COLUMNS, decode, decode_found, mismatch};
use crate::backend::PageBuilder;
use crate::cond::Comparison;
use crate::error::{Error, Kind, Result};
use crate::item::{Item, Key};
use crate::query::{Page, Query, Scan, Sort};
use crate::ttl::Expired;

/// Number of connections that stay open between reads; more are opened temporarily for more concurrent reads.
const IDLE_CONNECTIONS: usize = 16;

/// The most rows that one statement reads by their keys.
const MAX_TOGETHER: usize = 8;
/// The statements that read 1, 2, … rows by their keys. The last column is the index of the key.
static SELECT_TOGETHER: LazyLock<[String; MAX_TOGETHER]> = LazyLock::new(|| {
    std::array::from_fn(|last| {
        let key = |index| format!("({index}, ?{}, ?{})", 2 * index + 1, 2 * index + 2);
        let keys: Vec<String> = (0..=last).map(key).collect();
        format!(
            "SELECT pk, sk, item, crc, key.column1 FROM (VALUES {}) AS key
             CROSS JOIN item ON pk = key.column2 AND sk = key.column3",
            keys.join(", ")
        )
    })
});

/// The connections for reading, each used by one caller at a time.
#[derive(Debug)]
pub(super) struct Readers {
    file: SqliteFile,
    busy_timeout: Duration,
    idle: Mutex<Idle>,
    /// Limits concurrent reads on the blocking pool, each of which has a connection and so open files.
    permits: Semaphore,
}

/// The connections that nobody uses, all of one file.
#[derive(Debug)]
struct Idle {
    id: FileId,
    beside: Beside,
    connections: Vec<Connection>,
    /// How often another file took the place of the one before.
    replacements: u64,
}

/// Why a read failed.
#[derive(Debug)]
pub(super) enum ReadError {
    /// The file with this identity is damaged, or does not have its name any more. The writer may replace it.
    Lost {
        id: FileId,
        error: Error,
    },
    Other(Error),
}

impl Readers {
    /// Reads the file of this connection.
    pub(super) fn new(file: SqliteFile, opened: &Opened, replacements: u64, busy_timeout: Duration) -> Self {
        let Opened { id, beside, .. } = *opened;
        let idle = Mutex::new(Idle { id, beside, connections: Vec::new(), replacements });
        Readers { file, busy_timeout, idle, permits: Semaphore::new(IDLE_CONNECTIONS) }
    }

    pub(super) fn file(&self) -> &SqliteFile {
        &self.file
    }

    /// Reads on tokio's blocking pool, where it waits while the file is locked.
    pub(super) async fn read_blocking<T, F>(self: &Arc<Self>, read: F) -> Result<T, ReadError>
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
            .map_err(|cause| ReadError::Other(Error::unavailable("the read was aborted").caused_by(cause)))?
    }

    /// Reads without waiting for other processes; `None` if the file is locked.
    pub(super) fn try_read<T>(
        &self,
        read: impl FnOnce(&Connection) -> Result<T, BackendError>,
    ) -> Option<Result<T, ReadError>> {
        match self.with_connection(read) {
            Err((error, _)) if error.is_busy() => None,
            result => Some(result.map_err(|(error, id)| self.read_error(error, id))),
        }
    }

    /// Reads with an idle connection, without a look at whether its file still has its name: for data that never changes. `None`
    /// if there is no such connection, or the read fails; then another way of reading finds out why.
    pub(super) fn read_idle<T>(
        &self,
        read: impl FnOnce(&Connection) -> Result<T, BackendError>,
    ) -> Option<T> {
        let (id, connection) = {
            let mut idle = self.idle.lock();
            (idle.id, idle.connections.pop()?)
        };
        let result = read(&connection).ok()?;
        self.release(id, connection);
        Some(result)
    }

    /// Reads, and waits while the file is locked. Must not be called on an async thread.
    fn blocking_read<T>(
        &self,
        read: impl FnOnce(&Connection) -> Result<T, BackendError>,
    ) -> Result<T, ReadError> {
        self.with_connection(|connection| {
            connection.busy_timeout(self.busy_timeout)?;
            let result = read(connection);
            connection.busy_timeout(Duration::ZERO)?;
            result
        })
        .map_err(|(error, id)| self.read_error(error, id))
    }

    /// Returns how often another file took the place of the one that was open. Fails if writes are lost, because the process
    /// must not continue with the file that has the name now.
    pub(super) fn replacements(&self) -> Result<u64> {
        let found = FileId::of(&self.file.path);
        let (_closed, idle) = self.follow();
        if found == Some(idle.id) || self.file.may_be_followed() {
            return Ok(idle.replacements);
        }
        Err(self.file.lost())
    }

    fn read_error(&self, error: BackendError, id: FileId) -> ReadError {
        let is_lost = error.is_damage() && self.file.is_replaceable();
        let error = error.into_error(&self.file);
        if is_lost { ReadError::Lost { id, error } } else { ReadError::Other(error) }
    }

    /// Calls `read` with a connection. An error comes with the file that was read.
    fn with_connection<T>(
        &self,
        read: impl FnOnce(&Connection) -> Result<T, BackendError>,
    ) -> Result<T, (BackendError, FileId)> {
        if self.file.is_read_only()
            && let Ok(Some(opened)) = self.file.open_while_full()
        {
            return read(&opened.connection).map_err(|error| (error, opened.id));
        }
        let (id, connection) = self.connection()?;
        let result = read(&connection).map_err(|error| (error, id))?;
        self.release(id, connection);
        Ok(result)
    }

    fn release(&self, id: FileId, connection: Connection) {
        let mut idle = self.idle.lock();
        if idle.id == id && idle.connections.len() < IDLE_CONNECTIONS {
            idle.connections.push(connection);
        }
    }

    fn connection(&self) -> Result<(FileId, Connection), (BackendError, FileId)> {
        // Not in the `match` itself, which would hold the lock while a file is opened.
        let (id, idle) = {
            let (_closed, mut idle) = self.follow();
            (idle.id, idle.connections.pop())
        };
        if let Some(connection) = idle {
            return Ok((id, connection));
        }
        let opened = self.file.open_to_read().map_err(|error| (self.cannot_open(error), id))?;
        let mut idle = self.idle.lock();
        if opened.id == idle.id {
            idle.beside = opened.beside;
        } else if !self.file.may_be_followed() {
            return Err((self.file.lost().into(), id));
        }
        Ok((opened.id, opened.connection))
    }

    /// Continues with the file that has the name now, if this process may do so. Returns the connections to the file before.
    fn follow(&self) -> (Vec<Connection>, MutexGuard<'_, Idle>) {
        let found = FileId::of(&self.file.path).filter(|_| self.file.is_replaceable());
        let mut idle = self.idle.lock();
        let closed = match found {
            // The directory is compared only if that matters.
            Some(other) if other != idle.id && self.file.may_be_followed() => {
                if let Err(error) = place::leave(&self.file, idle.beside) {
                    tracing::warn!(%error, "the log of a file that was replaced is still there");
                }
                idle.id = other;
                idle.replacements += 1;
                std::mem::take(&mut idle.connections)
            }
            _ => Vec::new(),
        };
        (closed, idle)
    }

    fn cannot_open(&self, error: BackendError) -> BackendError {
        if error.is_busy() || error.is_damage() {
            return error;
        }
        match error.into_error(&self.file) {
            error if error.kind() == Kind::Invalid => {
                // The file existed when the table was opened.
                if FileId::of(&self.file.path).is_none() {
                    let missing = self.file.lost().caused_by(error);
                    let is_replaceable = self.file.may_be_followed();
                    return if is_replaceable { BackendError::Damage(missing) } else { missing.into() };
                }
                // The cause is probably a limit of this process.
                Error::unavailable(format!(
                    "{} cannot be opened again for reading; this process may have too many open files",
                    self.file
                ))
                .caused_by(error)
                .into()
            }
            error => error.into(),
        }
    }
}

pub(super) fn get(connection: &Connection, key: &Key) -> Result<Option<Item>, BackendError> {
    let mut statement =
        connection.prepare_cached("SELECT pk, sk, item, crc FROM item WHERE pk = ?1 AND sk = ?2")?;
    let mut rows = statement.query([&key.pk, &key.sk])?;
    rows.next()?.map(|row| decode_found(connection, row, key)).transpose()
}

/// Reads the rows with these keys as of one point in time.
pub(super) fn batch_get(connection: &Connection, keys: &[Key]) -> Result<Vec<Option<Item>>, BackendError> {
    // Without it, each statement begins a read transaction of its own.
    let _snapshot = (keys.len() > MAX_TOGETHER).then(|| connection.unchecked_transaction()).transpose()?;
    let mut items = vec![None; keys.len()];
    for (keys, items) in keys.chunks(MAX_TOGETHER).zip(items.chunks_mut(MAX_TOGETHER)) {
        let mut statement = connection.prepare_cached(&SELECT_TOGETHER[keys.len() - 1])?;
        let mut rows = statement.query(params_from_iter(keys.iter().flat_map(|key| [&key.pk, &key.sk])))?;
        while let Some(row) = rows.next()? {
            let index = usize::try_from(row.get::<_, i64>(4)?).unwrap_or(usize::MAX);
            if let (Some(key), Some(place)) = (keys.get(index), items.get_mut(index)) {
                *place = Some(decode_found(connection, row, key)?);
            }
        }
    }
    Ok(items)
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
    page(connection, statement.query(params_from_iter(values))?, query.limit, Some(&query.pk))
}

pub(super) fn scan(connection: &Connection, scan: &Scan) -> Result<Page, BackendError> {
    let (condition, values) = match &scan.after {
        Some(cursor) => ("WHERE (pk, sk) > (?1, ?2)", vec![cursor.0.pk.as_str(), cursor.0.sk.as_str()]),
        None => ("", Vec::new()),
    };
    let mut statement =
        connection.prepare_cached(&format!("SELECT {COLUMNS} FROM item {condition} ORDER BY pk, sk"))?;
    page(connection, statement.query(params_from_iter(values))?, scan.limit, None)
}

fn page(
    connection: &Connection,
    mut rows: rusqlite::Rows<'_>,
    limit: Option<usize>,
    pk: Option<&str>,
) -> Result<Page, BackendError> {
    let mut page = PageBuilder::new(limit);
    while let Some(row) = rows.next()? {
        if let Some(pk) = pk
            && row.get_ref(0)?.as_str() != Ok(pk)
        {
            return Err(mismatch(&Key::new(pk, "")));
        }
        if !page.push(decode(connection, row)?)? {
            break;
        }
    }
    Ok(page.finish())
}

/// Counts expired rows, using only the index on `ttl`.
pub(super) fn count_expired(connection: &Connection, expired: Expired) -> Result<u64, BackendError> {
    let mut statement =
        connection.prepare_cached("SELECT count(*) FROM item WHERE ttl > ?1 AND ttl <= ?2")?;
    let rows: i64 = statement.query_row([expired.after, expired.until], |row| row.get(0))?;
    Ok(rows.unsigned_abs())
}

/// Returns up to this many rows that have expired according to the index on `ttl`.
pub(super) fn expired(
    connection: &Connection,
    expired: Expired,
    most: u32,
) -> Result<Vec<Item>, BackendError> {
    let mut statement = connection
        .prepare_cached(&format!("SELECT {COLUMNS} FROM item WHERE ttl > ?1 AND ttl <= ?2 LIMIT ?3"))?;
    let mut rows = statement.query(params![expired.after, expired.until, most])?;
    let mut found = Vec::new();
    while let Some(row) = rows.next()? {
        found.push(decode(connection, row)?);
    }
    Ok(found)
}

/// Reads rows in the order of their last use, using the index on it.
pub(super) fn least_recently_used(connection: &Connection, limit: usize) -> Result<Vec<Item>, BackendError> {
    let sql = format!("SELECT {COLUMNS} FROM item WHERE used_at IS NOT NULL ORDER BY used_at");
    some(connection, connection.prepare_cached(&sql)?.query([])?, limit)
}

/// Reads expired rows that are in the order of use, using the index on `ttl`.
pub(super) fn expired_used(
    connection: &Connection,
    expired: Expired,
    limit: usize,
) -> Result<Vec<Item>, BackendError> {
    let sql = format!(
        "SELECT {COLUMNS} FROM item INDEXED BY item_ttl
         WHERE ttl > ?1 AND ttl <= ?2 AND used_at IS NOT NULL ORDER BY ttl"
    );
    some(connection, connection.prepare_cached(&sql)?.query([expired.after, expired.until])?, limit)
}

/// Reads a counter that triggers keep.
pub(super) fn counter(connection: &Connection, name: &str) -> Result<u64, BackendError> {
    let mut statement = connection.prepare_cached("SELECT n FROM counter WHERE name = ?1")?;
    Ok(statement.query_row([name], |row| row.get::<_, i64>(0))?.unsigned_abs())
}

/// Reads rows up to a limit.
fn some(
    connection: &Connection,
    mut rows: rusqlite::Rows<'_>,
    limit: usize,
) -> Result<Vec<Item>, BackendError> {
    let mut items = Vec::new();
    while items.len() < limit
        && let Some(row) = rows.next()?
    {
        items.push(decode(connection, row)?);
    }
    Ok(items)
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
        let item = decode(connection, row)?;
        if item.is_damaged() {
            let context =
                format!("the row {} is damaged; delete it, so that it is written again", item.key()?);
            return Err(Error::corrupt(context).into());
        }
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
    use crate::backend::sqlite::file::OnCorruption;
    use rusqlite::ffi;

    const BUSY_TIMEOUT: Duration = Duration::from_millis(1234);

    fn readers(directory: &tempfile::TempDir) -> Readers {
        let path = directory.path().join("table.db");
        let file = SqliteFile::new(path, &crate::backend::sqlite::TABLE, OnCorruption::Refuse);
        let opened = file.open_to_write(Duration::ZERO).expect("a new file");
        Readers::new(file, &opened, 0, BUSY_TIMEOUT)
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
        assert_eq!(readers.idle.lock().connections.len(), 1, "all reads share one connection");
    }

    #[test]
    fn the_end_of_a_prefix_is_the_next_string_in_byte_order() {
        assert_eq!(end_of_prefix("VER#").as_deref(), Some("VER$"));
        assert_eq!(end_of_prefix("a\u{D7FF}").as_deref(), Some("a\u{E000}"));
        assert_eq!(end_of_prefix("a\u{10FFFF}").as_deref(), Some("b"));
        assert_eq!(end_of_prefix("\u{10FFFF}\u{10FFFF}"), None);
    }
}
