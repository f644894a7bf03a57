//! What an operator tells one gateway holds for the other, within its bound.

use tabletheory::{Clock as _, SystemClock};
use tempfile::TempDir;

use crate::pair::Pair;
use crate::support::client::Response;
use crate::support::gateway::Gateway;
use crate::support::origin::{Origin, ScriptedResponse};
use crate::support::site::{HOST, get, with_long_timeouts};
use crate::support::store::Store;
use crate::support::{print, wait_for};

/// So long, in milliseconds, another gateway may go by what it knows: a second for `META`, a second for the epochs of tags.
const BOUND: i64 = 2_000;
/// What a busy machine may take on top; a gateway that obeys nobody would go on for the hour for which its pages are fresh.
/// That epochs are believed for no longer is shown by a test of the library with a clock of its own (docs/internals/rules.md).
const MARGIN: i64 = 15_000;
/// So fresh that only an invalidation explains why a page is rendered again.
const PAGES: &str = "[routes]\n\"/**\" = { isr = \"1h\", tags = [\"news\"] }\n";

#[test]
fn a_page_invalidated_by_one_gateway_is_regenerated_by_the_other() {
    is_obeyed("a page", &format!(r#"{{ "url": "http://{HOST}/a/page" }}"#));
}

#[test]
fn a_page_hard_invalidated_by_one_gateway_is_not_served_by_the_other() {
    let states = is_obeyed("a page, hard", &format!(r#"{{ "url": "http://{HOST}/a/page", "hard": true }}"#));
    assert!(!states.contains(&"stale".to_owned()), "it was served once the other knew: {states:?}");
}

#[test]
fn a_tag_invalidated_by_one_gateway_is_stale_at_the_other() {
    is_obeyed("a tag", r#"{ "tag": "news" }"#);
}

#[test]
fn a_path_invalidated_by_one_gateway_is_stale_at_the_other() {
    is_obeyed("a path", r#"{ "path": "/a" }"#);
}

#[test]
fn without_cached_metadata_an_invalidation_by_another_gateway_takes_effect_at_once() {
    let config = with_long_timeouts(&format!("{PAGES}[store]\nmetadata_max_age = \"0s\"\n"));
    let [one_directory, other_directory, shared] =
        [(); 3].map(|()| tempfile::tempdir().expect("a directory"));
    let (store, origin) = (Store::in_directory(shared.path()), Origin::start());
    let start = |directory: &TempDir| Gateway::start_on(&store, directory.path(), origin.address, &config);
    let (one, other) = (start(&one_directory), start(&other_directory));
    origin.respond("/a/page", ScriptedResponse::page(&[], "<p>a page</p>"));
    let url = format!(r#"{{ "url": "http://{HOST}/a/page" }}"#);
    for body in [url.as_str(), r#"{ "tag": "news" }"#, r#"{ "path": "/a" }"#, r#"{ "everything": true }"#] {
        wait_for("the page is in memory", || (visit(&other).state() == "hit").then_some(()));
        assert_eq!(one.admin_post("/api/v1/invalidate", body).status, 200);
        assert_ne!(visit(&other).state(), "hit", "{body}");
    }
}

/// Has both gateways keep a page, tells one of them, and looks at the other until it serves the new page; in which states
/// it was answered meanwhile.
fn is_obeyed(what: &str, wish: &str) -> Vec<String> {
    let pair = Pair::start(PAGES);
    pair.origin.respond("/a/page", ScriptedResponse::page(&[], "<p>old</p>"));
    for gateway in [&pair.one, &pair.other] {
        wait_for("it is in memory", || (visit(gateway).state() == "hit").then_some(()));
    }
    pair.origin.respond("/a/page", ScriptedResponse::page(&[], "<p>new</p>"));
    let response = pair.one.admin_post("/api/v1/invalidate", wish);
    assert_eq!((response.status, &*response.text()), (200, r#"{"outcome":"stale"}"#));

    let (told, mut known, mut states) = (SystemClock.now(), None, Vec::new());
    wait_for("the other serves the new page", || {
        let response = visit(&pair.other);
        assert_eq!(response.status, 200, "{}", response.text());
        if response.state() != "hit" || response.text() == "<p>new</p>" {
            known.get_or_insert_with(|| SystemClock.now().millis() - told.millis());
            states.push(response.state().to_owned());
        }
        (response.text() == "<p>new</p>").then_some(())
    });
    let known = known.expect("it was noticed");
    assert!(known <= BOUND + MARGIN, "the other went by what it knew for {known} ms");
    print(&format!(
        "{what} invalidated at one gateway: the other knew after {known} ms ({})",
        states.join(", ")
    ));
    states
}

fn visit(gateway: &Gateway) -> Response {
    gateway.exchange(get("/a/page", ""))
}
