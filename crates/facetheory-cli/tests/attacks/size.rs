//! Sizes, ranges, conditions and hop-by-hop headers.

use crate::assertions::{PAGES, assert_not_cached, assert_rejected_and_closed, behind_proxy, cache_page};
use crate::support::http2::{self, END_HEADERS, END_STREAM, Frame, HEADERS, Http2, Outcome};
use crate::support::origin::{Request, ScriptedResponse};
use crate::support::site::{HOST, Site};

const KIB_64: usize = 64 * 1024;

/// A GET with these header lines.
fn get(path: &str, lines: &str) -> String {
    format!("GET {path} HTTP/1.1\r\nHost: {HOST}\r\n{lines}\r\n")
}

#[test]
fn row_45_headers_that_are_too_long_are_rejected() {
    let site = Site::start(PAGES);
    let long = "b".repeat(KIB_64);
    for (path, lines) in [
        ("/row-45-value", format!("X-A: {long}\r\n")),
        ("/row-45-name", format!("{long}: a\r\n")),
        ("/row-45-sum", format!("X-A: {}\r\n", "b".repeat(1_000)).repeat(64)),
        ("/row-45-endless", format!("X-A: {}", long.repeat(16))),
    ] {
        assert_rejected_and_closed(&site, path, get(path, &lines), &[431]);
    }
}

#[test]
fn row_45_too_many_headers_are_rejected() {
    let site = Site::start(PAGES);
    let lines = |count: usize| (0..count).map(|number| format!("X-{number}: a\r\n")).collect::<String>();
    assert_eq!(
        site.gateway.exchange(get("/row-45", &lines(99))).status,
        200,
        "one hundred headers including Host"
    );
    for count in [101, 1_000] {
        let path = format!("/row-45-{count}");
        assert_rejected_and_closed(&site, &path, get(&path, &lines(count)), &[431]);
    }
}

#[test]
fn row_45_a_target_that_is_too_long_is_rejected() {
    let site = Site::start(PAGES);
    let long = "b".repeat(KIB_64);
    assert_rejected_and_closed(&site, "/row-45-path", get(&format!("/row-45-path/{long}"), ""), &[414]);
    assert_rejected_and_closed(&site, "/row-45-query", get(&format!("/row-45-query?{long}"), ""), &[414]);
    assert_rejected_and_closed(&site, "/row-45-endless", format!("GET /{}", long.repeat(16)), &[414]);
}

#[test]
fn row_45_http_2_headers_that_are_too_long_are_rejected() {
    let site = Site::start(PAGES);
    let long = "b".repeat(KIB_64);
    let many: Vec<String> = (0..101).map(|number| format!("x-{number}")).collect();
    let long_target = format!("/row-45?{long}");
    for (fields, status) in [
        ([&http2::get(HOST, "/row-45")[..], &[("x-a", long.as_str())]].concat(), 431),
        (
            [
                &http2::get(HOST, "/row-45")[..],
                &many.iter().map(|name| (name.as_str(), "a")).collect::<Vec<_>>(),
            ]
            .concat(),
            431,
        ),
        (http2::get(HOST, &long_target).to_vec(), 414),
    ] {
        let mut client = Http2::open(site.gateway.address);
        let block = http2::block(&fields);
        let pieces: Vec<&[u8]> = block.chunks(16 * 1024).collect();
        for (index, piece) in pieces.iter().enumerate() {
            let end = if index + 1 == pieces.len() { END_HEADERS } else { 0 };
            client.send(&match index {
                0 => Frame { kind: HEADERS, flags: END_STREAM | end, stream: 1, payload: piece.to_vec() },
                _ => Frame::continuation(1, piece.to_vec(), end),
            });
        }
        match client.outcome(1) {
            Outcome::Response { status: given } => assert!([431, status].contains(&given), "{given}"),
            Outcome::Reset { .. } | Outcome::Closed { .. } => {}
        }
        assert_eq!(site.origin.byte_count(), 0);
    }
    assert_eq!(site.get("/row-45").state(), "miss");
}

#[test]
fn row_46_a_header_that_makes_the_origin_fail_poisons_no_page() {
    let site = Site::start(PAGES);
    site.origin.script("/row-46", |request| match request.has("x-meta") {
        true => ScriptedResponse::with("400 Bad Request", &[], "broken"),
        false => ScriptedResponse::page(&[], "the page"),
    });
    let response = site
        .gateway
        .exchange([b"GET /row-46 HTTP/1.1\r\nHost: a\r\nX-Meta: \xff\"\\\r\n\r\n".as_slice()].concat());
    assert!(response.status == 400 || response.text() == "the page", "{}", response.status);
    assert_eq!(site.gateway.exchange("GET /row-46 HTTP/1.1\r\nHost: a\r\n\r\n").text(), "the page");
    for status in [
        "400 Bad Request",
        "431 Request Header Fields Too Large",
        "413 Content Too Large",
        "405 Method Not Allowed",
        "501 Not Implemented",
    ] {
        let path = format!("/row-46-{}", &status[..3]);
        site.origin.respond(
            &path,
            ScriptedResponse::with(status, &["cache-control: public, s-maxage=60"], "broken"),
        );
        site.get(&path);
        assert_not_cached(&site, &path);
    }
}

#[test]
fn row_47_head_for_an_uncached_page_stores_no_empty_page() {
    let site = Site::start(PAGES);
    let head = site.request("HEAD", "/row-47", "");
    assert_eq!((head.status, head.body.len()), (200, 0));
    let page = site.get("/row-47");
    assert!(page.text().contains("/row-47"), "the page has a body");
    assert_eq!(site.origin.requests_for("/row-47")[0].method, "GET", "the origin gets a GET");
    assert_eq!(head.header("content-length"), page.header("content-length"));
}

#[test]
fn row_48_a_partial_response_is_not_cached_as_complete() {
    let site = Site::start(PAGES);
    let part = ScriptedResponse::with("206 Partial Content", &["content-range: bytes 0-2/8"], "the");
    let of_range = part.clone();
    site.origin.script("/row-48", move |request| match request.has("range") {
        true => of_range.clone(),
        false => ScriptedResponse::page(&[], "the page"),
    });
    let response = site.get_with("/row-48", "Range: bytes=0-2\r\n");
    assert!(
        matches!((response.status, response.text().as_str()), (206, "the") | (200, "the page")),
        "{response:?}"
    );
    let whole = site.get("/row-48");
    assert_eq!((whole.status, whole.text().as_str()), (200, "the page"));
    site.origin.respond("/row-48-stubborn", part);
    site.get_with("/row-48-stubborn", "Range: bytes=0-2\r\n");
    assert_not_cached(&site, "/row-48-stubborn");
}

#[test]
fn row_49_invalid_ranges_get_the_complete_page_or_416() {
    let site = Site::start(PAGES);
    let page = cache_page(&site, "/row-49");
    let many = format!("bytes={}", vec!["0-0"; 1_000].join(","));
    for range in [
        many.as_str(),
        "bytes=",
        "bytes=-",
        "bytes=,",
        "bytes=0-3,2-5",
        "bytes=5-2",
        "bytes=9223372036854775808-",
        "bytes=0-9223372036854775808,1-2",
        "bytes=18446744073709551616-",
        "bytes=-0",
        "bytes=a-b",
        "bytes=0x0-1",
        "bytes=+0-1",
        "lines=0-1",
        "bytes 0-1",
        "bytes=0-1;",
        "=",
    ] {
        let response = site.get_with("/row-49", &format!("Range: {range}\r\n"));
        match response.status {
            416 => assert_ne!(response.body, page.body),
            status => assert_eq!((status, &response.body), (200, &page.body), "{range}"),
        }
    }
    assert_eq!(site.get("/row-49").body, page.body);
}

#[test]
fn row_50_invalid_conditions_never_give_304() {
    let site = Site::start(PAGES);
    site.origin.respond(
        "/row-50",
        ScriptedResponse::page(
            &["etag: \"right\"", "last-modified: Wed, 01 Jan 2025 00:00:00 GMT"],
            "the page",
        ),
    );
    cache_page(&site, "/row-50");
    assert_eq!(
        site.get_with("/row-50", "If-None-Match: \"right\"\r\n").status,
        304,
        "this condition is valid"
    );
    for line in [
        "If-None-Match: right",
        "If-None-Match: \"right",
        "If-None-Match: right\"",
        "If-None-Match: W/right",
        "If-None-Match: \"\"",
        "If-None-Match: ,,,",
        "If-None-Match:",
        "If-None-Match: \"wrong\" \"right\"",
        "If-None-Match: 'right'",
        "If-None-Match: **",
        "If-Modified-Since: yesterday",
        "If-Modified-Since: 0",
        "If-Modified-Since: -1",
        "If-Modified-Since:",
        "If-Modified-Since: Wed, 01 Jan 9999 00:00:00 GMT",
        "If-Modified-Since: Wed, 99 Jan 2025 00:00:00 GMT",
        "If-Modified-Since: Wed, 01 Jan 2025 00:00:00 GMT\r\nIf-Modified-Since: Wed, 01 Jan 2025 00:00:00 GMT",
        "If-None-Match: \"wrong\"\r\nIf-Modified-Since: Wed, 01 Jan 2025 00:00:00 GMT",
        "Range: bytes=0-2\r\nIf-Range: right",
        "Range: bytes=0-2\r\nIf-Range: W/\"right\"",
        "Range: bytes=0-2\r\nIf-Range: yesterday",
        "Range: bytes=0-2\r\nIf-Range: \"right",
    ] {
        let response = site.get_with("/row-50", &format!("{line}\r\n"));
        assert_eq!((response.status, response.text().as_str()), (200, "the page"), "{line}");
    }
    assert_eq!(site.origin.requests_for("/row-50").len(), 1);
}

/// The request that the origin gets for one with these header lines.
fn forwarded(site: &Site, target: &str, lines: &str) -> Request {
    assert_eq!(site.get_with(target, lines).status, 200);
    site.origin.requests_for(target).remove(0)
}

#[test]
fn row_51_connection_cannot_remove_headers_that_the_gateway_adds() {
    let site = Site::start(&behind_proxy());
    let lines = "Connection: X-Forwarded-For, X-Forwarded-Host, X-Forwarded-Proto, Via, X-Tenant-Id\r\n";
    let forwarded = forwarded(&site, "/pass/row-51", lines);
    for name in ["x-forwarded-for", "x-forwarded-host", "x-forwarded-proto", "via"] {
        assert!(forwarded.has(name), "{name} was removed");
    }
    let response = site.get_with("/org/row-51", &format!("{lines}X-Tenant-Id: acme\r\n"));
    assert!([200, 400].contains(&response.status), "{}", response.status);
    for request in site.origin.requests_for("/org/row-51") {
        assert_eq!(
            request.header("x-tenant-id"),
            Some("acme"),
            "the request for a tenant's page names the tenant"
        );
    }
}

#[test]
fn row_52_connection_cannot_remove_host_or_cookie() {
    let site = Site::start(PAGES);
    let lines = "Connection: close, Host, Cookie, Content-Length, Authorization\r\nCookie: theme=dark\r\n";
    for target in ["/pass/row-52", "/listed/row-52"] {
        let forwarded = forwarded(&site, target, lines);
        let headers = (forwarded.header("host"), forwarded.header("cookie"));
        assert_eq!(headers, (Some(HOST), Some("theme=dark")), "{target}");
    }
    let light = site.get_with("/listed/row-52", "Cookie: theme=light\r\n");
    assert_eq!(light.state(), "miss", "the cookie is part of the key");
    let posted = site.gateway.exchange(format!(
        "POST /pass/row-52-post HTTP/1.1\r\nHost: {HOST}\r\nConnection: Content-Length\r\nContent-Length: 4\r\n\r\nbody"
    ));
    assert!([200, 400].contains(&posted.status), "{}", posted.status);
    for request in site.origin.requests_for("/pass/row-52-post") {
        assert_eq!(request.body, b"body", "the body arrived with its length");
    }
}

#[test]
fn row_51_connection_cannot_remove_headers_of_the_key() {
    let site = Site::start("");
    site.origin.script("/row-51", |request| {
        let language = request.header("accept-language").unwrap_or("none").to_owned();
        ScriptedResponse::page(&["cache-control: max-age=60", "vary: accept-language"], &language)
    });
    assert_eq!(site.get_with("/row-51", "Accept-Language: en\r\n").text(), "en");
    let taken = "Accept-Language: de\r\nConnection: accept-language\r\n";
    assert_eq!(site.get_with("/row-51", taken).text(), "none");
    assert_eq!(site.get_with("/row-51", "Accept-Language: de\r\n").text(), "de");
}
