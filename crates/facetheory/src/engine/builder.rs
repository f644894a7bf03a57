//! Builds an engine.

use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use parking_lot::Mutex;
use tabletheory::{Random, SystemRandom};
use tokio::sync::Semaphore;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use super::circuit_breaker::{CircuitBreaker, WriteBreakers};
use super::fallback::MAX_RETAINED_BYTES;
use super::feed::FeedWatch;
use super::memory::Memory;
use super::metrics::Metrics;
use super::publish_behind::MAX_PUBLISHES;
use super::recent_lookups::RecentLookups;
use super::render_failures::RenderFailures;
use super::single_flight::SingleFlight;
use super::write_check::LastWrites;
use super::{Engine, Feed, Incident, Isr};
use crate::Pages;

const MEMORY: u64 = 128 * 1024 * 1024;
const MEMORY_IN_FLIGHT: u64 = 64 * 1024 * 1024;
const BACKGROUND_RENDERS: usize = 64;
const BACKGROUND_QUEUE: usize = 1024;
/// Pages that are compressed at the same time: few, so that requests are not slowed down.
const COMPRESSIONS: usize = 1;
/// Pages that are compressed or wait for it.
const COMPRESSION_QUEUE: usize = 128;
/// How much longer a write of the table may take than a read.
const WRITE_TIMEOUT_FACTOR: u32 = 5;
/// How long a response waits for the publish of its page: longer than a healthy store takes, and too short for a person to
/// notice.
const PUBLISH_WAIT: Duration = Duration::from_millis(100);
/// Requests that continue after their client disconnected.
const DETACHED: usize = 256;
/// How long a body stays after it was replaced: longer than any reader uses an older pointer.
const REPLACED_RETENTION: Duration = Duration::from_secs(600);

/// Builds an [`Isr`] with other settings than the defaults.
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
#[derive(Debug)]
#[must_use]
pub struct IsrBuilder {
    engine: Engine,
    memory: u64,
    memory_in_flight: u64,
}

fn permits(permits: usize) -> Arc<Semaphore> {
    Arc::new(Semaphore::new(permits))
}

impl IsrBuilder {
    pub(super) fn new(pages: Pages) -> Self {
        let engine = Engine {
            pages: pages.with_replaced_retention(Some(REPLACED_RETENTION)),
            metadata_max_age: Duration::from_secs(1),
            table_timeout: Duration::from_secs(2),
            deployment: None,
            policy_version: None,
            // These two are replaced once their size and their random numbers are known.
            memory: Memory::new(0, 0, &SystemRandom, Arc::default()),
            uses: super::Uses::default(),
            recent_lookups: RecentLookups::new(&SystemRandom),
            feed: FeedWatch::new(),
            table_breaker: CircuitBreaker::default(),
            bodies_breaker: CircuitBreaker::default(),
            write_breakers: WriteBreakers::default(),
            last_writes: LastWrites::default(),
            render_failures: RenderFailures::new(),
            lookups: SingleFlight::new(),
            body_reads: SingleFlight::new(),
            regenerations: SingleFlight::new(),
            fetches: SingleFlight::new(),
            publish_wait: PUBLISH_WAIT,
            publishes: Semaphore::new(MAX_PUBLISHES),
            retained_bytes: permits(MAX_RETAINED_BYTES),
            metrics: Metrics::new(),
            random: Arc::new(SystemRandom),
            background_renders: permits(BACKGROUND_RENDERS),
            background_queue: permits(BACKGROUND_RENDERS + BACKGROUND_QUEUE),
            compressions: permits(COMPRESSIONS),
            compression_queue: permits(COMPRESSION_QUEUE),
            detached: permits(DETACHED),
            writing_pending: AtomicBool::new(false),
            deleting_replaced: AtomicBool::new(false),
            stop: CancellationToken::new(),
            tasks: TaskTracker::new(),
            cancellation: Mutex::default(),
        };
        IsrBuilder { engine, memory: MEMORY, memory_in_flight: MEMORY_IN_FLIGHT }
    }

    /// The pages that the engine will serve. Changes that are made through them, and not through the engine, are noticed
    /// after [`metadata_max_age`](Self::metadata_max_age).
    ///
    /// ```no_run
    /// # fn f(builder: facetheory::IsrBuilder) {
    /// let pages: facetheory::Pages = builder.pages().clone();
    /// # }
    /// ```
    #[must_use]
    pub fn pages(&self) -> &Pages {
        &self.engine.pages
    }

    /// Sets the bytes of pages in memory; 128 MiB by default.
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

    /// Sets the bytes of bodies in flight, besides those of the [pages in memory](Self::memory): bodies that are being read from
    /// the origin or from the object storage, or compressed, and pages that were evicted while clients still read them. 64 MiB
    /// by default. Memory that pages do not use is used for bodies in flight too. A page that does not fit is not cached:
    /// requests for it get [`BypassReason::MemoryFull`](crate::BypassReason::MemoryFull).
    ///
    /// ```no_run
    /// # fn f(builder: facetheory::IsrBuilder) {
    /// builder.memory(48 * 1024 * 1024).memory_in_flight(16 * 1024 * 1024);
    /// # }
    /// ```
    pub fn memory_in_flight(mut self, bytes: u64) -> Self {
        self.memory_in_flight = bytes;
        self
    }

    /// Sets how long metadata is used without reading the table again: that of pages, and that of tags. One second by
    /// default; zero reads the table for every request.
    ///
    /// Other processes serve a page for up to this time after its invalidation. For an invalidation by tag it may be
    /// twice as long, since a page may be checked against the tag just before that is read again.
    ///
    /// ```no_run
    /// # fn f(builder: facetheory::IsrBuilder) {
    /// builder.metadata_max_age(std::time::Duration::ZERO);
    /// # }
    /// ```
    pub fn metadata_max_age(mut self, max_age: Duration) -> Self {
        self.engine.metadata_max_age = max_age;
        self.engine.pages.store = self.engine.pages.store.with_epoch_max_age(max_age);
        self
    }

    /// Sets which processes write the table. This decides how the engine learns about their changes.
    ///
    /// With either value, the engine also announces its own changes in the change feed, so that processes can be switched to
    /// [`Feed::Exclusive`] one after the other. Without this call it announces nothing, unless its store
    /// [announces changes](crate::PageStore::with_announcements): engines with `Feed::Exclusive` on the same table then
    /// notice its changes only when the intervals of the pages end.
    ///
    /// With [`Feed::Exclusive`], [`build`](Self::build) must be called in a tokio runtime: it starts a task that reads the
    /// change feed. There is no such task without memory, or if `metadata_max_age` is zero.
    ///
    /// ```no_run
    /// # fn f(builder: facetheory::IsrBuilder) {
    /// builder.feed(facetheory::Feed::Exclusive);
    /// # }
    /// ```
    pub fn feed(mut self, feed: Feed) -> Self {
        self.engine.feed.mode = feed;
        self.engine.pages.store = self.engine.pages.store.with_announcements(true);
        self
    }

    /// Sets how long the table may take to respond before it counts as unreachable; two seconds by default. A write may take
    /// five times as long, since a disk has to store it; after that its outcome is unknown.
    ///
    /// ```no_run
    /// # fn f(builder: facetheory::IsrBuilder) {
    /// builder.table_timeout(std::time::Duration::from_millis(500));
    /// # }
    /// ```
    pub fn table_timeout(mut self, timeout: Duration) -> Self {
        self.engine.table_timeout = timeout;
        self
    }

    /// Sets how long the response to a request that had a page rendered waits for its publish; 100 milliseconds by default.
    ///
    /// After that, the response is sent, and the page is published behind it. Within this time every process finds the page
    /// once the response is there. With zero, no response waits; with [`Duration::MAX`] each page is published before it is
    /// served.
    ///
    /// ```no_run
    /// # fn f(builder: facetheory::IsrBuilder) {
    /// builder.publish_wait(std::time::Duration::ZERO);
    /// # }
    /// ```
    pub fn publish_wait(mut self, wait: Duration) -> Self {
        self.engine.publish_wait = wait;
        self
    }

    /// Names the deployment that renders. Pages of other deployments are regenerated, as the policy says.
    ///
    /// ```no_run
    /// # fn f(builder: facetheory::IsrBuilder) {
    /// builder.deployment("2026-11-15.1");
    /// # }
    /// ```
    pub fn deployment(mut self, id: impl Into<String>) -> Self {
        self.engine.deployment = Some(id.into());
        self
    }

    /// Names the version of the caching policy. It is part of the hash of idempotent requests
    /// ([`Isr::idempotent_request`]), so a changed policy makes a new request.
    ///
    /// ```no_run
    /// # fn f(builder: facetheory::IsrBuilder) {
    /// builder.policy_version("3");
    /// # }
    /// ```
    pub fn policy_version(mut self, id: impl Into<String>) -> Self {
        self.engine.policy_version = Some(id.into());
        self
    }

    /// Sets how many pages are rendered in the background at the same time, and how many more may wait for it.
    ///
    /// ```no_run
    /// # fn f(builder: facetheory::IsrBuilder) {
    /// builder.background(16, 100);
    /// # }
    /// ```
    pub fn background(mut self, renders: usize, queue: usize) -> Self {
        let renders = renders.clamp(1, Semaphore::MAX_PERMITS);
        self.engine.background_renders = permits(renders);
        self.engine.background_queue = permits(renders + queue.min(Semaphore::MAX_PERMITS / 2));
        self
    }

    /// Sets how long a body stays after another one has replaced it; ten minutes by default, and never shorter than a lease of
    /// its page. With `None`, replaced bodies stay until [`Pages::gc`](crate::Pages::gc) deletes them.
    ///
    /// It must be longer than any process uses metadata after reading it, plus the timeouts of the table and of bodies. The
    /// process that replaces a body deletes it. If the process ends before that, garbage collection does.
    ///
    /// ```no_run
    /// # fn f(builder: facetheory::IsrBuilder) {
    /// builder.replaced_retention(Some(std::time::Duration::from_secs(120)));
    /// # }
    /// ```
    pub fn replaced_retention(mut self, retention: Option<Duration>) -> Self {
        self.engine.pages = self.engine.pages.with_replaced_retention(retention);
        self
    }

    /// Sets a function that is called for each error, also for those that clients do not notice.
    ///
    /// ```no_run
    /// # fn f(builder: facetheory::IsrBuilder) {
    /// builder.on_incident(|incident| eprintln!("{}", incident.error));
    /// # }
    /// ```
    pub fn on_incident(mut self, call: impl Fn(&Incident<'_>) + Send + Sync + 'static) -> Self {
        self.engine.metrics.on_incident = Some(Arc::new(call));
        self
    }

    /// Sets the source of random numbers, for tests and simulations.
    ///
    /// ```no_run
    /// # fn f(builder: facetheory::IsrBuilder) {
    /// builder.random(std::sync::Arc::new(tabletheory::SeededRandom::new(1)));
    /// # }
    /// ```
    pub fn random(mut self, random: Arc<dyn Random>) -> Self {
        self.engine.random = random;
        self
    }

    /// Builds the engine.
    ///
    /// ```no_run
    /// # fn f(builder: facetheory::IsrBuilder) {
    /// let isr: facetheory::Isr = builder.build();
    /// # }
    /// ```
    #[must_use]
    pub fn build(mut self) -> Isr {
        let store = self.engine.pages.store.clone();
        let write_timeout = self.engine.table_timeout.saturating_mul(WRITE_TIMEOUT_FACTOR);
        self.engine.pages.store = store.with_write_timeout(write_timeout);
        let changes = self.engine.pages.store().known_changes().clone();
        let memory = Memory::new(self.memory, self.memory_in_flight, &*self.engine.random, changes);
        let recent_lookups = RecentLookups::new(&*self.engine.random);
        let engine = Arc::new(Engine { memory, recent_lookups, ..self.engine });
        engine.watch_feed(self.memory);
        Isr { engine }
    }
}
