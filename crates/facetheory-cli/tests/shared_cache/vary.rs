//! Variants: RFC 9111, section 4.1.

use crate::helpers::{assert_none_reused, numbered, origin_requests, scripted};
use crate::support::client::Response;
use crate::support::http2::{self, END_STREAM, Frame, Http2};
use crate::support::origin::ScriptedResponse;
use crate::support::site::{HOST, Site};

on_each_store![
    rfc9111_4_1_a_variant_is_for_requests_with_the_same_headers_only,
    rfc9111_4_1_a_missing_header_matches_only_a_missing_header,
    rfc9111_4_1_all_listed_headers_must_match,
    rfc9111_4_1_vary_may_have_several_lines_and_ignores_case,
    rfc9111_4_1_equivalent_headers_match,
    rfc9111_4_1_cookies_are_compared_as_the_origin_gets_them,
    rfc9111_4_1_a_star_matches_nothing,
    rfc9111_4_1_headers_that_are_not_listed_do_not_matter,
    rfc9111_4_1_vary_may_change,
    rfc9111_4_1_a_response_with_an_invalid_vary_is_not_cached,
    rfc9111_4_1_each_variant_is_validated_by_its_own_validator,
    rfc9110_12_5_5_content_codings_of_the_origin_are_separate_variants,
    rfc9111_4_1_a_validation_does_not_change_other_variants,
    rfc9111_4_1_a_response_without_vary_replaces_all_variants,
];

/// A response that contains the request headers that it depends on.
fn greeting(site: &Site, path: &str, vary: &'static [&'static str]) {
    scripted(site, path, move |request, number| {
        let of = |name: &str| request.header(name).unwrap_or("none").to_owned();
        let body = format!("{number}: {} {}", of("x-language"), of("x-kind"));
        let lines: Vec<&str> = vary.iter().copied().chain(["Cache-Control: max-age=3600"]).collect();
        ScriptedResponse::page(&lines, &body)
    });
}

/// Requests a page in this language.
fn get_in(site: &Site, path: &str, language: &str) -> Response {
    site.get_with(path, &format!("X-Language: {language}\r\n"))
}

fn rfc9111_4_1_a_variant_is_for_requests_with_the_same_headers_only(site: &Site) {
    greeting(site, "/vary", &["Vary: X-Language"]);
    for _ in 0..3 {
        assert_eq!(get_in(site, "/vary", "de").text(), "1: de none");
        if origin_requests(site, "/vary") == 1 {
            assert_eq!(get_in(site, "/vary", "fr").text(), "2: fr none");
        }
        assert_eq!(get_in(site, "/vary", "fr").text(), "2: fr none");
    }
    assert_eq!(origin_requests(site, "/vary"), 2, "both variants are cached");
}

fn rfc9111_4_1_a_missing_header_matches_only_a_missing_header(site: &Site) {
    greeting(site, "/missing", &["Vary: X-Language"]);
    assert_eq!(site.get("/missing").text(), "1: none none");
    assert_eq!(get_in(site, "/missing", "de").text(), "2: de none");
    assert_eq!(
        site.get_with("/missing", "X-Language:\r\n").text(),
        "3:  none",
        "an empty header is not a missing one"
    );
    assert_eq!(site.get("/missing").text(), "1: none none");
}

fn rfc9111_4_1_all_listed_headers_must_match(site: &Site) {
    greeting(site, "/two", &["Vary: X-Language, X-Kind"]);
    let request = |language: &str, kind: &str| {
        site.get_with("/two", &format!("X-Language: {language}\r\nX-Kind: {kind}\r\n")).text()
    };
    assert_eq!(request("de", "a"), "1: de a");
    assert_eq!(request("de", "b"), "2: de b");
    assert_eq!(request("fr", "a"), "3: fr a");
    for (language, kind, expected) in [("de", "a", "1: de a"), ("de", "b", "2: de b"), ("fr", "a", "3: fr a")]
    {
        assert_eq!(request(language, kind), expected);
    }
    assert_eq!(origin_requests(site, "/two"), 3);
}

fn rfc9111_4_1_vary_may_have_several_lines_and_ignores_case(site: &Site) {
    greeting(site, "/lines", &["Vary: X-KIND", "vary: , x-language ,"]);
    assert_eq!(get_in(site, "/lines", "de").text(), "1: de none");
    assert_eq!(get_in(site, "/lines", "fr").text(), "2: fr none");
    assert_eq!(site.get_with("/lines", "x-kind: a\r\nx-language: de\r\n").text(), "3: de a");
    assert_eq!(get_in(site, "/lines", "de").text(), "1: de none");
}

fn rfc9111_4_1_equivalent_headers_match(site: &Site) {
    greeting(site, "/same", &["Vary: X-Language"]);
    assert_eq!(get_in(site, "/same", "de, fr").text(), "1: de, fr none");
    for lines in
        ["X-Language: de,fr\r\n", "X-Language:   de ,  fr  \r\n", "X-Language: de\r\nX-Language: fr\r\n"]
    {
        assert_eq!(site.get_with("/same", lines).text(), "1: de, fr none", "{lines}");
    }
    assert_ne!(get_in(site, "/same", "fr, de").text(), "1: de, fr none", "order may matter");
}

fn rfc9111_4_1_cookies_are_compared_as_the_origin_gets_them(site: &Site) {
    scripted(site, "/cookies", |request, number| {
        let body = format!("{number}: {}", request.header("cookie").unwrap_or("none"));
        ScriptedResponse::page(&["Cache-Control: max-age=3600", "Vary: Cookie"], &body)
    });
    // HTTP/2 sends each cookie in its own header line.
    let lines = [&http2::get(HOST, "/cookies")[..], &[("cookie", "a=1"), ("cookie", "b=2")]].concat();
    let mut client = Http2::open(site.gateway.address);
    client.send(&Frame::headers(1, &lines, END_STREAM));
    assert_eq!(String::from_utf8_lossy(&client.body(1)), "1: a=1; b=2");
    assert_eq!(site.get_with("/cookies", "Cookie: a=1; b=2\r\n").text(), "1: a=1; b=2");
    assert_eq!(site.get_with("/cookies", "Cookie: a=1,b=2\r\n").text(), "2: a=1,b=2");
    assert_eq!(site.get_with("/cookies", "Cookie: a=1, b=2\r\n").text(), "3: a=1, b=2");
}

fn rfc9111_4_1_a_star_matches_nothing(site: &Site) {
    assert_none_reused(
        site,
        "star",
        &[
            &["Cache-Control: max-age=3600", "Vary: *"],
            &["Cache-Control: max-age=3600", "Vary: *, X-Language"],
            &["Cache-Control: max-age=3600", "Vary: X-Language", "Vary: *"],
            &["Cache-Control: max-age=3600", "Vary: X-Language , *"],
        ],
    );
}

fn rfc9111_4_1_headers_that_are_not_listed_do_not_matter(site: &Site) {
    greeting(site, "/other", &["Vary: X-Language"]);
    assert_eq!(site.get_with("/other", "X-Language: de\r\nX-Kind: a\r\nCookie: a=1\r\n").text(), "1: de a");
    assert_eq!(site.get_with("/other", "X-Language: de\r\nX-Kind: b\r\nCookie: a=2\r\n").text(), "1: de a");
}

fn rfc9111_4_1_vary_may_change(site: &Site) {
    scripted(site, "/change", |request, number| {
        let vary = if number == 1 { "Vary: X-Language" } else { "Vary: X-Kind" };
        let of = |name: &str| request.header(name).unwrap_or("none").to_owned();
        let body = format!("{number}: {} {}", of("x-language"), of("x-kind"));
        ScriptedResponse::page(&["Cache-Control: max-age=3600", vary], &body)
    });
    let request = |lines: &str| site.get_with("/change", lines).text();
    assert_eq!(request("X-Language: de\r\nX-Kind: a\r\n"), "1: de a");
    assert_eq!(request("X-Language: fr\r\nX-Kind: a\r\n"), "2: fr a");
    // From now on responses vary by kind, so a request for another kind must not get this one.
    assert_eq!(request("X-Language: fr\r\nX-Kind: b\r\n"), "3: fr b");
    assert_eq!(request("X-Language: it\r\nX-Kind: b\r\n"), "3: fr b");
}

fn rfc9111_4_1_a_response_with_an_invalid_vary_is_not_cached(site: &Site) {
    assert_none_reused(
        site,
        "none",
        &[&["Cache-Control: max-age=3600", "Vary: x y"], &["Cache-Control: max-age=3600", "Vary: (x)"]],
    );
}

fn rfc9111_4_1_each_variant_is_validated_by_its_own_validator(site: &Site) {
    scripted(site, "/tags", |request, _| {
        let language = request.header("x-language").unwrap_or("none").to_owned();
        let tag = format!("ETag: \"{language}\"");
        let lines = ["Cache-Control: max-age=60", "Age: 100", "Vary: X-Language", &tag];
        match request.header("if-none-match") {
            Some(known) if known.contains(&format!("\"{language}\"")) => {
                ScriptedResponse::with("304 Not Modified", &lines, "")
            }
            _ => ScriptedResponse::page(&lines, &language),
        }
    });
    for language in ["de", "fr", "de", "fr"] {
        let response = get_in(site, "/tags", language);
        assert_eq!((response.status, response.text().as_str()), (200, language));
    }
    let requests = site.origin.requests_for("/tags");
    assert!(
        requests[2].header("if-none-match").is_some_and(|tags| tags.contains("\"de\"")),
        "{:?}",
        requests[2]
    );
    assert!(
        requests[3].header("if-none-match").is_some_and(|tags| tags.contains("\"fr\"")),
        "{:?}",
        requests[3]
    );
}

fn rfc9110_12_5_5_content_codings_of_the_origin_are_separate_variants(site: &Site) {
    scripted(site, "/coded", |request, _| {
        let lines = ["Cache-Control: max-age=3600", "Vary: Accept-Encoding"];
        if request.header("accept-encoding").is_some_and(|accepted| accepted.contains("x-own")) {
            let lines: Vec<&str> = lines.into_iter().chain(["Content-Encoding: x-own"]).collect();
            ScriptedResponse::page(&lines, "coded")
        } else {
            ScriptedResponse::page(&lines, "plain")
        }
    });
    for _ in 0..2 {
        let coded = site.get_with("/coded", "Accept-Encoding: x-own\r\n");
        assert_eq!((coded.text().as_str(), coded.header("content-encoding")), ("coded", Some("x-own")));
        let plain = site.get("/coded");
        assert_eq!((plain.text().as_str(), plain.header("content-encoding")), ("plain", None));
    }
    assert_eq!(origin_requests(site, "/coded"), 2, "both are cached");
}

fn rfc9111_4_1_a_validation_does_not_change_other_variants(site: &Site) {
    greeting(site, "/one", &["Vary: X-Language"]);
    assert_eq!(get_in(site, "/one", "de").text(), "1: de none");
    assert_eq!(get_in(site, "/one", "fr").text(), "2: fr none");
    assert_eq!(site.get_with("/one", "X-Language: de\r\nCache-Control: no-cache\r\n").text(), "3: de none");
    assert_eq!(get_in(site, "/one", "fr").text(), "2: fr none");
    assert_eq!(get_in(site, "/one", "de").text(), "3: de none");
}

fn rfc9111_4_1_a_response_without_vary_replaces_all_variants(site: &Site) {
    greeting(site, "/ends", &["Vary: X-Language"]);
    assert_eq!(get_in(site, "/ends", "de").text(), "1: de none");
    numbered(site, "/ends", &["Cache-Control: max-age=3600"]);
    assert_eq!(get_in(site, "/ends", "fr").text(), "response 1");
    assert_eq!(get_in(site, "/ends", "it").text(), "response 1", "the response is for everyone");
}
