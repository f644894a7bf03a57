//! Access to purges, their metrics and log lines, and clients that do not wait.

use crate::support::client::Connection;
use crate::support::origin::ScriptedResponse;
use crate::support::site::{Site, request};
use crate::support::wait_for;

const TOKEN: &str = "0123456789abcdef0123456789abcdef";

/// A site that may be purged from this machine with a token.
fn site_with_token(more: &str) -> Site {
    let file = tempfile::NamedTempFile::new().expect("a file");
    std::fs::write(file.path(), TOKEN).expect("a token");
    let config = format!(
        "[purge]\nfrom = [\"127.0.0.1\"]\ntoken_file = {:?}\n{more}[routes]\n\"/**\" = {{ isr = \"1h\" }}\n",
        file.path()
    );
    Site::start(&config)
}

#[test]
fn a_token_is_read_from_the_headers_of_products_and_from_a_header_of_ones_own() {
    let site = site_with_token("token_header = \"X-Our-Token\"\n");
    for (lines, status) in [
        (format!("Authorization: Bearer {TOKEN}\r\n"), 200),
        (format!("X-Invalidate-Token: {TOKEN}\r\n"), 200),
        (format!("Fastly-Key: {TOKEN}\r\n"), 200),
        (format!("x-our-token: {TOKEN}\r\n"), 200),
        (String::new(), 405),
        (format!("Authorization: Basic {TOKEN}\r\n"), 405),
        (format!("Authorization: Bearer {TOKEN}0\r\n"), 405),
        (format!("X-Our-Token: {}\r\n", &TOKEN[1..]), 405),
        (format!("X-Other-Token: {TOKEN}\r\n"), 405),
    ] {
        assert_eq!(site.request("PURGE", "/page", &lines).status, status, "{lines}");
    }
}

#[test]
fn purges_are_logged_and_counted() {
    let config =
        "[purge]\nfrom = [\"127.0.0.1\"]\non_unknown = \"refuse\"\n[routes]\n\"/**\" = { isr = \"1h\" }\n";
    let site = Site::start(config);
    assert_eq!(site.request("PURGE", "/", "xkey: news\r\n").status, 200);
    assert_eq!(site.request("BAN", "/", "Cache-Tags: a[0-9]\r\n").status, 400);
    assert_eq!(site.request("PURGEKEYS", "/", "").status, 400);
    assert_eq!(site.request("PURGE", "/", "X-Forwarded-For: 10.0.0.1\r\nxkey: news\r\n").status, 405);
    wait_for("a log line with the peer and the dialect", || {
        let log = site.gateway.log();
        log.lines().find(|line| {
            line.contains("purged")
                && line.contains("127.0.0.1")
                && line.contains("tags")
                && line.contains("news")
        })?;
        Some(())
    });
    for (name, count) in [
        ("facetheory_purges_total{dialect=\"tags\",outcome=\"done\"}", 1.0),
        ("facetheory_purges_total{dialect=\"ban\",outcome=\"refused\"}", 1.0),
        ("facetheory_purges_total{dialect=\"tags\",outcome=\"refused\"}", 1.0),
        ("facetheory_purges_denied_total", 1.0),
    ] {
        assert_eq!(site.gateway.metric(name), Some(count), "{name}");
    }
}

#[test]
fn a_pattern_that_is_widened_is_counted() {
    let site = Site::start("[purge]\nfrom = [\"127.0.0.1\"]\n");
    assert_eq!(site.request("BAN", "/", "Cache-Tags: a[0-9]\r\n").status, 200);
    let counted = site.gateway.metric("facetheory_purges_widened_total{dialect=\"ban\"}");
    assert_eq!(counted, Some(1.0));
}

#[test]
fn a_purge_is_performed_although_its_client_does_not_wait() {
    let site = Site::start("[purge]\nfrom = [\"127.0.0.1\"]\n[routes]\n\"/**\" = { isr = \"1h\" }\n");
    site.origin.respond("/page", ScriptedResponse::page(&["xkey: a"], "old"));
    assert_eq!(site.get("/page").text(), "old");
    site.origin.respond("/page", ScriptedResponse::page(&["xkey: a"], "new"));
    let mut connection = Connection::open(site.gateway.address);
    connection.send(request("PURGE", "/", "xkey: a\r\n"));
    drop(connection);
    wait_for("the page is purged", || (site.get("/page").text() == "new").then_some(()));
}

#[test]
fn tags_are_read_from_configured_headers_alone_and_may_be_shown_to_clients() {
    let config = "strip_tags = false\ntag_headers = [\"X-Own\"]\n[purge]\nfrom = [\"127.0.0.1\"]\n\
                  [routes]\n\"/origin\" = { cache = \"origin\" }\n\"/**\" = { isr = \"1h\" }\n";
    let site = Site::start(config);
    for (path, lines) in [
        ("/own", &["X-Own: a"][..]),
        ("/xkey", &["xkey: a"]),
        ("/origin", &["X-Own: b", "Cache-Control: max-age=3600"]),
    ] {
        site.origin.respond(path, ScriptedResponse::page(lines, "old"));
        assert_eq!(site.get(path).text(), "old");
        site.origin.respond(path, ScriptedResponse::page(lines, "new"));
    }
    assert_eq!(site.get("/origin").header("x-own"), Some("b"));
    assert_eq!(site.request("PURGE", "/", "xkey: a\r\n").status, 200);
    assert_eq!((site.get("/own").text(), site.get("/xkey").text()), ("new".to_owned(), "old".to_owned()));
    assert_eq!(site.request("PURGE", "/", "xkey: b\r\n").status, 200);
    assert_eq!(site.get("/origin").text(), "new");
}

#[test]
fn without_a_configuration_purge_methods_are_forwarded_to_the_origin() {
    let site = Site::start("[routes]\n\"/**\" = { isr = \"1h\" }\n");
    site.origin.script("/page", |request| ScriptedResponse::page(&[], &request.method));
    for method in ["PURGE", "BAN", "PURGEKEYS", "PURGETAGS"] {
        assert_eq!(site.request(method, "/page", "").text(), method);
    }
}

#[test]
fn a_browser_at_an_allowed_address_cannot_refresh_a_page() {
    let site = Site::start("[purge]\nfrom = [\"127.0.0.1\"]\n[routes]\n\"/**\" = { isr = \"1h\" }\n");
    site.origin.respond("/page", ScriptedResponse::page(&[], "old"));
    assert_eq!(site.get("/page").text(), "old");
    site.origin.respond("/page", ScriptedResponse::page(&[], "new"));
    for line in [
        "Cookie: a=b",
        "Referer: http://www.example.com/",
        "Accept-Language: de",
        "Upgrade-Insecure-Requests: 1",
    ] {
        let response = site.get_with("/page", &format!("Cache-Control: no-cache\r\n{line}\r\n"));
        assert_eq!(response.text(), "old", "{line}");
    }
    assert_eq!(site.get_with("/page", "Cache-Control: no-cache\r\n").text(), "new");
}

#[test]
fn the_token_of_a_refresh_does_not_reach_the_origin() {
    let site = site_with_token("");
    site.origin.respond("/page", ScriptedResponse::page(&[], "old"));
    assert_eq!(site.get("/page").text(), "old");
    site.origin.respond("/page", ScriptedResponse::page(&[], "new"));
    let lines = format!("Cache-Control: no-cache\r\nAuthorization: Bearer {TOKEN}\r\n");
    assert_eq!(site.get_with("/page", &lines).text(), "new");
    assert_eq!(site.get("/page").text(), "new", "the page is published, as without a token");
}
