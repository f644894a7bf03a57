//! The cost of a hit, the hit ratio of the memory tier, and the memory that it takes.
//!
//! `cargo bench -p facetheory --bench memory` prints the figures with their targets. With `-- --quick` the sizes are
//! small, to check that the benchmark works.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use bytes::Bytes;
use facetheory::{Bodies, GetResult, Isr, PageKey, PageStore, Pages, Policy, Rendered, State};
use object_store::local::LocalFileSystem;
use tabletheory::{Random, SeededRandom, SqliteSettings, SqliteTable, SystemClock};

const KIB: usize = 1024;
const LONG: Duration = Duration::from_secs(86_400);

#[derive(Clone, Copy)]
struct Sizes {
    hits: u32,
    /// Pages of 8 KiB, more than fit into the tier.
    pages: u64,
    tier: u64,
    /// Pages of the trace, and requests for them.
    traced: u64,
    requests: u64,
}

fn main() {
    let quick = std::env::args().any(|argument| argument == "--quick" || argument == "--test");
    let sizes = if quick {
        Sizes { hits: 10_000, pages: 2_000, tier: 4_000_000, traced: 2_000, requests: 20_000 }
    } else {
        Sizes { hits: 3_000_000, pages: 100_000, tier: 200_000_000, traced: 50_000, requests: 1_000_000 }
    };
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build();
    let runtime = runtime.expect("a runtime");
    print(&format!("{:<64} {:>10} {:>10}", "", "measured", "target"));
    let cost = hits(&runtime, sizes);
    print(&format!("{:<64} {cost:>10.0} {:>10}", "a hit with its key, nanoseconds of CPU", "<= 1500"));
    let ratio = trace(&runtime, sizes);
    print(&format!(
        "{:<64} {ratio:>10.3} {:>10}",
        "hit ratio, zipf 0.9, room for a tenth of the pages", ">= 0.67"
    ));
    let share = fill(&runtime, sizes);
    print(&format!(
        "{:<64} {share:>10.2} {:>10}",
        "resident memory / configured size, pages of 8 KiB", "<= 1.15"
    ));
}

#[expect(clippy::print_stdout, reason = "a benchmark prints its figures")]
fn print(line: &str) {
    println!("{line}");
}

/// An engine on SQLite and files in a directory. Files are not synced to disk, which would dominate the figures.
fn engine(directory: &Path, memory: u64) -> Isr {
    let pages = Pages::new(store(directory), bodies(directory, &Arc::default()));
    Isr::builder(pages).memory(memory).metadata_max_age(LONG).build()
}

fn store(directory: &Path) -> PageStore {
    let settings = SqliteSettings::default().sweep(None);
    let table = SqliteTable::open_with(directory.join("table.db"), &settings, Arc::new(SystemClock));
    PageStore::new(Arc::new(table.expect("a file")))
}

fn bodies(directory: &Path, reads: &Arc<AtomicU64>) -> Bodies {
    let files = LocalFileSystem::new_with_prefix(directory).expect("a directory");
    Bodies::over(Arc::new(counted::Counted { files, reads: reads.clone() }))
}

fn page(number: u64) -> PageKey {
    PageKey::new(format!("default::/posts/{{slug}}?slug={number}")).expect("a page")
}

async fn request(isr: &Isr, number: u64, size: usize) -> State {
    let render = move |_| async move {
        let mut body = format!("page {number} ").into_bytes();
        body.resize(size, b'x');
        Ok(Rendered::html(Bytes::from(body)))
    };
    match isr.get(&page(number), &Policy::every(LONG), render).await.expect("a page") {
        GetResult::Page(served) => served.state,
        GetResult::Bypass(_) => State::Bypass,
    }
}

/// The CPU time of this thread, in nanoseconds.
fn cpu_nanos() -> u64 {
    let text = std::fs::read_to_string("/proc/thread-self/schedstat").unwrap_or_default();
    text.split_whitespace().next().and_then(|number| number.parse().ok()).unwrap_or(0)
}

fn hits(runtime: &tokio::runtime::Runtime, sizes: Sizes) -> f64 {
    const PAGES: u64 = 1000;
    let directory = tempfile::tempdir().expect("a directory");
    let isr = engine(directory.path(), 100_000_000);
    runtime.block_on(async {
        for number in 0..PAGES {
            request(&isr, number, 8 * KIB).await;
        }
        let random = SeededRandom::new(1);
        let before = cpu_nanos();
        for _ in 0..sizes.hits {
            let state = request(&isr, random.next_u64() % PAGES, 8 * KIB).await;
            assert_eq!(state, State::Hit);
        }
        (cpu_nanos() - before) as f64 / f64::from(sizes.hits)
    })
}

/// Numbers with a Zipf distribution; 0 is the most frequent one.
struct Zipf {
    /// By cumulative probability, as a fraction of `SCALE`.
    below: BTreeMap<u64, u64>,
}

impl Zipf {
    const SCALE: f64 = 9_007_199_254_740_992.0;

    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "fractions scaled to integers"
    )]
    fn new(count: u64, exponent: f64) -> Self {
        let weight = |number: u64| (number as f64 + 1.0).powf(-exponent);
        let total: f64 = (0..count).map(weight).sum();
        let mut sum = 0.0;
        let below = (0..count).map(|number| {
            sum += weight(number);
            ((sum / total * Self::SCALE) as u64, number)
        });
        Zipf { below: below.collect() }
    }

    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "fractions scaled to integers"
    )]
    fn draw(&self, random: &dyn Random) -> u64 {
        let at = (random.fraction() * Self::SCALE) as u64;
        let found = self.below.range(at..).next().or_else(|| self.below.iter().next_back());
        found.map_or(0, |(_, number)| *number)
    }
}

/// The share of requests that are served without reading a body, if a tenth of the pages fits into memory.
fn trace(runtime: &tokio::runtime::Runtime, sizes: Sizes) -> f64 {
    let directory = tempfile::tempdir().expect("a directory");
    let filler = engine(directory.path(), 1_000_000);
    runtime.block_on(in_parallel(sizes.traced, |number| {
        let isr = filler.clone();
        async move { request(&isr, number, KIB).await }
    }));
    let reads = Arc::new(AtomicU64::new(0));
    let pages = Pages::new(store(directory.path()), bodies(directory.path(), &reads));
    // The weight of one page in the tier.
    let one = Isr::new(pages.clone());
    runtime.block_on(request(&one, 0, KIB));
    let (_, weight) = one.in_memory();
    let isr = Isr::builder(pages).memory(weight * sizes.traced / 10).metadata_max_age(LONG).build();
    let (zipf, random) = (Zipf::new(sizes.traced, 0.9), SeededRandom::new(7));
    runtime.block_on(async {
        for _ in 0..sizes.requests {
            request(&isr, zipf.draw(&random), KIB).await;
        }
        let warm = reads.load(Ordering::SeqCst);
        for _ in 0..sizes.requests {
            request(&isr, zipf.draw(&random), KIB).await;
        }
        1.0 - (reads.load(Ordering::SeqCst) - warm) as f64 / sizes.requests as f64
    })
}

/// The growth of resident memory, relative to the configured size of a tier that cannot hold all pages.
fn fill(runtime: &tokio::runtime::Runtime, sizes: Sizes) -> f64 {
    let directory = tempfile::tempdir().expect("a directory");
    {
        // The table, the runtime and the allocator reach their size before the measurement.
        let warm = engine(directory.path(), 1_000_000);
        runtime.block_on(in_parallel(sizes.pages, |number| {
            let isr = warm.clone();
            async move { request(&isr, number, 8 * KIB).await }
        }));
    }
    let before = resident();
    let isr = engine(directory.path(), sizes.tier);
    runtime.block_on(in_parallel(sizes.pages, |number| {
        let isr = isr.clone();
        async move { request(&isr, number, 8 * KIB).await }
    }));
    let (pages, weight) = isr.in_memory();
    let grown = resident().saturating_sub(before);
    print(&format!(
        "  {pages} pages in memory with a weight of {weight} bytes; resident memory grew by {grown} (glibc allocator)"
    ));
    grown as f64 / sizes.tier as f64
}

async fn in_parallel<F: Future<Output = State> + Send + 'static>(count: u64, act: impl Fn(u64) -> F) {
    const AT_ONCE: usize = 64;
    let mut tasks = tokio::task::JoinSet::new();
    for number in 0..count {
        if tasks.len() == AT_ONCE {
            tasks.join_next().await;
        }
        tasks.spawn(act(number));
    }
    while tasks.join_next().await.is_some() {}
}

/// The resident memory of this process in bytes.
fn resident() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find(|line| line.starts_with("VmRSS:")).unwrap_or_default();
    line.split_whitespace().nth(1).and_then(|number| number.parse::<u64>().ok()).unwrap_or(0) * 1024
}

/// A store that counts reads.
mod counted {
    use super::{Arc, AtomicU64, LocalFileSystem, Ordering};
    use futures_util::stream::BoxStream;
    use object_store::path::Path;
    use object_store::{
        CopyOptions, GetOptions, GetResult, ListResult, MultipartUpload, ObjectMeta, ObjectStore,
        PutMultipartOptions, PutOptions, PutPayload, PutResult, Result,
    };

    #[derive(Debug)]
    pub(super) struct Counted {
        pub(super) files: LocalFileSystem,
        pub(super) reads: Arc<AtomicU64>,
    }

    impl std::fmt::Display for Counted {
        fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
            write!(f, "counted {}", self.files)
        }
    }

    #[async_trait::async_trait]
    impl ObjectStore for Counted {
        async fn put_opts(
            &self,
            path: &Path,
            payload: PutPayload,
            mut options: PutOptions,
        ) -> Result<PutResult> {
            // Files have no metadata.
            options.attributes = object_store::Attributes::new();
            self.files.put_opts(path, payload, options).await
        }

        async fn put_multipart_opts(
            &self,
            path: &Path,
            options: PutMultipartOptions,
        ) -> Result<Box<dyn MultipartUpload>> {
            self.files.put_multipart_opts(path, options).await
        }

        async fn get_opts(&self, path: &Path, options: GetOptions) -> Result<GetResult> {
            self.reads.fetch_add(1, Ordering::SeqCst);
            self.files.get_opts(path, options).await
        }

        fn delete_stream(&self, paths: BoxStream<'static, Result<Path>>) -> BoxStream<'static, Result<Path>> {
            self.files.delete_stream(paths)
        }

        fn list(&self, prefix: Option<&Path>) -> BoxStream<'static, Result<ObjectMeta>> {
            self.files.list(prefix)
        }

        async fn list_with_delimiter(&self, prefix: Option<&Path>) -> Result<ListResult> {
            self.files.list_with_delimiter(prefix).await
        }

        async fn copy_opts(&self, from: &Path, to: &Path, options: CopyOptions) -> Result<()> {
            self.files.copy_opts(from, to, options).await
        }
    }
}
