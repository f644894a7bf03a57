//! Everything at once, for a minute or for as long as one likes: three gateways at full load, an origin that fails, a table
//! that is restarted.
//!
//! `scripts/soak --minutes 10`, or `FACETHEORY_SOAK_SECONDS=600 cargo test -p facetheory-cli --test soak -- --nocapture`.

mod client;
mod dynamodb;
mod memory;
mod origin;
mod proxy;
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
use proxy::Proxy;
use resources::Resources;
use stats::Stats;
use support::gateway::Gateway;
use support::print;
use support::store::{Store, s3_endpoint};

/// How long it takes, unless `FACETHEORY_SOAK_SECONDS` says otherwise.
const SECONDS: u64 = 60;
/// How long the table is away when it is restarted, besides the time that its start takes.
const OUTAGE: Duration = Duration::from_secs(2);
/// How long everybody goes on at least once the table is back: the leases that could not be given back have run out by then.
const SETTLE_TIME: Duration = Duration::from_secs(15);
/// How often memory is looked at.
const SAMPLE_INTERVAL: Duration = Duration::from_secs(1);
/// How many looks go by between two lines of progress.
const SAMPLES_PER_LINE: usize = 10;
/// How much of a log is told where something went wrong.
const LOG_LINES: usize = 200;
/// The names of the gateways, for people to read.
const NAMES: [&str; 3] = ["dynamodb 1", "dynamodb 2", "sqlite"];

/// What the gateways go by. The memory for pages is so small that cold ones fill it soon, and memory can only grow by a leak then;
/// yet hot ones have plenty of room in it.
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

/// Three gateways, two of which keep the same pages, and all that they need.
struct Installation {
    gateways: Vec<Gateway>,
    stores: [Store; 2],
    lines: [Proxy; 2],
    dynamodb: Dynamodb,
    origin: Origin,
    runtime: tokio::runtime::Runtime,
    directories: [TempDir; 3],
}

/// The leases that a table has.
struct LeaseWatch {
    /// Those that still keep others from a page.
    held: usize,
    /// Those that keep nobody from anything. They could not be given back while the table was away.
    run_out: usize,
}

#[test]
fn a_long_mixed_load_is_served_without_errors_or_leaks() {
    let seconds = std::env::var("FACETHEORY_SOAK_SECONDS").map_or(Ok(SECONDS), |text| text.parse());
    let time = Duration::from_secs(seconds.expect("FACETHEORY_SOAK_SECONDS is a number of seconds"));
    let mut installation = Installation::start();
    let stats = Arc::new(Stats::default());
    traffic::warm_up(&installation.runtime, &installation.gateways);
    let before = Resources::at_rest(&installation.gateways, &installation.lines);

    let memory = installation.go_through(time, &stats);
    let after = Resources::come_down(&installation.gateways, &installation.lines, &before);
    traffic::warm_up(&installation.runtime, &installation.gateways);
    let (failed, answered) = installation.origin.counts();
    if stats.has_faults() {
        installation.tell_logs();
    }
    let leases = installation.end();

    print(&format!("\n{stats}"));
    print(&format!("the origin failed {failed} of {answered} requests; the table was restarted twice"));
    print(&memory.to_string());
    for ((name, before), after) in NAMES.iter().zip(&before).zip(&after) {
        print(&format!("{name:<12} before {before}; after {after}"));
    }
    print(&format!(
        "leases held after the end: {}; rows of leases that ran out: {}",
        leases.held, leases.run_out
    ));
    stats.check();
    memory.check();
    resources::nothing_is_left(&NAMES, &before, &after);
    assert_eq!(leases.held, 0, "leases are held by gateways that have ended");
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

    /// Lets everybody come for so long, while the table is restarted twice, and looks at the memory.
    fn go_through(&mut self, time: Duration, stats: &Arc<Stats>) -> Memory {
        let embedded = self.directories[2].path().join("table.db");
        let (began, mut memory) = (SystemClock.now(), Memory::new(time, embedded));
        let traffic = traffic::Traffic::start(&self.runtime, &self.gateways, stats);
        let (dynamodb, back) = (&mut self.dynamodb, &OnceLock::new());
        std::thread::scope(|scope| {
            let restarts = scope.spawn(move || {
                for at in [time / 3, time * 2 / 3] {
                    std::thread::sleep(at.saturating_sub(since(began)));
                    dynamodb.restart(OUTAGE);
                    print(&format!("{:>4} s: the table is back", since(began).as_secs()));
                }
                back.set(since(began)).expect("it was away until now");
            });
            for look in 1.. {
                std::thread::sleep(SAMPLE_INTERVAL);
                let elapsed = since(began);
                memory.look(elapsed, &self.gateways);
                if look % SAMPLES_PER_LINE == 0 {
                    print(&format!(
                        "{:>4} s: {} requests; {}",
                        elapsed.as_secs(),
                        stats.total(),
                        memory.last()
                    ));
                }
                // A busy machine may take long to start a table, and one that cannot be started is never back.
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

    /// What the gateways have logged last, which may explain a fault.
    fn tell_logs(&self) {
        for (name, gateway) in NAMES.iter().zip(&self.gateways) {
            let log = gateway.log();
            let lines: Vec<_> = log.lines().collect();
            let last = &lines[lines.len().saturating_sub(LOG_LINES)..];
            let address = gateway.address;
            print(&format!("\nthe log of {name} at {address} ends so:\n{}", last.join("\n")));
        }
    }

    /// Ends all gateways, and looks what their tables have of leases after that.
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

fn since(began: Timestamp) -> Duration {
    let millis = SystemClock.now().millis() - began.millis();
    Duration::from_millis(u64::try_from(millis).unwrap_or_default())
}
