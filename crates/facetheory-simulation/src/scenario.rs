//! The scenario of a seed: the number of workers, the faults, the timeouts and the mix of actions.
//!
//! Each seed leaves out some faults and actions (swarm testing): this allows sequences of the others that would rarely
//! occur if everything happened at once.

use std::time::Duration;

use facetheory::protocol::{Guards, LeaseTerms, RequestTerms};
use tabletheory::Faults;

use crate::faulty_objects::ObjectFaults;
use crate::random::RandomStream;

/// How far the clock of a process may be off, in either direction.
pub(crate) const MAX_SKEW_MILLIS: u64 = 1000;

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
    /// How long faults are injected, in simulated time.
    pub(crate) fault_duration: Duration,
    /// The number of pages of each tenant.
    pub(crate) paths: u64,
    pub(crate) faults: Faults,
    pub(crate) object_faults: ObjectFaults,
    /// The longest pause between two damaged bodies; `None` if no body is damaged.
    pub(crate) loss: Option<Duration>,
    /// The longest pause between two deletions of expired rows; `None` if they are never deleted.
    pub(crate) sweep: Option<Duration>,
    /// The probability that a worker crashes during an action.
    pub(crate) crash: f64,
    pub(crate) skewed: bool,
    pub(crate) lease: LeaseTerms,
    pub(crate) request: RequestTerms,
    pub(crate) guards: Guards,
    /// Whether publishes of one page choose at random between history and no history.
    pub(crate) mixed: bool,
    pub(crate) revalidate: Duration,
    /// The longest render, the longest pause between two actions, and the longest pin.
    pub(crate) render: Duration,
    pub(crate) pause: Duration,
    pub(crate) pin: Duration,
    /// How many versions are retained besides the current one.
    pub(crate) retention: usize,
    /// The number of different bodies of a page, small so that some renders are unchanged.
    pub(crate) texts: u64,
    actions: Vec<Action>,
}

impl Scenario {
    pub(crate) fn of(seed: u64) -> Self {
        let random = RandomStream::new(seed, u64::MAX);
        let seconds = |first, last| Duration::from_secs(random.between(first, last));
        let some = |max: f64| if random.chance(0.6) { random.fraction() * max } else { 0.0 };
        let delays = [Duration::from_millis(20), Duration::from_secs(2), Duration::from_secs(20)];
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
        // The fault phase is longer in slow scenarios, so that workers execute a similar number of actions in each.
        let pause = Duration::from_secs(*random.pick(&[1, 3, 10, 20]));
        Scenario {
            fault_duration: (pause * 25).clamp(Duration::from_secs(50), Duration::from_secs(240)),
            workers: random.between(2, 10),
            paths: *random.pick(&[1, 1, 2, 3]),
            faults: Faults {
                delay: some(1.0),
                longest_delay: *random.pick(&delays),
                fail: some(0.1),
                lose_response: some(0.15),
                lose_request: some(0.1),
                late: some(0.15),
                conflict: some(0.1),
                throttle: some(0.1),
            },
            object_faults: ObjectFaults {
                delay: some(1.0),
                longest_delay: *random.pick(&delays),
                fail: some(0.15),
                lose_response: some(0.15),
            },
            loss: random.chance(0.5).then(|| seconds(20, 120)),
            sweep: random.chance(0.7).then(|| seconds(5, 120)),
            crash: some(0.3),
            skewed: random.chance(0.7),
            lease: {
                let mut lease = LeaseTerms::lasting(seconds(3, 40));
                lease.ttl_buffer = Duration::from_secs(*random.pick(&[0, 30, 3600]));
                lease.skew = Duration::from_secs(*random.pick(&[0, 0, 2]));
                lease
            },
            request: {
                let mut request = RequestTerms::default();
                request.in_progress = seconds(5, 200);
                request.ttl = Duration::from_secs(*random.pick(&[60, 300, 86_400]));
                request
            },
            guards: {
                let mut guards = Guards::default();
                guards.not_expired = random.chance(0.8);
                guards.version = random.chance(0.3);
                guards.newer = random.chance(0.2);
                guards
            },
            mixed: random.chance(0.3),
            revalidate: Duration::from_secs(*random.pick(&[1, 5, 20, 60])),
            render: Duration::from_secs(*random.pick(&[1, 5, 15, 40])),
            pause,
            pin: seconds(1, 120),
            retention: *random.pick(&[0, 0, 1, 3]),
            texts: random.between(1, 5),
            actions,
        }
    }

    pub(crate) fn action(&self, random: &RandomStream) -> Action {
        *random.pick(&self.actions)
    }

    /// After this time without faults, every lease, claim and pin has ended by every clock.
    pub(crate) fn quiesce_bound(&self) -> Duration {
        let longest = self.lease.duration.max(self.request.in_progress).max(self.pin);
        longest + self.lease.skew + Duration::from_millis(4 * MAX_SKEW_MILLIS)
    }
}
