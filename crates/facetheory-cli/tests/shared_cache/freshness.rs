//! The freshness lifetime of a response: RFC 9111, section 4.2.

use crate::date::{asctime_date, date, rfc850_date};
use crate::helpers::{assert_all_cached, assert_none_reused, numbered};
use crate::support::origin::ScriptedResponse;
use crate::support::site::Site;

on_each_store![
    rfc9111_4_2_1_s_maxage_max_age_and_expires_each_give_freshness,
    rfc9111_4_2_1_max_age_wins_over_expires,
    rfc9111_4_2_a_response_as_old_as_its_lifetime_is_stale,
    rfc9111_5_2_2_10_s_maxage_overrides_max_age,
    rfc9111_5_2_2_10_s_maxage_overrides_expires,
    rfc9111_5_3_expires_counts_from_date,
    rfc9111_5_3_an_invalid_expires_is_in_the_past,
    rfc9110_5_6_7_dates_have_three_forms,
    rfc9111_4_2_dates_ignore_case,
    rfc9111_4_2_a_date_in_another_time_zone_is_invalid,
    rfc9111_4_2_2_the_heuristic_lifetime_is_a_tenth_of_the_age_of_the_content,
    rfc9111_4_2_2_an_explicit_lifetime_disables_the_heuristic,
    rfc9111_4_2_2_statuses_that_are_not_heuristically_cacheable_get_no_lifetime,
    rfc9111_4_2_2_public_allows_a_heuristic_lifetime_for_any_status,
    rfc9111_4_2_2_a_response_to_a_cookie_gets_no_heuristic_lifetime,
    rfc9111_3_a_response_without_lifetime_and_validator_is_not_reused,
];

fn rfc9111_4_2_1_s_maxage_max_age_and_expires_each_give_freshness(site: &Site) {
    let (now, later) = (format!("Date: {}", date(0)), format!("Expires: {}", date(3600)));
    let cases: [&[&str]; 4] =
        [&["Cache-Control: s-maxage=3600"], &["Cache-Control: max-age=3600"], &[&now, &later], &[&later]];
    assert_all_cached(site, "each", &cases);
}

fn rfc9111_4_2_1_max_age_wins_over_expires(site: &Site) {
    let (now, past, later) =
        (format!("Date: {}", date(0)), format!("Expires: {}", date(-60)), format!("Expires: {}", date(3600)));
    assert_all_cached(
        site,
        "max-age",
        &[&["Cache-Control: max-age=3600", &now, &past], &["Cache-Control: max-age=3600", "Expires: 0"]],
    );
    assert_none_reused(site, "max-age-0", &[&["Cache-Control: max-age=0", &now, &later]]);
}

fn rfc9111_4_2_a_response_as_old_as_its_lifetime_is_stale(site: &Site) {
    assert_all_cached(site, "young", &[&["Cache-Control: max-age=3600", "Age: 3000"]]);
    let cases: [&[&str]; 3] = [
        &["Cache-Control: max-age=3600", "Age: 3600"],
        &["Cache-Control: max-age=3600", "Age: 3601"],
        &["Cache-Control: max-age=0"],
    ];
    assert_none_reused(site, "old", &cases);
}

fn rfc9111_5_2_2_10_s_maxage_overrides_max_age(site: &Site) {
    assert_all_cached(
        site,
        "s-maxage",
        &[
            &["Cache-Control: max-age=0, s-maxage=3600"],
            &["Cache-Control: s-maxage=3600, max-age=0"],
            &["Cache-Control: max-age=60, s-maxage=3600", "Age: 600"],
        ],
    );
    assert_none_reused(
        site,
        "s-maxage-0",
        &[
            &["Cache-Control: max-age=3600, s-maxage=0"],
            &["Cache-Control: max-age=3600, s-maxage=60", "Age: 600"],
        ],
    );
}

fn rfc9111_5_2_2_10_s_maxage_overrides_expires(site: &Site) {
    let (past, later) = (format!("Expires: {}", date(-60)), format!("Expires: {}", date(3600)));
    assert_all_cached(site, "s-maxage", &[&["Cache-Control: s-maxage=3600", &past]]);
    assert_none_reused(site, "s-maxage-0", &[&["Cache-Control: s-maxage=0", &later]]);
}

fn rfc9111_5_3_expires_counts_from_date(site: &Site) {
    let from_to = |from, to| (format!("Date: {}", date(from)), format!("Expires: {}", date(to)));
    let (made, ends) = from_to(-3600, 1800);
    assert_all_cached(site, "expires", &[&[&made, &ends]]);
    for (index, (from, to)) in
        [(-3600, -1800), (-3600, -3600), (0, 0), (0, -3600), (7200, 3600)].iter().enumerate()
    {
        let (made, ends) = from_to(*from, *to);
        assert_none_reused(site, &format!("past/{index}"), &[&[&made, &ends]]);
    }
}

fn rfc9111_5_3_an_invalid_expires_is_in_the_past(site: &Site) {
    let cases: [&[&str]; 6] = [
        &["Expires: 0"],
        &["Expires: -1"],
        &["Expires: tomorrow"],
        &["Expires:"],
        &["Expires: Thu, 32 Foo 2099 25:61:61 GMT"],
        &["Expires: 2099-01-01T00:00:00Z"],
    ];
    assert_none_reused(site, "no-date", &cases);
}

fn rfc9110_5_6_7_dates_have_three_forms(site: &Site) {
    for (index, form) in [date, rfc850_date, asctime_date].into_iter().enumerate() {
        let lines = |seconds| [format!("Date: {}", form(0)), format!("Expires: {}", form(seconds))];
        let [now, later] = lines(3600);
        assert_all_cached(site, &format!("later/{index}"), &[&[&now, &later], &[&later]]);
        let [now, past] = lines(-3600);
        assert_none_reused(site, &format!("past/{index}"), &[&[&now, &past], &[&past]]);
    }
}

fn rfc9111_4_2_dates_ignore_case(site: &Site) {
    for (index, form) in [date, rfc850_date, asctime_date].into_iter().enumerate() {
        let (upper, lower) = (form(3600).to_ascii_uppercase(), form(3600).to_ascii_lowercase());
        let (upper, lower) = (format!("Expires: {upper}"), format!("Expires: {lower}"));
        assert_all_cached(site, &format!("case/{index}"), &[&[&upper], &[&lower]]);
    }
}

fn rfc9111_4_2_a_date_in_another_time_zone_is_invalid(site: &Site) {
    let later = date(3600);
    for (index, zone) in ["UTC", "AEST", "+0000", "Z"].into_iter().enumerate() {
        let expires = format!("Expires: {}", later.replace("GMT", zone));
        assert_none_reused(site, &format!("zone/{index}"), &[&[&expires]]);
    }
}

fn rfc9111_4_2_2_the_heuristic_lifetime_is_a_tenth_of_the_age_of_the_content(site: &Site) {
    const DAY: i64 = 24 * 60 * 60;
    let (now, old) = (format!("Date: {}", date(0)), format!("Last-Modified: {}", date(-5 * DAY)));
    // A tenth of five days is 43,200 seconds. The longest heuristic lifetime, a day, does not apply.
    assert_all_cached(site, "old", &[&[&now, &old], &[&now, &old, "Age: 40000"]]);
    let new = format!("Last-Modified: {}", date(0));
    let future = format!("Last-Modified: {}", date(DAY));
    let cases: [&[&str]; 4] =
        [&[&now, &old, "Age: 46000"], &[&now, &new], &[&now, &future], &[&now, "Last-Modified: long ago"]];
    assert_none_reused(site, "new", &cases);
}

fn rfc9111_4_2_2_an_explicit_lifetime_disables_the_heuristic(site: &Site) {
    let old = format!("Last-Modified: {}", date(-1_000_000));
    let past = format!("Expires: {}", date(-60));
    let cases: [&[&str]; 5] = [
        &[&old, "Cache-Control: max-age=0"],
        &[&old, "Cache-Control: s-maxage=0"],
        &[&old, &past],
        &[&old, "Expires: 0"],
        &[&old, "Cache-Control: max-age=60", "Age: 61"],
    ];
    assert_none_reused(site, "told", &cases);
}

/// Whether a response with this status and old content gets a heuristic lifetime.
fn is_heuristically_cached(site: &Site, status: &str, lines: &[&str]) -> bool {
    let path = format!("/status/{}", &status[..3]);
    let old = format!("Last-Modified: {}", date(-1_000_000));
    let lines: Vec<&str> = lines.iter().copied().chain([old.as_str(), "Location: /elsewhere"]).collect();
    site.origin.respond(&path, ScriptedResponse::with(status, &lines, "the content"));
    for _ in 0..2 {
        assert_eq!(site.get(&path).text(), "the content", "{status}");
    }
    site.origin.requests_for(&path).len() == 1
}

fn rfc9111_4_2_2_statuses_that_are_not_heuristically_cacheable_get_no_lifetime(site: &Site) {
    for status in ["200 OK", "203 Non-Authoritative", "301 Moved", "308 Moved", "404 Not Found", "410 Gone"] {
        assert!(is_heuristically_cached(site, status, &[]), "{status} is heuristically cacheable");
    }
    for status in ["201 Created", "202 Accepted", "302 Found", "307 Moved", "403 Forbidden", "500 Error"] {
        assert!(
            !is_heuristically_cached(site, status, &[]),
            "{status} is cacheable only with an explicit lifetime"
        );
    }
}

fn rfc9111_4_2_2_public_allows_a_heuristic_lifetime_for_any_status(site: &Site) {
    for status in ["200 OK", "302 Found", "307 Moved"] {
        assert!(is_heuristically_cached(site, status, &["Cache-Control: public"]), "{status}");
    }
}

fn rfc9111_4_2_2_a_response_to_a_cookie_gets_no_heuristic_lifetime(site: &Site) {
    const ALICE: &str = "Cookie: sid=alice\r\n";
    const BOB: &str = "Cookie: sid=bob\r\n";
    let (old, later) = (format!("Last-Modified: {}", date(-1_000_000)), format!("Expires: {}", date(3600)));
    let cases: [(&[&str], bool); 6] = [
        (&[&old], false),
        (&[&old, "ETag: \"a\""], false),
        (&[&old, "Cache-Control: public"], true),
        (&[&old, "Cache-Control: max-age=3600"], true),
        (&[&old, "CDN-Cache-Control: max-age=3600"], true),
        (&[&old, &later], true),
    ];
    for (index, (lines, cached)) in cases.into_iter().enumerate() {
        let path = format!("/cookie/{index}");
        numbered(site, &path, lines);
        assert_eq!(site.get_with(&path, ALICE).text(), "response 1");
        assert_eq!(site.get_with(&path, BOB).text() == "response 1", cached, "{lines:?}");
        // A response to a request without a cookie is shared.
        let open = format!("/open/{index}");
        numbered(site, &open, lines);
        assert_eq!(site.get(&open).text(), "response 1");
        assert_eq!(site.get_with(&open, BOB).text(), "response 1", "{lines:?}");
    }
}

fn rfc9111_3_a_response_without_lifetime_and_validator_is_not_reused(site: &Site) {
    assert_none_reused(site, "nothing", &[&[], &["Cache-Control: public"], &["Cache-Control:"]]);
    numbered(site, "/query", &[]);
    assert_eq!(
        (site.get("/query?a").text(), site.get("/query?a").text()),
        ("response 1".into(), "response 2".into())
    );
}
