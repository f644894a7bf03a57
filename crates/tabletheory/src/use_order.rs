//! The order in which rows were last used, by the attribute `used_at`, and how much a table stores.

use crate::item::Item;
use crate::value::Value;

/// The attribute that says when a row was last used. The embedded tables index it, so that the least recently used rows are
/// found without reading others. A row without it, or whose value is not a whole number, is in no order.
///
/// ```
/// assert_eq!(tabletheory::USED_AT, "used_at");
/// ```
pub const USED_AT: &str = "used_at";

/// How much a table stores.
///
/// ```
/// use tabletheory::{Item, Key, MemoryTable, Table, Txn, Value, Write};
///
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> tabletheory::Result<()> {
/// let table = MemoryTable::new();
/// for (pk, used_at) in [("b", 20), ("a", 10)] {
///     let item = Item::from([("used_at", Value::from(used_at))]);
///     assert!(table.commit(&Txn::from(Write::put(Key::new(pk, "META"), item))).await?.is_done());
/// }
/// assert_eq!(table.usage().await?.expect("an order of use").used_rows, 2);
/// assert_eq!(table.least_recently_used(1).await?[0].key()?.pk, "a");
/// # Ok(()) }
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct TableUsage {
    /// The number of rows that have the attribute [`used_at`](USED_AT).
    pub used_rows: u64,
    /// The size of the file; `None` if the table has no file.
    pub file: Option<FileUsage>,
}

/// The size of a file of SQLite.
///
/// ```
/// let usage = tabletheory::FileUsage::default();
/// assert_eq!(usage.disk_bytes() - usage.used_bytes(), usage.free_bytes);
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct FileUsage {
    /// The size of the file.
    pub file_bytes: u64,
    /// The part of the file that deleted rows have left, and that new ones will use.
    pub free_bytes: u64,
    /// The size of the files beside it: the write-ahead log and its index.
    pub log_bytes: u64,
}

impl FileUsage {
    /// The bytes on the disk.
    #[must_use]
    pub fn disk_bytes(&self) -> u64 {
        self.file_bytes + self.log_bytes
    }

    /// The bytes on the disk without those that deleted rows have left.
    #[must_use]
    pub fn used_bytes(&self) -> u64 {
        self.disk_bytes().saturating_sub(self.free_bytes)
    }
}

/// Returns when a row was last used.
pub(crate) fn of(item: &Item) -> Option<i64> {
    item.get(USED_AT).and_then(Value::as_i64)
}
