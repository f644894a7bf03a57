//! The memory that gateways have, over time.

use std::fmt;
use std::time::Duration;

use crate::NAMES;
use crate::support::gateway::Gateway;

/// What a gateway takes for itself at first, such as a full memory of pages, says nothing of leaks.
const FIRST: Duration = Duration::from_secs(60);
/// What memory may be at the end, as a multiple of what it was after the first minute.
const GROWTH: f64 = 1.25;
/// What it may be more besides, in MiB: an allocator does not give everything back at once.
const SLACK: f64 = 24.0;
const QUARTERS: usize = 4;

/// What was seen of all gateways.
pub(crate) struct Memory {
    /// Looks before this do not count.
    from: Duration,
    looks: Vec<(Duration, Vec<f64>)>,
}

impl Memory {
    /// Nothing yet, of a run of so long. In a short one the first quarter takes the place of the first minute.
    pub(crate) fn new(time: Duration) -> Memory {
        Memory { from: FIRST.min(time / 4), looks: Vec::new() }
    }

    /// Looks at it.
    pub(crate) fn look(&mut self, elapsed: Duration, gateways: &[Gateway]) {
        #[expect(clippy::cast_precision_loss, reason = "nobody has so much memory")]
        let mib = |gateway: &Gateway| gateway.memory() as f64 / 1024.0;
        self.looks.push((elapsed, gateways.iter().map(mib).collect()));
    }

    /// What was seen last, for people to read.
    pub(crate) fn last(&self) -> String {
        let last = self.looks.last().map(|(_, seen)| seen.as_slice()).unwrap_or_default();
        format!("memory {} MiB", last.iter().map(|mib| format!("{mib:.0}")).collect::<Vec<_>>().join(" "))
    }

    /// Fails if the memory of a gateway has grown from the first quarter of what counts to the last.
    pub(crate) fn check(&self) {
        for (at, name) in NAMES.iter().enumerate() {
            let quarters = self.quarters(at);
            let (first, last) = (quarters[0], quarters[QUARTERS - 1]);
            assert!(last <= first * GROWTH + SLACK, "{name} has grown from {first:.0} to {last:.0} MiB");
        }
    }

    /// The median of each quarter of what counts.
    fn quarters(&self, gateway: usize) -> [f64; QUARTERS] {
        let until = self.looks.last().map(|(when, _)| *when).unwrap_or_default();
        let mut quarters = [0.0; QUARTERS];
        for (at, quarter) in (0_u32..).zip(&mut quarters) {
            let width = until.saturating_sub(self.from) / 4;
            let (from, until) = (self.from + width * at, self.from + width * (at + 1));
            let within = self.looks.iter().filter(|(when, _)| (from..until).contains(when));
            let mut seen: Vec<f64> = within.map(|(_, seen)| seen[gateway]).collect();
            seen.sort_by(f64::total_cmp);
            *quarter = seen.get(seen.len() / 2).copied().unwrap_or(f64::NAN);
        }
        quarters
    }
}

impl fmt::Display for Memory {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "memory in MiB, by quarters after the first {} s:", self.from.as_secs())?;
        for (at, name) in NAMES.iter().enumerate() {
            let quarters = self.quarters(at).map(|mib| format!("{mib:6.1}"));
            write!(f, "\n{name:<12} {}", quarters.join(" "))?;
        }
        Ok(())
    }
}
