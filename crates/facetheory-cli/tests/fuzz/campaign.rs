//! Runs many cases concurrently against one gateway, and checks it meanwhile and afterwards.

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tempfile::TempDir;
use tokio::time::Instant;

use crate::case::Case;
use crate::exchange::run;
use crate::origin::{ECHO_PREFIX, RecordingOrigin};
use crate::request_log::{ExpectedRequest, RequestLog};
use crate::strict_parser::{self, Parsed};
use crate::support::client::{Connection, Response};
use crate::support::gateway::Gateway;
use crate::support::{site, wait_for};

/// The configuration of the gateway: short timeouts, and enough connections.
const CONFIG: &str = r#"
[routes]
"/page/**" = { isr = "1h" }
"/pass/**" = false

[timeouts]
client_headers = "2s"
client_body = "500ms"
client_idle = "500ms"
keep_alive = "1s"

[limits]
body_bytes = "256KiB"
connections_per_address = 2000
"#;
/// The number of concurrent connections.
const CLIENTS: u64 = 24;
/// After this many cases a client checks that the gateway responds to a valid request.
const CASES_PER_PROBE: u64 = 8;
/// How often a valid request may meet a closed connection, because its client was delayed for longer than the timeout.
const MAX_PROBES: usize = 5;
/// The header timeout of the configuration above.
const CLIENT_HEADERS: Duration = Duration::from_secs(2);
/// How often the gateway is checked.
const CHECK_INTERVAL: Duration = Duration::from_secs(1);
/// The number of checks per round of the request log and per line of progress.
const CHECKS_PER_ROUND: u64 = 10;
/// The allowed memory growth after the first round.
const MAX_MEMORY_GROWTH_KIB: u64 = 96 * 1024;
/// The allowed growth of open files, once all clients have disconnected.
const MAX_MORE_FILES: usize = 8;

/// A gateway, its origin and its clients.
pub(crate) struct Campaign {
    seed: u64,
    gateway: Gateway,
    /// Dropped after the gateway.
    _witness: RecordingOrigin,
    _directory: TempDir,
    log: Arc<RequestLog>,
}

/// The violations, and the cases that were running.
#[derive(Debug)]
pub(crate) struct Failed {
    pub(crate) violations: Vec<String>,
    pub(crate) cases: Vec<u64>,
}

/// The state that all clients share.
struct Progress {
    next: AtomicU64,
    is_over: AtomicBool,
    under_way: Mutex<BTreeSet<u64>>,
}

impl Campaign {
    /// Starts a gateway for the cases of this seed.
    pub(crate) fn start(seed: u64) -> Campaign {
        let (directory, log) = (tempfile::tempdir().expect("a directory"), Arc::new(RequestLog::default()));
        let origin = RecordingOrigin::start(&log);
        let options = ["--no-access-log", "--log-level", "error"];
        let gateway = Gateway::start(directory.path(), origin.address, CONFIG, &options);
        Campaign { seed, gateway, _witness: origin, _directory: directory, log }
    }

    /// Runs cases for this long, and prints progress.
    pub(crate) fn run(&mut self, time: Duration) -> Result<(), Failed> {
        let course = Progress {
            next: AtomicU64::new(0),
            is_over: AtomicBool::new(false),
            under_way: Mutex::default(),
        };
        let files = self.gateway.open_files();
        let (seed, address, log) = (self.seed, self.gateway.address, self.log.clone());
        let gateway = &mut self.gateway;
        let cases = std::thread::scope(|scope| {
            for _ in 0..CLIENTS {
                scope.spawn(|| run_client(seed, address, &log, &course));
            }
            monitor(gateway, &log, &course, time);
            course.is_over.store(true, Relaxed);
            course.under_way.lock().expect("cases").iter().copied().collect()
        });
        if self.log.violations().is_empty() {
            wait_for("connections and files are closed after all clients have disconnected", || {
                (self.gateway.open_files() <= files + MAX_MORE_FILES).then_some(())
            });
        }
        let violations = self.violations();
        if violations.is_empty() { Ok(()) } else { Err(Failed { violations, cases }) }
    }

    /// The violations of one case alone.
    pub(crate) fn try_alone(&mut self, case: &Case) -> Vec<String> {
        run(case, self.gateway.address, &self.log);
        // By then the origin has received everything that the case caused.
        probe(self.gateway.address, &self.log, u64::MAX);
        self.violations()
    }

    fn violations(&mut self) -> Vec<String> {
        let mut violations = self.log.violations();
        violations.extend(health(&mut self.gateway));
        violations
    }
}

/// Runs cases in one client until the end.
fn run_client(seed: u64, address: std::net::SocketAddr, log: &RequestLog, course: &Progress) {
    while !course.is_over.load(Relaxed) {
        let number = course.next.fetch_add(1, Relaxed);
        course.under_way.lock().expect("cases").insert(number);
        run(&Case::of(seed, number), address, log);
        if number.is_multiple_of(CASES_PER_PROBE) {
            probe(address, log, number);
        }
        if !log.violations().is_empty() {
            return;
        }
        course.under_way.lock().expect("cases").remove(&number);
    }
}

/// Fails unless a valid request gets a response.
fn probe(address: std::net::SocketAddr, log: &RequestLog, number: u64) {
    let target = format!("/pass/probe-{number}");
    let response = (0..MAX_PROBES).find_map(|_| send_valid_request(address, log, &target));
    let is_right = response.is_some_and(|response| {
        response.status == 200 && response.text() == format!("{ECHO_PREFIX}{target}\n")
    });
    if !is_right {
        log.violate(format!("no response to a valid request: {target}"));
    }
}

/// The response to a valid request; `None` if it was sent too late.
fn send_valid_request(address: std::net::SocketAddr, log: &RequestLog, target: &str) -> Option<Response> {
    const REQUEST_TIMEOUT: u16 = 408;
    let bytes = site::get(target, "");
    let Parsed::Complete(request, _) = strict_parser::read(bytes.as_bytes()) else {
        panic!("a valid request")
    };
    log.expect(&[ExpectedRequest { request, is_complete: true }]);
    // The machine may be out of ports for a moment.
    let mut connection = wait_for("the gateway accepts a connection", || Connection::try_open(address));
    let connected = Instant::now();
    connection.send(bytes);
    let response = connection.next_response("GET").filter(|response| response.status != REQUEST_TIMEOUT);
    if response.is_none() && connected.elapsed() < CLIENT_HEADERS {
        log.violate(format!("a valid request is rejected before the timeout: {target}"));
    }
    response
}

/// Checks the gateway until the time is over or something is wrong.
#[expect(clippy::print_stderr, reason = "a campaign of minutes prints its progress")]
fn monitor(gateway: &mut Gateway, log: &RequestLog, course: &Progress, time: Duration) {
    let start = Instant::now();
    let mut first_memory = None;
    for look in 1.. {
        std::thread::sleep(CHECK_INTERVAL.min(time.saturating_sub(start.elapsed())));
        if let Some(what) = health(gateway) {
            log.violate(what);
        }
        if !log.violations().is_empty() || start.elapsed() >= time {
            return;
        }
        if look % CHECKS_PER_ROUND == 0 {
            log.next_round();
            let memory = gateway.memory();
            let max = *first_memory.get_or_insert(memory) + MAX_MEMORY_GROWTH_KIB;
            if memory > max {
                log.violate(format!("the gateway uses {memory} KiB of memory, more than {max}"));
            }
            eprintln!(
                "fuzz: {:4} s of {}, {} connections, {} requests heard by the origin, {} MiB, {} files open",
                start.elapsed().as_secs(),
                time.as_secs(),
                course.next.load(Relaxed),
                log.received_count(),
                memory / 1024,
                gateway.open_files(),
            );
        }
    }
}

/// A problem of the process, if there is one.
fn health(gateway: &mut Gateway) -> Option<String> {
    let log = gateway.log();
    if log.contains("panicked") {
        return Some(format!("the gateway panicked: {log}"));
    }
    (!gateway.is_alive()).then(|| format!("the gateway exited: {log}"))
}
