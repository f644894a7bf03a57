//! Typed rows: models saved to and read from a table.

use std::fmt;
use std::future::{Future, IntoFuture};
use std::marker::PhantomData;
use std::pin::Pin;

use crate::cond::Cond;
use crate::error::Result;
use crate::item::{Item, Key};
use crate::model::Model;
use crate::query::{Consistency, Page, Query};
use crate::table::Table;
use crate::timestamps::{self, Stamped};
use crate::txn::{Commit, Txn, Write};
use crate::update::Update;

/// The rows of one model in a table; made by [`TableExt::rows`](crate::TableExt::rows).
///
/// With a `version` field a save or a delete happens only over the version that was read, and a stale one is
/// refused. `created_at` is set by the first save, `updated_at` by every one.
///
/// ```
/// use tabletheory::{MemoryTable, Model, Saved, TableExt};
///
/// #[derive(Model, Clone, Debug, PartialEq)]
/// struct Pointer {
///     #[model(pk)]
///     pk: String,
///     #[model(sk)]
///     sk: String,
///     current_sk: String,
///     #[model(version)]
///     version: i64,
/// }
///
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> tabletheory::Result<()> {
/// let table = MemoryTable::new();
/// let pointers = table.rows::<Pointer>();
/// let new = Pointer { pk: "CACHE#1".into(), sk: "META".into(), current_sk: "VER#1".into(), version: 0 };
///
/// let saved = pointers.put(&new).await?.done().expect("there was none");
/// assert_eq!(saved.version, 1);
/// assert_eq!(pointers.get(&saved.key()).await?, Some(saved.clone()));
///
/// // Two writers read version 1: the first one wins, the second one is told.
/// let mine = Pointer { current_sk: "VER#2".into(), ..saved.clone() };
/// let theirs = Pointer { current_sk: "VER#3".into(), ..saved };
/// assert!(pointers.put(&mine).await?.is_done());
/// let Saved::Refused { seen: Some(seen) } = pointers.put(&theirs).await? else { panic!("it is stale") };
/// assert_eq!(Pointer::from_item(seen)?.current_sk, "VER#2");
/// # Ok(()) }
/// ```
pub struct Rows<'t, M> {
    table: &'t dyn Table,
    model: PhantomData<fn() -> M>,
}

impl<'t, M: Model> Rows<'t, M> {
    pub(crate) fn of(table: &'t dyn Table) -> Self {
        Rows { table, model: PhantomData }
    }

    /// Saves a row when awaited: over the version that was read, where the model has one (0 or none: only where
    /// there is no row); else over whatever is there.
    ///
    /// ```
    /// # use tabletheory::{Model, MemoryTable, TableExt};
    /// # #[derive(Model, Debug)]
    /// # struct Lease { #[model(pk)] pk: String, #[model(sk)] sk: String, lease_token: String, lease_expires_at: i64 }
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> tabletheory::Result<()> {
    /// # let table = MemoryTable::new();
    /// # let now = 1_700_000_000;
    /// let lease = Lease {
    ///     pk: "CACHE#1".into(), sk: "LOCK".into(), lease_token: "t-1".into(), lease_expires_at: now + 30,
    /// };
    /// let free = Lease::PK.absent().or(Lease::LEASE_EXPIRES_AT.le(now));
    /// assert!(table.rows().put(&lease).when(free.clone()).await?.is_done());
    /// assert!(table.rows().put(&lease).when(free).await?.is_refused());
    /// # Ok(()) }
    /// ```
    pub fn put(&self, row: &M) -> Save<'t, M> {
        Save { table: self.table, stamped: timestamps::put(row, self.table.clock().now()) }
    }

    /// Saves a row when awaited, only where there is none.
    ///
    /// ```
    /// # use tabletheory::{Model, MemoryTable, TableExt};
    /// # #[derive(Model, Debug)]
    /// # struct Page { #[model(pk)] pk: String, #[model(sk)] sk: String }
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> tabletheory::Result<()> {
    /// # let table = MemoryTable::new();
    /// let page = Page { pk: "CACHE#1".into(), sk: "VER#1".into() };
    /// assert!(table.rows().put_new(&page).await?.is_done());
    /// assert!(table.rows().put_new(&page).await?.is_refused());
    /// # Ok(()) }
    /// ```
    pub fn put_new(&self, row: &M) -> Save<'t, M> {
        Save { table: self.table, stamped: timestamps::put_new(row, self.table.clock().now()) }
    }

    /// The row of this key as it is now.
    ///
    /// ```
    /// # use tabletheory::{Key, Model, MemoryTable, TableExt};
    /// # #[derive(Model, Debug, PartialEq)]
    /// # struct Page { #[model(pk)] pk: String, #[model(sk)] sk: String }
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> tabletheory::Result<()> {
    /// # let table = MemoryTable::new();
    /// assert_eq!(table.rows::<Page>().get(&Key::new("CACHE#1", "META")).await?, None);
    /// # Ok(()) }
    /// ```
    pub async fn get(&self, key: &Key) -> Result<Option<M>> {
        self.read(key, Consistency::Strong).await
    }

    /// The row of this key as it was a moment ago, for half the price on DynamoDB.
    ///
    /// ```
    /// # use tabletheory::{Key, Model, MemoryTable, TableExt};
    /// # #[derive(Model, Debug, PartialEq)]
    /// # struct Page { #[model(pk)] pk: String, #[model(sk)] sk: String }
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> tabletheory::Result<()> {
    /// # let table = MemoryTable::new();
    /// assert_eq!(table.rows::<Page>().get_eventual(&Key::new("CACHE#1", "META")).await?, None);
    /// # Ok(()) }
    /// ```
    pub async fn get_eventual(&self, key: &Key) -> Result<Option<M>> {
        self.read(key, Consistency::Eventual).await
    }

    /// Changes attributes of a row when awaited, raises its version and sets its times.
    ///
    /// As on DynamoDB, a row that is absent is made of the changes alone; `.when(M::PK.exists())` forbids that.
    ///
    /// ```
    /// # use tabletheory::{Key, Model, MemoryTable, TableExt, Update};
    /// # #[derive(Model, Debug)]
    /// # struct Pointer {
    /// #     #[model(pk)] pk: String,
    /// #     #[model(sk)] sk: String,
    /// #     current_sk: String,
    /// #     #[model(version)] version: i64,
    /// # }
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> tabletheory::Result<()> {
    /// # let table = MemoryTable::new();
    /// let pointers = table.rows::<Pointer>();
    /// let key = Key::new("CACHE#1", "META");
    /// let to = |sk: &str| Update::new([Pointer::CURRENT_SK.set(sk)]);
    /// assert!(pointers.update(&key, to("VER#1")).await?.is_done());
    /// // An expected version is a condition like any other.
    /// assert!(pointers.update(&key, to("VER#2")).when(Pointer::VERSION.is(1)).await?.is_done());
    /// assert!(pointers.update(&key, to("VER#3")).when(Pointer::VERSION.is(1)).await?.is_refused());
    /// # Ok(()) }
    /// ```
    pub fn update(&self, key: &Key, update: Update) -> Edit<'t> {
        Edit { table: self.table, write: timestamps::update::<M>(key, update, self.table.clock().now()) }
    }

    /// Deletes a row when awaited: only the version that was read, where the model has one.
    ///
    /// ```
    /// # use tabletheory::{Model, MemoryTable, TableExt};
    /// # #[derive(Model, Debug)]
    /// # struct Page { #[model(pk)] pk: String, #[model(sk)] sk: String, #[model(version)] version: i64 }
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> tabletheory::Result<()> {
    /// # let table = MemoryTable::new();
    /// let pages = table.rows::<Page>();
    /// let new = Page { pk: "CACHE#1".into(), sk: "META".into(), version: 0 };
    /// let first = pages.put(&new).await?.done().expect("there was none");
    /// let second = pages.put(&first).await?.done().expect("nobody else writes");
    /// assert!(pages.delete(&first).await?.is_refused());
    /// assert!(pages.delete(&second).await?.is_done());
    /// # Ok(()) }
    /// ```
    pub fn delete(&self, row: &M) -> Edit<'t> {
        Edit { table: self.table, write: timestamps::delete(row) }
    }

    /// Deletes the row of this key when awaited, of whatever version; that there is none is no error.
    ///
    /// ```
    /// # use tabletheory::{Key, Model, MemoryTable, TableExt};
    /// # #[derive(Model, Debug)]
    /// # struct Lease { #[model(pk)] pk: String, #[model(sk)] sk: String, lease_token: String }
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> tabletheory::Result<()> {
    /// # let table = MemoryTable::new();
    /// let release = table.rows::<Lease>().delete_key(&Key::new("CACHE#1", "LOCK"));
    /// assert!(release.when(Lease::LEASE_TOKEN.is("t-1")).await?.is_refused());
    /// # Ok(()) }
    /// ```
    pub fn delete_key(&self, key: &Key) -> Edit<'t> {
        Edit { table: self.table, write: Ok(Write::delete(key.clone())) }
    }

    /// A page of rows. The query must pick rows of this model alone: one that is not is an error.
    ///
    /// ```
    /// # use tabletheory::{Model, MemoryTable, Query, TableExt};
    /// # #[derive(Model, Debug)]
    /// # struct Page { #[model(pk)] pk: String, #[model(sk)] sk: String }
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> tabletheory::Result<()> {
    /// # let table = MemoryTable::new();
    /// let newest = Query::of("CACHE#1").begins_with("VER#").backward().limit(5);
    /// assert!(table.rows::<Page>().query(&newest).await?.items.is_empty());
    /// # Ok(()) }
    /// ```
    pub async fn query(&self, query: &Query) -> Result<Page<M>> {
        let page = self.table.query(query).await?;
        let items = page.items.into_iter().map(M::from_item).collect::<Result<_>>()?;
        Ok(Page { items, next: page.next })
    }

    async fn read(&self, key: &Key, consistency: Consistency) -> Result<Option<M>> {
        self.table.get(key, consistency).await?.map(M::from_item).transpose()
    }
}

impl<M: Model> fmt::Debug for Rows<'_, M> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Rows").field("model", &M::NAME).field("table", &self.table).finish()
    }
}

/// A save that happens when it is awaited; made by [`Rows::put`] and [`Rows::put_new`].
///
/// ```
/// # use tabletheory::{Model, MemoryTable, TableExt};
/// # #[derive(Model, Debug)]
/// # struct Page { #[model(pk)] pk: String, #[model(sk)] sk: String, generated_at: i64 }
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> tabletheory::Result<()> {
/// # let table = MemoryTable::new();
/// let page = Page { pk: "CACHE#1".into(), sk: "META".into(), generated_at: 5 };
/// let newer = Page::PK.absent().or(Page::GENERATED_AT.lt(5));
/// assert!(table.rows().put(&page).when(newer).await?.is_done());
/// # Ok(()) }
/// ```
#[derive(Debug)]
#[must_use = "nothing is saved until it is awaited"]
pub struct Save<'t, M> {
    table: &'t dyn Table,
    stamped: Result<Stamped<M>>,
}

impl<M> Save<'_, M> {
    /// The same save, only under this condition too.
    ///
    /// ```
    /// # use tabletheory::{Model, MemoryTable, TableExt};
    /// # #[derive(Model, Debug)]
    /// # struct Page { #[model(pk)] pk: String, #[model(sk)] sk: String }
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> tabletheory::Result<()> {
    /// # let table = MemoryTable::new();
    /// let page = Page { pk: "CACHE#1".into(), sk: "META".into() };
    /// assert!(table.rows().put(&page).when(Page::PK.exists()).await?.is_refused());
    /// # Ok(()) }
    /// ```
    pub fn when(mut self, cond: Cond) -> Self {
        self.stamped = self.stamped.map(|Stamped { write, row }| Stamped { write: write.when(cond), row });
        self
    }
}

impl<'t, M: Model + 't> IntoFuture for Save<'t, M> {
    type Output = Result<Saved<M>>;
    type IntoFuture = Pin<Box<dyn Future<Output = Self::Output> + Send + 't>>;

    fn into_future(self) -> Self::IntoFuture {
        Box::pin(async move {
            let Stamped { write, row } = self.stamped?;
            Ok(match self.table.commit(&Txn::from(write)).await? {
                Commit::Done => Saved::Done(row),
                Commit::Refused { seen, .. } => Saved::Refused { seen },
            })
        })
    }
}

/// An update or a delete that happens when it is awaited; made by [`Rows`].
///
/// ```
/// # use tabletheory::{Key, Model, MemoryTable, TableExt};
/// # #[derive(Model, Debug)]
/// # struct Page { #[model(pk)] pk: String, #[model(sk)] sk: String }
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> tabletheory::Result<()> {
/// # let table = MemoryTable::new();
/// let delete = table.rows::<Page>().delete_key(&Key::new("CACHE#1", "META"));
/// assert!(delete.await?.is_done());
/// # Ok(()) }
/// ```
#[derive(Debug)]
#[must_use = "nothing is written until it is awaited"]
pub struct Edit<'t> {
    table: &'t dyn Table,
    write: Result<Write>,
}

impl Edit<'_> {
    /// The same write, only under this condition too.
    ///
    /// ```
    /// # use tabletheory::{Key, Model, MemoryTable, TableExt};
    /// # #[derive(Model, Debug)]
    /// # struct Page { #[model(pk)] pk: String, #[model(sk)] sk: String }
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> tabletheory::Result<()> {
    /// # let table = MemoryTable::new();
    /// let delete = table.rows::<Page>().delete_key(&Key::new("CACHE#1", "META"));
    /// assert!(delete.when(Page::PK.exists()).await?.is_refused());
    /// # Ok(()) }
    /// ```
    pub fn when(mut self, cond: Cond) -> Self {
        self.write = self.write.map(|write| write.when(cond));
        self
    }
}

impl<'t> IntoFuture for Edit<'t> {
    type Output = Result<Commit>;
    type IntoFuture = Pin<Box<dyn Future<Output = Self::Output> + Send + 't>>;

    fn into_future(self) -> Self::IntoFuture {
        Box::pin(async move { self.table.commit(&Txn::from(self.write?)).await })
    }
}

/// How a save ended. A "no" is a value, not an error.
///
/// ```
/// use tabletheory::Saved;
///
/// assert_eq!(Saved::Done("the row as it was saved").done(), Some("the row as it was saved"));
/// assert!(Saved::<()>::Refused { seen: None }.is_refused());
/// ```
#[derive(Clone, Debug, PartialEq)]
#[must_use = "a refused save wrote nothing"]
pub enum Saved<M> {
    /// It happened; this is the row as it was saved, with its new version and times.
    Done(M),
    /// It did not happen, because of its version or of a condition.
    Refused {
        /// The row that the condition saw; none when there was no row.
        seen: Option<Item>,
    },
}

impl<M> Saved<M> {
    /// Whether it happened.
    ///
    /// ```
    /// assert!(tabletheory::Saved::Done(()).is_done());
    /// ```
    #[must_use]
    pub fn is_done(&self) -> bool {
        matches!(self, Saved::Done(_))
    }

    /// Whether its version or a condition refused it.
    ///
    /// ```
    /// assert!(!tabletheory::Saved::Done(()).is_refused());
    /// ```
    #[must_use]
    pub fn is_refused(&self) -> bool {
        !self.is_done()
    }

    /// The row as it was saved, if it was.
    ///
    /// ```
    /// assert_eq!(tabletheory::Saved::Done(7).done(), Some(7));
    /// ```
    #[must_use]
    pub fn done(self) -> Option<M> {
        match self {
            Saved::Done(row) => Some(row),
            Saved::Refused { .. } => None,
        }
    }
}
