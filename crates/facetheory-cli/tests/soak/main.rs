//! A soak test: three gateways under full load, an origin that fails, and a table that is restarted.
//!
//! `scripts/soak --minutes 10`, or `FACETHEORY_SOAK_SECONDS=600 cargo test -p facetheory-cli --test soak -- --nocapture`.

mod client;
mod crawler;
mod dynamodb;
mod memory;
mod origin;
mod resources;
mod stats;
#[path = "../support/mod.rs"]
mod support;
mod traffic;

use std::sync::{Arc, OnceLock};
use std::time::Duration;

use tabletheory::{Clock as _, SystemClock, Timestamp};
use tempfile::TempDir;

use dynamodb::Dynamodb;
use memory::Memory;
use origin::Origin;
use resources::Resources;
use stats::Stats;
use support::gateway::Gateway;
use support::print;
use support::proxy::Proxy;
use support::store::{Store, s3_endpoint};

/// The duration, unless `FACETHEORY_SOAK_SECONDS` is set.
const SECONDS: u64 = 60;
/// How long the table is down in a restart, besides the time of its start.
const OUTAGE: Duration = Duration::from_secs(2);
/// How long the load continues after the table is back: leases that could not be released have expired by then.
const SETTLE_TIME: Duration = Duration::from_secs(15);
/// How often memory is sampled.
const SAMPLE_INTERVAL: Duration = Duration::from_secs(1);
/// How many samples are taken per line of progress.
const SAMPLES_PER_LINE: usize = 10;
/// How many lines of a log are printed after a failure.
const LOG_LINES: usize = 200;
/// The names of the gateways in the output.
const NAMES: [&str; 3] = ["dynamodb 1", "dynamodb 2", "sqlite"];

/// The configuration of the gateways. The memory tier is so small that cold pages fill it soon, so that later growth is
/// a leak; still, all hot pages fit into it.
const RULES: &str = r#"
[store]
memory = "8MB"

[limits]
new_pages_per_second = 100000

[timeouts]
keep_alive = "1s"

[routes]
"/hot/**" = { isr = "2s", tags = ["hot"], lease = "10s" }
"/cold/**" = { isr = "1h", lease = "10s" }
"/hard/**" = { isr = "1h", lease = "10s" }
"#;

/// Each test needs the whole machine.
static ONE_AT_A_TIME: parking_lot::Mutex<()> = parking_lot::Mutex::new(());

/// Three gateways, two of which share stores, and their servers.
struct Installation {
    gateways: Vec<Gateway>,
    stores: [Store; 2],
    lines: [Proxy; 2],
    dynamodb: Dynamodb,
    origin: Origin,
    runtime: tokio::runtime::Runtime,
    directories: [TempDir; 3],
}

/// The leases in a table.
struct LeaseWatch {
    /// Leases that are still held.
    held: usize,
    /// Expired leases, which could not be released while the table was down.
    run_out: usize,
}

#[test]
fn a_long_mixed_load_is_served_without_errors_or_leaks() {
    let _alone = ONE_AT_A_TIME.lock();
    let seconds = std::env::var("FACETHEORY_SOAK_SECONDS").map_or(Ok(SECONDS), |text| text.parse());
    let time = Duration::from_secs(seconds.expect("FACETHEORY_SOAK_SECONDS is a number of seconds"));
    let mut installation = Installation::start();
    let stats = Arc::new(Stats::default());
    traffic::warm_up(&installation.runtime, &installation.gateways);
    let before = Resources::when_idle(&installation.gateways, &installation.lines);

    let memory = installation.run_load(time, &stats);
    let after = Resources::when_settled(&installation.gateways, &installation.lines, &before);
    traffic::warm_up(&installation.runtime, &installation.gateways);
    let (failed, requests) = installation.origin.counts();
    if stats.has_unexpected() {
        installation.print_logs();
    }
    let leases = installation.end();

    print(&format!("\n{stats}"));
    print(&format!("the origin failed {failed} of {requests} requests; the table was restarted twice"));
    print(&memory.to_string());
    for ((name, before), after) in NAMES.iter().zip(&before).zip(&after) {
        print(&format!("{name:<12} before {before}; after {after}"));
    }
    print(&format!(
        "leases held after the shutdown: {}; rows of expired leases: {}",
        leases.held, leases.run_out
    ));
    stats.check();
    memory.check();
    resources::assert_no_leaks(&NAMES, &before, &after);
    assert_eq!(leases.held, 0, "leases are held after the shutdown of their gateways");
}

impl Installation {
    fn start() -> Installation {
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build();
        let runtime = runtime.expect("a runtime");
        let dynamodb = Dynamodb::start();
        let lines =
            [dynamodb.address().to_string(), s3_endpoint()].map(|server| Proxy::start(&runtime, &server));
        let origin = Origin::start(&runtime);
        let directories = [(); 3].map(|()| tempfile::tempdir().expect("a directory"));
        let shared = Store::at(&lines[0].endpoint(), &lines[1].endpoint());
        shared.create_table();
        let stores = [shared, Store::in_directory(directories[2].path())];
        let of = [&stores[0], &stores[0], &stores[1]];
        let gateways = of.into_iter().zip(&directories);
        let start = |(store, directory): (&Store, &TempDir)| {
            Gateway::start_on(store, directory.path(), origin.address, RULES)
        };
        let gateways = gateways.map(start).collect();
        Installation { gateways, stores, lines, dynamodb, origin, runtime, directories }
    }

    /// Runs the load for this long, restarts the table twice, and samples memory.
    fn run_load(&mut self, time: Duration, stats: &Arc<Stats>) -> Memory {
        let embedded = self.directories[2].path().join("table.db");
        let (started, mut memory) = (SystemClock.now(), Memory::new(time, embedded));
        let traffic = traffic::Traffic::start(&self.runtime, &self.gateways, stats);
        let (dynamodb, back) = (&mut self.dynamodb, &OnceLock::new());
        std::thread::scope(|scope| {
            let restarts = scope.spawn(move || {
                for at in [time / 3, time * 2 / 3] {
                    std::thread::sleep(at.saturating_sub(elapsed_since(started)));
                    dynamodb.restart(OUTAGE);
                    print(&format!("{:>4} s: the table is back", elapsed_since(started).as_secs()));
                }
                back.set(elapsed_since(started)).expect("set once");
            });
            for look in 1.. {
                std::thread::sleep(SAMPLE_INTERVAL);
                let elapsed = elapsed_since(started);
                memory.look(elapsed, &self.gateways);
                if look % SAMPLES_PER_LINE == 0 {
                    print(&format!(
                        "{:>4} s: {} requests; {}",
                        elapsed.as_secs(),
                        stats.total(),
                        memory.last()
                    ));
                }
                // A busy machine may take long to start the table; a table that does not start fails the test.
                let is_over = match back.get() {
                    Some(back) => elapsed >= time.max(*back + SETTLE_TIME),
                    None => restarts.is_finished() && back.get().is_none(),
                };
                if is_over {
                    break;
                }
            }
        });
        traffic.end();
        memory
    }

    /// Prints the end of the gateways' logs, which may explain an error.
    fn print_logs(&self) {
        for (name, gateway) in NAMES.iter().zip(&self.gateways) {
            let log = gateway.log();
            let lines: Vec<_> = log.lines().collect();
            let last = &lines[lines.len().saturating_sub(LOG_LINES)..];
            let address = gateway.address;
            print(&format!("\nend of the log of {name} at {address}:\n{}", last.join("\n")));
        }
    }

    /// Shuts all gateways down, and counts the leases in their tables.
    fn end(self) -> LeaseWatch {
        for gateway in self.gateways {
            gateway.shut_down();
        }
        let locks: Vec<_> = self.stores.iter().flat_map(Store::locks).collect();
        let now = SystemClock.now().seconds();
        let held = locks.iter().filter(|lock| lock.lease_expires_at > now).count();
        LeaseWatch { held, run_out: locks.len() - held }
    }
}

fn elapsed_since(started: Timestamp) -> Duration {
    let millis = SystemClock.now().millis() - started.millis();
    Duration::from_millis(u64::try_from(millis).unwrap_or_default())
}
