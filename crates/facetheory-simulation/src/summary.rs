//! What a run has to say, for people and for programs.

use std::io::Write as _;
use std::time::Duration;

use facetheory_simulation::{Count, Settings, Tally, Violation};
use serde_json::{Value, json};

/// What became of a run.
pub(crate) struct Summary {
    pub(crate) from: u64,
    /// How many seeds were lived through.
    pub(crate) seeds: u64,
    pub(crate) tally: Tally,
    pub(crate) broken: Option<(u64, Violation)>,
    /// Everything that happened, where that was asked for.
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
        write!(out, "{}", self.tally)?;
        let Some((seed, violation)) = &self.broken else {
            writeln!(out, "every invariant held")?;
            return Ok(());
        };
        writeln!(out, "\nBROKEN by seed {seed}: {}", violation.invariant)?;
        writeln!(out, "  {}", violation.what)?;
        // With a trace they have been told already.
        if self.trace.is_empty() {
            writeln!(out, "\nwhat happened last:")?;
            for event in &violation.events {
                writeln!(out, "  {event}")?;
            }
        }
        writeln!(out, "\nto repeat it exactly:\n  {}", replay(*seed, settings))?;
        Ok(())
    }

    fn to_json(&self, settings: &Settings) -> Value {
        let name = |count: &Count| count.to_string().replace(' ', "_");
        let tally: serde_json::Map<String, Value> =
            Count::ALL.iter().map(|count| (name(count), self.tally.of(*count).into())).collect();
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
            json!({ "from": self.from, "seeds": self.seeds, "tally": tally, "violation": violation });
        if !self.trace.is_empty() {
            summary["trace"] = json!(self.trace);
        }
        summary
    }
}

/// The command that lives through this history again.
fn replay(seed: u64, settings: &Settings) -> String {
    let visitors = if settings.visitors { " --visitors" } else { "" };
    let mutant = settings.mutant.map_or_else(String::new, |mutant| format!(" --mutant {mutant}"));
    format!(
        "cargo run --release -p facetheory-simulation -- simulate --seed {seed} --trace{visitors}{mutant}"
    )
}
