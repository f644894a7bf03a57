//! Typed rows: saving and reading models.

use std::future::{Future, IntoFuture};
use std::marker::PhantomData;
use std::pin::Pin;

use crate::cond::Cond;
use crate::error::Result;
use crate::item::{Item, Key};
use crate::model::Model;
use crate::query::{Consistency, Page, Query};
use crate::table::Table;
use crate::timestamps;
use crate::txn::{Commit, Txn, Write};
use crate::update::Update;

/// The rows of one model in a table; created by [`TableExt::rows`](crate::TableExt::rows).
///
/// If the model has a `version`, a save or delete is refused unless the stored version is the one that was read. The first
/// save sets `created_at`, every save sets `updated_at`.
///
/// A version that is an `Option` starts at 0 and is `None` before the first save, as in other languages of TableTheory. A
/// version that is an integer starts at 1 and is 0 before the first save, so it cannot save a row over one that another
/// program stored with version 0, or without a version: use an `Option`, or [`update`](Rows::update).
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
/// let saved = pointers.put(&new).await?.done().expect("the row is new");
/// assert_eq!(saved.version, 1);
/// assert_eq!(pointers.get(&saved.key()).await?, Some(saved.clone()));
///
/// // Two writers read version 1: the first save wins, the second is refused.
/// let mine = Pointer { current_sk: "VER#2".into(), ..saved.clone() };
/// let theirs = Pointer { current_sk: "VER#3".into(), ..saved };
/// assert!(pointers.put(&mine).await?.is_done());
/// let Saved::Refused { seen: Some(seen) } = pointers.put(&theirs).await? else { panic!("the version is stale") };
/// assert_eq!(Pointer::from_item(seen)?.current_sk, "VER#2");
/// # Ok(()) }
/// ```
#[derive(Debug)]
pub struct Rows<'t, M> {
    table: &'t dyn Table,
    model: PhantomData<fn() -> M>,
}

impl<'t, M: Model> Rows<'t, M> {
    pub(crate) fn of(table: &'t dyn Table) -> Self {
        Rows { table, model: PhantomData }
    }

    /// Saves a row when awaited. If the model has a version, the stored version must be the one that was read, and there must
    /// be no row if this one was never read (its version is `None`, or an integer 0); otherwise any existing row is replaced.
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
        Save { table: self.table, prepared: timestamps::put(row, self.table.clock().now()) }
    }

    /// Saves a row when awaited, if there is no row with this key.
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
        Save { table: self.table, prepared: timestamps::put_new(row, self.table.clock().now()) }
    }

    /// Returns the row with this key, with strong consistency.
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

    /// Returns the row with this key, with eventual consistency, at half the price on DynamoDB.
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

    /// Updates attributes of a row when awaited, increments its version and sets its times.
    ///
    /// As on DynamoDB, an absent row is created with only these attributes; add `.when(M::PK.exists())` to prevent that.
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
    /// // An expected version is an ordinary condition.
    /// assert!(pointers.update(&key, to("VER#2")).when(Pointer::VERSION.is(1)).await?.is_done());
    /// assert!(pointers.update(&key, to("VER#3")).when(Pointer::VERSION.is(1)).await?.is_refused());
    /// # Ok(()) }
    /// ```
    pub fn update(&self, key: &Key, update: Update) -> Edit<'t> {
        Edit { table: self.table, write: timestamps::update::<M>(key, update, self.table.clock().now()) }
    }

    /// Deletes a row when awaited. If the model has a version, the stored version must be the one that was read.
    ///
    /// ```
    /// # use tabletheory::{Model, MemoryTable, TableExt};
    /// # #[derive(Model, Debug)]
    /// # struct Page { #[model(pk)] pk: String, #[model(sk)] sk: String, #[model(version)] version: i64 }
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> tabletheory::Result<()> {
    /// # let table = MemoryTable::new();
    /// let pages = table.rows::<Page>();
    /// let new = Page { pk: "CACHE#1".into(), sk: "META".into(), version: 0 };
    /// let first = pages.put(&new).await?.done().expect("the row is new");
    /// let second = pages.put(&first).await?.done().expect("the version is current");
    /// assert!(pages.delete(&first).await?.is_refused());
    /// assert!(pages.delete(&second).await?.is_done());
    /// # Ok(()) }
    /// ```
    pub fn delete(&self, row: &M) -> Edit<'t> {
        Edit { table: self.table, write: timestamps::delete(row) }
    }

    /// Deletes the row with this key when awaited, regardless of its version. Succeeds if there is no such row.
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

    /// Returns a page of rows. All rows that the query matches must be of this model; others are an error.
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

/// A save that is executed when awaited; created by [`Rows::put`] and [`Rows::put_new`].
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
    prepared: Result<(Write, M)>,
}

impl<M> Save<'_, M> {
    /// Adds a condition.
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
        self.prepared = self.prepared.map(|(write, row)| (write.when(cond), row));
        self
    }
}

impl<'t, M: Model + 't> IntoFuture for Save<'t, M> {
    type Output = Result<Saved<M>>;
    type IntoFuture = Pin<Box<dyn Future<Output = Self::Output> + Send + 't>>;

    fn into_future(self) -> Self::IntoFuture {
        Box::pin(async move {
            let (write, row) = self.prepared?;
            Ok(match self.table.commit(&Txn::from(write)).await? {
                Commit::Done => Saved::Done(row),
                Commit::Refused { seen, .. } => Saved::Refused { seen },
            })
        })
    }
}

/// An update or delete that is executed when awaited; created by [`Rows`].
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
    /// Adds a condition.
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

/// The result of a save. A refusal is a value, not an error.
///
/// ```
/// use tabletheory::Saved;
///
/// assert_eq!(Saved::Done("the saved row").done(), Some("the saved row"));
/// assert!(Saved::<()>::Refused { seen: None }.is_refused());
/// ```
#[derive(Clone, Debug, PartialEq)]
#[must_use = "a refused save wrote nothing"]
pub enum Saved<M> {
    /// The row was saved; contains it with its new version and times.
    Done(M),
    /// The row was not saved, because of its version or a condition.
    Refused {
        /// The stored row that the condition was evaluated on, `None` if there is no row.
        seen: Option<Item>,
    },
}

impl<M> Saved<M> {
    /// Whether the row was saved.
    ///
    /// ```
    /// assert!(tabletheory::Saved::Done(()).is_done());
    /// ```
    #[must_use]
    pub fn is_done(&self) -> bool {
        matches!(self, Saved::Done(_))
    }

    /// Whether the save was refused.
    ///
    /// ```
    /// assert!(!tabletheory::Saved::Done(()).is_refused());
    /// ```
    #[must_use]
    pub fn is_refused(&self) -> bool {
        !self.is_done()
    }

    /// Returns the row as it was saved, `None` if the save was refused.
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
