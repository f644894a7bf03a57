//! The world of one seed: its stores, its pages, and everyone who lives in it.

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use facetheory::{Bodies, History, KeyScheme, PageKey, Tag, Tenant};
use tabletheory::{Faults, Faulty, MemoryTable};

use crate::Settings;
use crate::character::{Character, MOST_SKEW};
use crate::clock::SimulatedClock;
use crate::dice::Dice;
use crate::ledger::Ledger;
use crate::mutant::Mutant;
use crate::object::Objects;
use crate::recorder::Recorder;
use crate::saboteur::Saboteur;
use crate::seat::Seat;
use crate::visitor::Habits;
use crate::worker::Worker;

/// Two tenants, with the same cache keys.
const TENANTS: [&str; 2] = ["red", "blue"];

/// Streams of chance that are no worker's.
const TABLE: u64 = 1000;
const OBJECTS: u64 = 1001;
const MISFORTUNE: u64 = 1002;
const SWEEPER: u64 = 1003;
const CLOCKS: u64 = 1004;
/// The worker that comes after the storm.
const CALM: u64 = 1005;

/// One tenant's page.
#[derive(Debug)]
pub(crate) struct Place {
    pub(crate) tenant: Tenant,
    pub(crate) key: PageKey,
    pub(crate) keep: History,
    path: String,
}

impl Place {
    /// What every body of this page begins with, so that no other's can be taken for it.
    pub(crate) fn signature(&self) -> String {
        format!("{}|{}|", self.tenant, self.path)
    }

    /// The tags of the page: one that all have, and its own.
    pub(crate) fn tags(&self) -> [Tag; 2] {
        ["all", self.path.as_str()].map(|name| Tag::new(name).expect("a tag"))
    }
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} of {}", self.path, self.tenant)
    }
}

/// Everything that a seed makes.
#[derive(Debug)]
pub(crate) struct World {
    pub(crate) seed: u64,
    pub(crate) mutant: Option<Mutant>,
    pub(crate) character: Character,
    pub(crate) ledger: Arc<Ledger>,
    /// How visitors are, where there are any.
    pub(crate) habits: Habits,
    pub(crate) places: Vec<Place>,
    pub(crate) bodies: Bodies,
    /// How long everything goes wrong, in simulated time.
    storm: Duration,
    clock: SimulatedClock,
    table: Arc<Faulty<Arc<Recorder>>>,
    objects: Objects,
}

impl World {
    pub(crate) fn new(
        seed: u64,
        settings: &Settings,
        ledger: Arc<Ledger>,
        clock: SimulatedClock,
        character: Character,
    ) -> Self {
        let (mutant, habits) = (settings.mutant, Habits::of(seed, &character));
        let storm = if settings.visitors { habits.storm } else { character.storm };
        let rows = Saboteur::new(MemoryTable::with_clock(Arc::new(clock)), mutant);
        let recorder = Arc::new(Recorder { table: rows, ledger: ledger.clone() });
        let faults = Dice::new(seed, TABLE).below(u64::MAX);
        let table = Arc::new(Faulty::new(recorder, faults, character.faults));
        let objects = Objects::new(ledger.clone(), Dice::new(seed, OBJECTS), character.object_faults, mutant);
        let places = TENANTS.iter().flat_map(|tenant| {
            (0..character.paths).map(move |path| {
                let (tenant, path) = (Tenant::new(*tenant).expect("a tenant"), format!("/{path}"));
                let owner = Some(&tenant).filter(|_| mutant != Some(Mutant::SharedPartition));
                let key = KeyScheme::Hashed.page(owner, path.as_str()).expect("a page");
                let keep = if path.ends_with('1') { History::Latest } else { History::Versions };
                Place { tenant, key, keep, path }
            })
        });
        let places = places.collect();
        let bodies = Bodies::over(Arc::new(objects.clone()));
        World { seed, mutant, character, habits, ledger, places, bodies, storm, clock, table, objects }
    }

    /// The storm, and the calm after it. Stops as soon as something is broken.
    pub(crate) async fn run(&self) {
        let clocks = Dice::new(self.seed, CLOCKS);
        let workers: Vec<Worker<'_>> = (0..self.character.workers)
            .map(|number| {
                let skew = i64::try_from(clocks.below(2 * MOST_SKEW + 1)).expect("small") - 1000;
                Worker::new(self, number, if self.character.skewed { skew } else { 0 })
            })
            .collect();
        let mut lives: Vec<Pin<Box<dyn Future<Output = ()> + '_>>> = Vec::new();
        lives.extend(
            workers.iter().map(|worker| Box::pin(worker.live()) as Pin<Box<dyn Future<Output = ()> + '_>>),
        );
        lives.push(Box::pin(self.sweep()));
        lives.push(Box::pin(self.lose_bodies()));
        self.live_through(lives).await;
        if !self.ledger.is_broken() {
            self.set_faults(Faults::NONE);
            self.stop_object_faults();
            Worker::new(self, CALM, 0).calm_down().await;
        }
    }

    /// Until all have done what they wanted, or something is broken.
    pub(crate) async fn live_through(&self, mut lives: Vec<Pin<Box<dyn Future<Output = ()> + '_>>>) {
        std::future::poll_fn(|context| {
            lives.retain_mut(|life| !self.ledger.is_broken() && life.as_mut().poll(context).is_pending());
            if lives.is_empty() { Poll::Ready(()) } else { Poll::Pending }
        })
        .await;
    }

    pub(crate) fn set_faults(&self, faults: Faults) {
        self.table.set_faults(faults);
    }

    pub(crate) fn stop_object_faults(&self) {
        self.objects.stop_faults();
    }

    /// The table as a worker with this clock has it.
    pub(crate) fn seat(&self, skew: i64) -> Arc<Seat> {
        Arc::new(Seat::new(self.table.clone(), self.clock.ahead_by(skew)))
    }

    /// A body vanishes, or its bytes change.
    pub(crate) async fn break_body(&self, s3_key: &str) {
        self.objects.break_one(s3_key).await;
    }

    pub(crate) fn is_stormy(&self) -> bool {
        self.clock.elapsed() < i64::try_from(self.storm.as_millis()).expect("short")
    }

    pub(crate) async fn sweep(&self) {
        let dice = Dice::new(self.seed, SWEEPER);
        let Some(pause) = self.character.sweep else { return };
        while self.is_stormy() {
            tokio::time::sleep(dice.up_to(pause)).await;
            self.table.inner().sweep().await;
        }
    }

    pub(crate) async fn lose_bodies(&self) {
        let dice = Dice::new(self.seed, MISFORTUNE);
        let Some(pause) = self.character.loss else { return };
        while self.is_stormy() {
            tokio::time::sleep(dice.up_to(pause)).await;
            let served = self.ledger.served_bodies();
            if !served.is_empty() {
                self.break_body(dice.pick::<String>(&served)).await;
            }
        }
    }
}
