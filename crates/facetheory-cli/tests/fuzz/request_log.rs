//! The expected requests, compared with those that reach the origin.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard};

use crate::strict_parser::Request;

/// The header with the unique id of a request.
pub(crate) const ID: &str = "x-fuzz-id";
/// The path of cached pages, with everything below it. All else is passed through.
const PAGES: &str = "/page";
/// How many rounds a request may take from its client to the origin.
const ROUNDS: u64 = 3;

/// A request that a client sends, according to the strict parser.
#[derive(Clone, Debug)]
pub(crate) struct ExpectedRequest {
    pub(crate) request: Request,
    /// Whether it was sent completely and validly.
    pub(crate) is_complete: bool,
}

/// The expected requests that have not reached the origin yet.
#[derive(Debug, Default)]
pub(crate) struct RequestLog {
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    expected: HashMap<(String, String), Vec<Entry>>,
    round: u64,
    received_count: u64,
    violations: Vec<String>,
}

#[derive(Debug)]
struct Entry {
    expected: ExpectedRequest,
    round: u64,
}

impl RequestLog {
    /// A client is about to send these, once each.
    pub(crate) fn expect(&self, expected: &[ExpectedRequest]) {
        let mut state = self.state();
        let round = state.round;
        for expected in expected {
            let entry = Entry { expected: expected.clone(), round };
            state.expected.entry(key(&expected.request)).or_default().push(entry);
        }
    }

    /// The origin got a request, or the beginning of one. Returns whether its client requested an upgrade.
    pub(crate) fn receive(&self, received: &Request, is_complete: bool) -> bool {
        let mut state = self.state();
        state.received_count += 1;
        let entries = state.expected.entry(key(received)).or_default();
        let found = entries.iter().position(|entry| entry.expected.allows(received, is_complete));
        if let Some(found) = found {
            return entries.swap_remove(found).expected.request.is_upgrade;
        }
        let close: Vec<String> = entries.iter().map(|entry| format!("{:?}", entry.expected)).collect();
        let what = if is_complete { "a request" } else { "the beginning of a request" };
        state.violate(format!(
            "{what} reached the origin that was not sent: {received:?}\nsimilar requests that were sent: {}",
            if close.is_empty() { "none".to_owned() } else { close.join("\n") }
        ));
        false
    }

    /// Records a violation.
    pub(crate) fn violate(&self, what: String) {
        self.state().violate(what);
    }

    /// The violations so far.
    pub(crate) fn violations(&self) -> Vec<String> {
        self.state().violations.clone()
    }

    /// The number of requests that reached the origin.
    pub(crate) fn received_count(&self) -> u64 {
        self.state().received_count
    }

    /// Starts a new round: old expected requests are forgotten.
    pub(crate) fn next_round(&self) {
        let mut state = self.state();
        state.round += 1;
        let oldest = state.round.saturating_sub(ROUNDS);
        state.expected.retain(|_, entries| {
            entries.retain(|entry| entry.round >= oldest);
            !entries.is_empty()
        });
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().expect("not poisoned")
    }
}

impl State {
    fn violate(&mut self, what: String) {
        /// The most violations that are recorded.
        const MAX_VIOLATIONS: usize = 8;
        if self.violations.len() < MAX_VIOLATIONS {
            self.violations.push(what);
        }
    }
}

impl ExpectedRequest {
    /// Whether this may be forwarded as the received request.
    fn allows(&self, received: &Request, is_complete: bool) -> bool {
        let expected = &self.request;
        let body = match is_complete {
            true => self.is_complete && expected.body == received.body,
            false => expected.body.starts_with(&received.body),
        };
        let is_named = received.values(ID).all(|id| expected.values(ID).any(|known| known == id));
        let trailers = received.trailers.iter().all(|trailer| expected.trailers.contains(trailer));
        body && is_named && trailers && expected.host.eq_ignore_ascii_case(&received.host)
    }
}

/// The lookup key of a request. A page is rendered completely for HEAD, too.
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

    fn expected_requests(request: Request) -> [ExpectedRequest; 1] {
        [ExpectedRequest { request, is_complete: true }]
    }

    #[test]
    fn a_request_reaches_the_origin_once() {
        let log = RequestLog::default();
        log.expect(&expected_requests(request("POST", "/a", b"body")));
        log.receive(&request("POST", "/a", b"body"), true);
        assert!(log.violations().is_empty());
        log.receive(&request("POST", "/a", b"body"), true);
        assert_eq!(log.violations().len(), 1);
    }

    #[test]
    fn a_changed_method_target_body_host_or_id_is_detected() {
        let mut other_host = request("POST", "/a", b"body");
        other_host.host = "b".to_owned();
        let mut named = request("POST", "/a", b"body");
        named.fields.push((ID.to_owned(), b"1".to_vec()));
        for received in [
            request("PUT", "/a", b"body"),
            request("POST", "/b", b"body"),
            request("POST", "/a", b"body and more"),
            request("POST", "/a", b"bod"),
            other_host,
            named,
        ] {
            let log = RequestLog::default();
            log.expect(&expected_requests(request("POST", "/a", b"body")));
            log.receive(&received, true);
            assert_eq!(log.violations().len(), 1, "{received:?}");
        }
    }

    #[test]
    fn a_truncated_request_is_a_prefix_and_never_complete() {
        let log = RequestLog::default();
        let begun = [ExpectedRequest { request: request("POST", "/a", b"bo"), is_complete: false }];
        log.expect(&begun);
        log.receive(&request("POST", "/a", b"b"), false);
        assert!(log.violations().is_empty());
        log.expect(&begun);
        log.receive(&request("POST", "/a", b"bo"), true);
        assert_eq!(log.violations().len(), 1);
    }

    #[test]
    fn old_requests_are_forgotten() {
        let log = RequestLog::default();
        log.expect(&expected_requests(request("GET", "/a", b"")));
        for _ in 0..=ROUNDS {
            log.next_round();
        }
        log.receive(&request("GET", "/a", b""), true);
        assert_eq!(log.violations().len(), 1);
    }
}
