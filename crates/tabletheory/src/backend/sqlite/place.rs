//! The place of a file: which file a path names, and how a damaged file is set aside so that a new one can be begun.
//!
//! Several processes may share a file. SQLite finds the log of a file by its name, so no process may open the file while
//! another one renames it and its log: both hold a lock on the directory meanwhile.

use std::ffi::OsString;
use std::fs::File;
use std::io;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

use super::file::SqliteFile;
use crate::error::{Error, Kind, Result};

/// The suffix of the name of a file that was set aside.
const ASIDE: &str = ".damaged";

/// Identifies a file or a directory, whatever its name is. It is unique as long as a process has the file open.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct FileId {
    device: u64,
    inode: u64,
}

impl FileId {
    /// Returns the identity of the file with this name; `None` if there is none, or none that can be reached.
    pub(super) fn of(path: &Path) -> Option<Self> {
        let file = std::fs::metadata(path).ok()?;
        Some(FileId { device: file.dev(), inode: file.ino() })
    }
}

/// The files that SQLite has put beside a file, which it finds by their names.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Beside([Option<FileId>; 2]);

impl Beside {
    const SUFFIXES: [&str; 2] = ["-wal", "-shm"];

    pub(super) fn of(path: &Path) -> Self {
        Beside(Self::SUFFIXES.map(|suffix| FileId::of(&with_suffix(path, suffix))))
    }
}

/// Returns the directory of a file.
pub(super) fn directory_of(path: &Path) -> &Path {
    path.parent().filter(|directory| !directory.as_os_str().is_empty()).unwrap_or(Path::new("."))
}

/// A lock on the directory of a file, until it is dropped.
#[derive(Debug)]
pub(super) struct PlaceLock {
    _directory: Option<File>,
}

impl PlaceLock {
    /// Waits until no process renames files in the directory.
    pub(super) fn to_open(path: &Path) -> Result<Self> {
        PlaceLock::locked(path, File::lock_shared)
    }

    /// Waits until no process opens or renames files in the directory.
    fn to_rename(path: &Path) -> Result<Self> {
        PlaceLock::locked(path, File::lock)
    }

    fn locked(path: &Path, lock: impl Fn(&File) -> io::Result<()>) -> Result<Self> {
        // A directory that cannot be opened is reported by the call that opens the file in it.
        let Ok(directory) = File::open(directory_of(path)) else { return Ok(PlaceLock { _directory: None }) };
        match lock(&directory) {
            Ok(()) => Ok(PlaceLock { _directory: Some(directory) }),
            // Not every file system has such locks. On one without them, a file should be used by one process.
            Err(cause) if cause.kind() == io::ErrorKind::Unsupported => Ok(PlaceLock { _directory: None }),
            Err(cause) => {
                let context = format!("the directory of {} cannot be locked", path.display());
                Err(Error::unavailable(context).caused_by(cause))
            }
        }
    }
}

/// Renames a damaged file to a name that ends with `.damaged`, in place of an earlier one, unless another process has already
/// begun a new file.
pub(super) fn set_aside(file: &SqliteFile, damaged: Option<FileId>, cause: &str) -> Result<()> {
    let _lock = PlaceLock::to_rename(&file.path)?;
    if damaged.is_some_and(|damaged| FileId::of(&file.path) != Some(damaged)) {
        return Ok(());
    }
    for suffix in ["", "-wal", "-shm"] {
        rename(file, suffix, cause)?;
    }
    let aside = with_suffix(&file.path, ASIDE);
    tracing::error!(cause, "{file} is damaged: it is now {}, and an empty one is begun", aside.display());
    Ok(())
}

/// Renames the log of a file that was removed or replaced, so that it is not taken for that of the file in its place.
pub(super) fn leave(file: &SqliteFile, beside: Beside) -> Result<()> {
    let _lock = PlaceLock::to_rename(&file.path)?;
    let Beside(now) = Beside::of(&file.path);
    for ((suffix, own), now) in Beside::SUFFIXES.into_iter().zip(beside.0).zip(now) {
        if own.is_some() && own == now {
            rename(file, suffix, "the file was replaced or removed")?;
        }
    }
    Ok(())
}

/// Renames the log of a file that is missing: a process that still has the file open may be using it.
pub(super) fn leave_missing(file: &SqliteFile) -> Result<()> {
    if FileId::of(&file.path).is_some() || Beside::of(&file.path).0 == [None; 2] {
        return Ok(());
    }
    let _lock = PlaceLock::to_rename(&file.path)?;
    if FileId::of(&file.path).is_some() {
        return Ok(());
    }
    Beside::SUFFIXES.into_iter().try_for_each(|suffix| rename(file, suffix, "the file is missing"))
}

fn rename(file: &SqliteFile, suffix: &str, cause: &str) -> Result<()> {
    let aside = with_suffix(&file.path, ASIDE);
    match std::fs::rename(with_suffix(&file.path, suffix), with_suffix(&aside, suffix)) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => {
            let context =
                format!("{cause}; it cannot be renamed to {}, so no new file can be begun", aside.display());
            Err(Error::new(Kind::Corrupt, context).caused_by(error))
        }
        _ => Ok(()),
    }
}

fn with_suffix(path: &Path, suffix: &str) -> PathBuf {
    let mut name = OsString::from(path);
    name.push(suffix);
    PathBuf::from(name)
}
