//! The trait of all backends.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;

use crate::clock::Clock;
use crate::error::Result;
use crate::item::{Item, Key};
use crate::query::{Consistency, Page, Query, Scan};
use crate::txn::{Commit, Txn};
use crate::use_order::TableUsage;

/// A table of rows with string keys and conditional transactions.
///
/// All backends behave the same: one contract test suite runs on all of them, and random transactions are compared between
/// them. [`TableExt`](crate::TableExt) adds typed rows and other conveniences.
///
/// ```
/// use tabletheory::{Consistency, Item, Key, MemoryTable, Query, Table, Txn, Value, Write};
///
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> tabletheory::Result<()> {
/// let table = MemoryTable::new();
/// let key = Key::new("CACHE#1", "META");
/// let item = Item::from([("revalidate_seconds", Value::from(60))]);
/// assert!(table.commit(&Txn::from(Write::put(key.clone(), item))).await?.is_done());
///
/// let row = table.get(&key, Consistency::Strong).await?.expect("the row exists");
/// assert_eq!(row.get("revalidate_seconds"), Some(&60.into()));
/// assert_eq!(table.query(&Query::of("CACHE#1")).await?.items, [row]);
/// # Ok(()) }
/// ```
#[async_trait]
pub trait Table: Send + Sync + fmt::Debug {
    /// Returns the row with this key.
    async fn get(&self, key: &Key, consistency: Consistency) -> Result<Option<Item>>;

    /// Returns the rows with these keys, in the order of the keys, which may repeat.
    ///
    /// Unless [`batches_are_snapshots`](Table::batches_are_snapshots), this is not a snapshot: each row is read as by
    /// [`get`](Table::get).
    async fn batch_get(&self, keys: &[Key], consistency: Consistency) -> Result<Vec<Option<Item>>>;

    /// Returns a page of rows of one partition.
    async fn query(&self, query: &Query) -> Result<Page>;

    /// Returns a page of all rows. For maintenance, not for serving requests.
    async fn scan(&self, scan: &Scan) -> Result<Page>;

    /// Applies all writes of a transaction or none.
    ///
    /// A transaction that exceeds a limit is an error and writes nothing. After an error of kind
    /// [`Unknown`](crate::Kind::Unknown), or if the future is dropped before it completes, the transaction may or may not
    /// have been applied. A transaction with a client token may be committed again without being applied twice.
    async fn commit(&self, txn: &Txn) -> Result<Commit>;

    /// Returns the table's clock.
    fn clock(&self) -> &dyn Clock;

    /// Whether [`batch_get`](Table::batch_get) reads all rows as of one point in time, and for hardly more than one row. Then it
    /// pays to read rows together that are only perhaps needed.
    ///
    /// ```
    /// use tabletheory::{MemoryTable, Table};
    ///
    /// assert!(!MemoryTable::new().batches_are_snapshots());
    /// ```
    fn batches_are_snapshots(&self) -> bool {
        false
    }

    /// Returns how often this handle has continued with another table, because the one before was damaged, replaced or removed;
    /// always 0 if that is impossible. Rows that were read or written before such a change say nothing about the table.
    ///
    /// Fails if the table was replaced or removed and this handle must not continue with another one, so that every write
    /// fails too. The message says what to do.
    ///
    /// ```
    /// use tabletheory::{MemoryTable, Table};
    ///
    /// assert_eq!(MemoryTable::new().replacements()?, 0);
    /// # Ok::<(), tabletheory::Error>(())
    /// ```
    fn replacements(&self) -> Result<u64> {
        Ok(0)
    }

    /// Returns the number of rows that a [`sweep`](Table::sweep) with this lag would delete.
    ///
    /// Always 0 if the table deletes expired rows by itself, as DynamoDB does.
    async fn expired(&self, _lag: Duration) -> Result<u64> {
        Ok(0)
    }

    /// Deletes the rows whose `ttl` passed at least `lag` ago, and returns their number.
    ///
    /// Does nothing and returns 0 if the table deletes expired rows by itself. A table in a file also compares all rows with the
    /// index on their keys, since a damaged index hides rows.
    async fn sweep(&self, _lag: Duration) -> Result<u64> {
        Ok(0)
    }

    /// Returns up to `limit` of the rows that have the attribute [`used_at`](crate::USED_AT), the least recently used first.
    ///
    /// Always empty if the table has no order of use, as on DynamoDB: see [`usage`](Table::usage).
    async fn least_recently_used(&self, _limit: usize) -> Result<Vec<Item>> {
        Ok(Vec::new())
    }

    /// Returns up to `limit` of the rows that have the attribute [`used_at`](crate::USED_AT) and whose `ttl` passed at least `lag`
    /// ago. Their application can delete what they refer to before the table deletes them.
    ///
    /// Always empty if the table has no order of use.
    async fn expired_used(&self, _lag: Duration, _limit: usize) -> Result<Vec<Item>> {
        Ok(Vec::new())
    }

    /// Returns how much the table stores, or `None` if it has no order of use. Reads no rows.
    async fn usage(&self) -> Result<Option<TableUsage>> {
        Ok(None)
    }
}

/// Implements [`Table`] for pointers to a table.
macro_rules! impl_for_pointers {
    ($($pointer:ty),*) => {$(
        #[async_trait]
        impl<T: Table + ?Sized> Table for $pointer {
            async fn get(&self, key: &Key, consistency: Consistency) -> Result<Option<Item>> {
                (**self).get(key, consistency).await
            }

            async fn batch_get(&self, keys: &[Key], consistency: Consistency) -> Result<Vec<Option<Item>>> {
                (**self).batch_get(keys, consistency).await
            }

            async fn query(&self, query: &Query) -> Result<Page> {
                (**self).query(query).await
            }

            async fn scan(&self, scan: &Scan) -> Result<Page> {
                (**self).scan(scan).await
            }

            async fn commit(&self, txn: &Txn) -> Result<Commit> {
                (**self).commit(txn).await
            }

            fn clock(&self) -> &dyn Clock {
                (**self).clock()
            }

            fn batches_are_snapshots(&self) -> bool {
                (**self).batches_are_snapshots()
            }

            fn replacements(&self) -> Result<u64> {
                (**self).replacements()
            }

            async fn expired(&self, lag: Duration) -> Result<u64> {
                (**self).expired(lag).await
            }

            async fn sweep(&self, lag: Duration) -> Result<u64> {
                (**self).sweep(lag).await
            }

            async fn least_recently_used(&self, limit: usize) -> Result<Vec<Item>> {
                (**self).least_recently_used(limit).await
            }

            async fn expired_used(&self, lag: Duration, limit: usize) -> Result<Vec<Item>> {
                (**self).expired_used(lag, limit).await
            }

            async fn usage(&self) -> Result<Option<TableUsage>> {
                (**self).usage().await
            }
        }
    )*};
}

impl_for_pointers!(Arc<T>, Box<T>, &T);
