//! Stored and forwarded headers: RFC 9111, section 3.1, and RFC 9110, section 7.6.

use crate::date::date;
use crate::helpers::{assert_lacks, assert_none_reused, numbered, origin_requests, scripted};
use crate::support::origin::ScriptedResponse;
use crate::support::site::{Site, get};

on_each_store![
    rfc9111_2_the_key_is_the_complete_url,
    rfc9111_3_1_all_headers_are_stored_known_or_unknown,
    rfc9111_5_2_the_cache_control_of_the_origin_is_forwarded_unchanged,
    rfc9110_7_6_1_hop_by_hop_headers_are_neither_stored_nor_forwarded,
    rfc9111_3_1_proxy_headers_are_not_stored,
    rfc9111_7_3_a_response_that_sets_a_cookie_is_not_cached,
    rfc9111_4_the_origin_gets_all_headers_of_the_client,
    rfc9111_4_the_origin_gets_the_client_address_with_every_request,
    rfc9110_7_6_1_hop_by_hop_headers_of_the_client_do_not_reach_the_origin,
    rfc9110_7_8_an_upgrade_request_reaches_the_origin_with_its_protocol,
];

fn rfc9111_2_the_key_is_the_complete_url(site: &Site) {
    numbered(site, "/address", &["Cache-Control: max-age=3600"]);
    numbered(site, "/Address", &["Cache-Control: max-age=3600"]);
    let request = |host: &str, target: &str| {
        site.gateway.exchange(format!("GET {target} HTTP/1.1\r\nHost: {host}\r\n\r\n")).text()
    };
    let addresses = [
        ("a.example", "/address", "response 1"),
        ("b.example", "/address", "response 2"),
        ("a.example", "/address?x", "response 3"),
        ("a.example", "/address?x=1", "response 4"),
        ("a.example:81", "/address", "response 5"),
        ("a.example", "/Address", "response 1"),
    ];
    for _ in 0..2 {
        for (host, target, expected) in addresses {
            assert_eq!(request(host, target), expected, "{host}{target}");
        }
    }
    assert_eq!(request("A.EXAMPLE", "/address"), "response 1", "hosts ignore case");
}

fn rfc9111_3_1_all_headers_are_stored_known_or_unknown(site: &Site) {
    let lines =
        ["Cache-Control: max-age=3600", "X-Own: a", "X-Own: b", "Server: test", "Content-Language: de"];
    let known =
        ["Content-Security-Policy: default-src 'self'", "Link: </a>; rel=next", "Warning: 199 - \"old\""];
    let lines: Vec<&str> = lines.into_iter().chain(known).chain(["Strange-Header: {\"x\"}"]).collect();
    numbered(site, "/headers", &lines);
    let (first, second) = (site.get("/headers"), site.get("/headers"));
    for name in ["x-own", "server", "content-language", "content-security-policy", "link", "strange-header"] {
        let values = |response: &crate::support::client::Response| {
            let values = response.headers.iter().filter(|(known, _)| known == name);
            values.map(|(_, value)| value.clone()).collect::<Vec<_>>()
        };
        assert!(!values(&first).is_empty(), "{name}");
        assert_eq!(values(&first), values(&second), "{name}");
    }
    assert_eq!(origin_requests(site, "/headers"), 1);
}

fn rfc9111_5_2_the_cache_control_of_the_origin_is_forwarded_unchanged(site: &Site) {
    let (expires, changed) = (date(3600), date(-10_000));
    let lines = [
        "Cache-Control: public, max-age=60, s-maxage=3600, extension=1",
        &format!("Expires: {expires}"),
        &format!("Last-Modified: {changed}"),
        "ETag: W/\"a\"",
    ];
    numbered(site, "/told", &lines);
    for _ in 0..2 {
        let response = site.get("/told");
        let reported =
            ["cache-control", "expires", "last-modified", "etag"].map(|name| response.header(name));
        let control = "public, max-age=60, s-maxage=3600, extension=1";
        assert_eq!(reported, [Some(control), Some(&expires), Some(&changed), Some("W/\"a\"")]);
        assert_eq!(response.text(), "response 1");
    }
}

fn rfc9110_7_6_1_hop_by_hop_headers_are_neither_stored_nor_forwarded(site: &Site) {
    let lines = [
        "Cache-Control: max-age=3600",
        "Connection: keep-alive, X-Hop",
        "X-Hop: 1",
        "Keep-Alive: timeout=99",
    ];
    numbered(site, "/hop", &lines);
    for _ in 0..2 {
        let response = site.get("/hop");
        assert_eq!((response.header("x-hop"), response.header("keep-alive")), (None, None));
        assert_eq!(response.text(), "response 1");
    }
}

fn rfc9111_3_1_proxy_headers_are_not_stored(site: &Site) {
    let lines = ["Proxy-Authenticate: Basic", "Proxy-Authentication-Info: x=1", "Proxy-Authorization: x"];
    let lines: Vec<&str> = ["Cache-Control: max-age=3600"].into_iter().chain(lines).collect();
    numbered(site, "/proxy", &lines);
    site.get("/proxy");
    let second = site.get("/proxy");
    assert_eq!(second.text(), "response 1");
    assert_lacks(&second, &["proxy-authenticate", "proxy-authentication-info", "proxy-authorization"]);
}

fn rfc9111_7_3_a_response_that_sets_a_cookie_is_not_cached(site: &Site) {
    assert_none_reused(
        site,
        "cookie",
        &[
            &["Cache-Control: max-age=3600", "Set-Cookie: session=1"],
            &["Cache-Control: public, s-maxage=3600", "Set-Cookie: session=1", "ETag: \"a\""],
        ],
    );
    assert_eq!(site.get("/cookie/0").header("set-cookie"), Some("session=1"));
}

fn rfc9111_4_the_origin_gets_all_headers_of_the_client(site: &Site) {
    scripted(site, "/seen", |_, _| ScriptedResponse::page(&["Cache-Control: max-age=3600"], "seen"));
    site.get_with("/seen?a=1", "Cookie: a=1; b=2\r\nAccept-Language: de\r\nX-Own: 1\r\nUser-Agent: test\r\n");
    let request = site.origin.requests_for("/seen?a=1").pop().expect("a request");
    let seen = ["cookie", "accept-language", "x-own", "user-agent"].map(|name| request.header(name));
    assert_eq!(seen, [Some("a=1; b=2"), Some("de"), Some("1"), Some("test")]);
}

fn rfc9111_4_the_origin_gets_the_client_address_with_every_request(site: &Site) {
    // A 304 with `no-store` is followed by an unconditional request for the waiting client.
    scripted(site, "/again", |_, number| match number {
        1 => ScriptedResponse::page(&["Cache-Control: max-age=60", "Age: 100", "ETag: \"a\""], "cached"),
        2 => ScriptedResponse::with("304 Not Modified", &["Cache-Control: no-store", "ETag: \"a\""], ""),
        _ => ScriptedResponse::page(&["Cache-Control: no-store"], "fetched again"),
    });
    assert_eq!(
        (site.get("/again").text(), site.get("/again").text()),
        ("cached".into(), "fetched again".into())
    );
    let requests = site.origin.requests_for("/again");
    let reported: Vec<_> = requests.iter().map(|request| request.header("x-forwarded-for")).collect();
    assert_eq!(reported, [Some("127.0.0.1"); 3]);
}

fn rfc9110_7_6_1_hop_by_hop_headers_of_the_client_do_not_reach_the_origin(site: &Site) {
    scripted(site, "/hop", |_, _| ScriptedResponse::page(&["Cache-Control: max-age=3600"], "seen"));
    site.get_with("/hop", "Connection: X-Hop\r\nX-Hop: 1\r\nKeep-Alive: timeout=9\r\nX-Own: 1\r\n");
    let request = site.origin.requests_for("/hop").pop().expect("a request");
    let seen = ["x-hop", "keep-alive", "x-own"].map(|name| request.header(name));
    assert_eq!(seen, [None, None, Some("1")]);
}

fn rfc9110_7_8_an_upgrade_request_reaches_the_origin_with_its_protocol(site: &Site) {
    let switch = "HTTP/1.1 101 Switching Protocols\r\nConnection: upgrade\r\nUpgrade: foo\r\n\r\n";
    site.origin.respond("/other", ScriptedResponse::raw(switch).then_echo());
    let mut connection = site.gateway.connect();
    connection.send(get("/other", "Connection: upgrade\r\nUpgrade: foo\r\n"));
    let response = connection.response();
    let reported = (response.status, response.header("connection"), response.header("upgrade"));
    assert_eq!(reported, (101, Some("upgrade"), Some("foo")));
    connection.send("hello");
    assert_eq!(connection.bytes(5), b"hello");
}
