//! Extension methods of all tables.

use std::future::Future;

use crate::error::{Error, Kind, Result};
use crate::model::Model;
use crate::query::{Page, Query};
use crate::rows::Rows;
use crate::table::Table;
use crate::transaction::Transaction;
use crate::txn::{Commit, Txn};

/// How often a transaction with an unknown outcome is committed.
const MAX_COMMITS: u32 = 3;

/// Typed rows, typed transactions and other conveniences for every [`Table`].
///
/// ```
/// use std::sync::Arc;
/// use tabletheory::{Key, MemoryTable, Model, Table, TableExt};
///
/// #[derive(Model, Debug, PartialEq)]
/// struct Page {
///     #[model(pk)]
///     pk: String,
///     #[model(sk)]
///     sk: String,
/// }
///
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> tabletheory::Result<()> {
/// let table: Arc<dyn Table> = Arc::new(MemoryTable::new());
/// let page = Page { pk: "CACHE#1".into(), sk: "META".into() };
/// assert!(table.rows().put(&page).await?.is_done());
/// assert_eq!(table.rows::<Page>().get(&page.key()).await?, Some(page));
/// # Ok(()) }
/// ```
pub trait TableExt: Table {
    /// Returns the table as a trait object.
    ///
    /// ```
    /// use tabletheory::{MemoryTable, Table, TableExt};
    ///
    /// let table = MemoryTable::new();
    /// let any: &dyn Table = table.erased();
    /// assert!(any.clock().now().seconds() > 0);
    /// ```
    fn erased(&self) -> &dyn Table;

    /// Returns the rows of one model.
    ///
    /// ```
    /// use tabletheory::{Key, MemoryTable, Model, TableExt};
    /// # #[derive(Model, Debug, PartialEq)]
    /// # struct Page { #[model(pk)] pk: String, #[model(sk)] sk: String }
    ///
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> tabletheory::Result<()> {
    /// let table = MemoryTable::new();
    /// assert_eq!(table.rows::<Page>().get(&Key::new("CACHE#1", "META")).await?, None);
    /// # Ok(()) }
    /// ```
    fn rows<M: Model>(&self) -> Rows<'_, M> {
        Rows::of(self.erased())
    }

    /// Creates a transaction of rows of any models.
    ///
    /// ```
    /// use tabletheory::{Key, MemoryTable, TableExt};
    ///
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> tabletheory::Result<()> {
    /// let table = MemoryTable::new();
    /// let key = Key::new("CACHE#1", "META");
    /// let clear = table.transaction().delete_key(&key).delete_key(&key.sibling("LOCK"));
    /// assert!(clear.commit().await?.is_done());
    /// # Ok(()) }
    /// ```
    fn transaction(&self) -> Transaction<'_> {
        Transaction::on(self.erased())
    }

    /// Returns the rows of all pages of a query, up to `most` rows; `next` is set if there may be more.
    ///
    /// ```
    /// use tabletheory::{Item, Key, MemoryTable, Query, Table, TableExt, Txn, Write};
    ///
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> tabletheory::Result<()> {
    /// let table = MemoryTable::new();
    /// let row = |sk: &str| Write::put(Key::new("CACHE#1", sk), Item::new());
    /// let three = Txn::new([row("VER#1"), row("VER#2"), row("VER#3")]);
    /// assert!(table.commit(&three).await?.is_done());
    ///
    /// // The query's limit applies to each page.
    /// let versions = Query::of("CACHE#1").begins_with("VER#").limit(1);
    /// let all = table.query_all(&versions, 100).await?;
    /// assert_eq!((all.items.len(), all.next), (3, None));
    /// let some = table.query_all(&versions, 2).await?;
    /// assert_eq!((some.items.len(), some.next.is_some()), (2, true));
    /// # Ok(()) }
    /// ```
    fn query_all(&self, query: &Query, most: usize) -> impl Future<Output = Result<Page>> + Send {
        query_pages(self.erased(), query.clone(), most)
    }

    /// Commits a transaction, and commits it again up to two times while its outcome is unknown.
    ///
    /// Only for transactions that may be applied twice, or that have a client token.
    ///
    /// ```
    /// use tabletheory::{Faults, Faulty, Key, Kind, MemoryTable, TableExt, Txn, Write};
    ///
    /// # #[tokio::main(flavor = "current_thread")] async fn main() {
    /// let table = Faulty::new(MemoryTable::new(), 1, Faults { lose_response: 1.0, ..Faults::default() });
    /// let delete = Txn::from(Write::delete(Key::new("CACHE#1", "LOCK")));
    /// assert_eq!(table.commit_until_known(&delete).await.unwrap_err().kind(), Kind::Unknown);
    /// assert_eq!(table.counts().responses_lost, 3);
    /// # }
    /// ```
    fn commit_until_known(&self, txn: &Txn) -> impl Future<Output = Result<Commit>> + Send {
        commit_until_known(self.erased(), txn)
    }
}

impl<T: Table> TableExt for T {
    fn erased(&self) -> &dyn Table {
        self
    }
}

impl TableExt for dyn Table + '_ {
    fn erased(&self) -> &dyn Table {
        self
    }
}

async fn commit_until_known(table: &dyn Table, txn: &Txn) -> Result<Commit> {
    let is_unknown = |error: &Error| error.kind() == Kind::Unknown;
    let unknown = match table.commit(txn).await {
        Err(error) if is_unknown(&error) => error,
        outcome => return outcome,
    };
    for _ in 1..MAX_COMMITS {
        match table.commit(txn).await {
            Ok(commit) => return Ok(commit),
            Err(error) if is_unknown(&error) => {}
            // This attempt was not applied; an earlier one may have been.
            Err(_) => break,
        }
    }
    Err(unknown)
}

async fn query_pages(table: &dyn Table, mut query: Query, most: usize) -> Result<Page> {
    let mut all = Page::default();
    let page_limit = query.limit.unwrap_or(usize::MAX);
    // Each page except the last has at least one row, which limits the number of pages.
    for _ in 0..=most {
        query.limit = Some(page_limit.min(most.saturating_sub(all.items.len())));
        let page = table.query(&query).await?;
        all.items.extend(page.items);
        all.next = page.next;
        match &all.next {
            Some(cursor) if all.items.len() < most => query.after = Some(cursor.clone()),
            _ => break,
        }
    }
    Ok(all)
}
