//! Paths, queries and cache keys: which requests share a page.

use crate::assertions::{PAGES, assert_rejected, behind_proxy, cache_page};
use crate::support::origin::ScriptedResponse;
use crate::support::site::{Site, request};
use crate::support::table::rows;

#[test]
fn row_33_a_static_extension_does_not_make_a_private_page_cacheable() {
    let rules = "[routes]\n\"/static/**\" = { isr = \"60s\" }\n\"/shop/**\" = { isr = \"60s\" }\n\"/shop/account/**\" = false\n";
    let site = Site::start(rules);
    for path in [
        "/account",
        "/account/x.css",
        "/account.css",
        "/shop/account/x.css",
        "/shop/account/logo.png",
        "/shop/account",
    ] {
        for _ in 0..2 {
            let response = site.get(path);
            assert_eq!((response.status, response.state()), (200, "bypass"), "{path}");
        }
        assert_eq!(site.origin.requests_for(path).len(), 2, "{path} was cached");
    }
    assert_eq!(cache_page(&site, "/static/x.css").status, 200);
}

#[test]
fn row_34_the_key_is_the_exact_path_that_is_forwarded() {
    let site = Site::start(PAGES);
    let paths = [
        "/account",
        "/account;x.css",
        "/account%23x.css",
        "/account%3fx.css",
        "/account%3Fx.css",
        "/account/x.css",
        "/account%2fx.css",
        "/account%2Fx.css",
        "/Account",
        "/%61ccount",
        "/account/",
    ];
    for path in paths {
        let response = site.get(path);
        assert_eq!(response.state(), "miss", "{path} is a separate page");
        assert!(response.text().contains(&format!("<p>{path},")), "{path}: {}", response.text());
        assert_eq!(site.origin.requests_for(path).len(), 1, "{path} is forwarded unchanged");
    }
    for path in paths {
        assert!(site.get(path).text().contains(&format!("<p>{path},")), "{path}");
    }
}

#[test]
fn row_34_encoded_nul_and_line_breaks_are_rejected() {
    let site = Site::start(PAGES);
    for (index, code) in ["%00", "%0a", "%0A", "%0d", "%0D", "%0d%0a"].iter().enumerate() {
        for place in ["", "pass/"] {
            let path = format!("/{place}row-34-{index}{code}x.css");
            let before = site.origin.byte_count();
            assert_eq!(site.get(&path).status, 400, "{path}");
            assert_eq!(site.origin.byte_count(), before, "{path} reached the origin");
        }
    }
}

#[test]
fn row_35_dot_segments_are_rejected_or_resolved() {
    let site = Site::start(PAGES);
    for (index, dots) in ["..", "%2e%2e", "%2E%2e", ".%2e", ".", "%2e", "..;x"].iter().enumerate() {
        for slash in ["/", "%2f", "%5c"] {
            for place in ["static", "pass"] {
                let path = format!("/{place}/{index}/{dots}{slash}account");
                let before = site.origin.byte_count();
                assert_eq!(site.get(&path).status, 400, "{path}");
                assert_eq!(site.origin.byte_count(), before, "{path} reached the origin");
            }
        }
    }
    assert_eq!(site.get("/account").state(), "miss", "nothing was cached under this key");
}

#[test]
fn row_36_unusual_targets_are_rejected_or_forwarded_byte_for_byte() {
    let site = Site::start(PAGES);
    for (plain, strange) in [
        ("/row-36-a/b", "/row-36-a\\b"),
        ("/row-36-c/d", "/row-36-c//d"),
        ("/row-36-e", "//row-36-e"),
        ("/row-36-f%C3%A9", "/row-36-f\u{e9}"),
        ("/row-36-g", "/row-36-g#h"),
        ("/row-36-i", "/row-36-i?#h"),
        ("/row-36-j", "\\row-36-j"),
        ("/row-36-k", "row-36-k"),
        ("/row-36-l", "*"),
        ("/row-36-m", "/row-36-m \u{a0}"),
    ] {
        let before = site.origin.byte_count();
        let response = site.get(strange);
        match response.status {
            400 => assert_eq!(site.origin.byte_count(), before, "{strange} reached the origin"),
            _ => {
                assert_eq!((response.status, response.state()), (200, "miss"), "{strange}");
                assert_eq!(site.origin.requests_for(strange).len(), 1, "{strange} is forwarded unchanged");
            }
        }
        assert_eq!(site.get(plain).state(), "miss", "{plain} is a separate page");
    }
}

#[test]
fn row_36_a_rejected_target_is_not_cached() {
    let site = Site::start(PAGES);
    assert_rejected(
        &site,
        "/row-36-cold",
        "GET /row-36-cold\\ HTTP/1.1\r\nHost: www.example.com\r\n\r\n",
        &[400],
    );
}

#[test]
fn row_37_parameters_are_split_at_ampersands_only() {
    let site = Site::start(PAGES);
    site.get("/listed/row-37?utm_content=a;callback=evil");
    assert_eq!(site.origin.requests_for("/listed/row-37").len(), 1, "the callback is not forwarded");
    assert!(!site.origin.received("evil"));
    let good = site.get("/listed/row-37?callback=good");
    assert_eq!(good.state(), "miss");
    assert_eq!(site.get("/listed/row-37?callback=good&utm_content=a;callback=evil").body, good.body);
    assert!(!site.origin.received("evil"));
    site.get("/row-37?utm_content=a;callback=evil");
    assert_eq!(
        site.get("/row-37?utm_content=a&callback=evil").state(),
        "miss",
        "another query is another page"
    );
    assert_eq!(site.origin.requests_for("/row-37?utm_content=a;callback=evil").len(), 1);
}

#[test]
fn row_38_different_queries_are_different_pages() {
    let site = Site::start(PAGES);
    let queries = [
        "?a=1&a=2", "?a=2&a=1", "?a=1", "?a=2", "?a=1&b=2", "?b=2&a=1", "?a", "?a=", "?A=1", "?a=%31",
        "?a=1&", "?&a=1", "?a=1?",
    ];
    for query in queries {
        let target = format!("/row-38{query}");
        let response = site.get(&target);
        assert_eq!(response.state(), "miss", "{target} is a separate page");
        assert_eq!(site.origin.requests_for(&target).len(), 1, "{target} is forwarded unchanged");
    }
    let none = site.get("/row-38");
    assert_eq!(none.state(), "miss");
    let empty = site.get("/row-38?");
    match empty.state() {
        "hit" => assert_eq!(
            empty.body, none.body,
            "an empty query is the same as no query, for the key and for the origin"
        ),
        _ => assert_eq!(site.origin.requests_for("/row-38?").len(), 1, "it is forwarded unchanged"),
    }
}

#[test]
fn row_38_the_origin_gets_the_parameters_of_the_key() {
    let site = Site::start(PAGES);
    assert_eq!(site.get("/listed/row-38?x=1&page=2&page=1").state(), "miss");
    assert_eq!(site.origin.requests_for("/listed/row-38?page=2&page=1").len(), 1);
    assert_eq!(site.get("/listed/row-38?page=2&page=1&y=2").state(), "hit");
    assert_eq!(
        site.get("/listed/row-38?page=1&page=2").state(),
        "miss",
        "the origin may use the first of two values"
    );
    assert_eq!(site.get("/listed/row-38?page=2").state(), "miss");
}

#[test]
fn row_40_the_body_of_a_get_is_never_forwarded() {
    let site = Site::start(PAGES);
    for (index, (method, path)) in
        [("GET", "/row-40"), ("HEAD", "/row-40-head"), ("GET", "/pass/row-40")].iter().enumerate()
    {
        for (framing, body) in [
            ("Content-Length: 8\r\n", "the body"),
            ("Transfer-Encoding: chunked\r\n", "8\r\nthe body\r\n0\r\n\r\n"),
        ] {
            let path = format!("{path}-{index}-{}", framing.len());
            let mut connection = site.gateway.connect();
            connection.send(request(method, &path, framing) + body);
            let response = connection.next_response(method).expect("a response");
            assert!(response.status == 400 || response.state() == "bypass", "{path}: {}", response.status);
            assert!(!site.origin.received("the body"), "{path}");
            assert_ne!(site.get(&path).state(), "hit", "{path} was cached");
        }
    }
}

#[test]
fn row_41_delimiters_cannot_address_another_row() {
    let site = Site::start(&behind_proxy());
    for tenant in ["a#CACHE#b", "a#", "#", "TENANT#a", "a\u{e9}#", ""] {
        let path = "/org/row-41";
        let before = site.origin.byte_count();
        assert_eq!(site.get_with(path, &format!("X-Tenant-Id: {tenant}\r\n")).status, 400, "{tenant}");
        assert_eq!(site.origin.byte_count(), before, "{tenant} reached the origin");
    }
    assert_eq!(site.get("/t/a%23CACHE%23b/x").status, 400, "tenants are not decoded");
    let tags = ["Surrogate-Key: a#TAG TAG#b TENANT#c#TAG#d", "Cache-Tag: META, LOCK, #"];
    site.origin.respond("/row-41-tags", ScriptedResponse::page(&tags, "tagged"));
    for (target, lines) in [
        ("/t/a/CACHE%23b/x", ""),
        ("/t/a/x", ""),
        ("/row-41%23CACHE%23b", ""),
        ("/row-41::b?x=1%23auth=2", ""),
        ("/row-41-tags", ""),
        ("/org/row-41", "X-Tenant-Id: a\r\n"),
        ("/org/row-41", "X-Tenant-Id: b\r\n"),
        ("/listed/row-41", "Accept-Language: a\r\n"),
        ("/listed/row-41", "Accept-Language: a#CACHE#b&cookies=1\r\n"),
        ("/listed/row-41", "Cookie: theme=a\r\n"),
        ("/listed/row-41", "Cookie: theme=a#auth=1\r\n"),
    ] {
        assert_eq!(site.get_with(target, lines).state(), "miss", "{target} {lines} is a separate page");
        assert_eq!(site.get_with(target, lines).state(), "hit", "{target} {lines}");
    }
    for (pk, sk) in rows(site.directory.path()) {
        assert!(is_name(&pk), "{pk} {sk}");
        assert!(["META", "LOCK", "TAG"].contains(&sk.as_str()) || sk.starts_with("VER#"), "{pk} {sk}");
    }
}

/// Whether a partition key has a valid form and contains nothing of the client but a tenant.
fn is_name(pk: &str) -> bool {
    let of_tenant = |name: &str| !name.is_empty() && !name.contains('#');
    let rest = match pk.strip_prefix("TENANT#").map(|rest| rest.split_once('#')) {
        Some(Some((tenant, rest))) if of_tenant(tenant) => rest,
        Some(_) => return false,
        None => pk,
    };
    let is_hash = |hash: &str| hash.len() == 64 && hash.bytes().all(|byte| byte.is_ascii_hexdigit());
    rest.strip_prefix("CACHE#").is_some_and(is_hash) || rest.starts_with("TAG#")
}

#[test]
fn row_42_another_host_scheme_or_port_is_another_page() {
    let site = Site::start(&format!("trusted_proxies = [\"127.0.0.1\"]\n{PAGES}"));
    let from = |host: &str, scheme: &str| {
        let lines = format!("GET /row-42 HTTP/1.1\r\nHost: {host}\r\nX-Forwarded-Proto: {scheme}\r\n\r\n");
        site.gateway.exchange(lines)
    };
    let mut bodies = Vec::new();
    for (host, scheme) in
        [("a.example", "http"), ("b.example", "http"), ("a.example:8080", "http"), ("a.example", "https")]
    {
        let page = from(host, scheme);
        assert_eq!((page.status, page.state()), (200, "miss"), "{scheme}://{host}");
        assert_eq!(from(host, scheme).body, page.body, "{scheme}://{host}");
        assert!(!bodies.contains(&page.body), "{scheme}://{host} is a separate page");
        bodies.push(page.body);
    }
    assert_eq!(from("A.EXAMPLE", "http").state(), "hit", "hosts ignore case");
}

#[test]
fn row_42_hosts_forwarded_by_a_trusted_proxy_never_share_a_page() {
    let site = Site::start("trusted_proxies = [\"127.0.0.0/8\"]\n");
    site.origin.script("/row-42", |request| {
        let host = request.header("x-forwarded-host").unwrap_or("none").to_owned();
        ScriptedResponse::page(&["cache-control: max-age=60"], &host)
    });
    for _ in 0..2 {
        for host in ["a.example", "b.example"] {
            let page = site.get_with("/row-42", &format!("X-Forwarded-Host: {host}\r\n"));
            assert_eq!(page.text(), host);
        }
    }
    assert_eq!(site.origin.requests_for("/row-42").len(), 2, "each is cached");
}

#[test]
fn row_42_a_configured_site_is_one_site_under_every_host() {
    let site = Site::start("site = \"www.example.com\"\n[routes]\n\"/rule/**\" = { isr = \"1h\" }\n");
    for path in ["/row-42", "/rule/row-42"] {
        site.origin.script(path, |request| {
            let hosts =
                ["host", "x-forwarded-host"].map(|name| request.header(name).unwrap_or("none").to_owned());
            ScriptedResponse::page(&["cache-control: max-age=60"], &hosts.join(" "))
        });
        for request in [
            format!("GET {path} HTTP/1.1\r\nHost: evil.example\r\nX-Forwarded-Host: evil.example\r\n\r\n"),
            format!("GET http://evil.example{path} HTTP/1.1\r\nHost: evil.example\r\n\r\n"),
            format!("GET {path} HTTP/1.1\r\nHost: www.example.com\r\n\r\n"),
        ] {
            let mut connection = site.gateway.connect();
            connection.send(request);
            let page = connection.next_response("GET").expect("a response");
            assert_eq!(page.text(), "www.example.com www.example.com", "{path}");
        }
        assert_eq!(site.origin.requests_for(path).len(), 1, "{path}");
    }
}

#[test]
fn row_42_forwarded_hosts_of_untrusted_clients_are_ignored() {
    let site = Site::start("");
    site.origin.respond("/row-42", ScriptedResponse::page(&["cache-control: max-age=60"], "the page"));
    for host in ["a.example", "b.example"] {
        site.get_with("/row-42", &format!("X-Forwarded-Host: {host}\r\n"));
    }
    assert_eq!(site.origin.requests_for("/row-42").len(), 1);
}

#[test]
fn row_43_headers_with_underscores_are_not_taken_for_others() {
    const LINES: [&str; 5] = [
        "Transfer_Encoding: chunked",
        "X_Tenant_Id: evil",
        "Content_Length: 5",
        "X_Forwarded_For: evil",
        "_: evil",
    ];
    let site = Site::start(PAGES);
    for (index, line) in LINES.iter().enumerate() {
        for path in [format!("/row-43-{index}"), format!("/pass/row-43-{index}")] {
            let response = site.get_with(&path, &format!("{line}\r\n"));
            assert!([200, 400].contains(&response.status), "{line}: {}", response.status);
        }
    }
    for name in ["transfer_encoding", "x_tenant_id", "content_length", "x_forwarded_for", "evil"] {
        assert!(!site.origin.received(name), "{name} reached the origin");
    }
}
