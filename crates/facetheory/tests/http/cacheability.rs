//! Which responses are cached.

use std::sync::Arc;

use bytes::Bytes;
use facetheory::protocol::{Acquire, Content, Generation, Published};
use facetheory::{Bodies, History, PageKey, PageStore, Policy, Preview, Route, Routes};
use futures_util::TryStreamExt as _;
use object_store::ObjectStore as _;
use object_store::memory::InMemory;
use tabletheory::{Scan, SystemRandom, Table as _, Timestamp};

use crate::fixture::{INTERVAL, NOW, SECOND, Site};

#[tokio::test(start_paused = true)]
async fn a_redirect_is_cached_with_its_location_and_a_404_for_a_short_time() {
    let site = Site::new();
    site.responds(301, &[("location", "/elsewhere")], "");
    assert_eq!(site.get("/moved").await.state(), "miss");
    let cached = site.get("/moved").await;
    assert_eq!((cached.status, cached.state(), cached.header("location")), (301, "hit", "/elsewhere"));
    site.responds(404, &[], "none");
    assert_eq!(site.get("/gone").await.state(), "miss");
    assert_eq!(site.get("/gone").await.status, 404);
    tokio::time::advance(10 * SECOND).await;
    assert_eq!(site.get("/gone").await.state(), "stale");
}

#[tokio::test(start_paused = true)]
async fn an_uncacheable_response_is_sent_whole_to_its_client_alone() {
    let site = Site::new();
    for (name, value) in [("set-cookie", "session=1"), ("cache-control", "private"), ("vary", "*")] {
        let path = format!("/{name}");
        let headers: &'static [(&str, &str)] = Box::leak(Box::new([(name, value)]));
        site.responds(200, headers, "yours");
        for _ in 0..2 {
            let own = site.get(&path).await;
            assert_eq!((own.status, own.state(), own.text()), (200, "bypass", "yours"), "{name}");
            assert_eq!(own.header(name), value);
            assert_eq!(
                own.header("cache-status"),
                "FaceTheory; fwd=bypass; fwd-status=200; detail=not-cacheable"
            );
        }
        assert_eq!(site.requests().len(), 2, "each request was forwarded");
    }
}

#[tokio::test(start_paused = true)]
async fn a_response_that_must_not_be_stored_leaves_neither_a_page_nor_a_body() {
    type Case = (u16, &'static [(&'static str, &'static str)], &'static str);
    const NEVER: [Case; 15] = [
        (500, &[], "an error"),
        (503, &[("cache-control", "public, max-age=60")], "an error"),
        (204, &[], ""),
        (205, &[], ""),
        (206, &[("content-range", "bytes 0-3/10")], "part"),
        (200, &[], ""),
        (200, &[("set-cookie", "session=1")], "yours"),
        (200, &[("cache-control", "private")], "yours"),
        (200, &[("cache-control", "no-store")], "yours"),
        (200, &[("vary", "*")], "yours"),
        (200, &[("vary", "cookie")], "yours"),
        (200, &[("content-length", "10")], "short"),
        (302, &[], "nowhere"),
        (401, &[], "who are you?"),
        (403, &[], "forbidden"),
    ];
    let objects = Arc::new(InMemory::new());
    let site = Site::with_bodies(Bodies::over(objects.clone()));
    let stored = async || {
        let rows = site.table.scan(&Scan::new()).await.expect("a scan").items;
        let pages = rows.iter().filter(|row| row.key().expect("a key").sk == "META").count();
        let bodies: Vec<_> = objects.list(None).try_collect().await.expect("a list");
        (pages, bodies.len())
    };
    for (number, (status, headers, body)) in NEVER.into_iter().enumerate() {
        site.responds(status, headers, body);
        for _ in 0..2 {
            site.get(&format!("/never/{number}")).await;
            assert_eq!(stored().await, (0, 0), "{status} {headers:?} {body:?}");
        }
    }
    site.responds(200, &[], "mine");
    site.get_with("/never/authorization", &[("authorization", "Bearer secret")]).await;
    assert_eq!(stored().await, (0, 0), "a response to credentials");
    site.responds(200, &[], Bytes::from(vec![b'x'; 100_001]));
    site.get("/never/long").await;
    assert_eq!(stored().await, (0, 0), "a page over the size limit");
    site.responds(200, &[], "a page");
    site.get("/page").await;
    assert_eq!(stored().await, (1, 1), "another page is stored");
}

#[tokio::test(start_paused = true)]
async fn a_client_with_a_session_gets_its_own_response() {
    let site = Site::new();
    site.renders(|request| async move {
        let session = request.headers().contains_key("cookie");
        let (cookie, body) = if session { ("seen=1", "yours") } else { ("session=new", "who are you?") };
        let response = http::Response::builder().header("set-cookie", cookie);
        response.body(http_body_util::Full::from(body)).expect("a response")
    });
    for _ in 0..2 {
        let own = site.get_with("/account", &[("cookie", "session=mine")]).await;
        assert_eq!((own.state(), own.text(), own.header("set-cookie")), ("bypass", "yours", "seen=1"));
    }
    assert_eq!(site.get("/account").await.text(), "who are you?");
}

#[tokio::test(start_paused = true)]
async fn a_page_over_the_size_limit_is_passed_through_whole() {
    let site = Site::new();
    let long = Bytes::from(vec![b'x'; 100_001]);
    site.responds(200, &[], long.clone());
    let response = site.get("/long").await;
    assert_eq!((response.status, response.state()), (200, "bypass"));
    assert_eq!(response.body, long);
    let fits = Bytes::from(vec![b'x'; 100_000]);
    site.responds(200, &[], fits.clone());
    let cached = site.get("/fits").await;
    assert_eq!((cached.state(), cached.body.len()), ("miss", fits.len()));
}

#[tokio::test(start_paused = true)]
async fn a_page_of_another_language_is_served_with_its_object_metadata() {
    let site = Site::new();
    let store = PageStore::new(site.table.clone());
    let key = PageKey::new("default::example.com/{*path}?path=a").expect("a key");
    let mut content = Content::default();
    content.status = Some(203);
    content.content_type = Some("text/plain".into());
    content.headers = vec![("content-security-policy".into(), "default-src 'self'".into())];
    let stored = site.bodies.put(&key, store.now(), "theirs".into(), &content, &SystemRandom).await;
    let Acquire::Granted(lease) = store.try_acquire(&key).await.expect("no error") else { panic!("free") };
    // A row with only the attributes of the wire format.
    let bare = Generation::new(stored.expect("stored").s3_key, NOW, 60);
    let published = store.publish(&lease, &bare, None, History::Latest, None).await;
    assert_eq!(published.expect("no error"), Published::Done);
    let theirs = site.get("/a").await;
    assert_eq!((theirs.status, theirs.state(), theirs.text()), (203, "hit", "theirs"));
    assert_eq!(theirs.header("content-type"), "text/plain");
    assert_eq!(theirs.header("content-security-policy"), "default-src 'self'");
}

#[tokio::test(start_paused = true)]
async fn a_body_shorter_than_its_content_length_is_a_failed_render() {
    let site = Site::new();
    site.responds(200, &[("content-length", "10")], "short");
    let response = site.get("/a").await;
    assert_eq!((response.status, response.state()), (502, "bypass"));
    site.responds(200, &[], "whole");
    assert_eq!(site.get("/a").await.text(), "whole");
}

#[tokio::test(start_paused = true)]
async fn a_request_with_a_preview_cookie_is_forwarded() {
    let preview = Preview::new("a secret of at least thirty-two bytes").expect("a secret");
    let cookie = preview.cookie(Timestamp::from_seconds(NOW + 100), Some("/blog"));
    let routes = Routes::new([Route::new("/{*path}", Policy::every(INTERVAL))]).expect("routes");
    let site = Site::of(routes.preview(preview));
    site.responds(200, &[], "public");
    site.get("/blog/a").await;
    site.responds(200, &[("cache-control", "s-maxage=60")], "preview");
    let cookie = format!("{}={cookie}", Preview::COOKIE);
    let forwarded = site.get_with("/blog/a", &[("cookie", &cookie)]).await;
    assert_eq!((forwarded.state(), forwarded.text()), ("bypass", "preview"));
    assert_eq!(
        forwarded.header("cache-control"),
        "private, no-store",
        "no cache in front shows it to others"
    );
    assert_eq!(forwarded.header("cache-status"), "FaceTheory; fwd=bypass; fwd-status=200; detail=preview");
    assert_eq!(site.get("/blog/a").await.text(), "public", "other clients get the cached page");
    tokio::time::advance(100 * SECOND).await;
    assert_eq!(site.get_with("/blog/a", &[("cookie", &cookie)]).await.state(), "stale", "it has expired");
}

#[tokio::test(start_paused = true)]
async fn an_uncacheable_response_has_no_hop_by_hop_headers_and_keeps_cache_status() {
    let site = Site::new();
    let headers = &[
        ("cache-control", "private"),
        ("connection", "x-hop"),
        ("x-hop", "1"),
        ("keep-alive", "timeout=5"),
        ("cache-status", "Origin; hit"),
    ];
    site.responds(200, headers, "yours");
    let own = site.get("/a").await;
    assert_eq!((own.header("connection"), own.header("x-hop"), own.header("keep-alive")), ("", "", ""));
    assert_eq!(own.headers.get_all("cache-status").iter().count(), 2, "ours comes after theirs");
}

#[tokio::test(start_paused = true)]
async fn new_pages_over_the_limit_are_served_but_not_cached() {
    let routes = Routes::new([Route::new("/{*path}", Policy::every(INTERVAL))]).expect("routes");
    let site = Site::under(routes, |layer| layer.new_pages_per_second(3));
    let mut states = Vec::new();
    for number in 0..5 {
        states.push(site.get(&format!("/page?{number}")).await.state().to_owned());
    }
    assert_eq!(states, ["miss", "miss", "miss", "bypass", "bypass"]);
    assert_eq!(site.get("/page?0").await.state(), "hit", "it was there before");
    assert_eq!(site.get("/page?4").await.state(), "bypass");
    tokio::time::advance(INTERVAL).await;
    assert_eq!(site.get("/page?1").await.state(), "stale");
    site.settle().await;
    assert_eq!(site.get("/page?1").await.state(), "hit", "a regeneration does not count as a new page");
    assert_eq!(site.get("/page?9").await.state(), "miss", "there is room again");
}

#[tokio::test(start_paused = true)]
async fn a_page_that_the_origin_declines_twice_in_a_row_is_not_served_again() {
    let nothing: &[(&str, &str)] = &[];
    for (status, headers) in [
        (401, nothing),
        (403, nothing),
        (451, nothing),
        (200, &[("cache-control", "private")]),
        (200, &[("cache-control", "no-store")]),
        (200, &[("set-cookie", "session=1")]),
    ] {
        let routes = Routes::new([Route::new("/{*path}", Policy::every(INTERVAL))]).expect("routes");
        let site = Site::of(routes.clone());
        let other = site.another(routes);
        site.responds(200, &[], "public");
        assert_eq!((site.get("/a").await.state(), other.get("/a").await.state()), ("miss", "hit"));
        tokio::time::advance(INTERVAL).await;
        site.responds(status, headers, "no longer public");
        // A second such response within ten seconds may be the same mistake.
        for pause in [2 * SECOND, 10 * SECOND, 2 * SECOND] {
            let stale = site.get("/a").await;
            assert_eq!((stale.state(), stale.text()), ("stale", "public"), "{status}: it may be a mistake");
            site.settle().await;
            tokio::time::advance(pause).await;
        }
        for process in [&site, &other] {
            let own = process.get("/a").await;
            assert_eq!(
                (own.status, own.state(), own.text()),
                (status, "bypass", "no longer public"),
                "{headers:?}"
            );
        }
        tokio::time::advance(5 * SECOND).await;
        site.responds(200, &[], "public again");
        assert_eq!(site.get("/a").await.state(), "miss");
        assert_eq!(other.get("/a").await.text(), "public again");
    }
}

#[tokio::test(start_paused = true)]
async fn a_single_uncacheable_response_does_not_drop_a_page() {
    let site = Site::new();
    for text in ["one", "two", "three"] {
        site.responds(200, &[], text);
        site.get("/a").await;
        site.settle().await;
        assert_eq!((site.get("/a").await.state(), site.get("/a").await.text()), ("hit", text));
        tokio::time::advance(INTERVAL).await;
        site.responds(403, &[], "a mistake");
        assert_eq!(site.get("/a").await.state(), "stale");
        site.settle().await;
        tokio::time::advance(2 * SECOND).await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_page_that_outgrows_the_size_limit_stays_cached() {
    let site = Site::new();
    site.responds(200, &[], "short");
    site.get("/a").await;
    tokio::time::advance(INTERVAL).await;
    site.responds(200, &[], vec![b'x'; 100_001]);
    for _ in 0..4 {
        assert_eq!(site.get("/a").await.text(), "short");
        site.settle().await;
        tokio::time::advance(INTERVAL).await;
    }
    assert!(site.requests().len() > 2);
}

#[tokio::test(start_paused = true)]
async fn an_uncacheable_response_is_for_the_whole_request() {
    let site = Site::new();
    site.renders(|request| async move {
        let language =
            request.headers().get("accept-language").map_or("none", |value| value.to_str().expect("a text"));
        let response = http::Response::builder().header("vary", "accept-language");
        response.body(http_body_util::Full::from(language.to_owned())).expect("a response")
    });
    for _ in 0..2 {
        let own = site.get_with("/a", &[("accept-language", "de")]).await;
        assert_eq!((own.state(), own.text()), ("bypass", "de"));
    }
    site.renders(|request| async move {
        let known = request.headers().get("x-api-key").is_some_and(|key| key == "right");
        let response = http::Response::builder().status(if known { 200 } else { 401 });
        let response = response.header("cache-control", "private");
        response
            .body(http_body_util::Full::from(if known { "yours" } else { "who are you?" }))
            .expect("a response")
    });
    for _ in 0..3 {
        let own = site.get_with("/b", &[("x-api-key", "right")]).await;
        assert_eq!((own.status, own.text()), (200, "yours"));
        assert_eq!(site.get("/b").await.status, 401, "it is not sent to others");
        tokio::time::advance(5 * SECOND).await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_request_is_forwarded_again_only_if_the_response_may_differ() {
    let site = Site::new();
    site.responds(200, &[("cache-control", "private")], "yours");
    assert_eq!(site.get("/a").await.text(), "yours");
    assert_eq!(site.requests().len(), 1);
    assert_eq!(site.get_with("/some/a", &[("accept-language", "de")]).await.text(), "yours");
    assert_eq!(site.requests().len(), 1, "the route lists that header");
    assert_eq!(site.get("/some/b?page=1&draft=1").await.text(), "yours");
    assert_eq!(site.requests().len(), 2, "the route does not list that parameter");
    site.responds(200, &[], vec![b'x'; 100_001]);
    assert_eq!(site.get_with("/b", &[("accept-language", "de")]).await.body.len(), 100_001);
    assert_eq!(site.requests().len(), 1, "it is too long for everyone");
}
