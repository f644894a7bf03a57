//! Responses to requests with credentials: RFC 9111, section 3.5.

use crate::helpers::{numbered, origin_requests};
use crate::support::site::Site;

on_each_store![
    rfc9111_3_5_a_response_to_credentials_is_not_cached,
    rfc9111_3_5_public_must_revalidate_and_s_maxage_each_allow_caching,
    rfc9111_3_5_a_shared_response_is_served_to_clients_with_credentials,
];

const ALICE: &str = "Authorization: Basic YWxpY2U6MQ==\r\n";
const BOB: &str = "Authorization: Basic Ym9iOjI=\r\n";

fn rfc9111_3_5_a_response_to_credentials_is_not_cached(site: &Site) {
    for (index, control) in
        ["max-age=3600", "max-age=3600, proxy-revalidate", "max-age=3600, foo"].iter().enumerate()
    {
        let path = format!("/own/{index}");
        numbered(site, &path, &[&format!("Cache-Control: {control}")]);
        assert_eq!(site.get_with(&path, ALICE).text(), "response 1");
        assert_eq!(site.get_with(&path, BOB).text(), "response 2", "{control}");
        assert_eq!(site.get(&path).text(), "response 3", "{control}");
    }
    assert_eq!(site.origin.requests_for("/own/0")[0].header("authorization"), Some("Basic YWxpY2U6MQ=="));
}

fn rfc9111_3_5_public_must_revalidate_and_s_maxage_each_allow_caching(site: &Site) {
    for (index, control) in
        ["public, max-age=3600", "must-revalidate, max-age=3600", "s-maxage=3600"].iter().enumerate()
    {
        let path = format!("/shared/{index}");
        numbered(site, &path, &[&format!("Cache-Control: {control}")]);
        for lines in [ALICE, BOB, ""] {
            assert_eq!(site.get_with(&path, lines).text(), "response 1", "{control}");
        }
    }
}

fn rfc9111_3_5_a_shared_response_is_served_to_clients_with_credentials(site: &Site) {
    numbered(site, "/open", &["Cache-Control: max-age=3600"]);
    assert_eq!(site.get("/open").text(), "response 1");
    assert_eq!(site.get_with("/open", ALICE).text(), "response 1");
    assert_eq!(origin_requests(site, "/open"), 1);
}
