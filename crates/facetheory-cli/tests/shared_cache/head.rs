//! HEAD: answered from what GET has brought, and able to tell that it is out of date. RFC 9111, section 4.3.5.

use crate::support::origin::Answer;
use crate::support::site::Site;
use crate::trial::{asked, numbered, scripted};

stories![
    rfc9110_9_3_2_head_is_answered_from_what_get_has_brought,
    rfc9111_3_head_leaves_no_page_without_a_body,
    rfc9111_4_3_5_head_updates_what_is_kept_and_the_same,
    rfc9111_4_3_5_head_that_sets_a_cookie_updates_nothing,
    rfc9111_4_3_5_head_makes_stale_what_is_kept_and_another,
];

fn rfc9110_9_3_2_head_is_answered_from_what_get_has_brought(site: &Site) {
    numbered(site, "/head", &["Cache-Control: max-age=3600", "ETag: \"a\"", "X-Own: 1"]);
    site.get("/head");
    let head = site.ask("HEAD", "/head", "");
    let told = ["etag", "x-own", "content-length"].map(|name| head.header(name));
    assert_eq!((head.status, told), (200, [Some("\"a\""), Some("1"), Some("8")]));
    assert_eq!(asked(site, "/head"), 1);
}

fn rfc9111_3_head_leaves_no_page_without_a_body(site: &Site) {
    numbered(site, "/cold", &["Cache-Control: max-age=3600"]);
    assert_eq!(site.ask("HEAD", "/cold", "").status, 200);
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
            Answer::raw(format!("HTTP/1.1 200 OK\r\n{lines}\r\ncontent-length: {length}\r\n\r\n"))
        }
        _ => Answer::page(
            &["Cache-Control: max-age=3600", "ETag: \"a\"", "X-Own: 1"],
            &format!("answer {number}"),
        ),
    });
    assert_eq!(site.get(path).text(), "answer 1");
}

fn rfc9111_4_3_5_head_updates_what_is_kept_and_the_same(site: &Site) {
    headed(site, "/same", &["Cache-Control: max-age=7200", "ETag: \"a\"", "X-Own: 2"], 8);
    assert_eq!(site.ask("HEAD", "/same", "Cache-Control: no-cache\r\n").status, 200);
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
    let bob = site.ask("HEAD", "/own", "Cache-Control: no-cache\r\nCookie: sid=bob\r\n");
    assert_eq!((bob.header("x-own"), bob.header("set-cookie")), (Some("2"), Some("sid=bob")));
    let alice = site.get("/own");
    assert_eq!((alice.header("x-own"), alice.header("set-cookie")), (Some("1"), None));
}

fn rfc9111_4_3_5_head_makes_stale_what_is_kept_and_another(site: &Site) {
    for (path, lines, length) in [
        ("/tag", &["Cache-Control: max-age=3600", "ETag: \"b\""][..], 8),
        ("/length", &["Cache-Control: max-age=3600", "ETag: \"a\""], 99),
    ] {
        headed(site, path, lines, length);
        assert_eq!(site.ask("HEAD", path, "Cache-Control: no-cache\r\n").status, 200);
        let gets = site.origin.requests_for(path).iter().filter(|request| request.method == "GET").count();
        site.get(path);
        let now = site.origin.requests_for(path).iter().filter(|request| request.method == "GET").count();
        assert!(now > gets, "{path}: what the origin no longer has was served as fresh");
    }
}
