//! The resident memory of the gateways over time.

use std::fmt;
use std::path::PathBuf;
use std::time::Duration;

use crate::NAMES;
use crate::support::gateway::Gateway;

/// Growth during this time is not a leak, since the memory tier fills up.
const FIRST: Duration = Duration::from_secs(60);
/// The allowed memory at the end, relative to that after the first minute.
const GROWTH: f64 = 1.05;
/// The allowed growth besides, in MiB: the size of the memory tier, which a slow machine may not have filled before.
const SLACK: f64 = 8.0;
/// The allowed growth besides, in MiB, in a run shorter than the first minute, or if the table has not filled its cache
/// by then.
const SLACK_AT_FIRST: f64 = 24.0;
/// The cache of an embedded table, in MiB.
const CACHE_OF_TABLE: f64 = 32.0;
const QUARTERS: usize = 4;

/// The samples of all gateways.
pub(crate) struct Memory {
    /// Samples before this time do not count.
    from: Duration,
    /// The table file of the last gateway, and when it became larger than its cache.
    embedded: PathBuf,
    outgrown: Option<Duration>,
    looks: Vec<Look>,
}

/// One sample, in MiB.
struct Look {
    elapsed: Duration,
    /// The memory of each gateway.
    all: Vec<f64>,
    /// The memory without the cache of the embedded table, which grows with its file until it is full.
    own: Vec<f64>,
}

impl Memory {
    /// Prepares a run of this length. In a short run, the first quarter replaces the first minute.
    pub(crate) fn new(time: Duration, embedded: PathBuf) -> Memory {
        Memory { from: FIRST.min(time / 4), embedded, outgrown: None, looks: Vec::new() }
    }

    /// Takes a sample.
    #[expect(clippy::cast_precision_loss, reason = "memory sizes are far below 2^52")]
    pub(crate) fn look(&mut self, elapsed: Duration, gateways: &[Gateway]) {
        let all: Vec<f64> = gateways.iter().map(|gateway| gateway.memory() as f64 / 1024.0).collect();
        let file = std::fs::metadata(&self.embedded).map_or(0, |file| file.len()) as f64 / 1024.0 / 1024.0;
        if file >= CACHE_OF_TABLE {
            self.outgrown.get_or_insert(elapsed);
        }
        let mut own = all.clone();
        if let Some(own) = own.last_mut() {
            *own -= file.min(CACHE_OF_TABLE);
        }
        self.looks.push(Look { elapsed, all, own });
    }

    /// The last sample, as text.
    pub(crate) fn last(&self) -> String {
        let last = self.looks.last().map(|look| look.all.as_slice()).unwrap_or_default();
        format!("memory {} MiB", last.iter().map(|mib| format!("{mib:.0}")).collect::<Vec<_>>().join(" "))
    }

    /// Fails if the memory of a gateway has grown from the first quarter of the samples that count to the last.
    pub(crate) fn check(&self) {
        let has_all = self.outgrown.is_some_and(|at| at <= 2 * FIRST);
        for (at, name) in NAMES.iter().enumerate() {
            let is_embedded = at + 1 == NAMES.len();
            let is_early = self.from < FIRST || is_embedded && !has_all;
            let slack = if is_early { SLACK_AT_FIRST } else { SLACK };
            let quarters = self.quarters(|look| look.own[at]);
            let (first, last) = (quarters[0], quarters[QUARTERS - 1]);
            assert!(
                last <= first * GROWTH + slack,
                "the memory of {name} grew from {first:.0} to {last:.0} MiB"
            );
        }
    }

    /// The median of each quarter of the samples that count.
    fn quarters(&self, of: impl Fn(&Look) -> f64) -> [f64; QUARTERS] {
        let until = self.looks.last().map(|look| look.elapsed).unwrap_or_default();
        let mut quarters = [0.0; QUARTERS];
        for (at, quarter) in (0_u32..).zip(&mut quarters) {
            let width = until.saturating_sub(self.from) / 4;
            let (from, until) = (self.from + width * at, self.from + width * (at + 1));
            let within = self.looks.iter().filter(|look| (from..until).contains(&look.elapsed));
            let mut seen: Vec<f64> = within.map(&of).collect();
            seen.sort_by(f64::total_cmp);
            *quarter = seen.get(seen.len() / 2).copied().unwrap_or(f64::NAN);
        }
        quarters
    }
}

impl fmt::Display for Memory {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "memory in MiB, by quarters after the first {} s:", self.from.as_secs())?;
        let written = |quarters: [f64; QUARTERS]| quarters.map(|mib| format!("{mib:6.1}")).join(" ");
        for (at, name) in NAMES.iter().enumerate() {
            write!(f, "\n{name:<12} {}", written(self.quarters(|look| look.all[at])))?;
        }
        let own = self.quarters(|look| look.own.last().copied().unwrap_or_default());
        write!(f, "\n{:<12} {} without the cache of its table", "", written(own))
    }
}
