//! What can go wrong with the file, and what to do about each.

use std::path::Path;

use rusqlite::ErrorCode;

use crate::error::{Error, Kind};

/// Why a piece of work on a connection failed.
#[derive(Debug)]
pub(super) enum Fault {
    /// SQLite said so.
    Sqlite(rusqlite::Error),
    /// We did: a row that is not what was written, or a call that is wrong.
    Ours(Error),
}

impl From<rusqlite::Error> for Fault {
    fn from(error: rusqlite::Error) -> Self {
        Fault::Sqlite(error)
    }
}

impl From<Error> for Fault {
    fn from(error: Error) -> Self {
        Fault::Ours(error)
    }
}

impl Fault {
    /// Whether another connection is in the way, so that waiting helps.
    pub(super) fn is_busy(&self) -> bool {
        matches!(self, Fault::Sqlite(error) if is_busy(error))
    }

    /// The error that a caller gets, with what to do.
    pub(super) fn explain(self, path: &Path) -> Error {
        match self {
            Fault::Ours(error) if error.kind() == Kind::Corrupt => {
                error.within(format_args!("the table file {}", path.display()))
            }
            Fault::Ours(error) => error,
            Fault::Sqlite(cause) => explain_sqlite(cause, path),
        }
    }
}

pub(super) fn is_busy(error: &rusqlite::Error) -> bool {
    matches!(error.sqlite_error_code(), Some(ErrorCode::DatabaseBusy | ErrorCode::DatabaseLocked))
}

fn explain_sqlite(cause: rusqlite::Error, path: &Path) -> Error {
    let file = path.display();
    let (kind, context) = match cause.sqlite_error_code() {
        _ if is_damage(&cause) => (
            Kind::Corrupt,
            format!(
                "the table file {file} is damaged; stop every process that uses it, then restore it from a backup, \
                 or move it away to start with an empty table"
            ),
        ),
        Some(ErrorCode::DatabaseBusy | ErrorCode::DatabaseLocked) => (
            Kind::Unavailable,
            format!("another process kept the table file {file} locked for too long; try again"),
        ),
        Some(ErrorCode::DiskFull) => (
            Kind::Unavailable,
            format!("the disk is full, so the table file {file} cannot grow; make room and try again"),
        ),
        Some(ErrorCode::CannotOpen | ErrorCode::PermissionDenied | ErrorCode::ReadOnly) => (
            Kind::Invalid,
            format!(
                "the table file {file} cannot be opened to read and write; \
                 its directory must exist, and both must be writable"
            ),
        ),
        _ => (Kind::Unavailable, format!("the table file {file} cannot be used")),
    };
    Error::new(kind, context).caused_by(cause)
}

/// Whether the file's content, and not its surroundings, is at fault.
fn is_damage(cause: &rusqlite::Error) -> bool {
    match cause {
        rusqlite::Error::SqliteFailure(failure, message) => {
            // SQLite has no code of its own for these.
            let told = ["unsupported file format", "no such table", "no such column"];
            let message = message.as_deref().unwrap_or_default();
            matches!(failure.code, ErrorCode::DatabaseCorrupt | ErrorCode::NotADatabase)
                || failure.extended_code == rusqlite::ffi::SQLITE_IOERR_SHORT_READ
                || told.iter().any(|told| message.starts_with(told))
        }
        // A column of another type, text that is not UTF-8, or a schema that lost a table.
        rusqlite::Error::SqlInputError { .. }
        | rusqlite::Error::FromSqlConversionFailure(..)
        | rusqlite::Error::IntegralValueOutOfRange(..)
        | rusqlite::Error::Utf8Error(..)
        | rusqlite::Error::InvalidColumnType(..)
        | rusqlite::Error::QueryReturnedNoRows => true,
        _ => false,
    }
}

/// What SQLite would say with this code.
#[cfg(test)]
pub(super) fn failure(code: std::ffi::c_int) -> rusqlite::Error {
    rusqlite::Error::SqliteFailure(rusqlite::ffi::Error::new(code), None)
}

#[cfg(test)]
mod tests {
    use super::*;
    use rusqlite::ffi;

    #[test]
    fn each_failure_of_the_file_comes_with_what_to_do() {
        let damaged = (Kind::Corrupt, "restore it from a backup");
        let locked = (Kind::Unavailable, "locked for too long; try again");
        let forbidden = (Kind::Invalid, "both must be writable");
        let other = (Kind::Unavailable, "cannot be used");
        for (code, (kind, advice)) in [
            (ffi::SQLITE_CORRUPT, damaged),
            (ffi::SQLITE_NOTADB, damaged),
            (ffi::SQLITE_IOERR_SHORT_READ, damaged),
            (ffi::SQLITE_BUSY, locked),
            (ffi::SQLITE_LOCKED, locked),
            (ffi::SQLITE_FULL, (Kind::Unavailable, "make room")),
            (ffi::SQLITE_CANTOPEN, forbidden),
            (ffi::SQLITE_PERM, forbidden),
            (ffi::SQLITE_READONLY, forbidden),
            // A plain error says nothing of the file, unless its message does.
            (ffi::SQLITE_ERROR, other),
            (ffi::SQLITE_IOERR, other),
            (ffi::SQLITE_NOMEM, other),
        ] {
            let error = Fault::from(failure(code)).explain(Path::new("table.db"));
            assert_eq!(error.kind(), kind, "{code}: {error}");
            assert!(error.to_string().contains("table.db"), "{code}: {error}");
            assert!(error.to_string().contains(advice), "{code}: {error}");
        }
    }

    #[test]
    fn some_damage_is_told_by_its_message_alone() {
        for message in ["unsupported file format", "no such table: item", "no such column: crc"] {
            let code = ffi::Error::new(ffi::SQLITE_ERROR);
            let cause = rusqlite::Error::SqliteFailure(code, Some(message.into()));
            assert_eq!(Fault::from(cause).explain(Path::new("table.db")).kind(), Kind::Corrupt, "{message}");
        }
    }

    #[test]
    fn of_our_own_errors_damage_names_the_file() {
        let explained = |error: Error| Fault::from(error).explain(Path::new("table.db")).to_string();
        assert_eq!(explained(Error::corrupt("a row is wrong")), "the table file table.db: a row is wrong");
        assert_eq!(explained(Error::invalid("a call is wrong")), "a call is wrong");
    }
}
