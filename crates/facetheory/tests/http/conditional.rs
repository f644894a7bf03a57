//! HEAD, conditional requests and ranges, served from the cached page.

use facetheory::{InvalidationMode, PageKey, Policy, Route, Routes, Tag};
use http::Response;
use http_body_util::Full;

use crate::fixture::{INTERVAL, SECOND, Site};

#[tokio::test(start_paused = true)]
async fn a_client_that_has_the_page_gets_304() {
    let site = Site::new();
    site.responds(
        200,
        &[
            ("etag", "\"v1\""),
            ("last-modified", "Tue, 14 Nov 2023 22:00:00 GMT"),
            ("vary", "accept-encoding"),
        ],
        "one",
    );
    site.get("/a").await;
    for (name, value, status) in [
        ("if-none-match", "\"v1\"", 304),
        ("if-none-match", "W/\"v1\"", 304),
        ("if-none-match", "\"v0\", \"v1\"", 304),
        ("if-none-match", "*", 304),
        ("if-none-match", "\"v2\"", 200),
        ("if-modified-since", "Tue, 14 Nov 2023 22:00:00 GMT", 304),
        ("if-modified-since", "Tue, 14 Nov 2023 21:59:59 GMT", 200),
        ("if-match", "\"v2\"", 412),
        ("if-match", "\"v1\"", 200),
    ] {
        for method in ["GET", "HEAD"] {
            let response = site.send(method, "/a", &[(name, value)]).await;
            assert_eq!(response.status, status, "{method} {name}: {value}");
            if status == 304 {
                assert!(response.body.is_empty() && response.header("content-type").is_empty());
                assert_eq!((response.header("etag"), response.header("vary")), ("\"v1\"", "accept-encoding"));
                assert_eq!((response.state(), response.header("age")), ("hit", "0"));
                assert_eq!(
                    (response.header("content-length"), response.size_hint),
                    ("", None),
                    "its length is not zero"
                );
            }
            if status == 412 {
                assert_eq!(
                    (response.header("cache-control"), response.header("age"), response.header("etag")),
                    ("no-store", "", ""),
                    "no cache in front may store it"
                );
            }
        }
    }
    assert_eq!(site.requests().len(), 1);
}

#[tokio::test(start_paused = true)]
async fn head_gets_everything_but_the_body_and_fills_the_cache() {
    let site = Site::new();
    site.responds(200, &[("content-type", "text/html")], "hello");
    let head = site.send("HEAD", "/a", &[]).await;
    assert_eq!((head.status, head.state(), head.header("content-length")), (200, "miss", "5"));
    assert!(head.body.is_empty());
    assert_eq!(site.requests()[0].method(), "GET", "HEAD is rendered as GET");
    assert_eq!(site.get("/a").await.state(), "hit");
}

#[tokio::test(start_paused = true)]
async fn one_range_of_a_page_is_served() {
    let site = Site::new();
    site.responds(200, &[("etag", "\"v1\"")], "0123456789");
    site.get("/a").await;
    for (range, status, content_range, body) in [
        ("bytes=0-3", 206, "bytes 0-3/10", "0123"),
        ("bytes=-2", 206, "bytes 8-9/10", "89"),
        ("bytes=5-", 206, "bytes 5-9/10", "56789"),
        ("bytes=20-", 416, "bytes */10", ""),
        ("bytes=0-1,3-4", 200, "", "0123456789"),
        ("lines=1-2", 200, "", "0123456789"),
    ] {
        let response = site.get_with("/a", &[("range", range)]).await;
        assert_eq!(
            (response.status, response.header("content-range"), response.text()),
            (status, content_range, body),
            "{range}"
        );
        assert_eq!(response.header("content-length"), body.len().to_string());
        let is_cacheable_in_front = response.header("cache-control") != "no-store";
        assert_eq!(is_cacheable_in_front, status != 416, "{range}: an error is for one client alone");
    }
    let same = site.get_with("/a", &[("range", "bytes=0-3"), ("if-range", "\"v1\"")]).await;
    assert_eq!(same.status, 206);
    let other = site.get_with("/a", &[("range", "bytes=0-3"), ("if-range", "\"v0\"")]).await;
    assert_eq!((other.status, other.text()), (200, "0123456789"));
}

#[tokio::test(start_paused = true)]
async fn a_regeneration_revalidates_and_transfers_no_body_if_nothing_changed() {
    let site = Site::new();
    let headers = [("etag", "\"v1\""), ("last-modified", "Tue, 14 Nov 2023 22:00:00 GMT"), ("x-end", "1")];
    site.responds(200, &headers, "one");
    site.get("/a").await;
    site.requests();
    site.responds(304, &[("etag", "\"v1\"")], "");
    tokio::time::advance(INTERVAL).await;
    assert_eq!(site.get("/a").await.state(), "stale");
    site.settle().await;
    let requests = site.requests();
    assert_eq!(requests.len(), 1);
    assert_eq!(requests[0].headers()["if-none-match"], "\"v1\"");
    assert_eq!(requests[0].headers()["if-modified-since"], "Tue, 14 Nov 2023 22:00:00 GMT");
    let regenerated = site.get("/a").await;
    assert_eq!((regenerated.state(), regenerated.text(), regenerated.header("x-end")), ("hit", "one", "1"));
    assert_eq!(regenerated.header("age"), "0");
    tokio::time::advance(30 * SECOND).await;
    assert_eq!(site.get("/a").await.state(), "hit");
}

#[tokio::test(start_paused = true)]
async fn head_of_an_uncached_page_announces_the_whole_length_or_nothing() {
    let site = Site::new();
    site.responds(200, &[("cache-control", "private")], "yours");
    let head = site.send("HEAD", "/a", &[]).await;
    assert_eq!((head.state(), head.header("content-length"), head.size_hint), ("bypass", "5", Some(5)));
    assert!(head.body.is_empty());
}

/// An origin that sends 304 to conditional requests, with these headers from the second response on.
fn tagged(site: &Site, headers: &'static [(&'static str, &'static str)]) {
    site.renders(move |request| async move {
        let is_conditional = request.headers().contains_key("if-none-match");
        let mut response =
            Response::builder().status(if is_conditional { 304 } else { 200 }).header("etag", "\"v1\"");
        for (name, value) in headers {
            response = response.header(*name, *value);
        }
        response.body(Full::from(if is_conditional { "" } else { "one" })).expect("a response")
    });
}

#[tokio::test(start_paused = true)]
async fn an_unchanged_page_that_is_no_longer_cacheable_is_dropped() {
    for forbidden in ["no-store", "private", "no-cache", "s-maxage=0"] {
        let site = Site::new();
        tagged(&site, &[]);
        site.get("/a").await;
        tagged(&site, Box::leak(Box::new([("cache-control", forbidden)])));
        tokio::time::advance(INTERVAL).await;
        for pause in [10 * SECOND, 2 * SECOND] {
            assert_eq!(site.get("/a").await.state(), "stale", "{forbidden}");
            site.settle().await;
            tokio::time::advance(pause).await;
        }
        let own = site.get("/a").await;
        let cache_control = own.header("cache-control");
        assert_eq!(
            (own.state(), own.text(), cache_control),
            ("bypass", "one", forbidden),
            "the origin sent it twice"
        );
    }
}

#[tokio::test(start_paused = true)]
async fn a_page_of_another_deployment_is_fetched_again_not_revalidated() {
    let old = Site::new().deployed("v1");
    tagged(&old, &[]);
    old.get("/a").await;
    let new = old.deployed("v2");
    assert_eq!(new.get("/a").await.state(), "stale");
    new.settle().await;
    let has_condition = |site: &Site| {
        let requests = site.requests();
        assert_eq!(requests.len(), 1);
        requests[0].headers().contains_key("if-none-match")
    };
    assert!(!has_condition(&new), "its tag says nothing of new templates");
    assert_eq!(new.get("/a").await.state(), "hit");
    tokio::time::advance(INTERVAL).await;
    assert_eq!(new.get("/a").await.state(), "stale");
    new.settle().await;
    assert!(has_condition(&new));
    assert_eq!(new.get("/a").await.state(), "hit", "it is still of this one");
}

#[tokio::test(start_paused = true)]
async fn a_hard_invalidated_page_is_not_revalidated() {
    let site = Site::new();
    tagged(&site, &[]);
    site.get("/a").await;
    site.requests();
    let page = PageKey::new("default::example.com/{*path}?path=a").expect("a key");
    site.isr.invalidate(&page, InvalidationMode::Hard).await.expect("no error");
    assert_eq!(site.get("/a").await.state(), "miss");
    let requests = site.requests();
    assert_eq!(requests.len(), 1);
    assert!(
        !requests[0].headers().contains_key("if-none-match"),
        "a 304 would bring the invalidated body back"
    );
}

#[tokio::test(start_paused = true)]
async fn an_unchanged_page_has_the_tags_of_its_route_and_of_the_304() {
    for (tags, headers, tag) in [
        (&["blog"][..], &[][..], "blog"),
        (&[][..], &[("surrogate-key", "news")][..], "news"),
        (&["blog"][..], &[("cache-tag", "news")][..], "old"),
    ] {
        let site = Site::new();
        tagged(&site, &[("surrogate-key", "old")]);
        site.get("/a").await;
        tokio::time::advance(INTERVAL).await;
        let route = Route::new("/{*path}", Policy::every(INTERVAL)).tags(tags.iter().copied());
        let site = site.with_routes(Routes::new([route]).expect("routes"));
        tagged(&site, headers);
        assert_eq!(site.get("/a").await.state(), "stale");
        site.settle().await;
        assert_eq!(site.get("/a").await.state(), "hit");
        site.isr.invalidate_tag(&Tag::new(tag).expect("a tag"), None).await.expect("no error");
        assert_eq!(site.get("/a").await.state(), "stale", "{tag}");
    }
}

#[tokio::test(start_paused = true)]
async fn an_unchanged_page_has_the_headers_of_the_304() {
    let site = Site::new();
    tagged(&site, &[("x-seen", "once"), ("x-end", "1"), ("content-type", "text/html")]);
    site.get("/a").await;
    tokio::time::advance(INTERVAL).await;
    tagged(&site, &[("x-seen", "twice"), ("content-type", "text/plain"), ("content-length", "0")]);
    site.get("/a").await;
    site.settle().await;
    let page = site.get("/a").await;
    assert_eq!((page.state(), page.text()), ("hit", "one"));
    assert_eq!((page.header("x-seen"), page.header("x-end")), ("twice", "1"));
    assert_eq!(page.header("content-type"), "text/html", "no bytes came that it could be of");
}

#[tokio::test(start_paused = true)]
async fn an_unchanged_page_that_now_varies_on_an_unlisted_header_is_not_cached() {
    let site = Site::new();
    tagged(&site, &[]);
    site.get("/a").await;
    tokio::time::advance(INTERVAL).await;
    tagged(&site, &[("vary", "accept-language")]);
    for pause in [10 * SECOND, 2 * SECOND] {
        assert_eq!(site.get("/a").await.state(), "stale");
        site.settle().await;
        tokio::time::advance(pause).await;
    }
    assert_eq!(site.get("/a").await.state(), "bypass");
}

#[tokio::test(start_paused = true)]
async fn tags_that_change_at_each_regeneration_do_not_accumulate() {
    let site = Site::new();
    tagged(&site, &[]);
    site.get("/a").await;
    for number in 0..100 {
        let tag: &'static str = Box::leak(format!("tag-{number}").into());
        tagged(&site, Box::leak(Box::new([("cache-tag", tag)])));
        tokio::time::advance(INTERVAL).await;
        site.get("/a").await;
        site.settle().await;
    }
    let page = PageKey::new("default::example.com/{*path}?path=a").expect("a key");
    let meta = site.isr.lookup(&page).await.expect("no error").meta.expect("a page");
    let tags = meta.generation.content.tags;
    assert!(tags.len() == 64 && tags.contains(&"tag-99".to_owned()), "{tags:?}");
}

#[tokio::test(start_paused = true)]
async fn a_regeneration_revalidates_by_date_if_the_origin_has_no_entity_tag() {
    const DATE: &str = "Tue, 14 Nov 2023 22:00:00 GMT";
    let site = Site::new();
    for (path, headers, tag, date) in [
        ("/dated", &[("last-modified", DATE)][..], false, true),
        ("/tagged", &[("etag", "\"v1\""), ("last-modified", DATE)][..], true, true),
        ("/neither", &[][..], true, false),
    ] {
        site.responds(200, headers, "one");
        site.get(path).await;
        tokio::time::advance(INTERVAL).await;
        site.requests();
        site.get(path).await;
        site.settle().await;
        let requests = site.requests();
        let has = |name: &str| requests[0].headers().contains_key(name);
        assert_eq!((has("if-none-match"), has("if-modified-since")), (tag, date), "{path}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_304_can_change_how_long_the_page_is_fresh() {
    let site = Site::new();
    site.responds(200, &[("etag", "\"v1\"")], "one");
    site.get("/a").await;
    assert_eq!(after_a_304_with_s_maxage(&site).await, "public, max-age=0, s-maxage=5");
}

/// The `Cache-Control` for clients after a 304 response with `s-maxage=5`.
async fn after_a_304_with_s_maxage(site: &Site) -> String {
    site.responds(304, &[("cache-control", "s-maxage=5")], "");
    tokio::time::advance(INTERVAL).await;
    site.get("/a").await;
    site.settle().await;
    site.get("/a").await.header("cache-control").to_owned()
}

#[tokio::test(start_paused = true)]
async fn a_fixed_interval_ignores_s_maxage() {
    let route = Route::new("/{*path}", Policy::every(INTERVAL)).fixed_interval();
    let site = Site::with([route]);
    site.responds(200, &[("etag", "\"v1\""), ("cache-control", "s-maxage=5")], "one");
    assert_eq!(site.get("/a").await.header("cache-control"), "public, max-age=0, s-maxage=60");
    assert_eq!(after_a_304_with_s_maxage(&site).await, "public, max-age=0, s-maxage=60");
}

#[tokio::test(start_paused = true)]
async fn ranges_apply_to_get_and_to_successful_pages_only() {
    let site = Site::new();
    site.responds(200, &[], "0123456789");
    let head = site.send("HEAD", "/a", &[("range", "bytes=0-3")]).await;
    assert_eq!((head.status, head.header("content-length")), (200, "10"));
    site.responds(404, &[], "there is none");
    let none = site.get_with("/b", &[("range", "bytes=0-3")]).await;
    assert_eq!((none.status, none.text()), (404, "there is none"));
}

#[tokio::test(start_paused = true)]
async fn an_invalid_entity_tag_is_replaced_by_one_of_the_digest() {
    let site = Site::new();
    site.responds(200, &[("etag", "\"a\" b")], "one");
    let page = site.get("/a").await;
    assert_eq!(page.header("etag").len(), 34, "{}", page.header("etag"));
}
