//! Routes that follow their origin's headers: storing, selecting, revalidating and invalidating.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use bytes::Bytes;
use facetheory::{OriginUnreachable, Policy, Query, RequestOrigin, Route, Routes};
use futures_util::future::join_all;
use http::{Request, Response};
use http_body_util::Full;
use tabletheory::Faults;

use crate::fixture::{INTERVAL, ReceivedResponse, SECOND, Site};

fn site() -> Site {
    Site::of(Routes::new([]).expect("no routes").otherwise_follow_origin())
}

/// An origin that responds with the value of a request header, and varies on it.
fn speaks(site: &Site, vary: &'static str) {
    site.renders(move |request: Request<Full<Bytes>>| {
        let language =
            request.headers().get("x-language").map_or("none", |value| value.to_str().expect("text"));
        let response = Response::builder()
            .header("cache-control", "max-age=60")
            .header("vary", vary)
            .body(Full::from(language.to_owned()))
            .expect("a response");
        async move { response }
    });
}

#[tokio::test(start_paused = true)]
async fn a_response_is_fresh_for_as_long_as_its_origin_says() {
    let site = site();
    site.responds(200, &[("cache-control", "max-age=60"), ("x-own", "1")], "page");
    let first = site.get("/a").await;
    assert_eq!((first.state(), first.header("x-own"), first.header("age")), ("miss", "1", ""));
    assert_eq!(first.header("cache-control"), "max-age=60", "as its origin sent it");
    tokio::time::advance(59 * SECOND).await;
    let second = site.get("/a").await;
    assert_eq!((second.state(), second.header("age")), ("hit", "59"));
    tokio::time::advance(SECOND).await;
    assert_eq!(site.get("/a").await.state(), "miss");
    assert_eq!(site.requests().len(), 2);
}

#[tokio::test(start_paused = true)]
async fn the_origin_sees_the_whole_request_except_conditions() {
    let site = site();
    site.responds(200, &[("cache-control", "max-age=60"), ("etag", "\"a\"")], "page");
    let lines = [("cookie", "a=1"), ("x-own", "2"), ("if-none-match", "\"a\"")];
    assert_eq!(site.get_with("/a?b=c", &lines).await.status, 304, "the cache evaluates the condition");
    let request = &site.requests()[0];
    assert_eq!(request.uri(), "/a?b=c");
    assert_eq!(
        (&request.headers()["cookie"], &request.headers()["x-own"]),
        (&"a=1".parse().expect("text"), &"2".parse().expect("text"))
    );
    assert!(!request.headers().contains_key("if-none-match"));
}

#[tokio::test(start_paused = true)]
async fn the_origin_knows_whether_a_client_waits() {
    let site = site();
    site.responds(200, &[("cache-control", "max-age=60, stale-while-revalidate=60")], "page");
    assert_eq!(site.get("/a").await.state(), "miss");
    tokio::time::advance(61 * SECOND).await;
    assert_eq!(site.get("/a").await.state(), "stale");
    site.settle().await;
    site.send("POST", "/a", &[]).await;
    let requests: Vec<_> =
        site.requests().iter().map(|request| request.extensions().get().copied()).collect();
    assert_eq!(requests, [RequestOrigin::Client, RequestOrigin::Background, RequestOrigin::Client].map(Some));
}

#[tokio::test(start_paused = true)]
async fn an_upgrade_request_is_passed_through() {
    let site = site();
    site.responds(200, &[("cache-control", "max-age=60")], "page");
    for (protocol, connection, state) in [
        ("foo", "upgrade", "bypass"),
        ("foo/1", "keep-alive, Upgrade", "bypass"),
        // Not an upgrade, and an optional one that many clients send.
        ("foo", "keep-alive", "miss"),
        ("h2c", "Upgrade, HTTP2-Settings", "hit"),
    ] {
        let response = site.get_with("/a", &[("upgrade", protocol), ("connection", connection)]).await;
        assert_eq!(response.state(), state, "{protocol} {connection}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_304_freshens_a_stored_response_and_updates_its_headers() {
    let site = site();
    site.responds(
        200,
        &[("cache-control", "max-age=60"), ("etag", "\"a\""), ("x-own", "1"), ("x-old", "1")],
        "page",
    );
    site.get("/a").await;
    tokio::time::advance(60 * SECOND).await;
    site.requests();
    site.responds(304, &[("cache-control", "max-age=90"), ("x-own", "2")], "");
    let validated = site.get("/a").await;
    assert_eq!((validated.status, validated.text()), (200, "page"));
    assert_eq!((validated.header("x-own"), validated.header("x-old")), ("2", "1"));
    let key = "key=\"default::example.com*?path=%2Fa\"";
    let cache_status = format!("FaceTheory; fwd=stale; fwd-status=304; stored; ttl=90; {key}");
    assert_eq!(validated.header("cache-status"), cache_status);
    assert_eq!(site.requests()[0].headers()["if-none-match"], "\"a\"");
    tokio::time::advance(89 * SECOND).await;
    assert_eq!(site.get("/a").await.header("cache-status"), format!("FaceTheory; hit; ttl=1; {key}"));
}

#[tokio::test(start_paused = true)]
async fn an_origin_may_take_as_long_as_the_fetch_timeout() {
    let routes = || Routes::new([]).expect("no routes").otherwise_follow_origin();
    let usual = Site::of(routes());
    let patient = Site::under(routes(), |layer| layer.fetch_timeout(600 * SECOND));
    for (site, status) in [(usual, 502), (patient, 200)] {
        site.renders(|_| async {
            tokio::time::sleep(130 * SECOND).await;
            Response::builder()
                .header("cache-control", "max-age=60")
                .body(Full::from("page"))
                .expect("a response")
        });
        assert_eq!(site.get("/slow").await.status, status);
    }
}

#[tokio::test(start_paused = true)]
async fn variants_are_selected_by_the_headers_in_vary() {
    let site = site();
    speaks(&site, "X-Language");
    for language in ["de", "fr", "it"] {
        let line = [("x-language", language), ("x-other", language)];
        assert_eq!(site.get_with("/a", &line).await.text(), language);
        assert_eq!(site.get_with("/a", &[("x-language", language)]).await.state(), "hit");
    }
    assert_eq!(site.get("/a").await.text(), "none");
    assert_eq!(site.requests().len(), 4);
    assert!(
        site.get_with("/a", &[("x-language", "es")]).await.header("cache-status").contains("fwd=vary-miss")
    );
}

#[tokio::test(start_paused = true)]
async fn the_least_used_variants_over_the_limit_are_evicted() {
    let routes = Routes::new([]).expect("no routes").otherwise_follow_origin();
    let site = Site::under(routes, |layer| layer.variants_per_page(3));
    speaks(&site, "X-Language");
    let state = async |language: &str| {
        let response = site.get_with("/a", &[("x-language", language)]).await;
        assert_eq!(response.text(), language);
        response.state().to_owned()
    };
    for language in ["1", "2"] {
        assert_eq!([state(language).await, state(language).await], ["miss", "hit"]);
    }
    for language in ["3", "4", "5"] {
        assert_eq!(state(language).await, "miss");
    }
    // Others evict one that was not requested again.
    for language in ["1", "2", "5"] {
        assert_eq!(state(language).await, "hit", "{language}");
    }
    for language in ["3", "4"] {
        assert_eq!(state(language).await, "miss", "{language}");
    }
}

#[tokio::test(start_paused = true)]
async fn responses_that_are_not_stored_evict_no_variant() {
    let routes = Routes::new([]).expect("no routes").otherwise_follow_origin();
    let site = Site::under(routes, |layer| layer.variants_per_page(3));
    site.renders(|request: Request<Full<Bytes>>| {
        let language = request.headers().get("x-language").map_or("", |value| value.to_str().expect("text"));
        let control = if language.starts_with("private") { "private" } else { "max-age=60" };
        let response = Response::builder().header("cache-control", control).header("vary", "X-Language");
        let response = response.body(Full::from("the page")).expect("a response");
        async move { response }
    });
    let state =
        async |language: &str| site.get_with("/a", &[("x-language", language)]).await.state().to_owned();
    for language in ["0", "1", "2"] {
        assert_eq!(state(language).await, "miss");
    }
    for number in 0..10 {
        state(&format!("private-{number}")).await;
    }
    for language in ["0", "1", "2"] {
        assert_eq!(state(language).await, "hit", "{language}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_successful_unsafe_request_invalidates_all_variants_and_its_locations() {
    let site = site();
    speaks(&site, "X-Language");
    let languages = ["de", "fr"];
    let fetched = async |path: &str| {
        for language in languages {
            site.get_with(path, &[("x-language", language)]).await;
        }
        site.requests().len()
    };
    assert_eq!((fetched("/a").await, fetched("/b").await, fetched("/c").await), (2, 2, 2));
    assert_eq!((fetched("/a").await, fetched("/b").await, fetched("/c").await), (0, 0, 0));

    site.responds(500, &[("location", "/b")], "no");
    site.send("POST", "/a", &[]).await;
    site.responds(201, &[("location", "/b")], "yes");
    site.requests();
    assert_eq!(fetched("/a").await, 0, "it failed");
    site.send("POST", "/a", &[]).await;
    site.requests();
    speaks(&site, "X-Language");
    assert_eq!((fetched("/a").await, fetched("/b").await, fetched("/c").await), (2, 2, 0));
}

#[tokio::test(start_paused = true)]
async fn a_response_that_becomes_cacheable_is_cached_soon() {
    let site = site();
    site.responds(200, &[("cache-control", "no-store")], "own");
    for _ in 0..3 {
        assert_eq!(site.get("/a").await.state(), "bypass");
    }
    site.responds(200, &[("cache-control", "max-age=60")], "page");
    let states: Vec<String> = [site.get("/a").await, site.get("/a").await, site.get("/a").await]
        .iter()
        .map(|response| response.state().to_owned())
        .collect();
    assert_eq!(states, ["bypass", "miss", "hit"]);
}

/// The number of concurrent requests.
const MANY: usize = 100;

/// An origin that takes a second for each response, with this status and these headers, and numbers its responses.
fn takes_a_second(site: &Site, status: u16, headers: &'static [(&'static str, &'static str)]) {
    let count = Arc::new(AtomicUsize::new(0));
    site.renders(move |_| {
        let number = count.fetch_add(1, Ordering::Relaxed) + 1;
        let mut response = Response::builder().status(status);
        for (name, value) in headers {
            response = response.header(*name, *value);
        }
        let response = response.body(Full::from(number.to_string())).expect("a response");
        async move {
            tokio::time::sleep(SECOND).await;
            response
        }
    });
}

#[tokio::test(start_paused = true)]
async fn requests_that_waited_for_an_unshareable_response_are_forwarded_together() {
    for headers in [
        &[("cache-control", "no-cache"), ("etag", "\"a\"")][..],
        &[("cache-control", "max-age=0, must-revalidate"), ("etag", "\"a\"")],
        &[("etag", "\"a\"")],
    ] {
        let (site, began) = (site(), tokio::time::Instant::now());
        takes_a_second(&site, 200, headers);
        let responses = join_all((0..MANY).map(|_| site.get("/a"))).await;
        let texts: BTreeSet<&str> = responses.iter().map(ReceivedResponse::text).collect();
        assert_eq!((texts.len(), site.requests().len()), (MANY, MANY), "{headers:?}");
        assert!(began.elapsed() < 3 * SECOND, "they waited for one, and then for themselves: {headers:?}");
        site.get("/a").await;
        assert_eq!(site.requests()[0].headers()["if-none-match"], "\"a\"", "a single request revalidates");
    }
}

#[tokio::test(start_paused = true)]
async fn an_overloaded_origin_does_not_get_all_requests_that_waited() {
    for status in [502, 503, 504] {
        let site = site();
        site.responds(200, &[("cache-control", "max-age=60"), ("etag", "\"a\"")], "page");
        site.get("/a").await;
        tokio::time::advance(61 * SECOND).await;
        site.requests();
        takes_a_second(&site, status, &[("cache-control", "private"), ("x-own", "1")]);
        let responses = join_all((0..MANY).map(|_| site.get("/a"))).await;
        assert!(responses.iter().all(|response| response.status == status), "{status}");
        assert_eq!(site.requests().len(), 1, "{status}");
        let own = responses.iter().filter(|response| response.headers.contains_key("x-own")).count();
        assert_eq!(own, 1, "its response is for one client");
    }
}

#[tokio::test(start_paused = true)]
async fn a_failure_is_shared_unless_it_may_be_for_one_client() {
    let own = [("cookie", "sid=alice")];
    for (headers, headers_sent, requests) in [
        (&[("x-own", "1")][..], &[][..], 1),
        (&[("cache-control", "private, no-store")], &[], MANY),
        (&[("vary", "cookie")], &[], MANY),
        (&[], &own, MANY),
    ] {
        let site = site();
        site.responds(200, &[("cache-control", "max-age=60"), ("etag", "\"a\"")], "page");
        site.get("/a").await;
        tokio::time::advance(61 * SECOND).await;
        site.requests();
        takes_a_second(&site, 500, headers);
        let began = tokio::time::Instant::now();
        let responses = join_all((0..MANY).map(|_| site.get_with("/a", headers_sent))).await;
        assert!(responses.iter().all(|response| response.status == 500), "{headers:?}");
        let texts: BTreeSet<&str> = responses.iter().map(ReceivedResponse::text).collect();
        assert_eq!((texts.len(), site.requests().len()), (requests, requests), "{headers:?}");
        assert!(began.elapsed() < 3 * SECOND, "they waited for one, and then for themselves: {headers:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn requests_that_waited_share_a_response_that_may_be_reused() {
    for headers in [
        &[("cache-control", "max-age=1")][..],
        &[("cache-control", "max-age=0, stale-while-revalidate=60")],
        &[("cache-control", "max-age=60, stale-while-revalidate=60"), ("age", "100")],
    ] {
        let site = site();
        takes_a_second(&site, 200, headers);
        for response in join_all((0..MANY).map(|_| site.get("/a"))).await {
            assert_eq!(response.text(), "1", "{headers:?}");
        }
        assert_eq!(site.requests().len(), 1, "{headers:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_stale_response_is_served_while_the_origin_is_unreachable_unless_forbidden() {
    let site = site();
    site.responds(200, &[("cache-control", "max-age=60")], "page");
    site.get("/a").await;
    site.responds(200, &[("cache-control", "max-age=60, must-revalidate")], "page");
    site.get("/b").await;
    tokio::time::advance(Duration::from_secs(61)).await;
    site.responds(503, &[], "broken");
    assert_eq!(site.get("/a").await.status, 503, "a 503 of the origin is a response");
    site.renders(|_| async {
        let mut response = Response::new(Full::from("unreachable"));
        *response.status_mut() = http::StatusCode::BAD_GATEWAY;
        response.extensions_mut().insert(OriginUnreachable);
        response
    });
    let stale = site.get("/a").await;
    assert_eq!((stale.status, stale.text(), stale.state()), (200, "page", "stale-error"));
    assert_eq!(site.get("/b").await.status, 502);
}

#[tokio::test(start_paused = true)]
async fn a_range_of_an_unstored_response_is_forwarded_and_not_cached() {
    let site = site();
    site.responds(206, &[("cache-control", "max-age=60"), ("content-range", "bytes 0-1/4")], "pa");
    let part = site.get_with("/a", &[("range", "bytes=0-1")]).await;
    assert_eq!((part.status, part.text()), (206, "pa"));
    assert_eq!(site.requests()[0].headers()["range"], "bytes=0-1");
    site.responds(200, &[("cache-control", "max-age=60")], "page");
    assert_eq!(site.get("/a").await.state(), "miss");
    let part = site.get_with("/a", &[("range", "bytes=2-")]).await;
    assert_eq!((part.status, part.text(), part.state()), (206, "ge", "hit"));
}

#[tokio::test(start_paused = true)]
async fn a_rule_takes_precedence_and_a_route_can_follow_its_origin() {
    let routes = [
        Route::new("/rule/{x}", Policy::every(INTERVAL)),
        Route::follow_origin("/origin/{x}").query(Query::only(["page"])).tags(["own"]),
    ];
    let site = Site::with(routes);
    site.responds(200, &[("cache-control", "max-age=5")], "page");
    site.get("/rule/a").await;
    site.get("/origin/a?page=1&utm=2").await;
    let requests = site.requests();
    assert_eq!(requests[1].uri(), "/origin/a?page=1", "the origin gets the keyed query");
    tokio::time::advance(6 * SECOND).await;
    assert_eq!(site.get("/rule/a").await.state(), "hit");
    assert_eq!(site.get("/origin/a?page=1").await.state(), "miss");
    assert_eq!(site.get("/other").await.state(), "bypass");
}

#[tokio::test(start_paused = true)]
async fn tags_are_sent_to_clients_unless_they_are_stripped() {
    for strips in [false, true] {
        let rule = Route::new("/rule", Policy::every(INTERVAL));
        let routes = Routes::new([rule]).expect("routes").otherwise_follow_origin();
        let site = Site::under(routes, |layer| if strips { layer.strip_tags() } else { layer });
        site.responds(200, &[("cache-control", "max-age=60"), ("surrogate-key", "a b")], "page");
        for _ in 0..2 {
            assert_eq!(site.get("/a").await.header("surrogate-key").is_empty(), strips);
            assert_eq!(site.get("/rule").await.header("surrogate-key"), "", "a rule removes tag headers");
        }
        site.isr.invalidate_tag(&facetheory::Tag::new("b").expect("a tag"), None).await.expect("a table");
        assert_eq!(site.get("/a").await.state(), "miss");
    }
}

#[tokio::test(start_paused = true)]
async fn an_unsafe_request_causes_no_lookup_of_rule_pages() {
    let page = Route::new("/page", Policy::every(INTERVAL));
    let site = Site::of(Routes::new([page]).expect("routes").otherwise_follow_origin());
    assert_eq!(site.get("/page").await.state(), "miss");
    assert_eq!(site.send("POST", "/elsewhere", &[]).await.status, 200);
    site.table.set_faults(Faults { fail: 1.0, ..Faults::default() });
    assert_eq!(site.get("/page").await.state(), "hit", "it is served from memory without a lookup");
}

#[tokio::test(start_paused = true)]
async fn get_fresh_returns_pages_that_follow_their_origin_and_their_variants() {
    let site = Site::of(Routes::new([]).expect("no routes").otherwise_follow_origin());
    let get_fresh = |headers: &[(&str, &str)]| {
        let mut request = http::Request::get("/a").header("host", "example.com");
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        let (request, ()) = request.body(()).expect("a request").into_parts();
        let resolved = site.service.resolve(&request);
        let hit = site.service.get_fresh(&request, &resolved);
        hit.map(|hit| (hit.body().clone(), hit.into_response()))
    };
    for language in ["de", "en"] {
        let headers = [("cache-control", "max-age=60"), ("vary", "accept-language"), ("x-own", language)];
        site.responds(200, &headers, language);
        assert!(get_fresh(&[("accept-language", language)]).is_none(), "{language}");
        site.get_with("/a", &[("accept-language", language)]).await;
    }
    tokio::time::advance(10 * SECOND).await;
    for language in ["de", "en"] {
        // An unmet condition takes the slow path, with the same result.
        let slow = site.get_with("/a", &[("accept-language", language), ("if-none-match", "\"x\"")]).await;
        assert_eq!((slow.state(), slow.text()), ("hit", language));
        let (body, mut response) = get_fresh(&[("accept-language", language)]).expect("a hit");
        assert_eq!(body, language);
        response.headers_mut().insert("x-request-id", slow.headers["x-request-id"].clone());
        assert_eq!(*response.headers(), slow.headers, "the same either way");
        assert_eq!(response.headers()["x-own"], language);
        assert_eq!(response.headers()["age"], "10");
    }
    for other in [
        ("accept-language", "fr"),
        ("cache-control", "no-cache"),
        ("cache-control", "no-store"),
        ("cache-control", "max-age=5"),
        ("pragma", "no-cache"),
        ("connection", "accept-language"),
    ] {
        assert!(get_fresh(&[("accept-language", "de"), other]).is_none(), "{other:?}");
    }
    tokio::time::advance(51 * SECOND).await;
    assert!(get_fresh(&[("accept-language", "de")]).is_none(), "it is stale");
}

#[tokio::test(start_paused = true)]
async fn a_response_stored_by_the_origin_is_not_served_under_a_later_rule() {
    let before = Site::with([Route::follow_origin("/account")]);
    let headers = [("cache-control", "max-age=3600"), ("vary", "cookie"), ("etag", "\"alice\"")];
    before.responds(200, &headers, "the page of Alice");
    before.get_with("/account", &[("cookie", "user=alice")]).await;
    assert_eq!(before.get_with("/account", &[("cookie", "user=alice")]).await.state(), "hit");
    let rule = Routes::new([Route::new("/account", Policy::every(INTERVAL))]);
    let after = before.with_routes(rule.expect("a route"));
    after.responds(200, &[], "a page for everyone");
    let bob = after.get_with("/account", &[("cookie", "user=bob")]).await;
    assert_eq!((bob.state(), bob.text()), ("miss", "a page for everyone"));
    assert!(!after.requests()[0].headers().contains_key("if-none-match"), "a 304 would bring it back");
}
