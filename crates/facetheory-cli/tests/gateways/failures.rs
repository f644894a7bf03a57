//! A gateway whose DynamoDB or S3 hangs or denies requests, through a proxy.
//!
//! A server that hangs does not respond before the test has received the response of the gateway. Whether the gateway waited
//! for the server is seen at the proxy: it would have given up or repeated its request before it responded. A gateway that
//! waits for a short time only may respond before its request has reached the proxy, so the proxy may have seen fewer requests,
//! but never more. So nothing depends on the speed of the machine.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use tempfile::TempDir;

use crate::burst::{Burst, assert_all_served};
use crate::meter::Meter;
use crate::support::client::Response;
use crate::support::gateway::Gateway;
use crate::support::origin::{Gate, Origin, ScriptedResponse};
use crate::support::site::{HOST, get, request};
use crate::support::store::{Store, s3_endpoint, server_variable};
use crate::support::wait_for;

/// Longer than the clients of DynamoDB and S3 wait for a response, which is 5 s and 30 s. A shutdown may take as long as a test.
const TIMEOUTS: &str = "[timeouts]\ntable = \"10m\"\nbodies = \"10m\"\npublish = \"10m\"\nheaders = \"5m\"\nshutdown = \"10m\"\n";
/// The number of concurrent clients.
const CLIENTS: usize = 20;
/// The number of concurrent clients of a page that cannot be stored.
const HERD: usize = 100;

/// A gateway whose requests to DynamoDB and S3 pass through proxies. Declared before its directory, which is deleted after it has
/// stopped.
struct ProxiedSite {
    gateway: Gateway,
    origin: Origin,
    /// The stores without the proxies.
    store: Store,
    table: Meter,
    bodies: Meter,
    config: String,
    directory: TempDir,
}

impl ProxiedSite {
    fn start(config: &str) -> ProxiedSite {
        let (store, origin, config) = (Store::on_servers(), Origin::start(), format!("{config}{TIMEOUTS}"));
        let (table, bodies) = (
            Meter::start(&server_variable("FACETHEORY_TEST_DYNAMODB_ENDPOINT")),
            Meter::start(&s3_endpoint()),
        );
        let directory = tempfile::tempdir().expect("a directory");
        let proxied = store.through(&table.endpoint(), &bodies.endpoint());
        let gateway = Gateway::start_on(&proxied, directory.path(), origin.address, &config);
        ProxiedSite { gateway, origin, store, table, bodies, config, directory }
    }

    /// Starts another gateway on the same stores, without the proxies.
    fn start_other(&self) -> Gateway {
        let directory = self.directory.path().join("other");
        std::fs::create_dir(&directory).expect("a directory");
        Gateway::start_on(&self.store, &directory, self.origin.address, &self.config)
    }
}

fn page(gateway: &Gateway) -> Response {
    let response = gateway.exchange(get("/page", ""));
    assert_eq!(response.status, 200, "{}", response.text());
    response
}

#[test]
fn while_s3_hangs_the_older_page_in_memory_is_served_at_once_and_then_the_newer_one() {
    let site = ProxiedSite::start("[routes]\n\"/**\" = { isr = \"1h\" }\n");
    site.origin.respond("/page", ScriptedResponse::page(&[], "<p>old</p>"));
    wait_for("the page is in memory", || (page(&site.gateway).state() == "hit").then_some(()));
    site.bodies.hold(|_, _| true);

    site.origin.respond("/page", ScriptedResponse::page(&[], "<p>new</p>"));
    let other = site.start_other();
    let invalidated =
        other.admin_post("/api/v1/invalidate", &format!(r#"{{ "url": "http://{HOST}/page" }}"#));
    assert_eq!(invalidated.status, 200, "{}", invalidated.text());
    wait_for("another gateway publishes a newer page", || {
        (page(&other).text() == "<p>new</p>").then_some(())
    });
    wait_for("the gateway requests the newer body", || {
        let response = page(&site.gateway);
        let served = (response.state().to_owned(), response.text());
        assert!(
            ["hit", "stale-metadata-error"].contains(&&*served.0) && served.1 == "<p>old</p>",
            "{served:?}"
        );
        let is_held = !site.bodies.held().is_empty();
        // Meanwhile the proxy notices a connection that the gateway has closed.
        site.gateway.admin_get("/healthz");
        assert_eq!(site.bodies.abandoned(), 0, "the gateway gave up the newer body before it responded");
        is_held.then_some(())
    });

    std::thread::scope(|scope| {
        for _ in 0..CLIENTS {
            scope.spawn(|| {
                let response = page(&site.gateway);
                assert_eq!((response.state(), &*response.text()), ("stale-metadata-error", "<p>old</p>"));
                let status = response.header("cache-status").unwrap_or_default();
                assert!(status.contains("detail=bodies-unreachable"), "{status}");
            });
        }
    });
    assert_eq!(site.origin.requests_for("/page").len(), 2, "one for each page");

    site.bodies.release();
    wait_for("the newer page is served", || {
        let response = page(&site.gateway);
        (response.state() == "hit" && response.text() == "<p>new</p>").then_some(())
    });
    assert_eq!(site.origin.requests_for("/page").len(), 2, "no other render");
}

#[test]
fn while_dynamodb_hangs_an_unsafe_request_gets_its_response_and_its_invalidation_is_written_later() {
    // Without rules, pages follow the headers of the origin.
    let site = ProxiedSite::start("");
    let changes = Arc::new(AtomicUsize::new(0));
    site.origin.script("/page", move |request| match request.method.as_str() {
        "GET" => {
            let body = format!("after {} changes", changes.load(Ordering::SeqCst));
            ScriptedResponse::page(&["Cache-Control: max-age=3600"], &body)
        }
        _ => {
            changes.fetch_add(1, Ordering::SeqCst);
            ScriptedResponse::with("200 OK", &["Location: /other", "Content-Location: /third"], "changed")
        }
    });
    let other = site.start_other();
    for gateway in [&site.gateway, &other] {
        wait_for("the page is in memory", || (page(gateway).state() == "hit").then_some(()));
    }
    site.table.hold(|_, _| true);

    let response = site.gateway.exchange(request("POST", "/page", "Content-Length: 0\r\n"));
    assert_eq!((response.status, &*response.text()), (200, "changed"));
    // At most one for each URL that the request has changed. After a timeout of DynamoDB's client there would be more.
    let reads = site.table.held().iter().filter(|held| held.starts_with("GetItem")).count();
    assert!(reads <= 3, "reads of the table before the response: {:?}", site.table.held());
    let is_invalidation = |row: &tabletheory::Item| row.key().expect("a key").sk == "TAG";
    assert!(!site.store.rows().iter().any(is_invalidation), "the table has not received it");
    assert_eq!(page(&other).text(), "after 0 changes");

    site.table.release();
    wait_for("the invalidation is written", || site.store.rows().iter().any(is_invalidation).then_some(()));
    for gateway in [&site.gateway, &other] {
        wait_for("the gateway has the changed page", || {
            (page(gateway).text() == "after 1 changes").then_some(())
        });
    }
}

#[test]
fn while_s3_denies_puts_a_herd_costs_one_request_at_the_origin() {
    let site = ProxiedSite::start(
        "[routes]\n\"/**\" = { isr = \"1h\", wait_timeout = \"5m\", render_timeout = \"5m\" }\n",
    );
    let gate = Gate::default();
    site.origin.respond("/page", ScriptedResponse::page(&[], "<p>not stored</p>").after(&gate));
    site.bodies.replace(|method, _| (method == "PUT").then(|| (403, "AccessDenied".to_owned())));
    // Requests share the page if they arrive before its render ends. So it begins when all of them have arrived.
    site.table.hold(|operation, _| operation == "Query");
    let mut burst = Burst::new();
    burst.add_clients(&site.gateway, "/page", HERD);
    wait_for("the page is looked up", || (!site.table.held().is_empty()).then_some(()));
    site.table.release();
    wait_for("the render begins", || (!site.origin.requests_for("/page").is_empty()).then_some(()));
    site.bodies.take();
    gate.open();

    let counts = burst.responses();
    let states = assert_all_served(&counts, "<p>not stored</p>", HERD);
    assert_eq!(states, format!("{HERD} bypass"));
    assert!(site.bodies.take().iter().any(|call| call.operation == "PUT"), "the gateway tried to publish");
    assert_eq!(site.origin.requests_for("/page").len(), 1, "requests at the origin");
}

#[test]
fn a_gateway_that_may_not_write_to_s3_is_not_ready_and_names_the_permission() {
    let site = ProxiedSite::start("");
    site.bodies.replace(|method, _| (method == "PUT").then(|| (403, "AccessDenied".to_owned())));
    let detail = detail_of(&site.gateway, "bodies-not-writable");
    assert!(detail.contains("the body store") && detail.contains("s3:PutObject"), "{detail}");

    site.bodies.replace_nothing();
    wait_for("ready", || {
        let ready = site.gateway.admin_get("/readyz");
        (ready.status == 200).then(|| assert_eq!(json(&ready)["ready"], true))
    });
}

#[test]
fn a_gateway_that_may_not_write_to_dynamodb_is_not_ready_and_names_the_permission() {
    let site = ProxiedSite::start("");
    site.table.deny(&["PutItem", "TransactWriteItems"]);
    let detail = detail_of(&site.gateway, "table-not-writable");
    assert!(detail.contains("the table") && detail.contains("dynamodb:PutItem"), "{detail}");
    let log = wait_for("the cause is in the log", || {
        let log = site.gateway.log();
        log.lines().find(|line| line.contains("TableNotWritable")).map(str::to_owned)
    });
    assert!(log.contains("AccessDenied"), "{log}");
}

/// Waits until the gateway is not ready for this reason alone, and returns what it says about it.
fn detail_of(gateway: &Gateway, reason: &str) -> String {
    // On a busy machine a store may be slow at first.
    let not_ready = wait_for(reason, || {
        let ready = gateway.admin_get("/readyz");
        (json(&ready)["reasons"] == serde_json::json!([reason])).then_some(ready)
    });
    assert_eq!(not_ready.status, 503);
    json(&not_ready)["details"][0].as_str().expect("a text").to_owned()
}

fn json(response: &Response) -> serde_json::Value {
    serde_json::from_slice(&response.body).expect("JSON")
}

#[test]
fn a_gateway_that_shuts_down_during_gc_releases_its_lease() {
    let site = ProxiedSite::start("[gc]\ninterval = \"1s\"\ngrace = \"1h\"\n");
    // Gc lists all bodies, and waits for that.
    site.bodies.hold(|method, path| method == "GET" && path.contains("list-type="));
    wait_for("gc is running", || (!site.bodies.held().is_empty()).then_some(()));
    assert_eq!(site.store.locks().len(), 1, "the run has a lease");
    let ProxiedSite { gateway, store, .. } = site;
    gateway.shut_down();
    let locks = store.locks();
    assert!(locks.is_empty(), "{locks:?}");
}
