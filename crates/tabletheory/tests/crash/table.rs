//! Writers of a table: each transaction is there as a whole or not at all.

use std::collections::BTreeMap;
use std::path::Path;

use libtest_mimic::Failed;
use tabletheory::{
    Attr, Commit, Consistency, Item, Key, Query, SqliteTable, Table, Txn, Update, Value, Write,
};

use super::kill::{self, Check, Writer, tell_parent};

/// The kills of a test, unless the environment gives a number.
const KILLS: u32 = 200;
/// Concurrent tasks per process, so that one write to disk commits several transactions.
const WORKERS: u32 = 4;

const PK: Attr<String> = Attr::new("pk");
const LAST: Attr<i64> = Attr::new("last");
const COUNT: Attr<i64> = Attr::new("count");

/// The child process.
pub(crate) async fn write_forever(writer: &Writer) -> ! {
    let table = SqliteTable::open(&writer.path).expect("the file opens after a kill");
    Writer::run((0..WORKERS).map(|worker| work(&table, format!("{}-{worker}", writer.number)))).await
}

/// Commits transactions of four rows, and acknowledges each.
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
        tell_parent(&format!("{worker} {next}"));
        last = next;
    }
}

#[expect(clippy::print_stdout, reason = "the counts are the result of the run")]
pub(crate) fn kill_writers(writers: u32) -> Result<(), Failed> {
    let directory = tempfile::tempdir()?;
    let file = directory.path().join("table.db");
    let mut transactions = Transactions::default();
    let kills = kill::kills(KILLS);
    kill::kill_writers("table", &file, writers, kills, &mut transactions)?;
    transactions.checked.clear();
    let committed = transactions.check_each(&file)?;
    check_totals(&file, committed)?;
    let sum: i64 = transactions.acknowledged.values().sum();
    println!(
        "{kills} kills of {writers} writer(s): {sum} transactions acknowledged, {committed} committed, none torn"
    );
    Ok(())
}

/// The last transaction of each worker.
#[derive(Default)]
struct Transactions {
    acknowledged: BTreeMap<String, i64>,
    checked: BTreeMap<String, i64>,
}

impl Check for Transactions {
    fn record(&mut self, line: &str) -> Result<(), Failed> {
        let (worker, number) = line.split_once(' ').ok_or_else(|| format!("an unexpected line: {line:?}"))?;
        let number = number.parse()?;
        let before = self.acknowledged.insert(worker.to_owned(), number).unwrap_or(0);
        if number <= before {
            return Err(format!("{worker} acknowledged {number} after {before}").into());
        }
        Ok(())
    }

    fn check(&mut self, file: &Path, _: u32) -> Result<(), Failed> {
        self.check_each(file).map(drop)
    }
}

impl Transactions {
    /// Checks the transactions since the last check; returns the total number of committed transactions.
    fn check_each(&mut self, file: &Path) -> Result<i64, Failed> {
        let runtime = tokio::runtime::Builder::new_current_thread().build()?;
        let table = SqliteTable::open(file)?;
        runtime.block_on(async {
            let mut committed = 0;
            for (worker, acknowledged) in &self.acknowledged {
                let head = Key::new(format!("worker#{worker}"), "HEAD");
                let row = table.get(&head, Consistency::Strong).await?.ok_or("HEAD is missing")?;
                let last = row.get("last").and_then(Value::as_i64).ok_or("HEAD has no number")?;
                if last < *acknowledged {
                    return Err(format!(
                        "{worker}: {acknowledged} was acknowledged, but the last stored is {last}"
                    )
                    .into());
                }
                let from = self.checked.get(worker).copied().unwrap_or(0) + 1;
                for number in from..=last {
                    for part in ["A", "B"] {
                        let key = head.sibling(format!("{number:08}#{part}"));
                        if table.get(&key, Consistency::Strong).await?.is_none() {
                            return Err(format!("{worker}: part {part} of {number} is missing").into());
                        }
                    }
                }
                // Another process may continue to write, but never beyond its own HEAD.
                self.checked.insert(worker.clone(), last);
                committed += last;
            }
            Ok(committed)
        })
    }
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
