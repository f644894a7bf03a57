//! Kills writers at random moments: acknowledged transactions must be durable, and transactions must be atomic.
//!
//! `TABLETHEORY_KILLS=2000 cargo test -p tabletheory --test crash` kills more often than the default. The test runs itself as
//! the child process that writes.

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
/// Concurrent tasks per process, so that one write to disk commits several transactions.
const WORKERS: u32 = 4;
/// Upper bound of the acknowledged transactions before a kill.
const MAX_ACKNOWLEDGED: u64 = 25;
/// Upper bound of the busy wait between an acknowledgement and the kill, in iterations: a few milliseconds.
const MAX_SPINS: u64 = 2_000_000;

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
        Trial::test("a_killed_writer_loses_no_acknowledged_transaction", move || kill_writers(1, kills)),
        Trial::test("two_killed_writers_of_one_file_lose_no_acknowledged_transaction", move || {
            kill_writers(2, kills)
        }),
    ];
    libtest_mimic::run(&Arguments::from_args(), trials).exit_code()
}

/// The child process, which writes until it is killed.
fn write_forever(file: &Path, process: u32) -> ! {
    let runtime = tokio::runtime::Builder::new_current_thread().build().expect("a runtime");
    let table = SqliteTable::open(file).expect("the file opens after a kill");
    runtime.block_on(async {
        let workers = (0..WORKERS).map(|worker| work(&table, format!("{process}-{worker}")));
        let mut workers: Vec<_> = workers.map(Box::pin).collect();
        // One task polls all of them.
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

/// Commits transactions of four rows, and acknowledges each on standard output.
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
        // Unbuffered and in one write, so that the parent never reads half a line.
        std::io::stdout().write_all(format!("{worker} {next}\n").as_bytes()).expect("the parent reads");
        last = next;
    }
}

/// Kills and restarts children, one at a time, and checks the file after each kill.
#[expect(clippy::print_stdout, reason = "the counts are the result of the run")]
fn kill_writers(writers: u32, kills: u32) -> Result<(), Failed> {
    let directory = tempfile::tempdir()?;
    let file = directory.path().join("table.db");
    let random = SeededRandom::new(u64::from(writers));
    let mut acknowledged: BTreeMap<String, i64> = BTreeMap::new();
    let mut checked: BTreeMap<String, i64> = BTreeMap::new();
    let mut children: Vec<Running> = Vec::new();
    for process in 0..writers {
        children.push(start_child(&file, process)?);
    }
    for kill in 0..kills {
        let writer = kill % writers;
        let mut running = children.remove(0);
        for _ in 0..random.next_u64() % MAX_ACKNOWLEDGED {
            if !read_acknowledgement(&mut running.output, &mut acknowledged)? {
                return Err("a writer exited by itself; its output is above".into());
            }
        }
        for spin in 0..random.next_u64() % MAX_SPINS {
            std::hint::black_box(spin);
        }
        kill_child(&mut running.child)?;
        while read_acknowledgement(&mut running.output, &mut acknowledged)? {}
        check(&file, &acknowledged, &mut checked)?;
        children.push(start_child(&file, writer)?);
    }
    for mut running in children {
        kill_child(&mut running.child)?;
        while read_acknowledgement(&mut running.output, &mut acknowledged)? {}
    }
    checked.clear();
    let committed = check(&file, &acknowledged, &mut checked)?;
    check_totals(&file, committed)?;
    let sum: i64 = acknowledged.values().sum();
    println!(
        "{kills} kills of {writers} writer(s): {sum} transactions acknowledged, {committed} committed, none torn"
    );
    Ok(())
}

/// Kills a writer. It is an error if it has exited by itself, because of an unexpected result.
fn kill_child(child: &mut Child) -> Result<(), Failed> {
    const SIGKILL: i32 = 9;
    child.kill()?;
    match child.wait()?.signal() {
        Some(SIGKILL) => Ok(()),
        other => Err(format!("a writer exited by itself, with signal {other:?}; its output is above").into()),
    }
}

/// A process that is killed on drop.
struct Running {
    child: Child,
    output: BufReader<ChildStdout>,
}

impl Drop for Running {
    fn drop(&mut self) {
        // Fails if the process has exited already.
        let _ = kill_child(&mut self.child);
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

/// Records one acknowledgement; returns false at the end of the output.
fn read_acknowledgement(
    output: &mut BufReader<ChildStdout>,
    acknowledged: &mut BTreeMap<String, i64>,
) -> Result<bool, Failed> {
    let mut line = String::new();
    if output.read_line(&mut line)? == 0 {
        return Ok(false);
    }
    let (worker, number) =
        line.trim_end().split_once(' ').ok_or_else(|| format!("an unexpected line: {line:?}"))?;
    let before = acknowledged.insert(worker.to_owned(), number.parse()?).unwrap_or(0);
    if number.parse::<i64>()? <= before {
        return Err(format!("{worker} acknowledged {number} after {before}").into());
    }
    Ok(true)
}

/// Checks the transactions since the last check; returns the total number of committed transactions.
fn check(
    file: &Path,
    acknowledged: &BTreeMap<String, i64>,
    checked: &mut BTreeMap<String, i64>,
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
                    "{worker}: {acknowledged} was acknowledged, but the last stored is {last}"
                )
                .into());
            }
            let from = checked.get(worker).copied().unwrap_or(0) + 1;
            for number in from..=last {
                for part in ["A", "B"] {
                    let key = head.sibling(format!("{number:08}#{part}"));
                    if table.get(&key, Consistency::Strong).await?.is_none() {
                        return Err(format!("{worker}: part {part} of {number} is missing").into());
                    }
                }
            }
            // Another process may continue to write, but never beyond its own HEAD.
            checked.insert(worker.clone(), last);
            committed += last;
        }
        Ok(committed)
    })
}

/// Without running writers: no row beyond HEAD, no lost update of the shared counter, and no damage.
fn check_totals(file: &Path, committed: i64) -> Result<(), Failed> {
    let runtime = tokio::runtime::Builder::new_current_thread().build()?;
    let table = SqliteTable::open(file)?;
    runtime.block_on(async {
        let heads = i64::try_from(table.verify().await?)? - 1 - 2 * committed;
        let count = table.query(&Query::of("shared")).await?.items.pop().ok_or("no counter")?;
        let count = count.get("count").and_then(Value::as_i64).ok_or("the counter has no number")?;
        if count != committed {
            return Err(format!("{committed} transactions are stored, but the counter is {count}").into());
        }
        if !(1..=i64::from(2 * WORKERS)).contains(&heads) {
            return Err(format!("{heads} additional rows: a transaction is not atomic").into());
        }
        Ok(())
    })
}
