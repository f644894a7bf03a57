//! Range requests: RFC 9111, sections 3.3 and 3.4, and RFC 9110, section 14.

use crate::helpers::{first_then, origin_requests, scripted};
use crate::support::origin::ScriptedResponse;
use crate::support::site::Site;

on_each_store![
    rfc9110_14_2_a_range_is_served_from_a_complete_cached_response,
    rfc9110_14_2_several_or_invalid_ranges_get_the_complete_response,
    rfc9110_15_5_17_a_range_beyond_the_end_gets_a_416,
    rfc9110_13_1_5_a_matching_if_range_gets_the_range,
    rfc9110_13_1_5_another_if_range_gets_the_complete_response,
    rfc9111_3_3_a_partial_response_is_never_served_as_complete,
    rfc9111_3_3_a_truncated_response_is_never_served_as_complete,
    rfc9111_4_a_range_of_a_stale_response_is_validated_first,
];

const FRESH: [&str; 2] = ["Cache-Control: max-age=3600", "ETag: \"a\""];

/// Ten bytes.
const BODY: &str = "0123456789";

fn cache(site: &Site, path: &str, lines: &[&str]) {
    site.origin.respond(path, ScriptedResponse::page(lines, BODY));
    assert_eq!(site.get(path).text(), BODY);
}

fn rfc9110_14_2_a_range_is_served_from_a_complete_cached_response(site: &Site) {
    cache(site, "/part", &FRESH);
    for (range, part) in [("0-0", 0..=0), ("2-4", 2..=4), ("7-", 7..=9), ("-3", 7..=9), ("5-100", 5..=9)] {
        let response = site.get_with("/part", &format!("Range: bytes={range}\r\n"));
        let reported = format!("bytes {}-{}/10", part.start(), part.end());
        assert_eq!((response.status, response.text().as_str()), (206, &BODY[part]), "{range}");
        assert_eq!(response.header("content-range"), Some(reported.as_str()));
        assert_eq!(response.header("etag"), Some("\"a\""));
    }
    assert_eq!(origin_requests(site, "/part"), 1);
}

fn rfc9110_14_2_several_or_invalid_ranges_get_the_complete_response(site: &Site) {
    cache(site, "/none", &FRESH);
    for range in [
        "bytes=4-2",
        "lines=1-2",
        "bytes=a-b",
        "bytes",
        "",
        "bytes=0-1,3-4",
        "bytes=0-1, 3-4",
        "bytes=0-0,-1",
        "bytes=0-4,2-6",
        "bytes=0-1,100-200",
    ] {
        let response = site.get_with("/none", &format!("Range: {range}\r\n"));
        assert_eq!((response.status, response.text().as_str()), (200, BODY), "{range}");
    }
    assert_eq!(origin_requests(site, "/none"), 1);
}

fn rfc9110_15_5_17_a_range_beyond_the_end_gets_a_416(site: &Site) {
    cache(site, "/beyond", &FRESH);
    let response = site.get_with("/beyond", "Range: bytes=10-\r\n");
    assert_eq!((response.status, response.header("content-range")), (416, Some("bytes */10")));
    assert_eq!(site.get("/beyond").text(), BODY);
}

fn rfc9110_13_1_5_a_matching_if_range_gets_the_range(site: &Site) {
    cache(site, "/same", &FRESH);
    let response = site.get_with("/same", "Range: bytes=0-1\r\nIf-Range: \"a\"\r\n");
    assert_eq!((response.status, response.text().as_str()), (206, "01"));
}

fn rfc9110_13_1_5_another_if_range_gets_the_complete_response(site: &Site) {
    cache(site, "/other", &FRESH);
    for other in ["\"b\"", "W/\"a\"", "Thu, 01 Jan 1970 00:00:00 GMT"] {
        let response = site.get_with("/other", &format!("Range: bytes=0-1\r\nIf-Range: {other}\r\n"));
        assert_eq!((response.status, response.text().as_str()), (200, BODY), "{other}");
    }
    assert_eq!(origin_requests(site, "/other"), 1);
}

fn rfc9111_3_3_a_partial_response_is_never_served_as_complete(site: &Site) {
    scripted(site, "/first", |request, _| match request.has("range") {
        true => {
            let part = ["Cache-Control: max-age=3600", "ETag: \"a\"", "Content-Range: bytes 0-1/10"];
            ScriptedResponse::with("206 Partial Content", &part, "01")
        }
        false => ScriptedResponse::page(&["Cache-Control: max-age=3600", "ETag: \"a\""], BODY),
    });
    let part = site.get_with("/first", "Range: bytes=0-1\r\n");
    assert_eq!((part.status, part.text().as_str()), (206, "01"));
    let whole = site.get("/first");
    assert_eq!((whole.status, whole.text().as_str()), (200, BODY));
    // An unsolicited partial response is not cached, either.
    let part = ScriptedResponse::with(
        "206 Partial Content",
        &["Cache-Control: max-age=3600", "Content-Range: bytes 0-1/10"],
        "01",
    );
    first_then(site, "/wrong", part, ScriptedResponse::page(&["Cache-Control: max-age=3600"], BODY));
    site.get("/wrong");
    assert_eq!(site.get("/wrong").text(), BODY);
}

fn rfc9111_3_3_a_truncated_response_is_never_served_as_complete(site: &Site) {
    let head = "HTTP/1.1 200 OK\r\ncache-control: max-age=3600\r\n";
    for (index, broken) in [
        format!("{head}content-length: 10\r\n\r\n01234"),
        format!("{head}transfer-encoding: chunked\r\n\r\n5\r\n01234\r\n"),
    ]
    .into_iter()
    .enumerate()
    {
        let path = format!("/broken/{index}");
        let whole = ScriptedResponse::page(&["Cache-Control: max-age=3600"], BODY);
        first_then(site, &path, ScriptedResponse::raw(broken).then_close(), whole);
        let first = site.get(&path);
        assert!(first.status >= 500 || !first.complete || first.text() == BODY, "{first:?}");
        let second = site.get(&path);
        assert_eq!((second.status, second.text().as_str()), (200, BODY));
    }
}

fn rfc9111_4_a_range_of_a_stale_response_is_validated_first(site: &Site) {
    let stale = ScriptedResponse::page(&["Cache-Control: max-age=60", "Age: 100", "ETag: \"a\""], BODY);
    first_then(
        site,
        "/stale",
        stale,
        ScriptedResponse::page(&["Cache-Control: max-age=3600", "ETag: \"b\""], "abcdefghij"),
    );
    assert_eq!(site.get("/stale").text(), BODY);
    let part = site.get_with("/stale", "Range: bytes=0-1\r\n");
    assert!(
        (part.status, part.text().as_str()) == (206, "ab")
            || (part.status, part.text().as_str()) == (200, "abcdefghij"),
        "{} {}",
        part.status,
        part.text()
    );
    assert_eq!(site.get("/stale").text(), "abcdefghij");
}
