//! Response directives: RFC 9111, sections 3 and 5.2.2.

use crate::helpers::{
    assert_all_cached, assert_none_reused, first_then, numbered, origin_requests, scripted, silence,
    validated,
};
use crate::support::origin::{Gate, ScriptedResponse};
use crate::support::site::Site;
use crate::support::wait_for;

on_each_store![
    rfc9111_5_2_2_1_max_age_counts_from_the_response_of_the_origin,
    rfc9111_5_2_2_9_public_alone_gives_no_freshness,
    rfc9111_5_2_2_5_no_store_is_not_cached,
    rfc9111_5_2_2_7_private_is_not_cached,
    rfc9111_5_2_2_7_private_fields_are_not_served_to_others,
    rfc9111_5_2_2_4_no_cache_is_validated_for_every_request,
    rfc9111_5_2_2_4_no_cache_is_not_served_while_the_origin_is_unreachable,
    rfc9111_5_2_2_4_no_cache_fields_are_not_served_to_others,
    rfc9111_5_2_2_2_must_revalidate_is_never_served_stale,
    rfc9111_5_2_2_8_proxy_revalidate_is_never_served_stale,
    rfc9111_5_2_2_10_s_maxage_is_never_served_stale,
    rfc9111_5_2_2_10_s_maxage_does_not_disable_explicit_stale_windows,
    rfc9111_5_2_2_2_must_revalidate_is_served_while_it_is_fresh,
    rfc9111_5_2_2_3_must_understand_overrides_no_store_for_an_understood_status,
    rfc9111_5_2_2_3_must_understand_prevents_caching_an_unknown_status,
    rfc9111_5_2_2_6_no_transform_prevents_compression,
    rfc9111_5_4_pragma_in_a_response_is_ignored,
];

fn rfc9111_5_2_2_1_max_age_counts_from_the_response_of_the_origin(site: &Site) {
    assert_all_cached(site, "young", &[&["Cache-Control: max-age=600", "Age: 500"]]);
    assert_none_reused(site, "old", &[&["Cache-Control: max-age=600", "Age: 700"]]);
}

fn rfc9111_5_2_2_9_public_alone_gives_no_freshness(site: &Site) {
    assert_none_reused(
        site,
        "public",
        &[&["Cache-Control: public"], &["Cache-Control: public, max-age=60", "Age: 100"]],
    );
}

fn rfc9111_5_2_2_5_no_store_is_not_cached(site: &Site) {
    assert_none_reused(
        site,
        "no-store",
        &[
            &["Cache-Control: no-store"],
            &["Cache-Control: no-store, max-age=3600"],
            &["Cache-Control: max-age=3600, s-maxage=3600, no-store", "ETag: \"a\""],
            &["Cache-Control: no-store=\"x\", max-age=3600"],
        ],
    );
    validated(site, "/validator", &["Cache-Control: no-store, max-age=3600", "ETag: \"a\""]);
    for response in ["response 1", "response 2"] {
        assert_eq!(site.get("/validator").text(), response);
    }
    let reported = site.origin.requests_for("/validator");
    assert!(
        reported.iter().all(|request| !request.has("if-none-match")),
        "nothing was cached that could be validated"
    );
}

fn rfc9111_5_2_2_7_private_is_not_cached(site: &Site) {
    assert_none_reused(
        site,
        "private",
        &[
            &["Cache-Control: private"],
            &["Cache-Control: private, max-age=3600"],
            &["Cache-Control: s-maxage=3600, private"],
        ],
    );
}

/// Fails if the header field of a directive with this name is served to a second client.
fn assert_field_not_shared(site: &Site, directive: &str) {
    let control = format!("Cache-Control: {directive}=\"x-secret\", max-age=3600");
    numbered(site, "/fields", &[&control, "X-Secret: of the first"]);
    assert_eq!(site.get("/fields").header("x-secret"), Some("of the first"));
    let second = site.get("/fields");
    assert!(second.text() == "response 2" || second.header("x-secret").is_none(), "{second:?}");
}

fn rfc9111_5_2_2_7_private_fields_are_not_served_to_others(site: &Site) {
    assert_field_not_shared(site, "private");
}

fn rfc9111_5_2_2_4_no_cache_is_validated_for_every_request(site: &Site) {
    validated(site, "/no-cache", &["Cache-Control: no-cache, max-age=3600", "ETag: \"a\""]);
    for number in 1..=3 {
        let response = site.get("/no-cache");
        assert_eq!((response.status, response.text().as_str()), (200, "response 1"));
        assert_eq!(origin_requests(site, "/no-cache"), number);
    }
    let last = site.origin.requests_for("/no-cache").pop().expect("a request");
    assert_eq!(last.header("if-none-match"), Some("\"a\""));
    assert_none_reused(site, "no-validator", &[&["Cache-Control: no-cache, max-age=3600"]]);
}

/// Fails if a page with these headers is served while the origin is unreachable.
fn assert_not_served_in_an_outage(site: &Site, path: &str, lines: &[&str]) {
    first_then(site, path, ScriptedResponse::page(lines, "cached"), silence());
    assert_eq!(site.get(path).text(), "cached");
    let response = site.get(path);
    assert!([502, 503, 504].contains(&response.status), "{lines:?}: {} {}", response.status, response.text());
    assert_ne!(response.text(), "cached");
}

fn rfc9111_5_2_2_4_no_cache_is_not_served_while_the_origin_is_unreachable(site: &Site) {
    let lines = ["Cache-Control: no-cache, max-age=3600, stale-if-error=3600", "ETag: \"a\""];
    assert_not_served_in_an_outage(site, "/no-cache", &lines);
}

fn rfc9111_5_2_2_4_no_cache_fields_are_not_served_to_others(site: &Site) {
    assert_field_not_shared(site, "no-cache");
}

fn rfc9111_5_2_2_2_must_revalidate_is_never_served_stale(site: &Site) {
    let lines =
        ["Cache-Control: max-age=60, must-revalidate, stale-if-error=3600", "Age: 100", "ETag: \"a\""];
    assert_not_served_in_an_outage(site, "/must", &lines);
    numbered(
        site,
        "/behind",
        &["Cache-Control: max-age=60, must-revalidate, stale-while-revalidate=3600", "Age: 100"],
    );
    assert_eq!(
        (site.get("/behind").text(), site.get("/behind").text()),
        ("response 1".into(), "response 2".into())
    );
}

fn rfc9111_5_2_2_8_proxy_revalidate_is_never_served_stale(site: &Site) {
    let lines =
        ["Cache-Control: max-age=60, proxy-revalidate, stale-if-error=3600", "Age: 100", "ETag: \"a\""];
    assert_not_served_in_an_outage(site, "/proxy", &lines);
}

fn rfc9111_5_2_2_10_s_maxage_is_never_served_stale(site: &Site) {
    let lines = ["Cache-Control: s-maxage=60", "Age: 100", "ETag: \"a\""];
    assert_not_served_in_an_outage(site, "/shared", &lines);
}

fn rfc9111_5_2_2_10_s_maxage_does_not_disable_explicit_stale_windows(site: &Site) {
    let gate = Gate::default();
    let stale = ["Cache-Control: s-maxage=60, stale-while-revalidate=3600", "Age: 100"];
    let new = ScriptedResponse::page(&["Cache-Control: s-maxage=3600"], "new").after(&gate);
    first_then(site, "/behind", ScriptedResponse::page(&stale, "old"), new);
    // The origin does not respond before the gate opens, so these responses did not wait for it.
    for _ in 0..3 {
        assert_eq!(site.get("/behind").text(), "old");
    }
    gate.open();
    wait_for("the new page is served", || (site.get("/behind").text() == "new").then_some(()));
    let failing = ["Cache-Control: s-maxage=60, stale-if-error=3600", "Age: 100", "ETag: \"a\""];
    first_then(
        site,
        "/error",
        ScriptedResponse::page(&failing, "cached"),
        ScriptedResponse::with("503 Unavailable", &[], "broken"),
    );
    for _ in 0..2 {
        assert_eq!(site.get("/error").text(), "cached");
    }
    let past = ["Cache-Control: s-maxage=60, stale-while-revalidate=30", "Age: 100", "ETag: \"a\""];
    assert_not_served_in_an_outage(site, "/past", &past);
}

fn rfc9111_5_2_2_2_must_revalidate_is_served_while_it_is_fresh(site: &Site) {
    first_then(
        site,
        "/must",
        ScriptedResponse::page(&["Cache-Control: max-age=3600, must-revalidate"], "cached"),
        silence(),
    );
    for _ in 0..2 {
        assert_eq!(site.get("/must").text(), "cached");
    }
}

fn rfc9111_5_2_2_3_must_understand_overrides_no_store_for_an_understood_status(site: &Site) {
    numbered(site, "/understood", &["Cache-Control: must-understand, no-store, max-age=3600"]);
    for _ in 0..2 {
        assert_eq!(site.get("/understood").text(), "response 1");
    }
}

fn rfc9111_5_2_2_3_must_understand_prevents_caching_an_unknown_status(site: &Site) {
    for (index, control) in
        ["must-understand, max-age=3600", "must-understand, no-store, max-age=3600"].iter().enumerate()
    {
        let path = format!("/strange/{index}");
        let control = format!("Cache-Control: {control}");
        scripted(site, &path, move |_, number| {
            ScriptedResponse::with("299 Strange", &[&control], &format!("response {number}"))
        });
        assert_eq!(
            (site.get(&path).text(), site.get(&path).text()),
            ("response 1".into(), "response 2".into())
        );
    }
}

fn rfc9111_5_2_2_6_no_transform_prevents_compression(site: &Site) {
    let long = "text that could be made shorter ".repeat(200);
    site.origin
        .respond("/plain", ScriptedResponse::page(&["Cache-Control: max-age=3600, no-transform"], &long));
    for _ in 0..2 {
        let response = site.get_with("/plain", "Accept-Encoding: gzip, br, zstd\r\n");
        assert_eq!((response.header("content-encoding"), response.text()), (None, long.clone()));
    }
    assert_eq!(origin_requests(site, "/plain"), 1);
}

fn rfc9111_5_4_pragma_in_a_response_is_ignored(site: &Site) {
    numbered(site, "/pragma", &["Cache-Control: max-age=3600", "Pragma: no-cache"]);
    for _ in 0..2 {
        assert_eq!(site.get("/pragma").text(), "response 1");
    }
}
