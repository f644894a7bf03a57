//! Cacheable statuses: RFC 9111, section 3.

use crate::helpers::{first_then, origin_requests, scripted};
use crate::support::origin::{Gate, ScriptedResponse};
use crate::support::site::{Site, get};
use crate::support::wait_for;

on_each_store![
    rfc9111_3_final_responses_with_a_lifetime_are_cached,
    rfc9111_3_other_statuses_without_a_lifetime_are_not_cached,
    rfc9111_3_interim_responses_are_not_cached,
    rfc9110_15_2_interim_responses_reach_their_client,
    rfc9110_15_2_interim_responses_to_a_revalidation_reach_no_other_client,
    rfc9110_15_2_interim_responses_do_not_wait_for_a_disconnected_client,
    rfc9111_3_an_unsolicited_304_is_not_cached,
    rfc9110_15_3_5_a_response_without_content_is_cached_without_content,
];

fn rfc9111_3_final_responses_with_a_lifetime_are_cached(site: &Site) {
    for status in [
        "200 OK",
        "203 Non-Authoritative",
        "301 Moved",
        "302 Found",
        "303 See Other",
        "307 Temporary",
        "308 Permanent",
        "404 Not Found",
        "410 Gone",
    ] {
        let path = format!("/kept/{}", &status[..3]);
        let lines = ["Cache-Control: max-age=3600", "Location: /elsewhere", "X-Own: 1"];
        site.origin.respond(&path, ScriptedResponse::with(status, &lines, "the content"));
        for _ in 0..2 {
            let response = site.get(&path);
            let reported = (response.status.to_string(), response.text(), response.header("x-own"));
            assert_eq!(reported, (status[..3].to_owned(), "the content".to_owned(), Some("1")));
        }
        assert_eq!(origin_requests(site, &path), 1, "{status}");
    }
}

fn rfc9111_3_other_statuses_without_a_lifetime_are_not_cached(site: &Site) {
    for status in ["200 OK", "302 Found", "403 Forbidden", "404 Not Found", "500 Error", "503 Unavailable"] {
        let path = format!("/not/{}", &status[..3]);
        site.origin.respond(&path, ScriptedResponse::with(status, &["Location: /elsewhere"], "the content"));
        site.get(&path);
        site.get(&path);
        assert_eq!(origin_requests(site, &path), 2, "{status}");
    }
}

fn rfc9111_3_interim_responses_are_not_cached(site: &Site) {
    let raw = "HTTP/1.1 103 Early Hints\r\ncache-control: max-age=3600\r\nlink: </a.css>; rel=preload\r\n\r\n\
               HTTP/1.1 200 OK\r\ncache-control: max-age=3600\r\ncontent-length: 5\r\n\r\nfinal";
    site.origin.respond("/interim", ScriptedResponse::raw(raw));
    for _ in 0..2 {
        let response = site.get("/interim");
        assert_eq!((response.status, response.text().as_str()), (200, "final"));
    }
    assert_eq!(origin_requests(site, "/interim"), 1);
}

fn rfc9110_15_2_interim_responses_reach_their_client(site: &Site) {
    let raw = "HTTP/1.1 102 Processing\r\n\r\nHTTP/1.1 103 Early Hints\r\nlink: </a.css>; rel=preload\r\n\r\n\
               HTTP/1.1 200 OK\r\ncache-control: max-age=3600\r\ncontent-length: 5\r\n\r\nfinal";
    site.origin.respond("/interim", ScriptedResponse::raw(raw));
    for expected in [&[102, 103, 200][..], &[200]] {
        let mut connection = site.gateway.connect();
        connection.send(get("/interim", ""));
        for status in expected {
            let response = connection.next_response_or_interim("GET").expect("a response");
            assert_eq!(response.status, *status);
            assert_eq!(
                response.header("link").is_some(),
                *status == 103,
                "its headers stay in the interim response"
            );
        }
    }
}

/// A page that is revalidated in the background: the origin sends an interim response and the new page once the gate is
/// open.
fn revalidated_with_interim(site: &Site, path: &str) -> Gate {
    let gate = Gate::default();
    let stale = ScriptedResponse::page(
        &["Cache-Control: max-age=60, stale-while-revalidate=3600", "Age: 100"],
        "old",
    );
    let hint = ScriptedResponse::raw("HTTP/1.1 103 Early Hints\r\nlink: </a.css>; rel=preload\r\n\r\n");
    let new = "HTTP/1.1 200 OK\r\ncache-control: max-age=3600\r\ncontent-length: 3\r\n\r\nnew";
    first_then(site, path, stale, hint.after(&gate).then(new));
    assert_eq!(site.get(path).text(), "old");
    gate
}

fn rfc9110_15_2_interim_responses_to_a_revalidation_reach_no_other_client(site: &Site) {
    let hint = revalidated_with_interim(site, "/behind");
    let end = Gate::default();
    let head = "HTTP/1.1 200 OK\r\ncache-control: no-store\r\ntransfer-encoding: chunked\r\n\r\n";
    let stream =
        ScriptedResponse::raw(head).then("6\r\npiece,\r\n").then_wait(&end).then("4\r\nlast\r\n0\r\n\r\n");
    site.origin.respond("/stream", stream);
    let mut connection = site.gateway.connect();
    connection.send(get("/behind", ""));
    assert_eq!(connection.response().text(), "old");
    wait_for("the page is revalidated in the background", || {
        (origin_requests(site, "/behind") == 2).then_some(())
    });
    connection.send(get("/stream", ""));
    let mut came = connection.bytes(1);
    while !came.ends_with(b"piece,\r\n") {
        came.extend(connection.bytes(1));
    }
    hint.open();
    // The interim response came before the page.
    wait_for("the page is new", || (site.get("/behind").text() == "new").then_some(()));
    end.open();
    let rest = "4\r\nlast\r\n0\r\n\r\n";
    assert_eq!(String::from_utf8_lossy(&connection.bytes(rest.len())), rest);
}

fn rfc9110_15_2_interim_responses_do_not_wait_for_a_disconnected_client(site: &Site) {
    let hint = revalidated_with_interim(site, "/behind");
    assert_eq!(site.get("/behind").text(), "old");
    wait_for("the page is revalidated in the background", || {
        (origin_requests(site, "/behind") == 2).then_some(())
    });
    hint.open();
    wait_for("the page is new", || (site.get("/behind").text() == "new").then_some(()));
}

fn rfc9111_3_an_unsolicited_304_is_not_cached(site: &Site) {
    scripted(site, "/wrong", |_, number| match number {
        1 => ScriptedResponse::with("304 Not Modified", &["Cache-Control: max-age=3600", "ETag: \"a\""], ""),
        _ => ScriptedResponse::page(&["Cache-Control: max-age=3600", "ETag: \"a\""], "the page"),
    });
    site.get("/wrong");
    assert_eq!(site.get("/wrong").text(), "the page");
}

fn rfc9110_15_3_5_a_response_without_content_is_cached_without_content(site: &Site) {
    site.origin.respond("/empty", ScriptedResponse::page(&["Cache-Control: max-age=3600", "X-Own: 1"], ""));
    site.origin.respond(
        "/none",
        ScriptedResponse::with("204 No Content", &["Cache-Control: max-age=3600", "X-Own: 1"], ""),
    );
    for (path, status) in [("/empty", 200), ("/none", 204)] {
        for _ in 0..2 {
            let response = site.get(path);
            assert_eq!(
                (response.status, response.text().as_str(), response.header("x-own")),
                (status, "", Some("1"))
            );
        }
        assert_eq!(origin_requests(site, path), 1, "{path}");
    }
}
