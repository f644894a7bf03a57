//! Many cases at once against one gateway, and what must hold meanwhile and afterwards.

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tempfile::TempDir;
use tokio::time::Instant;

use crate::case::Case;
use crate::exchange::visit;
use crate::origin::{ECHO_PREFIX, RecordingOrigin};
use crate::request_log::{ExpectedRequest, RequestLog};
use crate::strict_parser::{self, Parsed};
use crate::support::client::{Connection, Response};
use crate::support::gateway::Gateway;
use crate::support::{site, wait_for};

/// What the gateway goes by: deadlines that nobody has to wait long for, and room for those who come and go.
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
/// How many connections there are at once.
const CLIENTS: u64 = 24;
/// After so many cases a visitor makes sure that the gateway answers a request without faults.
const CASES_PER_PROBE: u64 = 8;
/// So often a request without faults may meet a connection that closes, since whoever sends it was held up for longer than
/// the deadline.
const MAX_PROBES: usize = 5;
/// How long the gateway waits for the headers of a request, see above.
const CLIENT_HEADERS: Duration = Duration::from_secs(2);
/// How often somebody looks at the gateway.
const CHECK_INTERVAL: Duration = Duration::from_secs(1);
/// So many looks are a round of the ledger, and a line of progress.
const CHECKS_PER_ROUND: u64 = 10;
/// How much more memory the gateway may have than after the first round, in KiB.
const MAX_MEMORY_GROWTH_KIB: u64 = 96 * 1024;
/// How many more files it may have open than at the beginning, once all visitors are gone.
const MAX_MORE_FILES: usize = 8;

/// A gateway, its origin, and who comes.
pub(crate) struct Campaign {
    seed: u64,
    gateway: Gateway,
    /// It ends after the gateway.
    _witness: RecordingOrigin,
    _directory: TempDir,
    log: Arc<RequestLog>,
}

/// What was wrong, and the cases that were under way.
#[derive(Debug)]
pub(crate) struct Failed {
    pub(crate) violations: Vec<String>,
    pub(crate) cases: Vec<u64>,
}

/// What all visitors share.
struct Progress {
    next: AtomicU64,
    is_over: AtomicBool,
    under_way: Mutex<BTreeSet<u64>>,
}

impl Campaign {
    /// Starts a gateway for cases of this seed.
    pub(crate) fn start(seed: u64) -> Campaign {
        let (directory, log) = (tempfile::tempdir().expect("a directory"), Arc::new(RequestLog::default()));
        let origin = RecordingOrigin::start(&log);
        let options = ["--no-access-log", "--log-level", "error"];
        let gateway = Gateway::start(directory.path(), origin.address, CONFIG, &options);
        Campaign { seed, gateway, _witness: origin, _directory: directory, log }
    }

    /// Lets visitors come for so long, and tells how it goes on.
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
                scope.spawn(|| come(seed, address, &log, &course));
            }
            watch(gateway, &log, &course, time);
            course.is_over.store(true, Relaxed);
            course.under_way.lock().expect("cases").iter().copied().collect()
        });
        if self.log.violations().is_empty() {
            wait_for("connections and files are closed when all visitors are gone", || {
                (self.gateway.open_files() <= files + MAX_MORE_FILES).then_some(())
            });
        }
        let violations = self.violations();
        if violations.is_empty() { Ok(()) } else { Err(Failed { violations, cases }) }
    }

    /// What comes of one case alone.
    pub(crate) fn try_alone(&mut self, case: &Case) -> Vec<String> {
        visit(case, self.gateway.address, &self.log);
        // What it has caused at the origin has been heard by then, or is heard before the answer.
        probe(self.gateway.address, &self.log, u64::MAX);
        self.violations()
    }

    fn violations(&mut self) -> Vec<String> {
        let mut violations = self.log.violations();
        violations.extend(health(&mut self.gateway));
        violations
    }
}

/// What visitors do until it is over.
fn come(seed: u64, address: std::net::SocketAddr, log: &RequestLog, course: &Progress) {
    while !course.is_over.load(Relaxed) {
        let number = course.next.fetch_add(1, Relaxed);
        course.under_way.lock().expect("cases").insert(number);
        visit(&Case::of(seed, number), address, log);
        if number.is_multiple_of(CASES_PER_PROBE) {
            probe(address, log, number);
        }
        if !log.violations().is_empty() {
            return;
        }
        course.under_way.lock().expect("cases").remove(&number);
    }
}

/// Fails unless a request without faults is answered.
fn probe(address: std::net::SocketAddr, log: &RequestLog, number: u64) {
    let target = format!("/pass/probe-{number}");
    let response = (0..MAX_PROBES).find_map(|_| ask_without_faults(address, log, &target));
    let is_right = response.is_some_and(|response| {
        response.status == 200 && response.text() == format!("{ECHO_PREFIX}{target}\n")
    });
    if !is_right {
        log.violate(format!("a request without faults is not answered: {target}"));
    }
}

/// The answer to a request without faults; none if it came too late.
fn ask_without_faults(address: std::net::SocketAddr, log: &RequestLog, target: &str) -> Option<Response> {
    const REQUEST_TIMEOUT: u16 = 408;
    let bytes = site::get(target, "");
    let Parsed::Whole(request, _) = strict_parser::read(bytes.as_bytes()) else {
        panic!("a request without faults")
    };
    log.expect(&[ExpectedRequest { request, is_whole: true }]);
    // A machine can run out of ports for a moment.
    let mut connection = wait_for("the gateway accepts a connection", || Connection::try_open(address));
    let connected = Instant::now();
    connection.send(bytes);
    let response = connection.next_response("GET").filter(|response| response.status != REQUEST_TIMEOUT);
    if response.is_none() && connected.elapsed() < CLIENT_HEADERS {
        log.violate(format!("a request without faults is turned away before its time is over: {target}"));
    }
    response
}

/// Looks at the gateway now and then, until time is over or something is wrong.
#[expect(clippy::print_stderr, reason = "a campaign of minutes tells how it goes on")]
fn watch(gateway: &mut Gateway, log: &RequestLog, course: &Progress, time: Duration) {
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
            log.turn();
            let memory = gateway.memory();
            let most = *first_memory.get_or_insert(memory) + MAX_MEMORY_GROWTH_KIB;
            if memory > most {
                log.violate(format!("the gateway has {memory} KiB of memory, more than {most}"));
            }
            eprintln!(
                "fuzz: {:4} s of {}, {} connections, {} requests heard by the origin, {} MiB, {} files open",
                start.elapsed().as_secs(),
                time.as_secs(),
                course.next.load(Relaxed),
                log.heard(),
                memory / 1024,
                gateway.open_files(),
            );
        }
    }
}

/// What is wrong with the process, if anything is.
fn health(gateway: &mut Gateway) -> Option<String> {
    let log = gateway.log();
    if log.contains("panicked") {
        return Some(format!("the gateway has panicked: {log}"));
    }
    (!gateway.is_alive()).then(|| format!("the gateway has ended: {log}"))
}
