//! Conditional requests of clients: RFC 9111, section 4.3.2, and RFC 9110, section 13.

use crate::date::date;
use crate::helpers::{first_then, numbered, origin_requests, validated};
use crate::support::origin::ScriptedResponse;
use crate::support::site::Site;

on_each_store![
    rfc9111_4_3_2_if_none_match_is_served_from_a_fresh_response,
    rfc9110_13_1_2_if_none_match_compares_weakly,
    rfc9110_13_1_2_a_star_matches_any_cached_response,
    rfc9110_13_1_2_another_entity_tag_gets_the_complete_response,
    rfc9111_4_3_2_if_modified_since_is_served_from_a_fresh_response,
    rfc9111_4_3_2_without_last_modified_the_date_is_compared,
    rfc9110_13_2_2_if_none_match_wins_over_if_modified_since,
    rfc9110_13_1_3_an_invalid_date_is_ignored,
    rfc9110_15_4_5_a_304_has_the_headers_of_the_complete_response,
    rfc9111_4_3_2_a_condition_is_served_from_a_response_just_validated,
    rfc9111_4_3_3_a_conditional_first_request_stores_no_empty_page,
    rfc9111_4_3_2_the_condition_of_one_client_does_not_affect_others,
];

const FRESH: &str = "Cache-Control: max-age=3600";

fn rfc9111_4_3_2_if_none_match_is_served_from_a_fresh_response(site: &Site) {
    numbered(site, "/tag", &[FRESH, "ETag: \"a\""]);
    site.get("/tag");
    for tags in ["\"a\"", "\"x\", \"a\"", "\"x\",\"y\" , W/\"a\""] {
        let response = site.get_with("/tag", &format!("If-None-Match: {tags}\r\n"));
        assert_eq!((response.status, response.text().as_str()), (304, ""), "{tags}");
    }
    assert_eq!(origin_requests(site, "/tag"), 1);
}

fn rfc9110_13_1_2_if_none_match_compares_weakly(site: &Site) {
    numbered(site, "/weak", &[FRESH, "ETag: W/\"a\""]);
    site.get("/weak");
    for tag in ["\"a\"", "W/\"a\""] {
        assert_eq!(site.get_with("/weak", &format!("If-None-Match: {tag}\r\n")).status, 304, "{tag}");
    }
    assert_eq!(origin_requests(site, "/weak"), 1);
}

fn rfc9110_13_1_2_a_star_matches_any_cached_response(site: &Site) {
    numbered(site, "/star", &[FRESH, "ETag: \"a\""]);
    site.get("/star");
    assert_eq!(site.get_with("/star", "If-None-Match: *\r\n").status, 304);
    assert_eq!(origin_requests(site, "/star"), 1);
}

fn rfc9110_13_1_2_another_entity_tag_gets_the_complete_response(site: &Site) {
    numbered(site, "/other", &[FRESH, "ETag: \"a\""]);
    site.get("/other");
    for tag in ["\"b\"", "\"A\"", "a", "\"\""] {
        let response = site.get_with("/other", &format!("If-None-Match: {tag}\r\n"));
        assert_eq!((response.status, response.text().as_str()), (200, "response 1"), "{tag}");
    }
    assert_eq!(origin_requests(site, "/other"), 1);
}

/// Caches a page with this date header, and checks the status for a copy of that date, a newer and an older one.
fn assert_compared(site: &Site, path: &str, header: &str, [modified, newer, older]: [i64; 3]) {
    let modified = date(modified);
    numbered(site, path, &[FRESH, &format!("{header}: {modified}")]);
    site.get(path);
    for (since, status) in [(modified, 304), (date(newer), 304), (date(older), 200)] {
        let response = site.get_with(path, &format!("If-Modified-Since: {since}\r\n"));
        assert_eq!(response.status, status, "{since}");
    }
    assert_eq!(origin_requests(site, path), 1);
}

fn rfc9111_4_3_2_if_modified_since_is_served_from_a_fresh_response(site: &Site) {
    assert_compared(site, "/date", "Last-Modified", [-10_000, -5_000, -20_000]);
}

fn rfc9111_4_3_2_without_last_modified_the_date_is_compared(site: &Site) {
    // An older copy may be a different one.
    assert_compared(site, "/made", "Date", [-1_000, -500, -3_000]);
}

fn rfc9110_13_2_2_if_none_match_wins_over_if_modified_since(site: &Site) {
    let changed = date(-10_000);
    numbered(site, "/both", &[FRESH, "ETag: \"a\"", &format!("Last-Modified: {changed}")]);
    site.get("/both");
    let both = |tag: &str, since: i64| {
        site.get_with("/both", &format!("If-None-Match: {tag}\r\nIf-Modified-Since: {}\r\n", date(since)))
            .status
    };
    assert_eq!((both("\"b\"", -100), both("\"a\"", -100_000)), (200, 304));
}

fn rfc9110_13_1_3_an_invalid_date_is_ignored(site: &Site) {
    numbered(site, "/none", &[FRESH, &format!("Last-Modified: {}", date(-10_000))]);
    site.get("/none");
    for since in ["yesterday", "0", "9999999999"] {
        let response = site.get_with("/none", &format!("If-Modified-Since: {since}\r\n"));
        assert_eq!((response.status, response.text().as_str()), (200, "response 1"), "{since}");
    }
}

fn rfc9110_15_4_5_a_304_has_the_headers_of_the_complete_response(site: &Site) {
    let printed = date(-60);
    let lines =
        [FRESH, "ETag: \"a\"", "Vary: X-Kind", "Content-Location: /here", &format!("Date: {printed}")];
    numbered(site, "/told", &lines);
    site.get("/told");
    let response = site.get_with("/told", "If-None-Match: \"a\"\r\n");
    assert_eq!(response.status, 304);
    let reported = ["cache-control", "etag", "content-location", "date"].map(|name| response.header(name));
    assert_eq!(reported, [Some("max-age=3600"), Some("\"a\""), Some("/here"), Some(printed.as_str())]);
    assert!(response.header("vary").is_some_and(|vary| vary.to_ascii_lowercase().contains("x-kind")));
    assert!(response.header("age").is_some());
}

fn rfc9111_4_3_2_a_condition_is_served_from_a_response_just_validated(site: &Site) {
    validated(site, "/stale", &["Cache-Control: max-age=60", "Age: 100", "ETag: \"a\""]);
    assert_eq!(site.get("/stale").text(), "response 1");
    assert_eq!(site.get_with("/stale", "If-None-Match: \"a\"\r\n").status, 304);
    let other = site.get_with("/stale", "If-None-Match: \"b\"\r\n");
    assert_eq!((other.status, other.text().as_str()), (200, "response 1"));
}

fn rfc9111_4_3_3_a_conditional_first_request_stores_no_empty_page(site: &Site) {
    validated(site, "/first", &[FRESH, "ETag: \"a\""]);
    assert_eq!(site.get_with("/first", "If-None-Match: \"a\"\r\n").status, 304);
    for _ in 0..2 {
        let response = site.get("/first");
        assert_eq!(response.status, 200);
        assert!(response.text().starts_with("response"), "{}", response.text());
    }
}

fn rfc9111_4_3_2_the_condition_of_one_client_does_not_affect_others(site: &Site) {
    let stale = ScriptedResponse::page(&["Cache-Control: max-age=60", "Age: 100", "ETag: \"a\""], "old");
    first_then(site, "/stale", stale, ScriptedResponse::page(&[FRESH, "ETag: \"b\""], "new"));
    assert_eq!(site.get("/stale").text(), "old");
    let reported = site.get_with("/stale", "If-None-Match: \"b\"\r\n");
    assert!(reported.status == 304 || reported.text() == "new", "{} {}", reported.status, reported.text());
    assert_eq!((site.get("/stale").status, site.get("/stale").text()), (200, "new".to_owned()));
}
