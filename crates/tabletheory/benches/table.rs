//! Compares the embedded table with raw rusqlite on the same disk, as ratios within one run.
//!
//! `cargo bench -p tabletheory` prints criterion's results and then a table of ratios with their targets.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};

use criterion::{BenchmarkGroup, Criterion, Throughput, measurement::WallTime};
use rusqlite::{Connection, OptionalExtension, TransactionBehavior, params};
use tabletheory::{
    Attr, Consistency, Item, Key, Random, SeededRandom, SqliteSettings, SqliteTable, SystemClock, Table, Txn,
    Value, Write,
};
use tokio::runtime::Runtime;
use tokio::task::JoinSet;

/// Enough rows for the full depth of the tree, and more than fit in SQLite's cache.
const ROWS: u64 = 200_000;
const READERS: u64 = 2;
const COMMITTERS: u64 = 64;

#[expect(
    clippy::disallowed_methods,
    reason = "results of earlier runs are recognized by the age of their files"
)]
fn main() {
    let started = SystemTime::now();
    let output = output_directory();
    let mut criterion = Criterion::default()
        .sample_size(20)
        .warm_up_time(Duration::from_secs(1))
        .measurement_time(Duration::from_secs(5))
        .output_directory(&output)
        .configure_from_args();
    let directory =
        tempfile::tempdir_in(output.parent().unwrap_or(&output)).expect("a directory on the build's disk");
    let file = directory.path().join("table.db");
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).build().expect("a runtime");
    let table = Arc::new(open(&file));
    runtime.block_on(fill(&table));

    // Raw rusqlite commits to a file with the same rows and schema.
    let copy = directory.path().join("raw.db");
    let source = Connection::open(&file).expect("the file");
    source.execute("VACUUM INTO ?1", [copy.to_string_lossy()]).expect("a copy");

    reads(&mut criterion, &runtime, &table, &file);
    commits(&mut criterion, &runtime, &table, &copy);
    criterion.final_summary();
    print_ratios(&output, started);
}

fn output_directory() -> PathBuf {
    let exe = std::env::current_exe().expect("the path of the program");
    let target = exe.ancestors().find(|directory| directory.ends_with("target"));
    target.map_or_else(|| PathBuf::from("target"), Path::to_path_buf).join("criterion")
}

fn open(file: &Path) -> SqliteTable {
    let settings = SqliteSettings::default().sweep(None);
    SqliteTable::open_with(file, &settings, Arc::new(SystemClock)).expect("a new file")
}

fn key(number: u64) -> Key {
    Key::new(format!("CACHE#{:016x}", number.wrapping_mul(0x9E37_79B9_7F4A_7C15)), "META")
}

/// About 300 bytes, with the attributes of a page's `META`.
fn meta(number: u64) -> Item {
    Item::from([
        ("s3_key", Value::from(format!("isr/{number:024x}/1700000000000-{number:032x}.html"))),
        ("generated_at", Value::from(1_700_000_000 + number)),
        ("revalidate_seconds", Value::from(60)),
        ("etag", Value::from(format!("\"{number:064x}\""))),
        ("ttl", Value::from(1_800_000_000 + number)),
    ])
}

async fn fill(table: &SqliteTable) {
    for chunk in 0..ROWS / 100 {
        let writes =
            (0..100).map(|index| chunk * 100 + index).map(|number| Write::put(key(number), meta(number)));
        assert!(table.commit(&Txn::new(writes)).await.expect("rows").is_done());
    }
}

fn group<'c>(criterion: &'c mut Criterion, name: &str) -> BenchmarkGroup<'c, WallTime> {
    let mut group = criterion.benchmark_group(name);
    group.throughput(Throughput::Elements(1));
    group
}

/// Scales a measured time to the number of operations that was requested; workers do equal shares, so they may do more.
fn scaled(time: Duration, done: u64, requested: u64) -> Duration {
    time.mul_f64(requested as f64 / done as f64)
}

#[expect(clippy::disallowed_methods, reason = "a benchmark measures the wall clock")]
fn timed(work: impl FnOnce()) -> Duration {
    let start = Instant::now();
    work();
    start.elapsed()
}

/// Divides operations between concurrent tasks. `work` gets the number of its task and of its operations.
fn timed_tasks<F>(runtime: &Runtime, tasks: u64, operations: u64, work: impl Fn(u64, u64) -> F) -> Duration
where
    F: Future<Output = ()> + Send + 'static,
{
    let share = operations.div_ceil(tasks);
    let time = timed(|| {
        runtime.block_on(async {
            let running: JoinSet<()> = (0..tasks).map(|task| work(task, share)).collect();
            running.join_all().await;
        });
    });
    scaled(time, share * tasks, operations)
}

fn reads(criterion: &mut Criterion, runtime: &Runtime, table: &Arc<SqliteTable>, file: &Path) {
    let mut group = group(criterion, "read");
    group.bench_function("raw", |bencher| {
        bencher.iter_custom(|reads| {
            let share = reads.div_ceil(READERS);
            let time = timed(|| {
                std::thread::scope(|scope| {
                    for reader in 0..READERS {
                        scope.spawn(move || raw_reads(file, reader, share));
                    }
                });
            });
            scaled(time, share * READERS, reads)
        });
    });
    group.bench_function("tabletheory", |bencher| {
        let read = |reader, reads| {
            let table = Arc::clone(table);
            async move {
                let random = SeededRandom::new(reader);
                for _ in 0..reads {
                    let key = key(random.next_u64() % ROWS);
                    assert!(table.get(&key, Consistency::Strong).await.expect("a read").is_some());
                }
            }
        };
        bencher.iter_custom(|reads| timed_tasks(runtime, READERS, reads, read));
    });
    group.finish();
}

/// Reads rows with rusqlite, and decodes them.
fn raw_reads(file: &Path, reader: u64, reads: u64) {
    let connection = Connection::open(file).expect("the file");
    let random = SeededRandom::new(reader);
    let mut statement =
        connection.prepare("SELECT item FROM item WHERE pk = ?1 AND sk = ?2").expect("a statement");
    for _ in 0..reads {
        let key = key(random.next_u64() % ROWS);
        let text: String = statement.query_row([&key.pk, &key.sk], |row| row.get(0)).expect("a row");
        std::hint::black_box(Item::from_json(&text).expect("an item"));
    }
}

fn commits(criterion: &mut Criterion, runtime: &Runtime, table: &Arc<SqliteTable>, raw: &Path) {
    let mut group = group(criterion, "commit");
    let mut connection = Connection::open(raw).expect("a copy of the file");
    connection.execute_batch("PRAGMA journal_mode = WAL; PRAGMA synchronous = FULL;").expect("settings");
    group.bench_function("raw, one at a time", |bencher| {
        let mut number = 0;
        bencher.iter(|| {
            raw_commit(&mut connection, number % ROWS);
            number += 1;
        });
    });
    for committers in [1, COMMITTERS] {
        let name = if committers == 1 { "tabletheory, one at a time" } else { "tabletheory, 64 at once" };
        group.bench_function(name, |bencher| {
            let commit = |committer, commits| {
                let table = Arc::clone(table);
                async move {
                    for commit in 0..commits {
                        let txn = lease((committer * commits + commit) % ROWS);
                        assert!(table.commit(&txn).await.expect("a commit").is_done());
                    }
                }
            };
            bencher.iter_custom(|commits| timed_tasks(runtime, committers, commits, commit));
        });
    }
    group.finish();
}

/// A conditional put, like acquiring a lease.
fn lease(number: u64) -> Txn {
    let free = Attr::<String>::new("pk").absent().or(Attr::<i64>::new("revalidate_seconds").le(60));
    Txn::from(Write::put(key(number), meta(number)).when(free))
}

/// A conditional put with rusqlite.
fn raw_commit(connection: &mut Connection, number: u64) {
    let (key, item) = (key(number), meta(number));
    let transaction =
        connection.transaction_with_behavior(TransactionBehavior::Immediate).expect("a transaction");
    let before: Option<String> = transaction
        .prepare_cached("SELECT item FROM item WHERE pk = ?1 AND sk = ?2")
        .expect("a statement")
        .query_row([&key.pk, &key.sk], |row| row.get(0))
        .optional()
        .expect("a read");
    let before = before.map(|text| Item::from_json(&text).expect("an item"));
    let free = before.is_none_or(|item| item.get("revalidate_seconds").and_then(Value::as_i64) <= Some(60));
    assert!(free);
    transaction
        .prepare_cached(
            "INSERT INTO item (pk, sk, ttl, item, crc) VALUES (?1, ?2, ?3, ?4, 0)
             ON CONFLICT (pk, sk) DO UPDATE SET ttl = excluded.ttl, item = excluded.item",
        )
        .expect("a statement")
        .execute(params![key.pk, key.sk, item.get("ttl").and_then(Value::as_i64), item.to_json()])
        .expect("a write");
    transaction.commit().expect("a commit");
}

#[expect(clippy::print_stdout, reason = "the ratios are the result of the run")]
fn print_ratios(output: &Path, started: SystemTime) {
    let nanoseconds = |name: &str| -> Option<f64> {
        let file = output.join(name).join("new/estimates.json");
        if std::fs::metadata(&file).ok()?.modified().ok()? < started {
            return None;
        }
        let text = std::fs::read_to_string(file).ok()?;
        let estimates: serde_json::Value = serde_json::from_str(&text).ok()?;
        estimates["median"]["point_estimate"].as_f64()
    };
    println!("\n{:<58} {:>12} {:>7} {:>7}", "", "a second", "ratio", "target");
    for (what, of, to, target) in [
        ("reads by 2 threads, to raw rusqlite", "read/tabletheory", "read/raw", 0.6),
        (
            "durable commits one at a time, to raw rusqlite",
            "commit/tabletheory, one at a time",
            "commit/raw, one at a time",
            0.7,
        ),
        (
            "64 committers at once, to one",
            "commit/tabletheory, 64 at once",
            "commit/tabletheory, one at a time",
            3.0,
        ),
    ] {
        let (Some(of), Some(to)) = (nanoseconds(of), nanoseconds(to)) else {
            println!("{what:<58} was not measured in this run");
            continue;
        };
        let missed = if to / of >= target { "" } else { "  MISSED" };
        println!("{what:<58} {:>12.0} {:>7.2} {target:>7.1}{missed}", 1e9 / of, to / of);
    }
}
