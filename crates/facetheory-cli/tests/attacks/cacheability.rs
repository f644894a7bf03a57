//! Rules about which responses are cached, under which key, and which clients may invalidate them.

use std::net::SocketAddr;

use crate::assertions::{PAGES, assert_not_cached, behind_proxy, cache_page};
use crate::support::client::{Connection, Response};
use crate::support::origin::{Request, ScriptedResponse};
use crate::support::site::Site;
use crate::support::table::{items, rows};
use crate::support::wait_for;

#[test]
fn row_53_a_page_that_sets_a_cookie_is_not_cached() {
    let site = Site::start(PAGES);
    let lines = ["Set-Cookie: session=1", "Cache-Control: public, s-maxage=60"];
    site.origin.respond("/row-53", ScriptedResponse::page(&lines, "welcome"));
    let first = site.get("/row-53");
    assert_eq!((first.text().as_str(), first.header("set-cookie")), ("welcome", Some("session=1")));
    assert_not_cached(&site, "/row-53");
}

#[test]
fn row_54_a_cookie_in_a_304_is_not_stored_in_the_page() {
    let site = Site::start(PAGES);
    let path = "/brief/row-54";
    site.origin.script(path, |request| match request.header("if-none-match") {
        Some("\"v1\"") => {
            ScriptedResponse::with("304 Not Modified", &["etag: \"v1\"", "set-cookie: session=1"], "")
        }
        _ => ScriptedResponse::page(&["etag: \"v1\""], "the page"),
    });
    assert_eq!(site.get(path).state(), "miss");
    wait_for("the page is regenerated", || {
        let response = site.get(path);
        assert_eq!((response.header("set-cookie"), response.text().as_str()), (None, "the page"));
        site.origin.requests_for(path).iter().any(|request| request.has("if-none-match")).then_some(())
    });
    wait_for("the page is fresh again", || {
        let response = site.get(path);
        assert_eq!((response.header("set-cookie"), response.text().as_str()), (None, "the page"));
        (response.state() == "hit").then_some(())
    });
}

/// A page that depends on the Authorization header.
fn greeting(request: &Request) -> ScriptedResponse {
    ScriptedResponse::page(&[], &format!("hello {}", request.header("authorization").unwrap_or("stranger")))
}

#[test]
fn row_55_a_response_to_authorization_is_not_shared() {
    let site = Site::start(PAGES);
    site.origin.script("/row-55", greeting);
    let alice = site.get_with("/row-55", "Authorization: alice\r\n");
    assert_eq!((alice.state(), alice.text().as_str()), ("bypass", "hello alice"));
    assert_eq!(site.get_with("/row-55", "Authorization: bob\r\n").text(), "hello bob");
    let stranger = site.get("/row-55");
    assert_eq!((stranger.state(), stranger.text().as_str()), ("miss", "hello stranger"));
    assert_eq!(site.get_with("/row-55", "Authorization: alice\r\n").text(), "hello alice");
}

#[test]
fn row_55_a_route_may_partition_by_authorization() {
    let site = Site::start(PAGES);
    site.origin.script("/own/row-55", greeting);
    for state in ["miss", "hit"] {
        for name in ["alice", "bob"] {
            let response = site.get_with("/own/row-55", &format!("Authorization: {name}\r\n"));
            assert_eq!((response.state(), response.text()), (state, format!("hello {name}")));
            let cache_control = response.header("cache-control").unwrap_or_default();
            assert!(
                cache_control.contains("private"),
                "a cache in front cannot check credentials: {cache_control}"
            );
        }
    }
    assert_eq!(site.get("/own/row-55").text(), "hello stranger");
}

#[test]
fn row_56_the_strictest_cache_control_directive_wins() {
    let site = Site::start(PAGES);
    for (index, lines) in [
        &["Cache-Control: no-store"][..],
        &["cache-control: NO-STORE"],
        &["Cache-Control: public, No-Store"],
        &["Cache-Control: PrIvAtE"],
        &["Cache-Control: private, public"],
        &["Cache-Control: public, private"],
        &["Cache-Control: public", "Cache-Control: private"],
        &["Cache-Control: private", "Cache-Control: public, s-maxage=60"],
        &["Cache-Control: s-maxage=60,no-store,max-age=60"],
        &["Cache-Control:  ,, no-store ,,"],
        &["Cache-Control: public;no-store"],
        &["Cache-Control: private=\"set-cookie\""],
        &["Cache-Control: no-store=\"x\""],
        &["Cache-Control: max-age=\"60, no-store"],
        &["Cache-Control: s-maxage=60, s-maxage=0"],
        &["Cache-Control: no-cache"],
    ]
    .iter()
    .enumerate()
    {
        let path = format!("/row-56-{index}");
        site.origin.respond(&path, ScriptedResponse::page(lines, "the page"));
        assert_eq!(site.get(&path).text(), "the page");
        assert_not_cached(&site, &path);
    }
}

#[test]
fn row_57_a_page_with_vary_star_is_not_cached() {
    let site = Site::start(PAGES);
    for (index, vary) in ["*", "accept-encoding, *", "*, cookie", "user-agent", "x y"].iter().enumerate() {
        let path = format!("/row-57-{index}");
        site.origin.respond(&path, ScriptedResponse::page(&[&format!("vary: {vary}")], "the page"));
        site.get(&path);
        assert_not_cached(&site, &path);
    }
}

#[test]
fn row_57_the_number_of_variants_of_a_page_is_limited() {
    const VARIANTS: usize = 100;
    /// The default of `variants_per_page`.
    const MOST: usize = 64;
    let site = Site::start(PAGES);
    let state_of = |path: &str, number: usize| {
        let response = site.get_with(path, &format!("Accept-Language: x-{number}\r\n"));
        assert_eq!(response.status, 200);
        response.state().to_owned()
    };
    site.origin.respond("/listed/row-57", ScriptedResponse::page(&["vary: accept-language"], "the page"));
    for number in 0..VARIANTS {
        state_of("/listed/row-57", number);
    }
    // The latest first: each miss replaces the variant that was cached first and is not used.
    let hits = (0..VARIANTS).rev().filter(|number| state_of("/listed/row-57", *number) == "hit").count();
    assert_eq!(hits, MOST - 1, "variants are cached, besides the page itself");
    assert_eq!(state_of("/listed/row-57-other", 0), "miss");
    assert_eq!(state_of("/listed/row-57-other", 0), "hit", "other pages are cached");
}

#[test]
fn row_58_a_tenant_header_of_an_untrusted_client_is_rejected() {
    let rules = "[routes]\n\"/**\" = { isr = \"60s\" }\n\"/pass/**\" = false\n";
    let site = Site::start(&format!("tenant_headers = [\"x-shop\"]\n{rules}"));
    for name in ["X-Tenant-Id", "X-FaceTheory-Tenant", "x-shop"] {
        let line = format!("{name}: acme\r\n");
        let path = format!("/row-58-{name}");
        let response = site.get_with(&path, &line);
        assert_eq!(response.status, 400, "{name}");
        assert!(!site.origin.received("acme"), "{name} is trusted");
        let passed = site.get_with(&format!("/pass/row-58-{name}"), &line);
        assert!([200, 400].contains(&passed.status), "{}", passed.status);
        assert!(!site.origin.received("acme"), "{name} is forwarded");
        let posted =
            site.request("POST", &format!("/row-58-post-{name}"), &format!("{line}Content-Length: 0\r\n"));
        assert!([200, 400].contains(&posted.status), "{}", posted.status);
        assert!(!site.origin.received("acme"), "{name} is forwarded with a POST");
    }
}

#[test]
fn row_58_a_tenant_header_is_rejected_on_a_route_without_tenants() {
    let site =
        Site::start("[routes]\n\"/org/**\" = { isr = \"60s\", tenant = { header = \"x-tenant-id\" } }\n");
    for name in ["X-Tenant-Id", "X-FaceTheory-Tenant"] {
        for method in ["GET", "HEAD"] {
            let response = site.request(method, "/row-58", &format!("{name}: acme\r\n"));
            assert_eq!(response.status, 400, "{method} with {name}");
        }
    }
    assert_eq!(site.origin.byte_count(), 0);
    assert_eq!(site.get("/row-58").status, 200, "a request without a tenant is served");
}

#[test]
fn row_58_a_trusted_header_with_two_tenants_is_rejected() {
    let site = Site::start(&behind_proxy());
    for lines in ["X-Tenant-Id: a\r\nX-Tenant-Id: b\r\n", "X-Tenant-Id: a, b\r\nX-Tenant-Id: a\r\n", ""] {
        assert_eq!(site.get_with("/org/row-58", lines).status, 400, "{lines}");
    }
    assert_eq!(site.origin.byte_count(), 0);
}

#[test]
fn row_59_the_admin_api_is_not_reachable_on_the_public_listener() {
    let site = Site::start(PAGES);
    let page = cache_page(&site, "/row-59");
    for path in [
        "/healthz",
        "/readyz",
        "/metrics",
        "/api/v1/entries",
        "/api/v1/openapi.json",
        "/api/v1/config",
        "/%61pi/v1/entries",
        "/api%2fv1%2fentries",
        "//api/v1/entries",
        "/API/v1/entries",
        "/api/v1/entries/",
        "/healthz%20",
        "/%68ealthz",
    ] {
        site.origin.respond(
            path,
            ScriptedResponse::with("404 Not Found", &["cache-control: no-store"], "not found"),
        );
        let response = site.get(path);
        assert_eq!((response.status, response.text().as_str()), (404, "not found"), "{path}");
    }
    for path in ["/api/v1/invalidate", "/api/v1/regenerate", "/%61pi/v1/invalidate"] {
        site.origin.respond(path, ScriptedResponse::with("404 Not Found", &[], "not found"));
        let body = "{\"everything\":true,\"hard\":true}";
        let lines = format!("Content-Type: application/json\r\nContent-Length: {}\r\n", body.len());
        let bytes = crate::support::site::request("POST", path, &lines) + body;
        assert_eq!(site.gateway.exchange(bytes).status, 404, "{path}");
    }
    let after = site.get("/row-59");
    assert_eq!((after.state(), &after.body), ("hit", &page.body), "nothing was invalidated");
}

/// Sends a request to the admin API.
fn operate(admin: SocketAddr, method: &str, path: &str, lines: &str, body: &str) -> Response {
    let mut connection = Connection::open(admin);
    connection.send(format!(
        "{method} {path} HTTP/1.1\r\nHost: {admin}\r\nContent-Type: application/json\r\nContent-Length: {}\r\n{lines}\r\n{body}",
        body.len()
    ));
    connection.response()
}

#[test]
fn row_60_only_the_complete_token_is_accepted() {
    const TOKEN: &str = "0123456789abcdef0123456789abcdef";
    let directory = tempfile::tempdir().expect("a directory");
    let file = directory.path().join("token");
    std::fs::write(&file, TOKEN).expect("a token");
    let site = Site::start_with(PAGES, &["--admin-token-file", &file.display().to_string()]);
    let admin = site.gateway.admin();
    let with = |line: &str| operate(admin, "GET", "/api/v1/entries", line, "").status;
    assert_eq!(with(&format!("Authorization: Bearer {TOKEN}\r\n")), 200);
    assert_eq!(with(""), 401);
    for length in 0..TOKEN.len() {
        assert_eq!(
            with(&format!("Authorization: Bearer {}\r\n", &TOKEN[..length])),
            401,
            "the first {length} bytes of the token"
        );
        let mut other = TOKEN.to_owned().into_bytes();
        other[length] ^= 1;
        let other = String::from_utf8(other).expect("text");
        assert_eq!(with(&format!("Authorization: Bearer {other}\r\n")), 401, "without byte {length}");
    }
    for wrong in [
        format!("Bearer {TOKEN}{TOKEN}"),
        format!("Bearer {TOKEN}0"),
        format!("Bearer {}", TOKEN.to_ascii_uppercase()),
        format!("Basic {TOKEN}"),
        TOKEN.to_owned(),
        format!("Bearer \"{TOKEN}\""),
        format!("Bearer wrong, Bearer {TOKEN}"),
    ] {
        assert_eq!(with(&format!("Authorization: {wrong}\r\n")), 401, "{wrong}");
    }
    assert_eq!(operate(admin, "GET", "/healthz", "", "").status, 200, "the health check needs no token");
    assert!(!site.gateway.log().contains(TOKEN), "the token is not logged");
}

#[test]
fn row_61_line_breaks_do_not_split_a_response() {
    let site = Site::start(PAGES);
    let redirect = "HTTP/1.1 302 Found\r\nLocation: /a\rSet-Cookie: evil=1\r\nContent-Length: 0\r\n\r\n";
    let folded = "HTTP/1.1 302 Found\r\nLocation: /a\n Set-Cookie: evil=1\r\nContent-Length: 0\r\n\r\n";
    let tags = "HTTP/1.1 200 OK\r\nSurrogate-Key: a\rSet-Cookie: evil=1\r\nContent-Length: 1\r\n\r\nx";
    for (path, response) in [("/row-61-a", redirect), ("/row-61-b", folded), ("/row-61-c", tags)] {
        site.origin.respond(path, ScriptedResponse::raw(response).then_close());
        let got = site.get(path);
        assert!(got.header("set-cookie").is_none() && !got.text().contains("evil"), "{got:?}");
        assert!(
            got.headers.iter().all(|(_, value)| !value.contains('\n') && !value.contains('\r')),
            "{got:?}"
        );
    }
    let encoded = "/a%0d%0aSet-Cookie:%20evil=1";
    site.origin
        .respond("/row-61", ScriptedResponse::with("302 Found", &[&format!("location: {encoded}")], ""));
    for _ in 0..2 {
        let got = site.get("/row-61");
        assert_eq!((got.header("location"), got.header("set-cookie")), (Some(encoded), None), "unchanged");
    }
    assert_eq!(site.get("/row-61%0d%0aSet-Cookie:%20evil=1").status, 400);
}

#[test]
fn row_61_line_breaks_in_admin_requests_are_rejected() {
    let site = Site::start(PAGES);
    let admin = site.gateway.admin();
    for body in [
        r#"{"tag":"a\r\nb"}"#,
        r#"{"tenant":"a\r\nb"}"#,
        r#"{"url":"http://www.example.com/a\r\nb"}"#,
        r#"{"url":"http://www.example.com/a%0d%0ab"}"#,
        r#"{"path":"/a\r\nb"}"#,
    ] {
        let response = operate(admin, "POST", "/api/v1/invalidate", "", body);
        assert!([400, 422].contains(&response.status), "{body}: {}", response.status);
        assert!(response.headers.iter().all(|(_, value)| !value.contains(['\r', '\n'])), "{response:?}");
    }
    let url = "/api/v1/entry?url=http://www.example.com/a%0d%0aSet-Cookie:%20evil=1";
    let response = operate(admin, "GET", url, "", "");
    assert!((400..500).contains(&response.status), "{}", response.status);
    assert!(response.header("set-cookie").is_none());
}

/// Requests a regeneration through the admin API.
fn regenerate(site: &Site, key: &str, path: &str) -> Response {
    let body = format!("{{\"url\":\"http://www.example.com{path}\"}}");
    operate(site.gateway.admin(), "POST", "/api/v1/regenerate", &format!("Idempotency-Key: {key}\r\n"), &body)
}

#[test]
fn row_62_an_idempotency_key_with_another_payload_is_rejected_without_a_write() {
    let site = Site::start(PAGES);
    let first = regenerate(&site, "order-1", "/row-62");
    assert!((200..300).contains(&first.status), "{}: {}", first.status, first.text());
    let before = (site.origin.byte_count(), items(site.directory.path()));
    let other = regenerate(&site, "order-1", "/row-62-other");
    assert_eq!(other.status, 422, "{}", other.text());
    let after = (site.origin.byte_count(), items(site.directory.path()));
    assert_eq!(after, before, "nothing is rendered, and no attribute of any row is written");
    assert_eq!(site.get("/row-62-other").state(), "miss");
    let again = regenerate(&site, "order-1", "/row-62");
    assert!((200..300).contains(&again.status), "{}", again.status);
    assert_eq!(again.header("idempotency-replayed"), Some("true"));
    assert_eq!(site.origin.requests_for("/row-62").len(), 1);
}

#[test]
fn row_63_an_idempotency_key_cannot_address_another_row() {
    let site = Site::start(PAGES);
    cache_page(&site, "/row-63");
    for key in ["../META", "META", "REQ#x", "LOCK", "VER#1", "a#b", "\u{1f512}"] {
        let response = regenerate(&site, key, "/row-63");
        assert!((200..500).contains(&response.status), "{key}: {}", response.text());
    }
    for (pk, sk) in rows(site.directory.path()) {
        let named = ["META", "LOCK", "TAG"].contains(&sk.as_str());
        let request = sk.strip_prefix("REQ#").is_some_and(|key| !key.contains(['#', '/']) && key.is_ascii());
        assert!(named || request || sk.starts_with("VER#"), "{pk} {sk}");
    }
    assert!(site.get("/row-63").text().contains("<p>/row-63,"), "the page is intact");
    let before = site.origin.byte_count();
    let long = regenerate(&site, &"k".repeat(1_000_000), "/row-63-long");
    assert!([400, 413, 431].contains(&long.status), "{}", long.status);
    assert_eq!(site.origin.byte_count(), before, "nothing was rendered");
    assert_eq!(site.get("/row-63-long").state(), "miss");
}

/// Asserts that a response tells nothing about a cache.
fn assert_not_allowed(response: &Response, what: &str) {
    assert_eq!((response.status, response.header("allow")), (405, Some("GET, HEAD")), "{what}");
    assert_eq!(response.text(), "the method is not supported\n", "{what}");
    for name in ["x-facetheory-isr", "cache-status", "age", "via", "etag"] {
        assert_eq!(response.header(name), None, "{what}");
    }
}

#[test]
fn row_88_nobody_outside_the_listed_networks_can_purge() {
    let config = "trusted_proxies = [\"127.0.0.1\"]\n[purge]\nfrom = [\"10.0.0.0/8\"]\n\
                  dialects = [\"url\", \"tags\", \"ban\", \"refresh\", \"nginx-helper\"]\n\
                  [routes]\n\"/**\" = { isr = \"1h\" }\n";
    let site = Site::start(config);
    site.origin.script("/page", |_| ScriptedResponse::page(&["xkey: a"], "the page"));
    assert_eq!(site.get("/page").state(), "miss");
    let spellings = [
        "",
        "X-Forwarded-For: 10.0.0.1\r\n",
        "X-Forwarded-For: 10.0.0.1, 10.0.0.2\r\n",
        "Forwarded: for=10.0.0.1\r\n",
        "X-Real-IP: 10.0.0.1\r\nClient-IP: 10.0.0.1\r\nTrue-Client-IP: 10.0.0.1\r\n",
        "X-Client-IP: 10.0.0.1\r\nX-Cluster-Client-IP: 10.0.0.1\r\nCF-Connecting-IP: 10.0.0.1\r\n",
        "Connection: X-Forwarded-For\r\nX-Forwarded-For: 10.0.0.1\r\n",
        "Authorization: Bearer \r\nFastly-Key: \r\nX-Invalidate-Token: \r\n",
    ];
    for lines in spellings {
        for method in ["PURGE", "BAN", "PURGEKEYS", "PURGETAGS"] {
            for (target, tags) in
                [("/page", ""), ("/.*", ""), ("/", "xkey: a\r\nX-Cache-Tags: .*\r\n"), ("/purgeall", "")]
            {
                let response = site.request(method, target, &format!("{lines}{tags}"));
                assert_not_allowed(&response, &format!("{method} {target} {lines}{tags}"));
            }
        }
        for (target, line) in
            [("/page", "Cache-Control: no-cache\r\n"), ("/page", "Pragma: no-cache\r\n"), ("/purge/page", "")]
        {
            assert_eq!(
                site.get_with(target, &format!("{lines}{line}")).header("allow"),
                None,
                "an ordinary page"
            );
        }
    }
    // Other methods are those of the origin, which does not know them either.
    for method in ["purge", "Purge", "PURGE1", "REFRESH", "POST", "DELETE"] {
        site.request(method, "/page", "X-HTTP-Method-Override: PURGE\r\nX-Method-Override: PURGE\r\n");
    }
    site.gateway.exchange("PURGE http://10.0.0.1/page HTTP/1.1\r\nHost: 10.0.0.1\r\n\r\n");
    assert_eq!(site.get("/page").state(), "hit", "nothing was purged");
    let requests = site.origin.requests_for("/page");
    let renders = requests.iter().filter(|request| request.method == "GET" && !request.has("authorization"));
    assert_eq!(renders.count(), 1);
}

#[test]
fn row_89_a_client_of_a_proxy_or_a_browser_at_an_allowed_address_cannot_purge() {
    let site = Site::start("[purge]\nfrom = [\"127.0.0.1\"]\n[routes]\n\"/**\" = { isr = \"1h\" }\n");
    site.origin.script("/page", |_| ScriptedResponse::page(&[], "the page"));
    assert_eq!(site.get("/page").state(), "miss");
    for line in [
        "X-Forwarded-For: 203.0.113.9",
        "X-Forwarded-Host: www.example.com",
        "X-Forwarded-Proto: https",
        "X-Forwarded-Server: proxy",
        "X-Forwarded-Port: 443",
        "X-Forwarded-User: alice",
        "Forwarded: for=203.0.113.9",
        "X-Real-IP: 203.0.113.9",
        "Via: 1.1 proxy",
        "CF-Connecting-IP: 203.0.113.9",
        "True-Client-IP: 203.0.113.9",
        "Fastly-Client-IP: 203.0.113.9",
        "X-Client-IP: 203.0.113.9",
        "X-Amz-Cf-Id: a",
        "CDN-Loop: cdn",
        "X-Varnish: 1",
        "Origin: http://www.example.com",
        "Sec-Fetch-Site: same-origin",
    ] {
        let response = site.request("PURGE", "/page", &format!("{line}\r\n"));
        assert_not_allowed(&response, line);
        assert_eq!(site.get_with("/page", &format!("{line}\r\nCache-Control: no-cache\r\n")).state(), "hit");
    }
    assert_eq!(site.request("PURGE", "/page", "X-Host: www.example.com\r\n").status, 200);
    assert_eq!(site.get("/page").state(), "miss");
}
