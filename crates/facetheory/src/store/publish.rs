//! Taking a lease, keeping it, giving it back, and publishing under it.

use tabletheory::{ClientToken, Commit, Txn};

use super::PageStore;
use crate::error::{Error, Kind, Result};
use crate::protocol::generation::Generation;
use crate::protocol::key::{PageKey, sha256_hex};
use crate::protocol::lease::{Acquire, Lease, Refresh};
use crate::protocol::publish::{History, Publication, Published, judge};
use crate::protocol::request::Claim;
use crate::protocol::rollback;
use crate::protocol::row::Meta;
use crate::protocol::version_id::VersionId;

impl PageStore {
    /// Takes the lease of a page, if nobody holds it.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> facetheory::Result<()> {
    /// # use std::sync::Arc;
    /// use facetheory::protocol::Acquire;
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
        // Applied once, however often it is sent: an attempt that arrives late must not bring back a lease that
        // was given up, published under, or fenced off by an invalidation.
        let commit = self.persist(&self.once(lease.acquire(now, &self.terms))).await?;
        Ok(lease.acquired(commit))
    }

    /// Keeps a lease for another term.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> facetheory::Result<()> {
    /// # use std::sync::Arc;
    /// use facetheory::protocol::{Acquire, Refresh};
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
    /// use facetheory::protocol::Acquire;
    ///
    /// let store = facetheory::PageStore::new(Arc::new(tabletheory::MemoryTable::new()));
    /// let page = facetheory::PageKey::new("/")?;
    /// let Acquire::Granted(lease) = store.try_acquire(&page).await? else { panic!() };
    /// store.release(&lease).await?;
    /// assert!(store.lookup(&page).await?.lock.is_none());
    /// # Ok(()) }
    /// ```
    pub async fn release(&self, lease: &Lease) -> Result<()> {
        self.persist(&lease.release()).await.map(|_| ())
    }

    /// Publishes what was rendered and gives the lease back, in one transaction.
    ///
    /// `seen` is `META` as it was read after the lease was taken. Where what is published names the body that is
    /// served, the pointer stays and only what is told of it moves. An unknown outcome is resolved before this returns.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> facetheory::Result<()> {
    /// # use std::sync::Arc;
    /// use facetheory::protocol::{Acquire, Generation, Published};
    /// use facetheory::History;
    ///
    /// let store = facetheory::PageStore::new(Arc::new(tabletheory::MemoryTable::new()));
    /// let Acquire::Granted(lease) = store.try_acquire(&facetheory::PageKey::new("/")?).await? else { panic!() };
    /// store.release(&lease).await?;
    /// let late = Generation::new("late.html", store.now().seconds(), 60);
    /// assert_eq!(store.commit_generation(&lease, &late, None, History::Latest).await?, Published::Lost);
    /// # Ok(()) }
    /// ```
    pub async fn commit_generation(
        &self,
        lease: &Lease,
        page: &Generation,
        seen: Option<&Meta>,
        keep: History,
    ) -> Result<Published> {
        self.publish(lease, page, seen, keep, None).await
    }

    /// The same, and finishes the request for which it was rendered, all in one transaction.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> facetheory::Result<()> {
    /// # use std::sync::Arc;
    /// use facetheory::protocol::{Begin, Generation, Published};
    /// use facetheory::{History, PageKey};
    ///
    /// let store = facetheory::PageStore::new(Arc::new(tabletheory::MemoryTable::new()));
    /// let page = PageKey::new("/")?;
    /// let Begin::Started { lease, claim } = store.begin_request(&page, "order-7", "hash").await? else { panic!() };
    /// let rendered = Generation::new("a.html", store.now().seconds(), 0);
    /// let done = store.commit_request(&lease, &claim, &rendered, None, History::Latest).await?;
    /// assert_eq!(done, Published::Done);
    /// let again = store.begin_request(&page, "order-7", "hash").await?;
    /// assert_eq!(again, Begin::Replayed { s3_key: Some("a.html".into()) });
    /// # Ok(()) }
    /// ```
    pub async fn commit_request(
        &self,
        lease: &Lease,
        claim: &Claim,
        page: &Generation,
        seen: Option<&Meta>,
        keep: History,
    ) -> Result<Published> {
        self.publish(lease, page, seen, keep, Some(claim)).await
    }

    async fn publish(
        &self,
        lease: &Lease,
        page: &Generation,
        seen: Option<&Meta>,
        keep: History,
        request: Option<&Claim>,
    ) -> Result<Published> {
        let now = self.now();
        let mut publication = Publication {
            lease,
            page,
            seen,
            ttl: self.ttls.of_page(page),
            superseded_ttl: self.ttls.of_superseded(now),
            request,
            guards: self.guards,
            now,
        };
        let id = VersionId::new(now, &*self.random).to_string();
        let txn = recipe(&publication, keep, &id).with_token(client_token(lease, "")?);
        match self.persist(&txn).await {
            Ok(refused) if rollback::is_gone(lease.page(), seen, &txn, &refused) => {
                // Somebody has deleted the version that is served. The page goes on without it.
                publication.superseded_ttl = None;
                let txn = recipe(&publication, keep, &id).with_token(client_token(lease, "again")?);
                self.settle(&publication, &txn, self.persist(&txn).await).await
            }
            outcome => self.settle(&publication, &txn, outcome).await,
        }
    }

    /// What the answer to a publish means.
    async fn settle(
        &self,
        publication: &Publication<'_>,
        txn: &Txn,
        outcome: Result<Commit>,
    ) -> Result<Published> {
        let Publication { lease, page, seen, .. } = *publication;
        match outcome {
            Ok(Commit::Done) => Ok(Published::Done),
            Ok(refused) if lease.is_gone(txn, &refused) => Ok(Published::Lost),
            // Where a guard refused, and not the lease, the lease would keep others waiting for nothing.
            Ok(Commit::Refused { .. }) => {
                Ok(self.resolve(lease, page, seen).await?.unwrap_or(Published::Lost))
            }
            Err(error) if error.kind() == Kind::Unknown => {
                self.resolve(lease, page, seen).await?.ok_or_else(|| {
                    let what = "the page was not published: the table did not answer in time; it can be rendered again";
                    Error::new(Kind::Unavailable, what).caused_by(error)
                })
            }
            Err(error) => Err(error),
        }
    }

    /// Finds out what became of a publish whose answer was lost or settles nothing; none if it was not published.
    ///
    /// "Not published" may be said only once the token can no longer win, so the lease is given up first: if that
    /// delete finds our lock, the publish has not happened, and never will. Where neither can be found out, the
    /// outcome is unknown, whatever was the matter.
    async fn resolve(
        &self,
        lease: &Lease,
        page: &Generation,
        seen: Option<&Meta>,
    ) -> Result<Option<Published>> {
        let unknown = |error: Error| {
            Error::new(Kind::Unknown, "whether the page was published is not known").caused_by(error)
        };
        match self.persist(&lease.release()).await.map_err(unknown)? {
            Commit::Done => Ok(None),
            Commit::Refused { .. } => {
                let meta = self.lookup(lease.page()).await.map_err(unknown)?.meta;
                Ok(Some(judge(lease, page, seen, meta.as_ref())))
            }
        }
    }
}

/// The transaction of a publish.
fn recipe(publication: &Publication<'_>, keep: History, version_id: &str) -> Txn {
    let page = publication.page;
    // The same body under a new key replaces one that was missing: the pointer has to move.
    let is_unchanged = |seen: &&Meta| seen.generation.s3_key == page.s3_key;
    match (publication.seen.filter(is_unchanged), keep) {
        (Some(current), _) => publication.unchanged(current),
        (None, History::Latest) => publication.in_place(),
        (None, History::Versions) => publication.versioned(version_id),
    }
}

/// One lease publishes once, so its own token names the attempt. The same token and the same time over all
/// repetitions: none is applied again.
fn client_token(lease: &Lease, attempt: &str) -> Result<ClientToken> {
    let token = lease.token();
    if attempt.is_empty() && token.len() <= ClientToken::MAX {
        return Ok(ClientToken::new(token)?);
    }
    Ok(ClientToken::new(&sha256_hex(format!("{token}{attempt}").as_bytes())[..32])?)
}
