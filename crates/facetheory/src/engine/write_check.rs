//! Whether the stores accept writes: reads may succeed while writes are denied. Writes that mean nothing find that out while no
//! page is published.

use std::sync::atomic::{AtomicU8, Ordering};
use std::time::Duration;

use object_store::{ObjectStoreExt as _, PutPayload};
use tabletheory::{Item, Key, Txn, Write};

use super::{FailedStore, Isr};
use crate::bodies::{object_path, unavailable};
use crate::protocol::attribute as name;
use crate::{Error, Result};

/// The keys of the row. It belongs to no page, and every process rewrites the same one.
const ROW: (&str, &str) = ("FACETHEORY#PROBE", "PROBE");
/// How long the row stays after the last check.
const TTL: Duration = Duration::from_secs(3600);
/// The object below the prefix of the bodies. Its key is not that of a body, so gc leaves it alone.
const OBJECT: &str = "probe/readiness.txt";

/// Whether a store has accepted the last write of this process: of a page, or of a check.
///
/// ```
/// use facetheory::{Bodies, FailedStore, Isr, LastWrite, PageStore, Pages};
/// # use std::sync::Arc;
///
/// # let pages = Pages::new(PageStore::new(Arc::new(tabletheory::MemoryTable::new())), Bodies::memory());
/// assert_eq!(Isr::new(pages).last_write(FailedStore::Table), LastWrite::Accepted);
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum LastWrite {
    /// It was accepted, or there was none.
    Accepted,
    /// It failed, or the store did not respond.
    Failed,
    /// It failed because the disk is full.
    DiskFull,
}

impl LastWrite {
    /// The outcome of a write that failed with this error.
    fn failed_with(error: &Error) -> Self {
        if tabletheory::is_storage_full(error) { LastWrite::DiskFull } else { LastWrite::Failed }
    }
}

/// The last write of each store.
#[derive(Debug, Default)]
pub(super) struct LastWrites {
    table: AtomicU8,
    bodies: AtomicU8,
}

impl LastWrites {
    fn of(&self, store: FailedStore) -> &AtomicU8 {
        match store {
            FailedStore::Table => &self.table,
            FailedStore::Bodies => &self.bodies,
        }
    }

    pub(super) fn record(&self, store: FailedStore, error: Option<&Error>) {
        self.set(store, error.map_or(LastWrite::Accepted, LastWrite::failed_with));
    }

    fn set(&self, store: FailedStore, last: LastWrite) {
        self.of(store).store(last as u8, Ordering::Relaxed);
    }

    fn get(&self, store: FailedStore) -> LastWrite {
        let last = self.of(store).load(Ordering::Relaxed);
        let known = [LastWrite::Failed, LastWrite::DiskFull];
        known.into_iter().find(|known| *known as u8 == last).unwrap_or(LastWrite::Accepted)
    }
}

/// A check of a store. Its caller may give up waiting for it, and then the store does not respond.
struct Check<'a> {
    writes: &'a LastWrites,
    store: FailedStore,
    outcome: LastWrite,
}

impl Drop for Check<'_> {
    fn drop(&mut self) {
        self.writes.set(self.store, self.outcome);
    }
}

impl Isr {
    /// Whether this store has accepted the last write.
    ///
    /// ```no_run
    /// # fn f(isr: facetheory::Isr) {
    /// use facetheory::{FailedStore, LastWrite};
    ///
    /// let is_full = isr.last_write(FailedStore::Bodies) == LastWrite::DiskFull;
    /// # }
    /// ```
    #[must_use]
    pub fn last_write(&self, store: FailedStore) -> LastWrite {
        self.engine.last_writes.get(store)
    }

    /// Records the outcome of a check of this store.
    async fn checked(&self, store: FailedStore, write: impl Future<Output = Result<()>>) -> Result<()> {
        let writes = &self.engine.last_writes;
        let mut check = Check { writes, store, outcome: LastWrite::Failed };
        let result = write.await;
        check.outcome = result.as_ref().err().map_or(LastWrite::Accepted, LastWrite::failed_with);
        result
    }

    /// Returns how often the table was replaced by another one since it was opened, because its file was damaged, replaced or
    /// removed. Fails if it was replaced or removed and this process must not continue with another one, so that every write
    /// would be lost, and fails.
    ///
    /// ```
    /// # use facetheory::{Bodies, Isr, Pages, PageStore};
    /// # use std::sync::Arc;
    /// # let pages = Pages::new(PageStore::new(Arc::new(tabletheory::MemoryTable::new())), Bodies::memory());
    /// assert_eq!(Isr::new(pages).table_replacements()?, 0);
    /// # Ok::<(), facetheory::Error>(())
    /// ```
    pub fn table_replacements(&self) -> Result<u64> {
        Ok(self.pages().store().table().replacements()?)
    }

    /// Returns an error if the table does not accept writes. Each call rewrites the same row.
    ///
    /// ```no_run
    /// # async fn f(isr: facetheory::Isr) {
    /// let is_writable = isr.check_table_write().await.is_ok();
    /// # }
    /// ```
    pub async fn check_table_write(&self) -> Result<()> {
        let mut item = Item::new();
        item.set(name::TTL.name(), (self.now() + TTL).seconds());
        let write = Write::put(Key::new(ROW.0, ROW.1), item);
        // Without a condition it cannot be refused.
        let commit = async { Ok(self.pages().store().table().commit(&Txn::from(write)).await.map(drop)?) };
        self.checked(FailedStore::Table, commit).await
    }

    /// Returns an error if the object storage does not accept writes. Each call rewrites the same object.
    ///
    /// ```no_run
    /// # async fn f(isr: facetheory::Isr) {
    /// let is_writable = isr.check_bodies_write().await.is_ok();
    /// # }
    /// ```
    pub async fn check_bodies_write(&self) -> Result<()> {
        let bodies = self.pages().bodies();
        let path = object_path(&format!("{}{OBJECT}", bodies.prefix))?;
        let payload =
            PutPayload::from_static(b"FaceTheory checks with this object whether bodies can be stored.\n");
        let put = async {
            let put = bodies.objects.put(&path, payload).await;
            put.map(drop).map_err(|cause| unavailable("a test object cannot be stored", cause))
        };
        self.checked(FailedStore::Bodies, put).await
    }
}
