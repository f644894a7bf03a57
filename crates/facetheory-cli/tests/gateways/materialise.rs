//! `facetheory invalidate --materialise` writes the rows of pages, which services in other languages read.

use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use facetheory::PageKey;
use facetheory::protocol::{Generation, Meta};
use parking_lot::{Condvar, Mutex};
use serde_json::Value;
use tabletheory::{Txn, Write};

use crate::meter::Meter;
use crate::support::gateway::Gateway;
use crate::support::origin::{Origin, ScriptedResponse};
use crate::support::site::{get, with_long_timeouts};
use crate::support::store::{Store, s3_endpoint, server_variable};
use crate::support::wait_for;
use crate::table::{command, facetheory, stderr};

/// The number of pages below `/news`.
const NEWS: usize = 5;
const PAGES: &str = "[routes]\n\"/**\" = { isr = \"1h\", tags = [\"site\"] }\n";

/// `META` of all pages whose path begins so.
fn pages(store: &Store, path: &str) -> Vec<Meta> {
    let rows = store.rows();
    let is_page = |row: &&tabletheory::Item| {
        let own = row.get("path").and_then(|value| value.as_str());
        row.key().expect("a key").sk == "META" && own.is_some_and(|own| own.starts_with(path))
    };
    rows.iter().filter(is_page).map(|row| Meta::read(row).expect("META")).collect()
}

fn invalidate(store: &Store, more: &[&str]) -> Value {
    let mut arguments =
        vec!["invalidate", "--materialise", "--json", "--table", &store.table, "--bodies", &store.bodies];
    arguments.extend(more);
    let output = facetheory(store, &arguments);
    assert!(output.status.success(), "{}", stderr(&output));
    serde_json::from_slice(&output.stdout).expect("JSON")
}

fn counts(report: &Value) -> [i64; 3] {
    ["matched", "written", "unaffected"].map(|name| report[name].as_i64().expect("a number"))
}

/// Publishes pages through a gateway, and invalidates them by path.
fn pages_are_written(store: &Store) {
    let (directory, origin) = (tempfile::tempdir().expect("a directory"), Origin::start());
    let gateway = Gateway::start_on(store, directory.path(), origin.address, &with_long_timeouts(PAGES));
    let paths: Vec<String> =
        (0..NEWS).map(|number| format!("/news/{number}")).chain(["/about".to_owned()]).collect();
    for path in &paths {
        origin.respond(path, ScriptedResponse::page(&[], "<p>a page</p>"));
        assert_eq!(gateway.exchange(get(path, "")).status, 200);
    }
    wait_for("all pages are published", || (pages(store, "/").len() == paths.len()).then_some(()));
    let matching = i64::try_from(NEWS).expect("a small number");

    let dry = invalidate(store, &["--path", "/news", "--dry-run"]);
    assert_eq!((counts(&dry), dry["finished"].as_bool()), ([matching, matching, 0], Some(true)), "{dry}");
    assert!(pages(store, "/news").iter().all(|meta| meta.stale_since.is_none()), "a dry run writes nothing");

    let written = invalidate(store, &["--path", "/news"]);
    assert_eq!(counts(&written), [matching, matching, 0], "{written}");
    // Another language decides with these attributes alone.
    assert!(pages(store, "/news").iter().all(|meta| meta.generation.revalidate_seconds == 0));
    assert!(pages(store, "/about").iter().all(|meta| meta.generation.revalidate_seconds == 3600));

    let since = written["since"].to_string();
    let continued = invalidate(store, &["--path", "/news", "--since", &since]);
    assert_eq!(counts(&continued), [matching, 0, matching], "a continued run repeats nothing: {continued}");

    let all = invalidate(store, &["--tag", "site", "--hard"]);
    assert_eq!(counts(&all), [matching + 1, matching + 1, 0], "{all}");
    assert!(pages(store, "/").iter().all(|meta| meta.must_not_serve));
    wait_for("the gateway renders again", || {
        (gateway.exchange(get("/about", "")).state() == "miss").then_some(())
    });
}

#[test]
fn all_pages_of_a_path_or_tag_are_written_on_dynamodb() {
    pages_are_written(&Store::on_servers());
}

#[test]
fn all_pages_of_a_path_or_tag_are_written_in_the_embedded_store() {
    pages_are_written(&Store::embedded());
}

#[test]
fn ctrl_c_ends_a_run_after_the_write_in_progress_and_since_continues_it() {
    /// More pages than one process writes between a signal and its handling.
    const PAGES: u64 = 40;
    /// The write during which the signal is sent.
    const INTERRUPTED: usize = 3;
    let proxy = Meter::start(&server_variable("FACETHEORY_TEST_DYNAMODB_ENDPOINT"));
    let direct = Store::on_servers();
    direct.commit(&Txn::new((0..PAGES).map(old_page)));
    let store = direct.through(&proxy.endpoint(), &s3_endpoint());
    let (writes, sent) = (Arc::new(AtomicUsize::new(0)), Arc::new(Gate::default()));
    let (counted, is_sent) = (writes.clone(), sent.clone());
    proxy.replace(move |operation, _| {
        if operation == "TransactWriteItems" && counted.fetch_add(1, Ordering::SeqCst) + 1 >= INTERRUPTED {
            is_sent.wait();
        }
        None
    });
    let child = invalidate_everything(&store);
    wait_for("a write is in progress", || (writes.load(Ordering::SeqCst) >= INTERRUPTED).then_some(()));
    interrupt(&child);
    sent.open();
    let output = child.wait_with_output().expect("an output");
    let report: Value = serde_json::from_slice(&output.stdout).expect("JSON");
    let [_, written, _] = counts(&report);
    assert!(!output.status.success() && report["finished"] == false, "{report}");
    assert!(stderr(&output).contains(&format!("--since {}", report["since"])), "{}", stderr(&output));

    let rest = invalidate(&direct, &["--everything", "--since", &report["since"].to_string()]);
    let all = i64::try_from(PAGES).expect("a small number");
    assert_eq!(
        (counts(&rest), rest["finished"].as_bool()),
        ([all, all - written, written], Some(true)),
        "{rest}"
    );
}

#[test]
fn a_second_ctrl_c_ends_a_run_at_once_and_says_how_to_continue() {
    let proxy = Meter::start(&server_variable("FACETHEORY_TEST_DYNAMODB_ENDPOINT"));
    let direct = Store::on_servers();
    direct.commit(&Txn::new((0..2).map(old_page)));
    let store = direct.through(&proxy.endpoint(), &s3_endpoint());
    let (is_writing, is_over) = (Arc::new(AtomicBool::new(false)), Arc::new(Gate::default()));
    let (writing, over) = (is_writing.clone(), is_over.clone());
    proxy.replace(move |operation, _| {
        if operation == "TransactWriteItems" {
            writing.store(true, Ordering::SeqCst);
            over.wait();
        }
        None
    });
    let mut child = invalidate_everything(&store);
    wait_for("a write is in progress", || is_writing.load(Ordering::SeqCst).then_some(()));
    // Signals that arrive together count as one, so they are repeated.
    wait_for("the process ends", || {
        let has_ended = child.try_wait().expect("a process").is_some();
        if !has_ended {
            interrupt(&child);
        }
        has_ended.then_some(())
    });
    is_over.open();
    let output = child.wait_with_output().expect("an output");
    let message = stderr(&output);
    assert!(!output.status.success() && message.contains("writes were in progress; run"), "{message}");
    assert!(message.contains("--since "), "{message}");
}

#[test]
fn a_table_that_cannot_be_read_does_not_lose_the_time_to_continue_from() {
    let proxy = Meter::start(&server_variable("FACETHEORY_TEST_DYNAMODB_ENDPOINT"));
    proxy.deny(&["Scan"]);
    let store = Store::on_servers().through(&proxy.endpoint(), &s3_endpoint());
    let output = invalidate_everything(&store).wait_with_output().expect("an output");
    let report: Value = serde_json::from_slice(&output.stdout).expect("JSON");
    let message = stderr(&output);
    assert!(!output.status.success() && message.contains("the table could not be read"), "{message}");
    assert!(message.contains(&format!("--since {}", report["since"])), "{message}");
    assert!(report["finished"] == false && report["read_error"].is_string(), "{report}");
}

/// Starts to invalidate all pages, one after the other.
fn invalidate_everything(store: &Store) -> Child {
    let arguments = ["invalidate", "--everything", "--materialise", "--json", "--concurrency", "1"];
    let stores = ["--table", &store.table, "--bodies", &store.bodies];
    let mut command = command(store);
    command.args(arguments).args(stores).stdout(Stdio::piped()).stderr(Stdio::piped());
    command.spawn().expect("the binary runs")
}

/// The write of a page that was rendered long ago.
fn old_page(number: u64) -> Write {
    let page = PageKey::new(format!("/{number}")).expect("a page");
    Write::put(page.meta(), Meta::of(Generation::new("isr/a.html", 1_700_000_000, 60)).to_item())
}

/// Sends the signal of Ctrl-C.
fn interrupt(child: &Child) {
    let kill = Command::new("kill").args(["-s", "INT", &child.id().to_string()]).status();
    assert!(kill.expect("kill starts").success());
}

/// A gate at which requests wait until the test opens it.
#[derive(Default)]
struct Gate {
    is_open: Mutex<bool>,
    opened: Condvar,
}

impl Gate {
    fn open(&self) {
        *self.is_open.lock() = true;
        self.opened.notify_all();
    }

    /// Waits until the gate is open, or for 15 seconds: the client of DynamoDB repeats a write that takes more than five
    /// seconds, and gives up after twenty.
    fn wait(&self) {
        self.opened.wait_while_for(&mut self.is_open.lock(), |is_open| !*is_open, Duration::from_secs(15));
    }
}

#[test]
fn an_invalidation_without_pages_or_without_a_store_is_an_error() {
    let store = Store::embedded();
    let nothing = facetheory(&store, &["invalidate", "--materialise"]);
    assert!(
        !nothing.status.success() && stderr(&nothing).contains("--tag, --path, --tenant or --everything")
    );
    let nowhere = facetheory(&store, &["invalidate", "--tag", "news", "--data", "missing"]);
    assert!(
        !nowhere.status.success() && stderr(&nowhere).contains("the table file missing"),
        "{}",
        stderr(&nowhere)
    );
    let memory = ["invalidate", "--tag", "news", "--table", "memory:", "--bodies", "memory:"];
    let memory = facetheory(&store, &memory);
    assert!(stderr(&memory).contains("use POST /api/v1/invalidate of that process"), "{}", stderr(&memory));
}
