//! The embedded store of bodies beside two others on the same disk: a file for each body, and one file that is only appended
//! to.
//!
//! `cargo bench -p facetheory --bench bodies -- --bodies 20000`
#![expect(clippy::print_stdout, reason = "the figures are the result")]

use std::fs::{File, OpenOptions};
use std::io::{Error, Write as _};
use std::os::unix::fs::FileExt as _;
use std::path::Path;

use bytes::Bytes;
use clap::Parser;
use facetheory::protocol::Content;
use facetheory::{Bodies, PageKey};
use tabletheory::{Clock as _, Random as _, SeededRandom, SystemClock, SystemRandom, Timestamp};

/// The size of a body.
const BYTES: usize = 8 * 1024;
/// How many bodies are stored at the same time, as by concurrent misses.
const CONCURRENT: usize = 16;
/// The distance between two records of the file that is only appended to: a body with its key, in whole blocks of the disk.
const RECORD: u64 = 12 * 1024;

/// Compares ways to store bodies: CPU and wall-clock time of each operation.
#[derive(Debug, Parser)]
struct Options {
    /// The number of bodies.
    #[arg(long, default_value_t = 4_000)]
    bodies: usize,
    /// `cargo bench` passes this.
    #[arg(long, hide = true)]
    bench: bool,
}

fn main() {
    let Options { bodies, .. } = Options::parse();
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().expect("a runtime");
    println!("{:<44} {:>10} {:>10}", "operation, 8 KiB", "us of CPU", "us");
    let directory = || tempfile::tempdir_in(".").expect("a directory in the current one");
    let (embedded, files, appended) = (directory(), directory(), directory());
    let store = Bodies::files(embedded.path()).expect("a store");
    runtime.block_on(measure("embedded store (SQLite)", &store, bodies));
    create_files(files.path(), bodies).expect("the files are written and read");
    append(appended.path(), bodies).expect("the file is written and read");
}

/// Stores, reads and deletes bodies of as many pages.
async fn measure(what: &str, store: &Bodies, bodies: usize) {
    let body = body();
    let now = Timestamp::from_seconds(1_700_000_000);
    let mut keys = Vec::with_capacity(bodies);
    let start = Usage::now();
    for group in 0..bodies.div_ceil(CONCURRENT) {
        let puts = (0..CONCURRENT).map(|number| {
            let (store, body) = (store.clone(), body.clone());
            tokio::spawn(async move {
                let page = PageKey::new(format!("/{group}/{number}")).expect("a page");
                store.put(&page, now, body, &Content::default(), &SystemRandom).await.expect("stored")
            })
        });
        for put in puts.collect::<Vec<_>>() {
            keys.push(put.await.expect("no panic").s3_key);
        }
    }
    start.print(&format!("{what}: put"), keys.len());
    let (random, start) = (SeededRandom::new(1), Usage::now());
    for _ in 0..bodies {
        let number = usize::try_from(random.next_u64() % keys.len() as u64).unwrap_or(0);
        let read = store.get(&keys[number], None).await.expect("no error").expect("a body");
        assert_eq!(read.bytes.len(), BYTES);
    }
    start.print(&format!("{what}: get"), bodies);
    let start = Usage::now();
    for key in &keys {
        store.delete(key).await.expect("deleted");
    }
    start.print(&format!("{what}: delete"), keys.len());
}

/// A file and a directory for each body, written atomically and durably.
fn create_files(directory: &Path, bodies: usize) -> Result<(), Error> {
    let body = body();
    let name = |number: usize| directory.join(number.to_string()).join("body.html");
    let start = Usage::now();
    for number in 0..bodies {
        let (page, staged) = (directory.join(number.to_string()), directory.join("staged"));
        std::fs::create_dir(&page)?;
        let mut file = File::create_new(&staged)?;
        file.write_all(&body)?;
        file.sync_all()?;
        std::fs::rename(&staged, name(number))?;
        File::open(&page)?.sync_all()?;
        File::open(directory)?.sync_all()?;
    }
    start.print("a file and a directory for each body: put", bodies);
    let (random, start) = (SeededRandom::new(1), Usage::now());
    for _ in 0..bodies {
        let number = usize::try_from(random.next_u64() % bodies as u64).unwrap_or(0);
        assert_eq!(std::fs::read(name(number))?.len(), BYTES);
    }
    start.print("a file and a directory for each body: get", bodies);
    let start = Usage::now();
    for number in 0..bodies {
        std::fs::remove_file(name(number))?;
        std::fs::remove_dir(directory.join(number.to_string()))?;
    }
    start.print("a file and a directory for each body: delete", bodies);
    Ok(())
}

/// The least that a store of our own would have to do: append records, and read one at a known place.
fn append(directory: &Path, bodies: usize) -> Result<(), Error> {
    let file: File =
        OpenOptions::new().create_new(true).read(true).write(true).open(directory.join("bodies"))?;
    let body = body();
    let start = Usage::now();
    for number in 0..bodies as u64 {
        file.write_all_at(&body, number * RECORD)?;
        if number % CONCURRENT as u64 == 0 {
            file.sync_data()?;
        }
    }
    start.print("one appended file, without an index: put", bodies);
    let (random, start) = (SeededRandom::new(1), Usage::now());
    for _ in 0..bodies {
        let mut read = vec![0; BYTES];
        file.read_exact_at(&mut read, random.next_u64() % bodies as u64 * RECORD)?;
        assert_eq!(read[0], body[0]);
    }
    start.print("one appended file, without an index: get", bodies);
    Ok(())
}

fn body() -> Bytes {
    let random = SeededRandom::new(7);
    (0..BYTES / 8).flat_map(|_| random.next_u64().to_le_bytes()).collect()
}

/// The time that has passed, and the CPU time that this process has used.
struct Usage {
    wall: Timestamp,
    cpu: u128,
}

impl Usage {
    fn now() -> Self {
        Usage { wall: SystemClock.now(), cpu: cpu_micros() }
    }

    fn print(&self, what: &str, operations: usize) {
        let each = |micros: u128| micros as f64 / operations as f64;
        let wall = u128::try_from(SystemClock.now().millis() - self.wall.millis()).unwrap_or(0) * 1000;
        let (cpu, wall) = (each(cpu_micros() - self.cpu), each(wall));
        println!("{what:<44} {cpu:>10.1} {wall:>10.1}");
    }
}

/// The CPU time of this process, with that of the kernel for it, in steps of 10 ms.
fn cpu_micros() -> u128 {
    /// Ticks per second, on every current Linux.
    const MICROS_PER_TICK: u128 = 10_000;
    let stat = std::fs::read_to_string("/proc/self/stat").expect("Linux");
    // The name in parentheses may contain spaces. utime and stime are the 14th and 15th field.
    let fields = stat.rsplit(')').next().unwrap_or_default().split_whitespace();
    fields.skip(11).take(2).filter_map(|ticks| ticks.parse::<u128>().ok()).sum::<u128>() * MICROS_PER_TICK
}
