//! The production code of FaceTheory in a simulated world: one seed, one history, checked as it happens.
//!
//! Workers regenerate, serve, request, invalidate, roll back and collect pages of two tenants, over a table and a store of
//! bodies that fail in every way, with clocks that are off, in simulated time. `docs/internals/simulation.md` tells what holds.
//!
//! ```
//! use facetheory_simulation::{Settings, simulate};
//!
//! let report = simulate(42, &Settings::default());
//! assert_eq!(report.violation, None);
//! assert_eq!(report, simulate(42, &Settings::default()), "a seed gives one history");
//! ```

mod calm;
mod campaign;
mod character;
mod clock;
mod dice;
mod ledger;
mod mutant;
mod object;
mod recorder;
mod saboteur;
mod seat;
mod tally;
mod violation;
mod visitor;
mod worker;
mod world;

use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::time::Duration;

pub use campaign::{Brake, Campaign};
pub use mutant::Mutant;
pub use tally::{Count, Tally};
pub use violation::{Invariant, Violation};

use crate::character::Character;
use crate::clock::SimulatedClock;
use crate::ledger::Ledger;
use crate::world::World;

/// No history takes as long as this, in simulated time.
const LONGEST_HISTORY: Duration = Duration::from_hours(1000);

/// How a simulation is done.
///
/// ```
/// assert_eq!(facetheory_simulation::Settings::default().mutant, None);
/// ```
#[derive(Clone, Copy, Debug)]
pub struct Settings {
    /// What is broken on purpose.
    pub mutant: Option<Mutant>,
    /// Whether it is about engines that serve visitors, and not about workers that go through the protocol step by step.
    pub visitors: bool,
    /// How many of the last events are kept.
    pub events: usize,
}

impl Default for Settings {
    fn default() -> Self {
        const EVENTS: usize = 30;
        Settings { mutant: None, visitors: false, events: EVENTS }
    }
}

/// What became of one seed.
///
/// ```
/// use facetheory_simulation::{Count, Settings, simulate};
///
/// assert!(simulate(1, &Settings::default()).tally.of(Count::Published) > 0);
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Report {
    /// The seed.
    pub seed: u64,
    /// How much happened.
    pub tally: Tally,
    /// A digest of everything that happened, in order.
    pub fingerprint: u64,
    /// What happened last.
    pub events: Vec<String>,
    /// What was broken.
    pub violation: Option<Violation>,
}

/// Lives through the history of one seed.
///
/// ```
/// use facetheory_simulation::{Settings, simulate};
///
/// assert_ne!(simulate(1, &Settings::default()).fingerprint, simulate(2, &Settings::default()).fingerprint);
/// ```
#[must_use]
pub fn simulate(seed: u64, settings: &Settings) -> Report {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build();
    let runtime = runtime.expect("a runtime");
    let ledger = {
        let _time = runtime.enter();
        let clock = SimulatedClock::start();
        let character = Character::of(seed);
        let ledger = Arc::new(Ledger::new(clock, character.retention, settings.events));
        let world = World::new(seed, settings, ledger.clone(), clock, character);
        // Time stands still where nothing waits for it, so a history that is stuck would never end without a limit.
        let live = async { if settings.visitors { world.receive().await } else { world.run().await } };
        let live = async { tokio::time::timeout(LONGEST_HISTORY, live).await.expect("a history ends") };
        let lived = std::panic::catch_unwind(AssertUnwindSafe(|| runtime.block_on(live)));
        if let Err(panic) = lived {
            let what = panic.downcast_ref::<String>().cloned();
            let what = what.or_else(|| panic.downcast_ref::<&str>().map(|text| (*text).to_owned()));
            ledger.state().ensure(false, Invariant::NoPanic, || what.unwrap_or_default());
        }
        ledger
    };
    let closed = ledger.close();
    Report {
        seed,
        tally: closed.tally,
        fingerprint: closed.fingerprint,
        events: closed.events,
        violation: closed.violation,
    }
}
