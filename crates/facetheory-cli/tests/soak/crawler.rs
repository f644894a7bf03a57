//! A crawler that requests new URLs all the time, and pages that change at every render: the store stays within its quota, and
//! pages in use stay cached.
//!
//! `scripts/soak --crawler --minutes 10`, or `FACETHEORY_CRAWLER_SECONDS=600 cargo test -p facetheory-cli --test soak crawler`.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use bytes::Bytes;
use http::header::CONTENT_TYPE;
use http::{HeaderValue, Response};
use http_body_util::Full;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use parking_lot::Mutex;
use tokio::net::TcpListener;
use tokio::runtime::Runtime;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::client::Client;
use crate::support::gateway::{Gateway, data};
use crate::support::{disk_bytes, print};

/// The duration of the flood, unless `FACETHEORY_CRAWLER_SECONDS` is set.
const SECONDS: u64 = 20;
/// From this duration on, latencies and memory are judged too. A short run on a busy machine tells nothing about them.
const LONG: Duration = Duration::from_secs(300);
const CRAWLERS: u32 = 20;
/// New URLs of all crawlers per second, as far as the machine can serve them.
const RATE: u32 = 1000;
const HOT: HotPages = HotPages { count: 1000, clients: 2, pause: Duration::from_millis(2) };

/// The pages in use.
struct HotPages {
    count: u64,
    clients: u64,
    /// The pause of a client between two requests.
    pause: Duration,
}

const CONFIG: &str = r#"
[timeouts]
table = "20s"

[routes]
"/hot/**" = { isr = "1h" }
"/crawl/**" = { isr = "1h" }
"/change/**" = { isr = "0s", blocking = true }
"#;

/// The hits of hot pages and how long they took.
#[derive(Default)]
struct Hits {
    all: u64,
    hits: u64,
    micros: Vec<u64>,
}

impl Hits {
    fn add(&mut self, is_hit: bool, micros: u64) {
        self.all += 1;
        self.hits += u64::from(is_hit);
        self.micros.extend(is_hit.then_some(micros));
    }

    fn ratio(&self) -> f64 {
        share(self.hits, self.all)
    }

    /// The 99th percentile, in microseconds.
    fn p99(&mut self) -> u64 {
        self.micros.sort_unstable();
        let at = self.micros.len() * 99 / 100;
        self.micros.get(at).copied().unwrap_or_default()
    }
}

#[expect(clippy::cast_precision_loss, reason = "counts are far below 2^52")]
fn share(part: u64, whole: u64) -> f64 {
    part as f64 / whole.max(1) as f64
}

/// One flood.
struct Flood {
    runtime: Runtime,
    gateway: Gateway,
    directory: tempfile::TempDir,
    next: Arc<AtomicU64>,
}

/// The results of a flood, from its samples.
struct Samples {
    most_bytes: u64,
    memory: Vec<f64>,
}

/// The quota. A short run would not reach that of a long one.
fn max_bytes() -> u64 {
    if time() >= LONG { 200_000_000 } else { 80_000_000 }
}

fn time() -> Duration {
    let seconds = std::env::var("FACETHEORY_CRAWLER_SECONDS").map_or(Ok(SECONDS), |text| text.parse());
    Duration::from_secs(seconds.expect("FACETHEORY_CRAWLER_SECONDS is a number of seconds"))
}

#[test]
fn crawler_a_flood_of_new_pages_neither_fills_the_disk_nor_displaces_pages_in_use() {
    let _alone = crate::ONE_AT_A_TIME.lock();
    Flood::start().run("/crawl", u64::MAX);
}

#[test]
fn crawler_pages_that_change_at_every_render_do_not_fill_the_disk() {
    const PAGES: u64 = 5000;
    let _alone = crate::ONE_AT_A_TIME.lock();
    Flood::start().run("/change", PAGES);
}

impl Flood {
    fn start() -> Flood {
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build();
        let runtime = runtime.expect("a runtime");
        let origin = start_origin(&runtime);
        let directory = tempfile::tempdir().expect("a directory");
        let store = format!("[store]\nmemory = \"32MiB\"\nmax_bytes = {}\n", max_bytes());
        let config = format!("{store}[limits]\nnew_pages_per_second = 100000\n{CONFIG}");
        let gateway = Gateway::start(directory.path(), origin, &config, &["--no-access-log"]);
        Flood { runtime, gateway, directory, next: Arc::default() }
    }

    /// Requests hot pages alone, and then together with others below `prefix`, numbered up to `pages`.
    fn run(self, prefix: &'static str, pages: u64) {
        let time = time();
        self.load_hot_pages(None, time);
        let mut quiet = self.load_hot_pages(Some(Duration::ZERO), time / 4);
        let (over, tasks) = (CancellationToken::new(), TaskTracker::new());
        for _ in 0..CRAWLERS {
            let (address, next, over) = (self.gateway.address, self.next.clone(), over.clone());
            let _entered = self.runtime.enter();
            tasks.spawn(async move {
                let work = crawl(address, next, prefix, pages);
                over.run_until_cancelled(work).await;
            });
        }
        tasks.close();
        let (mut busy, samples) = std::thread::scope(|scope| {
            let sampled = scope.spawn(|| self.sample(time));
            let busy = self.load_hot_pages(Some(Duration::ZERO), time);
            (busy, sampled.join().expect("samples"))
        });
        over.cancel();
        self.runtime.block_on(tasks.wait());
        let metric = |name: &str| self.gateway.metric(name).unwrap_or(0.0);
        print(&format!(
            "{prefix}: {} requests in {} s; disk at most {} MB of {} MB; evicted {}; pages {}; \
             hit ratio of hot pages {:.4} (quiet {:.4}); p99 {} us (quiet {} us); memory {} MiB",
            self.next.load(Ordering::Relaxed),
            time.as_secs(),
            samples.most_bytes / 1_000_000,
            max_bytes() / 1_000_000,
            metric("facetheory_evicted_pages_total"),
            metric("facetheory_store_pages"),
            busy.ratio(),
            quiet.ratio(),
            busy.p99(),
            quiet.p99(),
            samples.memory.iter().map(|mib| format!("{mib:.0}")).collect::<Vec<_>>().join(" "),
        ));
        // The disk may take a tenth more.
        let bytes = samples.most_bytes;
        assert!(bytes <= max_bytes() / 10 * 11, "the store took {bytes} bytes");
        assert!(busy.ratio() >= quiet.ratio() - 0.01, "hot pages were displaced: {:.4}", busy.ratio());
        if time >= LONG {
            /// The allowed growth between the first and the last quarter, in MiB.
            const MEMORY_SLACK: f64 = 24.0;
            assert!(
                busy.p99() <= 2 * quiet.p99(),
                "hits took {} us, and {} us before",
                busy.p99(),
                quiet.p99()
            );
            let (first, last) = (samples.memory[0], samples.memory[samples.memory.len() - 1]);
            assert!(last <= first + MEMORY_SLACK, "memory grew from {first} to {last} MiB");
        }
        self.gateway.shut_down();
    }

    /// Requests hot pages for this long, or each of them once without a pause.
    fn load_hot_pages(&self, pause: Option<Duration>, time: Duration) -> Hits {
        let hits = Arc::new(Mutex::new(Hits::default()));
        let tasks = (0..HOT.clients).map(|client| {
            let (address, hits) = (self.gateway.address, hits.clone());
            async move {
                let mut connection = Client::connect(address).await.expect("a gateway");
                let end = Instant::now() + time;
                for number in (client..).step_by(usize::try_from(HOT.clients).unwrap_or(1)) {
                    if pause.is_some() && Instant::now() >= end || pause.is_none() && number >= HOT.count {
                        break;
                    }
                    let started = Instant::now();
                    let target = format!("/hot/{}", number % HOT.count);
                    let Ok(response) = connection.get(&target).await else {
                        connection = Client::connect(address).await.expect("a gateway");
                        continue;
                    };
                    let took = u64::try_from(started.elapsed().as_micros()).unwrap_or(u64::MAX);
                    let is_hit =
                        response.headers().get("x-facetheory-isr").is_some_and(|state| state == "hit");
                    hits.lock().add(is_hit, took);
                    if pause.is_some() {
                        tokio::time::sleep(HOT.pause).await;
                    }
                }
            }
        });
        self.runtime.block_on(futures_util::future::join_all(tasks));
        std::mem::take(&mut *hits.lock())
    }

    /// Looks at the disk and at the memory of the gateway for this long; memory in MiB, by quarters.
    fn sample(&self, time: Duration) -> Samples {
        const INTERVAL: Duration = Duration::from_millis(200);
        let looks = u32::try_from(time.as_millis() / INTERVAL.as_millis()).unwrap_or(u32::MAX).max(4);
        let mut samples = Samples { most_bytes: 0, memory: Vec::new() };
        for look in 1..=looks {
            std::thread::sleep(INTERVAL);
            samples.most_bytes = samples.most_bytes.max(disk_bytes(&data(self.directory.path())));
            if look % (looks / 4) == 0 {
                samples
                    .memory
                    .push(f64::from(u32::try_from(self.gateway.memory() / 1024).unwrap_or(u32::MAX)));
            }
        }
        samples
    }
}

/// Requests new URLs at this client's share of the rate.
async fn crawl(address: std::net::SocketAddr, next: Arc<AtomicU64>, prefix: &str, pages: u64) {
    let mut ticks = tokio::time::interval(Duration::from_secs(1) * CRAWLERS / RATE);
    ticks.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    loop {
        let Ok(mut client) = Client::connect(address).await else { continue };
        loop {
            ticks.tick().await;
            let number = next.fetch_add(1, Ordering::Relaxed) % pages;
            if client.get(&format!("{prefix}/{number}")).await.is_err() {
                break;
            }
        }
    }
}

/// An origin whose pages differ at every render.
fn start_origin(runtime: &Runtime) -> std::net::SocketAddr {
    const PAGE_BYTES: usize = 9_000;
    let listener = runtime.block_on(TcpListener::bind("127.0.0.1:0")).expect("a port");
    let (address, renders) = (listener.local_addr().expect("an address"), Arc::new(AtomicU64::new(0)));
    runtime.spawn(async move {
        loop {
            let Ok((stream, _)) = listener.accept().await else { continue };
            let renders = renders.clone();
            let service = service_fn(move |_| {
                let number = renders.fetch_add(1, Ordering::Relaxed);
                async move {
                    let text = format!("<p>render {number}</p>{}", ".".repeat(PAGE_BYTES));
                    let mut response = Response::new(Full::new(Bytes::from(text)));
                    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("text/html"));
                    Ok::<_, std::convert::Infallible>(response)
                }
            });
            // The gateway may close the connection.
            tokio::spawn(async move {
                http1::Builder::new().serve_connection(TokioIo::new(stream), service).await.ok()
            });
        }
    });
    address
}
