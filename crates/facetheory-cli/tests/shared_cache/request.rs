//! Request directives: RFC 9111, sections 5.2.1 and 5.4.

use crate::helpers::{numbered, origin_requests, validated};
use crate::support::site::Site;

on_each_store![
    rfc9111_5_2_1_1_max_age_rejects_older_responses,
    rfc9111_5_2_1_2_max_stale_accepts_stale_responses,
    rfc9111_5_2_1_3_min_fresh_rejects_responses_that_are_soon_stale,
    rfc9111_5_2_1_4_no_cache_forwards_to_the_origin,
    rfc9111_5_2_1_4_the_response_to_no_cache_is_cached_for_others,
    rfc9111_5_2_1_5_the_response_to_no_store_is_not_cached,
    rfc9111_5_2_1_7_only_if_cached_never_forwards,
    rfc9111_5_4_pragma_counts_only_without_cache_control,
];

fn rfc9111_5_2_1_1_max_age_rejects_older_responses(site: &Site) {
    numbered(site, "/old", &["Cache-Control: max-age=3600", "Age: 1800"]);
    assert_eq!(site.get("/old").text(), "response 1");
    assert_eq!(site.get_with("/old", "Cache-Control: max-age=3000\r\n").text(), "response 1");
    assert_eq!(site.get_with("/old", "Cache-Control: max-age=600\r\n").text(), "response 2");
    validated(site, "/zero", &["Cache-Control: max-age=3600", "ETag: \"a\""]);
    assert_eq!(site.get("/zero").text(), "response 1");
    assert_eq!(site.get_with("/zero", "Cache-Control: max-age=0\r\n").text(), "response 1");
    assert_eq!(origin_requests(site, "/zero"), 2, "it was validated");
}

fn rfc9111_5_2_1_2_max_stale_accepts_stale_responses(site: &Site) {
    numbered(site, "/stale", &["Cache-Control: max-age=1500, stale-if-error=1", "Age: 1800", "ETag: \"a\""]);
    assert_eq!(site.get("/stale").text(), "response 1");
    for stale in ["max-stale=1000", "max-stale"] {
        let response = site.get_with("/stale", &format!("Cache-Control: {stale}\r\n"));
        assert_eq!(response.text(), "response 1", "{stale}");
    }
    assert_eq!(site.get_with("/stale", "Cache-Control: max-stale=100\r\n").text(), "response 2");
    numbered(site, "/must", &["Cache-Control: max-age=1500, must-revalidate", "Age: 1800"]);
    assert_eq!(site.get("/must").text(), "response 1");
    assert_eq!(
        site.get_with("/must", "Cache-Control: max-stale\r\n").text(),
        "response 2",
        "the origin forbids it"
    );
}

fn rfc9111_5_2_1_3_min_fresh_rejects_responses_that_are_soon_stale(site: &Site) {
    numbered(site, "/soon", &["Cache-Control: max-age=3600", "Age: 3000"]);
    assert_eq!(site.get("/soon").text(), "response 1");
    assert_eq!(site.get_with("/soon", "Cache-Control: min-fresh=100\r\n").text(), "response 1");
    assert_eq!(site.get_with("/soon", "Cache-Control: min-fresh=1000\r\n").text(), "response 2");
}

fn rfc9111_5_2_1_4_no_cache_forwards_to_the_origin(site: &Site) {
    validated(site, "/validated", &["Cache-Control: max-age=3600", "ETag: \"a\""]);
    assert_eq!(site.get("/validated").text(), "response 1");
    let again = site.get_with("/validated", "Cache-Control: no-cache\r\n");
    assert_eq!((again.status, again.text().as_str()), (200, "response 1"));
    assert_eq!(origin_requests(site, "/validated"), 2);
    numbered(site, "/new", &["Cache-Control: max-age=3600"]);
    assert_eq!(site.get("/new").text(), "response 1");
    assert_eq!(site.get_with("/new", "Cache-Control: No-Cache\r\n").text(), "response 2");
}

fn rfc9111_5_2_1_4_the_response_to_no_cache_is_cached_for_others(site: &Site) {
    numbered(site, "/new", &["Cache-Control: max-age=3600"]);
    assert_eq!(site.get("/new").text(), "response 1");
    assert_eq!(site.get_with("/new", "Cache-Control: no-cache\r\n").text(), "response 2");
    assert_eq!(site.get("/new").text(), "response 2");
    assert_eq!(origin_requests(site, "/new"), 2);
}

fn rfc9111_5_2_1_5_the_response_to_no_store_is_not_cached(site: &Site) {
    numbered(site, "/secret", &["Cache-Control: max-age=3600"]);
    assert_eq!(site.get_with("/secret", "Cache-Control: no-store\r\n").text(), "response 1");
    assert_eq!(site.get("/secret").text(), "response 2");
}

fn rfc9111_5_2_1_7_only_if_cached_never_forwards(site: &Site) {
    numbered(site, "/only", &["Cache-Control: max-age=3600"]);
    assert_eq!(site.get_with("/only", "Cache-Control: only-if-cached\r\n").status, 504);
    assert_eq!(origin_requests(site, "/only"), 0);
    assert_eq!(site.get("/only").text(), "response 1");
    assert_eq!(site.get_with("/only", "Cache-Control: only-if-cached\r\n").text(), "response 1");
    numbered(site, "/stale", &["Cache-Control: max-age=60, must-revalidate", "Age: 100"]);
    site.get("/stale");
    assert_eq!(site.get_with("/stale", "Cache-Control: only-if-cached\r\n").status, 504);
    assert_eq!(origin_requests(site, "/stale"), 1);
}

fn rfc9111_5_4_pragma_counts_only_without_cache_control(site: &Site) {
    numbered(site, "/pragma", &["Cache-Control: max-age=3600"]);
    assert_eq!(site.get("/pragma").text(), "response 1");
    assert_eq!(
        site.get_with("/pragma", "Pragma: no-cache\r\nCache-Control: max-age=3000\r\n").text(),
        "response 1"
    );
    assert_eq!(site.get_with("/pragma", "Pragma: something\r\n").text(), "response 1");
    assert_eq!(site.get_with("/pragma", "Pragma: no-cache\r\n").text(), "response 2");
}
