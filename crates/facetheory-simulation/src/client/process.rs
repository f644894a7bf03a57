//! A process that serves clients: an engine with its own memory, clock and settings.

use std::sync::Arc;
use std::time::Duration;

use facetheory::protocol::EpochTerms;
use facetheory::{GetResult, Isr, PageStore, Pages, Policy, Render, RenderContext, RenderError, Rendered};

use super::config::{ProcessConfig, TABLE_TIMEOUT};
use crate::checker::READER_MILLIS;
use crate::checker::{Checker, ClientRequest, Invalidation};
use crate::mutant::Mutant;
use crate::mutant_table::HUNG;
use crate::process_table::ProcessTable;
use crate::random::RandomStream;
use crate::world::{SimPage, World};

/// Clocks differ by up to two seconds, so a page rendered that soon after an invalidation counts as rendered before it.
const SKEW_MARGIN: Duration = Duration::from_secs(2);
/// How long engines retain replaced bodies: somewhat longer than readers may need them.
const REPLACED_RETENTION: Duration = Duration::from_millis(READER_MILLIS.unsigned_abs() + 1000);
/// The first random stream of the processes.
const PROCESSES: u64 = 500;

/// A process that serves clients.
pub(super) struct Process<'w> {
    pub(super) number: usize,
    pub(super) config: ProcessConfig,
    pub(super) isr: Isr,
    /// The store of the engine, for invalidations that the engine does not see.
    store: PageStore,
    pub(super) table: Arc<ProcessTable>,
    world: &'w World,
    /// A second engine in the same process, for a mutant.
    second: Option<Isr>,
}

/// The behavior of one render.
#[derive(Clone, Copy, Debug)]
pub(super) struct RenderPlan {
    pub(super) duration: Duration,
    pub(super) fails: bool,
    pub(super) invalidates: bool,
}

impl<'w> Process<'w> {
    pub(super) fn new(world: &'w World, number: usize, config: &ProcessConfig) -> Self {
        let stream = PROCESSES + u64::try_from(number).expect("few");
        let random = Arc::new(RandomStream::new(world.seed, stream));
        let (table, mut config) = (world.process_table(config.skew_millis), config.clone());
        let open = || {
            let (mut epochs, mut lease) = (EpochTerms::default(), world.scenario.protocol.lease.clone());
            epochs.skew = SKEW_MARGIN;
            lease.owner = Some(owner_name(number));
            PageStore::new(table.clone())
                .with_epoch_terms(epochs)
                .with_lease_terms(lease)
                .with_guards(world.scenario.protocol.guards)
                .with_announcements(config.feed.is_some())
                .with_random(random.clone())
        };
        let replaced_retention = match world.mutant {
            Some(Mutant::EarlyDeletion) => Duration::ZERO,
            _ => REPLACED_RETENTION,
        };
        let table_timeout = if world.mutant == Some(Mutant::HungTable) { HUNG } else { TABLE_TIMEOUT };
        let engine = |store, memory| {
            let pages = Pages::new(store, world.bodies.clone()).with_random(random.clone());
            let builder = Isr::builder(pages)
                .memory(memory)
                .metadata_max_age(config.metadata_max_age)
                .replaced_retention(Some(replaced_retention))
                .table_timeout(table_timeout)
                .random(random.clone());
            let builder = match config.feed {
                Some(feed) => builder.feed(feed),
                None => builder,
            };
            match config.deployment {
                Some(id) => builder.deployment(id).build(),
                None => builder.build(),
            }
        };
        let store = open();
        let memory = if world.mutant == Some(Mutant::NoMemory) { 0 } else { config.memory };
        let isr = engine(store.clone(), memory);
        let second = (world.mutant == Some(Mutant::TwoEngines)).then(|| engine(open(), config.memory));
        // This mutant makes the checker expect that every request reads the table.
        if world.mutant == Some(Mutant::UndeclaredMaxAge) {
            config.metadata_max_age = Duration::ZERO;
        }
        Process { number, config, isr, store, table, world, second }
    }

    /// Sends a request and checks its response.
    pub(super) async fn request(&self, page: &SimPage, policy: &Policy, plan: RenderPlan) -> RequestResult {
        let checker = &self.world.checker;
        let request = self.start_request(page, policy);
        let engine = match &self.second {
            Some(second) if checker.now().millis() % 2 == 0 => second,
            _ => &self.isr,
        };
        let mut applied = *policy;
        if self.world.mutant == Some(Mutant::NoStaleLimits) {
            (applied.stale_while_revalidate, applied.stale_if_error) = (None, None);
        }
        if self.world.mutant == Some(Mutant::HungTable) {
            applied.wait = HUNG;
        }
        if self.world.mutant == Some(Mutant::AlwaysStale) {
            applied.revalidate = Duration::ZERO;
        }
        let render = renderer(checker.clone(), self.number, page, plan);
        match engine.get(&page.key, &applied, render).await {
            Ok(GetResult::Page(served)) => {
                checker.response_served(&request, page, &served);
                RequestResult::Page(served.state)
            }
            Ok(GetResult::Bypass(reason)) => {
                checker.response_without_page(&request, page, reason.as_str());
                RequestResult::Bypass
            }
            Err(error) => {
                checker.response_without_page(&request, page, &error.to_string());
                RequestResult::Failed
            }
        }
    }

    fn start_request(&self, page: &SimPage, policy: &Policy) -> ClientRequest {
        let mut request = self.world.checker.request_started(self.number, page);
        request.metadata_max_age = self.config.metadata_max_age;
        request.epochs_max_age = 2 * self.config.metadata_max_age;
        request.limit = self.world.clients.stale_limit();
        request.policy = *policy;
        request
    }

    /// Invalidates a page or a tag through the engine, or directly in the table.
    pub(super) async fn invalidate(&self, page: &SimPage, invalidation: Invalidation, directly: bool) {
        let (checker, store) = (&self.world.checker, &self.store);
        let bypasses_engine = directly || self.world.mutant == Some(Mutant::EngineBypassed);
        let through = (!directly).then_some(self.number);
        let pending = checker.invalidation_started(page, &self.world.pages, &invalidation, through);
        let done = match &invalidation {
            Invalidation::Page(mode) if bypasses_engine => store.invalidate(&page.key, *mode).await,
            Invalidation::Page(mode) => self.isr.invalidate(&page.key, *mode).await,
            Invalidation::Tag(tag) => {
                let tenant = Some(&page.tenant);
                let done = if bypasses_engine {
                    store.invalidate_tag(tag, tenant).await
                } else {
                    self.isr.invalidate_tag(tag, tenant).await
                };
                done.map(|()| facetheory::Invalidated::Stale)
            }
        };
        if !matches!(done, Err(_) | Ok(facetheory::Invalidated::Pinned)) {
            checker.acknowledged_invalidation(pending);
        }
    }
}

/// The result of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum RequestResult {
    Page(facetheory::State),
    Bypass,
    Failed,
}

/// The owner of the leases of a process.
pub(crate) fn owner_name(number: usize) -> String {
    format!("process {number}")
}

/// A renderer whose body contains the input at the time when the render started.
fn renderer(
    checker: Arc<Checker>,
    process: usize,
    page: &SimPage,
    plan: RenderPlan,
) -> impl FnOnce(RenderContext) -> futures_util::future::BoxFuture<'static, Result<Render, RenderError>>
+ Send
+ 'static {
    let (signature, pk) = (page.signature(), page.key.pk().to_owned());
    let tags: Vec<String> = page.tags().iter().map(|tag| tag.as_str().to_owned()).collect();
    move |context: RenderContext| {
        Box::pin(async move {
            let (input, _rendering) = Checker::client_render_started(&checker, process, &pk, context.leased);
            tokio::time::sleep(plan.duration).await;
            if plan.fails {
                return Err("the origin is down".into());
            }
            if plan.invalidates {
                return Ok(Render::Invalidate);
            }
            let mut rendered = Rendered::html(format!("{signature}input {input}"));
            rendered.content.tags = tags;
            Ok(rendered.into())
        })
    }
}
