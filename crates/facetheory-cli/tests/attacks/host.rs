//! Host, target, and headers that try to override them at the origin.

use crate::assertions::{PAGES, assert_not_cached, assert_rejected, assert_rejected_and_closed, cache_page};
use crate::support::origin::{Origin, Request, ScriptedResponse};
use crate::support::site::{Site, get};
use crate::support::wait_for;

#[test]
fn row_18_a_request_without_a_host_is_rejected() {
    let site = Site::start(PAGES);
    assert_rejected_and_closed(&site, "/row-18", "GET /row-18 HTTP/1.1\r\n\r\n", &[400]);
    assert_rejected_and_closed(&site, "/row-18-a", "GET /row-18-a HTTP/1.1\r\nHosts: a\r\n\r\n", &[400]);
    assert_rejected_and_closed(&site, "/row-18-b", "POST /row-18-b HTTP/1.1\r\n\r\n", &[400]);
}

#[test]
fn row_19_two_hosts_are_rejected() {
    let site = Site::start(PAGES);
    for (index, hosts) in [
        ["Host: www.example.com", "Host: evil.example"].as_slice(),
        &["Host: evil.example", "Host: www.example.com"],
        &["Host: www.example.com", "Host: www.example.com"],
        &["Host: www.example.com", "X-A: b", "hOST: www.example.com"],
    ]
    .iter()
    .enumerate()
    {
        let (path, hosts) = (format!("/row-19-{index}"), hosts.join("\r\n"));
        assert_rejected_and_closed(&site, &path, format!("GET {path} HTTP/1.1\r\n{hosts}\r\n\r\n"), &[400]);
    }
}

#[test]
fn row_20_an_invalid_host_is_rejected() {
    let site = Site::start(PAGES);
    let hosts = [
        "a@evil", "a/b", "a b", "a:x", "a:", "a:80:80", "a:-1", "a:99999", "a?b", "a#b", "a\\b", "a,b",
        "[::1", "",
    ];
    for (index, host) in hosts.iter().enumerate() {
        for path in [format!("/row-20-{index}"), format!("/pass/row-20-{index}")] {
            let before = site.origin.byte_count();
            let response = site.gateway.exchange(format!("GET {path} HTTP/1.1\r\nHost: {host}\r\n\r\n"));
            assert_eq!(response.status, 400, "{host}");
            assert_eq!(site.origin.byte_count(), before, "{host} reached the origin");
        }
    }
}

#[test]
fn row_21_a_target_authority_that_differs_from_the_host_is_rejected_and_never_connected_to() {
    let site = Site::start(PAGES);
    let other_origin = Origin::start();
    let elsewhere = other_origin.address;
    for (index, (target, host)) in [
        (format!("http://{elsewhere}"), "www.example.com".to_owned()),
        ("http://www.example.com".to_owned(), elsewhere.to_string()),
        ("http://www.example.com:81".to_owned(), "www.example.com".to_owned()),
        (format!("http://www.example.com@{elsewhere}"), "www.example.com".to_owned()),
        (format!("http://www.example.com@{elsewhere}"), elsewhere.to_string()),
        (format!("ftp://{elsewhere}"), elsewhere.to_string()),
        ("http://".to_owned(), "www.example.com".to_owned()),
        ("www.example.com".to_owned(), "www.example.com".to_owned()),
    ]
    .iter()
    .enumerate()
    {
        let path = format!("/row-21-{index}");
        let bytes = format!("GET {target}{path} HTTP/1.1\r\nHost: {host}\r\n\r\n");
        assert_rejected_and_closed(&site, &path, bytes, &[400]);
    }
    let same = format!("GET http://{elsewhere}/row-21 HTTP/1.1\r\nHost: {elsewhere}\r\n\r\n");
    assert_eq!(site.gateway.exchange(same).status, 200, "it is another host of this site");
    assert_eq!(site.origin.requests_for("/row-21").len(), 1, "the configured origin gets the request");
    assert_eq!(other_origin.byte_count(), 0, "no other server is contacted");
}

#[test]
fn row_22_connect_is_not_allowed() {
    let site = Site::start(PAGES);
    let other_origin = Origin::start();
    let elsewhere = other_origin.address;
    for bytes in [
        format!("CONNECT {elsewhere} HTTP/1.1\r\nHost: {elsewhere}\r\n\r\n"),
        "CONNECT www.example.com:443 HTTP/1.1\r\nHost: www.example.com:443\r\n\r\n".to_owned(),
    ] {
        assert_rejected(&site, &format!("/row-22-{}", bytes.len()), bytes, &[405]);
    }
    assert_eq!(other_origin.byte_count(), 0);
}

#[test]
fn row_23_an_unknown_host_gets_421_misdirected_request() {
    let site = Site::start(&format!("hosts = [\"www.example.com\"]\n{PAGES}"));
    let other_origin = Origin::start();
    let elsewhere = other_origin.address;
    for (index, host) in
        ["evil.example".to_owned(), "www.example.com:81".to_owned(), elsewhere.to_string()].iter().enumerate()
    {
        for (method, path, target) in [
            ("GET", format!("/row-23-{index}"), String::new()),
            ("GET", format!("/row-23-absolute-{index}"), format!("http://{host}")),
            ("GET", format!("/pass/row-23-{index}"), String::new()),
            ("POST", format!("/row-23-post-{index}"), String::new()),
        ] {
            let before = site.origin.byte_count();
            let response = site.gateway.exchange(format!(
                "{method} {target}{path} HTTP/1.1\r\nHost: {host}\r\nX-Forwarded-Host: www.example.com\r\n\r\n"
            ));
            assert_eq!(response.status, 421, "{method} {path} of {host}");
            assert_eq!(site.origin.byte_count(), before, "{host} reached the origin");
        }
    }
    assert_eq!(site.get("/row-23").status, 200);
    assert_eq!(other_origin.byte_count(), 0);
}

/// The requests that the origin gets for a page and for a passed-through path, if the client sends these header lines.
fn forwarded(site: &Site, row: &str, lines: &str) -> [Request; 2] {
    [format!("/{row}"), format!("/pass/{row}")].map(|path| {
        let response = site.get_with(&path, lines);
        assert_eq!(response.status, 200, "{path} with {lines}");
        site.origin.requests_for(&path).pop().expect("a request reaches the origin")
    })
}

#[test]
fn row_24_forwarding_headers_of_a_client_are_replaced() {
    let site = Site::start(PAGES);
    let lines = "X-Forwarded-Host: evil.example\r\nX-Forwarded-Scheme: evil\r\nX-Forwarded-Proto: evil\r\n\
                 X-Forwarded-Port: 666\r\nX-Forwarded-For: 6.6.6.6\r\nX-Forwarded-Prefix: /evil\r\n\
                 X-Forwarded-Server: evil\r\nX-Host: evil\r\nX-Real-IP: 6.6.6.6\r\nTrue-Client-IP: 6.6.6.6\r\n\
                 Forwarded: for=6.6.6.6;host=evil\r\nForwarded: proto=evil\r\nX-Forwarded: evil\r\n";
    let [page, passed] = forwarded(&site, "row-24", lines);
    for request in [&page, &passed] {
        assert_eq!(request.header("x-forwarded-host"), Some("www.example.com"));
        assert_eq!(request.header("x-forwarded-proto"), Some("http"));
    }
    assert_eq!(passed.header("x-forwarded-for"), Some("127.0.0.1"));
    assert_eq!(page.header("x-forwarded-for"), Some("192.0.2.1"), "a shared page has no client address");
    for word in ["evil", "6.6.6.6", "666"] {
        assert!(!site.origin.received(word), "{word}");
    }
    assert_eq!(site.get("/row-24").state(), "hit", "the page is shared");
}

/// Fails unless these headers are removed from the requests for a page and for a passed-through path.
fn assert_removed(row: &str, names: &[&str]) {
    let site = Site::start(PAGES);
    let lines: String = names.iter().map(|name| format!("{name}: /evil\r\n")).collect();
    for request in forwarded(&site, row, &lines) {
        for name in names {
            assert!(
                !request.has(&name.to_ascii_lowercase()),
                "{name} reached the origin at {}",
                request.target
            );
        }
    }
    assert!(!site.origin.received("/evil"));
    assert_eq!(site.get(&format!("/{row}")).state(), "hit", "the page is shared");
}

#[test]
fn row_25_headers_that_override_the_target_are_removed() {
    assert_removed("row-25", &["X-Original-URL", "X-Rewrite-URL", "X-Original-URI", "X-Forwarded-Uri"]);
}

#[test]
fn row_26_headers_that_override_the_method_are_removed() {
    assert_removed("row-26", &["X-HTTP-Method-Override", "X-HTTP-Method", "X-Method-Override"]);
}

#[test]
fn row_27_the_header_that_skips_middleware_is_removed() {
    assert_removed("row-27", &["x-middleware-subrequest"]);
}

#[test]
fn row_28_the_header_that_makes_private_pages_shared_is_removed() {
    assert_removed("row-28", &["x-now-route-matches"]);
}

#[test]
fn row_28_the_parameter_that_selects_page_data_is_part_of_the_key() {
    let site = Site::start(PAGES);
    let data = site.get("/row-28?__nextDataReq=1");
    assert_eq!(data.state(), "miss");
    let page = site.get("/row-28");
    assert_eq!(page.state(), "miss", "they do not share a page");
    assert_ne!(page.body, data.body);
    site.get("/listed/row-28?__nextDataReq=1");
    assert_eq!(site.origin.requests_for("/listed/row-28").len(), 1, "it is removed unless the rule lists it");
    site.origin
        .respond("/row-28-private", ScriptedResponse::page(&["cache-control: private, no-store"], "mine"));
    site.get("/row-28-private?__nextDataReq=1");
    assert_not_cached(&site, "/row-28-private?__nextDataReq=1");
}

#[test]
fn row_29_a_redirect_without_location_does_not_replace_a_page() {
    let site = Site::start(PAGES);
    site.origin.script("/row-29", |request| match request.has("x-nextjs-data") {
        true => ScriptedResponse::with("307 Temporary Redirect", &["x-nextjs-redirect: /login"], ""),
        false => ScriptedResponse::page(&[], "the page"),
    });
    let attack = site.get_with("/row-29", "x-nextjs-data: 1\r\n");
    assert_eq!((attack.status, attack.text().as_str()), (200, "the page"));
    assert_eq!(site.get("/row-29").text(), "the page");
    assert_eq!(site.origin.requests_for("/row-29").len(), 1);
    site.origin.respond(
        "/row-29-bare",
        ScriptedResponse::with("307 Temporary Redirect", &["x-nextjs-redirect: /login"], ""),
    );
    assert_eq!(site.get("/row-29-bare").status, 307);
    assert_not_cached(&site, "/row-29-bare");
}

#[test]
fn row_30_component_payloads_are_not_cached_as_pages() {
    let site = Site::start(PAGES);
    let script = |request: &Request| match request.has("rsc") {
        true => ScriptedResponse::page(&["vary: RSC"], "0:{}"),
        false => ScriptedResponse::page(&["vary: RSC"], "<html>"),
    };
    for path in ["/row-30", "/listed/row-30"] {
        site.origin.script(path, script);
    }
    site.origin.respond("/row-30-silent", ScriptedResponse::page(&[], "<html>"));
    assert_eq!(site.get_with("/row-30-silent", "RSC: 1\r\n").text(), "<html>");
    assert!(
        !site.origin.requests_for("/row-30-silent")[0].has("rsc"),
        "it is removed unless the rule lists it"
    );
    site.get_with("/row-30", "RSC: 1\r\n");
    assert_eq!(site.get("/row-30").text(), "<html>");
    assert_eq!(site.get_with("/listed/row-30", "RSC: 1\r\n").text(), "0:{}");
    let page = site.get("/listed/row-30");
    assert_eq!((page.state(), page.text().as_str()), ("miss", "<html>"));
    assert_eq!(site.get("/listed/row-30").text(), "<html>");
    let again = site.get_with("/listed/row-30", "RSC: 1\r\n");
    assert_eq!((again.state(), again.text().as_str()), ("hit", "0:{}"));
}

#[test]
fn row_31_an_empty_response_does_not_replace_a_page() {
    let site = Site::start(PAGES);
    for (path, response) in [
        ("/brief/row-31-204", ScriptedResponse::with("204 No Content", &[], "")),
        ("/brief/row-31-empty", ScriptedResponse::page(&[], "")),
    ] {
        let page = site.get(path);
        assert_eq!(page.state(), "miss");
        site.origin.respond(path, response.clone());
        wait_for("a regeneration fails", || {
            assert_eq!(site.get(path).body, page.body, "the page stays cached");
            (site.origin.requests_for(path).len() > 1).then_some(())
        });
        let after = site.get(path);
        assert_eq!((after.status, after.body), (200, page.body), "the page is still cached");
        let cold = path.replace("brief", "cold");
        site.origin.respond(&cold, response);
        site.get(&cold);
        assert_not_cached(&site, &cold);
    }
}

#[test]
fn row_32_a_page_that_varies_by_client_is_not_shared() {
    let site = Site::start(PAGES);
    for (path, vary, header) in [
        ("/row-32-cookie", "Cookie", "cookie"),
        ("/row-32-authorization", "Authorization", "authorization"),
        ("/row-32-both", "Accept-Encoding, authorization,COOKIE", "cookie"),
    ] {
        site.origin.script(path, move |request| {
            let name = request.header(header).unwrap_or("nobody").to_owned();
            ScriptedResponse::page(&[&format!("vary: {vary}")], &format!("for {name}"))
        });
        assert_eq!(site.get_with(path, &format!("{header}: alice\r\n")).text(), "for alice");
        assert_eq!(site.get_with(path, &format!("{header}: bob\r\n")).text(), "for bob");
        assert_eq!(site.get(path).text(), "for nobody");
        assert_not_cached(&site, path);
    }
    assert_eq!(cache_page(&site, "/row-32").status, 200);
    assert!(site.gateway.exchange(get("/row-32", "cookie: alice\r\n")).text().contains("/row-32"));
}

#[test]
fn row_32_a_page_that_depends_on_the_client_address_is_not_shared() {
    let site = Site::start("");
    for vary in ["X-Forwarded-For", "accept, forwarded"] {
        let path = format!("/row-32-{}", vary.len());
        let headers = ["cache-control: max-age=60", &format!("vary: {vary}")];
        site.origin.respond(&path, ScriptedResponse::page(&headers, "where you are"));
        site.get(&path);
        site.get(&path);
        assert_eq!(site.origin.requests_for(&path).len(), 2, "{vary}");
    }
}

#[test]
fn max_forwards_limits_how_far_options_is_forwarded() {
    let site = Site::start(PAGES);
    let here = site.request("OPTIONS", "/options", "Max-Forwards: 0\r\n");
    assert_eq!(here.status, 200);
    assert!(here.header("allow").is_some_and(|methods| methods.contains("GET")), "{here:?}");
    assert_eq!(site.origin.byte_count(), 0);
    site.request("OPTIONS", "/options", "Max-Forwards: 2\r\n");
    assert_eq!(site.origin.requests_for("/options")[0].header("max-forwards"), Some("1"));
}
