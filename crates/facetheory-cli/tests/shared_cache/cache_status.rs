//! The Cache-Status header: RFC 9211.

use crate::helpers::{cache_status, first_then, numbered, validated};
use crate::support::origin::ScriptedResponse;
use crate::support::site::Site;

on_each_store![
    rfc9211_2_1_a_hit_is_reported,
    rfc9211_2_2_the_reason_for_forwarding_is_reported,
    rfc9211_2_2_a_missing_variant_is_reported_as_vary_miss,
    rfc9211_2_2_the_validation_of_a_stale_response_is_reported,
    rfc9211_2_2_methods_and_request_directives_are_reported,
    rfc9211_2_3_the_status_of_the_origin_is_reported,
    rfc9211_2_4_the_remaining_freshness_is_reported,
    rfc9211_2_5_storing_is_reported,
    rfc9211_2_7_the_cache_key_is_reported,
    rfc9211_2_entries_of_other_caches_come_first,
];

fn rfc9211_2_1_a_hit_is_reported(site: &Site) {
    numbered(site, "/hit", &["Cache-Control: max-age=3600"]);
    let (first, second) = (site.get("/hit"), site.get("/hit"));
    assert_eq!((cache_status(&first, "hit"), cache_status(&second, "hit")), (None, Some("")));
    assert_eq!(cache_status(&second, "fwd"), None);
}

fn rfc9211_2_2_the_reason_for_forwarding_is_reported(site: &Site) {
    numbered(site, "/miss", &["Cache-Control: max-age=3600"]);
    assert_eq!(cache_status(&site.get("/miss"), "fwd"), Some("uri-miss"));
}

fn rfc9211_2_2_a_missing_variant_is_reported_as_vary_miss(site: &Site) {
    numbered(site, "/vary", &["Cache-Control: max-age=3600", "Vary: X-Language"]);
    assert_eq!(cache_status(&site.get_with("/vary", "X-Language: de\r\n"), "fwd"), Some("uri-miss"));
    assert_eq!(cache_status(&site.get_with("/vary", "X-Language: fr\r\n"), "fwd"), Some("vary-miss"));
    assert_eq!(cache_status(&site.get_with("/vary", "X-Language: de\r\n"), "hit"), Some(""));
}

fn rfc9211_2_2_the_validation_of_a_stale_response_is_reported(site: &Site) {
    validated(site, "/stale", &["Cache-Control: max-age=60", "Age: 100", "ETag: \"a\""]);
    site.get("/stale");
    let second = site.get("/stale");
    assert_eq!((cache_status(&second, "fwd"), cache_status(&second, "hit")), (Some("stale"), None));
}

fn rfc9211_2_2_methods_and_request_directives_are_reported(site: &Site) {
    numbered(site, "/page", &["Cache-Control: max-age=3600"]);
    site.get("/page");
    assert_eq!(cache_status(&site.get_with("/page", "Cache-Control: no-cache\r\n"), "fwd"), Some("request"));
    assert_eq!(cache_status(&site.request("POST", "/page", "Content-Length: 0\r\n"), "fwd"), Some("method"));
}

fn rfc9211_2_3_the_status_of_the_origin_is_reported(site: &Site) {
    let stale = ScriptedResponse::page(&["Cache-Control: max-age=60", "Age: 100", "ETag: \"a\""], "cached");
    first_then(site, "/status", stale, ScriptedResponse::with("304 Not Modified", &["ETag: \"a\""], ""));
    site.get("/status");
    assert_eq!(cache_status(&site.get("/status"), "fwd-status"), Some("304"));
}

fn rfc9211_2_4_the_remaining_freshness_is_reported(site: &Site) {
    numbered(site, "/ttl", &["Cache-Control: max-age=3600", "Age: 600"]);
    site.get("/ttl");
    let second = site.get("/ttl");
    let rest: i64 = cache_status(&second, "ttl").expect("a ttl").parse().expect("a number");
    assert!((2900..=3000).contains(&rest), "{rest}");
}

fn rfc9211_2_5_storing_is_reported(site: &Site) {
    numbered(site, "/stored", &["Cache-Control: max-age=3600"]);
    numbered(site, "/not", &["Cache-Control: no-store"]);
    assert_eq!(cache_status(&site.get("/stored"), "stored"), Some(""));
    assert_eq!(cache_status(&site.get("/not"), "stored"), None);
}

fn rfc9211_2_7_the_cache_key_is_reported(site: &Site) {
    numbered(site, "/keyed", &["Cache-Control: max-age=3600", "Vary: X-Language"]);
    numbered(site, "/not", &["Cache-Control: no-store"]);
    let key = |path: &str, language: &str| {
        let response = site.get_with(path, &format!("X-Language: {language}\r\n"));
        cache_status(&response, "key").map(str::to_owned)
    };
    let german = key("/keyed", "de").expect("a key");
    assert!(german.starts_with('"') && german.ends_with('"') && german.contains("keyed"), "{german}");
    assert_eq!(key("/keyed", "de"), Some(german.clone()), "a hit has the key of its miss");
    assert_ne!(key("/keyed", "fr"), Some(german), "each variant has its own key");
    assert_eq!(key("/not", "de"), None);
}

fn rfc9211_2_entries_of_other_caches_come_first(site: &Site) {
    numbered(site, "/behind", &["Cache-Control: max-age=3600", "Cache-Status: Behind; hit"]);
    for _ in 0..2 {
        let response = site.get("/behind");
        let lines = response.headers.iter().filter(|(name, _)| name == "cache-status");
        let all: Vec<&str> = lines.map(|(_, value)| value.as_str()).collect();
        let all = all.join(", ");
        assert!(all.starts_with("Behind; hit") && all.contains(", FaceTheory"), "{all}");
    }
    assert_eq!(cache_status(&site.get("/behind"), "hit"), Some(""));
}
