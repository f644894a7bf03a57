//! The policy of `facetheory table template` is what a gateway needs: not less, and not more.

use std::collections::BTreeSet;

use crate::meter::{Call, Meter};
use crate::support::gateway::Gateway;
use crate::support::origin::{Origin, ScriptedResponse};
use crate::support::site::{HOST, get, with_long_timeouts};
use crate::support::store::{Store, s3_endpoint, server_variable};
use crate::support::wait_for;
use crate::table::{facetheory, stderr, stdout};

/// The actions that the template allows, of one service.
fn allowed(service: &str) -> BTreeSet<String> {
    let store = Store::at("", "");
    let template = stdout(&facetheory(&store, &["table", "template", "--format", "cloudformation"]));
    let actions = template.lines().filter_map(|line| line.trim().strip_prefix("- "));
    let actions: BTreeSet<String> =
        actions.filter(|action| action.starts_with(&format!("{service}:"))).map(str::to_owned).collect();
    assert!(!actions.is_empty(), "{template}");
    actions
}

/// The action of a request to S3.
fn s3_action(call: &Call) -> String {
    let path = call.names.first().map_or("", String::as_str);
    let name = match call.operation.as_str() {
        "GET" if path.ends_with("?lifecycle") => "GetLifecycleConfiguration",
        "GET" if path.contains("list-type=2") => "ListBucket",
        "GET" | "HEAD" => "GetObject",
        "PUT" => "PutObject",
        "DELETE" => "DeleteObject",
        other => other,
    };
    format!("s3:{name}")
}

#[test]
fn the_policy_allows_exactly_the_actions_that_the_gateway_and_the_check_perform() {
    let (table, bodies) =
        (Meter::start(&server_variable("FACETHEORY_TEST_DYNAMODB_ENDPOINT")), Meter::start(&s3_endpoint()));
    let unmetered = Store::on_servers();
    let store = unmetered.through(&table.endpoint(), &bodies.endpoint());
    let (directory, origin) = (tempfile::tempdir().expect("a directory"), Origin::start());
    // Without cached metadata, each request reads the page and its tags.
    let config = with_long_timeouts(
        "[routes]\n\"/**\" = { isr = \"1h\", tags = [\"news\"], versions = 2 }\n\
         [store]\nmetadata_max_age = \"0s\"\n[gc]\ninterval = \"1s\"\n",
    );
    let gateway = Gateway::start_on(&store, directory.path(), origin.address, &config);

    // Render, serve stale, invalidate in every way, roll back, unpin, list, and collect garbage.
    let render = |body: &str| {
        origin.respond("/page", ScriptedResponse::page(&[], body));
        let renders = || origin.requests_for("/page").len();
        let before = renders();
        gateway.exchange(get("/page", ""));
        wait_for("a render", || (renders() > before).then_some(()));
    };
    let invalidate =
        |json: &str| assert_eq!(gateway.admin_post("/api/v1/invalidate", json).status, 200, "{json}");
    let page = format!(r#"{{ "url": "http://{HOST}/page" }}"#);
    render("<p>one</p>");
    wait_for("a hit", || (gateway.exchange(get("/page", "")).state() == "hit").then_some(()));
    invalidate(&page);
    render("<p>two</p>");
    invalidate(r#"{ "tag": "news" }"#);
    invalidate(&format!(r#"{{ "url": "http://{HOST}/absent" }}"#));
    let version = wait_for("two versions are stored", || {
        let rows = unmetered.rows();
        let versions =
            rows.iter().map(|row| row.key().expect("a key").sk).filter(|sk| sk.starts_with("VER#"));
        versions.collect::<BTreeSet<String>>().into_iter().nth(1)
    });
    let rollback = format!(r#"{{ "url": "http://{HOST}/page", "version": "{version}" }}"#);
    for (operation, json) in [("rollback", &rollback), ("unpin", &page)] {
        let response = gateway.admin_post(&format!("/api/v1/{operation}"), json);
        assert_eq!((response.status, response.text().contains("\"done\":true")), (200, true), "{operation}");
    }
    assert_eq!(gateway.admin_get("/api/v1/entries").status, 200);
    wait_for("garbage collection", || gateway.log().contains("garbage collection finished").then_some(()));
    // A response that is not cached releases the lease without a publication.
    origin.respond("/private", ScriptedResponse::page(&["Set-Cookie: a=b"], "<p>private</p>"));
    gateway.exchange(get("/private", ""));
    gateway.shut_down();
    let is_probe = |call: &&Call| call.names.iter().any(|name| name.starts_with("CHECK#"));
    let calls = table.take();
    let of_rows: BTreeSet<String> =
        calls.iter().filter(|call| !is_probe(call)).flat_map(|call| call.actions.clone()).collect();

    let check = ["table", "check", "--table", &store.table, "--bodies", &store.bodies];
    let checked = facetheory(&store, &check);
    assert!(checked.status.success(), "{}{}", stdout(&checked), stderr(&checked));
    let described = table.take().into_iter().flat_map(|call| call.actions);
    let described = described.filter(|action| action.starts_with("dynamodb:Describe"));
    assert_eq!(of_rows.into_iter().chain(described).collect::<BTreeSet<_>>(), allowed("dynamodb"));
    let of_bodies: BTreeSet<String> = bodies.take().iter().map(s3_action).collect();
    assert_eq!(of_bodies, allowed("s3"));
}
