//! The simulated deployment of one seed: its stores, its pages and the tasks that use them.

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use facetheory::testing::RuntimeClock;
use facetheory::{Bodies, History, KeyScheme, PageKey, PageStore, Pages, Quota, Tag, Tenant};
use tabletheory::{Faults, Faulty, Key, MemoryTable};

use crate::Settings;
use crate::checker::Checker;
use crate::client::ClientConfig;
use crate::faulty_objects::FaultyObjects;
use crate::mutant::Mutant;
use crate::mutant_table::MutantTable;
use crate::process_table::{ProcessTable, process_table};
use crate::random::RandomStream;
use crate::recorded_table::{RecordedTable, recorded_table};
use crate::scenario::Scenario;
use crate::worker::Worker;

/// The cache keys of both tenants are the same.
const TENANTS: [&str; 2] = ["red", "blue"];

/// The longest pause between two runs of eviction, and how long a run may take.
const EVICTION_PAUSE: Duration = Duration::from_secs(20);
const EVICTION_RUN: Duration = Duration::from_secs(60);

/// The longest pause between two damaged rows.
const ROW_DAMAGE_PAUSE: Duration = Duration::from_secs(10);

/// Random streams that do not belong to a worker.
#[derive(Clone, Copy)]
enum Stream {
    Table = 1000,
    Objects,
    Damage,
    Sweeper,
    Clocks,
    Evictor,
    DamagedRows,
    /// The worker that checks recovery after the faults have ended.
    Quiesce,
}

/// An activity that runs until it is done or an invariant is violated.
pub(crate) type Task<'a> = Pin<Box<dyn Future<Output = ()> + 'a>>;

/// A page of one tenant.
#[derive(Debug)]
pub(crate) struct SimPage {
    pub(crate) tenant: Tenant,
    pub(crate) key: PageKey,
    pub(crate) history: History,
    path: String,
}

impl SimPage {
    /// The prefix of every body of this page, by which a body of another page is recognized.
    pub(crate) fn signature(&self) -> String {
        format!("{}|{}|", self.tenant, self.path)
    }

    /// The tags of the page: one that all pages share, and one of its own.
    pub(crate) fn tags(&self) -> [Tag; 2] {
        ["all", self.path.as_str()].map(|name| Tag::new(name).expect("a tag"))
    }
}

impl fmt::Display for SimPage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} of {}", self.path, self.tenant)
    }
}

/// The simulated deployment of one seed.
#[derive(Debug)]
pub(crate) struct World {
    pub(crate) seed: u64,
    pub(crate) mutant: Option<Mutant>,
    pub(crate) scenario: Scenario,
    pub(crate) checker: Arc<Checker>,
    /// How clients and the processes that serve them behave.
    pub(crate) clients: ClientConfig,
    pub(crate) pages: Vec<SimPage>,
    pub(crate) bodies: Bodies,
    /// How long faults are injected, in simulated time.
    fault_duration: Duration,
    clock: RuntimeClock,
    table: Arc<Faulty<Arc<RecordedTable>>>,
    objects: FaultyObjects,
}

impl World {
    pub(crate) fn new(
        seed: u64,
        settings: &Settings,
        checker: Arc<Checker>,
        clock: RuntimeClock,
        scenario: Scenario,
    ) -> Self {
        let (mutant, clients) = (settings.mutant, ClientConfig::of(seed, &scenario));
        let fault_duration = if settings.clients { clients.fault_duration } else { scenario.faults.duration };
        let rows = MutantTable::new(MemoryTable::with_clock(Arc::new(clock)), mutant);
        let recorded = Arc::new(recorded_table(rows, checker.clone()));
        let faults = RandomStream::new(seed, Stream::Table as u64).below(u64::MAX);
        let table = Arc::new(Faulty::new(recorded, faults, scenario.faults.table));
        let objects = FaultyObjects::new(
            checker.clone(),
            RandomStream::new(seed, Stream::Objects as u64),
            scenario.faults.objects,
            mutant,
        );
        let pages = TENANTS.iter().flat_map(|tenant| {
            (0..scenario.paths).map(move |path| {
                let (tenant, path) = (Tenant::new(*tenant).expect("a tenant"), format!("/{path}"));
                let owner = Some(&tenant).filter(|_| mutant != Some(Mutant::SharedPartition));
                let key = KeyScheme::Hashed.page(owner, path.as_str()).expect("a page");
                let history = if path.ends_with('1') { History::Latest } else { History::Versions };
                SimPage { tenant, key, history, path }
            })
        });
        let pages = pages.collect();
        let bodies = Bodies::over(Arc::new(objects.clone()));
        World {
            seed,
            mutant,
            scenario,
            clients,
            checker,
            pages,
            bodies,
            fault_duration,
            clock,
            table,
            objects,
        }
    }

    /// Runs the workers under faults, then checks recovery without faults. Stops at the first violation.
    pub(crate) async fn run_workers(&self) {
        let clocks = RandomStream::new(self.seed, Stream::Clocks as u64);
        let workers: Vec<Worker<'_>> = (0..self.scenario.workers)
            .map(|number| Worker::new(self, number, self.scenario.faults.draw_skew(&clocks)))
            .collect();
        let mut tasks: Vec<Task<'_>> = Vec::new();
        tasks.extend(workers.iter().map(|worker| Box::pin(worker.run()) as Task<'_>));
        tasks.push(Box::pin(self.sweep()));
        tasks.push(Box::pin(self.damage_bodies()));
        self.run_tasks(tasks).await;
        if !self.checker.is_broken() {
            self.set_faults(Faults::default());
            self.stop_object_faults();
            Worker::new(self, Stream::Quiesce as u64, 0).quiesce().await;
        }
    }

    /// Polls the tasks until all have finished or an invariant is violated.
    pub(crate) async fn run_tasks(&self, mut tasks: Vec<Task<'_>>) {
        std::future::poll_fn(|context| {
            tasks.retain_mut(|task| !self.checker.is_broken() && task.as_mut().poll(context).is_pending());
            if tasks.is_empty() { Poll::Ready(()) } else { Poll::Pending }
        })
        .await;
    }

    pub(crate) fn set_faults(&self, faults: Faults) {
        self.table.set_faults(faults);
    }

    pub(crate) fn stop_object_faults(&self) {
        self.objects.stop_faults();
    }

    /// The table as a process sees it whose clock is ahead by `skew` milliseconds.
    pub(crate) fn process_table(&self, skew: i64) -> Arc<ProcessTable> {
        Arc::new(process_table(self.table.clone(), self.clock.ahead_by(skew)))
    }

    /// Deletes a body or changes its bytes.
    pub(crate) async fn damage_body(&self, s3_key: &str) {
        self.objects.damage_one(s3_key).await;
    }

    pub(crate) fn faults_active(&self) -> bool {
        self.clock.elapsed_millis() < i64::try_from(self.fault_duration.as_millis()).expect("short")
    }

    /// Deletes expired rows from time to time.
    pub(crate) async fn sweep(&self) {
        let random = RandomStream::new(self.seed, Stream::Sweeper as u64);
        let Some(pause) = self.scenario.faults.sweep_pause else { return };
        while self.faults_active() {
            tokio::time::sleep(random.up_to(pause)).await;
            self.table.inner().sweep_expired().await;
        }
    }

    /// Evicts the least recently used pages from time to time, in some histories.
    pub(crate) async fn evict_pages(&self) {
        let random = RandomStream::new(self.seed, Stream::Evictor as u64);
        if !random.chance(0.4) {
            return;
        }
        let mut quota = Quota::default();
        quota.max_pages = Some(random.between(1, self.pages.len() as u64));
        let table = self.process_table(self.scenario.faults.draw_skew(&random));
        let mut lease = self.scenario.protocol.lease.clone();
        lease.owner = Some("evictor".into());
        let tokens = RandomStream::new(self.seed, Stream::Evictor as u64 + random.between(10_000, 20_000));
        let store = PageStore::new(table).with_lease_terms(lease).with_random(Arc::new(tokens));
        let pages = Pages::new(store, self.bodies.clone());
        while self.faults_active() {
            tokio::time::sleep(random.up_to(EVICTION_PAUSE)).await;
            // A run that fails is tried again.
            drop(pages.evict(&quota, || None, tokio::time::sleep(EVICTION_RUN)).await);
        }
    }

    /// Damages rows of each kind from time to time, in some histories.
    pub(crate) async fn damage_rows(&self) {
        const KINDS: [&str; 4] = ["META", "LOCK", "TAG", "VER#"];
        let random = RandomStream::new(self.seed, Stream::DamagedRows as u64);
        if !random.chance(0.4) {
            return;
        }
        while self.faults_active() {
            tokio::time::sleep(random.up_to(ROW_DAMAGE_PAUSE)).await;
            let rows = self.checker.intact_rows(random.pick::<&str>(&KINDS));
            if !rows.is_empty() {
                self.table.inner().damage(random.pick::<Key>(&rows)).await;
            }
        }
    }

    /// Damages bodies that are served from time to time.
    pub(crate) async fn damage_bodies(&self) {
        let random = RandomStream::new(self.seed, Stream::Damage as u64);
        let Some(pause) = self.scenario.faults.damage_pause else { return };
        while self.faults_active() {
            tokio::time::sleep(random.up_to(pause)).await;
            let served = self.checker.served_bodies();
            if !served.is_empty() {
                self.damage_body(random.pick::<String>(&served)).await;
            }
        }
    }
}
