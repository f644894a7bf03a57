//! Errors of SQLite, translated into errors that say what to do.

use rusqlite::ErrorCode;

use super::file::SqliteFile;
use crate::error::{Error, Kind};

/// Why an operation on a connection failed.
#[derive(Debug)]
pub(super) enum BackendError {
    /// SQLite returned an error.
    Sqlite(rusqlite::Error),
    /// The file is damaged, as our own checks have found.
    Damage(Error),
    /// A damaged blob or an invalid call, found by our own checks.
    Other(Error),
}

impl From<rusqlite::Error> for BackendError {
    fn from(error: rusqlite::Error) -> Self {
        BackendError::Sqlite(error)
    }
}

impl From<Error> for BackendError {
    fn from(error: Error) -> Self {
        BackendError::Other(error)
    }
}

impl BackendError {
    /// Whether another connection holds a lock, so that waiting helps.
    pub(super) fn is_busy(&self) -> bool {
        matches!(self, BackendError::Sqlite(error) if is_busy(error))
    }

    /// Whether the file is damaged, and not only one row or blob.
    pub(super) fn is_damage(&self) -> bool {
        match self {
            BackendError::Sqlite(error) => is_damage(error),
            BackendError::Damage(_) => true,
            BackendError::Other(_) => false,
        }
    }

    /// Converts to the error that callers get, which names the file and what to do.
    pub(super) fn into_error(self, file: &SqliteFile) -> Error {
        match self {
            BackendError::Damage(error) => error.within(format_args!("{file}")),
            BackendError::Other(error) if error.kind() == Kind::Corrupt => {
                error.within(format_args!("{file}"))
            }
            BackendError::Other(error) => error,
            BackendError::Sqlite(cause) => sqlite_error(cause, file),
        }
    }
}

pub(super) fn is_busy(error: &rusqlite::Error) -> bool {
    matches!(error.sqlite_error_code(), Some(ErrorCode::DatabaseBusy | ErrorCode::DatabaseLocked))
}

fn sqlite_error(cause: rusqlite::Error, file: &SqliteFile) -> Error {
    let (kind, context) = match cause.sqlite_error_code() {
        _ if is_damage(&cause) => (
            Kind::Corrupt,
            format!(
                "{file} is damaged; stop every process that uses it, then restore it from a backup, \
                 or move it away to start with an empty one"
            ),
        ),
        Some(ErrorCode::DatabaseBusy | ErrorCode::DatabaseLocked) => {
            (Kind::Unavailable, format!("{file} was locked by another process for too long; try again"))
        }
        _ if is_full(&cause) => {
            let what = format!("the disk is full, so {file} cannot grow; make room and try again");
            let cause = std::io::Error::new(std::io::ErrorKind::StorageFull, cause);
            return Error::new(Kind::Unavailable, what).caused_by(cause);
        }
        Some(code @ (ErrorCode::CannotOpen | ErrorCode::PermissionDenied | ErrorCode::ReadOnly)) => {
            // A file that was opened may become read-only while it is used.
            let kind = if code == ErrorCode::ReadOnly { Kind::Unavailable } else { Kind::Invalid };
            let advice = "its directory must exist, and both must be writable";
            (kind, format!("{file} cannot be opened to read and write; {advice}"))
        }
        _ => (Kind::Unavailable, format!("{file} cannot be used")),
    };
    Error::new(kind, context).caused_by(cause)
}

/// Whether the disk is full. The file through which processes share the log has an error code of its own.
fn is_full(cause: &rusqlite::Error) -> bool {
    let rusqlite::Error::SqliteFailure(failure, _) = cause else { return false };
    failure.code == ErrorCode::DiskFull || failure.extended_code == rusqlite::ffi::SQLITE_IOERR_SHMSIZE
}

/// Whether the content of the file is damaged.
fn is_damage(cause: &rusqlite::Error) -> bool {
    match cause {
        rusqlite::Error::SqliteFailure(failure, message) => {
            // SQLite has no specific code for these.
            let messages = ["unsupported file format", "no such table", "no such column"];
            let message = message.as_deref().unwrap_or_default();
            matches!(failure.code, ErrorCode::DatabaseCorrupt | ErrorCode::NotADatabase)
                || failure.extended_code == rusqlite::ffi::SQLITE_IOERR_SHORT_READ
                || messages.iter().any(|known| message.starts_with(known))
        }
        // A column of another type, text that is not UTF-8, or a table that is missing.
        rusqlite::Error::SqlInputError { .. }
        | rusqlite::Error::FromSqlConversionFailure(..)
        | rusqlite::Error::IntegralValueOutOfRange(..)
        | rusqlite::Error::Utf8Error(..)
        | rusqlite::Error::InvalidColumnType(..)
        | rusqlite::Error::QueryReturnedNoRows => true,
        _ => false,
    }
}

/// An error of SQLite with this code.
#[cfg(test)]
pub(super) fn failure(code: std::ffi::c_int) -> rusqlite::Error {
    rusqlite::Error::SqliteFailure(rusqlite::ffi::Error::new(code), None)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::backend::sqlite::file::OnCorruption;
    use crate::error::is_storage_full;
    use rusqlite::ffi;

    fn file() -> SqliteFile {
        SqliteFile::new("table.db".into(), &crate::backend::sqlite::TABLE, OnCorruption::Refuse)
    }

    #[test]
    fn every_sqlite_error_says_what_to_do() {
        let damaged = (Kind::Corrupt, "restore it from a backup");
        let locked = (Kind::Unavailable, "for too long; try again");
        let not_writable = (Kind::Invalid, "both must be writable");
        let other = (Kind::Unavailable, "cannot be used");
        for (code, (kind, advice)) in [
            (ffi::SQLITE_CORRUPT, damaged),
            (ffi::SQLITE_NOTADB, damaged),
            (ffi::SQLITE_IOERR_SHORT_READ, damaged),
            (ffi::SQLITE_BUSY, locked),
            (ffi::SQLITE_LOCKED, locked),
            (ffi::SQLITE_FULL, (Kind::Unavailable, "make room")),
            (ffi::SQLITE_IOERR_SHMSIZE, (Kind::Unavailable, "make room")),
            (ffi::SQLITE_CANTOPEN, not_writable),
            (ffi::SQLITE_PERM, not_writable),
            (ffi::SQLITE_READONLY, (Kind::Unavailable, "both must be writable")),
            // The generic code does not imply damage, unless the message does.
            (ffi::SQLITE_ERROR, other),
            (ffi::SQLITE_IOERR, other),
            (ffi::SQLITE_NOMEM, other),
        ] {
            let error = BackendError::from(failure(code)).into_error(&file());
            assert_eq!(error.kind(), kind, "{code}: {error}");
            assert!(error.to_string().contains("table.db"), "{code}: {error}");
            assert!(error.to_string().contains(advice), "{code}: {error}");
            assert_eq!(is_storage_full(&error), advice == "make room", "{code}: {error}");
        }
    }

    #[test]
    fn some_damage_is_recognized_by_the_message_of_sqlite() {
        for message in ["unsupported file format", "no such table: item", "no such column: crc"] {
            let code = ffi::Error::new(ffi::SQLITE_ERROR);
            let cause = rusqlite::Error::SqliteFailure(code, Some(message.into()));
            assert_eq!(BackendError::from(cause).into_error(&file()).kind(), Kind::Corrupt, "{message}");
        }
    }

    #[test]
    fn a_damaged_row_is_reported_with_the_name_of_the_file() {
        let converted = |error: Error| BackendError::from(error).into_error(&file()).to_string();
        assert_eq!(
            converted(Error::corrupt("a row is damaged")),
            "the table file table.db: a row is damaged"
        );
        assert_eq!(converted(Error::invalid("invalid call")), "invalid call");
    }
}
