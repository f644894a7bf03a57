//! HEAD: answered from what GET has brought, and able to tell that it is out of date. RFC 9111, section 4.3.5.

use crate::helpers::{asked, numbered, scripted};
use crate::support::origin::ScriptedResponse;
use crate::support::site::Site;

stories![
    rfc9110_9_3_2_head_is_answered_from_the_response_to_get,
    rfc9111_3_head_stores_no_empty_page,
    rfc9111_4_3_5_head_updates_a_matching_cached_response,
    rfc9111_4_3_5_head_that_sets_a_cookie_updates_nothing,
    rfc9111_4_3_5_head_invalidates_a_different_cached_response,
];

fn rfc9110_9_3_2_head_is_answered_from_the_response_to_get(site: &Site) {
    numbered(site, "/head", &["Cache-Control: max-age=3600", "ETag: \"a\"", "X-Own: 1"]);
    site.get("/head");
    let head = site.request("HEAD", "/head", "");
    let told = ["etag", "x-own", "content-length"].map(|name| head.header(name));
    assert_eq!((head.status, told), (200, [Some("\"a\""), Some("1"), Some("8")]));
    assert_eq!(asked(site, "/head"), 1);
}

fn rfc9111_3_head_stores_no_empty_page(site: &Site) {
    numbered(site, "/cold", &["Cache-Control: max-age=3600"]);
    assert_eq!(site.request("HEAD", "/cold", "").status, 200);
    for _ in 0..2 {
        let response = site.get("/cold");
        assert!(response.text().starts_with("answer"), "{}", response.text());
    }
}

/// A page that is kept, although a visitor who insists makes the origin answer HEAD with these headers.
fn headed(site: &Site, path: &str, lines: &'static [&'static str], length: usize) {
    scripted(site, path, move |request, number| match request.method.as_str() {
        "HEAD" => {
            let lines = lines.join("\r\n");
            ScriptedResponse::raw(format!("HTTP/1.1 200 OK\r\n{lines}\r\ncontent-length: {length}\r\n\r\n"))
        }
        _ => ScriptedResponse::page(
            &["Cache-Control: max-age=3600", "ETag: \"a\"", "X-Own: 1"],
            &format!("answer {number}"),
        ),
    });
    assert_eq!(site.get(path).text(), "answer 1");
}

fn rfc9111_4_3_5_head_updates_a_matching_cached_response(site: &Site) {
    headed(site, "/same", &["Cache-Control: max-age=7200", "ETag: \"a\"", "X-Own: 2"], 8);
    assert_eq!(site.request("HEAD", "/same", "Cache-Control: no-cache\r\n").status, 200);
    let gets = || site.origin.requests_for("/same").iter().filter(|request| request.method == "GET").count();
    let before = gets();
    let response = site.get("/same");
    if gets() == before {
        assert_eq!(response.text(), "answer 1");
        assert_eq!(
            (response.header("x-own"), response.header("cache-control")),
            (Some("2"), Some("max-age=7200"))
        );
    }
}

fn rfc9111_4_3_5_head_that_sets_a_cookie_updates_nothing(site: &Site) {
    let own = &["Cache-Control: max-age=7200", "ETag: \"a\"", "X-Own: 2", "Set-Cookie: sid=bob"];
    headed(site, "/own", own, 8);
    let bob = site.request("HEAD", "/own", "Cache-Control: no-cache\r\nCookie: sid=bob\r\n");
    assert_eq!((bob.header("x-own"), bob.header("set-cookie")), (Some("2"), Some("sid=bob")));
    let alice = site.get("/own");
    assert_eq!((alice.header("x-own"), alice.header("set-cookie")), (Some("1"), None));
}

fn rfc9111_4_3_5_head_invalidates_a_different_cached_response(site: &Site) {
    for (path, lines, length) in [
        ("/tag", &["Cache-Control: max-age=3600", "ETag: \"b\""][..], 8),
        ("/length", &["Cache-Control: max-age=3600", "ETag: \"a\""], 99),
    ] {
        headed(site, path, lines, length);
        assert_eq!(site.request("HEAD", path, "Cache-Control: no-cache\r\n").status, 200);
        let gets = site.origin.requests_for(path).iter().filter(|request| request.method == "GET").count();
        site.get(path);
        let now = site.origin.requests_for(path).iter().filter(|request| request.method == "GET").count();
        assert!(now > gets, "{path}: what the origin no longer has was served as fresh");
    }
}
