//! The rules for request lines and headers. `row_N` is the row of the list of bad inputs that a rule is about.

use super::{Next, RequestLimits, chunked, end_of, get, post, read, status, status_with, target};

/// A GET with this Host header.
fn host(host: &str) -> String {
    format!("GET / HTTP/1.1\r\nHost: {host}\r\n\r\n")
}

#[test]
fn valid_requests_are_delivered_unchanged() {
    for request in [
        &*get("Accept: */*\r\nUser-Agent: \tx\t\r\nX-Empty:\r\nX-Latin: \u{e9}\r\n"),
        &post("Content-Length: 5\r\n"),
        &post("content-length: 0\r\n"),
        &post("CONTENT-LENGTH:  007 \t\r\n"),
        &get("Content-Length: 0\r\n"),
        &chunked("5\r\nhello\r\nA;name=\"value\"\r\n0123456789\r\n0\r\n\r\n"),
        &chunked("0\r\nX-Sum: 1\r\nX-Other: 2\r\n\r\n"),
        &post("Expect: 100-Continue\r\nTransfer-Encoding: Chunked\r\n"),
        &target("/a?b=%00%0d%0a&c={d}|^`"),
        &target("//a/../b;c=d/%2F"),
        "OPTIONS * HTTP/1.1\r\nHost: a\r\n\r\n",
        "\r\nGET / HTTP/1.0\r\nHost: a\r\n\r\n",
        "GET HTTP://A:80/x HTTP/1.1\r\nHost:  a:80 \r\n\r\n",
        "GET https://a?x HTTP/1.1\r\nHost: a\r\n\r\n",
        "M-SEARCH!_ / HTTP/1.1\r\nHost: [::1]:80\r\n\r\n",
        &get("Upgrade: websocket\r\n"),
        &get("Connection: Upgrade\r\n"),
    ] {
        assert_eq!(status(request), 0, "{request}");
        let outcome = read([request.as_bytes()], RequestLimits::default());
        assert_eq!(outcome.accepted, request.as_bytes(), "{request}");
    }
}

#[test]
fn row_18_a_missing_host_is_rejected() {
    for line in ["GET / HTTP/1.1", "GET http://a/ HTTP/1.1", "GET / HTTP/1.0"] {
        assert_eq!(status(format!("{line}\r\n\r\n")), 400, "{line}");
    }
}

#[test]
fn row_19_a_second_host_is_rejected() {
    for (version, second) in [("1.1", "Host: b"), ("1.1", "host: a"), ("1.0", "Host: a")] {
        assert_eq!(status(format!("GET / HTTP/{version}\r\nHost: a\r\n{second}\r\n\r\n")), 400, "{second}");
    }
}

#[test]
fn row_20_an_invalid_host_is_rejected() {
    for name in
        ["a@evil", "a/b", "a b", "a:x", "a:", ":80", "", "a:99999", "a,b", "[::1", "a?b", "a#b", "\u{e9}"]
    {
        assert_eq!(status(host(name)), 400, "{name}");
    }
    for name in ["a", "A.b-c_d:8080", "[::1]", "[::1]:80", "127.0.0.1"] {
        assert_eq!(status(host(name)), 0, "{name}");
    }
}

#[test]
fn row_21_an_absolute_target_must_match_the_host() {
    for target in [
        "http://b/",
        "http://a:80/",
        "http://u@a/",
        "http://u:p@a/",
        "http:///",
        "http://",
        "http:/a",
        "ftp://a/",
        "a",
        "a:80",
        "?",
        "*",
        "http://a\\b/",
    ] {
        assert_eq!(status(self::target(target)), 400, "{target}");
    }
    assert_eq!(status(target("http://a/")), 0);
}

#[test]
fn row_22_connect_and_trace_are_rejected() {
    assert_eq!(status("CONNECT a:443 HTTP/1.1\r\nHost: a:443\r\n\r\n"), 405);
    assert_eq!(status("TRACE / HTTP/1.1\r\nHost: a\r\n\r\n"), 405);
}

#[test]
fn row_34_an_encoded_nul_cr_or_lf_in_a_path_is_rejected() {
    for path in ["/%00", "/a%0d", "/a%0D/b", "/%0a", "/%0A?x", "http://a/%00", "/%25%00", "/%%00"] {
        assert_eq!(status(target(path)), 400, "{path}");
    }
    for path in ["/%", "/%0", "/%0b", "/%2500", "/?%00"] {
        assert_eq!(status(target(path)), 0, "{path}");
    }
}

#[test]
fn row_36_characters_that_must_be_encoded_are_rejected_in_a_target() {
    for path in ["/\\", "/a#b", "/\u{e9}", "/<", "/>", "/`", "/?\"", "/?<", "/?#", "/?\\"] {
        assert_eq!(status(target(path)), 400, "{path}");
    }
}

#[test]
fn row_40_a_get_or_head_with_a_body_is_rejected() {
    for method in ["GET", "HEAD"] {
        for lines in ["Content-Length: 1", "Transfer-Encoding: chunked"] {
            assert_eq!(
                status(format!("{method} / HTTP/1.1\r\nHost: a\r\n{lines}\r\n\r\n")),
                400,
                "{method} {lines}"
            );
        }
    }
}

#[test]
fn row_43_a_header_name_is_a_token_without_underscores() {
    for name in ["Transfer_Encoding", "X_Tenant_Id", "X(a)", "X@", "X\"", "X/", "X{", "\u{e9}", ""] {
        assert_eq!(status(get(&format!("{name}: a\r\n"))), 400, "{name}");
    }
    assert_eq!(status(get("no colon\r\n")), 400);
    assert_eq!(status(get("nocolon\r\n")), 400);
    assert_eq!(status(get("!#$%&'*+-.^`|~09azAZ: a\r\n")), 0);
}

#[test]
fn row_45_the_sizes_of_heads_targets_and_bodies_are_limited() {
    let limits =
        RequestLimits { header_bytes: 200, headers: 3, uri_bytes: 100, body_bytes: 10, allows_purge: false };
    let status = |request: &str| status_with(request, limits);
    let long = "a".repeat(300);
    // `target` has 29 bytes besides the path, `get` has 27 besides the lines.
    assert_eq!(status(&target(&format!("/{}", &long[..99]))), 0);
    assert_eq!(status(&target(&format!("/{}", &long[..100]))), 414);
    assert_eq!(status(&target(&format!("/{long}"))), 414);
    assert_eq!(status(&format!("GET /{long}")), 414, "although it has no end");
    assert_eq!(status(&long), 414, "whatever it contains");
    assert_eq!(status(&get(&format!("X: {}\r\n", &long[..168]))), 0, "200 bytes");
    assert_eq!(status(&get(&format!("X: {}\r\n", &long[..169]))), 431, "201 bytes");
    assert_eq!(status(&get(&format!("X: {long}"))), 431, "although it has no end");
    let edge = format!("GET / HTTP/1.1\r\nHost: a\r\nX: {}", &long[..171]);
    assert_eq!(edge.len(), 199);
    assert_eq!(status(&format!("{edge}\rx")), 400, "the last byte that is checked");
    assert_eq!(status(&format!("{edge}a\rx")), 431, "the first byte that is not");
    assert_eq!(status(&get("X: a\r\nX: a\r\n")), 0);
    assert_eq!(status(&get("X: a\r\nX: a\r\nX: a\r\n")), 431);
    assert_eq!(status(&post("Content-Length: 10\r\n")), 0);
    assert_eq!(status(&post("Content-Length: 11\r\n")), 413);
    assert_eq!(status(&chunked("6\r\n123456\r\n4\r\n1234\r\n")), 0);
    assert_eq!(status(&chunked("6\r\n123456\r\n5\r\n12345\r\n")), 413);
}

#[test]
fn row_45_the_default_limits_apply() {
    let filler = |bytes: usize| get(&format!("X: {}\r\n", "a".repeat(bytes)));
    let whole = |request: String| match read([request.as_bytes()], RequestLimits::default()).next {
        Next::Rejected(rejection) => rejection.status.as_u16(),
        _ => 0,
    };
    assert_eq!(whole(filler(64 * 1024)), 431);
    assert_eq!(whole(filler(15 * 1024)), 0);
    assert_eq!(whole(get(&"X: a\r\n".repeat(99))), 0, "with Host there are a hundred");
    assert_eq!(whole(get(&"X: a\r\n".repeat(100))), 431);
    assert_eq!(whole(target(&format!("/{}", "a".repeat(64 * 1024)))), 414);
    assert_eq!(whole(target(&format!("/{}", "a".repeat(8 * 1024 - 1)))), 0);
    assert_eq!(whole(post("Content-Length: 10485760\r\n")), 0);
    assert_eq!(whole(post("Content-Length: 10485761\r\n")), 413);
}

#[test]
fn a_request_line_has_three_words() {
    for line in [
        "GET /",
        "GET  / HTTP/1.1",
        "GET /  HTTP/1.1",
        " GET / HTTP/1.1",
        "GET / HTTP/1.1 ",
        "GET\t/\tHTTP/1.1",
        "GET /a b HTTP/1.1",
        "GET / http/1.1",
        "GET / HTTP/1",
        "GET / HTTP/1.10",
        "GET / HTTP/11",
        "GET / ",
        "G(T / HTTP/1.1",
        "GET",
        "WIRE-REFUSED / HTTP/1.1",
    ] {
        assert_eq!(status(format!("{line}\r\nHost: a\r\n\r\n")), 400, "{line}");
    }
}

#[test]
fn unsupported_versions_are_rejected_with_505() {
    for version in ["HTTP/0.9", "HTTP/1.2", "HTTP/2.0", "HTTP/3.0"] {
        assert_eq!(status(format!("GET / {version}\r\nHost: a\r\n\r\n")), 505, "{version}");
    }
    assert_eq!(status("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"), 505);
}

#[test]
fn one_empty_line_before_a_request_is_skipped() {
    assert_eq!(status("\r\nGET / HTTP/1.1\r\nHost: a\r\n\r\n"), 0);
    assert_eq!(status("\r\n\r\nGET / HTTP/1.1\r\nHost: a\r\n\r\n"), 400);
    assert_eq!(status("\rGET / HTTP/1.1\r\nHost: a\r\n\r\n"), 400);
}

#[test]
fn only_100_continue_is_supported_as_an_expectation() {
    for (value, expected) in [(" 100-continue", 0), (" 200-ok", 417), (" 100-continue, x", 417), ("", 417)] {
        assert_eq!(status(post(&format!("Expect:{value}\r\n"))), expected, "{value}");
    }
}

#[test]
fn row_15_bytes_after_an_upgrade_request_are_not_scanned() {
    let upgrade = get("Connection: keep-alive, Upgrade\r\nUpgrade: websocket\r\n");
    let outcome = read([upgrade.as_bytes(), b"\0\x01"], RequestLimits::default());
    assert_eq!((outcome.next, outcome.accepted), (Next::Upgrade, upgrade.clone().into_bytes()));
    let both = upgrade.clone() + "\0\x01";
    assert_eq!(read([both.as_bytes()], RequestLimits::default()).accepted, upgrade.as_bytes());
    for no_upgrade in [
        upgrade.replace("HTTP/1.1", "HTTP/1.0"),
        upgrade.replace(", Upgrade", ""),
        upgrade.replace("Upgrade: websocket", "X: a"),
    ] {
        assert_eq!(end_of(no_upgrade.as_bytes(), RequestLimits::default()), Next::More, "{no_upgrade}");
    }
}

#[test]
fn row_15_an_upgrade_request_with_a_body_is_rejected() {
    let upgrade = "Connection: Upgrade\r\nUpgrade: websocket\r\n";
    assert_eq!(status(post(&format!("{upgrade}Content-Length: 1\r\n"))), 400);
    assert_eq!(status(post(&format!("{upgrade}Transfer-Encoding: chunked\r\n"))), 400);
}
