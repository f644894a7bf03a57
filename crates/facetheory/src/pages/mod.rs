//! Regeneration from beginning to end: one worker renders, everyone is served.

pub(crate) mod diff;
mod outcome;
pub(crate) mod policy;
pub(crate) mod reason;
pub(crate) mod render;

use std::borrow::Cow;
use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use tabletheory::{Random, SystemRandom, Timestamp};
use tracing::Instrument as _;

use crate::bodies::{self, Bodies, Body};
use crate::error::{Error, Kind, Result};
use crate::pages::policy::Policy;
use crate::pages::reason::RegenerateReason;
use crate::pages::render::{Render, RenderContext, RenderError, Rendered};
use crate::protocol::freshness::Freshness;
use crate::protocol::generation::Generation;
use crate::protocol::key::PageKey;
use crate::protocol::lease::Refresh;
use crate::protocol::lease::{Acquire, Lease, LeaseTerms};
use crate::protocol::publish::Published;
use crate::protocol::request::{Begin, Claim, IdempotentRequest};
use crate::protocol::row::Meta;
use crate::protocol::ttl::seconds;
use crate::store::PageStore;
pub use outcome::Outcome;

/// A lease is refreshed so many times in its duration, while its holder renders.
const HEARTBEATS_A_LEASE: u32 = 3;
/// How long reading or storing a body may take: whoever waits for a page would go away.
const BODY_TIMEOUT: Duration = Duration::from_secs(10);

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
/// let outcome = pages.regenerate(&page, &policy, |_| async { Ok(Rendered::html("<h1>About</h1>")) }).await?;
/// assert!(matches!(outcome, Outcome::Published(_)));
///
/// let (_, body) = pages.read(&page).await?.expect("it was just published");
/// assert_eq!(body.bytes, "<h1>About</h1>");
/// # Ok(()) }
/// ```
#[derive(Clone, Debug)]
pub struct Pages {
    pub(crate) store: PageStore,
    pub(crate) bodies: Bodies,
    pub(crate) random: Arc<dyn Random>,
    body_timeout: Duration,
}

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
        Pages { store, bodies, random: Arc::new(SystemRandom), body_timeout: BODY_TIMEOUT }
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

    /// The same where reading or storing a body may take this long, before its store counts as unreachable; ten seconds
    /// by default.
    ///
    /// ```
    /// # use facetheory::{Bodies, Pages, PageStore};
    /// # use std::sync::Arc;
    /// use std::time::Duration;
    ///
    /// let pages = Pages::new(PageStore::new(Arc::new(tabletheory::MemoryTable::new())), Bodies::memory())
    ///     .with_body_timeout(Duration::from_secs(2));
    /// ```
    #[must_use]
    pub fn with_body_timeout(mut self, timeout: Duration) -> Self {
        self.body_timeout = timeout;
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

    /// The bodies.
    ///
    /// ```
    /// # use facetheory::{Bodies, Pages, PageStore};
    /// # use std::sync::Arc;
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> facetheory::Result<()> {
    /// let pages = Pages::new(PageStore::new(Arc::new(tabletheory::MemoryTable::new())), Bodies::memory());
    /// assert!(pages.bodies().get("isr/none.html", None).await?.is_none());
    /// # Ok(()) }
    /// ```
    #[must_use]
    pub fn bodies(&self) -> &Bodies {
        &self.bodies
    }

    /// The page as it is, stale or not, with its body; none where there is none that may be served.
    ///
    /// A body that is missing or damaged although a row names it makes the page a missing one. The status, content
    /// type and security policy that a row does not tell are filled in from the object's metadata.
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
        let Some(mut meta) = self.store.lookup(page).await?.meta else { return Ok(None) };
        if meta.freshness(self.store.now()) == Freshness::MustNotServe {
            return Ok(None);
        }
        let body = self.body(&meta).await?;
        Ok(body.map(|body| {
            body.complete(&mut meta.generation.content);
            (meta, body)
        }))
    }

    /// The body that `META` names; none if it is missing or damaged.
    pub(crate) async fn body(&self, meta: &Meta) -> Result<Option<Body>> {
        let page = &meta.generation;
        self.in_time(self.bodies.get(&page.s3_key, page.content.digest.as_deref())).await
    }

    /// A store of bodies that accepts a request and never answers must not hold anyone up for ever.
    async fn in_time<T>(&self, work: impl Future<Output = Result<T>>) -> Result<T> {
        let limit = self.body_timeout;
        tokio::time::timeout(limit, work).await.unwrap_or_else(|_| {
            Err(Error::new(Kind::Unavailable, format!("the bodies did not answer within {limit:?}")))
        })
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
    /// let failed = pages.regenerate(&page, &policy, |_| async {
    ///     Err::<Rendered, _>("the origin is down".into())
    /// }).await;
    /// assert_eq!(failed.unwrap_err().kind(), facetheory::Kind::Render);
    /// # Ok(()) }
    /// ```
    pub async fn regenerate<T, R>(
        &self,
        page: &PageKey,
        policy: &Policy,
        render: impl FnOnce(RenderContext) -> R,
    ) -> Result<Outcome>
    where
        T: Into<Render>,
        R: Future<Output = Result<T, RenderError>>,
    {
        self.regenerate_for(page, policy, &RegenerateReason::Stale, render).await
    }

    /// Renders a page anew for this reason, if nobody else does, and publishes it.
    ///
    /// ```
    /// # use facetheory::{Bodies, Outcome, PageKey, Pages, PageStore, Policy, RegenerateReason, Rendered};
    /// # use std::{sync::Arc, time::Duration};
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> facetheory::Result<()> {
    /// # let bodies = Bodies::memory();
    /// # let pages = Pages::new(PageStore::new(Arc::new(tabletheory::MemoryTable::new())), bodies.clone());
    /// # let page = PageKey::new("/")?;
    /// let policy = Policy::every(Duration::from_secs(60));
    /// let outcome = pages.regenerate(&page, &policy, |_| async { Ok(Rendered::html("a")) }).await?;
    /// let Outcome::Published(generation) = outcome else { panic!() };
    /// bodies.delete(&generation.s3_key).await?;
    /// let lost = RegenerateReason::BodyMissing(generation.s3_key);
    /// let healed = pages.regenerate_for(&page, &policy, &lost, |_| async { Ok(Rendered::html("a")) }).await?;
    /// assert!(matches!(healed, Outcome::Published(_)));
    /// # Ok(()) }
    /// ```
    pub async fn regenerate_for<T, R>(
        &self,
        page: &PageKey,
        policy: &Policy,
        reason: &RegenerateReason,
        render: impl FnOnce(RenderContext) -> R,
    ) -> Result<Outcome>
    where
        T: Into<Render>,
        R: Future<Output = Result<T, RenderError>>,
    {
        let pages = self.leasing_by(policy);
        match pages.store.try_acquire(page).await? {
            Acquire::Granted(lease) => pages.renew(Hold { lease, claim: None }, policy, reason, render).await,
            Acquire::Held { until } => Ok(Outcome::Held { until }),
        }
    }

    /// Renders a page anew for a request that may be delivered several times: it is done once.
    ///
    /// The hash tells what was asked for: the same key with another one is [`Outcome::OtherRequest`].
    ///
    /// ```
    /// # use facetheory::{Bodies, IdempotentRequest, Outcome, PageKey, Pages, PageStore, Policy, Rendered};
    /// # use std::{sync::Arc, time::Duration};
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> facetheory::Result<()> {
    /// # let pages = Pages::new(PageStore::new(Arc::new(tabletheory::MemoryTable::new())), Bodies::memory());
    /// # let page = PageKey::new("/")?;
    /// let policy = Policy::every(Duration::ZERO);
    /// for first in [true, false] {
    ///     let render = |_| async { Ok(Rendered::html("paid")) };
    ///     let outcome = pages.regenerate_once(&page, &policy, &IdempotentRequest::new("order-7", "sha256:1"), render).await?;
    ///     assert_eq!(matches!(outcome, Outcome::Published(_)), first);
    ///     assert_eq!(matches!(outcome, Outcome::Replayed { .. }), !first);
    /// }
    /// # Ok(()) }
    /// ```
    pub async fn regenerate_once<T, R>(
        &self,
        page: &PageKey,
        policy: &Policy,
        request: &IdempotentRequest,
        render: impl FnOnce(RenderContext) -> R,
    ) -> Result<Outcome>
    where
        T: Into<Render>,
        R: Future<Output = Result<T, RenderError>>,
    {
        let pages = self.leasing_by(policy);
        let (lease, claim) = match pages.store.begin_request(page, &request.key, &request.hash).await? {
            Begin::Started { lease, claim } => (lease, claim),
            Begin::Fresh => {
                // It was fresh a moment ago; where it is gone by now, that was its end.
                let meta = self.store.lookup(page).await?.meta;
                return Ok(meta.map_or(Outcome::Superseded, Outcome::AlreadyFresh));
            }
            Begin::Replayed { s3_key } => return Ok(Outcome::Replayed { s3_key }),
            Begin::InProgress { until } => return Ok(Outcome::InProgress { until }),
            Begin::Held { until } => return Ok(Outcome::Held { until }),
            Begin::OtherRequest => return Ok(Outcome::OtherRequest),
        };
        pages.renew(Hold { lease, claim: Some(claim) }, policy, &RegenerateReason::Stale, render).await
    }

    /// The same, with leases as long as the policy says.
    fn leasing_by(&self, policy: &Policy) -> Cow<'_, Pages> {
        let Some(duration) = policy.lease else { return Cow::Borrowed(self) };
        let terms = LeaseTerms { duration, ..self.store.terms().clone() };
        Cow::Owned(Pages { store: self.store.clone().with_lease_terms(terms), ..self.clone() })
    }

    /// Renders and publishes under a lease that was just taken.
    async fn renew<T, R>(
        &self,
        hold: Hold,
        policy: &Policy,
        reason: &RegenerateReason,
        render: impl FnOnce(RenderContext) -> R,
    ) -> Result<Outcome>
    where
        T: Into<Render>,
        R: Future<Output = Result<T, RenderError>>,
    {
        let page = hold.lease.page();
        // Somebody may have published between the caller's look and the lease.
        let seen = match self.look_again(page, reason).await {
            Ok(Seen::Fresh(meta)) => {
                self.give_up(&hold).await;
                return Ok(Outcome::AlreadyFresh(meta));
            }
            Ok(Seen::Stale(meta)) => meta,
            Err(error) => {
                self.give_up(&hold).await;
                return Err(error);
            }
        };
        let started = self.store.now();
        let whole = seen.clone().filter(|meta| !reason.is_body_missing(meta));
        let context = RenderContext { page: page.clone(), served: whole.clone(), started };
        let rendering = async {
            let rendered = render(context).await.map_err(|cause| {
                let context = format!("the render of {} failed", page.redacted());
                Error::new(Kind::Render, context).caused_by(cause)
            })?;
            match rendered.into() {
                Render::Declined | Render::Uncacheable => Ok(Made::Nothing),
                Render::Invalidate => Ok(Made::Withdrawal),
                Render::Page(rendered) => {
                    let stored = self.store_body(page, policy, *rendered, whole.as_ref(), started).await?;
                    Ok(Made::Page(Box::new(stored)))
                }
            }
        };
        let done = tokio::select! {
            // In this order, and not in a random one: a simulation repeats exactly, and a render that is done is done.
            biased;
            done = rendering => done,
            () = self.keep_alive(&hold.lease) => {
                self.give_up(&hold).await;
                return Ok(Outcome::Lost);
            }
        };
        let (generation, unchanged) = match done {
            Ok(Made::Page(stored)) => *stored,
            Ok(Made::Nothing) => {
                self.give_up(&hold).await;
                return Ok(Outcome::Declined);
            }
            Ok(Made::Withdrawal) => {
                let withdrawn = self.withdraw(&hold.lease, seen.as_ref()).await;
                self.give_up(&hold).await;
                return Ok(if withdrawn { Outcome::Invalidated } else { Outcome::Declined });
            }
            Err(error) => {
                self.give_up(&hold).await;
                return Err(error);
            }
        };
        let (store, seen_before) = (&self.store, seen.as_ref());
        let publish = async {
            match &hold.claim {
                None => store.commit_generation(&hold.lease, &generation, seen_before, policy.history).await,
                Some(claim) => {
                    store.commit_request(&hold.lease, claim, &generation, seen_before, policy.history).await
                }
            }
        };
        let published = publish.instrument(tracing::debug_span!("publish", page = %page.redacted())).await;
        let unpublished = match published {
            Ok(Published::Done) if unchanged => {
                let mut meta = Meta::of(generation);
                (meta.current_sk, meta.version) =
                    seen.map(|seen| (seen.current_sk, seen.version)).unwrap_or_default();
                return Ok(Outcome::Unchanged(meta));
            }
            Ok(Published::Done) => return Ok(Outcome::Published(generation)),
            // It may be published yet, so nothing is given up.
            Err(error) if error.kind() == Kind::Unknown => return Err(error),
            Ok(Published::Lost) => Ok(Outcome::Lost),
            Ok(Published::Superseded) => Ok(Outcome::Superseded),
            Err(error) => Err(error),
        };
        self.give_up(&hold).await;
        unpublished
    }

    /// `META` as it is once the lease is held, and whether there is anything left to do.
    async fn look_again(&self, page: &PageKey, reason: &RegenerateReason) -> Result<Seen> {
        let Some(meta) = self.store.lookup(page).await?.meta else { return Ok(Seen::Stale(None)) };
        let settled = !reason.still_applies(&meta, self.store.now());
        if settled && self.store.freshness(page, &meta).await? == Freshness::Fresh {
            return Ok(Seen::Fresh(meta));
        }
        Ok(Seen::Stale(Some(meta)))
    }

    /// Stores what was rendered, unless it is the body that is served already, and says which of the two it was.
    async fn store_body(
        &self,
        page: &PageKey,
        policy: &Policy,
        mut rendered: Rendered,
        served: Option<&Meta>,
        started: Timestamp,
    ) -> Result<(Generation, bool)> {
        let revalidate = seconds(rendered.revalidate.unwrap_or(policy.revalidate));
        let generated_at = rendered.as_of.unwrap_or(started).min(started);
        let mut generation = Generation::new("", generated_at.seconds(), revalidate);
        // A row keeps tags as a set, so their order must not make two renders differ.
        rendered.content.tags.sort_unstable();
        rendered.content.tags.dedup();
        generation.content = rendered.content;
        let Some(bytes) = rendered.bytes else {
            let served = served.ok_or_else(|| {
                let context =
                    format!("{} was rendered as unchanged, and there is no page yet", page.redacted());
                Error::new(Kind::Render, context)
            })?;
            generation.s3_key = served.generation.s3_key.clone();
            generation.etag = rendered.etag;
            generation.content.digest = served.generation.content.digest.clone();
            return Ok((generation, true));
        };
        let digest = bodies::digest(&bytes);
        generation.etag = rendered.etag.or_else(|| Some(format!("\"{}\"", &digest["sha256:".len()..][..32])));
        generation.content.digest = Some(digest);
        if let Some(served) = served.filter(|served| served.has_the_body_of(&generation)) {
            generation.s3_key = served.generation.s3_key.clone();
            return Ok((generation, true));
        }
        let storing = self.bodies.put(page, started, bytes, &generation.content, &*self.random);
        let stored = self.in_time(storing).await?;
        generation.s3_key = stored.s3_key;
        Ok((generation, false))
    }

    /// Makes what was served unusable, and says whether that is certain. Where it is not, the next render may say so again.
    async fn withdraw(&self, lease: &Lease, seen: Option<&Meta>) -> bool {
        let Some(seen) = seen else { return false };
        self.store.invalidate_under_lease(lease, seen).await.unwrap_or_else(|error| {
            let page = lease.page().redacted();
            tracing::warn!(%error, %page, "a page that was withdrawn is served for now");
            false
        })
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
                    tracing::warn!(%error, page = %lease.page().redacted(), "a lease could not be refreshed");
                }
                Err(_) => return,
            }
        }
    }

    /// Gives the lease back so that others need not wait, and the request so that it can be tried again.
    async fn give_up(&self, hold: &Hold) {
        let given_up = match &hold.claim {
            None => self.store.release(&hold.lease).await,
            Some(claim) => self.store.fail_request(&hold.lease, claim).await,
        };
        if let Err(error) = given_up {
            let page = hold.lease.page().redacted();
            tracing::warn!(%error, %page, "a lease could not be given back; it ends by itself");
        }
    }
}

/// What a worker holds while it renders.
struct Hold {
    lease: Lease,
    /// The request that it works on, if it was asked for.
    claim: Option<Claim>,
}

/// What a render came to.
enum Made {
    /// A generation whose body is stored, and whether that is the one that is served already.
    Page(Box<(Generation, bool)>),
    Nothing,
    Withdrawal,
}

/// `META` as it is once a lease is held.
enum Seen {
    Fresh(Meta),
    Stale(Option<Meta>),
}
