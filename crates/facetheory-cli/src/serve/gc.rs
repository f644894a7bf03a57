//! What nothing names any more is deleted, now and then and slowly, behind everyone's back.
//!
//! That it was done is a page like any other, fresh until it is due again. So the lease of that page says whose turn it is
//! among all gateways of a table, one that dies in the middle is followed by another, and a run that was cut off is taken up
//! at the next occasion.

use std::ops::ControlFlow;
use std::sync::Arc;
use std::time::Duration;

use facetheory::protocol::Content;
use facetheory::{GcReport, Outcome, PageKey, Pages, Policy, RenderError, Rendered};
use tabletheory::Random;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

/// The page that says when it was done last. The keys of pages that visitors ask for have `::` in them.
const PAGE: &str = "facetheory/collection";
/// What that page says: always the same, so that it has one body. Others would stay, since its lease is held during each run.
const DONE: &str = "What nothing names any more was deleted when this page was rendered.\n";
/// Rows that are read, and bodies that are deleted, at once.
const BATCH: usize = 100;
/// The rest after each of these, in which visitors have the stores to themselves.
const PAUSE: Duration = Duration::from_millis(50);
/// For this part of the time between two runs that page is fresh. With all of it, a clock that goes a little slower than the
/// timer would make every other run be left out.
const FRESH: f64 = 0.9;

/// Deletes what nothing names any more.
#[derive(Debug)]
pub(crate) struct Collector {
    pub(crate) pages: Pages,
    /// The time between two runs, if there are any.
    pub(crate) every: Option<Duration>,
    /// For how long bodies stay that nothing names.
    pub(crate) grace: Duration,
    pub(crate) random: Arc<dyn Random>,
}

impl Collector {
    /// Runs now and then until it is stopped, which it is at once: what is left is for another run.
    pub(crate) async fn run(self, stop: CancellationToken) {
        if let Some(every) = self.every {
            stop.run_until_cancelled(self.repeat(every)).await;
        }
    }

    async fn repeat(&self, every: Duration) {
        // Gateways that are started together do not all begin at once, and ones that live for less than a day have a part
        // in it as well.
        tokio::time::sleep(every.mul_f64(self.random.fraction())).await;
        loop {
            match self.take_turn(every).await {
                Ok(Outcome::Published(_) | Outcome::Unchanged(_)) => {}
                Ok(outcome @ (Outcome::AlreadyFresh(_) | Outcome::Held { .. })) => {
                    tracing::debug!(?outcome, "the collection is another process's");
                }
                Ok(outcome) => {
                    tracing::warn!(
                        ?outcome,
                        "the collection was broken off, and is tried again when it is due"
                    );
                }
                Err(error) => {
                    let error = format!("{:#}", anyhow::Error::new(error));
                    tracing::warn!(error, "the collection has failed, and is tried again when it is due");
                }
            }
            tokio::time::sleep(every).await;
        }
    }

    /// Collects, unless that was done lately or is being done elsewhere.
    async fn take_turn(&self, every: Duration) -> facetheory::Result<Outcome> {
        let (page, policy) = (PageKey::new(PAGE)?, Policy::every(every.mul_f64(FRESH)));
        self.pages.regenerate(&page, &policy, |_| self.collect()).await
    }

    async fn collect(&self) -> Result<Rendered, RenderError> {
        let began = Instant::now();
        let mut how = facetheory::GcOptions::default();
        (how.grace, how.batch, how.pause) = (self.grace, BATCH, PAUSE);
        let collected = self.pages.gc(&how, |_| ControlFlow::Continue(())).await?;
        let GcReport { rows, expired, objects, orphans, bytes, failed, .. } = collected;
        if !collected.finished {
            let first = collected.failures.first().map_or("it did not say why", String::as_str);
            return Err(format!("{failed} bodies could not be deleted; the first of them: {first}").into());
        }
        let took = began.elapsed();
        tracing::info!(
            rows,
            expired_rows = expired,
            bodies = objects,
            deleted_bodies = orphans,
            deleted_bytes = bytes,
            failed,
            took_ms = u64::try_from(took.as_millis()).unwrap_or(u64::MAX),
            "what nothing names any more was collected"
        );
        let mut content = Content::default();
        (content.status, content.content_type) = (Some(200), Some("text/plain".to_owned()));
        Ok(Rendered::new(DONE, content))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use facetheory::{Bodies, PageStore};
    use tabletheory::{Clock as _, Faults, Faulty, ManualClock, MemoryTable, SeededRandom, Table, Timestamp};

    /// Long after all bodies that a test stores, whose times the machine's clock tells.
    const START: Timestamp = Timestamp::from_seconds(4_102_444_800);
    const DAY: Duration = Duration::from_secs(86_400);
    const HOUR: Duration = Duration::from_secs(3600);

    /// A store, and so many bodies in it that were never published, two days ago.
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
                table: Arc::new(Faulty::new(table, 1, Faults::NONE)),
                bodies: Bodies::memory(),
                orphans: Vec::new(),
                clock,
            };
            store.litter(orphans).await;
            store.clock.advance(2 * DAY);
            store
        }

        async fn litter(&mut self, orphans: usize) {
            let random = SeededRandom::new(self.orphans.len() as u64);
            for number in 0..orphans {
                let page = PageKey::new(format!("/{number}")).expect("a page");
                let (now, content) = (self.clock.now(), Content::default());
                let stored = self.bodies.put(&page, now, "nobody's".into(), &content, &random).await;
                self.orphans.push(stored.expect("a body").s3_key);
            }
        }

        fn pages(&self) -> Pages {
            let table: Arc<dyn Table> = self.table.clone();
            Pages::new(PageStore::new(table), self.bodies.clone())
        }

        /// A gateway's collector, at work until the token says otherwise.
        fn collector(&self, seed: u64, stop: &CancellationToken) -> tokio::task::JoinHandle<()> {
            let random = Arc::new(SeededRandom::new(seed));
            let collector = Collector { pages: self.pages(), every: Some(HOUR), grace: DAY, random };
            tokio::spawn(collector.run(stop.clone()))
        }

        async fn left(&self) -> usize {
            let mut left = 0;
            for orphan in &self.orphans {
                left += usize::from(self.bodies.get(orphan, None).await.expect("an answer").is_some());
            }
            left
        }

        /// When the last run was done.
        async fn done(&self) -> Option<i64> {
            let page = PageKey::new(PAGE).expect("a page");
            self.pages().read(&page).await.expect("an answer").map(|(meta, _)| meta.generation.generated_at)
        }
    }

    /// Lets time pass for timers and rows alike.
    async fn pass(store: &Store, time: Duration) {
        const STEP: Duration = Duration::from_secs(60);
        for _ in 0..time.as_secs() / STEP.as_secs() {
            store.clock.advance(STEP);
            tokio::time::sleep(STEP).await;
        }
    }

    #[tokio::test(start_paused = true)]
    async fn what_nothing_names_goes_within_the_first_period_and_again_in_each() {
        let mut store = Store::with(3).await;
        let page = PageKey::new("/served").expect("a page");
        let (pages, policy) = (store.pages(), Policy::every(HOUR));
        let kept = pages.regenerate(&page, &policy, |_| async { Ok(Rendered::html("kept")) }).await;
        assert!(matches!(kept, Ok(Outcome::Published(_))));
        store.clock.advance(2 * DAY);
        store.collector(1, &CancellationToken::new());
        assert_eq!(store.left().await, 3, "it does not begin at once");
        pass(&store, HOUR).await;
        assert_eq!(store.left().await, 0);
        let served = store.pages().read(&page).await.expect("an answer").expect("it is still there").1;
        assert_eq!(served.bytes, "kept");

        store.litter(2).await;
        pass(&store, DAY + 2 * HOUR).await;
        assert_eq!(store.left().await, 0, "it goes on");
    }

    #[tokio::test(start_paused = true)]
    async fn of_several_gateways_one_collects_in_each_period() {
        let store = Store::with(1).await;
        let stop = CancellationToken::new();
        for seed in 0..4 {
            store.collector(seed, &stop);
        }
        let mut runs = std::collections::BTreeSet::new();
        for _ in 0..60 * 10 {
            pass(&store, Duration::from_secs(60)).await;
            runs.extend(store.done().await);
        }
        assert!((9..=12).contains(&runs.len()), "{} times in ten hours", runs.len());
    }

    #[tokio::test(start_paused = true)]
    async fn one_that_is_stopped_in_the_middle_ends_at_once_and_another_takes_it_up() {
        let store = Store::with(10 * BATCH).await;
        let stop = CancellationToken::new();
        let collecting = store.collector(1, &stop);
        tokio::time::sleep(HOUR.mul_f64(SeededRandom::new(1).fraction()) + 8 * PAUSE).await;
        stop.cancel();
        let ended = tokio::time::timeout(Duration::from_millis(1), collecting).await;
        ended.expect("it ends at once").expect("it ends well");
        let left = store.left().await;
        assert!((1..10 * BATCH).contains(&left), "it was in the middle, with {left} left");
        pass(&store, HOUR).await;
        assert_eq!(store.left().await, left);
        assert!(store.done().await.is_none(), "it was not done");

        store.collector(2, &CancellationToken::new());
        pass(&store, HOUR).await;
        assert_eq!(store.left().await, 0);
    }

    #[tokio::test(start_paused = true)]
    async fn one_that_fails_is_tried_again() {
        let store = Store::with(3).await;
        store.table.set_faults(Faults { fail: 1.0, ..Faults::NONE });
        let collecting = store.collector(1, &CancellationToken::new());
        pass(&store, 2 * HOUR).await;
        assert!(!collecting.is_finished() && store.left().await == 3);
        store.table.set_faults(Faults::NONE);
        pass(&store, HOUR).await;
        assert_eq!(store.left().await, 0);
    }

    #[tokio::test]
    async fn one_that_is_switched_off_ends() {
        let store = Store::with(0).await;
        let random = Arc::new(SeededRandom::new(1));
        let collector = Collector { pages: store.pages(), every: None, grace: DAY, random };
        collector.run(CancellationToken::new()).await;
    }
}
