//! The command line of the simulation.

mod summary;

use std::ops::Range;
use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Context as _, bail};
use clap::{Parser, Subcommand};
use facetheory_simulation::{Campaign, Mutant, Settings, Stats, StopHandle};
use indicatif::{ProgressBar, ProgressStyle};

use crate::summary::Summary;

/// The exit code of a usage error, the same as clap's.
const USAGE_ERROR: u8 = 2;
/// The exit code that shells expect after Ctrl-C.
const INTERRUPTED: u8 = 130;

/// Runs the production code of FaceTheory under simulated faults and checks invariants.
#[derive(Debug, Parser)]
#[command(name = "facetheory-simulation", version, about)]
struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    Simulate(Simulate),
}

/// Runs one history per seed and checks it against the invariants.
///
/// The seed decides the workers, the clocks and the faults of a history, so that running it again repeats the history
/// exactly. The exit code is 0 if every invariant held, 1 after a violation, 2 for a usage error, and 130 after Ctrl-C,
/// which stops the run and prints the summary so far.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
    facetheory-simulation simulate --seeds 10000             run ten thousand histories, on all cores
    facetheory-simulation simulate --seeds 5000 --from 10000 run other histories
    facetheory-simulation simulate --seed 42 --trace         run one history and print its events
    facetheory-simulation simulate --seeds 1000 --json       print a JSON document
    facetheory-simulation simulate --mutant any-lock         show how a violation is reported")]
struct Simulate {
    /// Number of seeds to run.
    #[arg(long, default_value_t = 1000, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    seeds: u64,
    /// First seed.
    #[arg(long, default_value_t = 0, value_name = "N")]
    from: u64,
    /// Run only this seed.
    #[arg(long, value_name = "SEED", conflicts_with_all = ["seeds", "from"])]
    seed: Option<u64>,
    /// Print one JSON document instead of text.
    #[arg(long)]
    json: bool,
    /// Print all events, not only the last ones before a violation.
    #[arg(long, requires = "seed")]
    trace: bool,
    /// Simulate engines that serve clients, instead of workers that execute single steps of the protocol.
    #[arg(long)]
    clients: bool,
    /// Enable a deliberate defect; an unknown name lists all names.
    #[arg(long, value_name = "NAME", value_parser = mutant)]
    mutant: Option<Mutant>,
}

fn mutant(name: &str) -> Result<Mutant, String> {
    let all = || Mutant::ALL.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ");
    Mutant::named(name).ok_or_else(|| format!("known mutants: {}", all()))
}

fn main() -> ExitCode {
    let Arguments { command: Command::Simulate(arguments) } = Arguments::parse();
    match run(&arguments) {
        Ok(code) => code,
        // The reader of the output has exited, as `head` does.
        Err(error) if is_closed_pipe(&error) => ExitCode::SUCCESS,
        Err(error) => {
            print_error(&error);
            ExitCode::from(USAGE_ERROR)
        }
    }
}

fn run(arguments: &Simulate) -> anyhow::Result<ExitCode> {
    let seeds = arguments.range()?;
    let settings = Settings {
        mutant: arguments.mutant,
        clients: arguments.clients(),
        events: if arguments.trace { usize::MAX } else { Settings::default().events },
    };
    let bar = progress_bar(seeds.end - seeds.start)?;
    let campaign = Campaign::start(seeds.clone(), settings);
    let stop_handle = campaign.stop_handle();
    listen_for_ctrl_c(stop_handle.clone());

    let mut summary =
        Summary { from: seeds.start, seeds: 0, stats: Stats::default(), broken: None, trace: Vec::new() };
    for report in campaign {
        summary.seeds += 1;
        summary.stats.merge(&report.stats);
        bar.inc(1);
        if arguments.trace {
            summary.trace = report.events;
        }
        // Seeds finish in any order; the lowest one with a violation is reported.
        if let Some(violation) = report.violation
            && summary.broken.as_ref().is_none_or(|(seed, _)| report.seed < *seed)
        {
            summary.broken = Some((report.seed, violation));
            stop_handle.stop();
        }
    }
    let elapsed = bar.elapsed();
    bar.finish_and_clear();
    summary.print(arguments.json, &settings, elapsed)?;
    Ok(match summary.broken {
        Some(_) => ExitCode::FAILURE,
        None if stop_handle.is_stopped() => ExitCode::from(INTERRUPTED),
        None => ExitCode::SUCCESS,
    })
}

impl Simulate {
    /// A mutant that concerns clients needs a history with clients.
    fn clients(&self) -> bool {
        self.clients || self.mutant.is_some_and(Mutant::is_about_clients)
    }

    fn range(&self) -> anyhow::Result<Range<u64>> {
        let (from, seeds) = match self.seed {
            Some(seed) => (seed, 1),
            None => (self.from, self.seeds),
        };
        let Some(end) = from.checked_add(seeds) else {
            bail!("{seeds} seeds from {from} exceed the largest seed; choose a smaller --from");
        };
        Ok(from..end)
    }
}

/// Shown on standard error if that is a terminal.
fn progress_bar(seeds: u64) -> anyhow::Result<ProgressBar> {
    let style = "{bar:40} {pos} of {len} seeds, {per_sec}, {eta} left";
    let bar =
        ProgressBar::new(seeds).with_style(ProgressStyle::with_template(style).context("the progress bar")?);
    bar.enable_steady_tick(Duration::from_millis(200));
    Ok(bar)
}

/// Ctrl-C stops the campaign but not the program, so that the summary so far is printed.
fn listen_for_ctrl_c(stop_handle: StopHandle) {
    std::thread::spawn(move || {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_io().build();
        // If signals cannot be received, Ctrl-C ends the program at once.
        if let Ok(runtime) = runtime
            && runtime.block_on(tokio::signal::ctrl_c()).is_ok()
        {
            stop_handle.stop();
        }
    });
}

fn is_closed_pipe(error: &anyhow::Error) -> bool {
    let io = error.chain().find_map(|cause| cause.downcast_ref::<std::io::Error>());
    io.is_some_and(|io| io.kind() == std::io::ErrorKind::BrokenPipe)
}

#[expect(clippy::print_stderr, reason = "this is where a command reports its error")]
fn print_error(error: &anyhow::Error) {
    eprintln!("facetheory-simulation: {error:#}");
}
