//! The scenario of a seed: the number of workers, the faults, the timeouts and the mix of actions.
//!
//! Each seed leaves out some faults and actions (swarm testing): this allows sequences of the others that would rarely
//! occur if everything happened at once.

use std::time::Duration;

use facetheory::History;
use facetheory::protocol::{Guards, LeaseTerms, RequestTerms};
use tabletheory::Faults;

use crate::random::RandomStream;

/// How far the clock of a process may be off, in either direction.
const MAX_SKEW_MILLIS: u64 = 1000;

/// An action of a worker.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Action {
    Regenerate,
    Serve,
    Request,
    InvalidateSoft,
    InvalidateHard,
    InvalidateTag,
    RollBack,
    Unpin,
    Gc,
}

/// Everything that a seed decides before its history starts.
#[derive(Debug)]
pub(crate) struct Scenario {
    pub(crate) workers: u64,
    /// The number of pages of each tenant.
    pub(crate) paths: u64,
    actions: Vec<Action>,
    pub(crate) faults: FaultPlan,
    pub(crate) protocol: ProtocolTerms,
    pub(crate) pages: PagePlan,
    /// The longest pause between two actions of a worker.
    pub(crate) pause: Duration,
}

impl Scenario {
    pub(crate) fn of(seed: u64) -> Self {
        let random = RandomStream::new(seed, u64::MAX);
        let mut actions = vec![Action::Regenerate; 2];
        for action in [
            Action::Regenerate,
            Action::Serve,
            Action::Request,
            Action::InvalidateSoft,
            Action::InvalidateHard,
            Action::InvalidateTag,
            Action::RollBack,
            Action::Unpin,
            Action::Gc,
        ] {
            let weight = *random.pick(&[0, 1, 2, 6]);
            actions.extend(std::iter::repeat_n(action, weight));
        }
        let pause = Duration::from_secs(*random.pick(&[1, 3, 10, 20]));
        let (workers, paths) = (random.between(2, 10), *random.pick(&[1, 1, 2, 3]));
        let faults = FaultPlan::draw(&random, pause);
        let protocol = draw_terms(&random);
        Scenario { workers, paths, actions, faults, protocol, pages: PagePlan::draw(&random), pause }
    }

    pub(crate) fn action(&self, random: &RandomStream) -> Action {
        *random.pick(&self.actions)
    }

    /// After this time without faults, every lease, claim and pin has ended by every clock.
    pub(crate) fn quiesce_bound(&self) -> Duration {
        let longest = self.protocol.lease.duration.max(self.protocol.request.in_progress).max(self.pages.pin);
        longest + self.protocol.lease.skew + Duration::from_millis(4 * MAX_SKEW_MILLIS)
    }
}

/// The injected faults.
#[derive(Debug)]
pub(crate) struct FaultPlan {
    pub(crate) table: Faults,
    pub(crate) objects: Faults,
    /// The longest pause between two damaged bodies; `None` if no body is damaged.
    pub(crate) damage_pause: Option<Duration>,
    /// How long faults are injected, in simulated time.
    pub(crate) duration: Duration,
    /// The longest pause between two deletions of expired rows; `None` if they are never deleted.
    pub(crate) sweep_pause: Option<Duration>,
    /// The probability that a worker crashes during an action.
    pub(crate) crash: f64,
    /// Whether the clocks of processes differ.
    pub(crate) skewed: bool,
}

impl FaultPlan {
    fn draw(random: &RandomStream, pause: Duration) -> Self {
        let some = |max: f64| if random.chance(0.6) { random.fraction() * max } else { 0.0 };
        let delays = [Duration::from_millis(20), Duration::from_secs(2), Duration::from_secs(20)];
        FaultPlan {
            // Longer in slow scenarios, so that workers execute a similar number of actions in each.
            duration: (pause * 25).clamp(Duration::from_secs(50), Duration::from_secs(240)),
            table: Faults {
                delay: some(1.0),
                longest_delay: *random.pick(&delays),
                fail: some(0.1),
                lose_response: some(0.15),
                lose_request: some(0.1),
                late: some(0.15),
                conflict: some(0.1),
                throttle: some(0.1),
            },
            objects: Faults {
                delay: some(1.0),
                longest_delay: *random.pick(&delays),
                fail: some(0.15),
                lose_response: some(0.15),
                ..Faults::default()
            },
            damage_pause: random.chance(0.5).then(|| random.seconds(20, 120)),
            sweep_pause: random.chance(0.7).then(|| random.seconds(5, 120)),
            crash: some(0.3),
            skewed: random.chance(0.7),
        }
    }

    /// How far the clock of the next process is ahead, in milliseconds.
    pub(crate) fn draw_skew(&self, random: &RandomStream) -> i64 {
        let max = i64::try_from(MAX_SKEW_MILLIS).expect("small");
        let skew = i64::try_from(random.below(2 * MAX_SKEW_MILLIS + 1)).expect("small") - max;
        if self.skewed { skew } else { 0 }
    }
}

/// The terms of leases, requests and publishes.
#[derive(Debug)]
pub(crate) struct ProtocolTerms {
    pub(crate) lease: LeaseTerms,
    pub(crate) request: RequestTerms,
    pub(crate) guards: Guards,
}

fn draw_terms(random: &RandomStream) -> ProtocolTerms {
    let mut lease = LeaseTerms::lasting(random.seconds(3, 40));
    lease.ttl_buffer = Duration::from_secs(*random.pick(&[0, 30, 3600]));
    lease.skew = Duration::from_secs(*random.pick(&[0, 0, 2]));
    let mut request = RequestTerms::default();
    request.in_progress = random.seconds(5, 200);
    request.ttl = Duration::from_secs(*random.pick(&[60, 300, 86_400]));
    let mut guards = Guards::default();
    guards.not_expired = random.chance(0.8);
    guards.version = random.chance(0.3);
    guards.newer = random.chance(0.2);
    ProtocolTerms { lease, request, guards }
}

/// The settings of pages.
#[derive(Debug)]
pub(crate) struct PagePlan {
    pub(crate) revalidate: Duration,
    /// The longest render, and the longest pin.
    pub(crate) render: Duration,
    pub(crate) pin: Duration,
    /// The histories among which a publish chooses; empty if a page always has the same.
    pub(crate) histories: &'static [History],
    /// How many versions are retained besides the current one.
    pub(crate) retention: usize,
    /// The number of different bodies of a page, small so that some renders are unchanged.
    pub(crate) texts: u64,
}

impl PagePlan {
    fn draw(random: &RandomStream) -> Self {
        PagePlan {
            histories: if random.chance(0.3) { &[History::Latest, History::Versions] } else { &[] },
            revalidate: Duration::from_secs(*random.pick(&[1, 5, 20, 60])),
            render: Duration::from_secs(*random.pick(&[1, 5, 15, 40])),
            pin: random.seconds(1, 120),
            retention: *random.pick(&[0, 0, 1, 3]),
            texts: random.between(1, 5),
        }
    }
}
