//! Invalidation by unsafe methods: RFC 9111, section 4.4.

use crate::helpers::{numbered, origin_requests, owned, page, scripted, silence};
use crate::support::origin::{Gate, ScriptedResponse};
use crate::support::site::{HOST, Site, request};
use crate::support::wait_for;

on_each_store![
    rfc9111_4_unsafe_methods_reach_the_origin,
    rfc9111_4_4_a_successful_unsafe_method_invalidates_the_page,
    rfc9111_4_4_an_unknown_method_is_unsafe,
    rfc9111_4_4_a_failed_unsafe_method_invalidates_nothing,
    rfc9111_4_4_safe_methods_invalidate_nothing,
    rfc9111_4_4_location_and_content_location_are_invalidated_too,
    rfc9111_4_4_other_origins_are_not_invalidated,
    rfc9111_4_4_all_variants_are_invalidated,
    rfc9111_4_4_other_pages_are_not_invalidated,
    rfc9111_4_4_an_admin_invalidation_covers_all_variants,
    rfc9111_4_4_an_unsafe_method_invalidates_although_its_client_has_disconnected,
    rfc9111_4_4_an_incomplete_request_is_not_completed_when_its_client_disconnects,
    rfc9111_3_responses_to_post_are_not_cached,
];

/// A header that makes a page cacheable.
const FRESH: &str = "Cache-Control: max-age=3600";

/// Caches a page; the responses to other methods have this status and these headers.
fn cache_changeable(site: &Site, path: &str, status: &'static str, lines: &[&str]) {
    let lines = owned(lines);
    scripted(site, path, move |request, number| match request.method.as_str() {
        "GET" => ScriptedResponse::page(&[FRESH], &format!("response {number}")),
        _ => {
            let lines: Vec<&str> = lines.iter().map(String::as_str).collect();
            ScriptedResponse::with(status, &lines, if status.starts_with("204") { "" } else { "done" })
        }
    });
    site.get(path);
    let requests_before = origin_requests(site, path);
    site.get(path);
    assert_eq!(origin_requests(site, path), requests_before, "the page is cached");
}

/// Whether the next request is served from the cache.
fn is_cached(site: &Site, path: &str) -> bool {
    let before = origin_requests(site, path);
    site.get(path);
    origin_requests(site, path) == before
}

fn rfc9111_4_unsafe_methods_reach_the_origin(site: &Site) {
    cache_changeable(site, "/through", "200 OK", &[FRESH]);
    for method in ["POST", "PUT", "DELETE", "PATCH"] {
        assert_eq!(site.request(method, "/through", "Content-Length: 0\r\n").text(), "done");
        let last = site.origin.requests_for("/through").pop().expect("a request");
        assert_eq!(last.method, method);
    }
}

fn rfc9111_4_4_a_successful_unsafe_method_invalidates_the_page(site: &Site) {
    for (method, status) in [
        ("POST", "200 OK"),
        ("PUT", "201 Created"),
        ("DELETE", "204 No Content"),
        ("PATCH", "202 Accepted"),
        ("POST", "303 See Other"),
    ] {
        let path = format!("/{method}/{}", &status[..3]);
        cache_changeable(site, &path, status, &["Location: /elsewhere"]);
        site.request(method, &path, "Content-Length: 0\r\n");
        assert!(!is_cached(site, &path), "{method} {status}");
    }
}

fn rfc9111_4_4_an_unknown_method_is_unsafe(site: &Site) {
    cache_changeable(site, "/strange", "200 OK", &[]);
    site.request("STRANGE", "/strange", "Content-Length: 0\r\n");
    assert!(!is_cached(site, "/strange"));
}

fn rfc9111_4_4_a_failed_unsafe_method_invalidates_nothing(site: &Site) {
    for status in ["400 Bad Request", "404 Not Found", "409 Conflict", "500 Error", "503 Unavailable"] {
        let path = format!("/fails/{}", &status[..3]);
        cache_changeable(site, &path, status, &[]);
        site.request("POST", &path, "Content-Length: 0\r\n");
        assert!(is_cached(site, &path), "{status}");
    }
}

fn rfc9111_4_4_safe_methods_invalidate_nothing(site: &Site) {
    cache_changeable(site, "/safe", "200 OK", &[]);
    for method in ["HEAD", "OPTIONS"] {
        site.request(method, "/safe", "");
        assert!(is_cached(site, "/safe"), "{method}");
    }
}

fn rfc9111_4_4_location_and_content_location_are_invalidated_too(site: &Site) {
    for (index, (name, value)) in [
        ("Location", "/named/0".to_owned()),
        ("Content-Location", "/named/1".to_owned()),
        ("Location", format!("http://{HOST}/named/2")),
        ("Content-Location", "../named/3".to_owned()),
    ]
    .into_iter()
    .enumerate()
    {
        let (form, named) = (format!("/form/{index}"), format!("/named/{index}"));
        cache_changeable(site, &named, "200 OK", &[]);
        cache_changeable(site, &form, "200 OK", &[&format!("{name}: {value}")]);
        site.request("POST", &form, "Content-Length: 0\r\n");
        assert!(!is_cached(site, &named), "{name}: {value}");
    }
}

fn rfc9111_4_4_other_origins_are_not_invalidated(site: &Site) {
    for (index, name) in ["Location", "Content-Location"].into_iter().enumerate() {
        let (form, named) = (format!("/form/{index}"), format!("/named/{index}"));
        cache_changeable(site, &named, "200 OK", &[]);
        cache_changeable(site, &form, "200 OK", &[&format!("{name}: http://other.example.org{named}")]);
        site.request("POST", &form, "Content-Length: 0\r\n");
        assert!(is_cached(site, &named), "{name}");
    }
}

fn rfc9111_4_4_all_variants_are_invalidated(site: &Site) {
    let lines = owned(&[FRESH, "Vary: X-Language"]);
    scripted(site, "/variants", move |request, number| match request.method.as_str() {
        "GET" => page(&lines, &format!("response {number}")),
        _ => ScriptedResponse::with("200 OK", &[], "done"),
    });
    let request = |language: &str| site.get_with("/variants", &format!("X-Language: {language}\r\n")).text();
    assert_eq!((request("de"), request("fr")), ("response 1".into(), "response 2".into()));
    assert_eq!((request("de"), request("fr")), ("response 1".into(), "response 2".into()));
    site.request("DELETE", "/variants", "");
    let (german, french) = (request("de"), request("fr"));
    assert!(german != "response 1" && french != "response 2", "{german}, {french}");
    wait_for("they are cached again", || {
        let before = origin_requests(site, "/variants");
        request("de");
        request("fr");
        (origin_requests(site, "/variants") == before).then_some(())
    });
}

fn rfc9111_4_4_other_pages_are_not_invalidated(site: &Site) {
    cache_changeable(site, "/page", "200 OK", &[]);
    for other in ["/page/below", "/pag", "/page?query"] {
        numbered(site, other, &[FRESH]);
        site.get(other);
        site.request("POST", "/page", "Content-Length: 0\r\n");
        assert!(is_cached(site, other), "{other}");
    }
}

fn rfc9111_4_4_an_admin_invalidation_covers_all_variants(site: &Site) {
    let languages = ["de", "fr", "it"];
    let request = |path: &str, language: &str| site.get_with(path, &format!("X-Language: {language}\r\n"));
    for hard in [false, true] {
        let path = if hard { "/taken-down" } else { "/changed" };
        numbered(site, path, &[FRESH, "Vary: X-Language"]);
        for language in languages.iter().chain(&languages) {
            request(path, language);
        }
        assert_eq!(origin_requests(site, path), languages.len(), "all are cached");
        let body = format!(r#"{{ "url": "http://{HOST}{path}", "hard": {hard} }}"#);
        assert_eq!(site.gateway.admin_post("/api/v1/invalidate", &body).text(), r#"{"outcome":"stale"}"#);
        site.origin.respond(path, silence());
        for language in languages {
            let response = request(path, language);
            assert_eq!(response.status, 502, "it is not served any more: {}", response.text());
        }
    }
}

fn rfc9111_4_4_an_unsafe_method_invalidates_although_its_client_has_disconnected(site: &Site) {
    let gate = Gate::default();
    let opened = gate.clone();
    scripted(site, "/left", move |request, number| match request.method.as_str() {
        "GET" => ScriptedResponse::page(&[FRESH], &format!("response {number}")),
        _ => ScriptedResponse::with("200 OK", &[], "done").after(&opened),
    });
    assert_eq!(site.get("/left").text(), "response 1");
    let mut client = site.gateway.connect();
    client.send(request("POST", "/left", "Content-Length: 4\r\n") + "body");
    wait_for("the request reaches the origin", || (origin_requests(site, "/left") == 2).then_some(()));
    let before = site.gateway.open_files();
    drop(client);
    wait_for("the gateway notices that the client has disconnected", || {
        (site.gateway.open_files() < before).then_some(())
    });
    gate.open();
    wait_for("the page is invalidated", || (site.get("/left").text() != "response 1").then_some(()));
}

fn rfc9111_4_4_an_incomplete_request_is_not_completed_when_its_client_disconnects(site: &Site) {
    // More than the gateway receives before it calls the origin.
    let half = "x".repeat(128 * 1024);
    for (lines, half) in [
        ("Transfer-Encoding: chunked\r\n", format!("{:x}\r\n{half}\r\n", half.len())),
        (&*format!("Content-Length: {}\r\n", 2 * half.len()), half.clone()),
    ] {
        cache_changeable(site, "/half", "200 OK", &[]);
        let bytes = site.origin.byte_count();
        let mut client = site.gateway.connect();
        client.send(request("POST", "/half", lines) + &half);
        wait_for("half of the request reaches the origin", || {
            (site.origin.byte_count() > bytes + half.len()).then_some(())
        });
        let before = site.gateway.open_files();
        drop(client);
        // Both connections are closed: from the client and to the origin.
        wait_for("the request is aborted", || (site.gateway.open_files() + 2 <= before).then_some(()));
        assert!(site.origin.requests_for("/half").iter().all(|request| request.method == "GET"), "{lines}");
        assert!(is_cached(site, "/half"), "{lines}");
    }
}

fn rfc9111_3_responses_to_post_are_not_cached(site: &Site) {
    scripted(site, "/post", |_, number| {
        ScriptedResponse::page(&[FRESH, "Content-Location: /post"], &format!("response {number}"))
    });
    let post = || site.request("POST", "/post", "Content-Length: 0\r\n").text();
    assert_eq!((post(), post()), ("response 1".into(), "response 2".into()));
    assert_eq!(site.get("/post").text(), "response 3");
}
