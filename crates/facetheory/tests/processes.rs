//! Several processes with several workers each, on real servers and on one SQLite file, killed at random: no page
//! loses a generation, doubles one, or names a body that is not there.
//!
//! `FACETHEORY_KILLS=300 cargo test -p facetheory --all-features --test processes` kills more often than the default.
//! The program is its own child: it regenerates when it is told where.

mod support;

use std::collections::{BTreeMap, BTreeSet};
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::os::unix::process::ExitStatusExt as _;
use std::process::{Child, ChildStdout, Command, ExitCode, Stdio};
use std::time::Duration;

use facetheory::{Bodies, Keep, Kind, LeaseTerms, Outcome, PageKey, PageStore, Pages, Policy, Rendered};
use libtest_mimic::{Arguments, Failed, Trial};
use support::setting;
use tabletheory::{DynamoSettings, DynamoTable, Random, SeededRandom, SystemRandom};

const KILLS: u32 = 40;
const PROCESSES: usize = 4;
const WORKERS: u64 = 8;
const PAGES: u64 = 16;
/// A child is killed after it has published fewer than this many pages.
const MOST_PUBLISHED: u64 = 12;
/// Short, since the leases of the killed are waited for.
const LEASE: Duration = Duration::from_secs(1);

/// More versions than a page gets in the longest run.
const MOST_VERSIONS: usize = 100_000;

const CHILD: &str = "FACETHEORY_PROCESSES_CHILD";

fn main() -> ExitCode {
    if let Ok(role) = std::env::var(CHILD) {
        let argument = |index: usize| std::env::args().nth(index).expect("an address");
        return be_a_child(&role, &argument(1), &argument(2));
    }
    let kills =
        std::env::var("FACETHEORY_KILLS").map_or(KILLS, |text| text.parse().expect("a number of kills"));
    let trials = vec![
        Trial::test("killed_processes_on_one_sqlite_file", move || on_sqlite(kills)),
        Trial::test("killed_processes_on_dynamodb_and_s3", move || on_servers(kills)),
    ];
    libtest_mimic::run(&Arguments::from_args(), trials).exit_code()
}

/// The environment of a process says how to reach the servers, so everything that does is done by children.
fn be_a_child(role: &str, table: &str, bodies: &str) -> ExitCode {
    let runtime = tokio::runtime::Runtime::new().expect("a runtime");
    let outcome = runtime.block_on(async {
        match role {
            "make" => make(table).await,
            "work" => regenerate_forever(&open(table, bodies).await?).await,
            "check" => check(&open(table, bodies).await?).await,
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

async fn open(table: &str, bodies: &str) -> Result<Pages, Failed> {
    let terms = LeaseTerms { duration: LEASE, ..LeaseTerms::default() };
    let store = PageStore::new(tabletheory::open(table).await?).with_terms(terms);
    Ok(Pages::new(store, Bodies::open(bodies).await?))
}

fn page(number: u64) -> PageKey {
    PageKey::new(format!("/page/{number}")).expect("a page")
}

/// Renews pages that are always stale, and says what it has published, until it is killed.
async fn regenerate_forever(pages: &Pages) -> Result<(), Failed> {
    let mut workers = tokio::task::JoinSet::new();
    for _ in 0..WORKERS {
        workers.spawn(work(pages.clone()));
    }
    while let Some(ended) = workers.join_next().await {
        ended?;
    }
    Err("a worker never ends by itself".into())
}

async fn work(pages: Pages) {
    let policy = Policy::every(Duration::ZERO).keeping(Keep::Versions);
    loop {
        let number = SystemRandom.next_u64() % PAGES;
        let body = format!("page {number}, render {:016x}", SystemRandom.next_u64());
        let outcome = pages.regenerate(&page(number), &policy, |_| async { Ok(Rendered::html(body)) }).await;
        match outcome {
            Ok(Outcome::Published(generation)) => {
                // In one piece, so that the parent never reads half a line of a living child.
                let line = format!("{number} {}\n", generation.s3_key);
                // Where the parent has given up, there is nobody left to tell.
                if std::io::stdout().write_all(line.as_bytes()).is_err() {
                    return;
                }
            }
            Ok(_) => tokio::task::yield_now().await,
            Err(error) => assert!(matches!(error.kind(), Kind::Unavailable | Kind::Unknown), "{error}"),
        }
    }
}

fn on_sqlite(kills: u32) -> Result<(), Failed> {
    let directory = tempfile::tempdir()?;
    let place = directory.path().display();
    kill(
        kills,
        &Place {
            table: format!("sqlite:{place}/table.db"),
            bodies: format!("file:{place}/bodies"),
            environment: vec![],
        },
    )
}

fn on_servers(kills: u32) -> Result<(), Failed> {
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
    kill(kills, &Place { table: format!("dynamodb:{name}"), bodies, environment })
}

/// Where the pages of a run are, and what its processes need to know to get there.
struct Place {
    table: String,
    bodies: String,
    environment: Vec<(&'static str, String)>,
}

fn kill(kills: u32, place: &Place) -> Result<(), Failed> {
    run(place, "make", "")?;
    let random = SeededRandom::new(1);
    let mut acknowledged = String::new();
    let mut children = Vec::new();
    for _ in 0..PROCESSES {
        children.push(start(place)?);
    }
    for _ in 0..kills {
        let mut running = children.remove(0);
        for _ in 0..random.next_u64() % MOST_PUBLISHED {
            if running.output.read_line(&mut acknowledged)? == 0 {
                return Err("a process has ended by itself; what it said is above".into());
            }
        }
        end(running, &mut acknowledged)?;
        children.push(start(place)?);
    }
    for running in children {
        end(running, &mut acknowledged)?;
    }
    run(place, "check", &acknowledged)
}

/// Lets a child do one thing, and fails as it does.
fn run(place: &Place, role: &str, input: &str) -> Result<(), Failed> {
    let mut child = command(place, role)?.stdin(Stdio::piped()).spawn()?;
    child.stdin.take().ok_or("the child has no input")?.write_all(input.as_bytes())?;
    let status = child.wait()?;
    if status.success() { Ok(()) } else { Err(format!("it could not {role}; why is above").into()) }
}

fn command(place: &Place, role: &str) -> Result<Command, Failed> {
    let mut command = Command::new(std::env::current_exe()?);
    command.args([&place.table, &place.bodies]).env(CHILD, role);
    command.envs(place.environment.iter().map(|(name, value)| (name, value)));
    Ok(command)
}

/// A process that is never left behind, whatever becomes of the run.
struct Running {
    child: Child,
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

/// Kills a process, which must not have ended by itself, and reads what it had still to say.
fn end(mut running: Running, acknowledged: &mut String) -> Result<(), Failed> {
    const SIGKILL: i32 = 9;
    running.child.kill()?;
    let signal = running.child.wait()?.signal();
    if signal != Some(SIGKILL) {
        return Err(
            format!("a process has ended by itself, with signal {signal:?}; what it said is above").into()
        );
    }
    running.output.read_to_string(acknowledged)?;
    Ok(())
}

/// Every acknowledged generation has its row and its body, and `META` counts exactly the rows there are.
#[expect(clippy::print_stdout, reason = "what was counted is the point of the run")]
async fn check(pages: &Pages) -> Result<(), Failed> {
    let acknowledged = read_acknowledged()?;
    let (mut said, mut there) = (0, 0);
    for (number, bodies) in &acknowledged {
        let page = page(*number);
        let wrong = |what: String| Failed::from(format!("page {number}: {what}"));
        let versions = pages.store().versions(&page, MOST_VERSIONS).await?;
        let named: BTreeSet<&str> =
            versions.iter().map(|(_, version)| version.generation.s3_key.as_str()).collect();
        if named.len() != versions.len() {
            return Err(wrong("two versions name one body".into()));
        }
        if let Some(lost) = bodies.iter().find(|body| !named.contains(body.as_str())) {
            return Err(wrong(format!("{lost} was acknowledged and has no version")));
        }
        let meta = pages.store().look(&page).await?.meta.ok_or_else(|| wrong("META is missing".into()))?;
        if meta.version != Some(versions.len() as u64) {
            return Err(wrong(format!("{} versions, and META counts {:?}", versions.len(), meta.version)));
        }
        if !versions.iter().any(|(sk, _)| Some(sk) == meta.current_sk.as_ref()) {
            return Err(wrong("META points at no version".into()));
        }
        let read = pages.read(&page).await?;
        let (_, body) = read.ok_or_else(|| wrong("META names a body that is not there".into()))?;
        let text = String::from_utf8_lossy(&body.bytes).into_owned();
        if !text.starts_with(&format!("page {number}, render ")) {
            return Err(wrong(format!("it has the body {text:?}")));
        }
        said += bodies.len();
        there += versions.len();
    }
    println!(
        "{said} publishes of {} pages acknowledged, {there} there, none torn or doubled",
        acknowledged.len()
    );
    Ok(())
}

/// What the children said, from standard input: which bodies each page has published.
fn read_acknowledged() -> Result<BTreeMap<u64, BTreeSet<String>>, Failed> {
    let mut acknowledged: BTreeMap<u64, BTreeSet<String>> = BTreeMap::new();
    for line in std::io::stdin().lines() {
        let line = line?;
        let (number, s3_key) = line.split_once(' ').ok_or_else(|| format!("a strange line: {line:?}"))?;
        if !acknowledged.entry(number.parse()?).or_default().insert(s3_key.to_owned()) {
            return Err(format!("{s3_key} was published twice").into());
        }
    }
    if acknowledged.is_empty() { Err("nothing was published".into()) } else { Ok(acknowledged) }
}
