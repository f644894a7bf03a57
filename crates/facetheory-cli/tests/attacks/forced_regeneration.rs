//! Clients that force regenerations.

use tabletheory::{Clock as _, SystemClock, Timestamp};

use crate::support::origin::ScriptedResponse;
use crate::support::site::Site;

/// The most regenerations that a limit per minute allowed since `start`, however long the requests took.
fn allowed(limit: usize, start: Timestamp) -> usize {
    let seconds = SystemClock.now().seconds() - start.seconds();
    limit * (usize::try_from(seconds / 60).expect("a short time") + 1)
}

#[test]
fn row_75_forced_regenerations_of_a_page_are_limited() {
    const REQUESTS: usize = 100;
    let site = Site::start("client_cache_control = \"obey\"\n[routes]\n\"/**\" = { cache = \"origin\" }\n");
    site.origin.script("/page", |_| ScriptedResponse::page(&["Cache-Control: max-age=36000"], "the page"));
    assert_eq!(site.get("/page").state(), "miss");
    let (start, mut limited) = (SystemClock.now(), 0);
    for directive in ["no-cache", "max-age=0, min-fresh=100000"].into_iter().cycle().take(REQUESTS) {
        let response = site.get_with("/page", &format!("Cache-Control: {directive}\r\n"));
        assert_eq!((response.status, response.text().as_str()), (200, "the page"));
        let status = response.header("cache-status").expect("a status").to_owned();
        if status.contains("detail=page-regeneration-limit") {
            assert_eq!(response.state(), "hit", "{status}");
            limited += 1;
        }
    }
    let renders = site.origin.requests_for("/page").len() - 1;
    assert!((1..=allowed(10, start)).contains(&renders), "{renders} renders");
    assert_eq!(renders + limited, REQUESTS);
    let counted = site.gateway.metric("facetheory_regenerations_limited_total{limit=\"page\"}");
    assert_eq!(counted, Some(limited as f64));
}

#[test]
fn row_75_forced_regenerations_by_a_client_are_limited() {
    const PAGES_OF_SITE: usize = 150;
    let site = Site::start("client_cache_control = \"obey\"\n[routes]\n\"/**\" = { cache = \"origin\" }\n");
    let path = |page: usize| format!("/{page}");
    for page in 0..PAGES_OF_SITE {
        site.origin
            .script(&path(page), |_| ScriptedResponse::page(&["Cache-Control: max-age=36000"], "a page"));
        assert_eq!(site.get(&path(page)).state(), "miss");
    }
    let start = SystemClock.now();
    for page in 0..PAGES_OF_SITE {
        let response = site.get_with(&path(page), "Cache-Control: no-cache\r\n");
        assert_eq!((response.status, response.text().as_str()), (200, "a page"));
    }
    let renders =
        (0..PAGES_OF_SITE).map(|page| site.origin.requests_for(&path(page)).len() - 1).sum::<usize>();
    assert!((1..=allowed(100, start)).contains(&renders), "{renders} renders");
    let counted = site.gateway.metric("facetheory_regenerations_limited_total{limit=\"client\"}");
    assert_eq!(counted.unwrap_or(0.0), (PAGES_OF_SITE - renders) as f64);
}
