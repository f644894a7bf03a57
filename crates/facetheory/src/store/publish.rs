//! Publishes renders, and finds out what became of a publish whose response was lost.

use tabletheory::{ClientToken, Commit, Item, Table as _, Txn, Value};

use super::PageStore;
use crate::error::{Error, Kind, Result};
use crate::protocol::{
    Claim, Generation, History, Lease, Meta, Publication, Published, VersionId, attribute as name,
    digest::sha256_hex, replacement::must_be_announced, rollback, ttl::seconds,
};

const UNKNOWN: &str = "it is unknown whether the page was published";

/// A render to be published under a lease.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Publish<'a> {
    pub(crate) lease: &'a Lease,
    pub(crate) page: &'a Generation,
    /// `META` as it was read after the lease was acquired.
    pub(crate) seen: Option<&'a Meta>,
    pub(crate) history: History,
    /// The request that the render executes, if any.
    pub(crate) request: Option<&'a Claim>,
    /// A hint whether the page is the [only right one](must_be_announced) for all processes.
    pub(crate) only_right_one: bool,
}

impl PageStore {
    /// Publishes a render, releases the lease and completes the request that it executes, if any, in one transaction. A render
    /// that has not changed the page needs only an update of `META`, and the lease is released after it.
    ///
    /// `seen` is `META` as it was read after the lease was acquired. If the render names the current body, the pointer does not
    /// move; only times and headers change. An unknown outcome is resolved before this returns. A store with
    /// [announcements](PageStore::with_announcements) announces a page that replaces a fresh one.
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
        self.publish_for(Publish { lease, page, seen, history, request, only_right_one: true }).await
    }

    /// Publishes a render like [`publish`](PageStore::publish).
    ///
    /// Nobody would repeat the announcement of a publish, so if it takes longer than a moment, it is
    /// [pending](PageStore::add_pending_announcement).
    pub(crate) async fn publish_for(&self, publish: Publish<'_>) -> Result<Published> {
        let outcome = self.publish_unannounced(publish).await;
        let may_be_published = match &outcome {
            Ok(published) => *published != Published::Lost,
            Err(error) => error.kind() == Kind::Unknown,
        };
        let Publish { lease, page, seen, only_right_one, .. } = publish;
        if may_be_published && must_be_announced(seen, page, only_right_one, self.now()) {
            self.announce_soon(&lease.page().meta()).await;
        }
        outcome
    }

    /// `META` as it is after this generation was published over the row that was `seen`, except for its version and its mark.
    pub(crate) fn published(&self, page: &Generation, seen: Option<&Meta>) -> Meta {
        let (mut meta, now) = (Meta::of(page.clone()), self.now());
        (meta.ttl, meta.used_at) = (self.ttls.of_page(page.revalidate_seconds, now), Some(now.seconds()));
        meta.expired_at = match seen {
            Some(seen) => seen.last_hard_invalidation(),
            None => Some(self.first_after(page)),
        };
        meta
    }

    /// The latest time of a generation that an earlier page with the key of this new one may have. Processes compare it with
    /// a margin for the skew of clocks.
    fn first_after(&self, page: &Generation) -> i64 {
        page.generated_at.saturating_sub(seconds(self.skew())).saturating_sub(1)
    }

    async fn publish_unannounced(&self, publish: Publish<'_>) -> Result<Published> {
        let Publish { lease, page, seen, history, request, .. } = publish;
        let now = self.now();
        let mut publication = Publication {
            seen,
            ttl: self.ttls.of_page(page.revalidate_seconds, now),
            used_at: Some(now.seconds()),
            first_after: Some(self.first_after(page)),
            superseded_ttl: self.ttls.of_superseded(now),
            request,
            guards: self.guards,
            ..Publication::new(lease, page, now)
        };
        if let Some(extension) = publication.extension()
            && let Some(published) = self.extend(&publication, &extension).await?
        {
            return Ok(published);
        }
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

    /// Publishes an unchanged page by one update of `META`, and releases the lease. Returns `None` if the row is not as it was
    /// read: then the transaction decides, which verifies the lease.
    ///
    /// The update sets our mark and requires another one, so it can be repeated, and no attempt is applied once the row has
    /// changed.
    async fn extend(&self, publication: &Publication<'_>, extension: &Txn) -> Result<Option<Published>> {
        /// How often the update is sent if its outcome is unknown.
        const MAX_ATTEMPTS: u32 = 3;
        let lease = publication.lease;
        let mut in_doubt = false;
        for _ in 0..MAX_ATTEMPTS {
            match self.table.commit(extension).await.map_err(Error::from) {
                Ok(Commit::Refused { seen, .. }) if !is_marked(seen.as_ref(), lease) => {
                    // An earlier attempt may have been applied, and another worker may have published after it.
                    return Ok(in_doubt.then_some(Published::Superseded));
                }
                // Applied, now or by an earlier attempt.
                Ok(_) => {
                    self.release_if_possible(lease).await;
                    return Ok(Some(Published::Done));
                }
                Err(error) if error.kind() == Kind::Unknown => in_doubt = true,
                Err(error) if !in_doubt => return Err(error),
                // This attempt was not applied; an earlier one may have been, or may still be.
                Err(_) => break,
            }
        }
        self.release_if_possible(lease).await;
        let unknown = || Error::new(Kind::Unknown, UNKNOWN);
        match self.lookup(lease.page()).await.map_err(|error| unknown().caused_by(error))?.meta {
            Some(meta) if meta.mark.as_deref() == Some(lease.token()) => Ok(Some(Published::Done)),
            // An attempt may still arrive.
            meta if meta.as_ref() == publication.seen => Err(unknown()),
            _ => Ok(Some(Published::Superseded)),
        }
    }

    /// Releases the lease of a page that was published. If that fails, it expires by itself.
    async fn release_if_possible(&self, lease: &Lease) {
        if let Err(error) = self.release(lease).await {
            let page = lease.page().redacted();
            tabletheory::warn_limited!(%error, %page, "a lease could not be released; it expires by itself");
        }
    }

    /// Finds out what became of a publish whose response was lost or did not decide; `None` if it was not published.
    ///
    /// "Not published" may be reported only once the token can no longer win, so the lease is released first: if that delete
    /// finds our lock, the publish has not happened, and never will. If that cannot be found out, the outcome is unknown,
    /// whatever the error was.
    async fn resolve_publish(&self, publication: &Publication<'_>) -> Result<Option<Published>> {
        let Publication { lease, page, seen, .. } = *publication;
        let unknown = |error: Error| Error::new(Kind::Unknown, UNKNOWN).caused_by(error);
        match self.persist(&lease.release()).await.map_err(unknown)? {
            Commit::Done => Ok(None),
            Commit::Refused { .. } => {
                let meta = self.lookup(lease.page()).await.map_err(unknown)?.meta;
                Ok(Some(Published::resolve(lease, page, seen, meta.as_ref())))
            }
        }
    }
}

/// Whether a row of `META` was published under this lease.
fn is_marked(row: Option<&Item>, lease: &Lease) -> bool {
    row.and_then(|row| row.get(name::MARK.name())).and_then(Value::as_str) == Some(lease.token())
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
