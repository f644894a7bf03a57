//! Stale responses: RFC 9111, section 4.2.4, and RFC 5861.

use std::net::TcpStream;

use crate::helpers::{age, first_then, numbered, origin_requests, scripted, silence};
use crate::support::gateway::Gateway;
use crate::support::origin::{Gate, Origin, ScriptedResponse};
use crate::support::site::{LONG_TIMEOUTS, Site, get};
use crate::support::wait_for;

on_each_store![
    rfc9111_4_2_4_a_stale_response_is_not_served_while_the_origin_responds,
    rfc9111_4_2_4_a_stale_response_is_served_while_the_origin_is_unreachable,
    rfc9111_4_2_4_a_response_to_a_cookie_is_not_served_to_others_while_the_origin_is_unreachable,
    rfc5861_3_within_stale_while_revalidate_no_client_waits,
    rfc5861_3_past_stale_while_revalidate_clients_wait,
    rfc5861_3_the_background_revalidation_is_served_afterwards,
    rfc5861_4_within_stale_if_error_a_stale_response_replaces_an_error,
    rfc5861_4_within_stale_if_error_a_stale_response_is_served_during_an_outage,
    rfc5861_4_past_stale_if_error_the_error_is_forwarded,
    rfc5861_4_an_error_without_stale_if_error_is_forwarded,
    rfc5861_4_only_server_errors_are_replaced,
    rfc5861_4_stale_if_error_of_a_request_counts_as_well,
    rfc9111_5_1_a_stale_response_has_its_true_age,
];

fn rfc9111_4_2_4_a_stale_response_is_not_served_while_the_origin_responds(site: &Site) {
    numbered(site, "/stale", &["Cache-Control: max-age=60", "Age: 100", "ETag: \"a\""]);
    for number in 1..=3 {
        assert_eq!(site.get("/stale").text(), format!("response {number}"));
    }
}

fn rfc9111_4_2_4_a_stale_response_is_served_while_the_origin_is_unreachable(site: &Site) {
    failing(site, "/outage", "public", silence());
    let response = site.get("/outage");
    assert_eq!((response.status, response.text().as_str()), (200, "cached"));
    assert!(age(&response) >= 100, "it has its true age");
}

#[test]
fn rfc9111_4_2_4_a_stale_response_is_served_while_the_origin_refuses_connections() {
    let origin = Origin::start_at("127.9.111.1");
    let address = origin.address;
    let directory = tempfile::tempdir().expect("a directory");
    let gateway = Gateway::start(directory.path(), address, LONG_TIMEOUTS, &[]);
    let request = |path: &str| gateway.exchange(get(path, ""));
    let headers = ["Cache-Control: max-age=60", "Age: 100", "ETag: \"a\"", "Connection: close"];
    origin.respond("/cached", ScriptedResponse::page(&headers, "cached").then_close());
    assert_eq!(request("/cached").text(), "cached");
    drop(origin);
    wait_for("connections are refused", || TcpStream::connect(address).is_err().then_some(()));
    let response = request("/cached");
    assert_eq!((response.status, response.text().as_str()), (200, "cached"));
    let other = request("/other");
    assert_eq!((other.status, other.text().trim()), (502, "the origin is unreachable"));
}

#[test]
fn rfc9111_4_2_4_a_stale_response_is_served_while_the_origin_does_not_respond() {
    let site = Site::start("[timeouts]\nheaders = \"1s\"\n");
    let stuck = Gate::default();
    let never = ScriptedResponse::page(&[], "never").after(&stuck);
    site.origin.respond("/other", never.clone());
    site.origin.respond(
        "/cached",
        ScriptedResponse::page(&["Cache-Control: max-age=60", "Age: 100", "ETag: \"a\""], "cached"),
    );
    // A busy machine may need more than one attempt.
    wait_for("the response is cached", || (site.get("/cached").text() == "cached").then_some(()));
    site.origin.respond("/cached", never);
    let response = site.get("/cached");
    assert_eq!((response.status, response.text().as_str()), (200, "cached"));
    let other = site.get("/other");
    assert_eq!((other.status, other.text().trim()), (504, "the origin did not respond in time"));
    stuck.open();
}

fn rfc9111_4_2_4_a_response_to_a_cookie_is_not_served_to_others_while_the_origin_is_unreachable(site: &Site) {
    first_then(site, "/own", ScriptedResponse::page(&["ETag: \"a\""], "the page of Alice"), silence());
    assert_eq!(site.get_with("/own", "Cookie: sid=alice\r\n").text(), "the page of Alice");
    assert_eq!(site.get_with("/own", "Cookie: sid=bob\r\n").status, 502);
}

fn rfc5861_3_within_stale_while_revalidate_no_client_waits(site: &Site) {
    let gate = Gate::default();
    let stale = ScriptedResponse::page(
        &["Cache-Control: max-age=60, stale-while-revalidate=3600", "Age: 100"],
        "old",
    );
    let new = ScriptedResponse::page(&["Cache-Control: max-age=3600"], "new");
    first_then(site, "/behind", stale, new.after(&gate));
    assert_eq!(site.get("/behind").text(), "old");
    // The origin does not respond before the gate opens, so these responses did not wait for it.
    for _ in 0..3 {
        assert_eq!(site.get("/behind").text(), "old");
    }
    gate.open();
    wait_for("the new page is served", || (site.get("/behind").text() == "new").then_some(()));
    assert_eq!(origin_requests(site, "/behind"), 2, "one revalidation in the background");
}

fn rfc5861_3_past_stale_while_revalidate_clients_wait(site: &Site) {
    numbered(site, "/past", &["Cache-Control: max-age=60, stale-while-revalidate=30", "Age: 100"]);
    assert_eq!(
        (site.get("/past").text(), site.get("/past").text()),
        ("response 1".into(), "response 2".into())
    );
}

fn rfc5861_3_the_background_revalidation_is_served_afterwards(site: &Site) {
    let stale =
        ["Cache-Control: max-age=60, stale-while-revalidate=3600", "Age: 100", "ETag: \"a\"", "X-Own: 1"];
    let fresh = ["Cache-Control: max-age=3600", "ETag: \"a\"", "X-Own: 2"];
    first_then(
        site,
        "/behind",
        ScriptedResponse::page(&stale, "cached"),
        ScriptedResponse::with("304 Not Modified", &fresh, ""),
    );
    assert_eq!(site.get("/behind").text(), "cached");
    wait_for("the validation is visible", || {
        let response = site.get("/behind");
        assert_eq!((response.status, response.text().as_str()), (200, "cached"));
        (response.header("x-own") == Some("2")).then_some(())
    });
    assert_eq!(origin_requests(site, "/behind"), 2);
}

/// A page with this directive that went stale 40 seconds ago, and whose origin fails since.
fn failing(site: &Site, path: &str, directive: &str, failure: ScriptedResponse) {
    let control = format!("Cache-Control: max-age=60, {directive}");
    first_then(site, path, ScriptedResponse::page(&[&control, "Age: 100", "ETag: \"a\""], "cached"), failure);
    assert_eq!(site.get(path).text(), "cached");
}

fn rfc5861_4_within_stale_if_error_a_stale_response_replaces_an_error(site: &Site) {
    for status in ["500 Error", "502 Bad Gateway", "503 Unavailable", "504 Timeout"] {
        let path = format!("/hidden/{}", &status[..3]);
        failing(site, &path, "stale-if-error=3600", ScriptedResponse::with(status, &[], "broken"));
        let response = site.get(&path);
        assert_eq!((response.status, response.text().as_str()), (200, "cached"), "{status}");
    }
}

fn rfc5861_4_within_stale_if_error_a_stale_response_is_served_during_an_outage(site: &Site) {
    failing(site, "/outage", "stale-if-error=3600", silence());
    let response = site.get("/outage");
    assert_eq!((response.status, response.text().as_str()), (200, "cached"));
}

fn rfc5861_4_past_stale_if_error_the_error_is_forwarded(site: &Site) {
    failing(site, "/past", "stale-if-error=30", ScriptedResponse::with("503 Unavailable", &[], "broken"));
    let response = site.get("/past");
    assert_eq!((response.status, response.text().as_str()), (503, "broken"));
}

fn rfc5861_4_an_error_without_stale_if_error_is_forwarded(site: &Site) {
    failing(site, "/shown", "public", ScriptedResponse::with("500 Error", &[], "broken"));
    let response = site.get("/shown");
    assert_eq!((response.status, response.text().as_str()), (500, "broken"));
}

fn rfc5861_4_only_server_errors_are_replaced(site: &Site) {
    for status in ["404 Not Found", "410 Gone", "403 Forbidden", "302 Found"] {
        let path = format!("/told/{}", &status[..3]);
        let response =
            ScriptedResponse::with(status, &["Cache-Control: no-store", "Location: /elsewhere"], "told");
        failing(site, &path, "stale-if-error=3600", response);
        assert_eq!(site.get(&path).text(), "told", "{status}");
    }
}

fn rfc5861_4_stale_if_error_of_a_request_counts_as_well(site: &Site) {
    failing(site, "/demanded", "public", ScriptedResponse::with("503 Unavailable", &[], "broken"));
    let response = site.get_with("/demanded", "Cache-Control: stale-if-error=3600\r\n");
    assert_eq!((response.status, response.text().as_str()), (200, "cached"));
    let response = site.get_with("/demanded", "Cache-Control: stale-if-error=10\r\n");
    assert_eq!((response.status, response.text().as_str()), (503, "broken"));
}

fn rfc9111_5_1_a_stale_response_has_its_true_age(site: &Site) {
    scripted(site, "/age", |_, number| match number {
        1 => {
            ScriptedResponse::page(&["Cache-Control: max-age=60, stale-if-error=3600", "Age: 100"], "cached")
        }
        _ => ScriptedResponse::with("500 Error", &[], "broken"),
    });
    site.get("/age");
    let stale = site.get("/age");
    assert_eq!(stale.text(), "cached");
    assert!((100..200).contains(&age(&stale)));
}
