//! A response that was requested before an invalidation is never fresh after it, however it was stored, and whichever process
//! invalidated it.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use bytes::Bytes;
use facetheory::{Invalidated, InvalidationMode, PageKey, Route, Routes, Tag};
use http::{Method, Request, Response};
use http_body_util::Full;
use tabletheory::{Faults, Scan, Table as _, Txn, Write};

use crate::fixture::{SECOND, Site};

/// The delay of a slow response: longer than the clock skew.
const SLOW: Duration = SECOND.saturating_mul(5);

fn routes() -> Routes {
    Routes::new([]).expect("no routes").otherwise_follow_origin()
}

/// An origin whose page changes with every unsafe request. A response has the state at the time of the request, however long it
/// takes. The German response varies on more headers.
fn changes(site: &Site, is_slow: impl Fn(&Request<Full<Bytes>>) -> bool + Send + Sync + 'static) {
    let changes = Arc::new(AtomicU32::new(0));
    site.renders(move |request: Request<Full<Bytes>>| {
        let unsafe_method = !request.method().is_safe();
        let change = changes.fetch_add(u32::from(unsafe_method), Ordering::SeqCst);
        let language =
            request.headers().get("x-language").map_or("none", |text| text.to_str().expect("text"));
        let vary = if language == "de" { "x-language, x-kind" } else { "x-language" };
        let response = Response::builder()
            .header(
                "cache-control",
                if request.method() == Method::HEAD { "max-age=3600" } else { "max-age=60" },
            )
            .header("etag", format!("\"{language}-{change}\""))
            .header("vary", vary)
            .body(Full::from(format!("{language}, change {change}")))
            .expect("a response");
        let takes = if is_slow(&request) { SLOW } else { Duration::ZERO };
        async move {
            tokio::time::sleep(takes).await;
            response
        }
    });
}

/// Runs a test with the invalidation through this process, and through another.
async fn told_of_each<F: Future<Output = ()>>(story: impl Fn(Site, Site) -> F) {
    let site = Site::of(routes());
    story(site.clone(), site.clone()).await;
    let site = Site::of(routes());
    story(site.clone(), site.another(routes())).await;
}

async fn is_changed(by: &Site, path: &str) {
    assert_eq!(by.send("POST", path, &[]).await.status, 200);
}

async fn is_changed_meanwhile(by: &Site) {
    tokio::time::sleep(SECOND).await;
    is_changed(by, "/a").await;
}

#[tokio::test(start_paused = true)]
async fn a_head_from_before_an_invalidation_freshens_nothing_after_it() {
    told_of_each(|site, other| async move {
        changes(&site, |request| request.method() == Method::HEAD);
        assert_eq!(site.get("/a").await.text(), "none, change 0");
        tokio::time::advance(61 * SECOND).await;
        let (head, ()) = tokio::join!(site.send("HEAD", "/a", &[]), is_changed_meanwhile(&other));
        assert_eq!(head.header("etag"), "\"none-0\"", "it was requested before the invalidation");
        assert_eq!(site.get("/a").await.text(), "none, change 1");
        tokio::time::advance(2 * SECOND).await;
        assert_eq!(other.get("/a").await.text(), "none, change 1");
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn a_head_does_not_freshen_an_invalidated_page() {
    told_of_each(|site, other| async move {
        changes(&site, |_| false);
        site.get("/a").await;
        is_changed_meanwhile(&other).await;
        // Its response has no validator that distinguishes the stored response from the current one.
        site.responds(200, &[("cache-control", "max-age=3600")], "none, change 0");
        tokio::time::advance(SLOW).await;
        site.send("HEAD", "/a", &[]).await;
        site.requests();
        site.get("/a").await;
        assert_eq!(site.requests().len(), 1, "it is fetched again");
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn a_head_freshens_a_page_that_was_not_invalidated() {
    let site = Site::of(routes());
    changes(&site, |request| request.method() == Method::HEAD);
    site.get("/a").await;
    tokio::time::advance(61 * SECOND).await;
    site.send("HEAD", "/a", &[]).await;
    site.requests();
    let page = site.get("/a").await;
    assert_eq!((page.state(), page.header("age"), site.requests().len()), ("hit", "66", 0));

    site.get("/b").await;
    site.send("HEAD", "/b", &[("cache-control", "no-cache")]).await;
    tokio::time::advance(61 * SECOND).await;
    assert_eq!(site.get("/b").await.state(), "hit", "also what this process has just stored");
}

#[tokio::test(start_paused = true)]
async fn a_promoted_variant_does_not_survive_an_earlier_invalidation() {
    told_of_each(|site, other| async move {
        changes(&site, |request| request.method() == Method::GET && request.headers()["x-language"] == "de");
        let german = [("x-language", "de")];
        assert_eq!(site.get_with("/a", &[("x-language", "en")]).await.text(), "en, change 0");
        let (before, ()) = tokio::join!(site.get_with("/a", &german), is_changed_meanwhile(&other));
        assert_eq!(before.text(), "de, change 0", "it was requested before the invalidation");
        assert_eq!(site.get_with("/a", &german).await.text(), "de, change 1");
        tokio::time::advance(2 * SECOND).await;
        assert_eq!(other.get_with("/a", &german).await.text(), "de, change 1");
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn a_promoted_variant_keeps_its_age() {
    let site = Site::of(routes());
    changes(&site, |request| request.method() == Method::GET && request.headers()["x-language"] == "de");
    site.get_with("/a", &[("x-language", "en")]).await;
    let german = [("x-language", "de")];
    site.get_with("/a", &german).await;
    site.requests();
    let page = site.get_with("/a", &german).await;
    assert_eq!((page.state(), page.header("age"), site.requests().len()), ("hit", "5", 0));
    assert!(!page.header("cache-status").contains("vary="), "{}", page.header("cache-status"));
}

#[tokio::test(start_paused = true)]
async fn an_unsafe_request_causes_no_lookup_of_other_pages() {
    let site = Site::of(routes());
    changes(&site, |_| false);
    let paths: Vec<String> = (0..10).map(|number| format!("/a/{number}")).collect();
    let languages = [[("x-language", "en")], [("x-language", "fr")]];
    for path in &paths {
        for headers in &languages {
            site.get_with(path, headers).await;
        }
    }
    is_changed(&site, "/b").await;
    site.table.set_faults(Faults { fail: 1.0, ..Faults::default() });
    let mut hits = 0;
    for path in &paths {
        for headers in &languages {
            hits += u32::from(site.get_with(path, headers).await.state() == "hit");
        }
    }
    // A page shares the counter of the changed one with a probability of 1 in 1,024, together with all its variants.
    assert!(hits > 10, "the table was read for all but {hits} of 20 responses");
}

/// The key of the page at a path, as an operator names it.
fn page(site: &Site, path: &str) -> PageKey {
    let (request, ()) =
        Request::get(path).header("host", "example.com").body(()).expect("a request").into_parts();
    site.service.page(&request).expect("an address").expect("a page")
}

#[tokio::test(start_paused = true)]
async fn an_operator_invalidates_a_page_with_all_its_variants() {
    for strength in [InvalidationMode::Soft, InvalidationMode::Hard] {
        told_of_each(|site, other| async move {
            changes(&site, |_| false);
            let languages = ["en", "de", "fr", "it"];
            for language in languages {
                site.get_with("/a", &[("x-language", language)]).await;
            }
            let done = other.isr.invalidate(&page(&other, "/a"), strength).await.expect("a table");
            assert_eq!(done, Invalidated::Stale);
            tokio::time::advance(2 * SECOND).await;
            site.requests();
            for language in languages {
                site.get_with("/a", &[("x-language", language)]).await;
            }
            assert_eq!(site.requests().len(), languages.len(), "each is fetched again: {strength:?}");
        })
        .await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_hard_invalidated_variant_is_not_served_while_the_table_is_unreachable() {
    let site = Site::of(routes());
    changes(&site, |_| false);
    for language in ["en", "fr"] {
        site.get_with("/a", &[("x-language", language)]).await;
        site.get_with("/b", &[("x-language", language)]).await;
    }
    site.isr.invalidate(&page(&site, "/a"), InvalidationMode::Hard).await.expect("a table");
    // The new page has the `Vary` that selects variants.
    assert_eq!(site.get_with("/a", &[("x-language", "en")]).await.state(), "miss");
    site.table.set_faults(Faults { fail: 1.0, ..Faults::default() });
    for (path, expected) in [("/a", "bypass"), ("/b", "stale-metadata-error")] {
        tokio::time::advance(2 * SECOND).await;
        assert_eq!(site.get_with(path, &[("x-language", "fr")]).await.state(), expected, "{path}");
    }
}

/// A site with a page that a request changes slowly, whose client has disconnected.
async fn with_an_abandoned_change() -> Site {
    let site = Site::of(routes());
    changes(&site, |request| request.method() == Method::POST);
    site.get("/a").await;
    abandon_change(&site).await;
    site
}

async fn abandon_change(site: &Site) {
    let left = tokio::time::timeout(SECOND, site.send("POST", "/a", &[])).await;
    assert!(left.is_err(), "the client disconnects");
}

#[tokio::test(start_paused = true)]
async fn an_unsafe_request_invalidates_even_if_its_client_disconnects() {
    let site = with_an_abandoned_change().await;
    assert_eq!(site.get("/a").await.state(), "hit", "the origin has not responded yet");
    tokio::time::sleep(SLOW).await;
    assert_eq!(site.get("/a").await.text(), "none, change 1");
}

#[tokio::test(start_paused = true)]
async fn shutdown_waits_for_the_invalidation_of_an_unsafe_request() {
    let site = with_an_abandoned_change().await;
    assert!(site.isr.shut_down(SLOW).await);
    assert_eq!(site.another(routes()).get("/a").await.text(), "none, change 1");

    abandon_change(&site).await;
    assert!(!site.isr.shut_down(SECOND).await, "but not for longer than is allowed");
}

#[tokio::test(start_paused = true)]
async fn an_invalidation_applies_here_at_once_and_elsewhere_once_the_table_is_reachable() {
    let site = Site::of(routes());
    let other = site.another(routes());
    changes(&site, |_| false);
    for site in [&site, &other] {
        site.get("/a").await;
        site.get_with("/a", &[("x-language", "en")]).await;
    }
    site.table.set_faults(Faults { fail: 1.0, ..Faults::default() });
    is_changed(&site, "/a").await;
    for _ in 0..3 {
        assert_eq!(site.get("/a").await.text(), "none, change 1", "it is fetched in the meantime");
        tokio::time::sleep(SLOW).await;
    }
    site.table.set_faults(Faults::default());
    let page = site.get_with("/a", &[("x-language", "en")]).await;
    assert_eq!((page.text(), page.state()), ("en, change 1", "miss"), "the table may not know of it yet");
    tokio::time::sleep(60 * SECOND).await;
    assert_eq!(other.get("/a").await.text(), "none, change 1");
    assert!(site.isr.shut_down(SECOND).await, "nothing is left to be done");
}

#[tokio::test(start_paused = true)]
async fn a_stored_invalidation_applies_while_the_table_is_unreachable_again() {
    let site = Site::of(routes());
    changes(&site, |_| false);
    site.get("/a").await;
    is_changed(&site, "/a").await;
    site.table.set_faults(Faults { fail: 1.0, ..Faults::default() });
    assert_eq!(site.get("/a").await.text(), "none, change 1");
}

/// A site with an invalidation that cannot be stored, since its table is unreachable.
async fn with_an_unstored_invalidation() -> Site {
    let site = Site::of(routes());
    changes(&site, |_| false);
    site.table.set_faults(Faults { fail: 1.0, ..Faults::default() });
    is_changed(&site, "/a").await;
    site
}

#[tokio::test(start_paused = true)]
async fn shutdown_is_not_delayed_by_an_invalidation_that_cannot_be_stored() {
    let site = with_an_unstored_invalidation().await;
    let started = tokio::time::Instant::now();
    assert!(!site.isr.shut_down(SLOW).await, "something was given up");
    assert!(started.elapsed() < 2 * SLOW);
}

#[tokio::test(start_paused = true)]
async fn a_pending_invalidation_is_not_retried_for_ever() {
    let site = with_an_unstored_invalidation().await;
    tokio::time::sleep(3600 * SECOND).await;
    tokio::time::sleep(60 * SECOND).await;
    assert!(site.isr.shut_down(SECOND).await, "nothing is tried any more");
}

/// The number of epoch rows of addresses.
async fn rows_of_changes(site: &Site) -> usize {
    let rows = site.table.scan(&Scan::new()).await.expect("rows").items;
    rows.iter().filter(|row| row.key().is_ok_and(|key| key.sk == "TAG")).count()
}

#[tokio::test(start_paused = true)]
async fn an_unsafe_request_to_an_unstored_page_writes_no_row() {
    let site = Site::of(routes());
    changes(&site, |_| false);
    site.get("/stored").await;
    for number in 0..20 {
        is_changed(&site, &format!("/login?n={number}")).await;
    }
    assert_eq!(rows_of_changes(&site).await, 0);
    is_changed(&site, "/stored").await;
    assert_eq!(rows_of_changes(&site).await, 1);
    assert!(site.isr.shut_down(SECOND).await, "nothing is left to be done");
}

#[tokio::test(start_paused = true)]
async fn a_page_that_is_first_fetched_while_it_changes_is_not_fresh() {
    told_of_each(|site, other| async move {
        changes(&site, |request| request.method() == Method::GET);
        let (before, ()) = tokio::join!(site.get("/a"), is_changed_meanwhile(&other));
        assert_eq!(before.text(), "none, change 0", "it was requested before the invalidation");
        assert_eq!(site.get("/a").await.text(), "none, change 1");
        assert_eq!(other.get("/a").await.state(), "hit");
    })
    .await;
}

const ENGLISH: [(&str, &str); 1] = [("x-language", "en")];
const FRENCH: [(&str, &str); 1] = [("x-language", "fr")];

/// A site with a page in two languages.
async fn with_two_variants() -> Site {
    let site = Site::of(routes());
    changes(&site, |_| false);
    site.get_with("/a", &ENGLISH).await;
    site.get_with("/a", &FRENCH).await;
    site
}

#[tokio::test(start_paused = true)]
async fn a_variant_that_has_outlived_its_page_is_not_found_by_the_next_one() {
    let site = with_two_variants().await;
    assert_eq!(site.get_with("/a", &FRENCH).await.state(), "hit");
    let deleted = Write::delete(page(&site, "/a").meta());
    assert!(site.table.commit(&Txn::from(deleted)).await.expect("no error").is_done());
    tokio::time::advance(SLOW).await;
    is_changed(&site, "/a").await;
    assert_eq!(rows_of_changes(&site).await, 0, "the page is not stored");
    tokio::time::advance(SLOW).await;
    site.get_with("/a", &ENGLISH).await;
    assert_eq!(
        site.get_with("/a", &FRENCH).await.state(),
        "miss",
        "the variant is older than the invalidation"
    );
}

#[tokio::test(start_paused = true)]
async fn a_variant_of_a_hard_invalidated_page_is_not_revalidated() {
    let site = with_two_variants().await;
    tokio::time::advance(61 * SECOND).await;
    site.requests();
    site.get_with("/a", &FRENCH).await;
    assert!(site.requests()[0].headers().contains_key("if-none-match"), "it is stale by its time alone");
    site.isr.invalidate(&page(&site, "/a"), InvalidationMode::Hard).await.expect("a table");
    tokio::time::advance(SLOW).await;
    site.get_with("/a", &ENGLISH).await;
    site.requests();
    site.get_with("/a", &FRENCH).await;
    let requests = site.requests();
    assert!(
        !requests[0].headers().contains_key("if-none-match"),
        "a 304 would bring the invalidated body back"
    );
}

#[tokio::test(start_paused = true)]
async fn only_a_limited_number_of_abandoned_requests_is_completed() {
    const MOST: u32 = 256;
    let (site, completed) = (Site::of(routes()), Arc::new(AtomicU32::new(0)));
    let counted = completed.clone();
    site.renders(move |_| {
        let counted = counted.clone();
        async move {
            tokio::time::sleep(SLOW).await;
            counted.fetch_add(1, Ordering::SeqCst);
            Response::new(Full::default())
        }
    });
    for number in 0..MOST + 10 {
        let path = format!("/{number}");
        let mut request = Box::pin(site.send("POST", &path, &[]));
        assert!(futures_util::poll!(&mut request).is_pending(), "the origin is slow");
    }
    assert!(site.isr.shut_down(2 * SLOW).await, "they end");
    assert_eq!(completed.load(Ordering::SeqCst), MOST);
}

#[tokio::test(start_paused = true)]
async fn a_hard_invalidated_response_is_not_revalidated() {
    let site = Site::of(routes());
    changes(&site, |_| false);
    for (strength, conditional) in [(InvalidationMode::Soft, true), (InvalidationMode::Hard, false)] {
        site.get("/a").await;
        site.isr.invalidate(&page(&site, "/a"), strength).await.expect("a table");
        site.requests();
        assert_eq!(site.get("/a").await.state(), "miss");
        let requests = site.requests();
        assert_eq!(requests[0].headers().contains_key("if-none-match"), conditional, "{strength:?}");
        tokio::time::advance(SLOW).await;
    }
}

#[tokio::test(start_paused = true)]
async fn tags_of_a_304_or_of_a_new_rule_invalidate_a_page() {
    for tag in ["blog", "news", "old"] {
        let route = || Route::follow_origin("/{*path}");
        let site = Site::with([route()]);
        site.responds(
            200,
            &[("cache-control", "max-age=60"), ("etag", "\"a\""), ("cache-tag", "old")],
            "page",
        );
        site.get("/a").await;
        let site = site.with_routes(Routes::new([route().tags(["blog"])]).expect("routes"));
        site.responds(304, &[("cache-control", "max-age=60"), ("cache-tag", "news")], "");
        tokio::time::advance(61 * SECOND).await;
        site.get("/a").await;
        assert_eq!(site.get("/a").await.state(), "hit");
        site.isr.invalidate_tag(&Tag::new(tag).expect("a tag"), None).await.expect("a table");
        assert_ne!(site.get("/a").await.state(), "hit", "{tag}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_request_that_invalidates_does_not_wait_for_a_table_that_does_not_respond() {
    let site = Site::of(routes());
    changes(&site, |_| false);
    site.get("/a").await;
    site.responds(200, &[("location", "/b"), ("content-location", "/c")], "changed");
    site.table.slow_down(10_000 * SECOND);
    let began = tokio::time::Instant::now();
    site.send("POST", "/a", &[]).await;
    assert!(began.elapsed() <= SECOND / 4, "once for all three URLs: {:?}", began.elapsed());
    // This request notices the outage.
    site.get("/a").await;
    for _ in 0..3 {
        let began = tokio::time::Instant::now();
        site.send("POST", "/a", &[]).await;
        assert!(began.elapsed() < SECOND / 10, "{:?}", began.elapsed());
    }
}
