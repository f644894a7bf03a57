//! Runs garbage collection periodically, on one gateway at a time.
//!
//! The last run is recorded as a page that is fresh until the next run is due. The lease of that page elects one gateway per
//! table. If that gateway dies during a run, another one takes over, and an interrupted run starts over at the next interval.

use std::ops::ControlFlow;
use std::sync::Arc;
use std::time::Duration;

use facetheory::protocol::Content;
use facetheory::{GcOptions, GcReport, Outcome, PageKey, Pages, Policy, RenderError, Rendered};
use tabletheory::Random;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

/// The page that records the last run. Cache keys of requests contain `::`, so no request reaches it.
const PAGE: &str = "facetheory/collection";
/// The body of that page. It never changes, so there is only one body: gc could not delete others, since the lease of the
/// page is held during each run.
const BODY: &str = "Garbage collection finished when this page was rendered.\n";
/// Rows read and bodies deleted per step.
const BATCH: usize = 100;
/// The pause between two steps, which leaves the stores to requests.
const PAUSE: Duration = Duration::from_millis(50);
/// The record is fresh for this part of the interval. If it were fresh for the whole interval, a clock that is slightly
/// slower than the timer would make every second run be skipped.
const FRESH: f64 = 0.9;
const STOPPED: &str = "the gateway shuts down";

/// The background task of garbage collection.
#[derive(Debug)]
pub(crate) struct GcTask {
    pub(crate) pages: Pages,
    /// The time between two runs; `None` if gc is disabled.
    pub(crate) interval: Option<Duration>,
    /// How long unreferenced bodies are retained.
    pub(crate) grace: Duration,
    pub(crate) random: Arc<dyn Random>,
}

impl GcTask {
    /// Runs until `stop` is cancelled, which interrupts a run at once. Returns when the lease of the run is released.
    pub(crate) async fn run(self, stop: CancellationToken) {
        let Some(interval) = self.interval else { return };
        // A random first delay spreads gateways that start together, and lets short-lived ones take part.
        let mut delay = interval.mul_f64(self.random.fraction());
        while stop.run_until_cancelled(tokio::time::sleep(delay)).await.is_some() {
            let stopped = async {
                stop.cancelled().await;
                STOPPED
            };
            match self.run_if_due(interval, stopped).await {
                _ if stop.is_cancelled() => return,
                Ok(Outcome::Published(_) | Outcome::Unchanged(_)) => {}
                Ok(outcome @ (Outcome::AlreadyFresh(_) | Outcome::Held { .. })) => {
                    tracing::debug!(?outcome, "garbage collection skipped: another gateway runs it");
                }
                Ok(outcome) => {
                    tracing::warn!(?outcome, "garbage collection interrupted, retrying at the next interval")
                }
                Err(error) => {
                    let error = format!("{:#}", anyhow::Error::new(error));
                    tracing::warn!(error, "garbage collection failed, retrying at the next interval");
                }
            }
            delay = interval;
        }
    }

    /// Runs gc, unless a gateway has run it within the interval or is running it now. When `interrupted` ends, with a reason, a
    /// run that is not done ends with that error, and its lease is released.
    pub(crate) async fn run_if_due(
        &self,
        interval: Duration,
        interrupted: impl Future<Output = &'static str>,
    ) -> facetheory::Result<Outcome> {
        let (page, policy) = (PageKey::new(PAGE)?, Policy::every(interval.mul_f64(FRESH)));
        let collect = |_| async {
            tokio::select! {
                collected = self.collect() => collected,
                reason = interrupted => Err(reason.into()),
            }
        };
        self.pages.regenerate(&page, &policy, collect).await
    }

    async fn collect(&self) -> Result<Rendered, RenderError> {
        let started = Instant::now();
        let mut options = GcOptions::default();
        (options.grace, options.batch, options.pause) = (self.grace, BATCH, PAUSE);
        let report = self.pages.gc(&options, |_| ControlFlow::Continue(())).await?;
        let GcReport { rows, expired, objects, orphans, bytes, incomplete, failed, .. } = report;
        if !report.finished {
            let first = report.failures.first().map_or("unknown error", String::as_str);
            return Err(format!("{failed} bodies could not be deleted; the first error: {first}").into());
        }
        tracing::info!(
            rows,
            expired_rows = expired,
            bodies = objects,
            deleted_bodies = orphans,
            deleted_bytes = bytes,
            deleted_incomplete_files = incomplete,
            failed,
            duration_ms = u64::try_from(started.elapsed().as_millis()).unwrap_or(u64::MAX),
            "garbage collection finished"
        );
        let mut content = Content::default();
        (content.status, content.content_type) = (Some(200), Some("text/plain".to_owned()));
        Ok(Rendered::new(BODY, content))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use facetheory::{Bodies, PageStore};
    use tabletheory::{Clock as _, Faults, Faulty, ManualClock, MemoryTable, SeededRandom, Table, Timestamp};

    /// Later than all bodies of a test, which have the time of the machine's clock.
    const START: Timestamp = Timestamp::from_seconds(4_102_444_800);
    const DAY: Duration = Duration::from_secs(86_400);
    const HOUR: Duration = Duration::from_secs(3600);

    /// A store with unreferenced bodies that are two days old.
    struct Store {
        clock: Arc<ManualClock>,
        table: Arc<Faulty<MemoryTable>>,
        bodies: Bodies,
        orphans: Vec<String>,
    }

    impl Store {
        async fn with(orphans: usize) -> Store {
            let clock = Arc::new(ManualClock::at(START));
            let table = MemoryTable::with_clock(clock.clone());
            let mut store = Store {
                table: Arc::new(Faulty::new(table, 1, Faults::default())),
                bodies: Bodies::memory(),
                orphans: Vec::new(),
                clock,
            };
            store.add_orphans(orphans).await;
            store.clock.advance(2 * DAY);
            store
        }

        async fn add_orphans(&mut self, orphans: usize) {
            let random = SeededRandom::new(self.orphans.len() as u64);
            for number in 0..orphans {
                let page = PageKey::new(format!("/{number}")).expect("a page");
                let (now, content) = (self.clock.now(), Content::default());
                let stored = self.bodies.put(&page, now, "unreferenced".into(), &content, &random).await;
                self.orphans.push(stored.expect("a body").s3_key);
            }
        }

        fn pages(&self) -> Pages {
            let table: Arc<dyn Table> = self.table.clone();
            Pages::new(PageStore::new(table), self.bodies.clone())
        }

        /// Starts the gc task of one gateway.
        fn start_gc(&self, seed: u64, stop: &CancellationToken) -> tokio::task::JoinHandle<()> {
            let random = Arc::new(SeededRandom::new(seed));
            let task = GcTask { pages: self.pages(), interval: Some(HOUR), grace: DAY, random };
            tokio::spawn(task.run(stop.clone()))
        }

        /// Counts the unreferenced bodies that have not been deleted.
        async fn left(&self) -> usize {
            let mut left = 0;
            for orphan in &self.orphans {
                left += usize::from(self.bodies.get(orphan, None).await.expect("a lookup").is_some());
            }
            left
        }

        /// Whether a gateway runs gc now.
        async fn is_leased(&self) -> bool {
            let page = PageKey::new(PAGE).expect("a page");
            let lock = self.pages().store().lookup(&page).await.expect("a lookup").lock;
            lock.is_some_and(|lock| lock.is_held(self.clock.now()))
        }

        /// Returns the time of the last finished run.
        async fn last_run(&self) -> Option<i64> {
            let page = PageKey::new(PAGE).expect("a page");
            self.pages().read(&page).await.expect("a lookup").map(|(meta, _)| meta.generation.generated_at)
        }
    }

    /// Advances the timers and the clock of the rows.
    async fn advance(store: &Store, time: Duration) {
        const STEP: Duration = Duration::from_secs(60);
        for _ in 0..time.as_secs() / STEP.as_secs() {
            store.clock.advance(STEP);
            tokio::time::sleep(STEP).await;
        }
    }

    #[tokio::test(start_paused = true)]
    async fn unreferenced_bodies_are_deleted_in_every_interval() {
        let mut store = Store::with(3).await;
        let page = PageKey::new("/served").expect("a page");
        let (pages, policy) = (store.pages(), Policy::every(HOUR));
        let kept = pages.regenerate(&page, &policy, |_| async { Ok(Rendered::html("kept")) }).await;
        assert!(matches!(kept, Ok(Outcome::Published(_))));
        store.clock.advance(2 * DAY);
        store.start_gc(1, &CancellationToken::new());
        assert_eq!(store.left().await, 3, "the first run is delayed");
        advance(&store, HOUR).await;
        assert_eq!(store.left().await, 0);
        let served = store.pages().read(&page).await.expect("a lookup").expect("the page is still stored").1;
        assert_eq!(served.bytes, "kept");

        store.add_orphans(2).await;
        advance(&store, DAY + 2 * HOUR).await;
        assert_eq!(store.left().await, 0, "later runs delete new bodies");
    }

    #[tokio::test(start_paused = true)]
    async fn one_of_several_gateways_runs_gc_in_each_interval() {
        let store = Store::with(1).await;
        let stop = CancellationToken::new();
        for seed in 0..4 {
            store.start_gc(seed, &stop);
        }
        let mut runs = std::collections::BTreeSet::new();
        for _ in 0..60 * 10 {
            advance(&store, Duration::from_secs(60)).await;
            runs.extend(store.last_run().await);
        }
        assert!((9..=12).contains(&runs.len()), "{} runs in ten hours", runs.len());
    }

    #[tokio::test(start_paused = true)]
    async fn a_run_that_is_stopped_ends_at_once_and_another_gateway_continues() {
        let store = Store::with(10 * BATCH).await;
        let stop = CancellationToken::new();
        let running = store.start_gc(1, &stop);
        tokio::time::sleep(HOUR.mul_f64(SeededRandom::new(1).fraction()) + 8 * PAUSE).await;
        assert!(store.is_leased().await);
        stop.cancel();
        let ended = tokio::time::timeout(Duration::from_millis(1), running).await;
        ended.expect("it ends at once").expect("no panic");
        assert!(!store.is_leased().await, "the lease was released");
        let left = store.left().await;
        assert!((1..10 * BATCH).contains(&left), "the run was interrupted with {left} bodies left");
        advance(&store, HOUR).await;
        assert_eq!(store.left().await, left);
        assert!(store.last_run().await.is_none(), "the run did not finish");

        store.start_gc(2, &CancellationToken::new());
        advance(&store, HOUR).await;
        assert_eq!(store.left().await, 0);
    }

    #[tokio::test(start_paused = true)]
    async fn a_run_that_is_interrupted_releases_its_lease() {
        let store = Store::with(10 * BATCH).await;
        let random = Arc::new(SeededRandom::new(1));
        let task = GcTask { pages: store.pages(), interval: Some(HOUR), grace: DAY, random };
        let deadline = async {
            tokio::time::sleep(8 * PAUSE).await;
            "too slow"
        };
        let error = task.run_if_due(HOUR, deadline).await.expect_err("the deadline");
        assert_eq!(std::error::Error::source(&error).expect("a cause").to_string(), "too slow");
        let left = store.left().await;
        assert!((1..10 * BATCH).contains(&left), "the run was interrupted with {left} bodies left");
        // The clock of the rows has not moved, so a lease that was not released would still be held.
        let outcome = task.run_if_due(HOUR, std::future::pending()).await.expect("an outcome");
        assert!(matches!(outcome, Outcome::Published(_)), "{outcome:?}");
        assert_eq!(store.left().await, 0);
    }

    #[tokio::test(start_paused = true)]
    async fn a_failed_run_is_retried() {
        let store = Store::with(3).await;
        store.table.set_faults(Faults { fail: 1.0, ..Faults::default() });
        let running = store.start_gc(1, &CancellationToken::new());
        advance(&store, 2 * HOUR).await;
        assert!(!running.is_finished() && store.left().await == 3);
        store.table.set_faults(Faults::default());
        advance(&store, HOUR).await;
        assert_eq!(store.left().await, 0);
    }

    #[tokio::test]
    async fn a_disabled_task_ends_at_once() {
        let store = Store::with(0).await;
        let random = Arc::new(SeededRandom::new(1));
        let task = GcTask { pages: store.pages(), interval: None, grace: DAY, random };
        task.run(CancellationToken::new()).await;
    }
}
