//! HEAD: served from a cached GET response, which it may update or invalidate. RFC 9111, section 4.3.5.

use crate::helpers::{numbered, origin_requests, scripted};
use crate::support::origin::ScriptedResponse;
use crate::support::site::Site;

on_each_store![
    rfc9110_9_3_2_head_is_served_from_the_response_to_get,
    rfc9111_3_head_stores_no_empty_page,
    rfc9111_4_3_5_head_updates_a_matching_cached_response,
    rfc9111_4_3_5_head_that_sets_a_cookie_updates_nothing,
    rfc9111_4_3_5_head_invalidates_a_different_cached_response,
];

fn rfc9110_9_3_2_head_is_served_from_the_response_to_get(site: &Site) {
    numbered(site, "/head", &["Cache-Control: max-age=3600", "ETag: \"a\"", "X-Own: 1"]);
    site.get("/head");
    let head = site.request("HEAD", "/head", "");
    let reported = ["etag", "x-own", "content-length"].map(|name| head.header(name));
    assert_eq!((head.status, reported), (200, [Some("\"a\""), Some("1"), Some("10")]));
    assert_eq!(origin_requests(site, "/head"), 1);
}

fn rfc9111_3_head_stores_no_empty_page(site: &Site) {
    numbered(site, "/cold", &["Cache-Control: max-age=3600"]);
    assert_eq!(site.request("HEAD", "/cold", "").status, 200);
    for _ in 0..2 {
        let response = site.get("/cold");
        assert!(response.text().starts_with("response"), "{}", response.text());
    }
}

/// Caches a page, then sends a HEAD with `no-cache`, to which the origin responds with these headers.
fn after_head(site: &Site, path: &str, lines: &'static [&'static str], length: usize) {
    scripted(site, path, move |request, number| match request.method.as_str() {
        "HEAD" => {
            let lines = lines.join("\r\n");
            ScriptedResponse::raw(format!("HTTP/1.1 200 OK\r\n{lines}\r\ncontent-length: {length}\r\n\r\n"))
        }
        _ => ScriptedResponse::page(
            &["Cache-Control: max-age=3600", "ETag: \"a\"", "X-Own: 1"],
            &format!("response {number}"),
        ),
    });
    assert_eq!(site.get(path).text(), "response 1");
}

fn rfc9111_4_3_5_head_updates_a_matching_cached_response(site: &Site) {
    after_head(
        site,
        "/same",
        &["Cache-Control: max-age=7200", "ETag: \"a\"", "X-Own: 2"],
        "response 1".len(),
    );
    assert_eq!(site.request("HEAD", "/same", "Cache-Control: no-cache\r\n").status, 200);
    let gets = || site.origin.requests_for("/same").iter().filter(|request| request.method == "GET").count();
    let before = gets();
    let response = site.get("/same");
    assert_eq!(gets(), before, "the updated response is still fresh");
    assert_eq!(response.text(), "response 1");
    assert_eq!(
        (response.header("x-own"), response.header("cache-control")),
        (Some("2"), Some("max-age=7200"))
    );
}

fn rfc9111_4_3_5_head_that_sets_a_cookie_updates_nothing(site: &Site) {
    let own = &["Cache-Control: max-age=7200", "ETag: \"a\"", "X-Own: 2", "Set-Cookie: sid=bob"];
    after_head(site, "/own", own, "response 1".len());
    let bob = site.request("HEAD", "/own", "Cache-Control: no-cache\r\nCookie: sid=bob\r\n");
    assert_eq!((bob.header("x-own"), bob.header("set-cookie")), (Some("2"), Some("sid=bob")));
    let alice = site.get("/own");
    assert_eq!((alice.header("x-own"), alice.header("set-cookie")), (Some("1"), None));
}

fn rfc9111_4_3_5_head_invalidates_a_different_cached_response(site: &Site) {
    for (path, lines, length) in [
        ("/tag", &["Cache-Control: max-age=3600", "ETag: \"b\""][..], "response 1".len()),
        ("/length", &["Cache-Control: max-age=3600", "ETag: \"a\""], 99),
    ] {
        after_head(site, path, lines, length);
        assert_eq!(site.request("HEAD", path, "Cache-Control: no-cache\r\n").status, 200);
        let gets = site.origin.requests_for(path).iter().filter(|request| request.method == "GET").count();
        site.get(path);
        let now = site.origin.requests_for(path).iter().filter(|request| request.method == "GET").count();
        assert!(now > gets, "{path}: an outdated response was served as fresh");
    }
}
