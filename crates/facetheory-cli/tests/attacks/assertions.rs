//! An attack, and what is to come of it.

use crate::support::client::{Connection, Response};
use crate::support::site::Site;

/// Every path is a page, except where a row needs something else.
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

/// Fails unless these bytes are answered with one of these statuses, nothing of them reaches the origin, and nothing is
/// kept for their path.
pub(crate) fn assert_rejected(site: &Site, path: &str, bytes: impl AsRef<[u8]>, statuses: &[u16]) {
    let before = site.origin.byte_count();
    drop(rejection(site, bytes.as_ref(), statuses));
    assert_unaffected(site, path, before);
}

/// The same, and the connection is closed after the answer, so that nothing behind it counts as a request.
pub(crate) fn assert_rejected_and_closed(site: &Site, path: &str, bytes: impl AsRef<[u8]>, statuses: &[u16]) {
    let before = site.origin.byte_count();
    rejection(site, bytes.as_ref(), statuses).assert_closed();
    assert_unaffected(site, path, before);
}

fn rejection(site: &Site, bytes: &[u8], statuses: &[u16]) -> Connection {
    let mut connection = site.gateway.connect();
    connection.send(bytes);
    let Some(response) = connection.next_response("GET") else {
        panic!("no answer to {}", shown(bytes));
    };
    assert!(
        statuses.contains(&response.status),
        "{} instead of {statuses:?} for {}",
        response.status,
        shown(bytes)
    );
    connection
}

/// Fails if the origin has heard anything since, or if anything is kept for a path that is asked for now.
pub(crate) fn assert_unaffected(site: &Site, path: &str, before: usize) {
    assert_eq!(site.origin.byte_count(), before, "the origin heard of it");
    let asked = site.origin.requests_for(path).len();
    let clean = site.get(path);
    assert_eq!((clean.status, clean.state()), (200, "miss"), "{path}: {}", clean.text());
    assert_eq!(site.origin.requests_for(path).len(), asked + 1, "the page was rendered for this visitor");
}

/// Fails if an answer came from what is kept, or was kept: whoever asks next makes the origin answer anew.
pub(crate) fn assert_not_cached(site: &Site, path: &str) {
    let asked = site.origin.requests_for(path).len();
    let again = site.get(path);
    assert!(!["hit", "stale", "wait-hit"].contains(&again.state()), "{path} was kept: {}", again.state());
    assert!(site.origin.requests_for(path).len() > asked, "{path} was not asked for again");
}

/// A page that is kept.
pub(crate) fn kept(site: &Site, path: &str) -> Response {
    let first = site.get(path);
    assert_eq!((first.status, first.state()), (200, "miss"), "{path}");
    let second = site.get(path);
    assert_eq!((second.status, second.state()), (200, "hit"), "{path}");
    assert_eq!(first.body, second.body);
    second
}

/// Bytes for people to read.
pub(crate) fn shown(bytes: &[u8]) -> String {
    const MAX_SHOWN: usize = 300;
    bytes[..bytes.len().min(MAX_SHOWN)].escape_ascii().to_string()
}
