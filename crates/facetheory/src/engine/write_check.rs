//! Writes that mean nothing, to learn whether pages can be published: reads may succeed while writes are denied.

use std::time::Duration;

use object_store::{ObjectStoreExt as _, PutPayload};
use tabletheory::{Item, Key, Txn, Write};

use super::Isr;
use crate::Result;
use crate::bodies::{object_path, unavailable};
use crate::protocol::attribute as name;

/// The keys of the row. It belongs to no page, and every process rewrites the same one.
const ROW: (&str, &str) = ("FACETHEORY#PROBE", "PROBE");
/// How long the row stays after the last check.
const TTL: Duration = Duration::from_secs(3600);
/// The object below the prefix of the bodies. Its key is not that of a body, so gc leaves it alone.
const OBJECT: &str = "probe/readiness.txt";

impl Isr {
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
        self.pages().store().table().commit(&Txn::from(write)).await.map(drop).map_err(Into::into)
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
        let put = bodies.objects.put(&path, payload).await;
        put.map(drop).map_err(|cause| unavailable("a test object cannot be stored", cause))
    }
}
