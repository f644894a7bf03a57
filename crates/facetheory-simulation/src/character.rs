//! The character of a seed: how many workers there are, what goes wrong, and what they like to do.
//!
//! Seeds differ in kind and not only in luck (swarm testing): a fault or an operation that is missing from a history
//! lets others happen in sequences that they would rarely survive otherwise.

use std::time::Duration;

use facetheory::protocol::{Guards, LeaseTerms, RequestTerms};
use tabletheory::Faults;

use crate::dice::Dice;
use crate::object::ObjectFaults;

/// How far a worker's clock may be off, in milliseconds.
pub(crate) const MOST_SKEW: u64 = 1000;

/// What a worker may do next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Deed {
    Regenerate,
    Serve,
    Request,
    InvalidateSoft,
    InvalidateHard,
    InvalidateTag,
    RollBack,
    Unpin,
    Collect,
}

impl Deed {
    const ALL: [Deed; 9] = [
        Deed::Regenerate,
        Deed::Serve,
        Deed::Request,
        Deed::InvalidateSoft,
        Deed::InvalidateHard,
        Deed::InvalidateTag,
        Deed::RollBack,
        Deed::Unpin,
        Deed::Collect,
    ];
}

/// What one seed decides before anything happens.
#[derive(Debug)]
pub(crate) struct Character {
    pub(crate) workers: u64,
    /// How long faults last, in simulated time.
    pub(crate) storm: Duration,
    /// How many pages each tenant has.
    pub(crate) paths: u64,
    pub(crate) faults: Faults,
    pub(crate) object_faults: ObjectFaults,
    /// The pause between two losses of a body; none where there are none.
    pub(crate) loss: Option<Duration>,
    /// The pause between two collections of expired rows; none where TTL never comes.
    pub(crate) sweep: Option<Duration>,
    /// How likely a worker dies in the middle of what it does.
    pub(crate) crash: f64,
    pub(crate) skewed: bool,
    pub(crate) lease: LeaseTerms,
    pub(crate) request: RequestTerms,
    pub(crate) guards: Guards,
    /// Whether pages change between being kept in place and in versions.
    pub(crate) mixed: bool,
    pub(crate) revalidate: Duration,
    /// The longest render, the longest pause between two deeds, and the longest pin.
    pub(crate) render: Duration,
    pub(crate) pause: Duration,
    pub(crate) pin: Duration,
    /// How many versions besides the current one are kept.
    pub(crate) retention: usize,
    /// Out of how few texts a render comes.
    pub(crate) texts: u64,
    deeds: Vec<Deed>,
}

impl Character {
    pub(crate) fn of(seed: u64) -> Self {
        let dice = Dice::new(seed, u64::MAX);
        let seconds = |first, last| Duration::from_secs(dice.between(first, last));
        let some = |most: f64| if dice.chance(0.6) { dice.fraction() * most } else { 0.0 };
        let delays = [Duration::from_millis(20), Duration::from_secs(2), Duration::from_secs(20)];
        let mut deeds = vec![Deed::Regenerate; 2];
        for deed in Deed::ALL {
            let weight = *dice.pick(&[0, 1, 2, 6]);
            deeds.extend(std::iter::repeat_n(deed, weight));
        }
        // Some worlds are quick and some are slow, and workers do about as much in each.
        let pause = Duration::from_secs(*dice.pick(&[1, 3, 10, 20]));
        Character {
            storm: (pause * 25).clamp(Duration::from_secs(50), Duration::from_secs(240)),
            workers: dice.between(2, 10),
            paths: *dice.pick(&[1, 1, 2, 3]),
            faults: Faults {
                delay: some(1.0),
                longest_delay: *dice.pick(&delays),
                fail: some(0.1),
                lose_answer: some(0.15),
                lose_request: some(0.1),
                late: some(0.15),
                conflict: some(0.1),
                throttle: some(0.1),
            },
            object_faults: ObjectFaults {
                delay: some(1.0),
                longest_delay: *dice.pick(&delays),
                fail: some(0.15),
                lose_answer: some(0.15),
            },
            loss: dice.chance(0.5).then(|| seconds(20, 120)),
            sweep: dice.chance(0.7).then(|| seconds(5, 120)),
            crash: some(0.3),
            skewed: dice.chance(0.7),
            lease: {
                let mut lease = LeaseTerms::lasting(seconds(3, 40));
                lease.ttl_buffer = Duration::from_secs(*dice.pick(&[0, 30, 3600]));
                lease.skew = Duration::from_secs(*dice.pick(&[0, 0, 2]));
                lease
            },
            request: {
                let mut request = RequestTerms::default();
                request.in_progress = seconds(5, 200);
                request.ttl = Duration::from_secs(*dice.pick(&[60, 300, 86_400]));
                request
            },
            guards: {
                let mut guards = Guards::default();
                guards.not_expired = dice.chance(0.8);
                guards.version = dice.chance(0.3);
                guards.newer = dice.chance(0.2);
                guards
            },
            mixed: dice.chance(0.3),
            revalidate: Duration::from_secs(*dice.pick(&[1, 5, 20, 60])),
            render: Duration::from_secs(*dice.pick(&[1, 5, 15, 40])),
            pause,
            pin: seconds(1, 120),
            retention: *dice.pick(&[0, 0, 1, 3]),
            texts: dice.between(1, 5),
            deeds,
        }
    }

    pub(crate) fn deed(&self, dice: &Dice) -> Deed {
        *dice.pick(&self.deeds)
    }

    /// After so long without faults, every lease, claim and pin of before has ended, whoever's clock it went by.
    pub(crate) fn bound(&self) -> Duration {
        let longest = self.lease.duration.max(self.request.in_progress).max(self.pin);
        longest + self.lease.skew + Duration::from_millis(4 * MOST_SKEW)
    }
}
