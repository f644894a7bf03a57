//! Disks that do not complete writes for a while, are full, or do not respond, through the real binary.

#[path = "support/mod.rs"]
mod support;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use rusqlite::Connection;
use support::gateway::{Gateway, data};
use support::origin::{Gate, Origin, ScriptedResponse};
use support::site::{Site, get, with_long_timeouts};
use support::wait_for;

/// Metadata stays in use for long, so that a slow machine does not make a request read the table again.
const CONFIG: &str =
    "[routes]\n\"/**\" = { isr = \"1h\" }\n[store]\nmetadata_max_age = \"1h\"\n[timeouts]\ntable = \"20s\"\n";

/// A connection of another program to the table of a gateway.
fn table(directory: &Path) -> Connection {
    Connection::open(data(directory).join("table.db")).expect("the table")
}

fn published(table: &Connection) -> u32 {
    table.query_row("SELECT count(*) FROM item WHERE sk = 'META'", [], |row| row.get(0)).expect("a number")
}

#[test]
fn a_new_page_is_served_while_the_table_cannot_be_written_and_is_published_afterwards() {
    let (directory, origin, gate) =
        (tempfile::tempdir().expect("a directory"), Origin::start(), Gate::default());
    origin.respond("/new", ScriptedResponse::page(&[], "new").after(&gate));
    let gateway = Gateway::start(directory.path(), origin.address, CONFIG, &[]);
    let mut client = gateway.connect();
    client.send(get("/new", ""));
    // The gateway has acquired the lease by now.
    wait_for("the render", || (!origin.requests_for("/new").is_empty()).then_some(()));
    let table = table(directory.path());
    table.execute_batch("BEGIN IMMEDIATE").expect("the write lock");
    gate.open();
    let response = client.response();
    assert_eq!((response.state(), response.text().as_str()), ("miss", "new"));
    assert_eq!(gateway.exchange(get("/new", "")).state(), "hit");
    assert_eq!(published(&table), 0);
    table.execute_batch("ROLLBACK").expect("the lock is released");
    wait_for("the page is published", || (published(&table) == 1).then_some(()));
    assert_eq!(gateway.exchange(get("/new", "")).state(), "hit");
    assert_eq!(origin.requests_for("/new").len(), 1);
    assert_eq!(gateway.metric("facetheory_published_behind_total"), Some(1.0));
    gateway.shut_down();
    let gateway = Gateway::start(directory.path(), origin.address, CONFIG, &[]);
    assert_eq!(gateway.exchange(get("/new", "")).state(), "hit", "also after a restart");
}

const PAGES: &str = "[routes]\n\"/**\" = { isr = \"1h\" }\n";

/// Starts a gateway for which the disk is full, until [`make_room`].
#[cfg(target_os = "linux")]
fn start_on_full_disk(directory: &Path, origin: &Origin) -> Gateway {
    /// The calls by which SQLite takes room on the disk.
    const ROOM: &str = "pwrite64,fallocate";
    let mut strace = Command::new("strace");
    // SIGTERM ends strace alone, and the gateway goes on.
    strace.args(["-D", "--interruptible=waiting", "--follow-forks", "--output=/dev/null"]);
    strace.args([format!("--trace={ROOM}"), format!("--inject={ROOM}:error=ENOSPC")]);
    strace.arg(env!("CARGO_BIN_EXE_facetheory"));
    Gateway::try_start_by(strace, directory, origin.address, &with_long_timeouts(PAGES), &[])
        .unwrap_or_else(|error| panic!("the gateway does not start: {error:?}"))
}

#[cfg(target_os = "linux")]
fn make_room(gateway: &Gateway) {
    let status = fs::read_to_string(format!("/proc/{}/status", gateway.pid())).expect("a running process");
    let tracer = status.lines().find_map(|line| line.strip_prefix("TracerPid:")).expect("a line").trim();
    assert!(
        Command::new("kill").arg(tracer).status().is_ok_and(|kill| kill.success()),
        "no tracer: {tracer}"
    );
}

#[test]
#[cfg(target_os = "linux")]
fn a_gateway_starts_on_a_full_disk_serves_stored_pages_says_why_and_writes_again_when_there_is_room() {
    let Site { gateway, origin, directory } = Site::start(PAGES);
    assert_eq!(gateway.exchange(get("/stored", "")).state(), "miss");
    gateway.shut_down();

    let gateway = start_on_full_disk(directory.path(), &origin);
    wait_for("the log says why", || gateway.log().contains("the disk is full").then_some(()));
    assert_eq!(gateway.exchange(get("/stored", "")).state(), "hit");
    let response = gateway.exchange(get("/new", ""));
    assert_eq!((response.status, response.state()), (200, "bypass"));
    let ready = gateway.admin_get("/readyz");
    assert_eq!(ready.status, 503);
    let body: serde_json::Value = serde_json::from_str(&ready.text()).expect("JSON");
    assert_eq!(body["reasons"], serde_json::json!(["disk-full"]));
    assert!(body["details"][0].as_str().is_some_and(|detail| detail.contains("make room")), "{body}");
    let metric = |name: &str, store: &str| gateway.metric(&format!("{name}{{store=\"{store}\"}}"));
    for store in ["table", "bodies"] {
        assert_eq!(metric("facetheory_disk_full", store), Some(1.0), "{store}");
        assert_eq!(metric("facetheory_store_writable", store), Some(0.0), "{store}");
    }

    make_room(&gateway);
    wait_for("the gateway is ready", || (gateway.admin_get("/readyz").status == 200).then_some(()));
    wait_for("a page is published", || (gateway.exchange(get("/new", "")).state() == "hit").then_some(()));
    for store in ["table", "bodies"] {
        assert_eq!(metric("facetheory_disk_full", store), Some(0.0), "{store}");
        assert_eq!(metric("facetheory_store_writable", store), Some(1.0), "{store}");
    }
}

/// The only body below a directory that is in a file of its own.
fn body_file(directory: &Path) -> Option<PathBuf> {
    let mut entries =
        fs::read_dir(directory).expect("a directory").map(|entry| entry.expect("an entry").path());
    entries.find_map(|path| match path.extension() {
        _ if path.is_dir() => body_file(&path),
        Some(extension) if extension == "html" => Some(path),
        _ => None,
    })
}

/// A gateway with a thread that opens a body on a disk that does not respond: a pipe into which nobody writes.
#[cfg(unix)]
fn with_stuck_body() -> Site {
    /// Larger than bodies in the file of small ones.
    const LARGE: usize = 300 * 1024;
    let Site { gateway, origin, directory } = Site::start(PAGES);
    origin.respond("/large", ScriptedResponse::page(&[], &"x".repeat(LARGE)));
    assert_eq!(gateway.exchange(get("/large", "")).state(), "miss");
    gateway.shut_down();
    let body = body_file(&data(directory.path())).expect("a body in a file");
    fs::remove_file(&body).expect("a file");
    assert!(Command::new("mkfifo").arg(&body).status().is_ok_and(|mkfifo| mkfifo.success()));
    let config = format!("{PAGES}[timeouts]\nbodies = \"200ms\"\nshutdown = \"1s\"\n");
    let gateway = Gateway::start(directory.path(), origin.address, &config, &[]);
    let response = gateway.exchange(get("/large", ""));
    assert_eq!((response.status, response.state()), (200, "bypass"), "the body could not be read in time");
    Site { gateway, origin, directory }
}

#[test]
#[cfg(unix)]
fn a_gateway_exits_after_the_deadline_of_its_shutdown_although_a_body_is_never_read() {
    let sites = [with_stuck_body(), with_stuck_body()];
    for (site, signals) in sites.iter().zip([1, 2]) {
        (0..signals).for_each(|_| site.gateway.signal("TERM"));
    }
    for Site { mut gateway, .. } in sites {
        wait_for("the gateway exits", || (!gateway.is_alive()).then_some(()));
    }
}
