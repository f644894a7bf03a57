//! Several processes with several workers each, on DynamoDB and S3 and on one SQLite file, are killed at random. The
//! history that they recorded must agree with the rows and bodies in the end.
//!
//! `FACETHEORY_KILL_SECONDS=60 cargo test -p facetheory --all-features --test processes` kills for longer than the
//! default. The test program starts itself as its child processes; an environment variable gives them their role.

mod check;
mod history;
mod recovery;
#[path = "../support/stores.rs"]
mod stores;
#[path = "../support/mod.rs"]
mod support;
mod work;

use std::io::{BufRead as _, BufReader};
use std::os::unix::process::ExitStatusExt as _;
use std::process::{Child, ChildStdout, ExitCode, Stdio};
use std::time::Duration;

use facetheory::protocol::{LeaseTerms, RequestTerms};
use facetheory::{Bodies, PageStore, Pages};
use libtest_mimic::{Arguments, Failed, Trial};
use stores::{Stores, run_child};
use tabletheory::{Clock as _, Random, SeededRandom, SystemClock};

/// How long processes are killed on each backend, unless `FACETHEORY_KILL_SECONDS` is set.
const KILL_SECONDS: u64 = 10;
const PROCESSES: usize = 4;
/// A child is killed after it has published fewer pages than this.
const MAX_PUBLISHED: u64 = 30;
/// Short, since the test waits for the leases of killed processes to expire.
const LEASE: Duration = Duration::from_secs(1);
/// How long a request is in progress; short for the same reason.
const IN_PROGRESS: Duration = Duration::from_secs(2);

fn main() -> ExitCode {
    if let Some((role, stores)) = Stores::for_child() {
        return run_child(child(&role, &stores));
    }
    let seconds = std::env::var("FACETHEORY_KILL_SECONDS")
        .map_or(KILL_SECONDS, |text| text.parse().expect("a number of seconds"));
    let time = Duration::from_secs(seconds);
    let trials = vec![
        Trial::test("killed_processes_on_one_sqlite_file", move || on_sqlite(time)),
        Trial::test("killed_processes_on_dynamodb_and_s3", move || on_servers(time)),
    ];
    libtest_mimic::run(&Arguments::from_args(), trials).exit_code()
}

async fn child(role: &str, stores: &Stores) -> Result<(), Failed> {
    if role == "create-table" {
        return stores.create_table().await;
    }
    let history = stores.directory.join("history.txt");
    let store = PageStore::new(tabletheory::open(&stores.table).await?);
    let bodies = Bodies::open(&stores.bodies).await?;
    match role {
        "work" => {
            let store = store.with_lease_terms(lease_terms()).with_request_terms(request_terms());
            let pages = Pages::new(store, bodies.clone());
            work::forever(&pages, &bodies, history::Recorder::open(&history)?).await
        }
        // Leases of the default length: on a slow machine a short one could expire during the check.
        "check" => check::all(&Pages::new(store, bodies.clone()), &bodies, &history::read(&history)?).await,
        other => Err(format!("unknown role of a child: {other}").into()),
    }
}

fn lease_terms() -> LeaseTerms {
    LeaseTerms::lasting(LEASE)
}

fn request_terms() -> RequestTerms {
    let mut terms = RequestTerms::default();
    terms.in_progress = IN_PROGRESS;
    terms
}

fn on_sqlite(time: Duration) -> Result<(), Failed> {
    kill_processes(time, &Stores::on_sqlite()?)
}

fn on_servers(time: Duration) -> Result<(), Failed> {
    kill_processes(time, &Stores::on_servers()?)
}

/// Kills processes for this long, and each of the first ones at least once, then checks the result.
fn kill_processes(time: Duration, stores: &Stores) -> Result<(), Failed> {
    stores.run("create-table")?;
    let random = SeededRandom::new(1);
    let mut children = Vec::new();
    for _ in 0..PROCESSES {
        children.push(start(stores)?);
    }
    let end = SystemClock.now() + time;
    let mut kills = 0;
    while SystemClock.now() < end || kills < PROCESSES {
        let mut running = children.remove(0);
        for _ in 0..random.next_u64() % MAX_PUBLISHED {
            if running.output.read_line(&mut String::new())? == 0 {
                return Err("a process exited by itself; its output is above".into());
            }
        }
        kill(running)?;
        kills += 1;
        children.push(start(stores)?);
    }
    for running in children {
        kill(running)?;
    }
    stores.run("check")
}

/// A child process, killed when this is dropped.
struct Running {
    child: Child,
    /// One line for each page that it published.
    output: BufReader<ChildStdout>,
}

impl Drop for Running {
    fn drop(&mut self) {
        // Fails if the process has exited already.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn start(stores: &Stores) -> Result<Running, Failed> {
    let mut child = stores.command("work")?.stdin(Stdio::null()).stdout(Stdio::piped()).spawn()?;
    let output = BufReader::new(child.stdout.take().ok_or("the child has no output")?);
    Ok(Running { child, output })
}

/// Kills a process; fails if it exited before.
fn kill(mut running: Running) -> Result<(), Failed> {
    const SIGKILL: i32 = 9;
    running.child.kill()?;
    match running.child.wait()?.signal() {
        Some(SIGKILL) => Ok(()),
        other => Err(format!("a process exited by itself ({other:?}); its output is above").into()),
    }
}
