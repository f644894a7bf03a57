//! Framing: where a request ends, and requests smuggled behind it.

use crate::assertions::{PAGES, assert_rejected_and_closed, cache_page};
use crate::support::client::Connection;
use crate::support::origin::{Gate, ScriptedResponse};
use crate::support::site::{HOST, Site, get, request};
use crate::support::wait_for;

/// The request that an attacker tries to smuggle to the origin.
const SMUGGLED: &str = "GET /smuggled HTTP/1.1\r\nHost: www.example.com\r\n\r\n";

/// A POST with these header lines and this body.
fn post(path: &str, lines: &str, body: &str) -> String {
    request("POST", path, lines) + body
}

/// Fails unless a POST with a smuggled request in its body is rejected with each of these header lines.
fn assert_all_rejected(row: &str, statuses: &[u16], lines: &[&str]) {
    let site = Site::start(PAGES);
    for (index, lines) in lines.iter().enumerate() {
        let path = format!("/{row}-{index}");
        let body = format!("0\r\n\r\n{SMUGGLED}");
        assert_rejected_and_closed(&site, &path, post(&path, lines, &body), statuses);
    }
    assert!(!site.origin.received("/smuggled"));
}

#[test]
fn row_01_content_length_before_transfer_encoding_is_rejected() {
    assert_all_rejected("row-01", &[400], &["Content-Length: 5\r\nTransfer-Encoding: chunked\r\n"]);
}

#[test]
fn row_02_transfer_encoding_before_content_length_is_rejected() {
    assert_all_rejected("row-02", &[400], &["Transfer-Encoding: chunked\r\nContent-Length: 5\r\n"]);
}

#[test]
fn row_03_two_different_content_lengths_are_rejected() {
    assert_all_rejected(
        "row-03",
        &[400],
        &["Content-Length: 5\r\nContent-Length: 0\r\n", "Content-Length: 0\r\nContent-Length: 5\r\n"],
    );
}

#[test]
fn row_04_two_equal_content_lengths_are_rejected() {
    assert_all_rejected(
        "row-04",
        &[400],
        &[
            "Content-Length: 5\r\nContent-Length: 5\r\n",
            "Content-Length: 5, 5\r\n",
            "Content-Length: 1, 1\r\n",
        ],
    );
}

#[test]
fn row_05_a_content_length_that_is_not_a_number_is_rejected() {
    let lines = ["+1", "0x1", "-1", "", "1_0", "1 0", "5;a", "1e1", "five", "\u{661}"]
        .map(|length| format!("Content-Length: {length}\r\n"));
    assert_all_rejected("row-05", &[400], &lines.each_ref().map(String::as_str));
}

#[test]
fn row_06_a_content_length_does_not_overflow() {
    let lines = ["18446744073709551616", "18446744073709551621", "99999999999999999999999999"]
        .map(|length| format!("Content-Length: {length}\r\n"));
    assert_all_rejected("row-06", &[400], &lines.each_ref().map(String::as_str));
}

#[test]
fn row_07_a_transfer_encoding_other_than_chunked_is_rejected() {
    assert_all_rejected(
        "row-07",
        &[400, 501],
        &[
            "Transfer-Encoding: xchunked\r\n",
            "Transfer-Encoding: \x0bchunked\r\n",
            "Transfer-Encoding: chunked, identity\r\n",
            "Transfer-Encoding: identity, chunked\r\n",
            "Transfer-Encoding: identity\r\n",
            "Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n",
            "Transfer-Encoding: chunked, chunked\r\n",
            "Transfer-Encoding: chunked\r\nTransfer-Encoding: identity\r\n",
            "Transfer-Encoding: chunked;q=1\r\n",
            "Transfer-Encoding: \"chunked\"\r\n",
            "Transfer-Encoding: gzip\r\n",
            "Transfer-Encoding:\r\n",
        ],
    );
}

#[test]
fn row_08_transfer_encoding_on_http_1_0_is_rejected() {
    let site = Site::start(PAGES);
    let head = post("/row-08", "Connection: keep-alive\r\nTransfer-Encoding: chunked\r\n", "0\r\n\r\n");
    let old = head.replace("HTTP/1.1", "HTTP/1.0");
    assert_rejected_and_closed(&site, "/row-08", old + SMUGGLED, &[400]);
    assert!(!site.origin.received("/smuggled"));
}

/// Fails unless a GET with each of these parts after its request line is rejected.
fn assert_heads_rejected(row: &str, heads: &[&str]) {
    let site = Site::start(PAGES);
    for (index, head) in heads.iter().enumerate() {
        let path = format!("/{row}-{index}");
        assert_rejected_and_closed(&site, &path, head.replace("{path}", &path), &[400]);
    }
}

#[test]
fn row_09_a_folded_header_line_is_rejected() {
    assert_heads_rejected(
        "row-09",
        &[
            "GET {path} HTTP/1.1\r\nHost: www.example.com\r\nX-A: b\r\n c\r\n\r\n",
            "GET {path} HTTP/1.1\r\nHost: www.example.com\r\nX-A: b\r\n\tContent-Length: 5\r\n\r\n",
            "GET {path} HTTP/1.1\r\nHost:\r\n www.example.com\r\n\r\n",
            "GET {path} HTTP/1.1\r\n Host: www.example.com\r\n\r\n",
            "GET {path} HTTP/1.1\r\nHost: www.example.com\r\n \r\n\r\n",
        ],
    );
}

#[test]
fn row_10_a_space_before_the_colon_is_rejected() {
    assert_heads_rejected(
        "row-10",
        &[
            "GET {path} HTTP/1.1\r\nHost: www.example.com\r\nX-A : b\r\n\r\n",
            "GET {path} HTTP/1.1\r\nHost : www.example.com\r\n\r\n",
            "GET {path} HTTP/1.1\r\nHost: www.example.com\r\nTransfer-Encoding\t: chunked\r\n\r\n",
            "GET {path} HTTP/1.1\r\nHost: www.example.com\r\nX A: b\r\n\r\n",
            "GET {path} HTTP/1.1\r\nHost: www.example.com\r\n: b\r\n\r\n",
        ],
    );
}

#[test]
fn row_11_bare_line_feeds_are_rejected() {
    assert_heads_rejected(
        "row-11",
        &[
            "GET {path} HTTP/1.1\nHost: www.example.com\n\n",
            "GET {path} HTTP/1.1\nHost: www.example.com\r\n\r\n",
            "GET {path} HTTP/1.1\r\nHost: www.example.com\nX-A: b\r\n\r\n",
            "GET {path} HTTP/1.1\r\nHost: www.example.com\r\n\n",
            "GET {path} HTTP/1.1\r\nHost: www.example.com\n\r\n",
        ],
    );
}

#[test]
fn row_12_bare_carriage_returns_and_nul_are_rejected() {
    assert_heads_rejected(
        "row-12",
        &[
            "GET {path} HTTP/1.1\r\nHost: www.example.com\r\nX-A: b\rc\r\n\r\n",
            "GET {path} HTTP/1.1\r\nHost: www.example.com\r\nX-A: b\rX-B: c\r\n\r\n",
            "GET {path} HTTP/1.1\r\nHost: www.example.com\r\nX-A: b\0c\r\n\r\n",
            "GET {path} HTTP/1.1\r\nHost: www.example.com\r\nX-A: \0\r\n\r\n",
            "GET {path} HTTP/1.1\r\nHost: www.example.com\r\nX\0A: b\r\n\r\n",
            "GET {path} HTTP/1.1\r\nHost: www.example.com\r\nX-A: b\x01\r\n\r\n",
            "GET {path} HTTP/1.1\r\nHost: www.example.com\r\nX-A: b\x7f\r\n\r\n",
            "GET {path}\r HTTP/1.1\r\nHost: www.example.com\r\n\r\n",
        ],
    );
}

#[test]
fn row_13_malformed_chunks_are_rejected_and_not_forwarded() {
    let site = Site::start(PAGES);
    for (index, body) in [
        "1;a\nb\r\nx\r\n0\r\n\r\n",
        "1;a=\"\n\"\r\nx\r\n0\r\n\r\n",
        "1;a\rb\r\nx\r\n0\r\n\r\n",
        "0x1\r\nx\r\n0\r\n\r\n",
        "+1\r\nx\r\n0\r\n\r\n",
        "-1\r\nx\r\n0\r\n\r\n",
        "\r\nx\r\n0\r\n\r\n",
        " 1\r\nx\r\n0\r\n\r\n",
        "1 \r\nx\r\n0\r\n\r\n",
        "1\r\nxy0\r\n\r\n",
        "1\r\nx\n0\r\n\r\n",
        "1\r\nx0\r\n\r\n",
        "1\nx\r\n0\r\n\r\n",
        "10000000000000001\r\nx\r\n0\r\n\r\n",
        "ffffffffffffffffff\r\nx\r\n0\r\n\r\n",
        "g\r\nx\r\n0\r\n\r\n",
        "0\r\nX-A : b\r\n\r\n",
        "0\r\nX-A: b\n\r\n",
    ]
    .iter()
    .enumerate()
    {
        let path = format!("/row-13-{index}");
        let bytes = post(&path, "Transfer-Encoding: chunked\r\n", body) + SMUGGLED;
        assert_rejected_and_closed(&site, &path, bytes, &[400]);
    }
    assert!(!site.origin.received("/smuggled"));
}

#[test]
fn row_13_a_malformed_chunk_within_a_body_aborts_the_request() {
    // Without buffers, the origin is called before the malformed chunk arrives.
    let site = Site::start(&format!("{PAGES}\n[limits]\nupload_buffers = 0\n"));
    for (index, bad) in
        ["0x1\r\nx\r\n", "1;a\nb\r\nx\r\n", "1\r\nxy\r\n", "fffffffffffffffff\r\nx\r\n"].iter().enumerate()
    {
        let (path, word) = (format!("/row-13-later-{index}"), format!("hello-{index}"));
        let mut connection = site.gateway.connect();
        connection.send(post(&path, "Transfer-Encoding: chunked\r\n", &format!("7\r\n{word}\r\n")));
        wait_for("the origin gets the first part", || site.origin.received(&word).then_some(()));
        connection.send(format!("{bad}0\r\n\r\n{SMUGGLED}"));
        if let Some(response) = connection.next_response("POST") {
            assert!((400..600).contains(&response.status), "{}", response.status);
        }
        connection.assert_closed();
        assert!(site.origin.requests_for(&path).is_empty(), "{path} reached the origin completely");
    }
    assert!(!site.origin.received("/smuggled"));
}

/// Reads this many responses, or fewer if the connection closes before.
fn read_responses(connection: &mut Connection, last: &str) -> Vec<(u16, String)> {
    let mut responses = Vec::new();
    while let Some(response) = connection.next_response("GET") {
        responses.push((response.status, response.text()));
        if response.text().contains(last) {
            break;
        }
    }
    responses
}

#[test]
fn row_14_the_unread_body_of_a_request_for_a_cached_page_is_not_a_request() {
    let site = Site::start(PAGES);
    cache_page(&site, "/row-14");
    for lines in
        [format!("Content-Length: {}\r\n", SMUGGLED.len()), "Transfer-Encoding: chunked\r\n".to_owned()]
    {
        let body = match lines.contains("chunked") {
            true => format!("{:x}\r\n{SMUGGLED}\r\n0\r\n\r\n", SMUGGLED.len()),
            false => SMUGGLED.to_owned(),
        };
        let mut connection = site.gateway.connect();
        connection.send(get("/row-14", &lines) + &body + &get("/second", ""));
        let responses = read_responses(&mut connection, "/second");
        assert!(responses.iter().all(|(_, text)| !text.contains("/smuggled")), "{responses:?}");
        assert!(responses.len() <= 2, "{responses:?}");
        assert!(site.origin.requests_for("/smuggled").is_empty());
    }
}

#[test]
fn row_14_the_unread_body_of_a_request_with_an_early_response_is_not_a_request() {
    let site = Site::start(PAGES);
    site.origin.respond("/early", ScriptedResponse::with("403 Forbidden", &[], "no").early().then_close());
    // More than the gateway buffers before it contacts the origin.
    let body = SMUGGLED.repeat(4_000);
    let mut connection = site.gateway.connect();
    connection.send(post("/early", &format!("Content-Length: {}\r\n", body.len()), &body));
    connection.send(get("/second", ""));
    let responses = read_responses(&mut connection, "/second");
    assert!(responses.iter().all(|(_, text)| !text.contains("/smuggled")), "{responses:?}");
    assert!(responses.len() <= 2, "{responses:?}");
    assert!(site.origin.requests_for("/smuggled").is_empty());
}

const UPGRADE: &str = "Connection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\n\
                       Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n";

#[test]
fn row_15_an_upgrade_without_a_101_response_opens_no_tunnel() {
    let site = Site::start(PAGES);
    site.origin.respond("/pass/socket", ScriptedResponse::page(&[], "not a websocket"));
    let mut connection = site.gateway.connect();
    // Through a tunnel, this header would reach the origin.
    connection.send(get("/pass/socket", UPGRADE) + &get("/pass/behind", "X-Original-URL: /admin\r\n"));
    assert_eq!(connection.response().text(), "not a websocket");
    if let Some(behind) = connection.next_response("GET") {
        assert!(behind.text().contains("/pass/behind"), "{}", behind.text());
    }
    assert!(!site.origin.received("/admin"));
}

#[test]
fn row_15_a_tunnel_starts_with_the_101_response() {
    let site = Site::start(PAGES);
    let gate = Gate::default();
    let switch = "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n";
    site.origin.respond("/pass/socket", ScriptedResponse::raw(switch).after(&gate).then_echo());
    let mut connection = site.gateway.connect();
    connection.send(get("/pass/socket", UPGRADE) + "too early");
    wait_for("a request reaches the origin", || site.origin.requests_for("/pass/socket").pop());
    assert!(!site.origin.received("too early"));
    gate.open();
    assert_eq!(connection.response().status, 101);
    connection.send(", and in time");
    assert_eq!(connection.bytes(22), b"too early, and in time");
}

#[test]
fn a_rejected_head_request_has_no_body() {
    let site = Site::start(PAGES);
    for head in [
        "HEAD /a HTTP/1.1\r\nHost: a\r\nHost: b\r\n\r\n",
        "HEAD /a HTTP/1.1\r\n\r\n",
        "\r\nHEAD /a HTTP/1.1\r\nHost: a\r\nContent-Length: 1\r\n\r\nx",
        "HEAD /a HTTP/3.0\r\nHost: a\r\n\r\n",
        "HEAD /a/../b HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n",
    ] {
        let mut client = site.gateway.connect();
        client.send(head);
        let response = client.next_response("HEAD").expect("a response");
        assert!((400..600).contains(&response.status), "{head}: {}", response.status);
        client.assert_closed();
    }
    assert_eq!(site.origin.byte_count(), 0);
}

#[test]
fn informational_responses_are_sent_to_http_1_1_clients_only() {
    let site = Site::start(PAGES);
    let hint = "HTTP/1.1 103 Early Hints\r\nLink: </a.css>; rel=preload\r\n\r\n";
    let response = "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok";
    site.origin.respond("/pass/hint", ScriptedResponse::raw(format!("{hint}{response}")));
    for (version, expected) in [("HTTP/1.1", 103), ("HTTP/1.0", 200)] {
        let mut client = site.gateway.connect();
        client.send(format!("GET /pass/hint {version}\r\nHost: {HOST}\r\n\r\n"));
        let first = client.next_response_or_interim("GET").expect("a response");
        assert_eq!(first.status, expected, "{version}");
    }
}
