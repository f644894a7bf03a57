//! A worker: single steps of the protocol, executed by production code with its own clock and random draws.

use std::cell::Cell;
use std::sync::Arc;
use std::time::Duration;

use facetheory::protocol::{Begin, Content, EpochTerms, Freshness, Generation, Meta, Published};
use facetheory::{
    History, Invalidated, InvalidationMode, Kind, Outcome, PageStore, Pages, Policy, RegenerateReason,
    Rendered, Retention, Tag,
};

use crate::mutant::Mutant;
use crate::process_table::ProcessTable;
use crate::random::RandomStream;
use crate::scenario::Action;
use crate::stats::Counter;
use crate::world::{SimPage, World};

/// Clocks differ by up to two seconds, so a page rendered that soon after an invalidation counts as rendered before it.
const SKEW_MARGIN: Duration = Duration::from_secs(2);
/// A worker that crashes has received fewer responses than this.
const MAX_RESPONSES: u64 = 6;
/// The number of different requests per page.
pub(crate) const REQUESTS: u64 = 4;
/// A rollback chooses among this many of the newest versions.
const VERSIONS: usize = 8;

pub(crate) struct Worker<'w> {
    pub(crate) world: &'w World,
    pub(crate) random: Arc<RandomStream>,
    number: u64,
    table: Arc<ProcessTable>,
    actions: Cell<u64>,
}

/// One action of a worker. Its name is the owner of its leases, so that the checker can attribute them.
pub(crate) struct Operation {
    pub(crate) name: String,
    pub(crate) pages: Pages,
}

impl<'w> Worker<'w> {
    pub(crate) fn new(world: &'w World, number: u64, skew: i64) -> Self {
        let random = Arc::new(RandomStream::new(world.seed, number));
        Worker { world, random, number, table: world.process_table(skew), actions: Cell::new(0) }
    }

    /// Executes random actions while faults are injected, and crashes during some.
    pub(crate) async fn run(&self) {
        let scenario = &self.world.scenario;
        while self.world.faults_active() {
            tokio::time::sleep(self.random.up_to(scenario.pause)).await;
            let (page, action) = (self.random.pick(&self.world.pages), scenario.action(&self.random));
            let crashed = if !self.random.chance(scenario.faults.crash) {
                self.act(page, action).await;
                false
            } else if self.random.chance(0.5) {
                self.table.crash_after(self.random.below(MAX_RESPONSES), self.act(page, action)).await
            } else {
                let until_crash = self.random.up_to(scenario.pages.render);
                tokio::time::timeout(until_crash, self.act(page, action)).await.is_err()
            };
            if crashed {
                let mut checker = self.world.checker.state();
                checker.count(Counter::Crashed);
                checker.note(format!("worker {} crashed in {action:?} of {page}", self.number));
            }
        }
    }

    async fn act(&self, page: &SimPage, action: Action) {
        match action {
            Action::Regenerate => drop(self.regenerate(page, None, self.history(page)).await),
            Action::Serve => self.serve(page).await,
            Action::Request => self.request(page).await,
            Action::InvalidateSoft => self.invalidate(page, InvalidationMode::Soft).await,
            Action::InvalidateHard => self.invalidate(page, InvalidationMode::Hard).await,
            Action::InvalidateTag => self.invalidate_tag(page).await,
            Action::RollBack => self.roll_back(page).await,
            Action::Unpin => drop(self.operation().pages.store().unpin(&page.key).await),
            Action::Gc => self.gc(page).await,
        }
    }

    pub(crate) fn operation(&self) -> Operation {
        let (world, action) = (self.world, self.actions.get() + 1);
        self.actions.set(action);
        let name = format!("worker {} action {action}", self.number);
        let scenario = &world.scenario;
        let mut request = scenario.protocol.request.clone();
        if world.mutant == Some(Mutant::EndlessClaim) {
            request.in_progress = Duration::from_secs(86_400);
        }
        // Epochs are read each time: a cached epoch may be outdated, which the checker does not allow.
        let mut always_read = EpochTerms::default();
        (always_read.max_age, always_read.skew) = (Duration::ZERO, SKEW_MARGIN);
        let mut lease = scenario.protocol.lease.clone();
        lease.owner = Some(name.clone());
        let store = PageStore::new(self.table.clone())
            .with_epoch_terms(always_read)
            .with_lease_terms(lease)
            .with_request_terms(request)
            .with_guards(scenario.protocol.guards)
            .with_random(self.random.clone());
        Operation { name, pages: Pages::new(store, world.bodies.clone()).with_random(self.random.clone()) }
    }

    fn history(&self, page: &SimPage) -> History {
        let histories = self.world.scenario.pages.histories;
        if histories.is_empty() { page.history } else { *self.random.pick(histories) }
    }

    /// One of few bodies, so that some renders are unchanged.
    fn body(&self, page: &SimPage) -> String {
        format!("{}text {}", page.signature(), self.random.below(self.world.scenario.pages.texts))
    }

    /// Regenerates a page: because its body is damaged if that is given, else because it is stale.
    pub(crate) async fn regenerate(
        &self,
        page: &SimPage,
        damaged: Option<&str>,
        history: History,
    ) -> facetheory::Result<Outcome> {
        let (checker, scenario, operation) = (&self.world.checker, &self.world.scenario, self.operation());
        let policy = Policy::every(scenario.pages.revalidate).with_history(history);
        let (duration, fails) =
            (self.random.up_to(scenario.pages.render), self.world.faults_active() && self.random.chance(0.1));
        let render = |_| {
            checker.render_started(&operation.name);
            async move {
                tokio::time::sleep(duration).await;
                assert!(self.world.mutant != Some(Mutant::Panics), "a mutant panics");
                if fails {
                    return Err("the origin is down".into());
                }
                let mut rendered = Rendered::html(self.body(page));
                rendered.content.tags = page.tags().iter().map(|tag| tag.as_str().to_owned()).collect();
                Ok(rendered)
            }
        };
        let reason = damaged
            .map_or(RegenerateReason::Stale, |s3_key| RegenerateReason::BodyMissing(s3_key.to_owned()));
        let outcome = operation.pages.regenerate_for(&page.key, &policy, &reason, render).await;
        match &outcome {
            Ok(Outcome::Published(_) | Outcome::Unchanged(_)) => checker.reported_published(&operation.name),
            // Whether these have published is unknown, and they say so.
            Ok(Outcome::Superseded) => {}
            Err(error) if error.kind() == Kind::Unknown => {}
            Ok(_) | Err(_) => {
                checker.reported_not_published(&operation.name);
            }
        }
        outcome
    }

    /// Reads a page as a server does: rows, epochs, body. Regenerates it if it is stale, and replaces a damaged body.
    pub(crate) async fn serve(&self, page: &SimPage) {
        let Some(meta) = self.lookup(page).await else { return };
        let Some(meta) = meta else {
            drop(self.regenerate(page, None, self.history(page)).await);
            return;
        };
        let digest = meta.generation.content.digest.as_deref();
        match self.world.bodies.get(&meta.generation.s3_key, digest).await {
            Err(_) => {}
            Ok(Some(body)) => self.world.checker.body_read(page, &meta, &body),
            Ok(None) => {
                if self.world.checker.body_missing(page, &meta) && self.world.mutant != Some(Mutant::NoRepair)
                {
                    self.repair(page, &meta).await;
                }
            }
        }
        if meta.freshness(self.operation().pages.store().now()) != Freshness::Fresh {
            drop(self.regenerate(page, None, self.history(page)).await);
        }
    }

    /// Reads `META` and checks its freshness. `None` if the table fails.
    pub(crate) async fn lookup(&self, page: &SimPage) -> Option<Option<Meta>> {
        let (operation, tags) = (self.operation(), page.tags());
        let baseline = self.world.checker.read_started(page, &tags);
        let store = operation.pages.store();
        let meta = store.lookup(&page.key).await.ok()?.meta;
        let freshness = match &meta {
            None => None,
            Some(meta) => {
                let tags: Vec<Tag> = meta.generation.content.tags.iter().flat_map(Tag::new).collect();
                let epochs = store.epochs(&tags, Some(&page.tenant)).await.ok()?;
                Some(meta.freshness_with(&epochs, store.now(), SKEW_MARGIN))
            }
        };
        self.world.checker.row_read(page, &baseline, meta.as_ref(), freshness);
        Some(meta)
    }

    pub(crate) async fn repair(&self, page: &SimPage, meta: &Meta) {
        let outcome = self.regenerate(page, Some(&meta.generation.s3_key), self.history(page)).await;
        if let Ok(Outcome::Published(_)) = outcome {
            self.world.checker.state().count(Counter::Repaired);
        }
    }

    /// Delivers one of a few requests, sometimes with another hash.
    async fn request(&self, page: &SimPage) {
        let key = format!("order-{}", self.random.below(REQUESTS));
        let hash = if self.random.chance(0.2) { "another hash" } else { "hash" };
        drop(self.deliver_request(page, &key, hash).await);
    }

    /// Delivers a request, and executes it unless it is done or in progress.
    pub(crate) async fn deliver_request(
        &self,
        page: &SimPage,
        key: &str,
        hash: &str,
    ) -> facetheory::Result<Begin> {
        let (checker, scenario, operation) = (&self.world.checker, &self.world.scenario, self.operation());
        let store = operation.pages.store();
        let sent = if self.world.mutant == Some(Mutant::HashIgnored) { "hash" } else { hash };
        let delivered = checker.request_delivered(&page.key, key);
        let begin = store.begin_request(&page.key, key, sent).await?;
        checker.delivery_returned(&delivered, hash, &begin);
        let Begin::Started { lease, claim } = &begin else { return Ok(begin) };
        checker.render_started(&operation.name);
        let started = store.now();
        let seen = store.lookup(&page.key).await?.meta;
        if self.world.faults_active() {
            tokio::time::sleep(self.random.up_to(scenario.pages.render)).await;
            if self.random.chance(0.25) {
                store.fail_request(lease, claim).await?;
                checker.reported_not_published(&operation.name);
                return Ok(begin);
            }
        }
        let revalidate = i64::try_from(scenario.pages.revalidate.as_secs()).expect("short");
        let mut content = Content::default();
        content.tags = page.tags().iter().map(|tag| tag.as_str().to_owned()).collect();
        let body = self.body(page);
        let stored = self.world.bodies.put(&page.key, started, body.into(), &content, &*self.random).await?;
        content.digest = Some(stored.digest);
        let mut rendered = Generation::new(stored.s3_key, started.seconds(), revalidate);
        rendered.content = content;
        let published = store.publish(lease, &rendered, seen.as_ref(), self.history(page), Some(claim)).await;
        match &published {
            Ok(Published::Done) => checker.reported_published(&operation.name),
            Ok(Published::Superseded) => {}
            Err(error) if error.kind() == Kind::Unknown => {}
            Ok(Published::Lost) | Err(_) => checker.reported_not_published(&operation.name),
        }
        published.map(|_| begin)
    }

    async fn invalidate(&self, page: &SimPage, mode: InvalidationMode) {
        let requested = self.world.checker.now();
        let done = self.operation().pages.store().invalidate(&page.key, mode).await;
        if let Ok(Invalidated::Stale | Invalidated::Absent) = done {
            self.world.checker.reported_invalidated(&page.key, mode, requested);
        }
    }

    async fn invalidate_tag(&self, page: &SimPage) {
        let tags = page.tags();
        let (requested, tag) = (self.world.checker.now(), self.random.pick(&tags));
        if self.operation().pages.store().invalidate_tag(tag, Some(&page.tenant)).await.is_ok() {
            self.world.checker.reported_tag_invalidated(page, tag, requested);
        }
    }

    async fn roll_back(&self, page: &SimPage) {
        let operation = self.operation();
        let Ok(versions) = operation.pages.store().versions(&page.key, VERSIONS).await else { return };
        if versions.is_empty() {
            return;
        }
        // The oldest versions are those that gc deletes.
        let (sk, _) =
            if self.random.chance(0.5) { &versions[versions.len() - 1] } else { self.random.pick(&versions) };
        let pin = if self.random.chance(0.3) {
            Duration::ZERO
        } else {
            self.random.up_to(self.world.scenario.pages.pin)
        };
        drop(operation.pages.store().roll_back(&page.key, sk, pin).await);
    }

    async fn gc(&self, page: &SimPage) {
        let (world, operation) = (self.world, self.operation());
        let store = operation.pages.store();
        let versions = world.scenario.pages.retention;
        let versions =
            if world.mutant == Some(Mutant::GcKeepsTooFew) { versions.saturating_sub(1) } else { versions };
        let deleted = store.gc_versions(&page.key, Retention::newest(versions)).await;
        let mut bodies = deleted.unwrap_or_default();
        if world.mutant == Some(Mutant::GcDeletesCurrent) {
            let served = store.lookup(&page.key).await.ok().and_then(|view| view.meta);
            bodies.extend(served.map(|meta| meta.generation.s3_key));
        }
        for s3_key in bodies {
            // A body that could not be deleted is left to the gc of orphans.
            drop(world.bodies.delete(&s3_key).await);
        }
    }
}
