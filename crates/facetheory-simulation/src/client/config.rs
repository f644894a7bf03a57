//! The part of a scenario that concerns clients: the processes that serve them, their policy, and the load.

use std::time::Duration;

use facetheory::{Contention, Feed, History, InvalidationMode, Mode, OtherDeployment, Policy};

use crate::random::RandomStream;
use crate::scenario::Scenario;

/// The random stream of this configuration.
const CONFIG: u64 = u64::MAX - 1;
/// The random stream that decides whether processes rely on the change feed.
const FEED: u64 = u64::MAX - 2;
/// The timeout of a table lookup.
pub(crate) const TABLE_TIMEOUT: Duration = Duration::from_secs(2);
/// The longest backoff after failed renders.
pub(super) const MAX_BACKOFF: Duration = Duration::from_secs(60);

/// An action of an operator.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum OperatorAction {
    Invalidate(InvalidationMode),
    InvalidateTag,
    RollBack,
    Unpin,
    /// The content of a page changes without an invalidation.
    Edit,
}

/// The settings of one process.
#[derive(Clone, Debug)]
pub(crate) struct ProcessConfig {
    /// How far its clock is ahead.
    pub(super) skew_millis: i64,
    /// How long it may use what it read of `META`, and of epochs.
    pub(super) metadata_max_age: Duration,
    /// The size of the memory tier in bytes: plenty or none, since eviction depends on more than the seed.
    pub(super) memory: u64,
    /// Whether it relies on the change feed. `None` if no process of the history appends to it.
    pub(super) feed: Option<Feed>,
    pub(super) deployment: Option<&'static str>,
}

/// Everything that a seed decides about its clients before its history starts.
#[derive(Debug)]
pub(crate) struct ClientConfig {
    pub(super) policy: Policy,
    pub(super) processes: Vec<ProcessConfig>,
    pub(super) load: ClientLoad,
    pub(super) render: RenderConfig,
    /// The longest outage of the table; `None` if there are none.
    pub(super) outage: Option<Duration>,
    pub(super) operators: OperatorLoad,
    pub(crate) fault_duration: Duration,
}

impl ClientConfig {
    pub(crate) fn of(seed: u64, scenario: &Scenario) -> Self {
        const MEMORY: u64 = 64 * 1024 * 1024;
        let random = RandomStream::new(seed, CONFIG);
        let seconds = |choices: &[u64]| Duration::from_secs(*random.pick(choices));
        let limit = |choices: &[Option<u64>]| random.pick(choices).map(Duration::from_secs);
        let soft = OperatorAction::Invalidate(InvalidationMode::Soft);
        let mut actions = vec![soft];
        for action in [
            soft,
            OperatorAction::Invalidate(InvalidationMode::Hard),
            OperatorAction::InvalidateTag,
            OperatorAction::RollBack,
            OperatorAction::Unpin,
            OperatorAction::Edit,
        ] {
            actions.extend(std::iter::repeat_n(action, *random.pick(&[0, 1, 2, 6])));
        }
        let deployments: &[Option<&'static str>] =
            if random.chance(0.2) { &[Some("old"), Some("new")] } else { &[None] };
        let feeds = RandomStream::new(seed, FEED);
        let with_feed = feeds.chance(0.5);
        let processes = (0..random.between(1, 4)).map(|_| {
            let skew_millis = scenario.faults.draw_skew(&random);
            ProcessConfig {
                skew_millis,
                metadata_max_age: seconds(&[0, 1]),
                memory: *random.pick(&[MEMORY, MEMORY, MEMORY, 0]),
                feed: with_feed.then(|| *feeds.pick(&[Feed::Exclusive, Feed::Exclusive, Feed::Mixed])),
                deployment: *random.pick(deployments),
            }
        });
        let processes = processes.collect();
        let mut policy = Policy::every(scenario.pages.revalidate);
        policy.mode = *random.pick(&[Mode::Swr, Mode::Swr, Mode::Blocking]);
        policy.stale_while_revalidate = limit(&[None, Some(0), Some(5), Some(30)]);
        policy.stale_if_error = limit(&[None, Some(0), Some(10), Some(60)]);
        policy.contention = *random.pick(&[Contention::Wait, Contention::ServeStale]);
        policy.wait = seconds(&[1, 5, 10]);
        policy.render_timeout = seconds(&[5, 20, 60]);
        policy.backoff = seconds(&[1, 10]);
        policy.early_refresh = random.chance(0.3).then_some(1.0);
        policy.other_deployment = *random.pick(&[OtherDeployment::Stale, OtherDeployment::Missing]);
        let (clients, count) = (random.between(2, 8), random.between(1, 3));
        let pause = Duration::from_millis(*random.pick(&[500, 2000, 5000]));
        let operators = OperatorLoad { count, pause: seconds(&[2, 5, 20]), actions };
        let render = RenderConfig {
            longest: Duration::from_millis(*random.pick(&[50, 1000, 4000, 15_000])),
            fails: *random.pick(&[0.0, 0.1, 0.4]),
            invalidates: *random.pick(&[0.0, 0.0, 0.1]),
        };
        let load = ClientLoad { clients, pause, disconnects: *random.pick(&[0.0, 0.2]) };
        let outage = random.chance(0.3).then(|| seconds(&[2, 10, 30]));
        ClientConfig {
            processes,
            policy,
            load,
            operators,
            render,
            outage,
            fault_duration: seconds(&[20, 40, 80]),
        }
    }

    /// The policy of a page.
    pub(super) fn policy(&self, history: History) -> Policy {
        self.policy.with_history(history)
    }

    /// How long a page may be served after it went stale; `None` if there is no limit.
    pub(super) fn stale_limit(&self) -> Option<Duration> {
        let while_revalidating = match self.policy.mode {
            Mode::Blocking => Some(Duration::ZERO),
            _ => self.policy.stale_while_revalidate,
        };
        Some(while_revalidating?.max(self.policy.stale_if_error?))
    }

    /// Every request gets a response within this time, however slow the stores are.
    pub(super) fn response_bound(&self, scenario: &Scenario) -> Duration {
        /// How often a request starts again because the page that it waited for was invalidated meanwhile.
        const ROUNDS: u32 = 3;
        /// The most calls to the table, including retries, that one regeneration makes in sequence.
        const CALLS: u32 = 16;
        /// The most calls to the body store, including retries, that one regeneration makes in sequence.
        const BODY_CALLS: u32 = 8;
        let stores =
            CALLS * scenario.faults.table.longest_delay + BODY_CALLS * scenario.faults.objects.longest_delay;
        ROUNDS * (2 * TABLE_TIMEOUT + self.policy.wait + self.policy.render_timeout + stores)
    }
}

/// The load of clients.
#[derive(Debug)]
pub(super) struct ClientLoad {
    pub(super) clients: u64,
    /// The longest pause between two requests of a client.
    pub(super) pause: Duration,
    /// The probability that a client disconnects before it gets a response.
    pub(super) disconnects: f64,
}

/// The load of operators.
#[derive(Debug)]
pub(super) struct OperatorLoad {
    pub(super) count: u64,
    /// The longest pause between two actions of an operator.
    pub(super) pause: Duration,
    actions: Vec<OperatorAction>,
}

impl OperatorLoad {
    pub(super) fn action(&self, random: &RandomStream) -> OperatorAction {
        *random.pick(&self.actions)
    }
}

/// The behavior of renders.
#[derive(Debug)]
pub(super) struct RenderConfig {
    pub(super) longest: Duration,
    /// The probability that a render fails.
    pub(super) fails: f64,
    /// The probability that a render invalidates its page.
    pub(super) invalidates: f64,
}
