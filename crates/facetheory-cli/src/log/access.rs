//! One line for each request.

use std::borrow::Cow;
use std::io::Write as _;
use std::net::IpAddr;

use facetheory::{Hit, PageKey, State};
use http::header::{HOST, HeaderName, HeaderValue};
use http::request::Parts;
use http::{Method, Response, StatusCode, Uri};
use http_body::Body;
use serde::Serialize;
use tabletheory::{Clock as _, SystemClock, Timestamp};
use tokio::time::Instant;

use super::queue::{Line, Lines};
use crate::wire::RejectedRequest;

/// How a visitor was served, as the response tells it.
static STATE: HeaderName = HeaderName::from_static("x-facetheory-isr");

/// What stands for what nobody could read.
const UNREADABLE: &str = "-";

/// Where requests are told of.
#[derive(Clone, Debug)]
pub(crate) struct AccessLog {
    lines: Lines,
}

/// What the gateway itself has to say of a request, in the extensions of its response.
#[derive(Clone, Debug)]
pub(crate) struct Verdict {
    /// Why it is not answered as it was asked to be.
    pub(crate) reason: &'static str,
    /// What was asked for, where what the service got only stood in for that.
    pub(crate) seen: Option<RejectedRequest>,
}

/// A request that has come. All of it is shared with the request itself, so that nothing is copied.
#[derive(Debug)]
pub(crate) struct Arrival {
    began: Instant,
    peer: IpAddr,
    method: Method,
    host: Option<HeaderValue>,
    uri: Uri,
}

impl Arrival {
    /// A request that comes from this address, now.
    pub(crate) fn of(request: &Parts, peer: IpAddr) -> Self {
        Arrival {
            began: Instant::now(),
            peer,
            method: request.method.clone(),
            host: request.headers.get(HOST).cloned(),
            uri: request.uri.clone(),
        }
    }
}

impl AccessLog {
    pub(super) fn new(lines: Lines) -> Self {
        AccessLog { lines }
    }

    /// Tells of a request and its response, from which it takes the page that the layer left in it.
    pub(crate) fn note<B: Body>(&self, arrival: Arrival, response: &mut Response<B>) {
        let (status, state) = (response.status(), response.headers().get(&STATE).cloned());
        let bytes = bytes(&arrival.method, response);
        let extensions = response.extensions_mut();
        let (page, verdict) = (extensions.remove::<PageKey>(), extensions.remove::<Verdict>());
        self.put(arrival, Outcome { status, state, bytes, page, verdict });
    }

    /// Tells of a request whose answer was at hand.
    pub(crate) fn note_hit(&self, arrival: Arrival, hit: &Hit<'_>) {
        let (status, bytes) = (hit.status(), u64::try_from(hit.body().len()).ok());
        let state = Some(HeaderValue::from_static(State::Hit.as_str()));
        self.put(arrival, Outcome { status, state, bytes, page: hit.page().cloned(), verdict: None });
    }

    fn put(&self, arrival: Arrival, outcome: Outcome) {
        let micros = u64::try_from(arrival.began.elapsed().as_micros()).unwrap_or(u64::MAX);
        let visit = Visit { at: SystemClock.now(), arrival, outcome, micros };
        self.lines.put(Line::Access(Box::new(visit)));
    }
}

/// How long the body is, where that is known before it is sent.
fn bytes<B: Body>(method: &Method, response: &Response<B>) -> Option<u64> {
    let is_empty = *method == Method::HEAD || response.status() == StatusCode::NOT_MODIFIED;
    if is_empty { Some(0) } else { response.body().size_hint().exact() }
}

/// What became of a request.
#[derive(Debug)]
struct Outcome {
    status: StatusCode,
    state: Option<HeaderValue>,
    page: Option<PageKey>,
    verdict: Option<Verdict>,
    bytes: Option<u64>,
}

/// A request that was answered.
#[derive(Debug)]
pub(super) struct Visit {
    at: Timestamp,
    arrival: Arrival,
    outcome: Outcome,
    /// Until the head of the answer was ready.
    micros: u64,
}

/// A request, as JSON.
#[derive(Serialize)]
struct Told<'a> {
    timestamp: &'a str,
    level: &'a str,
    message: &'a str,
    peer: IpAddr,
    method: &'a str,
    host: Cow<'a, str>,
    path: &'a str,
    status: u16,
    state: Cow<'a, str>,
    key: Option<String>,
    tenant: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    reason: Option<&'a str>,
    bytes: Option<u64>,
    duration_ms: f64,
}

impl Visit {
    #[expect(clippy::cast_precision_loss, reason = "nobody waits for 2^53 microseconds")]
    fn told<'a>(&'a self, timestamp: &'a str) -> Told<'a> {
        let text = |value: &'a Option<HeaderValue>| match value {
            Some(value) => String::from_utf8_lossy(value.as_bytes()),
            None => Cow::Borrowed(""),
        };
        let arrival = &self.arrival;
        let (method, host, path) =
            match self.outcome.verdict.as_ref().and_then(|verdict| verdict.seen.as_ref()) {
                Some(RejectedRequest { method, path }) => {
                    let method = method.as_ref().map_or(UNREADABLE, Method::as_str);
                    (method, Cow::Borrowed(UNREADABLE), path.as_deref().unwrap_or(UNREADABLE))
                }
                None => {
                    let authority =
                        arrival.uri.authority().map(|authority| Cow::Borrowed(authority.as_str()));
                    let host = authority.unwrap_or_else(|| text(&arrival.host));
                    (arrival.method.as_str(), host, arrival.uri.path())
                }
            };
        Told {
            timestamp,
            level: "INFO",
            message: "request",
            peer: arrival.peer,
            method,
            host,
            path,
            status: self.outcome.status.as_u16(),
            state: text(&self.outcome.state),
            key: self.outcome.page.as_ref().map(|page| page.redacted().to_string()),
            tenant: self.outcome.page.as_ref().and_then(PageKey::tenant).map(facetheory::Tenant::as_str),
            reason: self.outcome.verdict.as_ref().map(|verdict| verdict.reason),
            bytes: self.outcome.bytes,
            duration_ms: self.micros as f64 / 1000.0,
        }
    }

    pub(super) fn add_json(&self, text: &mut Vec<u8>) {
        let timestamp = rfc3339(self.at);
        let begun = text.len();
        match serde_json::to_writer(&mut *text, &self.told(&timestamp)) {
            Ok(()) => text.push(b'\n'),
            // Half a line would spoil the next one.
            Err(_) => text.truncate(begun),
        }
    }

    pub(super) fn add_human(&self, text: &mut Vec<u8>) {
        let timestamp = rfc3339(self.at);
        let told = self.told(&timestamp);
        let dash = |value: &str| if value.is_empty() { "-".to_owned() } else { escaped(value) };
        let bytes = told.bytes.map_or_else(|| "-".to_owned(), |bytes| bytes.to_string());
        let reason = told.reason.map(|reason| format!(": {reason}")).unwrap_or_default();
        let written = writeln!(
            text,
            "{timestamp} {} {} {} {} {} {} {bytes}B {:.1}ms {}{reason}",
            told.peer,
            dash(told.method),
            dash(&told.host),
            dash(told.path),
            told.status,
            dash(&told.state),
            told.duration_ms,
            dash(told.key.as_deref().unwrap_or_default()),
        );
        // A vector takes everything.
        drop(written);
    }
}

/// A text that cannot end its line, or make a terminal do anything.
fn escaped(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        if c.is_control() || c == ' ' { out.extend(c.escape_unicode()) } else { out.push(c) }
    }
    out
}

/// A time as in 2026-11-15T12:00:00.000Z.
pub(super) fn rfc3339(at: Timestamp) -> String {
    const DAY: i64 = 86_400;
    let (seconds, millis) = (at.millis().div_euclid(1000), at.millis().rem_euclid(1000));
    let (days, second) = (seconds.div_euclid(DAY), seconds.rem_euclid(DAY));
    let (year, month, day) = date(days);
    let (hour, minute, second) = (second / 3600, second / 60 % 60, second % 60);
    format!("{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}.{millis:03}Z")
}

/// Year, month and day of the Gregorian calendar, so many days after the beginning of 1970.
///
/// Years begin in March here, so that the leap day is their last one; 400 of them have always the same number of days.
fn date(days: i64) -> (i64, i64, i64) {
    const FOUR_CENTURIES: i64 = 146_097;
    /// From the first of March of the year 0 to 1970.
    const BEFORE_1970: i64 = 719_468;
    let days = days + BEFORE_1970;
    let (era, day) = (days.div_euclid(FOUR_CENTURIES), days.rem_euclid(FOUR_CENTURIES));
    let year = (day - day / 1460 + day / 36_524 - day / 146_096) / 365;
    let day = day - (365 * year + year / 4 - year / 100);
    let month = (5 * day + 2) / 153;
    let day_of_month = day - (153 * month + 2) / 5 + 1;
    let month = if month < 10 { month + 3 } else { month - 9 };
    (era * 400 + year + i64::from(month <= 2), month, day_of_month)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_told_as_everyone_reads_them() {
        for (millis, expected) in [
            (0, "1970-01-01T00:00:00.000Z"),
            (951_782_399_999, "2000-02-28T23:59:59.999Z"),
            (951_782_400_000, "2000-02-29T00:00:00.000Z"),
            (1_709_251_200_001, "2024-03-01T00:00:00.001Z"),
            (4_107_542_400_000, "2100-03-01T00:00:00.000Z"),
            (1_794_755_754_383, "2026-11-15T15:15:54.383Z"),
            (-1, "1969-12-31T23:59:59.999Z"),
        ] {
            assert_eq!(rfc3339(Timestamp::from_millis(millis)), expected);
        }
    }

    fn visit(host: &[u8]) -> Visit {
        let request = http::Request::get("/a?token=secret")
            .header(HOST, HeaderValue::from_bytes(host).expect("a value"));
        let (request, ()) = request.body(()).expect("a request").into_parts();
        let at = Timestamp::from_millis(0);
        let page = PageKey::new("default::a/{*rest}?rest=\u{85}\n2026 forged").expect("a page");
        Visit {
            at,
            arrival: Arrival::of(&request, IpAddr::from([127, 0, 0, 1])),
            outcome: Outcome {
                status: StatusCode::OK,
                state: Some(HeaderValue::from_static("hit")),
                page: Some(page),
                verdict: None,
                bytes: Some(7),
            },
            micros: 1234,
        }
    }

    #[tokio::test]
    async fn attack_61_control_characters_do_not_end_a_line() {
        let (mut human, mut json) = (Vec::new(), Vec::new());
        visit(b"a\tb\xff").add_human(&mut human);
        visit(b"a\tb\xff").add_json(&mut json);
        let human = String::from_utf8(human).expect("a text");
        assert_eq!(
            human,
            "1970-01-01T00:00:00.000Z 127.0.0.1 GET a\\u{9}b\u{fffd} /a 200 hit 7B 1.2ms \
             default::a/{*rest}?rest=\\u{85}\\u{a}2026\\u{20}forged\n"
        );
        assert!(!human.contains("secret"), "a query may have secrets");
        let json = String::from_utf8(json).expect("a text");
        assert_eq!(json.matches('\n').count(), 1);
        let told: serde_json::Value = serde_json::from_str(&json).expect("JSON");
        assert_eq!(told["key"], "default::a/{*rest}?rest=\u{85}\n2026 forged");
    }
}
