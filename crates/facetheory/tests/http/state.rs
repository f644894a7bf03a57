//! Every state, with its headers.

use facetheory::{CacheHint, InvalidationMode, Policy, RenderError, Rendered, Route, Tag};
use http::Response;
use http_body_util::Full;
use tabletheory::Faults;

use crate::fixture::{INTERVAL, SECOND, Site};

#[tokio::test(start_paused = true)]
async fn miss_hit_and_stale_have_their_headers() {
    let site = Site::new();
    site.responds(200, &[("content-type", "text/html"), ("x-end", "to-end")], "one");
    let miss = site.get("/a").await;
    assert_eq!((miss.status, miss.state(), miss.text()), (200, "miss", "one"));
    assert_eq!(miss.header("cache-status"), "FaceTheory; fwd=miss; fwd-status=200; stored; ttl=60");
    assert_eq!(miss.header("cache-control"), "public, max-age=0, s-maxage=60");
    tokio::time::advance(10 * SECOND).await;
    let hit = site.get("/a").await;
    assert_eq!((hit.state(), hit.text()), ("hit", "one"));
    assert_eq!(hit.header("cache-status"), "FaceTheory; hit; ttl=50");
    assert_eq!((hit.header("age"), hit.header("date")), ("10", "Tue, 14 Nov 2023 22:13:30 GMT"));
    assert_eq!((hit.header("content-type"), hit.header("x-end")), ("text/html", "to-end"));
    assert_eq!((hit.header("content-length"), hit.header("accept-ranges")), ("3", "bytes"));
    assert_eq!(hit.header("etag"), miss.header("etag"));
    assert!(hit.header("etag").starts_with('"') && hit.header("x-request-id").len() == 16);
    site.responds(200, &[], "two");
    tokio::time::advance(INTERVAL).await;
    let stale = site.get("/a").await;
    assert_eq!((stale.state(), stale.text()), ("stale", "one"));
    assert_eq!(stale.header("cache-status"), "FaceTheory; hit; ttl=-10");
    assert_eq!(stale.header("cache-control"), "public, max-age=0, s-maxage=60");
    site.settle().await;
    assert_eq!(site.get("/a").await.text(), "two");
    assert_eq!(site.requests().len(), 2);
}

#[tokio::test(start_paused = true)]
async fn requests_that_wait_for_the_same_render_are_wait_hits() {
    let site = Site::new();
    site.renders(|_| async {
        tokio::time::sleep(SECOND).await;
        Response::new(Full::from("slow"))
    });
    let (first, second) = tokio::join!(site.get("/a"), site.get("/a"));
    let states = [first.state(), second.state()];
    assert!(states == ["miss", "wait-hit"] || states == ["wait-hit", "miss"], "{states:?}");
    assert_eq!(site.requests().len(), 1);
}

#[tokio::test(start_paused = true)]
async fn a_failed_render_is_hidden_by_a_stale_page_and_otherwise_sent_to_all_who_waited() {
    let site = Site::new();
    site.responds(
        503,
        &[
            ("content-type", "text/plain"),
            ("retry-after", "5"),
            ("connection", "close, x-hop"),
            ("x-hop", "1"),
        ],
        "down",
    );
    let (first, second) = tokio::join!(site.get("/blocking/a"), site.get("/blocking/a"));
    for response in [first, second] {
        assert_eq!((response.status, response.state(), response.text()), (503, "bypass", "down"));
        assert_eq!((response.header("retry-after"), response.header("connection")), ("5", ""));
        assert_eq!(response.header("x-hop"), "", "Connection named it");
        assert_eq!(
            response.header("cache-status"),
            "FaceTheory; fwd=bypass; fwd-status=503; detail=render-failed"
        );
    }
    assert_eq!(site.requests().len(), 1, "they shared one failure");
    tokio::time::advance(INTERVAL).await;
    site.responds(200, &[], "up");
    assert_eq!(site.get("/blocking/a").await.state(), "miss");
    tokio::time::advance(INTERVAL).await;
    site.responds(500, &[], "down");
    let stale = site.get("/blocking/a").await;
    assert_eq!((stale.status, stale.state(), stale.text()), (200, "stale-error", "up"));
    assert_eq!(stale.header("cache-status"), "FaceTheory; hit; ttl=0; detail=render-failed");
}

#[tokio::test(start_paused = true)]
async fn a_failure_with_a_cookie_is_for_its_client_alone() {
    let site = Site::new();
    site.responds(500, &[("set-cookie", "session=1")], "down");
    let (first, second) = tokio::join!(site.get("/a"), site.get("/a"));
    let mut cookies = [first.header("set-cookie").len(), second.header("set-cookie").len()];
    cookies.sort_unstable();
    assert_eq!(cookies, [0, 9]);
    let other = if first.header("set-cookie").is_empty() { first } else { second };
    assert_eq!(other.status, 502);
    assert_eq!(other.text(), "the page cannot be shown now: it could not be rendered; try again later\n");
}

#[tokio::test(start_paused = true)]
async fn while_the_table_is_down_pages_are_served_from_memory_or_passed_through() {
    let site = Site::new();
    site.responds(200, &[], "one");
    site.get("/a").await;
    site.table.set_faults(Faults { fail: 1.0, ..Faults::default() });
    tokio::time::advance(2 * SECOND).await;
    let marked = site.get("/a").await;
    assert_eq!((marked.status, marked.state(), marked.text()), (200, "stale-metadata-error", "one"));
    assert_eq!(marked.header("cache-status"), "FaceTheory; hit; detail=table-unreachable");
    let passed = site.get("/b").await;
    assert_eq!((passed.status, passed.state(), passed.text()), (200, "bypass", "one"));
    assert_eq!(
        passed.header("cache-status"),
        "FaceTheory; fwd=bypass; fwd-status=200; detail=table-unreachable"
    );
}

#[tokio::test(start_paused = true)]
async fn invalidations_by_path_route_and_tag_make_pages_stale() {
    let site = Site::new();
    for tag in [Tag::path("/plain/a"), Tag::route("/plain/{*path}"), Tag::new("plain"), Ok(Tag::everything())]
    {
        let tag = tag.expect("a tag");
        site.responds(200, &[], "old");
        tokio::time::advance(INTERVAL).await;
        site.get("/plain/a/b").await;
        site.settle().await;
        tokio::time::advance(5 * SECOND).await;
        assert_eq!(site.get("/plain/a/b").await.state(), "hit", "{tag:?}");
        site.isr.invalidate_tag(&tag, None).await.expect("no error");
        let stale = site.get("/plain/a/b").await;
        assert_eq!((stale.state(), stale.header("cache-status")), ("stale", "FaceTheory; hit"), "{tag:?}");
        assert_eq!(stale.header("cache-control"), "public, max-age=0, s-maxage=5", "it is not cached");
        site.settle().await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_render_that_was_invalidated_meanwhile_is_for_its_client_alone() {
    let site = Site::new();
    let isr = site.isr.clone();
    site.renders(move |_| {
        let isr = isr.clone();
        async move {
            isr.invalidate_tag(&Tag::everything(), None).await.expect("no error");
            let key = facetheory::PageKey::new("default::example.com/{*path}?path=a").expect("a key");
            isr.invalidate(&key, InvalidationMode::Hard).await.expect("no error");
            Response::new(Full::from("before"))
        }
    });
    let own = site.get("/a").await;
    assert_eq!((own.state(), own.text(), own.header("cache-control")), ("bypass", "before", "no-store"));
    assert_eq!(own.header("cache-status"), "FaceTheory; fwd=bypass; fwd-status=200; detail=not-published");
    site.responds(200, &[], "after");
    assert_eq!(site.get("/a").await.text(), "after");
}

#[tokio::test(start_paused = true)]
async fn a_cache_hint_sets_the_interval_and_tags() {
    let site = Site::new();
    site.responds(
        200,
        &[("cache-control", "s-maxage=5"), ("surrogate-key", "a b"), ("cache-tag", "c")],
        "one",
    );
    let page = site.get("/a").await;
    assert_eq!(page.header("cache-control"), "public, max-age=0, s-maxage=5");
    assert_eq!((page.header("surrogate-key"), page.header("cache-tag")), ("", ""), "they are for us");
    let key = facetheory::PageKey::new("default::example.com/{*path}?path=a").expect("a key");
    let view = site.isr.lookup(&key).await.expect("no error");
    assert_eq!(view.meta.expect("a page").generation.content.tags, ["a", "b", "c"]);
    site.renders(|_| async {
        let mut response = Response::new(Full::from("two"));
        response.extensions_mut().insert(CacheHint::new().fresh_for(7 * SECOND));
        response
    });
    assert_eq!(site.get("/b").await.header("cache-control"), "public, max-age=0, s-maxage=7");
}

#[tokio::test(start_paused = true)]
async fn limits_of_a_policy_are_sent_to_clients() {
    let mut policy = Policy::every(INTERVAL);
    policy.stale_while_revalidate = Some(30 * SECOND);
    policy.stale_if_error = Some(300 * SECOND);
    let site = Site::with([Route::new("/{*path}", policy)]);
    let response = site.get("/a").await;
    assert_eq!(
        response.header("cache-control"),
        "public, max-age=0, s-maxage=60, stale-while-revalidate=30, stale-if-error=300"
    );
}

#[tokio::test(start_paused = true)]
async fn a_request_id_is_accepted_or_generated() {
    let site = Site::new();
    let given = site.get_with("/a", &[("x-request-id", "abc-123")]).await;
    assert_eq!(given.header("x-request-id"), "abc-123");
    let made = site.get_with("/a", &[("x-request-id", "not plain!")]).await;
    assert_eq!(made.header("x-request-id").len(), 16);
}

#[tokio::test(start_paused = true)]
async fn the_http1_head_of_a_hit_equals_its_response() {
    let site = Site::new();
    for (path, status) in [("/a", 200), ("/gone", 404)] {
        let (request, ()) = http::Request::get(path)
            .header("host", "example.com")
            .header("x-request-id", "one")
            .body(())
            .expect("a request")
            .into_parts();
        let page = site.service.page(&request).expect("a key").expect("a page");
        let rendered = async move {
            let mut rendered = Rendered::html("page");
            rendered.content.status = Some(status);
            Ok::<_, RenderError>(rendered)
        };
        let _miss = site.isr.get(&page, &Policy::every(INTERVAL), |_| rendered).await.expect("a page");
        let resolved = site.service.resolve(&request);
        let hit = || site.service.get_fresh(&request, &resolved).expect("a hit");
        let head = String::from_utf8(hit().http1_head().to_vec()).expect("a text");
        let body = hit().body().clone();
        let (response, _) = hit().into_response().into_parts();
        let mut lines = head.strip_suffix("\r\n\r\n").expect("an end").split("\r\n");
        let reason = response.status.canonical_reason().expect("a reason");
        assert_eq!(lines.next(), Some(format!("HTTP/1.1 {status} {reason}").as_str()));
        let mut lines: Vec<_> = lines.map(str::to_owned).collect();
        let response = response.headers.iter();
        let mut expected: Vec<_> =
            response.map(|(name, value)| format!("{name}: {}", value.to_str().expect("a text"))).collect();
        lines.sort_unstable();
        expected.sort_unstable();
        assert_eq!(lines, expected, "{path}");
        assert_eq!(body, "page");
    }
}
