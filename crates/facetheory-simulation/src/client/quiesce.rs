//! The end of a client history: each page recovers with one render, memory serves during an outage, processes shut
//! down.

use std::time::Duration;

use facetheory::{InvalidationMode, Policy, State};
use tabletheory::Faults;

use super::config::MAX_BACKOFF;
use super::process::{Process, RenderPlan, RequestResult};
use crate::checker::Invalidation;
use crate::mutant::Mutant;
use crate::violation::Invariant;
use crate::world::{SimPage, World};

/// This many calls let every delayed commit arrive.
const ARRIVALS: u32 = 200;
const SECOND: Duration = Duration::from_secs(1);
/// A page with a shorter interval can be stale by another clock as soon as it is rendered.
const SHORTEST_INTERVAL: Duration = Duration::from_secs(5);
/// A render that starts this much later than another one is newer by every clock, so that no guard refuses it.
const NEWER: Duration = Duration::from_secs(3);
/// How long a process may finish its work at shutdown, and how long it may take to release its leases after that.
const DRAIN: Duration = Duration::from_secs(5);
const RELEASE: Duration = Duration::from_secs(2);
/// After shutdown, a process must be silent for this long.
const SILENCE: Duration = Duration::from_secs(120);

/// A render that is quick and succeeds.
const QUICK: RenderPlan =
    RenderPlan { duration: Duration::from_millis(30), fails: false, invalidates: false };

impl World {
    /// Shuts half of the processes down under faults, then checks that the others recover.
    pub(super) async fn quiesce_clients(&self, processes: &[Process<'_>]) {
        let (running, stopping) = processes.split_at(processes.len().div_ceil(2));
        for process in stopping {
            self.shut_down_and_check(process).await;
        }
        self.set_faults(Faults::default());
        self.stop_object_faults();
        // Delayed commits must arrive while the table still deduplicates their client tokens.
        for _ in 0..ARRIVALS {
            drop(running[0].isr.lookup(&self.pages[0].key).await);
        }
        let intervals = self.scenario.pages.revalidate + self.clients.response_bound(&self.scenario);
        let bound = self.scenario.quiesce_bound() + MAX_BACKOFF + intervals;
        tokio::time::sleep(bound).await;
        for page in &self.pages {
            self.check_recovery(page, running).await;
        }
        if self.checker.is_broken() {
            return;
        }
        self.check_table_outage(&running[0]).await;
        tokio::time::sleep(bound).await;
        for process in running {
            self.shut_down_and_check(process).await;
        }
    }

    /// The policy without early refresh, which would add renders.
    fn quiesce_policy(&self, page: &SimPage) -> Policy {
        let mut policy = self.clients.policy(page.history);
        policy.early_refresh = None;
        policy
    }

    /// A stale page becomes fresh in all processes with one render.
    async fn check_recovery(&self, page: &SimPage, processes: &[Process<'_>]) {
        let (first, policy) = (&processes[0], self.quiesce_policy(page));
        let before = self.checker.renders(page.key.pk());
        // A process that has the damaged body in memory does not notice; another one then renders once more.
        let damaged = self.checker.serves_damaged(page.key.pk());
        let has_damaged_tag = self.checker.has_damaged_tag(page);
        let shortest = if has_damaged_tag { 4 * SHORTEST_INTERVAL } else { SHORTEST_INTERVAL };
        let is_long = policy.revalidate >= shortest;
        let same = |process: &&Process<'_>| process.config.deployment == first.config.deployment;
        // The process that reads the row first replaces it, which counts as an invalidation. It may read it after a render: the
        // render brought the tag, or the process that rendered knows the count from its cache. Then the page is rendered again.
        for process in processes.iter().filter(same).filter(|_| has_damaged_tag && is_long) {
            let _replaced = process.request(page, &policy, QUICK).await;
            tokio::time::sleep(NEWER).await;
        }
        let result = first.request(page, &policy, QUICK).await;
        let served = matches!(result, RequestResult::Page(_));
        self.require(page, served, || format!("the first request returned {result:?}"));
        tokio::time::sleep(SECOND).await;
        if is_long && !damaged {
            for process in processes.iter().filter(same) {
                let result = process.request(page, &policy, QUICK).await;
                let hit = result == RequestResult::Page(State::Hit);
                self.require(page, hit, || format!("process {} returned {result:?}", process.number));
            }
        }
        let renders = self.checker.renders(page.key.pk()) - before;
        let most = 1 + u64::from(has_damaged_tag);
        self.require(page, (1..=most).contains(&renders), || format!("it took {renders} renders"));
    }

    /// While the table is down, pages in memory are served as `stale-metadata-error`, except hard-invalidated ones.
    async fn check_table_outage(&self, process: &Process<'_>) {
        let page = &self.pages[0];
        let policy = self.quiesce_policy(page);
        let _regenerated = process.request(page, &policy, QUICK).await;
        tokio::time::sleep(SECOND).await;
        let fresh = process.request(page, &policy, QUICK).await == RequestResult::Page(State::Hit);
        self.set_faults(Faults { fail: 1.0, ..Faults::default() });
        tokio::time::sleep(process.config.metadata_max_age).await;
        let result = process.request(page, &policy, QUICK).await;
        let marked = result == RequestResult::Page(State::StaleMetadataError);
        let expected = fresh && process.config.memory > 0 && policy.revalidate >= SHORTEST_INTERVAL;
        self.checker.state().ensure(marked || !expected, Invariant::ServesDuringOutage, || {
            format!("a request for {page} returned {result:?} while the table was down")
        });
        self.set_faults(Faults::default());
        tokio::time::sleep(2 * SECOND).await;
        process.invalidate(page, Invalidation::Page(InvalidationMode::Hard), false).await;
        self.set_faults(Faults { fail: 1.0, ..Faults::default() });
        let _checked = process.request(page, &policy, QUICK).await;
        self.set_faults(Faults::default());
    }

    /// A process shuts down in time and makes no calls afterwards.
    async fn shut_down_and_check(&self, process: &Process<'_>) {
        // Clients have disconnected, so renders go on in the background when the shutdown starts.
        for page in &self.pages {
            let (policy, slow) = (self.quiesce_policy(page), RenderPlan { duration: 10 * DRAIN, ..QUICK });
            let request = process.request(page, &policy, slow);
            drop(tokio::time::timeout(SECOND / 4, request).await);
        }
        if self.mutant != Some(Mutant::NoShutdown) {
            let shutdown = process.isr.shut_down(DRAIN);
            let in_time = tokio::time::timeout(DRAIN + RELEASE + SECOND, shutdown).await.is_ok();
            self.checker.state().ensure(in_time, Invariant::ShutsDown, || {
                format!("process {} did not shut down in time", process.number)
            });
        }
        let rendering = self.checker.is_rendering(process.number);
        let calls = process.table.calls();
        tokio::time::sleep(SILENCE).await;
        let silent = process.table.calls() == calls;
        self.checker.state().ensure(silent && !rendering, Invariant::ShutsDown, || {
            let activity = if rendering { "still renders" } else { "still calls the table" };
            format!("process {} has shut down and {activity}", process.number)
        });
    }

    fn require(&self, page: &SimPage, holds: bool, what: impl FnOnce() -> String) {
        let mut checker = self.checker.state();
        checker.ensure(holds, Invariant::RecoversOnce, || format!("{page}: {}", what()));
    }
}
