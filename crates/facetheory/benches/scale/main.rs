//! A million pages on one machine: how fast leases and publishes go, what a collection takes, and how much memory.
//!
//! `cargo bench -p facetheory --bench scale -- --pages 1000000 --orphans 100000`; without sizes it is done in a moment.

mod gc;
mod memory;
mod publish;

use std::path::PathBuf;
use std::time::Duration;

use clap::Parser;
use indicatif::{ProgressBar, ProgressStyle};

/// Lines of figures a run gives.
const TENTHS: u64 = 10;

#[derive(Debug, Parser)]
struct Sizes {
    /// How many pages are leased and published.
    #[arg(long, default_value_t = 2000)]
    pages: u64,
    /// How many workers do so at once.
    #[arg(long, default_value_t = 64)]
    workers: u64,
    /// How many bodies nothing names.
    #[arg(long, default_value_t = 500)]
    orphans: u64,
    /// How many bodies the first pages name.
    #[arg(long, default_value_t = 500)]
    named: u64,
    /// Where the files go; a temporary directory beside the build by default.
    #[arg(long)]
    directory: Option<PathBuf>,
    /// What `cargo bench` says to every benchmark.
    #[arg(long, hide = true)]
    bench: bool,
}

fn main() {
    let sizes = Sizes::parse();
    let build = std::env::current_exe().expect("a program knows where it is");
    let parent = sizes.directory.clone().or(build.parent().map(PathBuf::from)).expect("a directory");
    let place = tempfile::tempdir_in(parent).expect("a directory that can be written to");
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build();
    let runtime = runtime.expect("a runtime");
    runtime.block_on(publish::run(&sizes, place.path()));
    runtime.block_on(gc::run(&sizes, place.path()));
}

/// A bar on a terminal, and nothing elsewhere.
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

/// Says a line above a bar, or where there is none.
#[expect(clippy::print_stdout, reason = "the figures are what the run is for")]
fn say(bar: &ProgressBar, line: &str) {
    bar.suspend(|| println!("{line}"));
}

/// Since the machine was started, say: only differences matter.
#[expect(clippy::disallowed_methods, reason = "a benchmark measures the wall clock")]
fn instant() -> std::time::Instant {
    std::time::Instant::now()
}
