//! Purges on the admin listener: by the methods of products, and by the APIs of CDNs.

use crate::support::client::{Connection, Response};
use crate::support::origin::ScriptedResponse;
use crate::support::site::{HOST, Site};

const TOKEN: &str = "0123456789abcdef0123456789abcdef";

/// Caches a page, sends this to the admin listener, and returns the response and the page that is served then.
fn after(site: &Site, request: &str) -> (Response, String) {
    let page = |text: &str| ScriptedResponse::page(&["Cache-Tag: a,b"], text);
    site.origin.respond("/section/page", page("old"));
    assert_eq!(
        site.gateway.admin_post("/api/v1/invalidate", r#"{"everything":true,"mode":"hard"}"#).status,
        200
    );
    assert_eq!(site.get("/section/page").text(), "old");
    site.origin.respond("/section/page", page("new"));
    let response = send(site, request);
    (response, site.get("/section/page").text())
}

fn send(site: &Site, request: &str) -> Response {
    let mut connection = Connection::open(site.gateway.admin());
    connection.send(request);
    connection.response()
}

fn post(path: &str, lines: &str, body: &str) -> String {
    let length = body.len();
    format!("POST {path} HTTP/1.1\r\nHost: api.example.com\r\nContent-Length: {length}\r\n{lines}\r\n{body}")
}

#[test]
fn clients_of_fastly_cloudflare_and_vercel_work_with_another_base_url() {
    let site = Site::start("[routes]\n\"/**\" = { isr = \"1h\" }\n");
    let key = "Fastly-Key: any\r\n";
    let bearer = "Authorization: Bearer any\r\nContent-Type: application/json\r\n";
    let zone = "/client/v4/zones/023e105f4ecef8ad9ca31a8372d0c353/purge_cache";
    let url = format!(r#"{{"files":["http://{HOST}/section/page"]}}"#);
    for (request, response) in [
        (post("/service/SU1Z0isxPaozGVKXdv0eY/purge", key, r#"{"surrogate_keys":["a","x"]}"#), "{\"a\":\""),
        (post("/service/x/purge", "Fastly-Key: any\r\nSurrogate-Key: a x\r\n", ""), "{\"a\":\""),
        (post("/service/x/purge/b", key, ""), "{\"id\":\""),
        (post("/service/x/purge_all", key, ""), "{\"status\":\"ok\"}"),
        (post(&format!("/purge/{HOST}/section/page"), key, ""), "{\"id\":\""),
        (post(zone, bearer, &url), "{\"errors\":[],\"messages\":[],\"result\":{\"id\":\""),
        (post(zone, bearer, r#"{"tags":["a"]}"#), "{\"errors\":[]"),
        (post(zone, bearer, r#"{"prefixes":["www.example.com/section"]}"#), "{\"errors\":[]"),
        (post(zone, bearer, r#"{"hosts":["www.example.com"]}"#), "{\"errors\":[]"),
        (
            post(zone, "X-Auth-Email: a@b.c\r\nX-Auth-Key: any\r\n", r#"{"purge_everything":true}"#),
            "{\"errors\":[]",
        ),
        (post("/v1/edge-cache/dangerously-delete-by-tags?teamId=x", bearer, r#"{"tags":["a"]}"#), "{}"),
        (format!("PURGE /section/page HTTP/1.1\r\nHost: {HOST}\r\n\r\n"), "Purged"),
        (format!("BAN / HTTP/1.1\r\nHost: {HOST}\r\nCache-Tags: a\r\n\r\n"), "Banned"),
    ] {
        let (sent, text) = after(&site, &request);
        assert_eq!((sent.status, text.as_str()), (200, "new"), "{request}: {}", sent.text());
        assert!(sent.text().starts_with(response), "{request}: {}", sent.text());
    }
    let (sent, text) = after(&site, &post("/v1/edge-cache/invalidate-by-tags", bearer, r#"{"tags":"a,x"}"#));
    assert_eq!((sent.status, text.as_str()), (200, "old"), "softly");
    for (request, response) in [
        (post(zone, bearer, "{}"), "{\"errors\":[{\"code\":400"),
        (post("/service/x/purge", key, ""), "{\"msg\":"),
        (post("/v1/edge-cache/invalidate-by-tags", bearer, "[]"), "{\"error\":"),
    ] {
        let (sent, text) = after(&site, &request);
        assert_eq!((sent.status, text.as_str()), (400, "old"), "{request}");
        assert!(sent.text().starts_with(response), "{request}: {}", sent.text());
    }
}

#[test]
fn a_purge_on_the_admin_listener_needs_its_token_or_an_allowed_address_and_is_not_for_browsers() {
    let site = Site::start("[routes]\n\"/**\" = { isr = \"1h\" }\n");
    for line in
        ["Origin: http://evil.example\r\n", "Sec-Fetch-Site: cross-site\r\n", "X-Forwarded-For: 1.2.3.4\r\n"]
    {
        let purge = format!("PURGE /a HTTP/1.1\r\nHost: evil.example\r\n{line}\r\n");
        assert_eq!(send(&site, &purge).status, 401, "{line}");
        assert_eq!(send(&site, &post("/service/x/purge_all", line, "")).status, 401, "{line}");
    }
    let directory = tempfile::tempdir().expect("a directory");
    let file = directory.path().join("token");
    std::fs::write(&file, TOKEN).expect("a token");
    let arguments = ["--admin-token-file", file.to_str().expect("a path")];
    let site = Site::start_with("[routes]\n\"/**\" = { isr = \"1h\" }\n", &arguments);
    for (line, status) in [
        (String::new(), 401),
        ("Fastly-Key: 0123456789abcdef\r\n".to_owned(), 401),
        (format!("Fastly-Key: {TOKEN}\r\n"), 200),
        (format!("Authorization: Bearer {TOKEN}\r\n"), 200),
        (format!("X-Auth-Key: {TOKEN}\r\n"), 200),
    ] {
        assert_eq!(send(&site, &post("/service/x/purge_all", &line, "")).status, status, "{line}");
        let purge = format!("PURGE /a HTTP/1.1\r\nHost: www.example.com\r\n{line}\r\n");
        assert_eq!(send(&site, &purge).status, status, "{line}");
    }
    site.reload("[purge]\nfrom = [\"127.0.0.1\"]\n[routes]\n\"/**\" = { isr = \"1h\" }\n");
    crate::support::wait_for("the address is allowed", || {
        (send(&site, &post("/service/x/purge_all", "", "")).status == 200).then_some(())
    });
    let admin = "GET /api/v1/config HTTP/1.1\r\nHost: www.example.com\r\n\r\n";
    assert_eq!(send(&site, admin).status, 401, "it may purge, and nothing else");
}

#[test]
fn an_api_that_is_switched_off_does_not_exist() {
    let site = Site::start("[purge]\ndialects = [\"url\"]\n");
    for path in
        ["/service/x/purge_all", "/client/v4/zones/x/purge_cache", "/v1/edge-cache/invalidate-by-tags"]
    {
        assert_eq!(send(&site, &post(path, "", "{}")).status, 404, "{path}");
    }
    assert_eq!(send(&site, "BAN / HTTP/1.1\r\nHost: www.example.com\r\n\r\n").status, 405);
}
