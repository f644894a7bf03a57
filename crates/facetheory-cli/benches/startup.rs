//! Measures the time from the start of a gateway to its first hit, with an embedded store of a million pages.
//!
//! `cargo bench -p facetheory-cli --bench startup -- --pages 1000000`; the default size takes a moment. The files are in
//! the page cache of the system, as after a restart of the process.

#[path = "../tests/support/mod.rs"]
mod support;

use std::io::{BufRead as _, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use clap::Parser;
use indicatif::{ProgressBar, ProgressStyle};
use support::client::Connection;
use support::gateway::{Gateway, data};
use support::origin::Origin;
use support::print;
use support::site::get;
use support::table::fill;

/// The target for the median.
const TARGET: Duration = Duration::from_millis(50);
const RULES: &str = "[routes]\n\"/**\" = { isr = \"24h\" }\n";

#[derive(Debug, Parser)]
struct Sizes {
    /// Pages in the store
    #[arg(long, default_value_t = 2000)]
    pages: u64,
    /// How often the gateway is started
    #[arg(long, default_value_t = 20)]
    rounds: usize,
    /// Where the temporary directory of the store is created; by default beside the build
    #[arg(long, default_value = env!("CARGO_TARGET_TMPDIR"))]
    directory: PathBuf,
    /// The gateway to start; by default the one of this build
    #[arg(long, default_value = env!("CARGO_BIN_EXE_facetheory"))]
    binary: PathBuf,
    /// Passed by `cargo bench`
    #[arg(long, hide = true)]
    bench: bool,
}

fn main() {
    let sizes = Sizes::parse();
    let place = tempfile::tempdir_in(&sizes.directory).expect("a directory that can be written to");
    let origin = Origin::start();
    make_store(place.path(), &origin, sizes.pages);

    let mut took: Vec<Duration> =
        (0..sizes.rounds.max(1)).map(|_| start(&sizes.binary, place.path(), &origin)).collect();
    took.sort();
    assert_eq!(origin.requests().len(), 1, "every response came from the store");
    let (least, median, most) = (took[0], took[took.len() / 2], took[took.len() - 1]);
    let table = std::fs::metadata(data(place.path()).join("table.db")).expect("a table").len() >> 20;
    let result = if median <= TARGET { "" } else { "  MISSED" };
    print(&format!(
        "{} pages in a table of {table} MiB, {} starts: first response after {least:.1?} to {most:.1?}, median {median:.1?} \
         (target {TARGET:?}){result}",
        sizes.pages + 1,
        took.len(),
    ));
}

/// Creates a store with one page that a gateway has cached, among many others.
fn make_store(directory: &Path, origin: &Origin, pages: u64) {
    let gateway = Gateway::start(directory, origin.address, RULES, &[]);
    assert_eq!(gateway.exchange(get("/kept", "")).state(), "miss");
    gateway.shut_down();
    let style = ProgressStyle::with_template("{msg:<10} {wide_bar} {pos}/{len} {per_sec} {eta}");
    let bar = ProgressBar::new(pages).with_style(style.expect("a template")).with_message("pages");
    fill(directory, pages, |filled| bar.set_position(filled));
    bar.finish_and_clear();
}

/// Returns the time from the start of the process to the end of its first response.
fn start(binary: &Path, directory: &Path, origin: &Origin) -> Duration {
    let began = instant();
    let mut child = Command::new(binary)
        .args(["serve", "--listen", "127.0.0.1:0", "--admin", "127.0.0.1:0"])
        .args(["--origin", &format!("http://{}", origin.address)])
        .arg("--config")
        .arg(directory.join("facetheory.toml"))
        .arg("--data")
        .arg(data(directory))
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .expect("the binary runs");
    let mut printed = String::new();
    let mut output = BufReader::new(child.stdout.take().expect("an output"));
    output.read_line(&mut printed).expect("its address");
    let address = printed.trim().rsplit_once("://").map(|(_, address)| address.trim_end_matches('/'));
    let mut connection =
        Connection::open(address.and_then(|address| address.parse().ok()).expect("an address"));
    connection.send(get("/kept", ""));
    let response = connection.response();
    let took = began.elapsed();
    assert_eq!((response.status, response.state()), (200, "hit"));
    child.kill().expect("a process that runs");
    child.wait().expect("a process");
    took
}

#[expect(clippy::disallowed_methods, reason = "a benchmark measures the wall clock")]
fn instant() -> std::time::Instant {
    std::time::Instant::now()
}
