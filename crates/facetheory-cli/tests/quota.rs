//! The quota and the retention of a store, through the real binary.

#[path = "support/mod.rs"]
mod support;

use std::collections::BTreeSet;
use std::path::Path;

use crate::support::gateway::{Gateway, data};
use crate::support::origin::{Origin, ScriptedResponse};
use crate::support::site::{IN_MEMORY, Site, get, with_long_timeouts};
use crate::support::table::{blobs, rows};
use crate::support::{disk_bytes, wait_for};

const PAGES: &str = "[routes]\n\"/**\" = { isr = \"1h\" }\n";
/// At most 50 pages per second are stored, so that 200 pages are never replaced within less than four seconds: uses are
/// recorded in whole seconds.
const SLOW_FLOOD: &str = "[limits]\nnew_pages_per_second = 50\n";
/// More requests than any of these tests needs.
const ENOUGH: usize = 100_000;

/// The pages of the store in this directory, without those of the gateway itself: their partition keys.
fn pages(directory: &Path) -> BTreeSet<String> {
    let metas = rows(directory).into_iter().filter(|(_, sk)| sk == "META");
    metas.map(|(pk, _)| pk).collect()
}

fn metric(gateway: &Gateway, name: &str) -> f64 {
    gateway.metric(name).unwrap_or(0.0)
}

#[test]
fn the_least_recently_used_pages_are_evicted_with_their_bodies_and_a_page_in_use_stays() {
    let config = with_long_timeouts(&format!("[store]\nmax_pages = 200\n{SLOW_FLOOD}{PAGES}"));
    let (directory, origin) = (tempfile::tempdir().expect("a directory"), Origin::start());
    let gateway = Gateway::start(directory.path(), origin.address, &config, &[]);
    let mut connection = gateway.connect();
    let mut request = |target: &str| {
        connection.send(get(target, ""));
        connection.response()
    };
    assert_eq!(request("/hot").state(), "miss");
    let evicted = (0..ENOUGH).any(|number| {
        assert_eq!(request(&format!("/page?number={number}")).status, 200);
        assert_eq!(request("/hot").state(), "hit");
        number % 20 == 0 && metric(&gateway, "facetheory_evicted_pages_total") >= 300.0
    });
    assert!(evicted, "no pages were evicted");
    let left = wait_for("the store is within its quota", || {
        let pages = metric(&gateway, "facetheory_store_pages");
        (pages < 190.0).then_some(pages)
    });
    assert!(left >= 100.0, "no more than necessary is evicted: {left} pages are left");
    assert_eq!(metric(&gateway, "facetheory_store_max_pages"), 200.0);
    let lines = || gateway.log().matches("the least recently used pages are evicted").count();
    wait_for("one line says so", || (lines() > 0).then_some(()));
    assert_eq!(lines(), 1, "{}", gateway.log());
    gateway.shut_down();

    let stored = pages(directory.path());
    assert!(stored.len() < 200, "{}", stored.len());
    let directories: BTreeSet<String> = blobs(directory.path())
        .iter()
        .map(|name| name.split('/').nth(1).expect("a directory").to_owned())
        .collect();
    let named: BTreeSet<String> =
        stored.iter().map(|pk| pk.strip_prefix("CACHE#").expect("a hashed key")[..24].to_owned()).collect();
    assert_eq!(directories, named, "each page has a body, and each body has a page");
    let gateway = Gateway::start(directory.path(), origin.address, &config, &[]);
    assert_eq!(gateway.exchange(get("/hot", "")).state(), "hit", "its uses were recorded");
}

#[test]
fn a_store_with_large_bodies_stays_within_its_bytes() {
    const MAX_BYTES: u64 = 64 << 20;
    let site = Site::start(&format!("[store]\nmax_bytes = \"64MiB\"\nmemory = \"4MiB\"\n{PAGES}"));
    let body = "x".repeat(1 << 20);
    for number in 0..150 {
        let target = format!("/large/{number}");
        site.origin.respond(&target, ScriptedResponse::page(&["Content-Type: text/html"], &body));
        let response = site.get(&target);
        assert_eq!(response.status, 200);
        let bytes = disk_bytes(&data(site.directory.path()));
        assert!(bytes <= MAX_BYTES / 10 * 11, "{bytes} bytes after {number} pages");
        // A store that is full takes no new pages, and the next ones fit again.
        if response.state() == "bypass" {
            wait_for("pages are evicted", || {
                (metric(&site.gateway, "facetheory_store_bytes") < 60e6).then_some(())
            });
        }
    }
    assert!(metric(&site.gateway, "facetheory_evicted_pages_total") >= 80.0);
    assert_eq!(metric(&site.gateway, "facetheory_store_max_bytes"), 67_108_864.0);
    let counted = metric(&site.gateway, "facetheory_store_bytes");
    assert!(counted > 20e6, "what is stored is counted: {counted}");
}

#[test]
fn gateways_on_one_store_take_turns_and_one_takes_over_from_another_that_was_killed() {
    let config = with_long_timeouts(&format!("[store]\nmax_pages = 100\n{PAGES}"));
    let (directory, origin) = (tempfile::tempdir().expect("a directory"), Origin::start());
    let start = || Gateway::start(directory.path(), origin.address, &config, &[]);
    let mut number = 0;
    let mut flood = |gateway: &Gateway, pages: usize| {
        let mut connection = gateway.connect();
        for _ in 0..pages {
            number += 1;
            connection.send(get(&format!("/page?number={number}"), ""));
            assert_eq!(connection.response().status, 200);
        }
    };
    let evicted = |gateway: &Gateway| metric(gateway, "facetheory_evicted_pages_total");
    let survivor = start();
    for _ in 0..3 {
        let victim = start();
        let before = evicted(&survivor) + evicted(&victim);
        wait_for("pages are evicted", || {
            flood(&victim, 20);
            (evicted(&survivor) + evicted(&victim) > before).then_some(())
        });
        flood(&victim, 40);
        victim.kill();
        let before = evicted(&survivor);
        wait_for("the other gateway evicts", || {
            flood(&survivor, 20);
            (evicted(&survivor) > before).then_some(())
        });
    }
    // The rows are counted, since the metric may be older than the last page.
    wait_for("the store is within its quota", || (pages(directory.path()).len() < 100).then_some(()));
    survivor.shut_down();
    // Every page that is left is served with its body.
    let gateway = start();
    let mut connection = gateway.connect();
    for number in 1..=number {
        connection.send(get(&format!("/page?number={number}"), ""));
        assert_eq!(connection.response().status, 200, "page {number}");
    }
    assert!(!gateway.log().contains("a body is missing"));
}

#[test]
fn a_page_that_nobody_requests_disappears_with_its_body_after_its_retention() {
    let rules = "[routes]\n\"/**\" = { isr = \"1s\", retention = \"1s\" }\n\"/kept\" = { isr = \"1s\", retention = \"1h\" }\n";
    let site = Site::start(rules);
    for target in ["/", "/kept"] {
        assert_eq!(site.get(target).state(), "miss");
    }
    let place = site.directory.path();
    wait_for("the page is deleted", || (pages(place).len() == 1).then_some(()));
    wait_for("its body is deleted", || (blobs(place).len() == 1).then_some(()));
    assert_eq!(metric(&site.gateway, "facetheory_expired_pages_total"), 1.0);
    assert_ne!(site.get("/").state(), "bypass", "it is rendered and stored again");
}

#[test]
fn a_quota_that_the_store_cannot_keep_is_an_error_at_the_start() {
    let (directory, origin) = (tempfile::tempdir().expect("a directory"), Origin::start());
    let start = |config: &str| {
        let error = Gateway::try_start(directory.path(), origin.address, config, &IN_MEMORY).err();
        error.map(|error| error.errors)
    };
    let errors = start(&format!("[store]\nmax_bytes = \"1GiB\"\n{PAGES}")).expect("an error");
    assert!(errors.contains("`max_bytes` cannot be kept"), "{errors}");
    assert_eq!(start(&format!("[store]\nmax_pages = 1000\n{PAGES}")), None, "pages can be counted");
}
