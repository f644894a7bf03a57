//! Floods of new pages.

use std::collections::BTreeMap;

use crate::assertions::{PAGES, cache_page};
use crate::support::gateway::data;
use crate::support::site::{Site, get};
use crate::support::wait_for;

/// The default of `[limits] new_pages_per_second`.
const NEW_PAGES_PER_SECOND: i64 = 500;

#[test]
fn row_39_a_flood_of_queries_fills_neither_store_nor_memory() {
    const FLOOD: usize = 2_000;
    let site = Site::start(PAGES);
    cache_page(&site, "/row-39");
    std::thread::scope(|scope| {
        for client in 0..8 {
            let site = &site;
            scope.spawn(move || {
                let mut connection = site.gateway.connect();
                for number in (client..FLOOD).step_by(8) {
                    connection.send(get(&format!("/row-39?cache-buster={number}"), ""));
                    let response = connection.response();
                    assert!([200, 429, 503].contains(&response.status), "{}", response.status);
                }
            });
        }
    });
    assert_eq!(site.get("/row-39").state(), "hit", "a requested page stays cached");
    let metric = |name: &str| site.gateway.metric(name).expect("a metric");
    let limit = metric("facetheory_store_max_bytes");
    assert!(limit > 0.0 && limit <= f64::from(1 << 30) * 10.0, "the store has an end: {limit}");
    assert!(metric("facetheory_memory_bytes") <= f64::from(128 << 20));
    let stored = pages_by_second(site.directory.path());
    assert!(stored.values().sum::<i64>() > 100, "the flood reached the store: {stored:?}");
    assert!(stored.values().all(|pages| *pages <= NEW_PAGES_PER_SECOND), "{stored:?}");
}

#[test]
fn row_39_a_flood_of_queries_replaces_only_what_the_flood_has_stored() {
    let site = Site::start(&format!("[store]\nmax_pages = 200\n{PAGES}"));
    cache_page(&site, "/row-39");
    let mut connection = site.gateway.connect();
    let is_over = (0..100_000).any(|number| {
        connection.send(get(&format!("/row-39?cache-buster={number}"), ""));
        assert_eq!(connection.response().status, 200);
        number % 50 == 0 && site.gateway.metric("facetheory_evicted_pages_total").unwrap_or(0.0) >= 300.0
    });
    assert!(is_over, "the store has no end");
    assert_eq!(site.get("/row-39").state(), "hit", "a requested page stays cached");
    wait_for("the store is within its quota", || {
        (site.gateway.metric("facetheory_store_pages")? < 200.0).then_some(())
    });
}

/// How many pages began to be rendered in each second.
fn pages_by_second(directory: &std::path::Path) -> BTreeMap<i64, i64> {
    let file = data(directory).join("table.db");
    let table = rusqlite::Connection::open(file).expect("the table");
    let sql =
        "SELECT json_extract(item, '$.generated_at.N'), count(*) FROM item WHERE sk = 'META' GROUP BY 1";
    let mut statement = table.prepare(sql).expect("a statement");
    let row = |row: &rusqlite::Row<'_>| Ok((row.get::<_, String>(0)?, row.get::<_, i64>(1)?));
    let counts = statement.query_map([], row).expect("rows");
    counts
        .map(|count| count.expect("a row"))
        .map(|(at, pages)| (at.parse().expect("a time"), pages))
        .collect()
}
