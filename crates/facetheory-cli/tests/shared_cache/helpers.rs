//! Scripted origins and assertions that the tests share.

use std::sync::atomic::{AtomicUsize, Ordering};

use crate::support::client::Response;
use crate::support::origin::{Request, ScriptedResponse};
use crate::support::site::Site;

/// Sets numbered responses with these headers for a path: `response 1`, `response 2`.
pub(crate) fn numbered(site: &Site, path: &str, lines: &[&str]) {
    let lines = owned(lines);
    scripted(site, path, move |_, number| page(&lines, &format!("response {number}")));
}

/// Like [`numbered`], but a conditional request gets a 304.
pub(crate) fn validated(site: &Site, path: &str, lines: &[&str]) {
    let lines = owned(lines);
    scripted(site, path, move |request, number| {
        let conditional = request.has("if-none-match") || request.has("if-modified-since");
        if conditional {
            with("304 Not Modified", &lines)
        } else {
            page(&lines, &format!("response {number}"))
        }
    });
}

/// Sets a response for a path that depends on the request and its number, from 1.
pub(crate) fn scripted(
    site: &Site,
    path: &str,
    script: impl Fn(&Request, usize) -> ScriptedResponse + Send + Sync + 'static,
) {
    let count = AtomicUsize::new(0);
    site.origin.script(path, move |request| script(request, count.fetch_add(1, Ordering::Relaxed) + 1));
}

/// Sets the first response for a path, and another one for all further requests.
pub(crate) fn first_then(site: &Site, path: &str, first: ScriptedResponse, then: ScriptedResponse) {
    scripted(site, path, move |_, number| if number == 1 { first.clone() } else { then.clone() });
}

/// No response: the connection is closed.
pub(crate) fn silence() -> ScriptedResponse {
    ScriptedResponse::raw("").then_close()
}

/// Fails unless, with each of these headers, the first response is reused for the second request.
pub(crate) fn assert_all_cached(site: &Site, name: &str, cases: &[&[&str]]) {
    assert_second_responses(site, name, cases, "response 1", "allow caching");
}

/// Fails if, with any of these headers, the first response is reused for the second request.
pub(crate) fn assert_none_reused(site: &Site, name: &str, cases: &[&[&str]]) {
    assert_second_responses(site, name, cases, "response 2", "forbid reuse");
}

fn assert_second_responses(site: &Site, name: &str, cases: &[&[&str]], expected: &str, why: &str) {
    for (index, lines) in cases.iter().enumerate() {
        let path = format!("/{name}/{index}");
        numbered(site, &path, lines);
        assert_eq!(site.get(&path).text(), "response 1", "{lines:?}");
        assert_eq!(site.get(&path).text(), expected, "{lines:?} {why}");
    }
}

/// Sets a page with some headers for a path; all further requests get a 304 with others.
pub(crate) fn then_not_modified(site: &Site, path: &str, page: &[&str], not_modified: &[&str]) {
    let not_modified = ScriptedResponse::with("304 Not Modified", not_modified, "");
    first_then(site, path, ScriptedResponse::page(page, "cached"), not_modified);
}

/// A page with these headers.
pub(crate) fn page(lines: &[String], body: &str) -> ScriptedResponse {
    let lines: Vec<&str> = lines.iter().map(String::as_str).collect();
    ScriptedResponse::page(&lines, body)
}

/// A response without a body, with these headers.
pub(crate) fn with(status: &str, lines: &[String]) -> ScriptedResponse {
    let lines: Vec<&str> = lines.iter().map(String::as_str).collect();
    ScriptedResponse::with(status, &lines, "")
}

/// Owned copies of header lines.
pub(crate) fn owned(lines: &[&str]) -> Vec<String> {
    lines.iter().map(|line| (*line).to_owned()).collect()
}

/// How many requests have reached the origin for this path.
pub(crate) fn origin_requests(site: &Site, path: &str) -> usize {
    site.origin.requests_for(path).len()
}

/// Fails if a response has one of these headers.
pub(crate) fn assert_lacks(response: &Response, names: &[&str]) {
    for name in names {
        assert_eq!(response.header(name), None, "{name}");
    }
}

/// The value of `Age`.
pub(crate) fn age(response: &Response) -> u64 {
    let age = response.header("age").unwrap_or_else(|| panic!("no Age: {:?}", response.headers));
    age.parse().unwrap_or_else(|_| panic!("invalid age: {age}"))
}

/// A parameter of the gateway's entry in `Cache-Status`: "" without a value, `None` if it is missing.
pub(crate) fn cache_status<'r>(response: &'r Response, name: &str) -> Option<&'r str> {
    let lines = response.headers.iter().filter(|(known, _)| known == "cache-status");
    let mut own = lines
        .flat_map(|(_, value)| value.split(','))
        .map(str::trim)
        .filter(|member| member.starts_with("FaceTheory"));
    let parameters = own.next_back()?.split(';').skip(1).map(str::trim);
    parameters
        .map(|one| one.split_once('=').unwrap_or((one, "")))
        .find(|(key, _)| *key == name)
        .map(|(_, value)| value)
}
