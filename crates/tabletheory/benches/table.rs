//! The embedded table against raw rusqlite doing the same work on the same disk, as ratios of one run.
//!
//! `cargo bench -p tabletheory` prints criterion's figures and then a table of ratios with their targets.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};

use criterion::{BenchmarkGroup, Criterion, Throughput, measurement::WallTime};
use rusqlite::{Connection, OptionalExtension, TransactionBehavior, params};
use tabletheory::{
    Attr, Consistency, Item, Key, Random, SeededRandom, SqliteSettings, SqliteTable, SystemClock, Table, Txn,
    Value, Write,
};

/// Enough rows for the tree to have its full depth, and more than SQLite's own cache holds.
const ROWS: u64 = 200_000;
const READERS: u64 = 2;
const COMMITTERS: u64 = 64;

#[expect(clippy::disallowed_methods, reason = "figures of earlier runs are told by the age of their files")]
fn main() {
    let started = SystemTime::now();
    let output = output_directory();
    let mut criterion = Criterion::default()
        .sample_size(20)
        .warm_up_time(Duration::from_secs(1))
        .measurement_time(Duration::from_secs(5))
        .output_directory(&output)
        .configure_from_args();
    let place =
        tempfile::tempdir_in(output.parent().unwrap_or(&output)).expect("a directory on the build's disk");
    let file = place.path().join("table.db");
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).build().expect("a runtime");
    let table = Arc::new(open(&file));
    runtime.block_on(fill(&table));

    // The peer commits to a file with the same rows in the same schema.
    let copy = place.path().join("raw.db");
    let source = Connection::open(&file).expect("the file");
    source.execute("VACUUM INTO ?1", [copy.to_string_lossy()]).expect("a copy");

    reads(&mut criterion, &runtime, &table, &file);
    commits(&mut criterion, &runtime, &table, &copy);
    criterion.final_summary();
    print_ratios(&output, started);
}

fn output_directory() -> PathBuf {
    let exe = std::env::current_exe().expect("a program knows where it is");
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

/// The time of one operation when so many are done by several at once.
fn each(total: Duration, done: u64, asked: u64) -> Duration {
    total.mul_f64(asked as f64 / done as f64)
}

#[expect(clippy::disallowed_methods, reason = "a benchmark measures the wall clock")]
fn timed(work: impl FnOnce()) -> Duration {
    let start = Instant::now();
    work();
    start.elapsed()
}

fn reads(
    criterion: &mut Criterion,
    runtime: &tokio::runtime::Runtime,
    table: &Arc<SqliteTable>,
    file: &Path,
) {
    let mut group = group(criterion, "read");
    group.bench_function("raw", |bencher| {
        bencher.iter_custom(|reads| {
            let each_reads = reads.div_ceil(READERS);
            let total = timed(|| {
                std::thread::scope(|scope| {
                    for reader in 0..READERS {
                        scope.spawn(move || raw_reads(file, reader, each_reads));
                    }
                });
            });
            each(total, each_reads * READERS, reads)
        });
    });
    group.bench_function("tabletheory", |bencher| {
        bencher.iter_custom(|reads| {
            let each_reads = reads.div_ceil(READERS);
            let total = timed(|| {
                runtime.block_on(async {
                    let mut readers = tokio::task::JoinSet::new();
                    for reader in 0..READERS {
                        let table = Arc::clone(table);
                        readers.spawn(async move {
                            let random = SeededRandom::new(reader);
                            for _ in 0..each_reads {
                                let key = key(random.next_u64() % ROWS);
                                let row = table.get(&key, Consistency::Strong).await.expect("a read");
                                assert!(row.is_some());
                            }
                        });
                    }
                    readers.join_all().await;
                });
            });
            each(total, each_reads * READERS, reads)
        });
    });
    group.finish();
}

/// What a program on rusqlite would do to have the same item: read the row, and decode it.
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

fn commits(
    criterion: &mut Criterion,
    runtime: &tokio::runtime::Runtime,
    table: &Arc<SqliteTable>,
    raw: &Path,
) {
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
            bencher.iter_custom(|commits| {
                let each_commits = commits.div_ceil(committers);
                let total = timed(|| {
                    runtime.block_on(async {
                        let mut tasks = tokio::task::JoinSet::new();
                        for committer in 0..committers {
                            let table = Arc::clone(table);
                            tasks.spawn(async move {
                                for commit in 0..each_commits {
                                    let txn = lease((committer * each_commits + commit) % ROWS);
                                    assert!(table.commit(&txn).await.expect("a commit").is_done());
                                }
                            });
                        }
                        tasks.join_all().await;
                    });
                });
                each(total, each_commits * committers, commits)
            });
        });
    }
    group.finish();
}

/// A conditional put, as taking a lease is.
fn lease(number: u64) -> Txn {
    let free = Attr::<String>::new("pk").absent().or(Attr::<i64>::new("revalidate_seconds").le(60));
    Txn::from(Write::put(key(number), meta(number)).when(free))
}

/// The same conditional put by hand.
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

#[expect(clippy::print_stdout, reason = "the ratios are what the run is for")]
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
        let verdict = if to / of >= target { "" } else { "  MISSED" };
        println!("{what:<58} {:>12.0} {:>7.2} {target:>7.1}{verdict}", 1e9 / of, to / of);
    }
}
