//! The output of a run, as text or JSON.

use std::io::Write as _;
use std::time::Duration;

use facetheory_simulation::{Counter, Settings, Stats, Violation};
use serde_json::{Value, json};

/// The result of a run.
pub(crate) struct Summary {
    pub(crate) from: u64,
    /// The number of seeds that were run.
    pub(crate) seeds: u64,
    pub(crate) stats: Stats,
    pub(crate) broken: Option<(u64, Violation)>,
    /// All events, if a trace was requested.
    pub(crate) trace: Vec<String>,
}

impl Summary {
    pub(crate) fn print(&self, json: bool, settings: &Settings, elapsed: Duration) -> anyhow::Result<()> {
        let mut out = std::io::stdout().lock();
        if json {
            writeln!(out, "{:#}", self.to_json(settings))?;
            return Ok(());
        }
        for event in &self.trace {
            writeln!(out, "{event}")?;
        }
        writeln!(out, "{} seeds from {} in {:.1} s", self.seeds, self.from, elapsed.as_secs_f64())?;
        write!(out, "{}", self.stats)?;
        let Some((seed, violation)) = &self.broken else {
            writeln!(out, "every invariant held")?;
            return Ok(());
        };
        writeln!(out, "\nVIOLATION in seed {seed}: {}", violation.invariant)?;
        writeln!(out, "  {}", violation.what)?;
        // A trace has printed the events already.
        if self.trace.is_empty() {
            writeln!(out, "\nlast events:")?;
            for event in &violation.events {
                writeln!(out, "  {event}")?;
            }
        }
        writeln!(out, "\nto reproduce it:\n  {}", replay(*seed, settings))?;
        Ok(())
    }

    fn to_json(&self, settings: &Settings) -> Value {
        let name = |counter: &Counter| counter.to_string().replace(' ', "_");
        let stats: serde_json::Map<String, Value> =
            Counter::ALL.iter().map(|counter| (name(counter), self.stats.of(*counter).into())).collect();
        let violation = self.broken.as_ref().map(|(seed, violation)| {
            json!({
                "seed": seed,
                "invariant": violation.invariant.to_string(),
                "what": violation.what,
                "events": violation.events,
                "replay": replay(*seed, settings),
            })
        });
        let mut summary =
            json!({ "from": self.from, "seeds": self.seeds, "stats": stats, "violation": violation });
        if !self.trace.is_empty() {
            summary["trace"] = json!(self.trace);
        }
        summary
    }
}

/// The command that repeats this history.
fn replay(seed: u64, settings: &Settings) -> String {
    let clients = if settings.clients { " --clients" } else { "" };
    let mutant = settings.mutant.map_or_else(String::new, |mutant| format!(" --mutant {mutant}"));
    format!("cargo run --release -p facetheory-simulation -- simulate --seed {seed} --trace{clients}{mutant}")
}
