//! `facetheory-simulation`: histories by the thousand, from the command line.

mod summary;

use std::ops::Range;
use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Context as _, bail};
use clap::{Parser, Subcommand};
use facetheory_simulation::{Brake, Campaign, Mutant, Settings, Tally};
use indicatif::{ProgressBar, ProgressStyle};

use crate::summary::Summary;

/// The same as clap's, so that a violation can be told from a run that did not take place.
const WRONG_CALL: u8 = 2;
/// What a shell expects of a program that Ctrl-C has stopped.
const INTERRUPTED: u8 = 130;

/// The production code of FaceTheory in simulated worlds, in which everything goes wrong.
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

/// Lives through one history a seed, checks it as it happens, and says what happened.
///
/// Each history has its own number of workers, clocks, faults and habits, all decided by its seed, and is repeated
/// exactly by it. The exit code is 0 if everything held, 1 if an invariant was broken, 2 for a wrong call and 130 after
/// Ctrl-C, which ends the run with the summary so far.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  facetheory-simulation simulate --seeds 10000         ten thousand histories, on all cores
  facetheory-simulation simulate --seeds 5000 --from 10000    others
  facetheory-simulation simulate --seed 42 --trace     one history, with everything that happened in it
  facetheory-simulation simulate --seeds 1000 --json   for a program to read
  facetheory-simulation simulate --mutant any-lock     what it looks like when the protocol is broken")]
struct Simulate {
    /// How many seeds.
    #[arg(long, default_value_t = 1000, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    seeds: u64,
    /// The first seed.
    #[arg(long, default_value_t = 0, value_name = "N")]
    from: u64,
    /// This one seed only.
    #[arg(long, value_name = "SEED", conflicts_with_all = ["seeds", "from"])]
    seed: Option<u64>,
    /// Print one JSON document instead of text.
    #[arg(long)]
    json: bool,
    /// Print everything that happened, and not only the end of a broken history.
    #[arg(long, requires = "seed")]
    trace: bool,
    /// Let engines serve visitors, instead of workers that go through the protocol step by step.
    #[arg(long)]
    visitors: bool,
    /// Break the protocol on purpose; a name that there is none of lists them all.
    #[arg(long, value_name = "NAME", value_parser = mutant)]
    mutant: Option<Mutant>,
}

fn mutant(name: &str) -> Result<Mutant, String> {
    let all = || Mutant::ALL.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ");
    Mutant::named(name).ok_or_else(|| format!("there are: {}", all()))
}

fn main() -> ExitCode {
    let Arguments { command: Command::Simulate(arguments) } = Arguments::parse();
    match run(&arguments) {
        Ok(code) => code,
        // Whoever reads the output has had enough, as `head` has.
        Err(error) if is_closed_pipe(&error) => ExitCode::SUCCESS,
        Err(error) => {
            complain(&error);
            ExitCode::from(WRONG_CALL)
        }
    }
}

fn run(arguments: &Simulate) -> anyhow::Result<ExitCode> {
    let seeds = arguments.range()?;
    let settings = Settings {
        mutant: arguments.mutant,
        visitors: arguments.visitors(),
        events: if arguments.trace { usize::MAX } else { Settings::default().events },
    };
    let bar = progress_bar(seeds.end - seeds.start)?;
    let campaign = Campaign::start(seeds.clone(), settings);
    let brake = campaign.brake();
    listen_for_ctrl_c(brake.clone());

    let mut summary =
        Summary { from: seeds.start, seeds: 0, tally: Tally::default(), broken: None, trace: Vec::new() };
    for report in campaign {
        summary.seeds += 1;
        summary.tally.merge(&report.tally);
        bar.inc(1);
        if arguments.trace {
            summary.trace = report.events;
        }
        // Seeds come as they are done; of several that are broken the first one is told.
        if let Some(violation) = report.violation
            && summary.broken.as_ref().is_none_or(|(seed, _)| report.seed < *seed)
        {
            summary.broken = Some((report.seed, violation));
            brake.stop();
        }
    }
    let elapsed = bar.elapsed();
    bar.finish_and_clear();
    summary.print(arguments.json, &settings, elapsed)?;
    Ok(match summary.broken {
        Some(_) => ExitCode::FAILURE,
        None if brake.is_stopped() => ExitCode::from(INTERRUPTED),
        None => ExitCode::SUCCESS,
    })
}

impl Simulate {
    /// A mutant that is about visitors needs some.
    fn visitors(&self) -> bool {
        self.visitors || self.mutant.is_some_and(Mutant::is_about_visitors)
    }

    fn range(&self) -> anyhow::Result<Range<u64>> {
        let (from, seeds) = match self.seed {
            Some(seed) => (seed, 1),
            None => (self.from, self.seeds),
        };
        let Some(end) = from.checked_add(seeds) else {
            bail!("the seeds {from} and {seeds} more go past the largest number; choose a smaller --from");
        };
        Ok(from..end)
    }
}

/// On standard error, and only where somebody sees it.
fn progress_bar(seeds: u64) -> anyhow::Result<ProgressBar> {
    let style = "{bar:40} {pos} of {len} seeds, {per_sec}, {eta} left";
    let bar =
        ProgressBar::new(seeds).with_style(ProgressStyle::with_template(style).context("the progress bar")?);
    bar.enable_steady_tick(Duration::from_millis(200));
    Ok(bar)
}

/// Ctrl-C stops the campaign and not the program, so that what was found so far is told.
fn listen_for_ctrl_c(brake: Brake) {
    std::thread::spawn(move || {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_io().build();
        // Where signals cannot be listened to, Ctrl-C does what it always does.
        if let Ok(runtime) = runtime
            && runtime.block_on(tokio::signal::ctrl_c()).is_ok()
        {
            brake.stop();
        }
    });
}

fn is_closed_pipe(error: &anyhow::Error) -> bool {
    let io = error.chain().find_map(|cause| cause.downcast_ref::<std::io::Error>());
    io.is_some_and(|io| io.kind() == std::io::ErrorKind::BrokenPipe)
}

#[expect(clippy::print_stderr, reason = "this is where a command reports its error")]
fn complain(error: &anyhow::Error) {
    eprintln!("facetheory-simulation: {error:#}");
}
