//! Attacks on the memory of the process, which has 300 MiB, as in a small container.

use std::fs::OpenOptions;
use std::path::{Path, PathBuf};

use crate::assertions::PAGES;
use crate::support::client::Connection;
use crate::support::gateway::Gateway;
use crate::support::http2::{self, Frame, Http2, Outcome};
use crate::support::memory_limit::MemoryLimit;
use crate::support::origin::{Origin, Request, ScriptedResponse};
use crate::support::site::{HOST, Site, get, request};
use crate::support::{print, wait_for};

const MEMORY: u64 = 300 << 20;
/// A little below the limit of a page.
const LONG: usize = 15_000_000;

/// A site whose gateway is killed when it uses more memory than it has.
struct LimitedSite {
    // Dropped last, when its process has ended.
    site: Site,
    _limit: Option<MemoryLimit>,
}

impl LimitedSite {
    /// With long pages below `/long`, named by their query.
    fn start() -> LimitedSite {
        let site = Site::start(PAGES);
        let head = format!("HTTP/1.1 200 OK\r\ncontent-type: image/png\r\ncontent-length: {LONG}\r\n\r\n");
        site.origin.respond("/long", ScriptedResponse::raw(head).then_endlessly(vec![b'x'; 64 * 1024]));
        let limit = MemoryLimit::of(site.gateway.pid(), MEMORY);
        LimitedSite { site, _limit: limit }
    }

    /// Waits until the origin has got this many requests for long pages.
    fn await_long(&self, count: usize) {
        let requests = || self.site.origin.requests();
        let is_long = |request: &&Request| request.target.starts_with("/long");
        wait_for("the pages are requested", || {
            (requests().iter().filter(is_long).count() >= count).then_some(())
        });
    }

    /// Fails unless other clients are served, new pages are cached again in the end, and the peak of the memory is below the limit.
    fn assert_serves(&mut self) {
        let site = &mut self.site;
        for number in 0..10 {
            let response = site.get(&format!("/other-{number}"));
            assert_eq!(response.status, 200, "page {number}");
        }
        assert!(site.gateway.is_alive(), "{}", site.gateway.log());
        let peak = site.gateway.peak_memory() * 1024;
        print(&format!("peak: {} MiB, now: {} MiB", peak >> 20, site.gateway.memory() >> 10));
        assert!(peak < MEMORY, "the peak of the resident memory is {} MiB", peak >> 20);
    }

    fn assert_caches(&self) {
        wait_for("a new page is cached", || {
            let state = self.site.get("/after").state().to_owned();
            (state == "hit").then_some(())
        });
    }
}

#[test]
fn row_71_many_clients_that_do_not_read_long_new_pages_do_not_exhaust_the_memory() {
    const CLIENTS: usize = 64;
    let mut limited = LimitedSite::start();
    let clients: Vec<Connection> = (0..CLIENTS)
        .map(|number| {
            let mut client = limited.site.gateway.connect();
            client.send(get(&format!("/long?{number}"), ""));
            client
        })
        .collect();
    limited.await_long(CLIENTS);
    limited.assert_serves();
    let mut states = Vec::new();
    for mut client in clients {
        let response = client.response();
        assert_eq!((response.status, response.body.len()), (200, LONG));
        let status = response.header("cache-status").unwrap_or_default().to_owned();
        states.push((response.state().to_owned(), status));
    }
    assert!(states.iter().any(|(state, _)| state == "miss"), "the first pages fit: {states:?}");
    let is_passed = |(state, status): &(String, String)| state == "bypass" && status.contains("memory-full");
    assert!(states.iter().any(is_passed), "the other pages are passed through: {states:?}");
    limited.assert_serves();
    limited.assert_caches();
    assert!(limited.site.gateway.metric("facetheory_memory_full_total{use=\"render\"}").is_some());
}

#[test]
fn row_72_streams_without_a_window_do_not_exhaust_the_memory() {
    const STREAMS: u32 = 60;
    let mut limited = LimitedSite::start();
    let mut client = Http2::open_with_zero_window(limited.site.gateway.address);
    for number in 0..STREAMS {
        client.send(&Frame::get(2 * number + 1, HOST, &format!("/long?{number}")));
    }
    limited.await_long(STREAMS as usize);
    limited.assert_serves();
    drop(client);
    limited.assert_caches();
}

/// The largest file below a directory.
fn largest_file(directory: &Path) -> PathBuf {
    let mut largest = (0, PathBuf::new());
    let mut directories = vec![directory.to_owned()];
    while let Some(directory) = directories.pop() {
        for entry in std::fs::read_dir(directory).expect("a directory") {
            let entry = entry.expect("an entry");
            let metadata = entry.metadata().expect("metadata");
            if metadata.is_dir() {
                directories.push(entry.path());
            } else if metadata.len() > largest.0 && !entry.path().to_string_lossy().contains(".db") {
                largest = (metadata.len(), entry.path());
            }
        }
    }
    largest.1
}

#[test]
fn row_73_a_body_that_has_grown_is_not_read() {
    const GROWN: u64 = 2 << 30;
    let (directory, origin) = (tempfile::tempdir().expect("a directory"), Origin::start());
    origin.respond("/grown", ScriptedResponse::page(&[], &"x".repeat(1_000_000)));
    let start = || Gateway::start(directory.path(), origin.address, PAGES, &[]);
    let first = start();
    assert_eq!(first.exchange(get("/grown", "")).state(), "miss");
    first.shut_down();
    let file = OpenOptions::new().write(true).open(largest_file(&directory.path().join("data/bodies")));
    file.expect("the file of the body").set_len(GROWN).expect("a sparse file");
    let gateway = start();
    let _limit = MemoryLimit::of(gateway.pid(), MEMORY);
    let response = gateway.exchange(get("/grown", ""));
    assert_eq!((response.status, response.state(), response.body.len()), (200, "miss", 1_000_000));
    assert_eq!(gateway.exchange(get("/grown", "")).state(), "hit", "the page is stored again");
    assert!(gateway.bytes_read() < GROWN / 2, "{} bytes were read", gateway.bytes_read());
    assert!(gateway.peak_memory() * 1024 < MEMORY);
}

/// A minimum rate that no client of these tests reaches, and timeouts that no pause of theirs reaches.
const HIGH_RATE: &str =
    "[timeouts]\nclient_body = \"5s\"\nclient_idle = \"5s\"\n[limits]\nclient_bytes_per_second = \"1GB\"\n";

#[test]
fn row_74_a_request_body_that_arrives_too_slowly_is_rejected() {
    let site = Site::start(&format!("{PAGES}{HIGH_RATE}"));
    let length = 1_000_000;
    let mut connection = site.gateway.connect();
    connection.send(request("POST", "/row-74", &format!("Content-Length: {length}\r\n")));
    connection.trickle(vec![b'x']);
    let response = connection.response();
    assert_eq!(response.status, 408, "{}", response.text());
    connection.assert_closed();
    assert!(site.origin.requests_for("/row-74").is_empty());
}

#[test]
fn row_74_a_request_body_that_arrives_too_slowly_is_rejected_over_http_2() {
    let site = Site::start(&format!("{PAGES}{HIGH_RATE}"));
    let mut client = Http2::open(site.gateway.address);
    client.send(&Frame::headers(1, &http2::post(HOST, "/row-74"), 0));
    // The settings are acknowledged before the frames, which are sent in pieces.
    client.ping().expect("a connection");
    client.trickle(&Frame::data(1, b"x", 0));
    assert_eq!(client.outcome(1), Outcome::Response { status: 408 });
    assert!(site.origin.requests_for("/row-74").is_empty());
}

#[test]
fn row_74_a_client_that_reads_too_slowly_is_disconnected() {
    let site = Site::start(&format!("{PAGES}{HIGH_RATE}"));
    let endless = ScriptedResponse::raw("HTTP/1.1 200 OK\r\n\r\n").then_endlessly(vec![b'x'; 64 * 1024]);
    site.origin.respond("/pass/endless", endless);
    let mut connection = site.gateway.connect();
    connection.send(get("/pass/endless", ""));
    // Some of these bytes are read every ten milliseconds: no pause is as long as the timeout.
    wait_for("the client is disconnected", || connection.bytes(16 * 1024).is_empty().then_some(()));
}
