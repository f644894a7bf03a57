//! Gateways whose wall clocks are set forward and back by an hour: no acknowledged invalidation of any kind is lost. The clock of
//! a process is set with libfaketime, which its dynamic linker loads before the C library.
#![cfg(target_os = "linux")]

#[path = "support/mod.rs"]
mod support;

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use support::client::Response;
use support::gateway::Gateway;
use support::origin::{Origin, ScriptedResponse};
use support::site::{HOST, get, request, with_long_timeouts};
use support::store::Store;
use support::wait_for;
use tabletheory::{Random as _, SeededRandom};
use tempfile::TempDir;

/// How often each kind of invalidation is tried.
const ROUNDS: u64 = 4;
const GATEWAYS: usize = 2;
/// The offset of a wall clock, in seconds.
const STEPS: [i64; 3] = [-3600, 0, 3600];
/// Pages are fresh for longer than all steps of the clocks together.
const CONFIG: &str = r#"
[store]
metadata_max_age = "0s"
[routes]
"/page/**" = { isr = "10h", tags = ["news"] }
"/t/{tenant}/**" = { isr = "10h", tenant = { param = "tenant" } }
"/host/**" = { isr = "10h", tenant = { subdomain = "example.com" } }
"/origin/**" = { cache = "origin" }
"#;

/// A kind of invalidation, the page for which it is tried, and the body of the request to the admin API; none for an unsafe method.
type Kind = (&'static str, &'static str, Option<String>);

fn kinds() -> [Kind; 10] {
    let admin = |json: &str| Some(json.to_owned());
    let url = |path: &str, hard: bool| Some(format!(r#"{{ "url": "http://{HOST}{path}", "hard": {hard} }}"#));
    [
        ("a page", "/page/a", url("/page/a", false)),
        ("a page, hard", "/page/a", url("/page/a", true)),
        ("a page that follows the origin's headers", "/origin/a", url("/origin/a", false)),
        ("a tag", "/page/a", admin(r#"{ "tag": "news" }"#)),
        ("a path", "/page/a", admin(r#"{ "path": "/page" }"#)),
        ("a tenant", "/t/acme/a", admin(r#"{ "tenant": "acme" }"#)),
        ("a path of a tenant", "/t/acme/a", admin(r#"{ "tenant": "acme", "path": "/t/acme" }"#)),
        ("a host, which is a tenant", "/host/a", admin(r#"{ "tenant": "www" }"#)),
        ("everything", "/page/a", admin(r#"{ "everything": true }"#)),
        ("an unsafe method", "/origin/a", None),
    ]
}

/// A gateway whose clock the test sets.
struct SteppedGateway {
    gateway: Gateway,
    /// Its configuration, and the file with the offset of its clock.
    directory: TempDir,
}

impl SteppedGateway {
    fn start(store: &Store, origin: &Origin) -> SteppedGateway {
        let directory = tempfile::tempdir().expect("a directory");
        let mut command = Command::new(env!("CARGO_BIN_EXE_facetheory"));
        command.envs(store.environment.iter().map(|(name, value)| (name, value)));
        command.env("LD_PRELOAD", libfaketime());
        command.env("FAKETIME_TIMESTAMP_FILE", offset_file(directory.path()));
        // Each call reads the file, and only the wall clock is set.
        command.envs([
            ("FAKETIME_NO_CACHE", "1"),
            ("FAKETIME_DONT_FAKE_MONOTONIC", "1"),
            ("NO_FAKE_STAT", "1"),
        ]);
        write_offset(directory.path(), 0);
        let arguments = ["--table", &store.table, "--bodies", &store.bodies, "--no-access-log"];
        let config = with_long_timeouts(CONFIG);
        let gateway = Gateway::try_start_by(command, directory.path(), origin.address, &config, &arguments);
        SteppedGateway { gateway: gateway.expect("the gateway starts"), directory }
    }

    fn step(&self, offset: i64) {
        write_offset(self.directory.path(), offset);
    }

    fn get(&self, path: &str) -> Response {
        let response = self.gateway.exchange(get(path, ""));
        assert_eq!(response.status, 200, "{}", response.text());
        response
    }

    /// Requests a page until it is fresh, and returns its content.
    fn get_fresh(&self, path: &str) -> String {
        wait_for("the page is fresh", || {
            let response = self.get(path);
            ["hit", "miss"].contains(&response.state()).then(|| response.text())
        })
    }

    fn invalidate(&self, path: &str, body: Option<&str>) {
        let response = match body {
            Some(body) => self.gateway.admin_post("/api/v1/invalidate", body),
            None => self.gateway.exchange(request("POST", path, "Content-Length: 0\r\n")),
        };
        assert_eq!(response.status, 200, "{}", response.text());
    }
}

/// The library that sets the clock of a process.
///
/// # Panics
/// If it is not installed: a test that cannot run must not pass.
fn libfaketime() -> PathBuf {
    let architectures = std::fs::read_dir("/usr/lib").expect("a directory").flatten();
    let libraries = architectures.map(|entry| entry.path().join("faketime/libfaketimeMT.so.1"));
    let found = libraries.into_iter().find(|library| library.exists());
    found.expect("libfaketime is missing; on Debian: sudo apt-get install faketime")
}

fn offset_file(directory: &Path) -> PathBuf {
    directory.join("clock")
}

/// Sets the clock. The gateway reads the file at any time, so it is replaced as a whole.
fn write_offset(directory: &Path, seconds: i64) {
    let new = directory.join("clock.new");
    std::fs::write(&new, format!("{seconds:+}\n")).expect("a file");
    std::fs::rename(new, offset_file(directory)).expect("a file");
}

#[test]
fn no_step_of_the_clocks_of_gateways_loses_an_invalidation_on_sqlite() {
    step_clocks(&Store::embedded());
}

#[test]
fn no_step_of_the_clocks_of_gateways_loses_an_invalidation_on_dynamodb() {
    // S3 rejects a request that is signed with a clock that is off by a quarter of an hour.
    step_clocks(&Store::on_servers().with_bodies_in_files());
}

/// Invalidates pages by every kind of invalidation, while the clocks of the gateways step before every operation.
fn step_clocks(store: &Store) {
    let origin = Origin::start();
    let content = Arc::new(AtomicU64::new(0));
    for path in ["/page/a", "/t/acme/a", "/host/a", "/origin/a"] {
        let content = Arc::clone(&content);
        origin.script(path, move |_| {
            let content = content.load(Ordering::SeqCst).to_string();
            ScriptedResponse::page(&["Cache-Control: public, max-age=36000"], &content)
        });
    }
    let gateways: Vec<SteppedGateway> =
        (0..GATEWAYS).map(|_| SteppedGateway::start(store, &origin)).collect();
    check_that_clocks_step(&gateways[0]);

    let random = SeededRandom::new(7);
    let pick = |number: usize| usize::try_from(random.next_u64() % number as u64).expect("small");
    let step = |gateway: &SteppedGateway| gateway.step(STEPS[pick(STEPS.len())]);
    for round in 0..ROUNDS {
        for (kind, path, body) in kinds() {
            let what = format!("round {round}, {kind}");
            for gateway in &gateways {
                step(gateway);
                gateway.get_fresh(path);
            }
            let current = content.fetch_add(1, Ordering::SeqCst) + 1;
            let invalidator = pick(GATEWAYS);
            step(&gateways[invalidator]);
            gateways[invalidator].invalidate(path, body.as_deref());
            // From now on, only a page with this content is fresh.
            for number in [invalidator, pick(GATEWAYS), GATEWAYS - 1 - invalidator] {
                step(&gateways[number]);
                let response = gateways[number].get(path);
                let (state, text) = (response.state().to_owned(), response.text());
                let may_be_stale = kind != "a page, hard" && state == "stale";
                assert!(
                    text == current.to_string() || may_be_stale,
                    "{what}, gateway {number}: {state} {text} after the content became {current}"
                );
            }
            let seen = gateways[invalidator].get_fresh(path);
            assert_eq!(seen, current.to_string(), "{what}: the fresh page");
        }
    }
}

/// The age of a page shows that the clock of a gateway is set.
fn check_that_clocks_step(gateway: &SteppedGateway) {
    gateway.get_fresh("/page/a");
    gateway.step(3600);
    let age = gateway.get("/page/a").header("age").and_then(|age| age.parse::<u64>().ok());
    assert!(age.is_some_and(|age| age >= 3600), "the age an hour later is {age:?}");
}
