//! Assertions that the tests of hostile inputs share.

use crate::support::client::{Connection, Response};
use crate::support::site::Site;

/// Every path is a cached page, except where a row needs something else.
pub(crate) const PAGES: &str = r#"
[routes]
"/**" = { isr = "60s" }
"/brief/**" = { isr = "1s" }
"/pass/**" = false
"/listed/**" = { isr = "60s", query = ["page", "callback"], headers = ["accept-language", "rsc"], cookies = ["theme"] }
"/own/**" = { isr = "60s", headers = ["authorization"] }
"/t/{tenant}/{*rest}" = { isr = "60s", tenant = { param = "tenant" } }
"/org/**" = { isr = "60s", tenant = { header = "x-tenant-id" } }
"#;

/// A configuration that trusts the `X-Forwarded-*` and tenant headers of local clients.
pub(crate) fn behind_proxy() -> String {
    format!("trusted_proxies = [\"127.0.0.1\"]\n{PAGES}")
}

/// Fails unless the response to these bytes has one of these statuses, nothing reaches the origin, and nothing is
/// cached for the path.
pub(crate) fn assert_rejected(site: &Site, path: &str, bytes: impl AsRef<[u8]>, statuses: &[u16]) {
    let before = site.origin.byte_count();
    drop(rejection(site, bytes.as_ref(), statuses));
    assert_unaffected(site, path, before);
}

/// Like [`assert_rejected`]; the connection must also be closed after the response, so that no further bytes are a
/// request.
pub(crate) fn assert_rejected_and_closed(site: &Site, path: &str, bytes: impl AsRef<[u8]>, statuses: &[u16]) {
    let before = site.origin.byte_count();
    rejection(site, bytes.as_ref(), statuses).assert_closed();
    assert_unaffected(site, path, before);
}

fn rejection(site: &Site, bytes: &[u8], statuses: &[u16]) -> Connection {
    let mut connection = site.gateway.connect();
    connection.send(bytes);
    let Some(response) = connection.next_response("GET") else {
        panic!("no response to {}", shown(bytes));
    };
    assert!(
        statuses.contains(&response.status),
        "{} instead of {statuses:?} for {}",
        response.status,
        shown(bytes)
    );
    connection
}

/// Fails if the origin has received anything since, or if the path is cached.
pub(crate) fn assert_unaffected(site: &Site, path: &str, before: usize) {
    assert_eq!(site.origin.byte_count(), before, "it reached the origin");
    let requests = site.origin.requests_for(path).len();
    let clean = site.get(path);
    assert_eq!((clean.status, clean.state()), (200, "miss"), "{path}: {}", clean.text());
    assert_eq!(site.origin.requests_for(path).len(), requests + 1, "the page is rendered for this client");
}

/// Fails if a response came from the cache or was cached: the next request must reach the origin.
pub(crate) fn assert_not_cached(site: &Site, path: &str) {
    let requests = site.origin.requests_for(path).len();
    let again = site.get(path);
    assert!(!["hit", "stale", "wait-hit"].contains(&again.state()), "{path} was cached: {}", again.state());
    assert!(
        site.origin.requests_for(path).len() > requests,
        "the second request for {path} did not reach the origin"
    );
}

/// Caches a page.
pub(crate) fn cache_page(site: &Site, path: &str) -> Response {
    let first = site.get(path);
    assert_eq!((first.status, first.state()), (200, "miss"), "{path}");
    let second = site.get(path);
    assert_eq!((second.status, second.state()), (200, "hit"), "{path}");
    assert_eq!(first.body, second.body);
    second
}

/// Printable bytes.
pub(crate) fn shown(bytes: &[u8]) -> String {
    const MAX_SHOWN: usize = 300;
    bytes[..bytes.len().min(MAX_SHOWN)].escape_ascii().to_string()
}
