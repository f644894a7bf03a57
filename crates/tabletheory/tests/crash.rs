//! Writers that are killed at random moments: whatever was acknowledged is there, and nothing is torn.
//!
//! `TABLETHEORY_KILLS=2000 cargo test -p tabletheory --test crash` kills more often than the default.
//! The program is its own child: it writes when it is given a file.

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Write as _};
use std::os::unix::process::ExitStatusExt as _;
use std::path::Path;
use std::process::{Child, ChildStdout, Command, ExitCode, Stdio};

use libtest_mimic::{Arguments, Failed, Trial};
use tabletheory::{
    Attr, Commit, Consistency, Item, Key, Query, Random, SeededRandom, SqliteTable, Table, Txn, Update,
    Value, Write,
};

const KILLS: u32 = 200;
/// Concurrent committers in one process, so that one write to the disk carries several transactions.
const WORKERS: u32 = 4;
/// A child is killed after it has acknowledged fewer than this many transactions.
const MOST_ACKNOWLEDGED: u64 = 25;
/// The longest busy wait between an acknowledgement and the kill, in turns of a loop: a few milliseconds.
const MOST_TURNS: u64 = 2_000_000;

const CHILD: &str = "TABLETHEORY_CRASH_CHILD";
const PK: Attr<String> = Attr::new("pk");
const LAST: Attr<i64> = Attr::new("last");
const COUNT: Attr<i64> = Attr::new("count");

fn main() -> ExitCode {
    if let Ok(file) = std::env::var(CHILD) {
        let process: u32 = std::env::args().nth(1).and_then(|text| text.parse().ok()).expect("a number");
        write_forever(Path::new(&file), process);
    }
    let kills =
        std::env::var("TABLETHEORY_KILLS").map_or(KILLS, |text| text.parse().expect("a number of kills"));
    let trials = vec![
        Trial::test("a_killed_writer_loses_nothing_acknowledged", move || kill_writers(1, kills)),
        Trial::test("two_killed_writers_of_one_file_lose_nothing_acknowledged", move || {
            kill_writers(2, kills)
        }),
    ];
    libtest_mimic::run(&Arguments::from_args(), trials).exit_code()
}

/// What the child does until it is killed.
fn write_forever(file: &Path, process: u32) -> ! {
    let runtime = tokio::runtime::Builder::new_current_thread().build().expect("a runtime");
    let table = SqliteTable::open(file).expect("the file opens, whatever happened to the last writer");
    runtime.block_on(async {
        let workers = (0..WORKERS).map(|worker| work(&table, format!("{process}-{worker}")));
        let mut workers: Vec<_> = workers.map(Box::pin).collect();
        // One task polls them all: each waits for the disk most of the time.
        std::future::poll_fn(|context| {
            for worker in &mut workers {
                let _ = std::future::Future::poll(worker.as_mut(), context);
            }
            std::task::Poll::<()>::Pending
        })
        .await;
    });
    unreachable!("it writes until it is killed")
}

/// Commits transaction after transaction, each of four rows, and says so on standard output.
async fn work(table: &SqliteTable, worker: String) {
    let head = Key::new(format!("worker#{worker}"), "HEAD");
    let row = table.get(&head, Consistency::Strong).await.expect("a get");
    let mut last = row.and_then(|row| row.get("last")?.as_i64()).unwrap_or(0);
    loop {
        let next = last + 1;
        let part = |name: &str| {
            let item = Item::from([("n", Value::from(next)), ("filler", "x".repeat(200).into())]);
            Write::put(head.sibling(format!("{next:08}#{name}")), item).when(PK.absent())
        };
        let txn = Txn::new([
            part("A"),
            part("B"),
            Write::update(head.clone(), Update::new([LAST.set(next)])).when(LAST.is(last).or(PK.absent())),
            Write::update(Key::new("shared", "COUNT"), Update::new([COUNT.add(1)])),
        ]);
        match table.commit(&txn).await.expect("a commit") {
            Commit::Done => {}
            Commit::Refused { index, seen } => panic!("write {index} of {next} was refused: {seen:?}"),
        }
        // Unbuffered and in one piece, so that the parent never reads half a line.
        std::io::stdout().write_all(format!("{worker} {next}\n").as_bytes()).expect("the parent listens");
        last = next;
    }
}

/// Kills children, one after the other in each place, and looks at the file after each kill.
#[expect(clippy::print_stdout, reason = "what was counted is the point of the run")]
fn kill_writers(places: u32, kills: u32) -> Result<(), Failed> {
    let directory = tempfile::tempdir()?;
    let file = directory.path().join("table.db");
    let random = SeededRandom::new(u64::from(places));
    let mut acknowledged: BTreeMap<String, i64> = BTreeMap::new();
    let mut looked_at: BTreeMap<String, i64> = BTreeMap::new();
    let mut children: Vec<Running> = Vec::new();
    for process in 0..places {
        children.push(start_child(&file, process)?);
    }
    for kill in 0..kills {
        let place = kill % places;
        let mut running = children.remove(0);
        for _ in 0..random.next_u64() % MOST_ACKNOWLEDGED {
            if !read_acknowledgement(&mut running.output, &mut acknowledged)? {
                return Err("a writer has ended by itself; what it said is above".into());
            }
        }
        for turn in 0..random.next_u64() % MOST_TURNS {
            std::hint::black_box(turn);
        }
        end(&mut running.child)?;
        while read_acknowledgement(&mut running.output, &mut acknowledged)? {}
        look(&file, &acknowledged, &mut looked_at)?;
        children.push(start_child(&file, place)?);
    }
    for mut running in children {
        end(&mut running.child)?;
        while read_acknowledgement(&mut running.output, &mut acknowledged)? {}
    }
    looked_at.clear();
    let committed = look(&file, &acknowledged, &mut looked_at)?;
    count_everything(&file, committed)?;
    let sum: i64 = acknowledged.values().sum();
    println!(
        "{kills} kills of {places} writer(s): {sum} transactions acknowledged, {committed} committed, none torn"
    );
    Ok(())
}

/// Kills a writer, which must not have ended by itself: it would have met something that it did not expect.
fn end(child: &mut Child) -> Result<(), Failed> {
    const SIGKILL: i32 = 9;
    child.kill()?;
    match child.wait()?.signal() {
        Some(SIGKILL) => Ok(()),
        other => {
            Err(format!("a writer has ended by itself, with signal {other:?}; what it said is above").into())
        }
    }
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

fn start_child(file: &Path, process: u32) -> Result<Running, Failed> {
    let mut child = Command::new(std::env::current_exe()?)
        .arg(process.to_string())
        .env(CHILD, file)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .spawn()?;
    let output = BufReader::new(child.stdout.take().ok_or("the child has no output")?);
    Ok(Running { child, output })
}

/// Notes one acknowledgement; false at the end of the output.
fn read_acknowledgement(
    output: &mut BufReader<ChildStdout>,
    acknowledged: &mut BTreeMap<String, i64>,
) -> Result<bool, Failed> {
    let mut line = String::new();
    if output.read_line(&mut line)? == 0 {
        return Ok(false);
    }
    let (worker, number) =
        line.trim_end().split_once(' ').ok_or_else(|| format!("a strange line: {line:?}"))?;
    let before = acknowledged.insert(worker.to_owned(), number.parse()?).unwrap_or(0);
    if number.parse::<i64>()? <= before {
        return Err(format!("{worker} acknowledged {number} after {before}").into());
    }
    Ok(true)
}

/// Looks at every transaction since the last look; returns how many each worker has committed, added up.
fn look(
    file: &Path,
    acknowledged: &BTreeMap<String, i64>,
    looked_at: &mut BTreeMap<String, i64>,
) -> Result<i64, Failed> {
    let runtime = tokio::runtime::Builder::new_current_thread().build()?;
    let table = SqliteTable::open(file)?;
    runtime.block_on(async {
        let mut committed = 0;
        for (worker, acknowledged) in acknowledged {
            let head = Key::new(format!("worker#{worker}"), "HEAD");
            let row = table.get(&head, Consistency::Strong).await?.ok_or("HEAD is missing")?;
            let last = row.get("last").and_then(Value::as_i64).ok_or("HEAD has no number")?;
            if last < *acknowledged {
                return Err(format!(
                    "{worker}: {acknowledged} was acknowledged, and {last} is the last there"
                )
                .into());
            }
            let from = looked_at.get(worker).copied().unwrap_or(0) + 1;
            for number in from..=last {
                for part in ["A", "B"] {
                    let key = head.sibling(format!("{number:08}#{part}"));
                    if table.get(&key, Consistency::Strong).await?.is_none() {
                        return Err(format!("{worker}: part {part} of {number} is missing").into());
                    }
                }
            }
            // The other process of two may go on writing, but never past its own HEAD.
            looked_at.insert(worker.clone(), last);
            committed += last;
        }
        Ok(committed)
    })
}

/// At rest: no row beyond HEAD, no update of the shared counter lost, and the file sound.
fn count_everything(file: &Path, committed: i64) -> Result<(), Failed> {
    let runtime = tokio::runtime::Builder::new_current_thread().build()?;
    let table = SqliteTable::open(file)?;
    runtime.block_on(async {
        let heads = i64::try_from(table.verify().await?)? - 1 - 2 * committed;
        let count = table.query(&Query::of("shared")).await?.items.pop().ok_or("no counter")?;
        let count = count.get("count").and_then(Value::as_i64).ok_or("the counter has no number")?;
        if count != committed {
            return Err(format!("{committed} transactions are there, but the counter says {count}").into());
        }
        if !(1..=i64::from(2 * WORKERS)).contains(&heads) {
            return Err(format!("{heads} rows too many or too few: a transaction is torn").into());
        }
        Ok(())
    })
}
