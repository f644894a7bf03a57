//! Every rule, with the row of the list of hostile inputs that it answers.

use super::{Limits, Then, read, status, verdict};

/// A POST with these header lines.
fn post(lines: &str) -> String {
    format!("POST / HTTP/1.1\r\nHost: a\r\n{lines}\r\n")
}

/// A GET with these header lines.
fn get(lines: &str) -> String {
    format!("GET / HTTP/1.1\r\nHost: a\r\n{lines}\r\n")
}

/// A POST in chunks, with this body.
fn chunked(body: &str) -> String {
    post("Transfer-Encoding: chunked\r\n") + body
}

/// A GET of this target.
fn target(target: &str) -> String {
    format!("GET {target} HTTP/1.1\r\nHost: a\r\n\r\n")
}

/// A GET from this host.
fn host(host: &str) -> String {
    format!("GET / HTTP/1.1\r\nHost: {host}\r\n\r\n")
}

#[test]
fn requests_that_break_no_rule_are_passed_on_as_they_are() {
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
        let story = read([request.as_bytes()], Limits::default());
        assert_eq!(story.passed, request.as_bytes(), "{request}");
    }
}

#[test]
fn row_1_and_2_a_length_and_a_transfer_encoding_are_refused_in_either_order() {
    assert_eq!(status(post("Content-Length: 5\r\nTransfer-Encoding: chunked\r\n")), 400);
    assert_eq!(status(post("Transfer-Encoding: chunked\r\nContent-Length: 5\r\n")), 400);
    assert_eq!(status(post("Transfer-Encoding: chunked\r\nContent-Length: 0\r\n")), 400);
}

#[test]
fn row_3_and_4_two_lengths_are_refused_be_they_equal_or_not() {
    assert_eq!(status(post("Content-Length: 5\r\nContent-Length: 6\r\n")), 400);
    assert_eq!(status(post("Content-Length: 1\r\nContent-Length: 1\r\n")), 400);
    assert_eq!(status(post("Content-Length: 1, 1\r\n")), 400);
    assert_eq!(status(post("Content-Length: 1,1\r\n")), 400);
}

#[test]
fn row_5_a_length_is_digits() {
    for length in ["+1", "0x1", "-1", "", " ", "1 1", "1.0", "1e1", "١", "\"1\"", "1;"] {
        assert_eq!(status(post(&format!("Content-Length: {length}\r\n"))), 400, "{length}");
    }
}

#[test]
fn row_6_a_length_that_wraps_is_refused() {
    for length in ["18446744073709551616", "18446744073709551615", "9223372036854775808", &"9".repeat(400)] {
        assert_eq!(status(post(&format!("Content-Length: {length}\r\n"))), 400, "{length}");
    }
    assert_eq!(status(post("Content-Length: 9223372036854775807\r\n")), 413);
}

#[test]
fn row_7_a_transfer_encoding_is_chunked_and_nothing_else() {
    for (coding, expected) in [
        ("xchunked", 501),
        ("gzip", 501),
        ("identity", 501),
        ("\x0bchunked", 400),
        ("chunked, identity", 400),
        ("gzip, chunked", 400),
        ("chunked, chunked", 400),
        ("chunked;q=1", 400),
        ("\"chunked\"", 400),
        (",chunked", 400),
        ("", 400),
    ] {
        assert_eq!(status(post(&format!("Transfer-Encoding: {coding}\r\n"))), expected, "{coding:?}");
    }
    let twice = "Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n";
    assert_eq!(status(post(twice)), 400);
    assert_eq!(status(post("Transfer-Encoding: chunked\r\nTransfer-Encoding: identity\r\n")), 501);
}

#[test]
fn row_8_http_1_0_has_no_transfer_encoding() {
    assert_eq!(status("POST / HTTP/1.0\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n"), 400);
}

#[test]
fn row_9_a_folded_line_is_refused() {
    assert_eq!(status(get("X-A: b\r\n c\r\n")), 400);
    assert_eq!(status(get("X-A: b\r\n\tc: d\r\n")), 400);
    assert_eq!(status("GET / HTTP/1.1\r\n Host: a\r\n\r\n"), 400, "not even the first");
    assert_eq!(status(get(" \r\n")), 400);
}

#[test]
fn row_10_a_blank_before_the_colon_is_refused() {
    assert_eq!(status(post("Content-Length : 5\r\n")), 400);
    assert_eq!(status(post("Transfer-Encoding\t: chunked\r\n")), 400);
}

#[test]
fn row_11_a_line_feed_alone_ends_no_line() {
    assert_eq!(status("GET / HTTP/1.1\nHost: a\n\n"), 400);
    assert_eq!(status("GET / HTTP/1.1\r\nHost: a\nX: b\r\n\r\n"), 400);
    assert_eq!(status("GET / HTTP/1.1\r\nHost: a\r\n\n"), 400);
    assert_eq!(status("\nGET / HTTP/1.1\r\nHost: a\r\n\r\n"), 400);
}

#[test]
fn row_12_control_characters_are_refused_wherever_they_are() {
    for byte in (0..0x20_u8).chain([0x7f]).filter(|byte| !b"\t\n".contains(byte)) {
        let byte = char::from(byte);
        assert_eq!(status(get(&format!("X: a{byte}b\r\n"))), 400, "{byte:?} in a value");
        assert_eq!(status(get(&format!("X: a{byte}\r\n"))), 400, "{byte:?} at the end of a value");
        assert_eq!(status(get(&format!("X{byte}: a\r\n"))), 400, "{byte:?} in a name");
        assert_eq!(status(target(&format!("/{byte}"))), 400, "{byte:?} in a target");
        assert_eq!(status(format!("G{byte}T / HTTP/1.1\r\nHost: a\r\n\r\n")), 400, "{byte:?} in a method");
        assert_eq!(
            status(format!("GET / HTTP/1.1{byte}\r\nHost: a\r\n\r\n")),
            400,
            "{byte:?} after the version"
        );
    }
}

#[test]
fn row_13_the_frame_of_a_chunk_is_exact() {
    for (body, why) in [
        ("5;a\n\r\nhello\r\n0\r\n\r\n", "a bare LF in an extension"),
        ("5;a\rb\r\nhello\r\n0\r\n\r\n", "a bare CR in an extension"),
        ("5;\0\r\nhello\r\n0\r\n\r\n", "a NUL in an extension"),
        ("5;\u{e9}\r\nhello\r\n0\r\n\r\n", "an extension that is not ASCII"),
        ("5\nhello\r\n0\r\n\r\n", "a bare LF after a size"),
        ("5\rhello\r\n0\r\n\r\n", "a bare CR after a size"),
        ("0x1\r\na\r\n0\r\n\r\n", "a prefix"),
        ("+1\r\na\r\n0\r\n\r\n", "a sign"),
        (" 1\r\na\r\n0\r\n\r\n", "a blank before a size"),
        ("1 \r\na\r\n0\r\n\r\n", "a blank after a size"),
        ("1 ;a\r\na\r\n0\r\n\r\n", "a blank before an extension"),
        ("\r\na\r\n0\r\n\r\n", "no size"),
        (";a\r\na\r\n0\r\n\r\n", "no size but an extension"),
        ("1\r\nab\r\n0\r\n\r\n", "more data than the size says"),
        ("1\r\na\n0\r\n\r\n", "a bare LF after data"),
        ("1\r\na\rb0\r\n\r\n", "a bare CR after data"),
        ("1\r\na0\r\n\r\n", "nothing after data"),
        ("10000000000000001\r\na", "a size with seventeen digits"),
        ("00000000000000001\r\na", "a size with seventeen digits, though it is small"),
    ] {
        assert_eq!(status(chunked(body)), 400, "{why}");
    }
    assert_eq!(status(chunked("FFFFFFFFFFFFFFFF\r\na")), 413, "the largest size that can be written");
    assert_eq!(status(chunked("1\r\na\r\nFFFFFFFFFFFFFFFF\r\na")), 413, "a sum that wraps");
    assert_eq!(status(chunked(&format!("1;{}\r\na", "b".repeat(1024)))), 0);
    assert_eq!(status(chunked(&format!("1;{}\r\na", "b".repeat(1025)))), 400, "a long extension");
    let extensions = format!("1;{}\r\na\r\n", "b".repeat(513));
    assert_eq!(status(chunked(&extensions.repeat(2))), 400, "extensions that are long together");
}

#[test]
fn row_13_trailers_are_checked_as_headers_are() {
    for (trailer, why) in [
        ("X : a", "a blank before the colon"),
        (" X: a", "a folded line"),
        ("X: a\rb", "a bare CR"),
        ("X: a\nY: b", "a bare LF"),
        ("X_Y: a", "an underscore"),
        ("X", "no colon"),
        ("Content-Length: 5", "what frames a body"),
        ("transfer-encoding: chunked", "what frames a body"),
        ("Host: b", "what the page was found by"),
        ("Connection: close", "what the connection is"),
        ("Upgrade: x", "what the connection is"),
        ("Expect: x", "what was expected"),
    ] {
        assert_eq!(status(chunked(&format!("0\r\n{trailer}\r\n\r\n"))), 400, "{why}");
    }
    let limits = Limits { headers: 2, head_bytes: 100, ..Limits::default() };
    let status = |trailers: &str| match verdict(chunked(&format!("0\r\n{trailers}\r\n")).as_bytes(), limits) {
        Then::Refused(refusal) => refusal.status.as_u16(),
        _ => 0,
    };
    assert_eq!(status("A: b\r\nA: b\r\n"), 0);
    assert_eq!(status("A: b\r\nA: b\r\nA: b\r\n"), 431);
    assert_eq!(status(&format!("A: {}\r\n", "b".repeat(93))), 0, "99 bytes and the empty line");
    assert_eq!(status(&format!("A: {}\r\n", "b".repeat(96))), 431);
    assert_eq!(status(&format!("A: {}", "b".repeat(200))), 431, "though it has no end");
}

#[test]
fn row_18_a_request_has_a_host() {
    assert_eq!(status("GET / HTTP/1.1\r\n\r\n"), 400);
    assert_eq!(status("GET http://a/ HTTP/1.1\r\n\r\n"), 400);
    assert_eq!(status("GET / HTTP/1.0\r\n\r\n"), 400, "a site is needed");
}

#[test]
fn row_19_a_request_has_one_host() {
    assert_eq!(status("GET / HTTP/1.1\r\nHost: a\r\nHost: b\r\n\r\n"), 400);
    assert_eq!(status("GET / HTTP/1.1\r\nHost: a\r\nhost: a\r\n\r\n"), 400);
    assert_eq!(status("GET / HTTP/1.0\r\nHost: a\r\nHost: a\r\n\r\n"), 400);
}

#[test]
fn row_20_a_host_is_a_host() {
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
fn row_21_an_absolute_target_names_the_host() {
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
fn row_22_no_tunnel_is_dug_and_nothing_is_echoed() {
    assert_eq!(status("CONNECT a:443 HTTP/1.1\r\nHost: a:443\r\n\r\n"), 405);
    assert_eq!(status("TRACE / HTTP/1.1\r\nHost: a\r\n\r\n"), 405);
}

#[test]
fn row_34_nothing_that_ends_a_line_or_a_string_is_encoded_in_a_path() {
    for path in ["/%00", "/a%0d", "/a%0D/b", "/%0a", "/%0A?x", "http://a/%00", "/%25%00", "/%%00"] {
        assert_eq!(status(target(path)), 400, "{path}");
    }
    for path in ["/%", "/%0", "/%0b", "/%2500", "/?%00"] {
        assert_eq!(status(target(path)), 0, "{path}");
    }
}

#[test]
fn row_36_a_target_is_made_of_what_an_address_is_made_of() {
    for path in ["/\\", "/a#b", "/\u{e9}", "/<", "/>", "/`", "/?\"", "/?<", "/?#", "/?\\"] {
        assert_eq!(status(target(path)), 400, "{path}");
    }
}

#[test]
fn row_40_a_read_has_no_body() {
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
fn row_43_a_name_is_a_token_without_underscores() {
    for name in ["Transfer_Encoding", "X_Tenant_Id", "X(a)", "X@", "X\"", "X/", "X{", "\u{e9}", ""] {
        assert_eq!(status(get(&format!("{name}: a\r\n"))), 400, "{name}");
    }
    assert_eq!(status(get("no colon\r\n")), 400);
    assert_eq!(status(get("nocolon\r\n")), 400);
    assert_eq!(status(get("!#$%&'*+-.^`|~09azAZ: a\r\n")), 0);
}

#[test]
fn row_45_heads_lines_and_targets_have_a_size() {
    let limits = Limits { head_bytes: 200, headers: 3, target_bytes: 100, body_bytes: 10 };
    let status = |request: &str| match verdict(request.as_bytes(), limits) {
        Then::Refused(refusal) => refusal.status.as_u16(),
        _ => 0,
    };
    let long = "a".repeat(300);
    // `target` has 29 bytes besides the path, `get` has 27 besides the lines.
    assert_eq!(status(&target(&format!("/{}", &long[..99]))), 0);
    assert_eq!(status(&target(&format!("/{}", &long[..100]))), 414);
    assert_eq!(status(&target(&format!("/{long}"))), 414);
    assert_eq!(status(&format!("GET /{long}")), 414, "though it has no end");
    assert_eq!(status(&long), 414, "whatever it is");
    assert_eq!(status(&get(&format!("X: {}\r\n", &long[..168]))), 0, "200 bytes");
    assert_eq!(status(&get(&format!("X: {}\r\n", &long[..169]))), 431, "201 bytes");
    assert_eq!(status(&get(&format!("X: {long}"))), 431, "though it has no end");
    assert_eq!(status(&get("X: a\r\nX: a\r\n")), 0);
    assert_eq!(status(&get("X: a\r\nX: a\r\nX: a\r\n")), 431);
    assert_eq!(status(&post("Content-Length: 10\r\n")), 0);
    assert_eq!(status(&post("Content-Length: 11\r\n")), 413);
    assert_eq!(status(&chunked("6\r\n123456\r\n4\r\n1234\r\n")), 0);
    assert_eq!(status(&chunked("6\r\n123456\r\n5\r\n12345\r\n")), 413);
}

#[test]
fn row_45_the_limits_are_those_that_are_promised() {
    let filler = |bytes: usize| get(&format!("X: {}\r\n", "a".repeat(bytes)));
    let whole = |request: String| match read([request.as_bytes()], Limits::default()).then {
        Then::Refused(refusal) => refusal.status.as_u16(),
        _ => 0,
    };
    assert_eq!(whole(filler(64 * 1024)), 431);
    assert_eq!(whole(filler(15 * 1024)), 0);
    assert_eq!(whole(get(&"X: a\r\n".repeat(99))), 0, "with Host it is a hundred");
    assert_eq!(whole(get(&"X: a\r\n".repeat(100))), 431);
    assert_eq!(whole(target(&format!("/{}", "a".repeat(64 * 1024)))), 414);
    assert_eq!(whole(target(&format!("/{}", "a".repeat(8 * 1024 - 1)))), 0);
    assert_eq!(whole(post("Content-Length: 10485760\r\n")), 0);
    assert_eq!(whole(post("Content-Length: 10485761\r\n")), 413);
}

#[test]
fn a_request_line_is_three_words() {
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
fn other_versions_are_told_so() {
    for version in ["HTTP/0.9", "HTTP/1.2", "HTTP/2.0", "HTTP/3.0"] {
        assert_eq!(status(format!("GET / {version}\r\nHost: a\r\n\r\n")), 505, "{version}");
    }
    assert_eq!(status("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"), 505);
}

#[test]
fn one_empty_line_before_a_request_is_forgiven() {
    assert_eq!(status("\r\nGET / HTTP/1.1\r\nHost: a\r\n\r\n"), 0);
    assert_eq!(status("\r\n\r\nGET / HTTP/1.1\r\nHost: a\r\n\r\n"), 400);
    assert_eq!(status("\rGET / HTTP/1.1\r\nHost: a\r\n\r\n"), 400);
}

#[test]
fn one_expectation_is_met() {
    assert_eq!(status(post("Expect: 100-continue\r\n")), 0);
    assert_eq!(status(post("Expect: 200-ok\r\n")), 417);
    assert_eq!(status(post("Expect: 100-continue, x\r\n")), 417);
    assert_eq!(status(post("Expect:\r\n")), 417);
}

#[test]
fn row_15_what_follows_a_request_for_another_protocol_is_not_read() {
    let upgrade = get("Connection: keep-alive, Upgrade\r\nUpgrade: websocket\r\n");
    let story = read([upgrade.as_bytes(), b"\0\x01"], Limits::default());
    assert_eq!((story.then, story.passed), (Then::Upgrade, upgrade.clone().into_bytes()));
    let both = upgrade.clone() + "\0\x01";
    assert_eq!(read([both.as_bytes()], Limits::default()).passed, upgrade.as_bytes());
    for no_upgrade in [
        upgrade.replace("HTTP/1.1", "HTTP/1.0"),
        upgrade.replace(", Upgrade", ""),
        upgrade.replace("Upgrade: websocket", "X: a"),
    ] {
        assert_eq!(verdict(no_upgrade.as_bytes(), Limits::default()), Then::More, "{no_upgrade}");
    }
}

#[test]
fn row_15_a_request_for_another_protocol_has_no_body() {
    let upgrade = "Connection: Upgrade\r\nUpgrade: websocket\r\n";
    assert_eq!(status(post(&format!("{upgrade}Content-Length: 1\r\n"))), 400);
    assert_eq!(status(post(&format!("{upgrade}Transfer-Encoding: chunked\r\n"))), 400);
}
