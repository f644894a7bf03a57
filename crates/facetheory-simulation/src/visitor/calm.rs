//! After the storm: pages are fresh again with one render each, memory outlives the table, and processes end.

use std::time::Duration;

use facetheory::{InvalidationMode, Policy, State};
use tabletheory::Faults;

use super::habit::LONGEST_BACK_OFF;
use super::process::{Luck, Process, Visited};
use crate::ledger::Order;
use crate::mutant::Mutant;
use crate::violation::Invariant;
use crate::world::{Place, World};

/// So many calls let every commit arrive that is still on its way.
const ARRIVALS: u32 = 200;
const SECOND: Duration = Duration::from_secs(1);
/// A page with a shorter interval can be stale by another clock as soon as it is rendered.
const SHORTEST_INTERVAL: Duration = Duration::from_secs(5);
/// How long a process gets to end what goes on, and how long it may then take to give back leases.
const ENDING: Duration = Duration::from_secs(5);
const GIVING_BACK: Duration = Duration::from_secs(2);
/// After a process has ended, nothing comes of it for so long.
const AFTERWARDS: Duration = Duration::from_secs(120);

/// A render after the storm.
const QUICK: Luck = Luck { takes: Duration::from_millis(30), fails: false, declines: false };

impl World {
    /// Ends one process while everything still goes wrong, then lets the others show that they recover.
    pub(super) async fn quiet(&self, processes: &[Process<'_>]) {
        let (left, ended) = processes.split_at(processes.len().div_ceil(2));
        for process in ended {
            self.end(process).await;
        }
        self.set_faults(Faults::NONE);
        self.stop_object_faults();
        // What is on its way arrives while tables still know which transactions they have done.
        for _ in 0..ARRIVALS {
            drop(left[0].isr.pages().store().lookup(&self.places[0].key).await);
        }
        let intervals = self.character.revalidate + self.habits.patience(&self.character);
        let bound = self.character.bound() + LONGEST_BACK_OFF + intervals;
        tokio::time::sleep(bound).await;
        for place in &self.places {
            self.recover(place, left).await;
        }
        if self.ledger.is_broken() {
            return;
        }
        self.lose_the_table(&left[0]).await;
        tokio::time::sleep(bound).await;
        for process in left {
            self.end(process).await;
        }
    }

    /// Without early renewal, which would add renders.
    fn calm_policy(&self, place: &Place) -> Policy {
        let mut policy = self.habits.policy(place.keep);
        policy.early_refresh = None;
        policy
    }

    /// A page that has gone stale is fresh again for everyone, with one render.
    async fn recover(&self, place: &Place, processes: &[Process<'_>]) {
        let (first, policy) = (&processes[0], self.calm_policy(place));
        let before = self.ledger.renders(place.key.pk());
        // Who has a lost body in memory does not know that it is lost; the first process that has not renders again.
        let broken = self.ledger.serves_broken(place.key.pk());
        let visited = first.visit(place, &policy, QUICK).await;
        let served = matches!(visited, Visited::Page(_));
        self.require(place, served, || format!("its first visitor was answered with {visited:?}"));
        tokio::time::sleep(SECOND).await;
        if policy.revalidate >= SHORTEST_INTERVAL && !broken {
            let same = |process: &&Process<'_>| process.setup.deployment == first.setup.deployment;
            for process in processes.iter().filter(same) {
                let visited = process.visit(place, &policy, QUICK).await;
                let hit = visited == Visited::Page(State::Hit);
                self.require(place, hit, || format!("process {} answered with {visited:?}", process.number));
            }
        }
        let renders = self.ledger.renders(place.key.pk()) - before;
        self.require(place, renders == 1, || format!("it took {renders} renders"));
    }

    /// While the table is down, pages in memory are served, marked, but for those that were forbidden here.
    async fn lose_the_table(&self, process: &Process<'_>) {
        let place = &self.places[0];
        let policy = self.calm_policy(place);
        let _renewed = process.visit(place, &policy, QUICK).await;
        tokio::time::sleep(SECOND).await;
        let fresh = process.visit(place, &policy, QUICK).await == Visited::Page(State::Hit);
        self.set_faults(Faults { fail: 1.0, ..Faults::NONE });
        tokio::time::sleep(process.setup.believed).await;
        let visited = process.visit(place, &policy, QUICK).await;
        let marked = visited == Visited::Page(State::StaleMetadataError);
        let counts = fresh && process.setup.memory > 0 && policy.revalidate >= SHORTEST_INTERVAL;
        self.ledger.state().ensure(marked || !counts, Invariant::OutlivesTable, || {
            format!("{place} was answered with {visited:?} while the table was down")
        });
        self.set_faults(Faults::NONE);
        tokio::time::sleep(2 * SECOND).await;
        process.order(place, Order::Page(InvalidationMode::Hard), false).await;
        self.set_faults(Faults { fail: 1.0, ..Faults::NONE });
        let _checked = process.visit(place, &policy, QUICK).await;
        self.set_faults(Faults::NONE);
    }

    /// A process ends in time, and then there is silence.
    async fn end(&self, process: &Process<'_>) {
        // Something goes on when it ends: visitors have come and gone.
        for place in &self.places {
            let (policy, slow) = (self.calm_policy(place), Luck { takes: 10 * ENDING, ..QUICK });
            let visit = process.visit(place, &policy, slow);
            drop(tokio::time::timeout(SECOND / 4, visit).await);
        }
        if self.mutant != Some(Mutant::Undead) {
            let ending = process.isr.shut_down(ENDING);
            let ended = tokio::time::timeout(ENDING + GIVING_BACK + SECOND, ending).await.is_ok();
            self.ledger
                .state()
                .ensure(ended, Invariant::Ends, || format!("process {} did not end", process.number));
        }
        let rendering = self.ledger.is_rendering(process.number);
        let calls = process.seat.calls();
        tokio::time::sleep(AFTERWARDS).await;
        let silent = process.seat.calls() == calls;
        self.ledger.state().ensure(silent && !rendering, Invariant::Ends, || {
            format!(
                "process {} has ended, and {}",
                process.number,
                if rendering { "still renders" } else { "still calls the table" }
            )
        });
    }

    fn require(&self, place: &Place, holds: bool, what: impl FnOnce() -> String) {
        let mut ledger = self.ledger.state();
        ledger.ensure(holds, Invariant::Recovers, || format!("{place}: {}", what()));
    }
}
