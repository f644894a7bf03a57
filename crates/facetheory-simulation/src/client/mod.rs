//! Client histories: several processes serve random requests from one table, while operators invalidate pages.

mod config;
mod process;
mod quiesce;

use std::time::Duration;

use tabletheory::Faults;

pub(crate) use self::config::ClientConfig;

use self::config::OperatorAction;
pub(crate) use self::process::owner_name;
use self::process::{Process, RenderPlan};
use crate::checker::Invalidation;
use crate::random::RandomStream;
use crate::violation::Invariant;
use crate::world::{Task, World};

/// Random streams of the tasks that are not processes.
const CLIENTS: u64 = 600;
const OPERATORS: u64 = 700;
const OUTAGES: u64 = 800;
/// A rollback chooses among this many of the newest versions.
const VERSIONS: usize = 8;

impl World {
    /// Serves clients under faults, then checks recovery without faults. Stops at the first violation.
    pub(crate) async fn run_clients(&self) {
        let configs = self.clients.processes.iter().enumerate();
        let processes: Vec<Process<'_>> =
            configs.map(|(number, config)| Process::new(self, number, config)).collect();
        let mut tasks: Vec<Task<'_>> = Vec::new();
        for number in 0..self.clients.load.clients {
            tasks.push(Box::pin(self.client(number, &processes)));
        }
        for number in 0..self.clients.operators.count {
            tasks.push(Box::pin(self.operator(number, &processes)));
        }
        tasks.push(Box::pin(self.outages()));
        tasks.push(Box::pin(self.sweep()));
        tasks.push(Box::pin(self.damage_bodies()));
        tasks.push(Box::pin(self.evict_pages()));
        tasks.push(Box::pin(self.damage_rows()));
        self.run_tasks(tasks).await;
        if !self.checker.is_broken() {
            self.quiesce_clients(&processes).await;
        }
    }

    async fn client(&self, number: u64, processes: &[Process<'_>]) {
        let (random, clients) = (RandomStream::new(self.seed, CLIENTS + number), &self.clients);
        let response_bound = clients.response_bound(&self.scenario);
        while self.faults_active() {
            tokio::time::sleep(random.up_to(clients.load.pause)).await;
            let (process, page) = (random.pick(processes), random.pick(&self.pages));
            let plan = RenderPlan {
                duration: random.up_to(clients.render.longest),
                fails: random.chance(clients.render.fails),
                invalidates: random.chance(clients.render.invalidates),
            };
            let policy = clients.policy(page.history);
            let request = process.request(page, &policy, plan);
            if random.chance(clients.load.disconnects) {
                drop(tokio::time::timeout(random.up_to(Duration::from_secs(5)), request).await);
                continue;
            }
            let in_time = tokio::time::timeout(response_bound, request).await.is_ok();
            self.checker.state().ensure(in_time, Invariant::RespondsInTime, || {
                format!(
                    "a request for {page} in process {} took longer than {response_bound:?}",
                    process.number
                )
            });
        }
    }

    async fn operator(&self, number: u64, processes: &[Process<'_>]) {
        let (random, clients) = (RandomStream::new(self.seed, OPERATORS + number), &self.clients);
        while self.faults_active() {
            tokio::time::sleep(random.up_to(clients.operators.pause)).await;
            let (process, page) = (random.pick(processes), random.pick(&self.pages));
            let directly = random.chance(0.3);
            match clients.operators.action(&random) {
                OperatorAction::Invalidate(mode) => {
                    process.invalidate(page, Invalidation::Page(mode), directly).await;
                }
                OperatorAction::InvalidateTag => {
                    let tag = random.pick(&page.tags()).clone();
                    process.invalidate(page, Invalidation::Tag(tag), directly).await;
                }
                OperatorAction::RollBack => {
                    let pin = random.up_to(self.scenario.pages.pin);
                    let pin = if random.chance(0.3) { Duration::ZERO } else { pin };
                    let versions = process.isr.versions(&page.key, VERSIONS).await;
                    let Some((sk, _)) = versions.ok().and_then(|mut all| {
                        let index = random.below(all.len() as u64);
                        (!all.is_empty()).then(|| all.swap_remove(usize::try_from(index).expect("few")))
                    }) else {
                        continue;
                    };
                    drop(process.isr.roll_back(&page.key, &sk, pin).await);
                }
                OperatorAction::Unpin => drop(process.isr.unpin(&page.key).await),
                OperatorAction::Edit => self.checker.input_changed(page.key.pk()),
            }
        }
    }

    /// Makes every call to the table fail for a while, from time to time.
    async fn outages(&self) {
        let random = RandomStream::new(self.seed, OUTAGES);
        let Some(longest) = self.clients.outage else { return };
        while self.faults_active() {
            tokio::time::sleep(random.up_to(2 * longest)).await;
            self.set_faults(Faults { fail: 1.0, ..self.scenario.faults.table });
            tokio::time::sleep(random.up_to(longest)).await;
            self.set_faults(self.scenario.faults.table);
        }
    }
}
