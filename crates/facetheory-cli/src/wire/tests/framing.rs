//! The rules for message framing. `row_N` is the row of the list of bad inputs that a rule is about.

use super::{RequestLimits, chunked, get, post, status, status_with, target};

#[test]
fn row_1_and_2_content_length_with_transfer_encoding_is_rejected_in_either_order() {
    assert_eq!(status(post("Content-Length: 5\r\nTransfer-Encoding: chunked\r\n")), 400);
    assert_eq!(status(post("Transfer-Encoding: chunked\r\nContent-Length: 5\r\n")), 400);
    assert_eq!(status(post("Transfer-Encoding: chunked\r\nContent-Length: 0\r\n")), 400);
}

#[test]
fn row_3_and_4_two_content_lengths_are_rejected_equal_or_not() {
    for lengths in ["5\r\nContent-Length: 6", "1\r\nContent-Length: 1", "1, 1", "1,1"] {
        assert_eq!(status(post(&format!("Content-Length: {lengths}\r\n"))), 400, "{lengths}");
    }
}

#[test]
fn row_5_a_content_length_must_be_digits() {
    for length in ["+1", "0x1", "-1", "", " ", "1 1", "1.0", "1e1", "١", "\"1\"", "1;"] {
        assert_eq!(status(post(&format!("Content-Length: {length}\r\n"))), 400, "{length}");
    }
}

#[test]
fn row_6_a_content_length_that_overflows_is_rejected() {
    for length in ["18446744073709551616", "18446744073709551615", "9223372036854775808", &"9".repeat(400)] {
        assert_eq!(status(post(&format!("Content-Length: {length}\r\n"))), 400, "{length}");
    }
    assert_eq!(status(post("Content-Length: 9223372036854775807\r\n")), 413);
}

#[test]
fn row_7_only_chunked_is_supported_as_transfer_encoding() {
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
fn row_8_transfer_encoding_is_rejected_in_http_1_0() {
    assert_eq!(status("POST / HTTP/1.0\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n"), 400);
}

#[test]
fn row_9_a_folded_line_is_rejected() {
    assert_eq!(status(get("X-A: b\r\n c\r\n")), 400);
    assert_eq!(status(get("X-A: b\r\n\tc: d\r\n")), 400);
    assert_eq!(status("GET / HTTP/1.1\r\n Host: a\r\n\r\n"), 400, "the first header line");
    assert_eq!(status(get(" \r\n")), 400);
}

#[test]
fn row_10_white_space_before_the_colon_is_rejected() {
    assert_eq!(status(post("Content-Length : 5\r\n")), 400);
    assert_eq!(status(post("Transfer-Encoding\t: chunked\r\n")), 400);
}

#[test]
fn row_11_a_bare_line_feed_is_rejected() {
    assert_eq!(status("GET / HTTP/1.1\nHost: a\n\n"), 400);
    assert_eq!(status("GET / HTTP/1.1\r\nHost: a\nX: b\r\n\r\n"), 400);
    assert_eq!(status("GET / HTTP/1.1\r\nHost: a\r\n\n"), 400);
    assert_eq!(status("\nGET / HTTP/1.1\r\nHost: a\r\n\r\n"), 400);
}

#[test]
fn row_12_control_characters_are_rejected_everywhere() {
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
fn row_13_malformed_chunk_framing_is_rejected() {
    for (body, why) in [
        ("5;a\n\r\nhello\r\n0\r\n\r\n", "a bare LF in an extension"),
        ("5;a\rb\r\nhello\r\n0\r\n\r\n", "a bare CR in an extension"),
        ("5;\0\r\nhello\r\n0\r\n\r\n", "a NUL in an extension"),
        ("5;\u{e9}\r\nhello\r\n0\r\n\r\n", "an extension that is not ASCII"),
        ("5\nhello\r\n0\r\n\r\n", "a bare LF after a size"),
        ("5\rhello\r\n0\r\n\r\n", "a bare CR after a size"),
        ("0x1\r\na\r\n0\r\n\r\n", "a prefix"),
        ("+1\r\na\r\n0\r\n\r\n", "a sign"),
        (" 1\r\na\r\n0\r\n\r\n", "a space before a size"),
        ("1 \r\na\r\n0\r\n\r\n", "a space after a size"),
        ("1 ;a\r\na\r\n0\r\n\r\n", "a space before an extension"),
        ("\r\na\r\n0\r\n\r\n", "no size"),
        (";a\r\na\r\n0\r\n\r\n", "no size but an extension"),
        ("1\r\nab\r\n0\r\n\r\n", "more data than the size says"),
        ("1\r\na\n0\r\n\r\n", "a bare LF after data"),
        ("1\r\na\rb0\r\n\r\n", "a bare CR after data"),
        ("1\r\na0\r\n\r\n", "nothing after data"),
        ("10000000000000001\r\na", "a size with seventeen digits"),
        ("00000000000000001\r\na", "a small size with seventeen digits"),
    ] {
        assert_eq!(status(chunked(body)), 400, "{why}");
    }
    assert_eq!(status(chunked("FFFFFFFFFFFFFFFF\r\na")), 413, "the largest possible size");
    assert_eq!(status(chunked("1\r\na\r\nFFFFFFFFFFFFFFFF\r\na")), 413, "a sum that overflows");
    assert_eq!(status(chunked(&format!("1;{}\r\na", "b".repeat(1024)))), 0);
    assert_eq!(status(chunked(&format!("1;{}\r\na", "b".repeat(1025)))), 400, "a long extension");
    let extensions = format!("1;{}\r\na\r\n", "b".repeat(513));
    assert_eq!(status(chunked(&extensions.repeat(2))), 400, "extensions that are too long in total");
}

#[test]
fn row_13_trailers_are_checked_like_headers() {
    for (trailer, why) in [
        ("X : a", "white space before the colon"),
        (" X: a", "a folded line"),
        ("X: a\rb", "a bare CR"),
        ("X: a\nY: b", "a bare LF"),
        ("X_Y: a", "an underscore"),
        ("X", "no colon"),
        ("Content-Length: 5", "framing"),
        ("transfer-encoding: chunked", "framing"),
        ("Host: b", "the host of the page"),
        ("Connection: close", "a connection option"),
        ("Upgrade: x", "a connection option"),
        ("Expect: x", "an expectation"),
    ] {
        assert_eq!(status(chunked(&format!("0\r\n{trailer}\r\n\r\n"))), 400, "{why}");
    }
    let limits = RequestLimits { headers: 2, header_bytes: 100, ..RequestLimits::default() };
    let status = |trailers: &str| status_with(chunked(&format!("0\r\n{trailers}\r\n")), limits);
    assert_eq!(status("A: b\r\nA: b\r\n"), 0);
    assert_eq!(status("A: b\r\nA: b\r\nA: b\r\n"), 431);
    assert_eq!(status(&format!("A: {}\r\n", "b".repeat(93))), 0, "99 bytes and the empty line");
    assert_eq!(status(&format!("A: {}\r\n", "b".repeat(96))), 431);
    assert_eq!(status(&format!("A: {}", "b".repeat(200))), 431, "although it has no end");
}
