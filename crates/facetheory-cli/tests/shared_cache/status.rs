//! Which statuses are kept: RFC 9111, section 3.

use crate::support::origin::{Answer, Gate};
use crate::support::site::{Site, get};
use crate::support::until;
use crate::trial::{asked, first_then, scripted};

stories![
    rfc9111_3_final_answers_that_tell_their_lifetime_are_kept,
    rfc9111_3_statuses_that_tell_no_lifetime_are_not_kept,
    rfc9111_3_interim_answers_are_not_kept,
    rfc9110_15_2_interim_answers_reach_their_visitor,
    rfc9110_15_2_interim_answers_to_a_renewal_are_in_no_other_answer,
    rfc9110_15_2_interim_answers_to_a_renewal_do_not_wait_for_a_visitor_who_left,
    rfc9111_3_a_304_that_nobody_asked_for_is_not_kept,
    rfc9110_15_3_5_an_answer_without_content_is_kept_as_such,
];

fn rfc9111_3_final_answers_that_tell_their_lifetime_are_kept(site: &Site) {
    for status in [
        "200 OK",
        "203 Non-Authoritative",
        "301 Moved",
        "302 Found",
        "303 See Other",
        "307 Temporary",
        "308 Permanent",
        "400 Bad Request",
        "404 Not Found",
        "410 Gone",
    ] {
        let path = format!("/kept/{}", &status[..3]);
        let lines = ["Cache-Control: max-age=3600", "Location: /elsewhere", "X-Own: 1"];
        site.origin.answer(&path, Answer::with(status, &lines, "the answer"));
        for _ in 0..2 {
            let response = site.get(&path);
            let told = (response.status.to_string(), response.text(), response.header("x-own"));
            assert_eq!(told, (status[..3].to_owned(), "the answer".to_owned(), Some("1")));
        }
        assert_eq!(asked(site, &path), 1, "{status}");
    }
}

fn rfc9111_3_statuses_that_tell_no_lifetime_are_not_kept(site: &Site) {
    for status in ["200 OK", "302 Found", "403 Forbidden", "404 Not Found", "500 Error", "503 Unavailable"] {
        let path = format!("/not/{}", &status[..3]);
        site.origin.answer(&path, Answer::with(status, &["Location: /elsewhere"], "the answer"));
        site.get(&path);
        site.get(&path);
        assert_eq!(asked(site, &path), 2, "{status}");
    }
}

fn rfc9111_3_interim_answers_are_not_kept(site: &Site) {
    let raw = "HTTP/1.1 103 Early Hints\r\ncache-control: max-age=3600\r\nlink: </a.css>; rel=preload\r\n\r\n\
               HTTP/1.1 200 OK\r\ncache-control: max-age=3600\r\ncontent-length: 5\r\n\r\nfinal";
    site.origin.answer("/interim", Answer::raw(raw));
    for _ in 0..2 {
        let response = site.get("/interim");
        assert_eq!((response.status, response.text().as_str()), (200, "final"));
    }
    assert_eq!(asked(site, "/interim"), 1);
}

fn rfc9110_15_2_interim_answers_reach_their_visitor(site: &Site) {
    let raw = "HTTP/1.1 102 Processing\r\n\r\nHTTP/1.1 103 Early Hints\r\nlink: </a.css>; rel=preload\r\n\r\n\
               HTTP/1.1 200 OK\r\ncache-control: max-age=3600\r\ncontent-length: 5\r\n\r\nfinal";
    site.origin.answer("/interim", Answer::raw(raw));
    for expected in [&[102, 103, 200][..], &[200]] {
        let mut connection = site.gateway.connect();
        connection.send(get("/interim", ""));
        for status in expected {
            let response = connection.next_of_any_status("GET").expect("an answer");
            assert_eq!(response.status, *status);
            assert_eq!(response.header("link").is_some(), *status == 103, "it stays where it was said");
        }
    }
}

/// A page whose visitors are served the old one, while the new one comes behind them: a hint once this gate is open, and the page
/// itself with it.
fn renewed_with_a_hint(site: &Site, path: &str) -> Gate {
    let gate = Gate::default();
    let stale = Answer::page(&["Cache-Control: max-age=60, stale-while-revalidate=3600", "Age: 100"], "old");
    let hint = Answer::raw("HTTP/1.1 103 Early Hints\r\nlink: </a.css>; rel=preload\r\n\r\n");
    let new = "HTTP/1.1 200 OK\r\ncache-control: max-age=3600\r\ncontent-length: 3\r\n\r\nnew";
    first_then(site, path, stale, hint.after(&gate).then(new));
    assert_eq!(site.get(path).text(), "old");
    gate
}

fn rfc9110_15_2_interim_answers_to_a_renewal_are_in_no_other_answer(site: &Site) {
    let hint = renewed_with_a_hint(site, "/behind");
    let end = Gate::default();
    let head = "HTTP/1.1 200 OK\r\ncache-control: no-store\r\ntransfer-encoding: chunked\r\n\r\n";
    let stream = Answer::raw(head).then("6\r\npiece,\r\n").then_wait(&end).then("4\r\nlast\r\n0\r\n\r\n");
    site.origin.answer("/stream", stream);
    let mut connection = site.gateway.connect();
    connection.send(get("/behind", ""));
    assert_eq!(connection.answer().text(), "old");
    until("the page is renewed behind its visitor", || (asked(site, "/behind") == 2).then_some(()));
    connection.send(get("/stream", ""));
    let mut came = connection.bytes(1);
    while !came.ends_with(b"piece,\r\n") {
        came.extend(connection.bytes(1));
    }
    hint.open();
    // Its hint came before the page.
    until("the page is new", || (site.get("/behind").text() == "new").then_some(()));
    end.open();
    let rest = "4\r\nlast\r\n0\r\n\r\n";
    assert_eq!(String::from_utf8_lossy(&connection.bytes(rest.len())), rest);
}

fn rfc9110_15_2_interim_answers_to_a_renewal_do_not_wait_for_a_visitor_who_left(site: &Site) {
    let hint = renewed_with_a_hint(site, "/behind");
    assert_eq!(site.get("/behind").text(), "old");
    until("the page is renewed behind its visitor", || (asked(site, "/behind") == 2).then_some(()));
    hint.open();
    until("the page is new", || (site.get("/behind").text() == "new").then_some(()));
}

fn rfc9111_3_a_304_that_nobody_asked_for_is_not_kept(site: &Site) {
    scripted(site, "/wrong", |_, number| match number {
        1 => Answer::with("304 Not Modified", &["Cache-Control: max-age=3600", "ETag: \"a\""], ""),
        _ => Answer::page(&["Cache-Control: max-age=3600", "ETag: \"a\""], "the page"),
    });
    site.get("/wrong");
    assert_eq!(site.get("/wrong").text(), "the page");
}

fn rfc9110_15_3_5_an_answer_without_content_is_kept_as_such(site: &Site) {
    site.origin.answer("/empty", Answer::page(&["Cache-Control: max-age=3600", "X-Own: 1"], ""));
    site.origin
        .answer("/none", Answer::with("204 No Content", &["Cache-Control: max-age=3600", "X-Own: 1"], ""));
    for (path, status) in [("/empty", 200), ("/none", 204)] {
        for _ in 0..2 {
            let response = site.get(path);
            assert_eq!(
                (response.status, response.text().as_str(), response.header("x-own")),
                (status, "", Some("1"))
            );
        }
        assert_eq!(asked(site, path), 1, "{path}");
    }
}
