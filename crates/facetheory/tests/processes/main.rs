//! Several processes with several workers each, on real servers and on one SQLite file, killed at random for a while:
//! what they recorded, and what the tables hold in the end, must tell one story.
//!
//! `FACETHEORY_KILL_SECONDS=60 cargo test -p facetheory --all-features --test processes` goes on for longer than the
//! default. The program is its own child: it works, or checks, when it is told where.

mod check;
mod history;
#[path = "../support/mod.rs"]
mod support;
mod work;

use std::io::{BufRead as _, BufReader, Write as _};
use std::os::unix::process::ExitStatusExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdout, Command, ExitCode, Stdio};
use std::time::Duration;

use facetheory::{Bodies, LeaseTerms, PageStore, Pages, RequestTerms};
use libtest_mimic::{Arguments, Failed, Trial};
use support::setting;
use tabletheory::{Clock as _, DynamoSettings, DynamoTable, Random, SeededRandom, SystemClock, SystemRandom};

/// For how long each backend's processes are killed, unless `FACETHEORY_KILL_SECONDS` says otherwise.
const KILL_SECONDS: u64 = 10;
const PROCESSES: usize = 4;
/// A child is killed after it has published fewer than this many pages since it was looked at.
const MOST_PUBLISHED: u64 = 30;
/// Short, since the leases of the killed are waited for.
const LEASE: Duration = Duration::from_secs(1);
/// For how long a request counts as worked on; short for the same reason.
const IN_PROGRESS: Duration = Duration::from_secs(2);

const CHILD: &str = "FACETHEORY_PROCESSES_CHILD";

fn main() -> ExitCode {
    if let Ok(role) = std::env::var(CHILD) {
        let argument = |index: usize| std::env::args().nth(index).expect("an argument");
        return be_a_child(&role, &argument(1), &argument(2), Path::new(&argument(3)));
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

/// The environment of a process says how to reach the servers, so everything that does is done by children.
fn be_a_child(role: &str, table: &str, bodies: &str, history: &Path) -> ExitCode {
    let runtime = tokio::runtime::Runtime::new().expect("a runtime");
    let outcome = runtime.block_on(async {
        match role {
            "make" => make(table).await,
            "work" => {
                let (pages, bodies) = open(table, bodies).await?;
                work::forever(&pages, &bodies, history::Recorder::open(history)?).await
            }
            "check" => {
                let (pages, bodies) = open(table, bodies).await?;
                check::all(&pages, &bodies, &history::read(history)?).await
            }
            other => Err(format!("no child is to {other}").into()),
        }
    });
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(failed) => {
            std::io::stderr().write_all(format!("{failed:?}\n").as_bytes()).expect("somebody listens");
            ExitCode::FAILURE
        }
    }
}

/// Makes the table, where it does not make itself.
async fn make(table: &str) -> Result<(), Failed> {
    if let Some(name) = table.strip_prefix("dynamodb:") {
        let table = DynamoTable::connect(name, DynamoSettings::default()).await?;
        table.create_table_if_missing().await?;
    }
    Ok(())
}

async fn open(table: &str, bodies: &str) -> Result<(Pages, Bodies), Failed> {
    let terms = LeaseTerms { duration: LEASE, ..LeaseTerms::default() };
    let request_terms = RequestTerms { in_progress: IN_PROGRESS, ..RequestTerms::default() };
    let store = PageStore::new(tabletheory::open(table).await?);
    let store = store.with_terms(terms).with_request_terms(request_terms);
    let bodies = Bodies::open(bodies).await?;
    Ok((Pages::new(store, bodies.clone()), bodies))
}

fn on_sqlite(time: Duration) -> Result<(), Failed> {
    let directory = tempfile::tempdir()?;
    let place = directory.path().display();
    kill(
        time,
        &Place {
            table: format!("sqlite:{place}/table.db"),
            bodies: format!("file:{place}/bodies"),
            history: directory.path().join("history.txt"),
            environment: vec![],
        },
    )
}

fn on_servers(time: Duration) -> Result<(), Failed> {
    let directory = tempfile::tempdir()?;
    let name = format!("facetheory-processes-{:x}", SystemRandom.next_u64());
    let endpoint = setting("FACETHEORY_TEST_DYNAMODB_ENDPOINT");
    let bodies = format!("s3://{}/{name}", setting("FACETHEORY_TEST_S3_BUCKET"));
    let environment = vec![
        ("AWS_ENDPOINT_URL_DYNAMODB", endpoint),
        ("AWS_ENDPOINT_URL_S3", setting("FACETHEORY_TEST_S3_ENDPOINT")),
        ("AWS_ACCESS_KEY_ID", setting("AWS_ACCESS_KEY_ID")),
        ("AWS_SECRET_ACCESS_KEY", setting("AWS_SECRET_ACCESS_KEY")),
        ("AWS_REGION", "us-east-1".to_owned()),
    ];
    let history = directory.path().join("history.txt");
    kill(time, &Place { table: format!("dynamodb:{name}"), bodies, history, environment })
}

/// Where the pages of a run are, and what its processes need to know to get there.
struct Place {
    table: String,
    bodies: String,
    history: PathBuf,
    environment: Vec<(&'static str, String)>,
}

/// Kills for so long, and each first child at least once; time decides nothing else.
fn kill(time: Duration, place: &Place) -> Result<(), Failed> {
    run(place, "make")?;
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
    run(place, "check")
}

/// Lets a child do one thing, and fails as it does.
fn run(place: &Place, role: &str) -> Result<(), Failed> {
    let status = command(place, role)?.stdin(Stdio::null()).spawn()?.wait()?;
    if status.success() { Ok(()) } else { Err(format!("it could not {role}; why is above").into()) }
}

fn command(place: &Place, role: &str) -> Result<Command, Failed> {
    let mut command = Command::new(std::env::current_exe()?);
    command.args([&place.table, &place.bodies]).arg(&place.history).env(CHILD, role);
    command.envs(place.environment.iter().map(|(name, value)| (name, value)));
    Ok(command)
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
    let mut child = command(place, "work")?.stdin(Stdio::null()).stdout(Stdio::piped()).spawn()?;
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
