//! The access log: one line per request.

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
use time::OffsetDateTime;
use tokio::time::Instant;

use super::queue::{Line, Lines};
use crate::wire::RejectedRequest;

/// The response header with the cache state.
static STATE: HeaderName = HeaderName::from_static("x-facetheory-isr");

/// Stands for a part of a request that could not be parsed.
const UNREADABLE: &str = "-";

/// Logs requests.
#[derive(Clone, Debug)]
pub(crate) struct AccessLog {
    lines: Lines,
}

/// Why the gateway itself generated a response. It is passed to the access log in the extensions of the response.
#[derive(Clone, Debug)]
pub(crate) struct ResponseReason {
    pub(crate) reason: &'static str,
    /// The request of the client, if it was rejected and the service received a placeholder for it.
    pub(crate) rejected: Option<RejectedRequest>,
}

/// The logged parts of a request. They are shared with the request, not copied.
#[derive(Debug)]
pub(crate) struct RequestInfo {
    started: Instant,
    peer: IpAddr,
    method: Method,
    host: Option<HeaderValue>,
    uri: Uri,
}

impl RequestInfo {
    /// Records a request that was received just now.
    pub(crate) fn new(request: &Parts, peer: IpAddr) -> Self {
        RequestInfo {
            started: Instant::now(),
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

    /// Logs a request, and removes the page key and the reason from the extensions of the response.
    pub(crate) fn log<B: Body>(&self, request: RequestInfo, response: &mut Response<B>) {
        let (status, state) = (response.status(), response.headers().get(&STATE).cloned());
        let bytes = body_bytes(&request.method, response);
        let extensions = response.extensions_mut();
        let (page, reason) = (extensions.remove::<PageKey>(), extensions.remove::<ResponseReason>());
        self.put(request, ResponseInfo { status, state, bytes, page, reason });
    }

    /// Logs a request that was served from the memory cache.
    pub(crate) fn log_hit(&self, request: RequestInfo, hit: &Hit<'_>) {
        let (status, bytes) = (hit.status(), u64::try_from(hit.body().len()).ok());
        let state = Some(HeaderValue::from_static(State::Hit.as_str()));
        self.put(request, ResponseInfo { status, state, bytes, page: hit.page().cloned(), reason: None });
    }

    fn put(&self, request: RequestInfo, response: ResponseInfo) {
        let micros = u64::try_from(request.started.elapsed().as_micros()).unwrap_or(u64::MAX);
        let entry = AccessEntry { at: SystemClock.now(), request, response, micros };
        self.lines.put(Line::Access(Box::new(entry)));
    }
}

/// Returns the length of the body, if it is known before the body is sent.
fn body_bytes<B: Body>(method: &Method, response: &Response<B>) -> Option<u64> {
    let is_empty = *method == Method::HEAD || response.status() == StatusCode::NOT_MODIFIED;
    if is_empty { Some(0) } else { response.body().size_hint().exact() }
}

/// The logged parts of a response.
#[derive(Debug)]
struct ResponseInfo {
    status: StatusCode,
    state: Option<HeaderValue>,
    page: Option<PageKey>,
    reason: Option<ResponseReason>,
    bytes: Option<u64>,
}

/// A request and its response.
#[derive(Debug)]
pub(super) struct AccessEntry {
    at: Timestamp,
    request: RequestInfo,
    response: ResponseInfo,
    /// The time until the response headers were ready.
    micros: u64,
}

/// A log line in JSON.
#[derive(Serialize)]
struct AccessLine<'a> {
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

impl AccessEntry {
    #[expect(clippy::cast_precision_loss, reason = "no request takes 2^53 microseconds")]
    fn line<'a>(&'a self, timestamp: &'a str) -> AccessLine<'a> {
        let text = |value: &'a Option<HeaderValue>| match value {
            Some(value) => String::from_utf8_lossy(value.as_bytes()),
            None => Cow::Borrowed(""),
        };
        let AccessEntry { request, response, .. } = self;
        let (method, host, path) = match response.reason.as_ref().and_then(|reason| reason.rejected.as_ref())
        {
            Some(RejectedRequest { method, path }) => {
                let method = method.as_ref().map_or(UNREADABLE, Method::as_str);
                (method, Cow::Borrowed(UNREADABLE), path.as_deref().unwrap_or(UNREADABLE))
            }
            None => {
                let authority = request.uri.authority().map(|authority| Cow::Borrowed(authority.as_str()));
                let host = authority.unwrap_or_else(|| text(&request.host));
                (request.method.as_str(), host, request.uri.path())
            }
        };
        AccessLine {
            timestamp,
            level: "INFO",
            message: "request",
            peer: request.peer,
            method,
            host,
            path,
            status: response.status.as_u16(),
            state: text(&response.state),
            key: response.page.as_ref().map(|page| page.redacted().to_string()),
            tenant: response.page.as_ref().and_then(PageKey::tenant).map(facetheory::Tenant::as_str),
            reason: response.reason.as_ref().map(|reason| reason.reason),
            bytes: response.bytes,
            duration_ms: self.micros as f64 / 1000.0,
        }
    }

    pub(super) fn add_json(&self, text: &mut Vec<u8>) {
        let timestamp = rfc3339(self.at);
        let start = text.len();
        match serde_json::to_writer(&mut *text, &self.line(&timestamp)) {
            Ok(()) => text.push(b'\n'),
            // A partial line would corrupt the next one.
            Err(_) => text.truncate(start),
        }
    }

    pub(super) fn add_human(&self, text: &mut Vec<u8>) {
        let timestamp = rfc3339(self.at);
        let line = self.line(&timestamp);
        let dash = |value: &str| if value.is_empty() { "-".to_owned() } else { escaped(value) };
        let bytes = line.bytes.map_or_else(|| "-".to_owned(), |bytes| bytes.to_string());
        let reason = line.reason.map(|reason| format!(": {reason}")).unwrap_or_default();
        let written = writeln!(
            text,
            "{timestamp} {} {} {} {} {} {} {bytes}B {:.1}ms {}{reason}",
            line.peer,
            dash(line.method),
            dash(&line.host),
            dash(line.path),
            line.status,
            dash(&line.state),
            line.duration_ms,
            dash(line.key.as_deref().unwrap_or_default()),
        );
        // Writing to a `Vec` cannot fail.
        drop(written);
    }
}

/// Escapes control characters, which could end the line or control a terminal, and spaces.
fn escaped(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        if c.is_control() || c == ' ' { out.extend(c.escape_unicode()) } else { out.push(c) }
    }
    out
}

/// Formats a time like 2026-11-15T12:00:00.000Z.
pub(super) fn rfc3339(at: Timestamp) -> String {
    let (seconds, millis) = (at.millis().div_euclid(1000), at.millis().rem_euclid(1000));
    let time = OffsetDateTime::from_unix_timestamp(seconds).unwrap_or(OffsetDateTime::UNIX_EPOCH);
    let ((year, month, day), (hour, minute, second)) = (time.to_calendar_date(), time.to_hms());
    let month = u8::from(month);
    format!("{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}.{millis:03}Z")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_formatted_as_rfc_3339() {
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

    fn entry(host: &[u8]) -> AccessEntry {
        let request = http::Request::get("/a?token=secret")
            .header(HOST, HeaderValue::from_bytes(host).expect("a value"));
        let (request, ()) = request.body(()).expect("a request").into_parts();
        let at = Timestamp::from_millis(0);
        let page = PageKey::new("default::a/{*rest}?rest=\u{85}\n2026 forged").expect("a page");
        AccessEntry {
            at,
            request: RequestInfo::new(&request, IpAddr::from([127, 0, 0, 1])),
            response: ResponseInfo {
                status: StatusCode::OK,
                state: Some(HeaderValue::from_static("hit")),
                page: Some(page),
                reason: None,
                bytes: Some(7),
            },
            micros: 1234,
        }
    }

    #[tokio::test]
    async fn attack_61_control_characters_do_not_end_a_line() {
        let (mut human, mut json) = (Vec::new(), Vec::new());
        entry(b"a\tb\xff").add_human(&mut human);
        entry(b"a\tb\xff").add_json(&mut json);
        let human = String::from_utf8(human).expect("a text");
        assert_eq!(
            human,
            "1970-01-01T00:00:00.000Z 127.0.0.1 GET a\\u{9}b\u{fffd} /a 200 hit 7B 1.2ms \
             default::a/{*rest}?rest=\\u{85}\\u{a}2026\\u{20}forged\n"
        );
        assert!(!human.contains("secret"), "a query may contain secrets");
        let json = String::from_utf8(json).expect("a text");
        assert_eq!(json.matches('\n').count(), 1);
        let line: serde_json::Value = serde_json::from_str(&json).expect("JSON");
        assert_eq!(line["key"], "default::a/{*rest}?rest=\u{85}\n2026 forged");
    }
}
