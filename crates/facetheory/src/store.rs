//! The rows of pages in a table: the steps of a regeneration, for those who bring their own loop.
//!
//! Decisions are pure functions in the other modules; this is the one place that carries them out.

use std::sync::Arc;

use tabletheory::{ClientToken, Commit, Query, Random, SystemRandom, Table, Txn};

use crate::error::{Error, Kind, Result};
use crate::generation::Generation;
use crate::key::PageKey;
use crate::lease::{Acquire, Lease, LeaseTerms};
use crate::publish::{Guards, Publication};
use crate::row::{Lock, Meta};
use crate::version_id::VersionId;

/// How often a write whose outcome is unknown is repeated before it is resolved by reading back.
const ATTEMPTS: u32 = 3;

/// Pages in a table, and the leases to renew them.
///
/// ```
/// use facetheory::{Acquire, Generation, Keep, PageKey, PageStore, Published};
/// use std::sync::Arc;
/// use tabletheory::MemoryTable;
///
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> facetheory::Result<()> {
/// let store = PageStore::new(Arc::new(MemoryTable::new()));
/// let page = PageKey::new("/about")?;
/// let Acquire::Granted(lease) = store.try_acquire(&page).await? else { panic!("nobody else is there") };
/// assert!(matches!(store.try_acquire(&page).await?, Acquire::Held { .. }));
///
/// let seen = store.look(&page).await?.meta;
/// let rendered = Generation::new("isr/0/1-a.html", store.now().seconds(), 60);
/// let published = store.commit_generation(&lease, &rendered, seen.as_ref(), Keep::Latest).await?;
/// assert_eq!(published, Published::Done);
/// assert_eq!(store.look(&page).await?.meta.unwrap().generation, rendered);
/// # Ok(()) }
/// ```
#[derive(Clone, Debug)]
pub struct PageStore {
    table: Arc<dyn Table>,
    random: Arc<dyn Random>,
    terms: LeaseTerms,
    guards: Guards,
}

/// What the table says of a page at one moment.
///
/// ```
/// assert!(facetheory::View::default().meta.is_none());
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct View {
    /// What is served; none if there is nothing, or nothing that can be read.
    pub meta: Option<Meta>,
    /// Who renews it, held or not.
    pub lock: Option<Lock>,
}

/// Which generations of a page are kept.
///
/// ```
/// assert_ne!(facetheory::Keep::Latest, facetheory::Keep::Versions);
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Keep {
    /// The latest alone: `META` is replaced.
    Latest,
    /// Earlier ones too: each has a row, and `META` points at one of them.
    Versions,
}

/// How a publish ended.
///
/// ```
/// assert_ne!(facetheory::Published::Done, facetheory::Published::Lost);
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use = "a lost lease means that nothing was published"]
pub enum Published {
    /// It is what everyone is served now.
    Done,
    /// The lease was lost, or a guard refused: nothing was written.
    Lost,
    /// Its answer was lost, and somebody else has published since: whether it was served meanwhile is not known.
    Superseded,
}

/// Whether a lease could be kept.
///
/// ```
/// assert_eq!(facetheory::Refresh::Lost, facetheory::Refresh::Lost);
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
#[must_use = "a lost lease means that the render is in vain"]
pub enum Refresh {
    /// It is held until later.
    Extended(Lease),
    /// Somebody else has it, or it has expired.
    Lost,
}

impl PageStore {
    /// The pages in this table, with leases on the default terms.
    ///
    /// ```
    /// use std::sync::Arc;
    ///
    /// let store = facetheory::PageStore::new(Arc::new(tabletheory::MemoryTable::new()));
    /// ```
    pub fn new(table: Arc<dyn Table>) -> Self {
        PageStore {
            table,
            random: Arc::new(SystemRandom),
            terms: LeaseTerms::default(),
            guards: Guards::default(),
        }
    }

    /// The same with leases on these terms.
    ///
    /// ```
    /// use facetheory::{LeaseTerms, PageStore};
    /// use std::sync::Arc;
    ///
    /// let store = PageStore::new(Arc::new(tabletheory::MemoryTable::new())).with_terms(LeaseTerms::default());
    /// ```
    #[must_use]
    pub fn with_terms(mut self, terms: LeaseTerms) -> Self {
        self.terms = terms;
        self
    }

    /// The same with these guards on publishing.
    ///
    /// ```
    /// use facetheory::{Guards, PageStore};
    /// use std::sync::Arc;
    ///
    /// let store = PageStore::new(Arc::new(tabletheory::MemoryTable::new()))
    ///     .with_guards(Guards { version: true, ..Guards::default() });
    /// ```
    #[must_use]
    pub fn with_guards(mut self, guards: Guards) -> Self {
        self.guards = guards;
        self
    }

    /// The same with this source of tokens and ids, for tests.
    ///
    /// ```
    /// use std::sync::Arc;
    /// use tabletheory::{MemoryTable, SeededRandom};
    ///
    /// let store = facetheory::PageStore::new(Arc::new(MemoryTable::new())).with_random(Arc::new(SeededRandom::new(1)));
    /// ```
    #[must_use]
    pub fn with_random(mut self, random: Arc<dyn Random>) -> Self {
        self.random = random;
        self
    }

    /// The time by the table's clock.
    ///
    /// ```
    /// use std::sync::Arc;
    ///
    /// let store = facetheory::PageStore::new(Arc::new(tabletheory::MemoryTable::new()));
    /// assert!(store.now().seconds() > 1_700_000_000);
    /// ```
    #[must_use]
    pub fn now(&self) -> tabletheory::Timestamp {
        self.table.clock().now()
    }

    /// `META` and `LOCK` of a page, in one strong query.
    ///
    /// A `META` that cannot be read counts as absent: it is rendered again.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> facetheory::Result<()> {
    /// # use std::sync::Arc;
    /// let store = facetheory::PageStore::new(Arc::new(tabletheory::MemoryTable::new()));
    /// assert_eq!(store.look(&facetheory::PageKey::new("/")?).await?, facetheory::View::default());
    /// # Ok(()) }
    /// ```
    pub async fn look(&self, page: &PageKey) -> Result<View> {
        /// More than the two rows that there are, in case other services keep some between them.
        const ROWS: usize = 8;
        let query = Query::of(page.pk()).sk_between("LOCK", "META").limit(ROWS);
        let rows = self.table.query(&query).await?.items;
        let row = |sk: &str| rows.iter().find(|row| row.key().is_ok_and(|key| key.sk == sk));
        Ok(View {
            meta: row("META").and_then(|item| Meta::read(item).ok()),
            lock: row("LOCK").and_then(|item| Lock::read(item).ok()),
        })
    }

    /// Takes the lease of a page, if nobody holds it.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> facetheory::Result<()> {
    /// # use std::sync::Arc;
    /// use facetheory::Acquire;
    ///
    /// let store = facetheory::PageStore::new(Arc::new(tabletheory::MemoryTable::new()));
    /// let page = facetheory::PageKey::new("/")?;
    /// assert!(matches!(store.try_acquire(&page).await?, Acquire::Granted(_)));
    /// # Ok(()) }
    /// ```
    pub async fn try_acquire(&self, page: &PageKey) -> Result<Acquire> {
        let now = self.now();
        let token = ClientToken::random(&*self.random).as_str().to_owned();
        let lease = Lease::starting(page.clone(), token, now, &self.terms);
        // Repeating it is harmless: if the first attempt has won, the refusal of the next shows our own token.
        let commit = self.persist(&lease.acquire(now, &self.terms)).await?;
        Ok(lease.acquired(commit))
    }

    /// Keeps a lease for another term.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> facetheory::Result<()> {
    /// # use std::sync::Arc;
    /// use facetheory::{Acquire, Refresh};
    ///
    /// let store = facetheory::PageStore::new(Arc::new(tabletheory::MemoryTable::new()));
    /// let Acquire::Granted(lease) = store.try_acquire(&facetheory::PageKey::new("/")?).await? else { panic!() };
    /// assert!(matches!(store.refresh(&lease).await?, Refresh::Extended(_)));
    /// # Ok(()) }
    /// ```
    pub async fn refresh(&self, lease: &Lease) -> Result<Refresh> {
        let (longer, txn) = lease.refresh(self.now(), &self.terms);
        // A repetition sets the same expiry once more, so it is harmless too.
        Ok(match self.persist(&txn).await? {
            Commit::Done => Refresh::Extended(longer),
            Commit::Refused { .. } => Refresh::Lost,
        })
    }

    /// Gives a lease back; that it was lost already is no error.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> facetheory::Result<()> {
    /// # use std::sync::Arc;
    /// use facetheory::Acquire;
    ///
    /// let store = facetheory::PageStore::new(Arc::new(tabletheory::MemoryTable::new()));
    /// let page = facetheory::PageKey::new("/")?;
    /// let Acquire::Granted(lease) = store.try_acquire(&page).await? else { panic!() };
    /// store.release(&lease).await?;
    /// assert!(store.look(&page).await?.lock.is_none());
    /// # Ok(()) }
    /// ```
    pub async fn release(&self, lease: &Lease) -> Result<()> {
        self.persist(&lease.release()).await.map(|_| ())
    }

    /// Publishes what was rendered and gives the lease back, in one transaction.
    ///
    /// `seen` is `META` as it was read after the lease was taken. Where the body has the digest of the one that
    /// is served, only its times move. An unknown outcome is resolved before this returns.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> facetheory::Result<()> {
    /// # use std::sync::Arc;
    /// use facetheory::{Acquire, Generation, Keep, Published};
    ///
    /// let store = facetheory::PageStore::new(Arc::new(tabletheory::MemoryTable::new()));
    /// let Acquire::Granted(lease) = store.try_acquire(&facetheory::PageKey::new("/")?).await? else { panic!() };
    /// store.release(&lease).await?;
    /// let late = Generation::new("late.html", store.now().seconds(), 60);
    /// assert_eq!(store.commit_generation(&lease, &late, None, Keep::Latest).await?, Published::Lost);
    /// # Ok(()) }
    /// ```
    pub async fn commit_generation(
        &self,
        lease: &Lease,
        page: &Generation,
        seen: Option<&Meta>,
        keep: Keep,
    ) -> Result<Published> {
        let now = self.now();
        let publication = Publication { lease, page, seen, ttl: None, guards: self.guards, now };
        let unchanged = seen.filter(|seen| {
            seen.generation.content.digest.is_some()
                && seen.generation.content.digest == page.content.digest
                && seen.generation.content.status == page.content.status
        });
        let txn = match (unchanged, keep) {
            (Some(current), _) => publication.unchanged(current),
            (None, Keep::Latest) => publication.in_place(),
            (None, Keep::Versions) => publication.versioned(&VersionId::new(now, &*self.random).to_string()),
        };
        // The same token and the same time over all attempts: a repetition is not applied again.
        let txn = txn.with_token(client_token(lease)?);
        match self.persist(&txn).await {
            Ok(Commit::Done) => Ok(Published::Done),
            Ok(Commit::Refused { .. }) => {
                // Where a guard refused, and not the lease, the lease would keep others waiting for nothing.
                self.release(lease).await?;
                Ok(Published::Lost)
            }
            Err(error) if error.kind() == Kind::Unknown => self.resolve(lease, page, seen, error).await,
            Err(error) => Err(error),
        }
    }

    /// Finds out what became of a publish whose answer was lost.
    ///
    /// "Not published" may be said only once the token can no longer win, so the lease is given up first: if that
    /// delete finds our lock, the publish has not happened, and never will.
    async fn resolve(
        &self,
        lease: &Lease,
        page: &Generation,
        seen: Option<&Meta>,
        unknown: Error,
    ) -> Result<Published> {
        match self.persist(&lease.release()).await? {
            Commit::Done => Err(Error::new(
                Kind::Unavailable,
                "the page was not published: the table did not answer in time; it can be rendered again",
            )
            .caused_by(unknown)),
            Commit::Refused { .. } => {
                let meta = self.look(lease.page()).await?.meta;
                Ok(judge(lease, page, seen, meta.as_ref()))
            }
        }
    }

    /// Commits, and repeats what had no answer: only for transactions that come out the same.
    async fn persist(&self, txn: &Txn) -> Result<Commit> {
        let mut outcome = self.table.commit(txn).await;
        for _ in 1..ATTEMPTS {
            match &outcome {
                Err(error) if error.kind() == tabletheory::Kind::Unknown => {
                    outcome = self.table.commit(txn).await;
                }
                _ => break,
            }
        }
        Ok(outcome?)
    }
}

/// What `META` says of a publish whose lock is gone.
fn judge(lease: &Lease, page: &Generation, seen: Option<&Meta>, now: Option<&Meta>) -> Published {
    match now {
        Some(meta) if meta.mark.as_deref() == Some(lease.token()) => Published::Done,
        // A service in another language may have dropped our mark, but not the pointer.
        Some(meta)
            if meta.generation.s3_key == page.s3_key
                && seen.is_none_or(|seen| seen.generation.s3_key != page.s3_key) =>
        {
            Published::Done
        }
        now if now == seen => Published::Lost,
        _ => Published::Superseded,
    }
}

/// One lease publishes once, so its own token names the attempt.
fn client_token(lease: &Lease) -> Result<ClientToken> {
    let token = lease.token();
    if token.len() <= ClientToken::MAX {
        return Ok(ClientToken::new(token)?);
    }
    Ok(ClientToken::new(&crate::key::sha256_hex(token.as_bytes())[..32])?)
}
