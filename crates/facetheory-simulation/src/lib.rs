//! Deterministic simulation tests: the production code of FaceTheory over simulated stores, clocks and faults.
//!
//! Workers regenerate, serve, invalidate, roll back and garbage-collect the pages of two tenants, in simulated time. The
//! table and the body store fail, and clocks differ. A seed decides everything that happens, and every step is checked
//! against the invariants in `docs/internals/simulation.md`.
//!
//! ```
//! use facetheory_simulation::{Settings, simulate};
//!
//! let report = simulate(42, &Settings::default());
//! assert_eq!(report.violation, None);
//! assert_eq!(report, simulate(42, &Settings::default()), "a seed gives one history");
//! ```

mod campaign;
mod checker;
mod client;
mod faulty_objects;
mod mutant;
mod mutant_table;
mod named_enum;
mod process_table;
mod quiesce;
mod random;
mod recorded_table;
mod scenario;
mod stats;
mod violation;
mod worker;
mod world;

use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::time::Duration;

pub use campaign::{Campaign, StopHandle};
pub use mutant::Mutant;
pub use stats::{Counter, Stats};
pub use violation::{Invariant, Violation};

use facetheory::testing::RuntimeClock;

use crate::checker::Checker;
use crate::scenario::Scenario;
use crate::world::World;

/// When every simulation starts, in epoch seconds.
const START: i64 = 1_700_000_000;
/// A history that takes longer, in simulated time, is stuck.
const MAX_HISTORY: Duration = Duration::from_hours(1000);

/// The options of a simulation.
///
/// ```
/// assert_eq!(facetheory_simulation::Settings::default().mutant, None);
/// ```
#[derive(Clone, Copy, Debug)]
pub struct Settings {
    /// The deliberate defect, if any.
    pub mutant: Option<Mutant>,
    /// Whether engines serve clients, instead of workers that execute single steps of the protocol.
    pub clients: bool,
    /// How many of the most recent events a report contains.
    pub events: usize,
}

impl Default for Settings {
    fn default() -> Self {
        const MAX_EVENTS: usize = 30;
        Settings { mutant: None, clients: false, events: MAX_EVENTS }
    }
}

/// The result of one seed.
///
/// ```
/// use facetheory_simulation::{Counter, Settings, simulate};
///
/// assert!(simulate(1, &Settings::default()).stats.of(Counter::Published) > 0);
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Report {
    /// The seed.
    pub seed: u64,
    /// The first invariant that was violated.
    pub violation: Option<Violation>,
    /// How often each event happened.
    pub stats: Stats,
    /// The most recent events, oldest first.
    pub events: Vec<String>,
    /// A hash over all events in order.
    pub fingerprint: u64,
}

/// Runs the history of one seed.
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
    let checker = {
        let _time = runtime.enter();
        let clock = RuntimeClock::starting_at(START);
        let scenario = Scenario::of(seed);
        let checker = Arc::new(Checker::new(clock, scenario.pages.retention, settings.events));
        let world = World::new(seed, settings, checker.clone(), clock, scenario);
        let history =
            async { if settings.clients { world.run_clients().await } else { world.run_workers().await } };
        let history =
            async { tokio::time::timeout(MAX_HISTORY, history).await.expect("the history is stuck") };
        if let Err(panic) = std::panic::catch_unwind(AssertUnwindSafe(|| runtime.block_on(history))) {
            let message = panic.downcast_ref::<String>().cloned();
            let message = message.or_else(|| panic.downcast_ref::<&str>().map(|text| (*text).to_owned()));
            checker.state().ensure(false, Invariant::NoPanic, || message.unwrap_or_default());
        }
        checker
    };
    checker.report(seed)
}
