//! A million pages on one machine: the speed of leases, publishes and garbage collection, and the memory they need.
//!
//! `cargo bench -p facetheory --bench scale -- --pages 1000000 --orphans 100000`; without sizes it takes a few seconds.

mod gc;
mod memory;
mod publish;

use std::path::PathBuf;
use std::time::Duration;

use clap::Parser;
use indicatif::{ProgressBar, ProgressStyle};

/// Lines of results per run.
const TENTHS: u64 = 10;

#[derive(Debug, Parser)]
struct Sizes {
    /// How many pages are leased and published.
    #[arg(long, default_value_t = 2000)]
    pages: u64,
    /// How many workers do so at once.
    #[arg(long, default_value_t = 64)]
    workers: u64,
    /// How many orphans there are.
    #[arg(long, default_value_t = 500)]
    orphans: u64,
    /// How many pages have a body.
    #[arg(long, default_value_t = 500)]
    named: u64,
    /// Where the temporary directory of the files is created; by default beside the build.
    #[arg(long, default_value = env!("CARGO_TARGET_TMPDIR"))]
    directory: PathBuf,
    /// Passed by `cargo bench` to every benchmark.
    #[arg(long, hide = true)]
    bench: bool,
}

fn main() {
    let sizes = Sizes::parse();
    let place = tempfile::tempdir_in(&sizes.directory).expect("a writable directory");
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build();
    let runtime = runtime.expect("a runtime");
    runtime.block_on(publish::run(&sizes, place.path()));
    runtime.block_on(gc::run(&sizes, place.path()));
}

/// A progress bar, on a terminal only.
fn bar(what: &'static str, of: u64) -> ProgressBar {
    let style = ProgressStyle::with_template("{msg:<10} {wide_bar} {pos}/{len} {per_sec} {eta}");
    ProgressBar::new(of).with_style(style.expect("a template")).with_message(what)
}

/// Whether a tenth was completed by these steps.
fn completes_a_tenth(before: u64, now: u64, of: u64) -> bool {
    before * TENTHS / of.max(1) < now * TENTHS / of.max(1)
}

fn rate(count: u64, took: Duration) -> f64 {
    count as f64 / took.as_secs_f64().max(1e-9)
}

/// Prints a line above the bar, or without one.
#[expect(clippy::print_stdout, reason = "a benchmark prints its results")]
fn say(bar: &ProgressBar, line: &str) {
    bar.suspend(|| println!("{line}"));
}

/// The current instant: only differences matter.
#[expect(clippy::disallowed_methods, reason = "a benchmark measures the wall clock")]
fn instant() -> std::time::Instant {
    std::time::Instant::now()
}
