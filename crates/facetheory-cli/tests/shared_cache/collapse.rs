//! Concurrent requests: RFC 9111, section 4, allows them to be collapsed into one.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use crate::helpers::{cache_status, numbered, origin_requests, scripted};
use crate::support::client::{Connection, Response};
use crate::support::origin::{Gate, ScriptedResponse};
use crate::support::site::{Site, get};
use crate::support::wait_for;

on_each_store![
    rfc9111_4_concurrent_clients_of_a_cacheable_page_share_one_request,
    rfc9211_2_6_collapsed_requests_are_reported,
    rfc9111_4_a_private_response_is_not_shared_with_waiting_clients,
    rfc9111_4_a_response_that_must_be_validated_is_not_shared_with_waiting_clients,
    rfc9111_4_a_response_to_credentials_that_must_be_validated_is_not_shared_with_waiting_clients,
    rfc9111_4_3_3_an_error_for_one_client_is_not_shared_with_waiting_clients,
    rfc9111_4_requests_for_an_uncacheable_page_are_not_serialized,
    rfc9111_4_a_page_that_becomes_cacheable_is_cached,
    rfc9111_4_1_waiting_clients_get_their_own_variant,
];

/// The number of concurrent clients.
const CLIENTS: usize = 12;

/// Sends concurrent requests, each with the header line of its number.
fn clients(site: &Site, path: &str, line: impl Fn(usize) -> String) -> Vec<Connection> {
    let send = |number| {
        let mut connection = site.gateway.connect();
        connection.send(get(path, &line(number)));
        connection
    };
    (0..CLIENTS).map(send).collect()
}

fn responses_of(clients: Vec<Connection>) -> Vec<Response> {
    clients.into_iter().map(|mut connection| connection.response()).collect()
}

/// Makes the origin respond only when the gate opens, and counts the waiting requests.
fn gated(site: &Site, path: &str, lines: &'static [&'static str]) -> (Gate, Arc<AtomicUsize>) {
    let (gate, waiting) = (Gate::default(), Arc::new(AtomicUsize::new(0)));
    let (opened, counted) = (gate.clone(), waiting.clone());
    scripted(site, path, move |request, number| {
        counted.fetch_add(1, Ordering::Relaxed);
        let language = request.header("x-language").unwrap_or("none").to_owned();
        ScriptedResponse::page(lines, &format!("response {number} for {language}")).after(&opened)
    });
    (gate, waiting)
}

fn rfc9111_4_concurrent_clients_of_a_cacheable_page_share_one_request(site: &Site) {
    let (gate, waiting) = gated(site, "/shared", &["Cache-Control: max-age=3600"]);
    let all = clients(site, "/shared", |_| String::new());
    wait_for("a request reaches the origin", || (waiting.load(Ordering::Relaxed) > 0).then_some(()));
    gate.open();
    for response in responses_of(all) {
        assert_eq!(response.text(), "response 1 for none");
    }
    assert_eq!(origin_requests(site, "/shared"), 1);
}

fn rfc9211_2_6_collapsed_requests_are_reported(site: &Site) {
    /// On a busy machine all other requests of a round may arrive after the response was cached.
    const ROUNDS: usize = 20;
    let collapsed_of = |round: usize| {
        let path = format!("/told/{round}");
        let (gate, waiting) = gated(site, &path, &["Cache-Control: max-age=3600"]);
        let all = clients(site, &path, |_| String::new());
        wait_for("a request reaches the origin", || (waiting.load(Ordering::Relaxed) > 0).then_some(()));
        gate.open();
        let responses = responses_of(all);
        let has =
            |name: &str| responses.iter().filter(|response| cache_status(response, name).is_some()).count();
        // A request that arrived after the response was cached is a hit; all others have waited.
        assert_eq!((has("stored"), has("hit") + has("collapsed")), (1, CLIENTS - 1));
        assert!(responses.iter().all(|response| {
            cache_status(response, "hit").is_none() || cache_status(response, "collapsed").is_none()
        }));
        has("collapsed")
    };
    assert!((0..ROUNDS).any(|round| collapsed_of(round) > 0), "no request was reported as collapsed");
}

fn rfc9111_4_a_private_response_is_not_shared_with_waiting_clients(site: &Site) {
    assert_none_shared(site, "/private", &["Cache-Control: private"], |_| String::new());
}

/// Fails if one of several concurrent clients, each with the header line of its number, gets the response of another.
fn assert_none_shared(
    site: &Site,
    path: &str,
    lines: &'static [&'static str],
    line: impl Fn(usize) -> String,
) {
    let (gate, waiting) = gated(site, path, lines);
    let all = clients(site, path, line);
    wait_for("a request reaches the origin", || (waiting.load(Ordering::Relaxed) > 0).then_some(()));
    gate.open();
    let mut texts: Vec<String> = responses_of(all).iter().map(Response::text).collect();
    texts.sort();
    texts.dedup();
    assert_eq!(texts.len(), CLIENTS, "a client got the response of another: {lines:?}");
}

fn rfc9111_4_a_response_that_must_be_validated_is_not_shared_with_waiting_clients(site: &Site) {
    let cases: [&[&str]; 5] = [
        &["Cache-Control: no-cache", "ETag: \"a\""],
        &["Cache-Control: max-age=0, must-revalidate", "ETag: \"a\""],
        &["Cache-Control: max-age=60, stale-while-revalidate=30", "Age: 100", "ETag: \"a\""],
        &["Cache-Control: no-cache, stale-while-revalidate=3600", "ETag: \"a\""],
        &["ETag: \"a\""],
    ];
    for (index, lines) in cases.into_iter().enumerate() {
        let path = format!("/validated/{index}");
        assert_none_shared(site, &path, lines, |number| format!("X-Language: l{number}\r\n"));
        // A single request validates the cached response.
        site.get(&path);
        let last = site.origin.requests_for(&path).pop().expect("a request");
        assert_eq!(last.header("if-none-match"), Some("\"a\""), "{lines:?}");
    }
}

fn rfc9111_4_a_response_to_credentials_that_must_be_validated_is_not_shared_with_waiting_clients(
    site: &Site,
) {
    let credentials = |number| format!("Authorization: Bearer {number}\r\n");
    let lines = &["Cache-Control: max-age=0, must-revalidate", "ETag: \"a\""];
    assert_none_shared(site, "/credentials", lines, credentials);
}

/// The responses to concurrent requests, each with the header line of its number, while the origin fails to revalidate
/// a stale page, with these headers.
fn failures(
    site: &Site,
    path: &str,
    lines: &'static [&'static str],
    line: impl Fn(usize) -> String,
) -> Vec<Response> {
    let stale = ["Cache-Control: public, max-age=60", "Age: 100", "ETag: \"a\""];
    site.origin.respond(path, ScriptedResponse::page(&stale, "cached"));
    assert_eq!(site.get(path).text(), "cached");
    let (gate, waiting) = (Gate::default(), Arc::new(AtomicUsize::new(0)));
    let (opened, counted) = (gate.clone(), waiting.clone());
    scripted(site, path, move |_, number| {
        counted.fetch_add(1, Ordering::Relaxed);
        ScriptedResponse::with("500 Error", lines, &format!("failure {number}")).after(&opened)
    });
    let all = clients(site, path, line);
    wait_for("a request reaches the origin", || (waiting.load(Ordering::Relaxed) > 0).then_some(()));
    gate.open();
    responses_of(all)
}

fn rfc9111_4_3_3_an_error_for_one_client_is_not_shared_with_waiting_clients(site: &Site) {
    let cases: [(&'static [&'static str], &str); 7] = [
        (&["Cache-Control: private, no-store"], ""),
        (&["Cache-Control: no-cache"], ""),
        (&["CDN-Cache-Control: private"], ""),
        (&["Set-Cookie: sid=1"], ""),
        (&["Vary: Cookie"], ""),
        (&[], "Cookie: sid="),
        (&[], "Authorization: Bearer "),
    ];
    for (index, (lines, own)) in cases.into_iter().enumerate() {
        let own = |number| if own.is_empty() { String::new() } else { format!("{own}{number}\r\n") };
        let all = failures(site, &format!("/failing/{index}"), lines, own);
        assert!(all.iter().all(|response| response.status == 500), "{lines:?}");
        let texts: BTreeSet<String> = all.iter().map(Response::text).collect();
        assert_eq!(texts.len(), CLIENTS, "a client got the error of another: {lines:?}, {texts:?}");
    }
}

fn rfc9111_4_requests_for_an_uncacheable_page_are_not_serialized(site: &Site) {
    numbered(site, "/open", &["Cache-Control: no-store"]);
    site.get("/open");
    let (gate, waiting) = gated(site, "/open", &["Cache-Control: no-store"]);
    let all = clients(site, "/open", |_| String::new());
    // The gate is closed: all requests are at the origin only if none waits for another.
    wait_for("all requests are at the origin", || (waiting.load(Ordering::Relaxed) == CLIENTS).then_some(()));
    gate.open();
    assert_eq!(responses_of(all).len(), CLIENTS);
}

fn rfc9111_4_a_page_that_becomes_cacheable_is_cached(site: &Site) {
    numbered(site, "/again", &["Cache-Control: no-store"]);
    for _ in 0..3 {
        site.get("/again");
    }
    numbered(site, "/again", &["Cache-Control: max-age=3600"]);
    wait_for("the page is cached", || {
        let before = origin_requests(site, "/again");
        site.get("/again");
        (origin_requests(site, "/again") == before).then_some(())
    });
}

fn rfc9111_4_1_waiting_clients_get_their_own_variant(site: &Site) {
    let (gate, waiting) = gated(site, "/variants", &["Cache-Control: max-age=3600", "Vary: X-Language"]);
    let all = clients(site, "/variants", |number| format!("X-Language: l{}\r\n", number % 3));
    wait_for("a request reaches the origin", || (waiting.load(Ordering::Relaxed) > 0).then_some(()));
    gate.open();
    for (number, response) in responses_of(all).iter().enumerate() {
        assert!(response.text().ends_with(&format!(" for l{}", number % 3)), "{number}: {}", response.text());
    }
}
