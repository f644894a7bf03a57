//! Several processes with several workers each, on real servers and on one SQLite file, killed at random for a while:
//! what they recorded, and what the tables hold in the end, must tell one story.
//!
//! `FACETHEORY_KILL_SECONDS=60 cargo test -p facetheory --all-features --test processes` goes on for longer than the
//! default. The program is its own child: it works, or checks, when it is told where.

mod calm;
mod check;
mod history;
#[path = "../support/place.rs"]
mod place;
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
use place::{Place, be_a_child};
use tabletheory::{Clock as _, Random, SeededRandom, SystemClock};

/// For how long each backend's processes are killed, unless `FACETHEORY_KILL_SECONDS` says otherwise.
const KILL_SECONDS: u64 = 10;
const PROCESSES: usize = 4;
/// A child is killed after it has published fewer than this many pages since it was looked at.
const MOST_PUBLISHED: u64 = 30;
/// Short, since the leases of the killed are waited for.
const LEASE: Duration = Duration::from_secs(1);
/// For how long a request counts as worked on; short for the same reason.
const IN_PROGRESS: Duration = Duration::from_secs(2);

fn main() -> ExitCode {
    if let Some((role, place)) = Place::of_child() {
        return be_a_child(be(&role, &place));
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

async fn be(role: &str, place: &Place) -> Result<(), Failed> {
    if role == "make" {
        return place.make_table().await;
    }
    let history = place.directory.join("history.txt");
    let store = PageStore::new(tabletheory::open(&place.table).await?);
    let bodies = Bodies::open(&place.bodies).await?;
    match role {
        "work" => {
            let store = store.with_lease_terms(lease_terms()).with_request_terms(request_terms());
            let pages = Pages::new(store, bodies.clone());
            work::forever(&pages, &bodies, history::Recorder::open(&history)?).await
        }
        // Nobody waits for its leases, and a slow machine must not make them end.
        "check" => check::all(&Pages::new(store, bodies.clone()), &bodies, &history::read(&history)?).await,
        other => Err(format!("no child is to {other}").into()),
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
    kill(time, &Place::on_sqlite()?)
}

fn on_servers(time: Duration) -> Result<(), Failed> {
    kill(time, &Place::on_servers()?)
}

/// Kills for so long, and each first child at least once; time decides nothing else.
fn kill(time: Duration, place: &Place) -> Result<(), Failed> {
    place.run("make")?;
    let random = SeededRandom::new(1);
    let mut children = Vec::new();
    for _ in 0..PROCESSES {
        children.push(start(place)?);
    }
    let end = SystemClock.now() + time;
    let mut kills = 0;
    while SystemClock.now() < end || kills < PROCESSES {
        let mut running = children.remove(0);
        for _ in 0..random.next_u64() % MOST_PUBLISHED {
            if running.output.read_line(&mut String::new())? == 0 {
                return Err("a process has ended by itself; what it said is above".into());
            }
        }
        end_of(running)?;
        kills += 1;
        children.push(start(place)?);
    }
    for running in children {
        end_of(running)?;
    }
    place.run("check")
}

/// A process that is never left behind, whatever becomes of the run.
struct Running {
    child: Child,
    /// One line for each page that it has published.
    output: BufReader<ChildStdout>,
}

impl Drop for Running {
    fn drop(&mut self) {
        // One that has ended already cannot be killed, which is as good.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn start(place: &Place) -> Result<Running, Failed> {
    let mut child = place.command("work")?.stdin(Stdio::null()).stdout(Stdio::piped()).spawn()?;
    let output = BufReader::new(child.stdout.take().ok_or("the child has no output")?);
    Ok(Running { child, output })
}

/// Kills a process, which must not have ended by itself.
fn end_of(mut running: Running) -> Result<(), Failed> {
    const SIGKILL: i32 = 9;
    running.child.kill()?;
    match running.child.wait()?.signal() {
        Some(SIGKILL) => Ok(()),
        other => Err(format!("a process has ended by itself ({other:?}); what it said is above").into()),
    }
}
