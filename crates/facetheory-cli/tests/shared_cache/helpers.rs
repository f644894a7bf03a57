//! What an origin says in a story, and what visitors must get.

use std::sync::atomic::{AtomicUsize, Ordering};

use crate::support::client::Response;
use crate::support::origin::{Request, ScriptedResponse};
use crate::support::site::Site;

/// The answers for this path have these headers from now on, and tell which of them they are: `answer 1`, `answer 2`.
pub(crate) fn numbered(site: &Site, path: &str, lines: &[&str]) {
    let lines = owned(lines);
    scripted(site, path, move |_, number| page(&lines, &format!("answer {number}")));
}

/// The same, but whoever has the validator of these headers is told that nothing is new.
pub(crate) fn validated(site: &Site, path: &str, lines: &[&str]) {
    let lines = owned(lines);
    scripted(site, path, move |request, number| {
        let conditional = request.has("if-none-match") || request.has("if-modified-since");
        if conditional { with("304 Not Modified", &lines) } else { page(&lines, &format!("answer {number}")) }
    });
}

/// The answer for this path depends on the request and on how many have come before it, itself included.
pub(crate) fn scripted(
    site: &Site,
    path: &str,
    script: impl Fn(&Request, usize) -> ScriptedResponse + Send + Sync + 'static,
) {
    let count = AtomicUsize::new(0);
    site.origin.script(path, move |request| script(request, count.fetch_add(1, Ordering::Relaxed) + 1));
}

/// The first answer for this path is one, all that follow are another.
pub(crate) fn first_then(site: &Site, path: &str, first: ScriptedResponse, then: ScriptedResponse) {
    scripted(site, path, move |_, number| if number == 1 { first.clone() } else { then.clone() });
}

/// An answer that never comes: the connection is closed instead.
pub(crate) fn silence() -> ScriptedResponse {
    ScriptedResponse::raw("").then_close()
}

/// Fails unless, for each of these headers, what the first visitor got is served to the second.
pub(crate) fn assert_all_cached(site: &Site, name: &str, cases: &[&[&str]]) {
    for (index, lines) in cases.iter().enumerate() {
        let path = format!("/{name}/{index}");
        numbered(site, &path, lines);
        assert_eq!(site.get(&path).text(), "answer 1", "{lines:?}");
        assert_eq!(site.get(&path).text(), "answer 1", "{lines:?} let it be kept");
    }
}

/// Fails if, for any of these headers, what the first visitor got is served to the second.
pub(crate) fn assert_none_reused(site: &Site, name: &str, cases: &[&[&str]]) {
    for (index, lines) in cases.iter().enumerate() {
        let path = format!("/{name}/{index}");
        numbered(site, &path, lines);
        assert_eq!(site.get(&path).text(), "answer 1", "{lines:?}");
        assert_eq!(site.get(&path).text(), "answer 2", "{lines:?} forbid that it is served again");
    }
}

/// A page with these headers.
pub(crate) fn page(lines: &[String], body: &str) -> ScriptedResponse {
    let lines: Vec<&str> = lines.iter().map(String::as_str).collect();
    ScriptedResponse::page(&lines, body)
}

/// An answer without a body, with these headers.
pub(crate) fn with(status: &str, lines: &[String]) -> ScriptedResponse {
    let lines: Vec<&str> = lines.iter().map(String::as_str).collect();
    ScriptedResponse::with(status, &lines, "")
}

/// Header lines that outlive their story.
pub(crate) fn owned(lines: &[&str]) -> Vec<String> {
    lines.iter().map(|line| (*line).to_owned()).collect()
}

/// How many requests have reached the origin for this path.
pub(crate) fn asked(site: &Site, path: &str) -> usize {
    site.origin.requests_for(path).len()
}

/// What `Age` says.
pub(crate) fn age(response: &Response) -> u64 {
    let age = response.header("age").unwrap_or_else(|| panic!("no Age: {:?}", response.headers));
    age.parse().unwrap_or_else(|_| panic!("no age: {age}"))
}

/// A parameter of what the gateway says in `Cache-Status`, empty for one without a value; none where it does not say it.
pub(crate) fn told<'r>(response: &'r Response, name: &str) -> Option<&'r str> {
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
