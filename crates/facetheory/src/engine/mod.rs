//! The engine: from memory, then from the table, then from the renderer, each page once for everyone.

mod cached_page;
mod circuit_breaker;
mod compression;
mod decision;
mod detached;
mod get_fresh;
mod get_result;
mod lookup;
mod memory;
mod metrics;
mod operations;
mod pending_invalidations;
mod regenerate;
mod render;
mod render_failures;
mod rendering;
mod serve;
mod single_flight;
pub(crate) mod state;

use std::fmt;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use tabletheory::{Random, SystemRandom, Timestamp};
use tokio::sync::Semaphore;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use tracing::Instrument as _;

pub use cached_page::CachedPage;
pub(crate) use compression::Coding;
pub(crate) use decision::{EntryView, ReusePolicy, ServeDecision};
pub(crate) use get_fresh::FreshPage;
pub use get_result::{BypassReason, GetResult, Served};
pub use metrics::{Incident, Phase};
pub(crate) use rendering::{Rendering, boxed};
pub use state::State;

use self::circuit_breaker::CircuitBreaker;
use self::lookup::Look;
use self::memory::{Entry, Memory};
use self::metrics::{Observer, OnIncident};
use self::render::RegenerateResult;
use self::render_failures::RenderFailures;
use self::single_flight::SingleFlight;
use crate::bodies::Bodies;
use crate::error::Result;
use crate::pages::Pages;
use crate::protocol::key::PageKey;
use crate::store::PageStore;

/// Incremental static regeneration: pages rendered once, served to everyone, renewed by one worker.
///
/// A clone is the same engine.
///
/// ```
/// use facetheory::{GetResult, Bodies, Isr, PageKey, Pages, PageStore, Policy, Rendered, State};
/// use std::sync::Arc;
/// use std::time::Duration;
///
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> facetheory::Result<()> {
/// let table = Arc::new(tabletheory::MemoryTable::new());
/// let isr = Isr::new(Pages::new(PageStore::new(table), Bodies::memory()));
/// let (page, policy) = (PageKey::new("/about")?, Policy::every(Duration::from_secs(60)));
/// for state in [State::Miss, State::Hit] {
///     let answer = isr.get(&page, &policy, |_| async { Ok(Rendered::html("<h1>About</h1>")) }).await?;
///     let GetResult::Page(served) = answer else { panic!("it can be rendered") };
///     assert_eq!(served.state, state);
///     assert_eq!(served.page.bytes(), "<h1>About</h1>");
/// }
/// # Ok(()) }
/// ```
#[derive(Clone, Debug)]
pub struct Isr {
    engine: Arc<Engine>,
}

/// What is shared by all clones, and by all that goes on in the background.
#[derive(Debug)]
struct Engine {
    pages: Pages,
    settings: Settings,
    memory: Memory,
    outage: CircuitBreaker,
    /// Of the bodies, or of whatever else keeps a render from being published.
    bodies_outage: CircuitBreaker,
    render_failures: RenderFailures,
    /// Looks at the table.
    looks: Arc<SingleFlight<Look>>,
    /// Renders, and the wait for those of other processes.
    renewals: Arc<SingleFlight<RegenerateResult>>,
    observer: Observer,
    random: Arc<dyn Random>,
    /// How many renders go on in the background, and how many more may wait for their turn.
    rendering: Arc<Semaphore>,
    queue: Arc<Semaphore>,
    /// How many pages are compressed at once, and how many may wait for that.
    compressions: Arc<Semaphore>,
    compression_queue: Arc<Semaphore>,
    /// Places of those whose work goes on after they have left.
    outliving: Arc<Semaphore>,
    /// Whether the table is being told of what it could not be told of before.
    paying: AtomicBool,
    tasks: TaskTracker,
    /// Ends what goes on in the background, when time has run out.
    abandon: CancellationToken,
    /// Ends also what has not ended by itself then, because a store does not answer.
    ended: CancellationToken,
}

#[derive(Clone, Debug)]
struct Settings {
    believed: Duration,
    table_timeout: Duration,
    deployment: Option<String>,
}

/// Makes an [`Isr`] that is not the default one.
///
/// ```
/// use facetheory::{Bodies, Isr, Pages, PageStore};
/// use std::sync::Arc;
/// use std::time::Duration;
///
/// # #[tokio::main(flavor = "current_thread")] async fn main() {
/// let pages = Pages::new(PageStore::new(Arc::new(tabletheory::MemoryTable::new())), Bodies::memory());
/// let isr = Isr::builder(pages)
///     .memory(64 * 1024 * 1024)
///     .metadata_max_age(Duration::ZERO)
///     .deployment("2026-11-15.1")
///     .build();
/// # }
/// ```
#[must_use]
pub struct IsrBuilder {
    pages: Pages,
    settings: Settings,
    memory: u64,
    rendering: usize,
    queue: usize,
    random: Arc<dyn Random>,
    on_incident: Option<OnIncident>,
}

impl fmt::Debug for IsrBuilder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("IsrBuilder").field("settings", &self.settings).finish_non_exhaustive()
    }
}

impl Isr {
    /// An engine over these pages, with the default settings.
    ///
    /// ```
    /// # use facetheory::{Bodies, Isr, Pages, PageStore};
    /// # use std::sync::Arc;
    /// let pages = Pages::new(PageStore::new(Arc::new(tabletheory::MemoryTable::new())), Bodies::memory());
    /// let isr = Isr::new(pages);
    /// ```
    #[must_use]
    pub fn new(pages: Pages) -> Self {
        Isr::builder(pages).build()
    }

    /// Makes an engine over the table and the bodies at these addresses, as on the command line.
    ///
    /// Which there are depends on the features of this crate: `sqlite`, `dynamodb` and `s3`.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> facetheory::Result<()> {
    /// let isr = facetheory::Isr::open("memory:", "memory:").await?.build();
    /// # Ok(()) }
    /// ```
    pub async fn open(table: &str, bodies: &str) -> Result<IsrBuilder> {
        let store = PageStore::new(tabletheory::open(table).await?);
        Ok(Isr::builder(Pages::new(store, Bodies::open(bodies).await?)))
    }

    /// Makes an engine with other settings.
    ///
    /// ```
    /// # use facetheory::{Bodies, Isr, Pages, PageStore};
    /// # use std::sync::Arc;
    /// # let pages = Pages::new(PageStore::new(Arc::new(tabletheory::MemoryTable::new())), Bodies::memory());
    /// let isr = Isr::builder(pages).memory(1024 * 1024 * 1024).build();
    /// ```
    pub fn builder(pages: Pages) -> IsrBuilder {
        const MEMORY: u64 = 128 * 1024 * 1024;
        const RENDERING: usize = 64;
        const QUEUE: usize = 1024;
        IsrBuilder {
            pages,
            settings: Settings {
                believed: Duration::from_secs(1),
                table_timeout: Duration::from_secs(2),
                deployment: None,
            },
            memory: MEMORY,
            rendering: RENDERING,
            queue: QUEUE,
            random: Arc::new(SystemRandom),
            on_incident: None,
        }
    }

    /// The pages, for what is not about serving.
    ///
    /// ```
    /// # use facetheory::{Bodies, Isr, Pages, PageStore};
    /// # use std::sync::Arc;
    /// # let pages = Pages::new(PageStore::new(Arc::new(tabletheory::MemoryTable::new())), Bodies::memory());
    /// assert!(Isr::new(pages).pages().store().now().seconds() > 1_700_000_000);
    /// ```
    #[must_use]
    pub fn pages(&self) -> &Pages {
        &self.engine.pages
    }

    /// Which deployment renders, if that is known.
    pub(crate) fn deployment(&self) -> Option<&str> {
        self.engine.settings.deployment.as_deref()
    }

    /// How many pages are in memory, and how many bytes they count for.
    ///
    /// ```
    /// # use facetheory::{Bodies, Isr, Pages, PageStore};
    /// # use std::sync::Arc;
    /// # let pages = Pages::new(PageStore::new(Arc::new(tabletheory::MemoryTable::new())), Bodies::memory());
    /// assert_eq!(Isr::new(pages).in_memory(), (0, 0));
    /// ```
    #[must_use]
    pub fn in_memory(&self) -> (usize, u64) {
        (self.engine.memory.len(), self.engine.memory.weight())
    }

    /// Starts nothing more in the background, and waits for what goes on there, at most for this long.
    ///
    /// What is not done by then is given up, and its leases are given back. False if something was given up.
    ///
    /// ```
    /// # use facetheory::{Bodies, Isr, Pages, PageStore};
    /// # use std::{sync::Arc, time::Duration};
    /// # #[tokio::main(flavor = "current_thread")] async fn main() {
    /// # let pages = Pages::new(PageStore::new(Arc::new(tabletheory::MemoryTable::new())), Bodies::memory());
    /// let isr = Isr::new(pages);
    /// assert!(isr.shut_down(Duration::from_secs(10)).await);
    /// # }
    /// ```
    pub async fn shut_down(&self, limit: Duration) -> bool {
        /// Time for leases to be given back.
        const GIVING_BACK: Duration = Duration::from_secs(2);
        let engine = &self.engine;
        engine.queue.close();
        // Nobody would see the forms of pages that wait for theirs.
        engine.compressions.close();
        engine.tasks.close();
        if tokio::time::timeout(limit, engine.tasks.wait()).await.is_ok() {
            return true;
        }
        engine.abandon.cancel();
        if tokio::time::timeout(GIVING_BACK, engine.tasks.wait()).await.is_err() {
            tracing::warn!("some leases could not be given back in time; they end by themselves");
            engine.ended.cancel();
            engine.tasks.wait().await;
        }
        false
    }
}

/// So many pages are compressed at once: visitors should not notice.
const COMPRESSIONS: usize = 1;
/// So many pages wait for that, or are being compressed.
const COMPRESSION_QUEUE: usize = 128;
/// The work of so many visitors goes on after they have left.
const OUTLIVING: usize = 256;

impl Engine {
    /// Keeps a page in memory.
    fn keep(self: &Arc<Self>, page: &PageKey, entry: Entry) -> Arc<Entry> {
        let entry = self.memory.keep(page, entry);
        self.observer.memory(self.memory.weight(), self.memory.len());
        self.compress(page, &entry);
        entry
    }

    fn now(&self) -> Timestamp {
        self.pages.store().now()
    }

    /// Lets this go on whoever waits for it, until it is done or the process has ended.
    fn spawn(&self, flight: Pin<Box<dyn Future<Output = ()> + Send>>) {
        let ended = self.ended.clone();
        let flight = flight.in_current_span();
        self.tasks.spawn(async move {
            tokio::select! {
                biased;
                () = flight => {}
                () = ended.cancelled() => {}
            }
        });
    }
}

impl IsrBuilder {
    /// At most so many bytes of pages in memory; 128 MiB by default.
    ///
    /// ```no_run
    /// # fn f(builder: facetheory::IsrBuilder) {
    /// builder.memory(1024 * 1024 * 1024);
    /// # }
    /// ```
    pub fn memory(mut self, bytes: u64) -> Self {
        self.memory = bytes;
        self
    }

    /// How long metadata and tag epochs are used after they were read, one second by default. Zero reads them for every
    /// request, so that an invalidation by another process takes effect at once.
    ///
    /// ```no_run
    /// # fn f(builder: facetheory::IsrBuilder) {
    /// builder.metadata_max_age(std::time::Duration::ZERO);
    /// # }
    /// ```
    pub fn metadata_max_age(mut self, max_age: Duration) -> Self {
        self.settings.believed = max_age;
        self.pages.store = self.pages.store.with_epoch_max_age(max_age);
        self
    }

    /// How long the table may take to answer before it counts as unreachable, two seconds by default.
    ///
    /// ```no_run
    /// # fn f(builder: facetheory::IsrBuilder) {
    /// builder.table_timeout(std::time::Duration::from_millis(500));
    /// # }
    /// ```
    pub fn table_timeout(mut self, timeout: Duration) -> Self {
        self.settings.table_timeout = timeout;
        self
    }

    /// Which deployment renders: pages of others are renewed, as the policy says.
    ///
    /// ```no_run
    /// # fn f(builder: facetheory::IsrBuilder) {
    /// builder.deployment("2026-11-15.1");
    /// # }
    /// ```
    pub fn deployment(mut self, id: impl Into<String>) -> Self {
        self.settings.deployment = Some(id.into());
        self
    }

    /// At most so many renders at once in the background, and so many more that wait for their turn.
    ///
    /// ```no_run
    /// # fn f(builder: facetheory::IsrBuilder) {
    /// builder.background(16, 100);
    /// # }
    /// ```
    pub fn background(mut self, rendering: usize, waiting: usize) -> Self {
        self.rendering = rendering.clamp(1, Semaphore::MAX_PERMITS);
        self.queue = waiting.min(Semaphore::MAX_PERMITS / 2);
        self
    }

    /// Calls this when something goes wrong, also where visitors do not notice.
    ///
    /// ```no_run
    /// # fn f(builder: facetheory::IsrBuilder) {
    /// builder.on_incident(|incident| eprintln!("{}", incident.error));
    /// # }
    /// ```
    pub fn on_incident(mut self, call: impl Fn(&Incident<'_>) + Send + Sync + 'static) -> Self {
        self.on_incident = Some(Arc::new(call));
        self
    }

    /// Takes chances from here, for tests and simulations.
    ///
    /// ```no_run
    /// # fn f(builder: facetheory::IsrBuilder) {
    /// builder.random(std::sync::Arc::new(tabletheory::SeededRandom::new(1)));
    /// # }
    /// ```
    pub fn random(mut self, random: Arc<dyn Random>) -> Self {
        self.random = random;
        self
    }

    /// The engine.
    ///
    /// ```no_run
    /// # fn f(builder: facetheory::IsrBuilder) {
    /// let isr: facetheory::Isr = builder.build();
    /// # }
    /// ```
    #[must_use]
    pub fn build(self) -> Isr {
        let engine = Engine {
            pages: self.pages,
            settings: self.settings,
            memory: Memory::new(self.memory, &*self.random),
            outage: CircuitBreaker::default(),
            bodies_outage: CircuitBreaker::default(),
            render_failures: RenderFailures::new(),
            looks: SingleFlight::new(),
            renewals: SingleFlight::new(),
            observer: Observer::new(self.on_incident),
            random: self.random,
            rendering: Arc::new(Semaphore::new(self.rendering)),
            queue: Arc::new(Semaphore::new(self.rendering + self.queue)),
            compressions: Arc::new(Semaphore::new(COMPRESSIONS)),
            compression_queue: Arc::new(Semaphore::new(COMPRESSION_QUEUE)),
            outliving: Arc::new(Semaphore::new(OUTLIVING)),
            paying: AtomicBool::new(false),
            tasks: TaskTracker::new(),
            abandon: CancellationToken::new(),
            ended: CancellationToken::new(),
        };
        Isr { engine: Arc::new(engine) }
    }
}
