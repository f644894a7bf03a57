//! An open file: the thread that writes it, the connections that read it, and what both do when the file is damaged or another
//! one takes its place.

use std::path::PathBuf;
use std::sync::Arc;

use rusqlite::Connection;

use super::SqliteSettings;
use super::error::BackendError;
use super::file::{Format, SqliteFile};
use super::reader::{ReadError, Readers};
use super::writer::{Work, Writer};
use crate::clock::Clock;
use crate::error::{Error, Result};
use crate::use_order::FileUsage;

/// How often a read is repeated because another file took the place of the one that it read.
const MAX_FOLLOWED: u32 = 3;

/// A file that is open for reading and writing.
#[derive(Debug)]
pub(super) struct OpenFile {
    pub(super) writer: Writer,
    pub(super) readers: Arc<Readers>,
}

impl OpenFile {
    /// Opens or creates a file.
    pub(super) fn open(
        path: PathBuf,
        format: &'static Format,
        settings: &SqliteSettings,
        clock: Arc<dyn Clock>,
    ) -> Result<Self> {
        if settings.queue == 0 || settings.group == 0 {
            return Err(Error::invalid(
                "the settings `queue` and `group` of a SQLite file must be at least 1",
            ));
        }
        let file = SqliteFile::new(path, format, settings.on_corruption);
        let (opened, replaced) = file.open_or_replace(settings.busy_timeout)?;
        let readers =
            Arc::new(Readers::new(file.clone(), &opened, u64::from(replaced), settings.busy_timeout));
        let writer = Writer::start(opened, file, settings, clock)?;
        Ok(OpenFile { writer, readers })
    }

    /// Waits until the work is committed.
    pub(super) async fn submit<W: Work>(&self, work: W) -> Result<W::Outcome> {
        self.writer.submit(work).await
    }

    /// Returns the size of the file.
    pub(super) async fn usage(&self) -> Result<FileUsage> {
        let file = self.readers.file().clone();
        self.read_inline(move |connection| file.usage(connection)).await
    }

    /// Reads on this thread, or on tokio's blocking pool if the file is locked.
    pub(super) async fn read_inline<T, F>(&self, read: F) -> Result<T>
    where
        T: Send + 'static,
        F: Fn(&Connection) -> Result<T, BackendError> + Send + Sync + 'static,
    {
        match self.readers.try_read(&read) {
            Some(Ok(found)) => Ok(found),
            Some(Err(ReadError::Other(error))) => Err(error),
            Some(Err(ReadError::Lost { .. })) | None => self.read_blocking(read).await,
        }
    }

    /// Reads on tokio's blocking pool, where it waits while the file is locked. A damaged file is replaced, if the settings
    /// allow it, and read again.
    pub(super) async fn read_blocking<T, F>(&self, read: F) -> Result<T>
    where
        T: Send + 'static,
        F: Fn(&Connection) -> Result<T, BackendError> + Send + Sync + 'static,
    {
        let read = Arc::new(read);
        let mut last = None;
        for _ in 0..=MAX_FOLLOWED {
            let read = Arc::clone(&read);
            match self.readers.read_blocking(move |connection| read(connection)).await {
                Ok(found) => return Ok(found),
                Err(ReadError::Other(error)) => return Err(error),
                Err(ReadError::Lost { id, error }) => {
                    self.writer.renew(id, error.to_string()).await?;
                    last = Some(error);
                }
            }
        }
        Err(last.unwrap_or_else(|| Error::unavailable("the file is replaced again and again")))
    }
}
