//! The habits of a seed: how many processes serve visitors, how they are set up, and what everyone likes to do.

use std::time::Duration;

use facetheory::{Contention, History, Mode, OtherDeployment, Policy};

use crate::character::{Character, MOST_SKEW};
use crate::dice::Dice;

/// The stream of chance from which habits are drawn.
const HABITS: u64 = u64::MAX - 1;
/// How long the table may take before a look at it is given up.
pub(crate) const TABLE_TIMEOUT: Duration = Duration::from_secs(2);
/// A failed render is not tried again for this long at most, however often it failed.
pub(super) const LONGEST_BACK_OFF: Duration = Duration::from_secs(60);

/// What an operator may do next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Order {
    Soft,
    Hard,
    Tag,
    RollBack,
    Unpin,
    /// What pages show changes, and nobody is told.
    Edit,
}

impl Order {
    const ALL: [Order; 6] =
        [Order::Soft, Order::Hard, Order::Tag, Order::RollBack, Order::Unpin, Order::Edit];
}

/// How one process is set up.
#[derive(Clone, Debug)]
pub(crate) struct Setup {
    /// How far its clock is ahead, in milliseconds.
    pub(super) skew: i64,
    /// For how long it believes `META` and epochs.
    pub(super) believed: Duration,
    pub(super) epochs_believed: Duration,
    /// How many bytes of pages it keeps: plenty or none, since what is evicted depends on more than the seed.
    pub(super) memory: u64,
    pub(super) deployment: Option<&'static str>,
}

/// What one seed decides of its visitors before anything happens.
#[derive(Debug)]
pub(crate) struct Habits {
    pub(super) setups: Vec<Setup>,
    pub(super) policy: Policy,
    pub(super) visitors: u64,
    pub(super) operators: u64,
    /// The longest pauses between two visits of a visitor, and between two orders of an operator.
    pub(super) pause: Duration,
    pub(super) order_pause: Duration,
    /// The longest render.
    pub(super) render: Duration,
    /// How likely a render fails, a page is not to be kept, and a visitor goes away.
    pub(super) fails: f64,
    pub(super) declines: f64,
    pub(super) leaves: f64,
    /// How long the table is down from time to time; none where it is not.
    pub(super) outage: Option<Duration>,
    pub(crate) storm: Duration,
    orders: Vec<Order>,
}

impl Habits {
    pub(crate) fn of(seed: u64, character: &Character) -> Self {
        const MEMORY: u64 = 64 * 1024 * 1024;
        let dice = Dice::new(seed, HABITS);
        let seconds = |choices: &[u64]| Duration::from_secs(*dice.pick(choices));
        let limit = |choices: &[Option<u64>]| dice.pick(choices).map(Duration::from_secs);
        let mut orders = vec![Order::Soft];
        for order in Order::ALL {
            orders.extend(std::iter::repeat_n(order, *dice.pick(&[0, 1, 2, 6])));
        }
        let deployments: &[Option<&'static str>] =
            if dice.chance(0.2) { &[Some("old"), Some("new")] } else { &[None] };
        let setups = (0..dice.between(1, 4)).map(|_| {
            let skew = i64::try_from(dice.below(2 * MOST_SKEW + 1)).expect("small") - 1000;
            Setup {
                skew: if character.skewed { skew } else { 0 },
                believed: seconds(&[0, 1]),
                epochs_believed: seconds(&[0, 1]),
                memory: *dice.pick(&[MEMORY, MEMORY, MEMORY, 0]),
                deployment: *dice.pick(deployments),
            }
        });
        let setups = setups.collect();
        let mut policy = Policy::every(character.revalidate);
        policy.mode = *dice.pick(&[Mode::Swr, Mode::Swr, Mode::Blocking]);
        policy.stale_while_revalidate = limit(&[None, Some(0), Some(5), Some(30)]);
        policy.stale_if_error = limit(&[None, Some(0), Some(10), Some(60)]);
        policy.contention = *dice.pick(&[Contention::Wait, Contention::ServeStale]);
        policy.wait = seconds(&[1, 5, 10]);
        policy.render_timeout = seconds(&[5, 20, 60]);
        policy.backoff = seconds(&[1, 10]);
        policy.early_refresh = dice.chance(0.3).then_some(1.0);
        policy.other_deployment = *dice.pick(&[OtherDeployment::Stale, OtherDeployment::Missing]);
        Habits {
            setups,
            policy,
            visitors: dice.between(2, 8),
            operators: dice.between(1, 3),
            pause: Duration::from_millis(*dice.pick(&[500, 2000, 5000])),
            order_pause: seconds(&[2, 5, 20]),
            render: Duration::from_millis(*dice.pick(&[50, 1000, 4000, 15_000])),
            fails: *dice.pick(&[0.0, 0.1, 0.4]),
            declines: *dice.pick(&[0.0, 0.0, 0.1]),
            leaves: *dice.pick(&[0.0, 0.2]),
            outage: dice.chance(0.3).then(|| seconds(&[2, 10, 30])),
            storm: seconds(&[20, 40, 80]),
            orders,
        }
    }

    pub(super) fn order(&self, dice: &Dice) -> Order {
        *dice.pick(&self.orders)
    }

    /// The policy of a page.
    pub(super) fn policy(&self, keep: History) -> Policy {
        self.policy.with_history(keep)
    }

    /// For how long after it went stale a page may be served at all; none where there is no limit.
    pub(super) fn limit(&self) -> Option<Duration> {
        let while_renewed = match self.policy.mode {
            Mode::Swr => self.policy.stale_while_revalidate,
            Mode::Blocking => Some(Duration::ZERO),
        };
        Some(while_renewed?.max(self.policy.stale_if_error?))
    }

    /// Within so long every visit is answered, however the stores behave.
    pub(super) fn patience(&self, character: &Character) -> Duration {
        /// How often a visitor begins anew, because what was rendered for everyone was invalidated meanwhile.
        const ROUNDS: u32 = 3;
        /// So many calls to the table a renewal makes at most, one after the other, those that it repeats among them.
        const CALLS: u32 = 16;
        /// And to the store of bodies, which is asked again where nothing was settled.
        const BODIES: u32 = 8;
        let stores = CALLS * character.faults.longest_delay + BODIES * character.object_faults.longest_delay;
        ROUNDS * (2 * TABLE_TIMEOUT + self.policy.wait + self.policy.render_timeout + stores)
    }
}
