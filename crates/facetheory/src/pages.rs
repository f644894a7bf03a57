//! Regeneration from beginning to end: one worker renders, everyone is served.

use std::error::Error as StdError;
use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use tabletheory::{Random, SystemRandom};

use crate::body::{self, Bodies, Body};
use crate::error::{Error, Kind, Result};
use crate::freshness::Freshness;
use crate::generation::{Content, Generation};
use crate::key::PageKey;
use crate::lease::{Acquire, Lease};
use crate::row::Meta;
use crate::store::{Keep, PageStore, Published, Refresh};

/// A lease is refreshed so many times in its duration, while its holder renders.
const HEARTBEATS_A_LEASE: u32 = 3;

/// Pages with their bodies: what a program uses to have pages rendered once and served to everyone.
///
/// ```
/// use facetheory::{Bodies, Outcome, PageKey, Pages, PageStore, Policy, Rendered};
/// use std::sync::Arc;
/// use std::time::Duration;
/// use tabletheory::MemoryTable;
///
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> facetheory::Result<()> {
/// let pages = Pages::new(PageStore::new(Arc::new(MemoryTable::new())), Bodies::memory());
/// let page = PageKey::new("/about")?;
/// let policy = Policy::every(Duration::from_secs(60));
/// let outcome = pages.regenerate(&page, &policy, || async { Ok(Rendered::html("<h1>About</h1>")) }).await?;
/// assert!(matches!(outcome, Outcome::Published(_)));
///
/// let (_, body) = pages.read(&page).await?.expect("it was just published");
/// assert_eq!(body.bytes, "<h1>About</h1>");
/// # Ok(()) }
/// ```
#[derive(Clone, Debug)]
pub struct Pages {
    store: PageStore,
    bodies: Bodies,
    random: Arc<dyn Random>,
}

/// How a page is renewed.
///
/// ```
/// use facetheory::{Keep, Policy};
/// use std::time::Duration;
///
/// let policy = Policy::every(Duration::from_secs(60)).keeping(Keep::Versions);
/// assert_eq!(policy.revalidate, Duration::from_secs(60));
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Policy {
    /// For how long a render is fresh.
    pub revalidate: Duration,
    /// Which generations are kept.
    pub keep: Keep,
}

impl Policy {
    /// Fresh for this long after a render; only the latest is kept.
    ///
    /// ```
    /// use std::time::Duration;
    ///
    /// assert_eq!(facetheory::Policy::every(Duration::from_secs(5)).revalidate.as_secs(), 5);
    /// ```
    #[must_use]
    pub fn every(revalidate: Duration) -> Self {
        Policy { revalidate, keep: Keep::Latest }
    }

    /// The same, keeping these generations.
    ///
    /// ```
    /// use facetheory::{Keep, Policy};
    /// use std::time::Duration;
    ///
    /// assert_eq!(Policy::every(Duration::ZERO).keeping(Keep::Versions).keep, Keep::Versions);
    /// ```
    #[must_use]
    pub fn keeping(mut self, keep: Keep) -> Self {
        self.keep = keep;
        self
    }
}

/// What a renderer gives back.
///
/// ```
/// assert_eq!(facetheory::Rendered::html("x").content.status, Some(200));
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Rendered {
    /// The body.
    pub bytes: Bytes,
    /// What is told of it; the digest is filled in.
    pub content: Content,
    /// The entity tag; one is made of the digest where there is none.
    pub etag: Option<String>,
}

impl Rendered {
    /// A page of HTML.
    ///
    /// ```
    /// assert_eq!(facetheory::Rendered::html("<p>").bytes, "<p>");
    /// ```
    pub fn html(bytes: impl Into<Bytes>) -> Self {
        let content = Content {
            status: Some(200),
            content_type: Some("text/html; charset=utf-8".into()),
            ..Content::default()
        };
        Rendered { bytes: bytes.into(), content, etag: None }
    }
}

/// How a regeneration ended.
///
/// ```
/// assert_ne!(facetheory::Outcome::Lost, facetheory::Outcome::Superseded);
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
#[must_use]
pub enum Outcome {
    /// This render is what everyone is served now.
    Published(Generation),
    /// The body came out the same: only its times have moved.
    Unchanged(Meta),
    /// Somebody else was quicker.
    AlreadyFresh(Meta),
    /// Somebody else renders it.
    HeldBy {
        /// Until when at most, in epoch seconds, unless it is prolonged.
        until: i64,
    },
    /// The lease was lost during the render, so nothing was published.
    Lost,
    /// The answer was lost, and somebody else has published since.
    Superseded,
}

/// What a render may fail with.
pub type RenderError = Box<dyn StdError + Send + Sync>;

impl Pages {
    /// The pages of this store, with their bodies there.
    ///
    /// ```
    /// use facetheory::{Bodies, Pages, PageStore};
    /// use std::sync::Arc;
    ///
    /// let pages = Pages::new(PageStore::new(Arc::new(tabletheory::MemoryTable::new())), Bodies::memory());
    /// ```
    #[must_use]
    pub fn new(store: PageStore, bodies: Bodies) -> Self {
        Pages { store, bodies, random: Arc::new(SystemRandom) }
    }

    /// The same with this source of names for bodies, for tests and simulations.
    ///
    /// ```
    /// # use facetheory::{Bodies, Pages, PageStore};
    /// # use std::sync::Arc;
    /// use tabletheory::{MemoryTable, SeededRandom};
    ///
    /// let pages = Pages::new(PageStore::new(Arc::new(MemoryTable::new())), Bodies::memory())
    ///     .with_random(Arc::new(SeededRandom::new(1)));
    /// ```
    #[must_use]
    pub fn with_random(mut self, random: Arc<dyn Random>) -> Self {
        self.random = random;
        self
    }

    /// The rows.
    ///
    /// ```
    /// # use facetheory::{Bodies, Pages, PageStore};
    /// # use std::sync::Arc;
    /// let pages = Pages::new(PageStore::new(Arc::new(tabletheory::MemoryTable::new())), Bodies::memory());
    /// assert!(pages.store().now().seconds() > 1_700_000_000);
    /// ```
    #[must_use]
    pub fn store(&self) -> &PageStore {
        &self.store
    }

    /// The page as it is, stale or not, with its body; none where there is none that may be served.
    ///
    /// A body that is missing or damaged although a row names it makes the page a missing one.
    ///
    /// ```
    /// # use facetheory::{Bodies, PageKey, Pages, PageStore};
    /// # use std::sync::Arc;
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> facetheory::Result<()> {
    /// let pages = Pages::new(PageStore::new(Arc::new(tabletheory::MemoryTable::new())), Bodies::memory());
    /// assert!(pages.read(&PageKey::new("/")?).await?.is_none());
    /// # Ok(()) }
    /// ```
    pub async fn read(&self, page: &PageKey) -> Result<Option<(Meta, Body)>> {
        let Some(meta) = self.store.look(page).await?.meta else { return Ok(None) };
        if meta.freshness(self.store.now()) == Freshness::Forbidden {
            return Ok(None);
        }
        let generation = &meta.generation;
        let body = self.bodies.get(&generation.s3_key, generation.content.digest.as_deref()).await?;
        Ok(body.map(|body| (meta, body)))
    }

    /// Renders a page anew if it is not fresh and nobody else does, and publishes it.
    ///
    /// While it renders, the lease is refreshed; if it is lost all the same, the render is cancelled.
    ///
    /// ```
    /// # use facetheory::{Bodies, Outcome, PageKey, Pages, PageStore, Policy, Rendered};
    /// # use std::{sync::Arc, time::Duration};
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> facetheory::Result<()> {
    /// # let pages = Pages::new(PageStore::new(Arc::new(tabletheory::MemoryTable::new())), Bodies::memory());
    /// # let page = PageKey::new("/")?;
    /// let policy = Policy::every(Duration::from_secs(60));
    /// let failed = pages.regenerate(&page, &policy, || async { Err("the origin is down".into()) }).await;
    /// assert_eq!(failed.unwrap_err().kind(), facetheory::Kind::Render);
    /// # Ok(()) }
    /// ```
    pub async fn regenerate<R>(
        &self,
        page: &PageKey,
        policy: &Policy,
        render: impl FnOnce() -> R,
    ) -> Result<Outcome>
    where
        R: Future<Output = Result<Rendered, RenderError>>,
    {
        self.renew(page, policy, None, render).await
    }

    /// Renders a page anew although it may be fresh, because the body that it names is missing or damaged.
    ///
    /// Where `META` names another body by now, somebody else has done so.
    ///
    /// ```
    /// # use facetheory::{Bodies, Outcome, PageKey, Pages, PageStore, Policy, Rendered};
    /// # use std::{sync::Arc, time::Duration};
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> facetheory::Result<()> {
    /// # let bodies = Bodies::memory();
    /// # let pages = Pages::new(PageStore::new(Arc::new(tabletheory::MemoryTable::new())), bodies.clone());
    /// # let page = PageKey::new("/")?;
    /// let policy = Policy::every(Duration::from_secs(60));
    /// let outcome = pages.regenerate(&page, &policy, || async { Ok(Rendered::html("a")) }).await?;
    /// let Outcome::Published(generation) = outcome else { panic!() };
    /// bodies.delete(&generation.s3_key).await?;
    /// let healed = pages.heal(&page, &policy, &generation.s3_key, || async { Ok(Rendered::html("a")) }).await?;
    /// assert!(matches!(healed, Outcome::Published(_)));
    /// # Ok(()) }
    /// ```
    pub async fn heal<R>(
        &self,
        page: &PageKey,
        policy: &Policy,
        broken_s3_key: &str,
        render: impl FnOnce() -> R,
    ) -> Result<Outcome>
    where
        R: Future<Output = Result<Rendered, RenderError>>,
    {
        self.renew(page, policy, Some(broken_s3_key), render).await
    }

    async fn renew<R>(
        &self,
        page: &PageKey,
        policy: &Policy,
        broken_s3_key: Option<&str>,
        render: impl FnOnce() -> R,
    ) -> Result<Outcome>
    where
        R: Future<Output = Result<Rendered, RenderError>>,
    {
        let is_whole = |meta: &Meta| Some(meta.generation.s3_key.as_str()) != broken_s3_key;
        let lease = match self.store.try_acquire(page).await? {
            Acquire::Granted(lease) => lease,
            Acquire::Held { until } => return Ok(Outcome::HeldBy { until }),
        };
        // Somebody may have published between the caller's look and the lease.
        let seen = match self.store.look(page).await {
            Ok(view) => view.meta,
            Err(error) => return self.give_up(&lease, error).await,
        };
        if let Some(meta) = &seen
            && meta.freshness(self.store.now()) == Freshness::Fresh
            && is_whole(meta)
        {
            self.store.release(&lease).await?;
            return Ok(Outcome::AlreadyFresh(meta.clone()));
        }
        let started = self.store.now();
        let rendered = tokio::select! {
            rendered = render() => rendered,
            () = self.keep_alive(&lease) => return Ok(Outcome::Lost),
        };
        let mut rendered = match rendered {
            Ok(rendered) => rendered,
            Err(cause) => {
                let context = format!("the render of {} failed", page.cache_key());
                return self.give_up(&lease, Error::new(Kind::Render, context).caused_by(cause)).await;
            }
        };
        let digest = body::digest(&rendered.bytes);
        rendered.content.digest = Some(digest.clone());
        // A row keeps tags as a set, so their order must not make two renders differ.
        rendered.content.tags.sort_unstable();
        rendered.content.tags.dedup();
        let mut generation = Generation::new(
            "",
            started.seconds(),
            i64::try_from(policy.revalidate.as_secs()).unwrap_or(i64::MAX),
        );
        generation.etag = rendered.etag.or_else(|| Some(format!("\"{}\"", &digest["sha256:".len()..][..32])));
        generation.content = rendered.content;
        let current = seen.as_ref().filter(|seen| seen.is_the_same_as(&generation) && is_whole(seen));
        generation.s3_key = match current {
            Some(current) => current.generation.s3_key.clone(),
            None => {
                let stored =
                    self.bodies.put(page, started, rendered.bytes, &generation.content, &*self.random);
                match stored.await {
                    Ok(stored) => stored.s3_key,
                    Err(error) => return self.give_up(&lease, error).await,
                }
            }
        };
        let unchanged = current.is_some();
        match self.store.commit_generation(&lease, &generation, seen.as_ref(), policy.keep).await? {
            Published::Lost => Ok(Outcome::Lost),
            Published::Superseded => Ok(Outcome::Superseded),
            Published::Done if unchanged => Ok(Outcome::Unchanged(Meta::of(generation))),
            Published::Done => Ok(Outcome::Published(generation)),
        }
    }

    /// Refreshes a lease until it is lost; only then does it return.
    async fn keep_alive(&self, lease: &Lease) {
        let mut lease = lease.clone();
        loop {
            tokio::time::sleep(self.store.lease_duration() / HEARTBEATS_A_LEASE).await;
            match self.store.refresh(&lease).await {
                Ok(Refresh::Extended(longer)) => lease = longer,
                Ok(Refresh::Lost) => return,
                // As long as it has not expired, the next heartbeat may come through.
                Err(error) if self.store.now().seconds() < lease.expires_at() => {
                    tracing::warn!(%error, page = lease.page().cache_key(), "a lease could not be refreshed");
                }
                Err(_) => return,
            }
        }
    }

    /// Gives the lease back so that others need not wait, and reports what went wrong before that.
    async fn give_up(&self, lease: &Lease, error: Error) -> Result<Outcome> {
        if let Err(second) = self.store.release(lease).await {
            tracing::warn!(error = %second, page = lease.page().cache_key(), "a lease could not be given back");
        }
        Err(error)
    }
}
