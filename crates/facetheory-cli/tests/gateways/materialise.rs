//! `facetheory invalidate --materialise` writes the rows of pages, which services in other languages read.

use facetheory::protocol::Meta;
use serde_json::Value;

use crate::support::gateway::Gateway;
use crate::support::origin::{Origin, ScriptedResponse};
use crate::support::site::{get, with_long_timeouts};
use crate::support::store::Store;
use crate::support::wait_for;
use crate::table::{facetheory, stderr};

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
    let directory = tempfile::tempdir().expect("a directory");
    pages_are_written(&Store::in_directory(directory.path()));
}

#[test]
fn an_invalidation_without_pages_or_without_a_store_is_an_error() {
    let store = Store { table: String::new(), bodies: String::new(), environment: Vec::new() };
    let nothing = facetheory(&store, &["invalidate", "--materialise"]);
    assert!(
        !nothing.status.success() && stderr(&nothing).contains("--tag, --path, --tenant or --everything")
    );
    let nowhere = facetheory(&store, &["invalidate", "--tag", "news", "--data", "missing"]);
    assert!(
        !nowhere.status.success() && stderr(&nowhere).contains("there is no store at missing"),
        "{}",
        stderr(&nowhere)
    );
}
