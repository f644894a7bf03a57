//! What every backend can do.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;

use crate::clock::Clock;
use crate::error::Result;
use crate::item::{Item, Key};
use crate::query::{Consistency, Page, Query, Scan};
use crate::txn::{Commit, Txn};

/// Rows under string keys, with conditional transactions: what every backend does in the same way.
///
/// One contract suite runs on all of them, and random transactions are compared across them.
/// Conveniences, typed rows among them, are in [`TableExt`](crate::TableExt).
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
/// let row = table.get(&key, Consistency::Strong).await?.expect("it was just put");
/// assert_eq!(row.get("revalidate_seconds"), Some(&60.into()));
/// assert_eq!(table.query(&Query::of("CACHE#1")).await?.items, [row]);
/// # Ok(()) }
/// ```
#[async_trait]
pub trait Table: Send + Sync + fmt::Debug {
    /// One row by its key.
    async fn get(&self, key: &Key, consistency: Consistency) -> Result<Option<Item>>;

    /// Several rows by their keys, each in the place of its key. A key may be named twice.
    ///
    /// They are not read at one moment: each is as a [`get`](Table::get) would find it.
    async fn batch_get(&self, keys: &[Key], consistency: Consistency) -> Result<Vec<Option<Item>>>;

    /// A page of the rows of one partition.
    async fn query(&self, query: &Query) -> Result<Page>;

    /// A page of all rows: for maintenance, never for serving.
    async fn scan(&self, scan: &Scan) -> Result<Page>;

    /// All writes of a transaction, or none.
    ///
    /// A transaction that breaks a limit is refused before anything is written. After an error of
    /// kind [`Unknown`](crate::Kind::Unknown) the transaction may or may not have happened; so it is when
    /// the future is dropped before it is ready. One with a client token may be committed again: it is not
    /// applied twice.
    async fn commit(&self, txn: &Txn) -> Result<Commit>;

    /// The clock by which this table tells time.
    fn clock(&self) -> &dyn Clock;

    /// How many rows a [`sweep`](Table::sweep) with this lag would delete.
    ///
    /// None, unless a backend says otherwise: a table that expires its rows by itself, as DynamoDB does, leaves
    /// nothing to be swept.
    async fn expired(&self, _lag: Duration) -> Result<u64> {
        Ok(0)
    }

    /// Deletes the rows whose `ttl` passed at least `lag` ago, and says how many. No result depends on it.
    ///
    /// A table that expires its rows by itself does nothing here, and says 0.
    async fn sweep(&self, _lag: Duration) -> Result<u64> {
        Ok(0)
    }
}

/// What points at a table is one.
macro_rules! through_pointer {
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

            async fn expired(&self, lag: Duration) -> Result<u64> {
                (**self).expired(lag).await
            }

            async fn sweep(&self, lag: Duration) -> Result<u64> {
                (**self).sweep(lag).await
            }
        }
    )*};
}

through_pointer!(Arc<T>, Box<T>, &T);
