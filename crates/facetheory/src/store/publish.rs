//! Publishes renders, and finds out what became of a publish whose response was lost.

use tabletheory::{ClientToken, Commit};

use super::PageStore;
use crate::error::{Error, Kind, Result};
use crate::protocol::{
    Claim, Generation, History, Lease, Meta, Publication, Published, VersionId, digest::sha256_hex, rollback,
};

impl PageStore {
    /// Publishes a render, releases the lease and completes the request that it executes, if any, in one transaction.
    ///
    /// `seen` is `META` as it was read after the lease was acquired. If the render names the current body, the pointer does not
    /// move; only times and headers change. An unknown outcome is resolved before this returns.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> facetheory::Result<()> {
    /// # use std::sync::Arc;
    /// use facetheory::History;
    /// use facetheory::protocol::{Acquire, Generation, Published};
    ///
    /// let store = facetheory::PageStore::new(Arc::new(tabletheory::MemoryTable::new()));
    /// let Acquire::Granted(lease) = store.try_acquire(&facetheory::PageKey::new("/")?).await? else { panic!() };
    /// store.release(&lease).await?;
    /// let late = Generation::new("late.html", store.now().seconds(), 60);
    /// assert_eq!(store.publish(&lease, &late, None, History::Latest, None).await?, Published::Lost);
    /// # Ok(()) }
    /// ```
    pub async fn publish(
        &self,
        lease: &Lease,
        page: &Generation,
        seen: Option<&Meta>,
        history: History,
        request: Option<&Claim>,
    ) -> Result<Published> {
        let now = self.now();
        let mut publication = Publication {
            seen,
            ttl: self.ttls.of_page(page),
            superseded_ttl: self.ttls.of_superseded(now),
            request,
            guards: self.guards,
            ..Publication::new(lease, page, now)
        };
        let id = VersionId::of_body(now, &page.s3_key).to_string();
        let mut txn = publication.txn(history, &id).with_token(client_token(lease, "")?);
        let mut outcome = self.persist(&txn).await;
        if outcome.as_ref().is_ok_and(|commit| rollback::is_gone(lease.page(), seen, &txn, commit)) {
            // The current version was deleted, so it cannot be given a `ttl`. Publish without that.
            publication.superseded_ttl = None;
            txn = publication.txn(history, &id).with_token(client_token(lease, "again")?);
            outcome = self.persist(&txn).await;
        }
        match outcome {
            Ok(Commit::Done) => Ok(Published::Done),
            Ok(refused) if lease.is_gone(&txn, &refused) => Ok(Published::Lost),
            // A guard refused, not the lease: the lease must not block other workers until it expires.
            Ok(Commit::Refused { .. }) => {
                Ok(self.resolve_publish(&publication).await?.unwrap_or(Published::Lost))
            }
            Err(error) if error.kind() == Kind::Unknown => {
                self.resolve_publish(&publication).await?.ok_or_else(|| {
                    let what = "the page was not published: the table did not respond in time; it can be rendered again";
                    Error::new(Kind::Unavailable, what).caused_by(error)
                })
            }
            Err(error) => Err(error),
        }
    }

    /// Finds out what became of a publish whose response was lost or did not decide; `None` if it was not published.
    ///
    /// "Not published" may be reported only once the token can no longer win, so the lease is released first: if that delete
    /// finds our lock, the publish has not happened, and never will. If that cannot be found out, the outcome is unknown,
    /// whatever the error was.
    async fn resolve_publish(&self, publication: &Publication<'_>) -> Result<Option<Published>> {
        let Publication { lease, page, seen, .. } = *publication;
        let unknown = |error: Error| {
            Error::new(Kind::Unknown, "it is unknown whether the page was published").caused_by(error)
        };
        match self.persist(&lease.release()).await.map_err(unknown)? {
            Commit::Done => Ok(None),
            Commit::Refused { .. } => {
                let meta = self.lookup(lease.page()).await.map_err(unknown)?.meta;
                Ok(Some(Published::resolve(lease, page, seen, meta.as_ref())))
            }
        }
    }
}

/// The client token of a publish. A lease publishes once, so its own token identifies the attempt: all retries have the same
/// token and the same time, and at most one of them is applied.
fn client_token(lease: &Lease, attempt: &str) -> Result<ClientToken> {
    let token = lease.token();
    if attempt.is_empty() && token.len() <= ClientToken::MAX {
        return Ok(ClientToken::new(token)?);
    }
    Ok(ClientToken::new(&sha256_hex(format!("{token}{attempt}").as_bytes())[..32])?)
}
