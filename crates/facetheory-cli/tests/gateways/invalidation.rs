//! An invalidation at one gateway takes effect at the other. A test of the library with a manual clock checks how soon
//! (docs/internals/rules.md).

use tabletheory::{Clock as _, SystemClock};
use tempfile::TempDir;

use crate::pair::Pair;
use crate::support::client::Response;
use crate::support::gateway::Gateway;
use crate::support::origin::{Origin, ScriptedResponse};
use crate::support::site::{HOST, get, with_long_timeouts};
use crate::support::store::Store;
use crate::support::{print, wait_for};

/// Fresh for so long that only an invalidation explains another render: longer than a test waits.
const PAGES: &str = "[routes]\n\"/**\" = { isr = \"1h\", tags = [\"news\"] }\n";

#[test]
fn a_page_invalidated_by_one_gateway_is_regenerated_by_the_other() {
    takes_effect("a page", &format!(r#"{{ "url": "http://{HOST}/a/page" }}"#));
}

#[test]
fn a_page_hard_invalidated_by_one_gateway_is_not_served_by_the_other() {
    let states =
        takes_effect("a page, hard", &format!(r#"{{ "url": "http://{HOST}/a/page", "hard": true }}"#));
    assert!(!states.contains(&"stale".to_owned()), "it was served stale: {states:?}");
}

#[test]
fn a_tag_invalidated_by_one_gateway_is_stale_at_the_other() {
    takes_effect("a tag", r#"{ "tag": "news" }"#);
}

#[test]
fn a_path_invalidated_by_one_gateway_is_stale_at_the_other() {
    takes_effect("a path", r#"{ "path": "/a" }"#);
}

#[test]
fn without_cached_metadata_an_invalidation_by_another_gateway_takes_effect_at_once() {
    let config = with_long_timeouts(&format!("{PAGES}[store]\nmetadata_max_age = \"0s\"\n"));
    let [one_directory, other_directory] = [(); 2].map(|()| tempfile::tempdir().expect("a directory"));
    let (store, origin) = (Store::embedded(), Origin::start());
    let start = |directory: &TempDir| Gateway::start_on(&store, directory.path(), origin.address, &config);
    let (one, other) = (start(&one_directory), start(&other_directory));
    origin.respond("/a/page", ScriptedResponse::page(&[], "<p>a page</p>"));
    let url = format!(r#"{{ "url": "http://{HOST}/a/page" }}"#);
    for body in [url.as_str(), r#"{ "tag": "news" }"#, r#"{ "path": "/a" }"#, r#"{ "everything": true }"#] {
        wait_for("the page is in memory", || (request(&other).state() == "hit").then_some(()));
        assert_eq!(one.admin_post("/api/v1/invalidate", body).status, 200);
        assert_ne!(request(&other).state(), "hit", "{body}");
    }
}

/// Caches a page in both gateways, invalidates it through one, and polls the other until it serves the new page.
/// Returns the states of its responses meanwhile.
fn takes_effect(what: &str, body: &str) -> Vec<String> {
    let pair = Pair::start(PAGES);
    pair.origin.respond("/a/page", ScriptedResponse::page(&[], "<p>old</p>"));
    for gateway in [&pair.one, &pair.other] {
        wait_for("the page is in memory", || (request(gateway).state() == "hit").then_some(()));
    }
    pair.origin.respond("/a/page", ScriptedResponse::page(&[], "<p>new</p>"));
    let response = pair.one.admin_post("/api/v1/invalidate", body);
    assert_eq!((response.status, &*response.text()), (200, r#"{"outcome":"stale"}"#));

    let (invalidated, mut noticed, mut states) = (SystemClock.now(), None, Vec::new());
    wait_for("the other serves the new page", || {
        let response = request(&pair.other);
        assert_eq!(response.status, 200, "{}", response.text());
        if response.state() != "hit" || response.text() == "<p>new</p>" {
            noticed.get_or_insert_with(|| SystemClock.now().millis() - invalidated.millis());
            states.push(response.state().to_owned());
        }
        (response.text() == "<p>new</p>").then_some(())
    });
    let noticed = noticed.expect("the time when the other gateway noticed");
    print(&format!(
        "{what} invalidated at one gateway: the other noticed after {noticed} ms ({})",
        states.join(", ")
    ));
    states
}

fn request(gateway: &Gateway) -> Response {
    gateway.exchange(get("/a/page", ""))
}
