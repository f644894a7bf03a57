//! The keys of TypeScript services: pages are served, listed, selected, invalidated and rolled back as with other keys.

use serde_json::{Value, json};

use crate::process::{Gateway, Origin, facetheory};

const CONFIG: &str = r#"
    site = "www.example.com"
    [store]
    keys = "raw"
    key_prefix = "page:"
    key_form = "facetheory-ts"
    [timeouts]
    table = "20s"
    bodies = "1m"
    publish = "2m"
    [routes]
    "/t/{tenant}/{slug}" = { isr = "1h", tenant = { param = "tenant" }, versions = 2, tags = ["all"] }
    "/docs/{page*}" = { isr = "1h" }
"#;

fn start(origin: &Origin) -> Gateway {
    Gateway::with_config(CONFIG, origin, &mut facetheory(), &["--log", "off"])
}

/// The partition keys of a listing, sorted.
fn pks(gateway: &Gateway, select: &str) -> Vec<String> {
    let listed = gateway.get(&format!("/api/v1/entries{select}")).json();
    let entries = listed["entries"].as_array().expect("a list").iter();
    let mut pks: Vec<String> = entries
        .filter_map(|entry| entry["pk"].as_str())
        .filter(|pk| pk.contains("::"))
        .map(str::to_owned)
        .collect();
    pks.sort_unstable();
    pks
}

#[test]
fn pages_with_raw_keys_are_listed_and_selected() {
    let gateway = start(&Origin::start());
    let acme = "page:acme::/t/{tenant}/{slug}?slug=a%2520b&tenant=acme&a=x%20y&B=1";
    let docs = "page:default::/docs/{page*}?";
    assert_eq!(gateway.client_get("/t/acme/a%20b?B=1&a=x+y").state(), "miss");
    assert_eq!(gateway.client_get("/t/acme/a%20b?a=x%20y&%42=1").state(), "hit", "it has the same key");
    assert_eq!(gateway.client_get("/docs").state(), "miss");
    assert_eq!(pks(&gateway, ""), [acme, docs]);
    assert_eq!(pks(&gateway, "?tenant=acme"), [acme]);
    assert_eq!(pks(&gateway, "?path=/docs"), [docs]);
    let shown = gateway.get_page("entry", "/t/acme/a%2520b%3FB=1%26a=x%2By").json();
    assert_eq!((shown["pk"].as_str(), shown["state"].as_str()), (Some(acme), Some("fresh")));
    let too_long = gateway.client_get(&format!("/docs/{}", "x".repeat(2100)));
    assert_eq!((too_long.status, too_long.body.contains("2043 bytes")), (414, true), "{}", too_long.body);
}

#[test]
fn pages_with_raw_keys_are_invalidated_regenerated_and_rolled_back() {
    let origin = Origin::start();
    let gateway = start(&origin);
    gateway.client_get("/t/acme/a");
    gateway.client_get("/docs/a");
    let state = |path: &str| gateway.get_page("entry", path).json()["state"].clone();
    let invalidate = |scope: Value| gateway.post("/api/v1/invalidate", &scope).json()["outcome"].clone();
    assert_eq!(invalidate(json!({ "tenant": "acme", "tag": "all" })), "stale");
    assert_eq!((state("/t/acme/a"), state("/docs/a")), (json!("stale"), json!("fresh")));
    assert_eq!(invalidate(json!({ "url": gateway.url("/docs/a") })), "stale");
    assert_eq!(state("/docs/a"), "stale");
    assert_eq!(gateway.regenerate("one", "/docs/a").json()["outcome"], "rendered");
    assert_eq!(state("/docs/a"), "fresh");
    let history = gateway.get_page("history", "/t/acme/a").json();
    let version = history["versions"][0]["version"].clone();
    assert!(version.as_str().is_some_and(|sk| sk.starts_with("VER#")), "{history}");
    let rollback = json!({ "url": gateway.url("/t/acme/a"), "version": version });
    assert_eq!(gateway.post("/api/v1/rollback", &rollback).status, 200);
    assert_eq!(gateway.get_page("entry", "/t/acme/a").json()["pinned"], true);
}
