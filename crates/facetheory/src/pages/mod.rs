//! Pages: rows and bodies together, and their regeneration under a lease.

mod body;
pub(crate) mod diff;
mod outcome;
pub(crate) mod policy;
pub(crate) mod reason;
mod regenerate;
pub(crate) mod render;
pub(crate) mod replaced;

use std::sync::Arc;
use std::time::Duration;

use tabletheory::{Random, SystemRandom};

pub use self::outcome::Outcome;
pub(crate) use self::regenerate::Regenerated;
use self::replaced::ReplacedBodies;
use crate::bodies::pointer::Pointers;
use crate::bodies::{Bodies, Body};
use crate::error::Result;
use crate::protocol::key::KeyScheme;
use crate::protocol::{Freshness, Meta, PageKey};
use crate::store::PageStore;

/// The default limit for reading or storing a body.
const BODY_TIMEOUT: Duration = Duration::from_secs(10);

/// Pages with their bodies: each page is rendered by one worker at a time, and served to everyone.
///
/// ```
/// use facetheory::{Bodies, Outcome, PageKey, PageStore, Pages, Policy, Rendered};
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
    /// The bodies that were replaced, if they are deleted early.
    pub(crate) replaced: Option<Arc<ReplacedBodies>>,
}

impl Pages {
    /// The pages of this store, with these bodies.
    ///
    /// ```
    /// use facetheory::{Bodies, PageStore, Pages};
    /// use std::sync::Arc;
    ///
    /// let pages = Pages::new(PageStore::new(Arc::new(tabletheory::MemoryTable::new())), Bodies::memory());
    /// ```
    #[must_use]
    pub fn new(store: PageStore, bodies: Bodies) -> Self {
        Pages { store, bodies, random: Arc::new(SystemRandom), body_timeout: BODY_TIMEOUT, replaced: None }
    }

    setters! {
        /// Sets the source of randomness for S3 keys, for tests and simulations.
        ///
        /// ```
        /// # use facetheory::{Bodies, PageStore, Pages};
        /// # use std::sync::Arc;
        /// use tabletheory::{MemoryTable, SeededRandom};
        ///
        /// let pages = Pages::new(PageStore::new(Arc::new(MemoryTable::new())), Bodies::memory())
        ///     .with_random(Arc::new(SeededRandom::new(1)));
        /// ```
        pub fn with_random(random: Arc<dyn Random>);

        /// Sets how long reading or storing a body may take; ten seconds by default.
        ///
        /// ```
        /// # use facetheory::{Bodies, PageStore, Pages};
        /// # use std::sync::Arc;
        /// use std::time::Duration;
        ///
        /// let pages = Pages::new(PageStore::new(Arc::new(tabletheory::MemoryTable::new())), Bodies::memory())
        ///     .with_body_timeout(Duration::from_secs(2));
        /// ```
        pub fn with_body_timeout(body_timeout: Duration);
    }

    /// Sets the key scheme of the pages: see [`PageStore::with_key_scheme`].
    ///
    /// ```
    /// # use facetheory::{Bodies, KeyScheme, PageStore, Pages};
    /// # use std::sync::Arc;
    /// let pages = Pages::new(PageStore::new(Arc::new(tabletheory::MemoryTable::new())), Bodies::memory())
    ///     .with_key_scheme(KeyScheme::raw("CACHE#")?);
    /// # Ok::<(), facetheory::Error>(())
    /// ```
    #[must_use]
    pub fn with_key_scheme(mut self, key_scheme: KeyScheme) -> Self {
        self.store = self.store.with_key_scheme(key_scheme);
        self
    }

    /// Sets the form in which rows name bodies: see [`Bodies::with_pointers`].
    ///
    /// ```
    /// # use facetheory::{Bodies, PageStore, Pages, Pointers};
    /// # use std::sync::Arc;
    /// let pages = Pages::new(PageStore::new(Arc::new(tabletheory::MemoryTable::new())), Bodies::memory())
    ///     .with_pointers(Pointers::Relative);
    /// ```
    #[must_use]
    pub fn with_pointers(mut self, pointers: Pointers) -> Self {
        self.bodies = self.bodies.with_pointers(pointers);
        self
    }

    /// The rows.
    ///
    /// ```
    /// # use facetheory::{Bodies, PageStore, Pages};
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
    /// # use facetheory::{Bodies, PageStore, Pages};
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

    /// Reads a page with its body, stale or not. Returns `None` if there is no page that may be served.
    ///
    /// A page whose body is missing or damaged counts as missing. If the row has no status, content type or security policy, they
    /// are taken from the metadata of the object.
    ///
    /// ```
    /// # use facetheory::{Bodies, PageKey, PageStore, Pages};
    /// # use std::sync::Arc;
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> facetheory::Result<()> {
    /// let pages = Pages::new(PageStore::new(Arc::new(tabletheory::MemoryTable::new())), Bodies::memory());
    /// assert!(pages.read(&PageKey::new("/")?).await?.is_none());
    /// # Ok(()) }
    /// ```
    pub async fn read(&self, page: &PageKey) -> Result<Option<(Meta, Body)>> {
        let Some(mut meta) = self.store.lookup(page).await?.meta else { return Ok(None) };
        if self.store.freshness(page, &meta).await? == Freshness::MustNotServe {
            return Ok(None);
        }
        let body = self.body(&meta).await?;
        Ok(body.map(|body| {
            body.complete(&mut meta.generation.content);
            (meta, body)
        }))
    }
}
