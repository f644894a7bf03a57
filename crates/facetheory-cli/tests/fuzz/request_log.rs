//! What visitors have asked for, and whether the origin hears that and nothing else.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard};

use crate::strict_parser::Request;

/// The header that tells one request from all others.
pub(crate) const ID: &str = "x-fuzz-id";
/// Where pages are that are kept, at this path and below it. Everything else is passed on.
const PAGES: &str = "/page";
/// How many rounds a request may take from its visitor to the origin.
const ROUNDS: u64 = 3;
/// How many violations are told of. One is enough to know that something is wrong.
const MAX_VIOLATIONS: usize = 8;

/// What a visitor asks for, as a strict reader sees it.
#[derive(Clone, Debug)]
pub(crate) struct ExpectedRequest {
    pub(crate) request: Request,
    /// Otherwise its end was never sent, or was wrong.
    pub(crate) is_whole: bool,
}

/// All that was asked for and not heard of yet.
#[derive(Debug, Default)]
pub(crate) struct RequestLog {
    book: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    asked: HashMap<(String, String), Vec<Entry>>,
    round: u64,
    heard: u64,
    violations: Vec<String>,
}

#[derive(Debug)]
struct Entry {
    asked: ExpectedRequest,
    round: u64,
}

impl RequestLog {
    /// A visitor is about to ask for these, once each.
    pub(crate) fn expect(&self, asked: &[ExpectedRequest]) {
        let mut book = self.book();
        let round = book.round;
        for asked in asked {
            let entry = Entry { asked: asked.clone(), round };
            book.asked.entry(key(&asked.request)).or_default().push(entry);
        }
    }

    /// The origin hears a request, or the beginning of one. True if its visitor asked for another protocol.
    pub(crate) fn hear(&self, told: &Request, is_whole: bool) -> bool {
        let mut book = self.book();
        book.heard += 1;
        let entries = book.asked.entry(key(told)).or_default();
        let found = entries.iter().position(|entry| entry.asked.allows(told, is_whole));
        if let Some(found) = found {
            return entries.swap_remove(found).asked.request.is_upgrade;
        }
        let close: Vec<String> = entries.iter().map(|entry| format!("{:?}", entry.asked)).collect();
        let what = if is_whole { "a request" } else { "the beginning of a request" };
        book.violate(format!(
            "{what} reached the origin that nobody asked for: {told:?}\nasked for was only: {}",
            if close.is_empty() { "nothing of the kind".to_owned() } else { close.join("\n") }
        ));
        false
    }

    /// Something is wrong, whoever's fault it is.
    pub(crate) fn violate(&self, what: String) {
        self.book().violate(what);
    }

    /// What is wrong so far.
    pub(crate) fn violations(&self) -> Vec<String> {
        self.book().violations.clone()
    }

    /// How many requests have reached the origin.
    pub(crate) fn heard(&self) -> u64 {
        self.book().heard
    }

    /// Time passes: what was asked for long ago can no longer be heard of.
    pub(crate) fn turn(&self) {
        let mut book = self.book();
        book.round += 1;
        let oldest = book.round.saturating_sub(ROUNDS);
        book.asked.retain(|_, entries| {
            entries.retain(|entry| entry.round >= oldest);
            !entries.is_empty()
        });
    }

    fn book(&self) -> MutexGuard<'_, State> {
        self.book.lock().expect("the book")
    }
}

impl State {
    fn violate(&mut self, what: String) {
        if self.violations.len() < MAX_VIOLATIONS {
            self.violations.push(what);
        }
    }
}

impl ExpectedRequest {
    /// Whether this may have become what the origin was told.
    fn allows(&self, told: &Request, is_whole: bool) -> bool {
        let asked = &self.request;
        let body = match is_whole {
            true => self.is_whole && asked.body == told.body,
            false => asked.body.starts_with(&told.body),
        };
        let is_named = told.values(ID).all(|id| asked.values(ID).any(|known| known == id));
        let trailers = told.trailers.iter().all(|trailer| asked.trailers.contains(trailer));
        body && is_named && trailers && asked.host.eq_ignore_ascii_case(&told.host)
    }
}

/// What a request is found by. A page is rendered whole for whoever asks for its head.
fn key(request: &Request) -> (String, String) {
    let path = request.target.split('?').next().unwrap_or_default();
    let below = path.strip_prefix(PAGES);
    let is_page = below.is_some_and(|below| below.is_empty() || below.starts_with('/'));
    let is_render = is_page && request.method == "HEAD";
    (if is_render { "GET".to_owned() } else { request.method.clone() }, request.target.clone())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn request(method: &str, target: &str, body: &[u8]) -> Request {
        let (method, target, host) = (method.to_owned(), target.to_owned(), "a".to_owned());
        Request { method, target, host, body: body.to_vec(), ..Request::default() }
    }

    fn asked(request: Request) -> [ExpectedRequest; 1] {
        [ExpectedRequest { request, is_whole: true }]
    }

    #[test]
    fn a_request_reaches_the_origin_once() {
        let log = RequestLog::default();
        log.expect(&asked(request("POST", "/a", b"body")));
        log.hear(&request("POST", "/a", b"body"), true);
        assert!(log.violations().is_empty());
        log.hear(&request("POST", "/a", b"body"), true);
        assert_eq!(log.violations().len(), 1);
    }

    #[test]
    fn a_changed_method_target_body_host_or_id_is_detected() {
        let mut other_host = request("POST", "/a", b"body");
        other_host.host = "b".to_owned();
        let mut named = request("POST", "/a", b"body");
        named.fields.push((ID.to_owned(), b"1".to_vec()));
        for told in [
            request("PUT", "/a", b"body"),
            request("POST", "/b", b"body"),
            request("POST", "/a", b"body and more"),
            request("POST", "/a", b"bod"),
            other_host,
            named,
        ] {
            let log = RequestLog::default();
            log.expect(&asked(request("POST", "/a", b"body")));
            log.hear(&told, true);
            assert_eq!(log.violations().len(), 1, "{told:?}");
        }
    }

    #[test]
    fn a_truncated_request_is_a_prefix_and_never_complete() {
        let log = RequestLog::default();
        let begun = [ExpectedRequest { request: request("POST", "/a", b"bo"), is_whole: false }];
        log.expect(&begun);
        log.hear(&request("POST", "/a", b"b"), false);
        assert!(log.violations().is_empty());
        log.expect(&begun);
        log.hear(&request("POST", "/a", b"bo"), true);
        assert_eq!(log.violations().len(), 1);
    }

    #[test]
    fn old_requests_are_forgotten() {
        let log = RequestLog::default();
        log.expect(&asked(request("GET", "/a", b"")));
        for _ in 0..=ROUNDS {
            log.turn();
        }
        log.hear(&request("GET", "/a", b""), true);
        assert_eq!(log.violations().len(), 1);
    }
}
