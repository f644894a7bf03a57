//! The number of system calls of a request, counted with strace. It does not depend on the speed of the machine.
#![cfg(target_os = "linux")]

#[path = "support/mod.rs"]
mod support;

use std::collections::BTreeMap;
use std::path::Path;
use std::time::Duration;

use support::client::{Connection, Response};
use support::gateway::Gateway;
use support::origin::{Origin, ScriptedResponse};
use support::site::{get, with_long_timeouts};
use support::{print, wait_for};

/// The requests of each kind.
const REQUESTS: u32 = 200;
/// How long the gateway is observed without requests.
const IDLE: Duration = Duration::from_secs(1);
const CONFIG: &str = "[routes]\n\"/**\" = { isr = \"1h\" }\n\"/through/**\" = false\n";

/// Calls that are printed and not asserted: those that depend on when threads run and on the memory of the process.
const VARIABLE: [&str; 21] = [
    "brk",
    "clone3",
    "epoll_pwait",
    "epoll_wait",
    "exit",
    "futex",
    "getpid",
    "madvise",
    "mmap",
    "mprotect",
    "munmap",
    "prctl",
    "restart_syscall",
    "rseq",
    "rt_sigprocmask",
    "sched_getaffinity",
    "sched_yield",
    "set_robust_list",
    "sigaltstack",
    "timerfd_settime",
    WAKE,
];

/// A write to an event descriptor, by which one thread wakes another that sleeps.
const WAKE: &str = "write to wake";
const WAKE_ARGUMENTS: &str = r#", "\1\0\0\0\0\0\0\0", 8"#;

/// The most calls of each kind of request, slightly above what was measured.
///
/// A hit and a 304 receive and send (2.1). A request that is passed through does so twice (4.0). A page that is read from
/// the embedded store locks and unlocks both files of SQLite besides, and looks once whether the table is in place (8.7).
/// A miss writes them three times: the lease, the body, and the page with the time of its last use: 67.9, 70.1 and 73.0 in
/// three measurements.
const MOST: [(&str, f64); 5] =
    [("hit", 2.5), ("not-modified", 2.5), ("through", 4.5), ("read", 10.0), ("miss", 80.0)];

/// The calls that wait for the disk.
const SYNCS: [&str; 2] = ["fsync", "fdatasync"];
/// The most of them that a miss makes: for the body and for the publish, and not for the lease. Rarely SQLite begins its log
/// again.
const MOST_SYNCS: f64 = 2.2;

#[test]
fn each_kind_of_request_makes_a_bounded_number_of_system_calls() {
    let (directory, origin) = (tempfile::tempdir().expect("a directory"), Origin::start());
    origin.respond("/through/a", ScriptedResponse::page(&[], "passed through"));
    let trace = directory.path().join("trace");
    let start = || {
        let config = with_long_timeouts(CONFIG);
        Gateway::start_traced(&trace, directory.path(), origin.address, &config, &["--no-access-log"])
    };

    let gateway = start();
    let mut client = Client(gateway.connect());
    client.send_all("miss", |number| format!("/{number}"), "", "miss");
    client.send_all("hit", |_| "/0".into(), "", "hit");
    let tag = client.send("between", "/0", "").header("etag").expect("an entity tag").to_owned();
    client.send_all("not-modified", |_| "/0".into(), &format!("If-None-Match: {tag}\r\n"), "hit");
    client.send_all("through", |_| "/through/a".into(), "", "bypass");
    client.send("idle", "/0", "");
    std::thread::sleep(IDLE);
    client.send("end", "/0", "");
    let mut phases = phases(&trace);
    gateway.shut_down();

    // A new process has no page in memory.
    let gateway = start();
    let mut client = Client(gateway.connect());
    client.send_all("read", |number| format!("/{number}"), "", "hit");
    client.send("end", "/0", "");
    phases.extend(self::phases(&trace));
    drop(gateway);

    let mut idle = phases.remove("idle").expect("an idle gateway");
    // The request that begins it is not a part of it.
    idle.calls.retain(|call, _| !["recvfrom", "writev"].contains(&call.as_str()));
    print(&format!("idle for {IDLE:?}: {:?}", idle.calls));
    for (kind, most) in MOST {
        let phase = &phases[kind];
        let per_request = phase.per_request(&idle);
        let (asserted, variable): (Vec<_>, Vec<_>) =
            per_request.into_iter().partition(|(call, _)| !VARIABLE.contains(call));
        let sum: f64 = asserted.iter().map(|(_, number)| number).sum();
        print(&format!("{kind}: {sum:.2} calls {}; besides {}", list(&asserted), list(&variable)));
        let syncs =
            asserted.iter().filter(|(call, _)| SYNCS.contains(call)).map(|(_, number)| number).sum::<f64>();
        assert!(syncs <= if kind == "miss" { MOST_SYNCS } else { 0.0 }, "{kind}: {syncs:.2} times");
        assert!(sum <= most, "{kind}: {sum:.2} system calls per request, more than {most}");
    }
}

fn list(calls: &[(&str, f64)]) -> String {
    let calls: Vec<String> = calls.iter().map(|(call, number)| format!("{call} {number:.2}")).collect();
    format!("({})", calls.join(", "))
}

/// A client with one connection. A header of its requests tells in the trace which kind they are.
struct Client(Connection);

impl Client {
    fn send(&mut self, kind: &str, target: &str, lines: &str) -> Response {
        self.0.send(get(target, &format!("X-Phase: {kind}.\r\n{lines}")));
        self.0.response()
    }

    /// Sends all requests of a kind; the cache must be in this state.
    fn send_all(&mut self, kind: &str, target: impl Fn(u32) -> String, lines: &str, state: &str) {
        for number in 0..REQUESTS {
            let response = self.send(kind, &target(number), lines);
            assert_eq!(response.state(), state, "{kind}");
        }
    }
}

/// The system calls from the first request of a kind to the first one of the next kind.
#[derive(Default)]
struct Phase {
    calls: BTreeMap<String, f64>,
    start: f64,
    end: f64,
}

impl Phase {
    /// The calls of one request, without those that the gateway makes anyway. Rare calls are left out.
    fn per_request(&self, idle: &Phase) -> Vec<(&str, f64)> {
        let share = (self.end - self.start) / (idle.end - idle.start);
        let per_request = self.calls.iter().map(|(call, number)| {
            let anyway = idle.calls.get(call).copied().unwrap_or_default() * share;
            (call.as_str(), (number - anyway).max(0.0) / f64::from(REQUESTS))
        });
        per_request.filter(|(_, number)| *number >= 0.005).collect()
    }
}

/// Reads a trace up to the request that ends it.
fn phases(trace: &Path) -> BTreeMap<String, Phase> {
    let text = wait_for("the end of the trace", || {
        let text = String::from_utf8_lossy(&std::fs::read(trace).expect("a trace")).into_owned();
        text.contains("X-Phase: end.").then_some(text)
    });
    let mut phases = vec![(String::new(), Phase::default())];
    for line in text.lines() {
        // The process, the time, and the call, or a remark.
        let mut words = line.split_whitespace().skip(1);
        let Some(time) = words.next().and_then(|time| time.parse::<f64>().ok()) else { continue };
        let (kind, current) = phases.last_mut().expect("a phase");
        let next = line.split_once("X-Phase: ").and_then(|(_, rest)| rest.split('.').next());
        if let Some(next) = next.filter(|next| next != kind) {
            current.end = time;
            phases.push((next.to_owned(), Phase { start: time, ..Phase::default() }));
        }
        // A call that others interrupt in the trace has a second line, which is not counted.
        if let Some((call, _)) = words.next().and_then(|word| word.split_once('(')) {
            let call = if call == "write" && line.contains(WAKE_ARGUMENTS) { WAKE } else { call };
            let (_, current) = phases.last_mut().expect("a phase");
            *current.calls.entry(call.to_owned()).or_default() += 1.0;
        }
    }
    phases.into_iter().collect()
}
