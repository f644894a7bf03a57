//! Purges of pages of tenants: the tenant is derived from the request, or the purge is refused.

use crate::support::client::Connection;
use crate::support::origin::ScriptedResponse;
use crate::support::site::Site;

const CONFIG: &str = r#"
trusted_proxies = ["127.0.0.1"]
[purge]
from = ["127.0.0.1"]
[routes]
"/plain/**" = { isr = "1h" }
"#;

/// Caches a page, purges by this method, target and lines, and returns the status and the text that is served then.
fn after(site: &Site, (path, lines): (&str, &str), purge: &str) -> (u16, String) {
    site.origin.respond(path, ScriptedResponse::page(&["xkey: a"], "new"));
    let mut connection = Connection::open(site.gateway.address);
    // An earlier purge may have been refused, so that the page is stored.
    for tenant in ["acme", "www"] {
        let body = format!(r#"{{"tenant":"{tenant}","mode":"hard"}}"#);
        assert_eq!(site.gateway.admin_post("/api/v1/invalidate", &body).status, 200);
    }
    site.origin.respond(path, ScriptedResponse::page(&["xkey: a"], "old"));
    assert_eq!(site.get_with(path, lines).text(), "old");
    site.origin.respond(path, ScriptedResponse::page(&["xkey: a"], "new"));
    connection.send(purge);
    let response = connection.response();
    if response.status == 400 {
        assert!(response.text().contains("`tenant` to the admin listener"), "{}", response.text());
    }
    (response.status, site.get_with(path, lines).text())
}

fn check(rule: &str, page: (&str, &str), rows: &[(&str, &str, u16)]) {
    let site = Site::start(&format!("{CONFIG}{rule}\n"));
    for (request, host, status) in rows {
        let (line, more) = request.split_once('|').unwrap_or((request, ""));
        let more = if more.is_empty() { String::new() } else { format!("{more}\r\n") };
        let purge = format!("{line} HTTP/1.1\r\nHost: {host}\r\n{more}\r\n");
        let text = if *status == 200 { "new" } else { "old" };
        assert_eq!(after(&site, page, &purge), (*status, text.to_owned()), "{rule}: {purge}");
    }
    let other = "PURGE /plain/.* HTTP/1.1\r\nHost: cache\r\n\r\n";
    assert_eq!(after(&site, page, other), (200, "old".to_owned()), "no page of a tenant is below it");
}

#[test]
fn a_tenant_in_the_path_is_derived_from_the_path() {
    check(
        r#""/t/{tenant}/**" = { isr = "1h", tenant = { param = "tenant" } }"#,
        ("/t/acme/a", ""),
        &[
            ("PURGE /t/acme/a", "www.example.com", 200),
            ("PURGE /t/acme/.*", "cache", 200),
            ("PURGE /t/.*", "www.example.com", 400),
            ("PURGE /|xkey: a", "www.example.com", 400),
            ("PURGE /.*", "www.example.com", 400),
        ],
    );
}

#[test]
fn a_tenant_in_a_header_cannot_be_derived() {
    check(
        r#""/app/**" = { isr = "1h", tenant = { header = "x-tenant-id" } }"#,
        ("/app/a", "X-Tenant-Id: acme\r\n"),
        &[
            ("PURGE /app/a", "www.example.com", 400),
            ("PURGE /|xkey: a", "www.example.com", 400),
            ("BAN /", "www.example.com", 400),
        ],
    );
}

#[test]
fn a_tenant_of_one_route_is_derived_from_the_host_alone() {
    check(
        r#""/host/**" = { isr = "1h", tenant = { subdomain = "example.com" } }"#,
        ("/host/a", ""),
        &[
            ("PURGE /host/a", "www.example.com", 200),
            ("PURGE /|xkey: a", "www.example.com", 200),
            ("PURGE /.*", "www.example.com", 200),
            ("PURGE /host/.*", "www.example.com", 200),
            ("PURGE /host/a", "cache.svc.cluster.local:8080", 400),
            ("PURGE /|xkey: a", "cache.svc.cluster.local:8080", 400),
            ("BAN /", "127.0.0.1", 400),
        ],
    );
}
