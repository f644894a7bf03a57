//! Validation of cached responses: RFC 9111, sections 3.2 and 4.3.

use crate::date::date;
use crate::helpers::{assert_lacks, first_then, origin_requests, scripted, then_not_modified, validated};
use crate::support::origin::ScriptedResponse;
use crate::support::site::Site;
use crate::support::values;

on_each_store![
    rfc9111_4_3_1_a_stale_response_is_validated_by_its_entity_tag,
    rfc9111_4_3_1_a_stale_response_is_validated_by_last_modified,
    rfc9111_4_3_1_both_validators_are_sent_unchanged,
    rfc9111_4_3_1_without_a_validator_the_request_is_unconditional,
    rfc9111_4_3_3_a_304_allows_the_cached_response,
    rfc9111_4_3_3_a_304_to_a_request_with_a_cookie_allows_the_cached_response,
    rfc9111_4_3_4_a_304_makes_the_cached_response_fresh,
    rfc9111_3_2_a_304_updates_the_stored_headers,
    rfc9111_3_2_a_304_does_not_change_headers_that_describe_the_stored_content,
    rfc9111_3_2_hop_by_hop_headers_of_a_304_are_not_stored,
    rfc9111_3_2_a_304_that_sets_a_cookie_updates_nothing,
    rfc9111_4_3_3_a_complete_response_replaces_the_cached_one,
    rfc9111_4_3_3_an_error_is_forwarded_and_the_cached_response_stays,
    rfc9111_4_3_3_a_304_with_no_store_removes_the_cached_response,
    rfc9111_4_3_4_a_304_with_another_strong_validator_does_not_refresh,
];

fn rfc9111_4_3_1_a_stale_response_is_validated_by_its_entity_tag(site: &Site) {
    for (index, tag) in ["\"a\"", "W/\"weak\"", "\"\"", "\"with, comma\""].iter().enumerate() {
        let path = format!("/tag/{index}");
        validated(site, &path, &["Cache-Control: max-age=60", "Age: 100", &format!("ETag: {tag}")]);
        assert_eq!(site.get(&path).text(), "response 1");
        assert_eq!(site.get(&path).text(), "response 1");
        assert_eq!(site.origin.requests_for(&path)[1].header("if-none-match"), Some(*tag));
    }
}

fn rfc9111_4_3_1_a_stale_response_is_validated_by_last_modified(site: &Site) {
    let changed = date(-10_000);
    validated(
        site,
        "/date",
        &["Cache-Control: max-age=60", "Age: 100", &format!("Last-Modified: {changed}")],
    );
    assert_eq!(site.get("/date").text(), "response 1");
    assert_eq!(site.get("/date").text(), "response 1");
    assert_eq!(site.origin.requests_for("/date")[1].header("if-modified-since"), Some(changed.as_str()));
}

fn rfc9111_4_3_1_both_validators_are_sent_unchanged(site: &Site) {
    let changed = date(-10_000);
    let lines =
        ["Cache-Control: max-age=60", "Age: 100", "ETag: \"a\"", &format!("Last-Modified: {changed}")];
    validated(site, "/both", &lines);
    site.get("/both");
    site.get("/both");
    let second = &site.origin.requests_for("/both")[1];
    assert_eq!(second.header("if-none-match"), Some("\"a\""));
    assert!(second.header("if-modified-since").is_none_or(|date| date == changed), "{second:?}");
}

fn rfc9111_4_3_1_without_a_validator_the_request_is_unconditional(site: &Site) {
    validated(site, "/none", &["Cache-Control: max-age=60", "Age: 100"]);
    assert_eq!(
        (site.get("/none").text(), site.get("/none").text()),
        ("response 1".into(), "response 2".into())
    );
    let second = &site.origin.requests_for("/none")[1];
    assert!(!second.has("if-none-match") && !second.has("if-modified-since"), "{second:?}");
}

fn rfc9111_4_3_3_a_304_allows_the_cached_response(site: &Site) {
    validated(site, "/kept", &["Cache-Control: max-age=60", "Age: 100", "ETag: \"a\"", "X-Own: 1"]);
    let (first, second) = (site.get("/kept"), site.get("/kept"));
    assert_eq!((second.status, &second.body, second.header("x-own")), (200, &first.body, Some("1")));
    assert_eq!(origin_requests(site, "/kept"), 2);
}

fn rfc9111_4_3_3_a_304_to_a_request_with_a_cookie_allows_the_cached_response(site: &Site) {
    validated(site, "/cookie", &["ETag: \"a\""]);
    assert_eq!(site.get("/cookie").text(), "response 1");
    assert_eq!(site.get_with("/cookie", "Cookie: sid=bob\r\n").text(), "response 1");
    assert_eq!(origin_requests(site, "/cookie"), 2);
}

fn rfc9111_4_3_4_a_304_makes_the_cached_response_fresh(site: &Site) {
    let stale = ["Cache-Control: max-age=60", "Age: 100", "ETag: \"a\""];
    let fresh = ["Cache-Control: max-age=3600", "ETag: \"a\""];
    then_not_modified(site, "/again", &stale, &fresh);
    for expected in [1, 2, 2, 2] {
        assert_eq!(site.get("/again").text(), "cached");
        assert_eq!(origin_requests(site, "/again"), expected);
    }
}

fn rfc9111_3_2_a_304_updates_the_stored_headers(site: &Site) {
    let first =
        ["Cache-Control: max-age=60", "Age: 100", "ETag: \"a\"", "X-Changed: 1", "X-Stays: 1", "X-Two: 1"];
    let second =
        ["Cache-Control: max-age=3600", "ETag: \"a\"", "X-Changed: 2", "X-New: 2", "X-Two: 2", "X-Two: 3"];
    then_not_modified(site, "/update", &first, &second);
    site.get("/update");
    // The client that caused the validation and a later one get the same headers.
    for _ in 0..2 {
        let response = site.get("/update");
        let reported = ["x-changed", "x-stays", "x-new", "cache-control"].map(|name| response.header(name));
        assert_eq!(reported, [Some("2"), Some("1"), Some("2"), Some("max-age=3600")]);
        assert_eq!(values(&response.headers, "x-two").join(", "), "2, 3");
    }
    assert_eq!(origin_requests(site, "/update"), 2);
}

fn rfc9111_3_2_a_304_does_not_change_headers_that_describe_the_stored_content(site: &Site) {
    let first = ["Cache-Control: max-age=60", "Age: 100", "ETag: \"a\""];
    let raw = "HTTP/1.1 304 Not Modified\r\ncache-control: max-age=3600\r\netag: \"a\"\r\ncontent-length: 99\r\n\
               content-encoding: gzip\r\ncontent-range: bytes 0-1/9\r\n\r\n";
    first_then(
        site,
        "/content",
        ScriptedResponse::page(&first, "the cached page"),
        ScriptedResponse::raw(raw),
    );
    for _ in 0..3 {
        let response = site.get("/content");
        assert_eq!((response.status, response.text().as_str()), (200, "the cached page"));
        assert_eq!((response.header("content-encoding"), response.header("content-range")), (None, None));
        assert!(response.complete && response.header("content-length").is_none_or(|length| length == "15"));
    }
}

fn rfc9111_3_2_hop_by_hop_headers_of_a_304_are_not_stored(site: &Site) {
    let first = ["Cache-Control: max-age=60", "Age: 100", "ETag: \"a\""];
    let second = [
        "Cache-Control: max-age=3600",
        "ETag: \"a\"",
        "Connection: keep-alive, x-hop",
        "X-Hop: 1",
        "Keep-Alive: timeout=99",
        "Proxy-Authenticate: Basic",
    ];
    then_not_modified(site, "/hops", &first, &second);
    site.get("/hops");
    site.get("/hops");
    let third = site.get("/hops");
    assert_eq!(third.text(), "cached");
    assert_lacks(&third, &["x-hop", "keep-alive", "proxy-authenticate"]);
}

fn rfc9111_3_2_a_304_that_sets_a_cookie_updates_nothing(site: &Site) {
    let cached = ScriptedResponse::page(&["Cache-Control: max-age=60", "Age: 100", "ETag: \"a\""], "cached");
    let own = ["Cache-Control: max-age=3600", "ETag: \"a\"", "Set-Cookie: sid=bob", "X-Token: of bob"];
    let open =
        ScriptedResponse::with("304 Not Modified", &["Cache-Control: max-age=3600", "ETag: \"a\""], "");
    scripted(site, "/cookie", move |request, number| {
        match (number, request.has("cookie"), request.has("if-none-match")) {
            (1, ..) => cached.clone(),
            (_, true, true) => ScriptedResponse::with("304 Not Modified", &own, ""),
            (_, true, false) => ScriptedResponse::page(&own, "cached"),
            (_, false, _) => open.clone(),
        }
    });
    assert_eq!(site.get("/cookie").text(), "cached");
    let bob = site.get_with("/cookie", "Cookie: sid=bob\r\n");
    assert_eq!((bob.text().as_str(), bob.header("x-token")), ("cached", Some("of bob")));
    assert_eq!(bob.header("set-cookie"), Some("sid=bob"), "his cookie reaches him");
    for _ in 0..2 {
        let alice = site.get("/cookie");
        assert_eq!((alice.text().as_str(), alice.header("x-token")), ("cached", None));
        assert_eq!(alice.header("set-cookie"), None);
    }
    assert_eq!(origin_requests(site, "/cookie"), 4, "a 304 without a cookie makes the page fresh");
}

fn rfc9111_4_3_3_a_complete_response_replaces_the_cached_one(site: &Site) {
    let stale = ["Cache-Control: max-age=60", "Age: 100", "ETag: \"a\"", "X-Old: 1"];
    let fresh = ["Cache-Control: max-age=3600", "ETag: \"b\"", "X-New: 1"];
    first_then(
        site,
        "/replace",
        ScriptedResponse::page(&stale, "old"),
        ScriptedResponse::page(&fresh, "new"),
    );
    assert_eq!(site.get("/replace").text(), "old");
    for _ in 0..2 {
        let response = site.get("/replace");
        let reported = ["etag", "x-old", "x-new"].map(|name| response.header(name));
        assert_eq!((response.text().as_str(), reported), ("new", [Some("\"b\""), None, Some("1")]));
    }
    assert_eq!(origin_requests(site, "/replace"), 2);
}

fn rfc9111_4_3_3_an_error_is_forwarded_and_the_cached_response_stays(site: &Site) {
    let page = ScriptedResponse::page(&["Cache-Control: max-age=60", "Age: 100", "ETag: \"a\""], "cached");
    let regenerated =
        ScriptedResponse::with("304 Not Modified", &["Cache-Control: max-age=3600", "ETag: \"a\""], "");
    scripted(site, "/error", move |_, number| match number {
        1 => page.clone(),
        2 => ScriptedResponse::with("503 Overloaded", &["Retry-After: 1"], "later"),
        _ => regenerated.clone(),
    });
    assert_eq!(site.get("/error").text(), "cached");
    let error = site.get("/error");
    assert_eq!((error.status, error.text().as_str()), (503, "later"));
    let after = site.get("/error");
    assert_eq!((after.status, after.text().as_str()), (200, "cached"));
    assert_eq!(site.origin.requests_for("/error")[2].header("if-none-match"), Some("\"a\""));
}

fn rfc9111_4_3_3_a_304_with_no_store_removes_the_cached_response(site: &Site) {
    let page = ScriptedResponse::page(&["Cache-Control: max-age=60", "Age: 100", "ETag: \"a\""], "cached");
    let forbidden = ScriptedResponse::with(
        "304 Not Modified",
        &["Cache-Control: no-store, max-age=3600", "ETag: \"a\""],
        "",
    );
    let new = ScriptedResponse::page(&["Cache-Control: no-store"], "new");
    scripted(site, "/ends", move |request, number| match number {
        1 => page.clone(),
        _ if request.has("if-none-match") => forbidden.clone(),
        _ => new.clone(),
    });
    assert_eq!(site.get("/ends").text(), "cached");
    site.get("/ends");
    let before = origin_requests(site, "/ends");
    site.get("/ends");
    assert!(origin_requests(site, "/ends") > before, "an uncacheable response was reused without validation");
}

fn rfc9111_4_3_4_a_304_with_another_strong_validator_does_not_refresh(site: &Site) {
    let page = ScriptedResponse::page(&["Cache-Control: max-age=60", "Age: 100", "ETag: \"a\""], "cached");
    let other =
        ScriptedResponse::with("304 Not Modified", &["Cache-Control: max-age=3600", "ETag: \"b\""], "");
    let new = ScriptedResponse::page(&["Cache-Control: max-age=3600", "ETag: \"b\""], "new");
    scripted(site, "/other", move |request, number| match (number, request.has("if-none-match")) {
        (1, _) => page.clone(),
        (_, true) => other.clone(),
        (_, false) => new.clone(),
    });
    assert_eq!(site.get("/other").text(), "cached");
    let second = site.get("/other");
    assert_ne!(
        (second.text().as_str(), second.header("etag")),
        ("cached", Some("\"b\"")),
        "two responses mixed"
    );
    assert_eq!((site.get("/other").text().as_str(), origin_requests(site, "/other")), ("new", 3));
}
