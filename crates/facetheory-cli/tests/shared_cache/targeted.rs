//! Targeted Cache-Control: RFC 9213.

use crate::date::date;
use crate::helpers::{assert_all_cached, assert_none_reused, numbered};
use crate::support::site::Site;

on_each_store![
    rfc9213_2_2_a_targeted_field_wins_over_cache_control_and_expires,
    rfc9213_2_2_our_own_field_wins_over_cdn_cache_control,
    rfc9213_2_2_a_field_for_another_cache_is_ignored,
    rfc9213_2_1_a_field_that_is_not_a_dictionary_is_ignored,
    rfc9213_2_1_an_empty_field_is_ignored,
    rfc9213_2_1_values_of_the_wrong_type_are_ignored,
    rfc9213_2_1_unknown_directives_and_parameters_are_ignored,
    rfc9213_3_the_field_is_forwarded,
];

fn rfc9213_2_2_a_targeted_field_wins_over_cache_control_and_expires(site: &Site) {
    let (past, later) = (format!("Expires: {}", date(-60)), format!("Expires: {}", date(3600)));
    assert_all_cached(
        site,
        "allowed",
        &[
            &["CDN-Cache-Control: max-age=3600", "Cache-Control: no-store"],
            &["CDN-Cache-Control: max-age=3600", "Cache-Control: private, max-age=0"],
            &["CDN-Cache-Control: max-age=3600", "Cache-Control: max-age=60", "Age: 100"],
            &["CDN-Cache-Control: max-age=3600", &past],
            &["CDN-Cache-Control: s-maxage=3600", "Cache-Control: s-maxage=0"],
            &["FaceTheory-Cache-Control: max-age=3600", "Cache-Control: no-store"],
        ],
    );
    assert_none_reused(
        site,
        "forbidden",
        &[
            &["CDN-Cache-Control: no-store", "Cache-Control: max-age=3600"],
            &["CDN-Cache-Control: private", "Cache-Control: public, s-maxage=3600"],
            &["CDN-Cache-Control: no-cache", "Cache-Control: max-age=3600"],
            &["CDN-Cache-Control: max-age=0", "Cache-Control: max-age=3600"],
            &["CDN-Cache-Control: max-age=60", "Cache-Control: max-age=3600", "Age: 100"],
            &["CDN-Cache-Control: max-age=0", &later],
            &["FaceTheory-Cache-Control: no-store", "Cache-Control: max-age=3600"],
        ],
    );
}

fn rfc9213_2_2_our_own_field_wins_over_cdn_cache_control(site: &Site) {
    assert_all_cached(
        site,
        "own",
        &[&["CDN-Cache-Control: no-store", "FaceTheory-Cache-Control: max-age=3600"]],
    );
    assert_none_reused(
        site,
        "own-not",
        &[&["FaceTheory-Cache-Control: no-store", "CDN-Cache-Control: max-age=3600"]],
    );
}

fn rfc9213_2_2_a_field_for_another_cache_is_ignored(site: &Site) {
    assert_all_cached(site, "others", &[&["Other-Cache-Control: no-store", "Cache-Control: max-age=3600"]]);
    assert_none_reused(site, "others-not", &[&["Other-Cache-Control: max-age=3600"]]);
}

fn rfc9213_2_1_a_field_that_is_not_a_dictionary_is_ignored(site: &Site) {
    for (index, wrong) in
        ["max-age=3600, &&", "max-age=, no-store", "\"max-age=3600\"", "Max Age=3600", "max-age=3600;;"]
            .iter()
            .enumerate()
    {
        let field = format!("CDN-Cache-Control: {wrong}");
        assert_none_reused(site, &format!("not/{index}"), &[&[&field, "Cache-Control: no-store"]]);
        assert_all_cached(site, &format!("kept/{index}"), &[&[&field, "Cache-Control: max-age=3600"]]);
    }
}

fn rfc9213_2_1_an_empty_field_is_ignored(site: &Site) {
    assert_all_cached(site, "empty", &[&["CDN-Cache-Control:", "Cache-Control: max-age=3600"]]);
    assert_none_reused(site, "empty-not", &[&["CDN-Cache-Control:", "Cache-Control: no-store"]]);
}

fn rfc9213_2_1_values_of_the_wrong_type_are_ignored(site: &Site) {
    assert_none_reused(
        site,
        "types",
        &[
            &["CDN-Cache-Control: max-age=\"3600\""],
            &["CDN-Cache-Control: max-age=3600.0"],
            &["CDN-Cache-Control: max-age=-1"],
            &["CDN-Cache-Control: max-age"],
        ],
    );
}

fn rfc9213_2_1_unknown_directives_and_parameters_are_ignored(site: &Site) {
    assert_all_cached(
        site,
        "unknown",
        &[
            &["CDN-Cache-Control: max-age=3600, extension", "Cache-Control: no-store"],
            &["CDN-Cache-Control: max-age=3600;extension=1, other=(1 2)", "Cache-Control: no-store"],
            &["CDN-Cache-Control: public", "CDN-Cache-Control: max-age=3600", "Cache-Control: no-store"],
        ],
    );
}

fn rfc9213_3_the_field_is_forwarded(site: &Site) {
    numbered(site, "/sent", &["CDN-Cache-Control: max-age=3600", "Cache-Control: no-store"]);
    for _ in 0..2 {
        let response = site.get("/sent");
        let reported = ["cdn-cache-control", "cache-control"].map(|name| response.header(name));
        assert_eq!(
            (response.text().as_str(), reported),
            ("response 1", [Some("max-age=3600"), Some("no-store")])
        );
    }
}
