//! The cost of two gateways on DynamoDB and S3, counted at the wire and printed as the table of docs/guides/cost.md.

use tabletheory::{Clock as _, SystemClock};
use tempfile::TempDir;

use facetheory::protocol::Meta;

use crate::meter::{Call, Meter};
use crate::support::gateway::Gateway;
use crate::support::origin::{Origin, ScriptedResponse};
use crate::support::site::{HOST, get, with_long_timeouts};
use crate::support::store::{Store, s3_endpoint, server_variable};
use crate::support::{print, wait_for};

/// List prices of us-east-1 on demand, in dollars per million: read units, write units, and requests to S3 by kind.
const READ_UNIT: f64 = 0.125;
const WRITE_UNIT: f64 = 0.625;
const S3_PUT: f64 = 5.0;
const S3_GET: f64 = 0.4;

/// The guide, which has the rows that this test prints.
const GUIDE: &str = include_str!("../../../../docs/guides/cost.md");
/// How long metadata is used after it was read, in milliseconds: `[store] metadata_max_age`.
const MAX_AGE: i64 = 1_000;
/// A month of 30 days, in seconds.
const MONTH: f64 = 30.0 * 86_400.0;
/// How often each gateway reads the change feed per second. The tests of the engine count it with a paused clock.
const FEED_READS: f64 = 2.0;
/// How many rows of pages each gateway reads again per second at most although the feed does not name them. The tests of the
/// engine count it with a paused clock.
const ROWS_CHECKED: f64 = 1.0;
/// The tags of a page, as a list of TOML.
const TEN_TAGS: &str = r#"["a", "b", "c", "d", "e", "f", "g", "h", "i", "j"]"#;
/// How many versions a page of the tests retains.
const VERSIONS: usize = 5;
/// How often an operation is measured at most until its cost is the one in the guide. Only an operation that took longer than
/// metadata is used is measured again: a row may then be read once more.
const MAX_ATTEMPTS: usize = 5;

/// The cost of one operation.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
struct Cost {
    read_units: f64,
    write_units: f64,
    puts: f64,
    gets: f64,
    /// How long the operation took, in milliseconds.
    took: i64,
}

impl Cost {
    fn of(table: &[Call], bodies: &[Call]) -> Cost {
        let mut cost = Cost::default();
        for call in table {
            cost.read_units += call.read_units;
            cost.write_units += call.write_units;
        }
        for call in bodies {
            match call.operation.as_str() {
                // A deletion is free.
                "DELETE" => {}
                "GET" | "HEAD" => cost.gets += 1.0,
                _ => cost.puts += 1.0,
            }
        }
        cost
    }

    /// Dollars for a million operations.
    fn dollars(&self) -> f64 {
        let Cost { read_units, write_units, puts, gets, .. } = self;
        read_units * READ_UNIT + write_units * WRITE_UNIT + puts * S3_PUT + gets * S3_GET
    }

    /// Dollars for a month in which the operation happens so often per second.
    fn dollars_per_month(&self, per_second: f64) -> f64 {
        self.dollars() * per_second * MONTH / 1e6
    }

    /// A row of a table in the guide about what a gateway costs in a month.
    fn monthly_row(&self, what: &str, per_second: f64) -> String {
        format!("| {what} | {} | ${:.2} |", self.read_units, self.dollars_per_month(per_second))
    }

    /// A row of the table in the guide.
    fn row(&self, what: &str) -> String {
        let Cost { read_units, write_units, puts, gets, .. } = self;
        format!("| {what} | {read_units} | {write_units} | {puts} | {gets} | ${:.2} |", self.dollars())
    }
}

/// Two gateways whose requests to DynamoDB and S3 are counted.
struct MeteredSite {
    one: Gateway,
    other: Gateway,
    origin: Origin,
    /// The stores without the proxies.
    store: Store,
    table: Meter,
    bodies: Meter,
    _directories: [TempDir; 2],
}

impl MeteredSite {
    fn start(config: &str) -> MeteredSite {
        let (store, origin) = (Store::on_servers(), Origin::start());
        let (table, bodies) = (
            Meter::start(&server_variable("FACETHEORY_TEST_DYNAMODB_ENDPOINT")),
            Meter::start(&s3_endpoint()),
        );
        let metered = store.through(&table.endpoint(), &bodies.endpoint());
        let directories = [(); 2].map(|()| tempfile::tempdir().expect("a directory"));
        let config = with_long_timeouts(config);
        let [one, other] = directories
            .each_ref()
            .map(|directory| Gateway::start_on(&metered, directory.path(), origin.address, &config));
        MeteredSite { one, other, origin, store, table, bodies, _directories: directories }
    }

    /// The cost of an operation on pages and tags, with its entry in the change feed. `done` says when its last request was sent.
    fn cost(&self, operation: impl FnOnce(), done: impl Fn() -> bool) -> Cost {
        self.table.take();
        self.bodies.take();
        let began = SystemClock.now();
        operation();
        wait_for("the operation is complete", || done().then_some(()));
        let table = self.calls_to(&["CACHE#", "TENANT#", "TAG#", "FEED#"]);
        // Objects of readiness checks are not bodies.
        let is_body = |call: &Call| !call.names.iter().any(|path| path.contains("/probe/"));
        let bodies: Vec<Call> = self.bodies.take().into_iter().filter(is_body).collect();
        Cost { took: SystemClock.now().millis() - began.millis(), ..Cost::of(&table, &bodies) }
    }

    /// The requests to the table since the last call that name a partition with one of these prefixes.
    fn calls_to(&self, prefixes: &[&str]) -> Vec<Call> {
        let is_one = |name: &String| prefixes.iter().any(|prefix| name.starts_with(prefix));
        self.table.take().into_iter().filter(|call| call.names.iter().any(is_one)).collect()
    }

    fn get(&self, gateway: &Gateway, path: &str, state: &str) {
        let response = gateway.exchange(get(path, ""));
        assert_eq!((response.status, response.state()), (200, state), "{path}: {}", response.text());
    }

    fn respond(&self, path: &str, body: &str) {
        self.origin.respond(path, ScriptedResponse::page(&[], body));
    }

    /// `META` of a page, if it is published and no worker holds the lease.
    fn settled(&self, path: &str) -> Option<Meta> {
        let rows = self.store.rows();
        let sk = |row: &tabletheory::Item| row.key().expect("a key").sk;
        if rows.iter().any(|row| sk(row) == "LOCK") {
            return None;
        }
        let is_page = |row: &&tabletheory::Item| {
            sk(row) == "META" && row.get("path").and_then(|value| value.as_str()) == Some(path)
        };
        rows.iter().find(is_page).map(|row| Meta::read(row).expect("META"))
    }

    fn meta(&self, path: &str) -> Meta {
        wait_for("the page is published", || self.settled(path))
    }

    /// The number of stored versions, of all pages.
    fn versions(&self) -> usize {
        let is_version = |row: &&tabletheory::Item| row.key().expect("a key").sk.starts_with("VER#");
        self.store.rows().iter().filter(is_version).count()
    }

    /// Regenerates a stale page because a client requests it, and returns the cost. `versions` are stored afterwards.
    fn regenerate(&self, path: &str, body: &str, versions: usize) -> Cost {
        self.respond(path, body);
        let before = self.meta(path);
        // Its interval of one second is over, and its metadata, which was read before it was published, has to be read again.
        wait_until(SystemClock.now().millis() + MAX_AGE);
        let is_regenerated = || self.settled(path).is_some_and(|meta| meta.mark != before.mark);
        self.cost(|| self.get(&self.one, path, "stale"), || is_regenerated() && self.versions() == versions)
    }

    /// Requests a page that a gateway need not render, and returns the cost. No metadata that it read before is used.
    fn read(&self, gateway: &Gateway, path: &str) -> Cost {
        wait_until(SystemClock.now().millis() + MAX_AGE);
        self.cost(|| self.get(gateway, path, "hit"), || true)
    }

    fn invalidate(&self, json: &str) {
        assert_eq!(self.one.admin_post("/api/v1/invalidate", json).status, 200, "{json}");
    }
}

/// Measures an operation until its cost is the one in the guide, and returns the cost. The attempts are numbered.
fn measure(what: &str, mut operation: impl FnMut(usize) -> Cost) -> Cost {
    for attempt in 0..MAX_ATTEMPTS {
        let cost = operation(attempt);
        let row = cost.row(what);
        if cost.took < MAX_AGE || is_in_guide(&row) {
            assert_in_guide(&row);
            return cost;
        }
        print(&format!("attempt {}, which took {} ms, does not count: {row}", attempt + 1, cost.took));
    }
    panic!("{what}: the machine is too slow, {MAX_ATTEMPTS} attempts took {MAX_AGE} ms or more");
}

#[test]
fn regenerations_on_dynamodb_and_s3_cost_no_more_than_the_goals() {
    let pages: String =
        (0..MAX_ATTEMPTS).map(|number| format!("\"/page{number}\" = {{ isr = \"1s\" }}\n")).collect();
    let site = MeteredSite::start(&format!(
        "[routes]\n{pages}\"/versions\" = {{ isr = \"1s\", versions = {VERSIONS} }}\n\
         \"/long/**\" = {{ isr = \"1h\", tags = [\"news\"] }}\n\
         \"/tagged/**\" = {{ isr = \"1h\", tags = {TEN_TAGS} }}\n"
    ));
    print(
        "| operation | read units | write units | S3 PUT | S3 GET | dollars per million |\n|---|---|---|---|---|---|",
    );

    measure("first render", |attempt| {
        let path = format!("/page{attempt}");
        site.respond(&path, "<p>a page</p>");
        site.cost(|| site.get(&site.one, &path, "miss"), || site.settled(&path).is_some())
    });
    let changed = measure("regeneration, changed", |attempt| {
        site.regenerate("/page0", &format!("<p>{attempt}</p>"), 0)
    });
    site.regenerate("/page0", "<p>last</p>", 0);
    let unchanged = measure("regeneration, unchanged", |_| site.regenerate("/page0", "<p>last</p>", 0));

    site.respond("/versions", "<p>a page</p>");
    site.get(&site.one, "/versions", "miss");
    for number in 1..=VERSIONS {
        let before = site.meta("/versions");
        site.respond("/versions", &format!("<p>version {number}</p>"));
        site.invalidate(&format!(r#"{{ "url": "http://{HOST}/versions" }}"#));
        site.get(&site.one, "/versions", "stale");
        wait_for("a new version", || {
            let meta = site.settled("/versions")?;
            (meta.mark != before.mark).then_some(())
        });
    }
    wait_for("all versions are stored", || (site.versions() == VERSIONS + 1).then_some(()));
    let versioned = measure("regeneration, changed, with five versions", |attempt| {
        site.regenerate("/versions", &format!("<p>{attempt}</p>"), VERSIONS + 1)
    });

    let render = |path: &str| {
        site.respond(path, "<p>long</p>");
        site.get(&site.one, path, "miss");
        site.meta(path);
    };
    measure("first request for a page that another gateway rendered", |attempt| {
        let path = format!("/long/{attempt}");
        render(&path);
        site.read(&site.other, &path)
    });
    let check = measure("check of a page in memory, `/long/a`", |_| site.read(&site.other, "/long/0"));
    render("/long/a/b/c/d");
    site.get(&site.other, "/long/a/b/c/d", "hit");
    let deep_check =
        measure("check of a page in memory, `/long/a/b/c/d`", |_| site.read(&site.other, "/long/a/b/c/d"));
    render("/tagged/a");
    site.get(&site.other, "/tagged/a", "hit");
    let tagged_check = measure("check of a page in memory, `/tagged/a` with ten tags", |_| {
        site.read(&site.other, "/tagged/a")
    });
    let page = format!(r#"{{ "url": "http://{HOST}/long/0" }}"#);
    measure("invalidation of a page", |_| site.cost(|| site.invalidate(&page), || true));
    measure("invalidation of a tag or path", |_| {
        site.cost(|| site.invalidate(r#"{ "tag": "news" }"#), || true)
    });

    let feed_read = Cost { read_units: 1.0, ..Cost::default() };
    for (page, cost) in [
        ("`/long/a` with one tag", check),
        ("`/long/a/b/c/d` with one tag", deep_check),
        ("`/tagged/a` with ten tags", tagged_check),
    ] {
        assert_in_guide(&cost.monthly_row(page, 1.0));
        // Each row of the page costs one read unit.
        let checks = ROWS_CHECKED / cost.read_units;
        assert_in_guide(&cost.monthly_row(&format!("hourly checks of pages like {page}"), checks));
        let watching = feed_read.dollars_per_month(FEED_READS) + cost.dollars_per_month(checks);
        assert!(watching < 1.0, "to watch pages like {page} costs ${watching:.2} a month");
    }
    for (what, cost, limit) in
        [("changed", changed, 8.9), ("unchanged", unchanged, 2.65), ("versioned", versioned, 14.2)]
    {
        assert!(cost.dollars() <= limit, "a {what} page costs ${:.2}, more than ${limit:.2}", cost.dollars());
    }
}

#[test]
fn to_watch_pages_costs_the_same_for_any_number_of_them() {
    // A read of the feed that is late must not make the gateways read the pages: only the feed is counted here.
    let site = MeteredSite::start(
        "[routes]\n\"/**\" = { isr = \"1h\", tags = [\"news\"] }\n[store]\nfeed = \"exclusive\"\n\
         metadata_max_age = \"60s\"\n",
    );
    let gateways = [&site.one, &site.other];
    for gateway in gateways {
        wait_for("the gateway relies on the feed", || {
            (gateway.metric("facetheory_feed_complete") == Some(1.0)).then_some(())
        });
    }
    let mut pages = 0;
    for number in [2, 20] {
        for page in pages..number {
            site.respond(&format!("/page/{page}"), "<p>a page</p>");
            for gateway in gateways {
                wait_for("the page is in memory", || {
                    (gateway.exchange(get(&format!("/page/{page}"), "")).state() == "hit").then_some(())
                });
            }
        }
        pages = number;
        let began = SystemClock.now();
        site.table.take();
        let mut calls = Vec::new();
        wait_for("each gateway reads the feed several times", || {
            for page in 0..number {
                gateways.iter().for_each(|gateway| site.get(gateway, &format!("/page/{page}"), "hit"));
            }
            calls.extend(site.calls_to(&["CACHE#", "TAG#", "FEED#"]));
            (calls.len() >= 10).then_some(())
        });
        let seconds =
            f64::from(u32::try_from(SystemClock.now().millis() - began.millis()).expect("a short time"))
                / 1e3;
        let is_of_feed = |call: &&Call| call.names.iter().any(|name| name.starts_with("FEED#"));
        assert_eq!(calls.iter().filter(is_of_feed).count(), calls.len(), "no page is read: {calls:?}");
        // A slow machine reads less often, and a read that began before may arrive later.
        let most = 2.0 * (FEED_READS * seconds + 2.0);
        assert!((calls.len() as f64) <= most, "{} reads in {seconds} s", calls.len());
        let units: Vec<f64> = calls.iter().map(|call| call.read_units).collect();
        assert!(units.iter().all(|units| *units == 1.0), "{units:?}");
        assert_in_guide(&Cost::of(&calls[..1], &[]).monthly_row("reads of the change feed", FEED_READS));
    }
}

fn is_in_guide(row: &str) -> bool {
    GUIDE.lines().any(|line| line == row)
}

/// Prints a row, which the guide must have.
fn assert_in_guide(row: &str) {
    print(row);
    assert!(is_in_guide(row), "docs/guides/cost.md lacks this row:\n{row}");
}

fn wait_until(millis: i64) {
    wait_for("time passes", || (SystemClock.now().millis() > millis).then_some(()));
}
