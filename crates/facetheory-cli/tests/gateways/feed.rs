//! Three gateways that rely on the change feed, on DynamoDB and S3.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use facetheory::PageKey;
use facetheory::protocol::Meta;
use tabletheory::{Clock as _, Item, SystemClock, Txn, Write};
use tempfile::TempDir;

use crate::meter::{Call, Meter};
use crate::support::gateway::Gateway;
use crate::support::origin::{Origin, ScriptedResponse};
use crate::support::site::{HOST, get, request, with_long_timeouts};
use crate::support::store::{Store, s3_endpoint, server_variable};
use crate::support::{print, wait_for};
use crate::table::{facetheory, stderr};

const GATEWAYS: usize = 3;
/// The pages in memory of each gateway, unless the variable [`PAGES_VARIABLE`] says otherwise. A gateway reads each of them from
/// DynamoDB Local and S3 once. With 10,000, as `.ci/run` sets it, this takes half a minute for each gateway.
const PAGES: usize = 3_000;
const PAGES_VARIABLE: &str = "FACETHEORY_TEST_FEED_PAGES";
/// A page that follows its origin, which unsafe methods may change.
const FORM: &str = "/form";
/// The connections of clients that load pages.
const CLIENTS: usize = 8;
/// A gateway knows a change after so many reads of the feed: after the one that is under way, or the next one.
const MAX_READS: usize = 2;
/// Half of the time within which a change must be known, with a margin for a busy machine.
const LONGEST_INTERVAL: Duration = Duration::from_millis(600);
/// How many reads of the feed are timed.
const TIMED_READS: usize = 11;
/// A change that the gateways do not know after this many milliseconds is an error also on a busy machine.
const LONGEST_DELAY: i64 = 10_000;
/// How long metadata is used without the feed, in milliseconds, as in [`CONFIG`]. A read of the feed counts as long, so that a
/// read that is late on a busy machine does not make the gateways read pages.
const MAX_AGE: i64 = 10_000;
/// Fresh for so long that only an invalidation explains another render. All pages have the same path, and thus the same tags.
const CONFIG: &str = "[routes]\n\"/page\" = { isr = \"1h\", query = [\"n\"], tags = [\"news\"], versions = 2 }\n\
                      [store]\nfeed = \"exclusive\"\nmetadata_max_age = \"10s\"\n";

/// Three gateways on one table, of which the last reaches it through a proxy.
struct Fleet {
    store: Store,
    origin: Origin,
    proxy: Meter,
    gateways: Vec<Gateway>,
    pages: usize,
    _directories: Vec<TempDir>,
}

impl Fleet {
    /// Starts the gateways, and lets all of them load all pages into memory.
    fn start(pages: usize) -> Fleet {
        let (store, origin) = (Store::on_servers(), Origin::start());
        let directories: Vec<TempDir> =
            (0..GATEWAYS).map(|_| tempfile::tempdir().expect("a directory")).collect();
        let config = with_long_timeouts(CONFIG);
        let proxy = Meter::start(&server_variable("FACETHEORY_TEST_DYNAMODB_ENDPOINT"));
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
        let fleet = Fleet { store, origin, proxy, gateways, pages, _directories: directories };
        fleet.store_pages();
        for gateway in &fleet.gateways {
            assert_eq!(fleet.hits(gateway), pages, "every page is in the table");
            assert_eq!(gateway.metric("facetheory_memory_pages"), Some(pages as f64), "pages in memory");
        }
        fleet
    }

    /// Renders the first page, and stores the rows of all others, which name the same body.
    fn store_pages(&self) {
        const ROWS: usize = 100;
        self.origin.respond(&path(0), ScriptedResponse::page(&[], "<p>old</p>"));
        wait_for("the first page", || (state(&self.gateways[0], 0) == "hit").then_some(()));
        let rows = self.store.rows();
        let is_meta =
            |row: &&Item| Meta::read(row).is_ok_and(|_| row.key().is_ok_and(|key| key.sk == "META"));
        let meta = rows.iter().find(is_meta).expect("META of the first page");
        let cache_key = meta.get("cache_key").and_then(|value| value.as_str()).expect("a cache key");
        let numbers: Vec<usize> = (1..self.pages).collect();
        self.store.commit_all(numbers.chunks(ROWS).map(|numbers| {
            let put = |number: &usize| {
                let own_key = cache_key.replace("n=0", &format!("n={number}"));
                assert_ne!(own_key, cache_key);
                let key = PageKey::new(own_key.clone()).expect("a page").meta();
                let mut row = meta.clone();
                row.set("pk", key.pk.clone());
                row.set("cache_key", own_key);
                Write::put(key, row)
            };
            Txn::new(numbers.iter().map(put).collect::<Vec<Write>>())
        }));
    }

    /// Requests each page once from a gateway, over several connections, and returns the number of hits.
    fn hits(&self, gateway: &Gateway) -> usize {
        let (next, hits) = (AtomicUsize::new(0), AtomicUsize::new(0));
        std::thread::scope(|scope| {
            for _ in 0..CLIENTS {
                scope.spawn(|| {
                    let mut connection = gateway.connect();
                    loop {
                        let number = next.fetch_add(1, Ordering::Relaxed);
                        if number >= self.pages {
                            return;
                        }
                        connection.send(get(&path(number), ""));
                        let response = connection.response();
                        assert_eq!(response.status, 200, "{}", response.text());
                        hits.fetch_add(usize::from(response.state() == "hit"), Ordering::Relaxed);
                    }
                });
            }
        });
        hits.into_inner()
    }

    fn first(&self) -> &Gateway {
        &self.gateways[0]
    }

    fn last(&self) -> &Gateway {
        &self.gateways[GATEWAYS - 1]
    }

    fn operate(&self, operation: &str, json: &str) {
        let response = self.first().admin_post(&format!("/api/v1/{operation}"), json);
        assert_eq!(response.status, 200, "{operation}: {}", response.text());
    }

    /// Makes a change through the first gateway while each read of the feed by the last one is held, lets it read the feed step
    /// by step, and asserts that it then knows the change. The other gateways know it too.
    fn change(&self, what: &str, change: impl FnOnce()) {
        let read_is_held = || (!self.proxy.held().is_empty()).then_some(());
        self.proxy.hold(|operation, body| operation == "Query" && body.contains("FEED#"));
        wait_for("a read of the feed is under way", read_is_held);
        let before: Vec<f64> = self.gateways.iter().map(entries).collect();
        change();
        let reads = (1..=MAX_READS).find(|_| {
            self.proxy.release_held();
            // The gateway reads the feed again when it has applied what it read before.
            wait_for("the next read of the feed", read_is_held);
            entries(self.last()) > before[GATEWAYS - 1]
        });
        let reads = reads.unwrap_or_else(|| panic!("{what}: {MAX_READS} reads of the feed did not name it"));
        self.proxy.release();
        for (gateway, before) in self.gateways.iter().zip(before) {
            wait_for("each gateway knows the change", || (entries(gateway) > before).then_some(()));
        }
        print(&format!("{what}: a gateway with {} pages knew after {reads} reads of the feed", self.pages));
    }

    /// Makes a change while the gateways read the feed as usual, and prints how long it took until all of them knew it.
    fn time_change(&self, what: &str, change: impl FnOnce()) {
        let before: Vec<f64> = self.gateways.iter().map(entries).collect();
        change();
        let acknowledged = SystemClock.now();
        for (gateway, before) in self.gateways.iter().zip(before) {
            wait_for("each gateway knows the change", || (entries(gateway) > before).then_some(()));
        }
        let took = SystemClock.now().millis() - acknowledged.millis();
        print(&format!("{what}: {GATEWAYS} gateways with {} pages each knew after {took} ms", self.pages));
        assert!(took <= LONGEST_DELAY, "{what}: known after {took} ms");
    }

    /// Waits until all gateways serve this body of a page as a hit. The last one regenerates it, since a gateway that finds
    /// the page stale reads it again only after `metadata_max_age`.
    fn all_serve(&self, target: &str, body: &str) {
        for gateway in self.gateways.iter().rev() {
            wait_for("the page is regenerated", || {
                let response = gateway.exchange(get(target, ""));
                (response.state() == "hit" && response.text() == body).then_some(())
            });
        }
    }

    /// The time between two reads of the feed by the last gateway: the median of several, since a busy machine may delay some.
    fn interval_of_reads(&self) -> Duration {
        self.proxy.take();
        let mut reads: Vec<Call> = Vec::new();
        wait_for("several reads of the feed", || {
            reads.extend(self.proxy.take().into_iter().filter(is_of_feed));
            (reads.len() > TIMED_READS).then_some(())
        });
        let times: Vec<i64> = reads.iter().map(|read| read.arrived).collect();
        let mut intervals: Vec<i64> = times.windows(2).map(|pair| pair[1] - pair[0]).collect();
        intervals.sort_unstable();
        Duration::from_millis(u64::try_from(intervals[intervals.len() / 2]).expect("a later read"))
    }
}

#[test]
fn a_change_is_known_within_a_second_to_gateways_that_read_nothing_but_the_feed() {
    let pages = std::env::var(PAGES_VARIABLE).map_or(PAGES, |number| number.parse().expect("a number"));
    let began = SystemClock.now().millis();
    let fleet = Fleet::start(pages);
    let loaded = SystemClock.now().millis();
    print(&format!("{GATEWAYS} × {pages} pages loaded after {} ms", loaded - began));

    // Twice the interval is the time within which a change is known.
    let interval = fleet.interval_of_reads();
    print(&format!("a read of the feed every {interval:?}"));
    assert!(interval <= LONGEST_INTERVAL, "{interval:?}");
    // Without the feed, each of these requests would now read its page.
    wait_for("the metadata is too old", || (SystemClock.now().millis() > loaded + MAX_AGE).then_some(()));
    fleet.proxy.take();
    assert_eq!(fleet.hits(fleet.last()), pages);
    let others: Vec<Call> = fleet.proxy.take().into_iter().filter(|call| !is_of_feed(call)).collect();
    assert!(others.iter().all(|call| !reads_pages(call)), "no page is read: {others:?}");

    let url = |number| format!(r#"{{ "url": "http://{HOST}{}" }}"#, path(number));
    fleet.time_change("an invalidation of a page", || fleet.operate("invalidate", &url(8)));
    let page = url(7);
    let respond = |body: &str| fleet.origin.respond(&path(7), ScriptedResponse::page(&[], body));
    respond("<p>a page</p>");
    fleet.change("an invalidation of a page", || fleet.operate("invalidate", &page));
    assert_ne!(state(fleet.last(), 7), "hit", "the gateway knows that the page has changed");
    fleet.all_serve(&path(7), "<p>a page</p>");
    respond("<p>a tag</p>");
    fleet.change("an invalidation of a tag", || fleet.operate("invalidate", r#"{ "tag": "news" }"#));
    assert_ne!(state(fleet.last(), 7), "hit");
    fleet.all_serve(&path(7), "<p>a tag</p>");

    let version = wait_for("two versions are stored", || {
        let rows = fleet.store.rows();
        let versions =
            rows.iter().map(|row| row.key().expect("a key").sk).filter(|sk| sk.starts_with("VER#"));
        let mut versions: Vec<String> = versions.collect();
        versions.sort();
        // The first page has a version too, which is the oldest.
        versions.into_iter().nth(1)
    });
    let rollback = format!(r#"{{ "url": "http://{HOST}{}", "version": "{version}" }}"#, path(7));
    fleet.change("a rollback", || fleet.operate("rollback", &rollback));
    fleet.all_serve(&path(7), "<p>a page</p>");
    fleet.change("the end of a pin", || fleet.operate("unpin", &page));
    assert_ne!(state(fleet.last(), 7), "hit");
    fleet.all_serve(&path(7), "<p>a tag</p>");

    let respond = |body: &str| {
        fleet.origin.respond(FORM, ScriptedResponse::page(&["Cache-Control: max-age=3600"], body));
    };
    respond("<p>a form</p>");
    fleet.all_serve(FORM, "<p>a form</p>");
    respond("<p>an unsafe method</p>");
    fleet.change("an unsafe method", || {
        let before = entries(fleet.first());
        let post = request("POST", FORM, "Content-Length: 0\r\n");
        assert_eq!(fleet.first().exchange(post).status, 200);
        // The response does not wait for a slow table, so the entry may be stored after it.
        wait_for("the change is announced", || (entries(fleet.first()) > before).then_some(()));
    });
    fleet.all_serve(FORM, "<p>an unsafe method</p>");

    for gateway in &fleet.gateways {
        assert!(!gateway.admin_get("/metrics").text().contains("\nfacetheory_feed_gaps_total"), "no gap");
    }
}

#[test]
fn an_invalidation_of_all_pages_by_the_command_line_is_known_to_gateways_from_two_entries() {
    const FEW: usize = 50;
    let fleet = Fleet::start(FEW);
    let before: Vec<f64> = fleet.gateways.iter().map(entries).collect();
    let stores = ["--table", &fleet.store.table, "--bodies", &fleet.store.bodies];
    let arguments = [&["invalidate", "--tag", "news", "--materialise", "--hard"][..], &stores].concat();
    let output = facetheory(&fleet.store, &arguments);
    assert!(output.status.success(), "{}", stderr(&output));
    // One entry before the pages are written and one after them, but none for each page.
    for (number, (gateway, before)) in fleet.gateways.iter().zip(before).enumerate() {
        wait_for("the gateway knows", || (entries(gateway) >= before + 2.0).then_some(()));
        assert_eq!(state(gateway, number), "miss", "the page must not be served");
        assert!(entries(gateway) < before + FEW as f64, "{}", entries(gateway));
    }
}

fn is_of_feed(call: &Call) -> bool {
    call.operation == "Query" && call.names.iter().any(|name| name.starts_with("FEED#"))
}

/// Whether a request reads rows of pages or tags.
fn reads_pages(call: &Call) -> bool {
    ["CACHE#", "TAG#"].iter().any(|prefix| call.names.iter().any(|name| name.starts_with(prefix)))
}

fn entries(gateway: &Gateway) -> f64 {
    gateway.metric("facetheory_feed_entries_total").unwrap_or(0.0)
}

fn path(number: usize) -> String {
    format!("/page?n={number}")
}

fn state(gateway: &Gateway, number: usize) -> String {
    let response = gateway.exchange(get(&path(number), ""));
    assert_eq!(response.status, 200, "{}", response.text());
    response.state().to_owned()
}
