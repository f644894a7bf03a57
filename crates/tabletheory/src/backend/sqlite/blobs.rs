//! Blobs in one SQLite file.

use std::path::PathBuf;
use std::sync::Arc;

use rusqlite::{Connection, OptionalExtension as _, Transaction, params};

use super::SqliteSettings;
use super::error::BackendError;
use super::file::{Addition, Format};
use super::open_file::OpenFile;
use super::reader::{ReadError, counter};
use super::writer::{ApplyError, Work};
use crate::clock::{Clock, SystemClock, Timestamp};
use crate::error::{Error, Kind, Result};
use crate::use_order::FileUsage;

/// The file of a blob store.
///
/// The columns before `bytes` can be read without the bytes, which are in SQLite pages of their own (overflow pages)
/// unless they are few. `crc` is the checksum of `name` and `bytes`.
pub(super) const BLOBS: Format = Format {
    name: "blob file",
    // "tblb"
    application_id: 0x7462_6c62,
    version: 1,
    schema: "
    CREATE TABLE blob (
        id        INTEGER PRIMARY KEY,
        name      TEXT NOT NULL UNIQUE,
        stored_at INTEGER NOT NULL,
        length    INTEGER NOT NULL,
        crc       INTEGER NOT NULL,
        bytes     BLOB NOT NULL
    );
",
    tables: &["blob"],
    addition: FILES,
    // The space of deleted blobs is reused. `SqliteBlobs::shrink` makes the file shorter, which works only if this was set when
    // the file was created.
    shrinks: true,
    // A blob of 8 KiB is in two SQLite pages. With pages of 4 KiB it is in three, each of which is read and written by itself.
    page_bytes: 8192,
    // New blobs go to the end of the table, so few SQLite pages are read before they are written.
    writer_cache_kib: 2 * 1024,
};

/// The lengths of files beside the blobs, and their sum.
const FILES: Addition = Addition {
    missing: "file",
    schema: "
    CREATE TABLE file (name TEXT PRIMARY KEY, length INTEGER NOT NULL) WITHOUT ROWID;
    CREATE TABLE counter (name TEXT PRIMARY KEY, n INTEGER NOT NULL) WITHOUT ROWID;
    INSERT INTO counter (name, n) VALUES ('file bytes', 0);
    CREATE TRIGGER file_inserted AFTER INSERT ON file BEGIN
        UPDATE counter SET n = n + NEW.length WHERE name = 'file bytes';
    END;
    CREATE TRIGGER file_deleted AFTER DELETE ON file BEGIN
        UPDATE counter SET n = n - OLD.length WHERE name = 'file bytes';
    END;
",
};

/// Named blobs in one SQLite file: many small objects, each written once and read often.
///
/// Acknowledged writes are durable, and concurrent ones share one write to disk. Reads take microseconds if the file is
/// in the kernel's page cache, and run on the caller's thread. Every blob has a checksum. Other processes may use the
/// file at the same time. The space of deleted blobs is used for new ones.
///
/// A blob is read and written as a whole, so this is not for objects of many megabytes.
///
/// ```
/// use tabletheory::SqliteBlobs;
///
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let directory = tempfile::tempdir()?;
/// let blobs = SqliteBlobs::open(directory.path().join("blobs.db"))?;
/// assert!(blobs.create("a/1.html", b"<h1>hello</h1>".to_vec()).await?);
/// assert!(!blobs.create("a/1.html", b"other".to_vec()).await?, "the name is taken");
/// assert_eq!(blobs.get("a/1.html").await?.expect("a blob").bytes, b"<h1>hello</h1>");
/// assert!(blobs.delete("a/1.html").await?);
/// # Ok(()) }
/// ```
#[derive(Debug)]
pub struct SqliteBlobs {
    file: OpenFile,
}

/// A blob that was read.
///
/// ```
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let directory = tempfile::tempdir()?;
/// # let blobs = tabletheory::SqliteBlobs::open(directory.path().join("blobs.db"))?;
/// blobs.create("a", b"1234".to_vec()).await?;
/// let blob = blobs.get("a").await?.expect("a blob");
/// assert_eq!((blob.info.length, blob.bytes.len()), (4, 4));
/// # Ok(()) }
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Blob {
    /// Its name, length and age.
    pub info: BlobInfo,
    /// The bytes.
    pub bytes: Vec<u8>,
}

/// The description of a blob.
///
/// ```
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let directory = tempfile::tempdir()?;
/// # let blobs = tabletheory::SqliteBlobs::open(directory.path().join("blobs.db"))?;
/// blobs.create("a", b"1234".to_vec()).await?;
/// assert_eq!(blobs.list("", None, 10).await?[0].length, 4);
/// # Ok(()) }
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct BlobInfo {
    /// The name.
    pub name: String,
    /// When it was stored.
    pub stored_at: Timestamp,
    /// The number of bytes.
    pub length: u64,
}

impl SqliteBlobs {
    /// Opens or creates the file, with the default settings and the system clock.
    ///
    /// ```
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let directory = tempfile::tempdir()?;
    /// let blobs = tabletheory::SqliteBlobs::open(directory.path().join("blobs.db"))?;
    /// # Ok(()) }
    /// ```
    pub fn open(path: impl Into<PathBuf>) -> Result<Self> {
        SqliteBlobs::open_with(path, &SqliteSettings::default(), Arc::new(SystemClock))
    }

    /// Opens or creates the file, with these settings and this clock. Blobs do not expire, so the settings of the sweep have
    /// no effect.
    ///
    /// ```
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// use std::sync::Arc;
    /// use tabletheory::{SqliteBlobs, SqliteSettings, SystemClock};
    ///
    /// let directory = tempfile::tempdir()?;
    /// let settings = SqliteSettings::default().group(64);
    /// let blobs = SqliteBlobs::open_with(directory.path().join("blobs.db"), &settings, Arc::new(SystemClock))?;
    /// # Ok(()) }
    /// ```
    pub fn open_with(
        path: impl Into<PathBuf>,
        settings: &SqliteSettings,
        clock: Arc<dyn Clock>,
    ) -> Result<Self> {
        Ok(SqliteBlobs { file: OpenFile::open(path.into(), &BLOBS, settings, clock)? })
    }

    /// Stores a blob, unless the name is taken. Returns whether it was stored.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let directory = tempfile::tempdir()?;
    /// # let blobs = tabletheory::SqliteBlobs::open(directory.path().join("blobs.db"))?;
    /// assert!(blobs.create("a", b"1".to_vec()).await?);
    /// # Ok(()) }
    /// ```
    pub async fn create(&self, name: &str, bytes: impl AsRef<[u8]> + Send + 'static) -> Result<bool> {
        self.put(name, bytes, IfTaken::Refuse).await
    }

    /// Stores a blob, in place of an earlier one with this name.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let directory = tempfile::tempdir()?;
    /// # let blobs = tabletheory::SqliteBlobs::open(directory.path().join("blobs.db"))?;
    /// blobs.replace("a", b"1".to_vec()).await?;
    /// blobs.replace("a", b"2".to_vec()).await?;
    /// assert_eq!(blobs.get("a").await?.expect("a blob").bytes, b"2");
    /// # Ok(()) }
    /// ```
    pub async fn replace(&self, name: &str, bytes: impl AsRef<[u8]> + Send + 'static) -> Result<()> {
        self.put(name, bytes, IfTaken::Replace).await.map(drop)
    }

    async fn put(
        &self,
        name: &str,
        bytes: impl AsRef<[u8]> + Send + 'static,
        if_taken: IfTaken,
    ) -> Result<bool> {
        let crc = checksum(name, bytes.as_ref());
        self.file.submit(Put { name: name.to_owned(), crc, bytes, if_taken }).await
    }

    /// Reads a blob. An error of kind [`Corrupt`](crate::Kind::Corrupt) means that it is damaged.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let directory = tempfile::tempdir()?;
    /// # let blobs = tabletheory::SqliteBlobs::open(directory.path().join("blobs.db"))?;
    /// assert_eq!(blobs.get("a").await?, None);
    /// # Ok(()) }
    /// ```
    pub async fn get(&self, name: &str) -> Result<Option<Blob>> {
        // The name is copied only if the file is locked.
        match self.file.readers.try_read(|connection| read(connection, name)) {
            Some(Ok(blob)) => Ok(blob),
            Some(Err(ReadError::Other(error))) => Err(error),
            // The damage may concern no other blob, so the file is not replaced.
            Some(Err(ReadError::Lost { error, .. })) if error.kind() == Kind::Corrupt => Err(error),
            Some(Err(ReadError::Lost { .. })) | None => {
                let name = name.to_owned();
                self.file.read_blocking(move |connection| read(connection, &name)).await
            }
        }
    }

    /// Reads the bytes of a blob if that takes no more than one read: `None` means "call [`get`](SqliteBlobs::get)", not "no such
    /// blob". After another file has taken the place of the one that was open, this may still return a blob of the earlier one.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let directory = tempfile::tempdir()?;
    /// # let blobs = tabletheory::SqliteBlobs::open(directory.path().join("blobs.db"))?;
    /// blobs.create("a", b"1234".to_vec()).await?;
    /// blobs.get("a").await?;
    /// assert_eq!(blobs.try_get("a").expect("a blob"), b"1234");
    /// assert_eq!(blobs.try_get("b"), None);
    /// # Ok(()) }
    /// ```
    pub fn try_get(&self, name: &str) -> Option<Vec<u8>> {
        self.file.readers.read_idle(|connection| read_bytes(connection, name))?
    }

    /// Deletes a blob. Returns whether it existed.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let directory = tempfile::tempdir()?;
    /// # let blobs = tabletheory::SqliteBlobs::open(directory.path().join("blobs.db"))?;
    /// assert!(!blobs.delete("a").await?);
    /// # Ok(()) }
    /// ```
    pub async fn delete(&self, name: &str) -> Result<bool> {
        self.file.submit(Delete { name: name.to_owned() }).await
    }

    /// Returns up to `limit` blobs whose names begin with `prefix` and are greater than `after`, in the order of their names.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let directory = tempfile::tempdir()?;
    /// # let blobs = tabletheory::SqliteBlobs::open(directory.path().join("blobs.db"))?;
    /// for name in ["a/1", "a/2", "b/1"] {
    ///     blobs.create(name, b"".to_vec()).await?;
    /// }
    /// let names: Vec<String> = blobs.list("a/", Some("a/1"), 10).await?.into_iter().map(|blob| blob.name).collect();
    /// assert_eq!(names, ["a/2"]);
    /// # Ok(()) }
    /// ```
    pub async fn list(&self, prefix: &str, after: Option<&str>, limit: u32) -> Result<Vec<BlobInfo>> {
        let (prefix, after) = (prefix.to_owned(), after.map(str::to_owned));
        self.file.read_blocking(move |connection| list(connection, &prefix, after.as_deref(), limit)).await
    }

    /// Records the length of a file that belongs to the blobs and is stored elsewhere. An earlier record of this name stays.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let directory = tempfile::tempdir()?;
    /// # let blobs = tabletheory::SqliteBlobs::open(directory.path().join("blobs.db"))?;
    /// blobs.record_file("large", 1_000_000).await?;
    /// assert_eq!(blobs.recorded_bytes().await?, 1_000_000);
    /// blobs.forget_file("large").await?;
    /// assert_eq!(blobs.recorded_bytes().await?, 0);
    /// # Ok(()) }
    /// ```
    pub async fn record_file(&self, name: &str, length: u64) -> Result<()> {
        let length = Some(i64::try_from(length).unwrap_or(i64::MAX));
        self.file.submit(Record { name: name.to_owned(), length }).await
    }

    /// Forgets the length of a file that was deleted.
    pub async fn forget_file(&self, name: &str) -> Result<()> {
        self.file.submit(Record { name: name.to_owned(), length: None }).await
    }

    /// Returns the sum of the lengths that [`record_file`](SqliteBlobs::record_file) has recorded.
    pub async fn recorded_bytes(&self) -> Result<u64> {
        self.file.read_inline(|connection| counter(connection, "file bytes")).await
    }

    /// Returns the size of the file.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let directory = tempfile::tempdir()?;
    /// # let blobs = tabletheory::SqliteBlobs::open(directory.path().join("blobs.db"))?;
    /// blobs.create("a", vec![0; 100_000]).await?;
    /// assert!(blobs.usage().await?.used_bytes() >= 100_000);
    /// # Ok(()) }
    /// ```
    pub async fn usage(&self) -> Result<FileUsage> {
        self.file.usage().await
    }

    /// Makes the file shorter by up to this many bytes that deleted blobs have left. The disk has them after the next
    /// checkpoint.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let directory = tempfile::tempdir()?;
    /// # let blobs = tabletheory::SqliteBlobs::open(directory.path().join("blobs.db"))?;
    /// blobs.create("a", vec![0; 100_000]).await?;
    /// blobs.delete("a").await?;
    /// blobs.shrink(1_000_000).await?;
    /// assert_eq!(blobs.usage().await?.free_bytes, 0);
    /// # Ok(()) }
    /// ```
    pub async fn shrink(&self, bytes: u64) -> Result<()> {
        self.file.submit(Shrink { pages: bytes.div_ceil(u64::from(BLOBS.page_bytes)) }).await
    }
}

/// Whether a new blob replaces one with the same name.
#[derive(Clone, Copy)]
enum IfTaken {
    Refuse,
    Replace,
}

struct Put<B> {
    name: String,
    crc: u32,
    bytes: B,
    if_taken: IfTaken,
}

impl<B: AsRef<[u8]> + Send + 'static> Work for Put<B> {
    type Outcome = bool;

    fn apply(&self, transaction: &Transaction<'_>, now: Timestamp) -> Result<bool, ApplyError> {
        let bytes = self.bytes.as_ref();
        let insert = || -> rusqlite::Result<usize> {
            let length = i64::try_from(bytes.len()).unwrap_or(i64::MAX);
            let sql = match self.if_taken {
                IfTaken::Refuse => {
                    "INSERT INTO blob (name, stored_at, length, crc, bytes) VALUES (?1, ?2, ?3, ?4, ?5)
                     ON CONFLICT (name) DO NOTHING"
                }
                IfTaken::Replace => {
                    "REPLACE INTO blob (name, stored_at, length, crc, bytes) VALUES (?1, ?2, ?3, ?4, ?5)"
                }
            };
            let mut statement = transaction.prepare_cached(sql)?;
            statement.execute(params![self.name, now.millis(), length, self.crc, bytes])
        };
        let rows = insert().map_err(|error| ApplyError::WhileWriting(error.into()))?;
        Ok(rows > 0)
    }
}

struct Delete {
    name: String,
}

impl Work for Delete {
    type Outcome = bool;

    fn apply(&self, transaction: &Transaction<'_>, _: Timestamp) -> Result<bool, ApplyError> {
        let delete = || {
            transaction
                .prepare_cached("DELETE FROM blob WHERE name = ?1 AND +name = ?1")?
                .execute([&self.name])
        };
        let rows = delete().map_err(|error| ApplyError::WhileWriting(error.into()))?;
        Ok(rows > 0)
    }
}

/// Records the length of a file, or forgets it.
struct Record {
    name: String,
    length: Option<i64>,
}

impl Work for Record {
    type Outcome = ();

    fn apply(&self, transaction: &Transaction<'_>, _: Timestamp) -> Result<(), ApplyError> {
        let write = || match self.length {
            Some(length) => transaction
                .prepare_cached(
                    "INSERT INTO file (name, length) VALUES (?1, ?2) ON CONFLICT (name) DO NOTHING",
                )?
                .execute(params![self.name, length]),
            None => transaction.prepare_cached("DELETE FROM file WHERE name = ?1")?.execute([&self.name]),
        };
        write().map(drop).map_err(|error| ApplyError::WhileWriting(error.into()))
    }
}

struct Shrink {
    pages: u64,
}

impl Work for Shrink {
    type Outcome = ();

    fn apply(&self, transaction: &Transaction<'_>, _: Timestamp) -> Result<(), ApplyError> {
        let shrink = || {
            let mut statement = transaction.prepare(&format!("PRAGMA incremental_vacuum({})", self.pages))?;
            // Each row that is read is a page that was released.
            let mut released = statement.query([])?;
            while released.next()?.is_some() {}
            Ok::<_, rusqlite::Error>(())
        };
        shrink().map_err(|error| ApplyError::WhileWriting(error.into()))
    }
}

fn read(connection: &Connection, name: &str) -> Result<Option<Blob>, BackendError> {
    let mut statement =
        connection.prepare_cached("SELECT name, stored_at, length, crc, bytes FROM blob WHERE name = ?1")?;
    let row = |row: &rusqlite::Row<'_>| Ok((info(row)?, row.get::<_, i64>(3)?, row.get::<_, Vec<u8>>(4)?));
    let Some((info, crc, bytes)) = statement.query_row([name], row).optional()? else { return Ok(None) };
    // A search in a damaged index may find another blob.
    if info.name != name || crc != i64::from(checksum(&info.name, &bytes)) {
        return Err(
            Error::corrupt(format!("the blob {name} is damaged; delete it, and store it again")).into()
        );
    }
    Ok(Some(Blob { info, bytes }))
}

/// The bytes of a blob, unless it is missing or damaged.
fn read_bytes(connection: &Connection, name: &str) -> Result<Option<Vec<u8>>, BackendError> {
    let mut statement = connection.prepare_cached("SELECT crc, bytes FROM blob WHERE name = ?1")?;
    let mut rows = statement.query([name])?;
    let Some(row) = rows.next()? else { return Ok(None) };
    let bytes = row.get_ref(1)?.as_blob().map_err(rusqlite::Error::from)?;
    let is_whole = row.get::<_, i64>(0)? == i64::from(checksum(name, bytes));
    Ok(is_whole.then(|| bytes.to_vec()))
}

fn list(
    connection: &Connection,
    prefix: &str,
    after: Option<&str>,
    limit: u32,
) -> Result<Vec<BlobInfo>, BackendError> {
    // All names with a prefix sort at or after the prefix.
    let mut statement = connection.prepare_cached(
        "SELECT name, stored_at, length FROM blob WHERE name >= ?1 AND name > ?2 ORDER BY name LIMIT ?3",
    )?;
    let mut rows = statement.query(params![prefix, after.unwrap_or_default(), limit])?;
    let mut blobs = Vec::new();
    while let Some(row) = rows.next()? {
        let blob = info(row)?;
        if !blob.name.starts_with(prefix) {
            break;
        }
        blobs.push(blob);
    }
    Ok(blobs)
}

/// The description in a row that begins with `name, stored_at, length`.
fn info(row: &rusqlite::Row<'_>) -> rusqlite::Result<BlobInfo> {
    let length: i64 = row.get(2)?;
    Ok(BlobInfo {
        name: row.get(0)?,
        stored_at: Timestamp::from_millis(row.get(1)?),
        length: length.unsigned_abs(),
    })
}

/// Covers name and bytes, separated by a byte that does not occur in UTF-8.
fn checksum(name: &str, bytes: &[u8]) -> u32 {
    let mut crc = crc32fast::Hasher::new();
    for part in [name.as_bytes(), &[0xFF], bytes] {
        crc.update(part);
    }
    crc.finalize()
}
