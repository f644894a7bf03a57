//! Three gateways that rely on the change feed, on DynamoDB and S3.

use tabletheory::{Clock as _, SystemClock};
use tempfile::TempDir;

use crate::meter::Meter;
use crate::support::gateway::Gateway;
use crate::support::origin::{Origin, ScriptedResponse};
use crate::support::site::{HOST, get, with_long_timeouts};
use crate::support::store::{Store, s3_endpoint, setting};
use crate::support::{print, wait_for};
use crate::table::{facetheory, stderr};

const GATEWAYS: usize = 3;
const PAGES: usize = 50;
/// A gateway must know a change after so many reads of the feed. One is enough, but a busy machine may make one time out.
const MAX_READS: usize = 3;
/// Fresh for so long that only an invalidation explains another render.
const CONFIG: &str = "[routes]\n\"/**\" = { isr = \"1h\", tags = [\"news\"] }\n[store]\nfeed = \"exclusive\"\nmetadata_max_age = \"10s\"\n";

#[test]
fn an_invalidation_is_known_to_three_gateways_that_read_nothing_but_the_feed() {
    let (store, origin) = (Store::on_servers(), Origin::start());
    let directories: Vec<TempDir> =
        (0..GATEWAYS).map(|_| tempfile::tempdir().expect("a directory")).collect();
    let config = with_long_timeouts(CONFIG);
    // The last gateway reaches the table through a proxy.
    let proxy = Meter::start(&setting("FACETHEORY_TEST_DYNAMODB_ENDPOINT"));
    let proxied = store.through(&proxy.endpoint(), &s3_endpoint());
    let start = |(directory, store): (&TempDir, &Store)| {
        Gateway::start_on(store, directory.path(), origin.address, &config)
    };
    let gateways: Vec<Gateway> = directories.iter().zip([&store, &store, &proxied]).map(start).collect();
    for gateway in &gateways {
        wait_for("the gateway relies on the feed", || {
            (gateway.metric("facetheory_feed_complete") == Some(1.0)).then_some(())
        });
    }
    for number in 0..PAGES {
        origin.respond(&path(number), ScriptedResponse::page(&[], "<p>old</p>"));
        for gateway in &gateways {
            wait_for("the page is in memory", || (state(gateway, number) == "hit").then_some(()));
        }
    }
    for (what, body) in [
        ("a page", format!(r#"{{ "url": "http://{HOST}{}" }}"#, path(7))),
        ("a tag", r#"{ "tag": "news" }"#.to_owned()),
    ] {
        let (before, changed) =
            (gateways.iter().map(entries).collect::<Vec<f64>>(), format!("<p>{what}</p>"));
        origin.respond(&path(7), ScriptedResponse::page(&[], &changed));
        assert_eq!(gateways[0].admin_post("/api/v1/invalidate", &body).status, 200);
        let invalidated = SystemClock.now();
        for (gateway, before) in gateways.iter().zip(before) {
            wait_for("the gateway knows", || (entries(gateway) > before).then_some(()));
        }
        let took = SystemClock.now().millis() - invalidated.millis();
        print(&format!("{what}: {GATEWAYS} gateways with {PAGES} pages each knew after {took} ms"));
        for gateway in &gateways {
            wait_for("the page is regenerated", || {
                let response = gateway.exchange(get(&path(7), ""));
                (response.state() == "hit" && response.text() == changed).then_some(())
            });
        }
    }
    the_next_reads_of_the_feed_name_a_change(&proxy, &origin, &gateways);
    the_command_line_informs_gateways(&store, &gateways);
    for gateway in &gateways {
        assert_eq!(gateway.metric("facetheory_feed_gaps_total"), None, "no gap");
    }
}

/// Invalidates a page through the first gateway, and lets the last one read the feed step by step. How often it reads is tested
/// with a simulated clock, in `crates/facetheory/tests/engine/feed.rs`.
fn the_next_reads_of_the_feed_name_a_change(proxy: &Meter, origin: &Origin, gateways: &[Gateway]) {
    let [first, .., last] = gateways else { panic!("several gateways") };
    let read_is_held = || (!proxy.held().is_empty()).then_some(());
    proxy.hold(|operation, body| operation == "Query" && body.contains("FEED#"));
    wait_for("a read of the feed is under way", read_is_held);
    let before = entries(last);
    origin.respond(&path(7), ScriptedResponse::page(&[], "<p>step by step</p>"));
    let invalidation = format!(r#"{{ "url": "http://{HOST}{}" }}"#, path(7));
    assert_eq!(first.admin_post("/api/v1/invalidate", &invalidation).status, 200);
    let reads = (1..=MAX_READS).find(|_| {
        proxy.release_held();
        // The gateway reads the feed again when it has applied what it read before, or after a timeout.
        wait_for("the next read of the feed", read_is_held);
        entries(last) > before
    });
    assert!(reads.is_some(), "{MAX_READS} reads of the feed did not name the change");
    assert_ne!(state(last, 7), "hit", "the gateway knows that the page has changed");
    proxy.release();
}

/// Invalidates all pages with `facetheory invalidate`, which is a process without an engine.
fn the_command_line_informs_gateways(store: &Store, gateways: &[Gateway]) {
    let before: Vec<f64> = gateways.iter().map(entries).collect();
    let stores = ["--table", &store.table, "--bodies", &store.bodies];
    let arguments = [&["invalidate", "--tag", "news", "--materialise", "--hard"][..], &stores].concat();
    let output = facetheory(store, &arguments);
    assert!(output.status.success(), "{}", stderr(&output));
    // One entry before the pages are written and one after them, but none for each page.
    for (number, (gateway, before)) in gateways.iter().zip(before).enumerate() {
        wait_for("the gateway knows", || (entries(gateway) >= before + 2.0).then_some(()));
        assert_eq!(state(gateway, number), "miss", "the page must not be served");
        assert!(entries(gateway) < before + PAGES as f64, "{}", entries(gateway));
    }
}

fn entries(gateway: &Gateway) -> f64 {
    gateway.metric("facetheory_feed_entries_total").unwrap_or(0.0)
}

fn path(number: usize) -> String {
    format!("/page/{number}")
}

fn state(gateway: &Gateway, number: usize) -> String {
    let response = gateway.exchange(get(&path(number), ""));
    assert_eq!(response.status, 200, "{}", response.text());
    response.state().to_owned()
}
