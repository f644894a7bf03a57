//! Transactions of typed rows.

use std::sync::Arc;

use crate::clock::Timestamp;
use crate::cond::Cond;
use crate::error::{Error, Result};
use crate::item::Key;
use crate::model::Model;
use crate::table::Table;
use crate::timestamps;
use crate::txn::{ClientToken, Commit, Txn, Write};
use crate::update::Update;

/// Builds a [`Txn`] of typed rows; created by [`TableExt::transaction`](crate::TableExt::transaction).
///
/// Versions and times are maintained as by [`Rows`](crate::Rows); all rows get the time at which the transaction was
/// created. An invalid write is reported by `build` or `commit`.
///
/// ```
/// use tabletheory::{Key, MemoryTable, Model, TableExt};
///
/// #[derive(Model)]
/// struct Metadata {
///     #[model(pk)]
///     pk: String,
///     #[model(sk)]
///     sk: String,
///     s3_key: String,
/// }
///
/// #[derive(Model)]
/// struct Lease {
///     #[model(pk)]
///     pk: String,
///     #[model(sk)]
///     sk: String,
///     lease_token: String,
///     lease_expires_at: i64,
/// }
///
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> tabletheory::Result<()> {
/// # let table = MemoryTable::new();
/// # let now = 1_700_000_000;
/// let lease = Lease {
///     pk: "CACHE#1".into(), sk: "LOCK".into(), lease_token: "t-1".into(), lease_expires_at: now + 30,
/// };
/// assert!(table.rows().put(&lease).await?.is_done());
///
/// let page = Metadata { pk: "CACHE#1".into(), sk: "META".into(), s3_key: "pages/1.html".into() };
/// let publish = table
///     .transaction()
///     .put(&page)
///     .delete(&lease)
///     .when(Lease::LEASE_TOKEN.is("t-1").and(Lease::LEASE_EXPIRES_AT.gt(now)));
/// assert!(publish.commit().await?.is_done());
/// # Ok(()) }
/// ```
#[derive(Debug)]
#[must_use = "nothing is written until it is committed"]
pub struct Transaction<'t> {
    table: &'t dyn Table,
    now: Timestamp,
    /// The writes so far, or the first error; later writes are ignored.
    txn: Result<Txn>,
}

impl<'t> Transaction<'t> {
    pub(crate) fn on(table: &'t dyn Table) -> Self {
        Transaction { table, now: table.clock().now(), txn: Ok(Txn::new([])) }
    }

    /// Saves a row. If the model has a version, the stored version must be the one that was read.
    ///
    /// ```
    /// # use tabletheory::{MemoryTable, Model, TableExt};
    /// # #[derive(Model)] struct Page { #[model(pk)] pk: String, #[model(sk)] sk: String, #[model(version)] version: i64 }
    /// # let table = MemoryTable::new();
    /// let page = Page { pk: "CACHE#1".into(), sk: "META".into(), version: 3 };
    /// let txn = table.transaction().put(&page).build()?;
    /// assert_eq!(txn.writes()[0].condition().unwrap().to_string(), "version = 3");
    /// # Ok::<(), tabletheory::Error>(())
    /// ```
    pub fn put<M: Model>(self, row: &M) -> Self {
        let write = timestamps::put(row, self.now).map(|(write, _)| write);
        self.push(write)
    }

    /// Saves a row, if there is no row with this key.
    ///
    /// ```
    /// # use tabletheory::{MemoryTable, Model, TableExt};
    /// # #[derive(Model)] struct Page { #[model(pk)] pk: String, #[model(sk)] sk: String }
    /// # let table = MemoryTable::new();
    /// let page = Page { pk: "CACHE#1".into(), sk: "VER#1".into() };
    /// let txn = table.transaction().put_new(&page).build()?;
    /// assert_eq!(txn.writes()[0].condition().unwrap().to_string(), "attribute_not_exists(pk)");
    /// # Ok::<(), tabletheory::Error>(())
    /// ```
    pub fn put_new<M: Model>(self, row: &M) -> Self {
        let write = timestamps::put_new(row, self.now).map(|(write, _)| write);
        self.push(write)
    }

    /// Updates attributes of a row of this model, increments its version and sets its times.
    ///
    /// ```
    /// # use tabletheory::{Key, MemoryTable, Model, TableExt, Update};
    /// # #[derive(Model)]
    /// # struct Pointer {
    /// #     #[model(pk)] pk: String,
    /// #     #[model(sk)] sk: String,
    /// #     current_sk: String,
    /// #     #[model(version)] version: i64,
    /// # }
    /// # let table = MemoryTable::new();
    /// let swap = Update::new([Pointer::CURRENT_SK.set("VER#2")]);
    /// let txn = table
    ///     .transaction()
    ///     .update::<Pointer>(&Key::new("CACHE#1", "META"), swap)
    ///     .when(Pointer::VERSION.is(1))
    ///     .build()?;
    /// assert_eq!(txn.writes().len(), 1);
    /// # Ok::<(), tabletheory::Error>(())
    /// ```
    pub fn update<M: Model>(self, key: &Key, update: Update) -> Self {
        let write = timestamps::update::<M>(key, update, self.now);
        self.push(write)
    }

    /// Deletes a row. If the model has a version, the stored version must be the one that was read.
    ///
    /// ```
    /// # use tabletheory::{MemoryTable, Model, TableExt};
    /// # #[derive(Model)] struct Page { #[model(pk)] pk: String, #[model(sk)] sk: String, #[model(version)] version: i64 }
    /// # let table = MemoryTable::new();
    /// let page = Page { pk: "CACHE#1".into(), sk: "META".into(), version: 3 };
    /// let txn = table.transaction().delete(&page).build()?;
    /// assert_eq!(txn.writes()[0].condition().unwrap().to_string(), "version = 3");
    /// # Ok::<(), tabletheory::Error>(())
    /// ```
    pub fn delete<M: Model>(self, row: &M) -> Self {
        self.push(timestamps::delete(row))
    }

    /// Deletes the row with this key, regardless of its model and version.
    ///
    /// ```
    /// # use tabletheory::{Key, MemoryTable, TableExt};
    /// # let table = MemoryTable::new();
    /// let txn = table.transaction().delete_key(&Key::new("CACHE#1", "LOCK")).build()?;
    /// assert_eq!(txn.writes()[0].condition(), None);
    /// # Ok::<(), tabletheory::Error>(())
    /// ```
    pub fn delete_key(self, key: &Key) -> Self {
        self.push(Ok(Write::delete(key.clone())))
    }

    /// Writes nothing to this row, but makes the transaction depend on a condition.
    ///
    /// A transaction may name a row once, so a condition on a row that is also written must be added to its write with
    /// [`when`](Transaction::when).
    ///
    /// ```
    /// # use tabletheory::{Attr, Key, MemoryTable, TableExt};
    /// # let table = MemoryTable::new();
    /// let exists = Attr::<String>::new("pk").exists();
    /// let txn = table.transaction().check(&Key::new("CACHE#1", "VER#1"), exists).build()?;
    /// assert_eq!(txn.writes().len(), 1);
    /// # Ok::<(), tabletheory::Error>(())
    /// ```
    pub fn check(self, key: &Key, cond: Cond) -> Self {
        self.push(Ok(Write::check(key.clone(), cond)))
    }

    /// Adds a condition to the last write.
    ///
    /// ```
    /// # use tabletheory::{Attr, Key, MemoryTable, TableExt};
    /// # let table = MemoryTable::new();
    /// let mine = Attr::<String>::new("lease_token").is("t-1");
    /// let txn = table.transaction().delete_key(&Key::new("CACHE#1", "LOCK")).when(mine.clone()).build()?;
    /// assert_eq!(txn.writes()[0].condition(), Some(&mine));
    /// assert!(table.transaction().when(mine).build().is_err());
    /// # Ok::<(), tabletheory::Error>(())
    /// ```
    pub fn when(mut self, cond: Cond) -> Self {
        self.txn = self.txn.and_then(|mut txn| match Arc::make_mut(&mut txn.writes).pop() {
            Some(write) => {
                Arc::make_mut(&mut txn.writes).push(write.when(cond));
                Ok(txn)
            }
            None => Err(Error::invalid(
                "`when` comes before any write; put it after the write that the condition is for",
            )),
        });
        self
    }

    /// Sets a client token, which makes it safe to commit the transaction again.
    ///
    /// ```
    /// # use tabletheory::{ClientToken, Key, MemoryTable, TableExt};
    /// # let table = MemoryTable::new();
    /// let attempt = table.transaction().delete_key(&Key::new("CACHE#1", "LOCK"));
    /// let txn = attempt.token(ClientToken::new("attempt-1")?).build()?;
    /// assert_eq!(txn.token().unwrap().as_str(), "attempt-1");
    /// # Ok::<(), tabletheory::Error>(())
    /// ```
    pub fn token(mut self, token: ClientToken) -> Self {
        self.txn = self.txn.map(|txn| txn.with_token(token));
        self
    }

    /// Returns the transaction, to commit it more than once or to inspect it.
    ///
    /// ```
    /// # use tabletheory::{Key, MemoryTable, TableExt};
    /// # let table = MemoryTable::new();
    /// let txn = table.transaction().delete_key(&Key::new("CACHE#1", "LOCK")).build()?;
    /// assert_eq!(txn.writes().len(), 1);
    /// # Ok::<(), tabletheory::Error>(())
    /// ```
    pub fn build(self) -> Result<Txn> {
        self.txn
    }

    /// Applies all writes or none.
    ///
    /// ```
    /// # use tabletheory::{Key, MemoryTable, TableExt};
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> tabletheory::Result<()> {
    /// # let table = MemoryTable::new();
    /// assert!(table.transaction().delete_key(&Key::new("CACHE#1", "LOCK")).commit().await?.is_done());
    /// # Ok(()) }
    /// ```
    pub async fn commit(self) -> Result<Commit> {
        self.table.commit(&self.txn?).await
    }

    fn push(mut self, write: Result<Write>) -> Self {
        self.txn = self.txn.and_then(|mut txn| {
            Arc::make_mut(&mut txn.writes).push(write?);
            Ok(txn)
        });
        self
    }
}
