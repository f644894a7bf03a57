//! The access log: one line per request.

use std::borrow::Cow;
use std::cell::RefCell;
use std::net::IpAddr;

use facetheory::{Hit, PageKey, Rejected, State};
use http::header::{HOST, HeaderName, HeaderValue};
use http::request::Parts;
use http::{Method, Response, StatusCode, Uri};
use http_body::Body;
use tabletheory::{Clock as _, SystemClock, Timestamp};
use tokio::time::Instant;

use super::buffer::Lines;
use super::line::AccessLine;
use super::sample::Sampler;
use super::timestamp::TimestampText;
use crate::config::LogSample;
use crate::wire::RejectedRequest;

/// The response header with the cache state.
static STATE: HeaderName = HeaderName::from_static("x-facetheory-isr");

/// Stands for a part of a request that could not be parsed.
const UNREADABLE: &str = "-";

/// Logs requests.
#[derive(Debug)]
pub(crate) struct AccessLog {
    lines: Lines,
    sampler: Sampler,
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

/// The logged parts of a response.
#[derive(Debug)]
struct ResponseInfo<'a> {
    status: StatusCode,
    state: &'a [u8],
    page: Option<&'a PageKey>,
    reason: Option<&'a ResponseReason>,
    bytes: Option<u64>,
}

/// The memory in which a thread formats its lines.
#[derive(Debug, Default)]
struct Formatter {
    timestamp: TimestampText,
    line: Vec<u8>,
}

/// Longer lines do not stay in memory after they are formatted.
const MAX_KEPT_BYTES: usize = 16 * 1024;

thread_local! {
    static FORMATTER: RefCell<Formatter> = RefCell::default();
}

impl AccessLog {
    pub(super) fn new(lines: Lines, sample: LogSample) -> Self {
        AccessLog { lines, sampler: Sampler::new(sample) }
    }

    /// Logs a request, and removes the page key and the reason from the extensions of the response.
    pub(crate) fn log<B: Body>(&self, request: &RequestInfo, response: &mut Response<B>) {
        let extensions = response.extensions_mut();
        let (page, reason) = (extensions.remove::<PageKey>(), extensions.remove::<ResponseReason>());
        let is_rejected = reason.is_some() || extensions.get::<Rejected>().is_some();
        let response = ResponseInfo {
            status: response.status(),
            state: response.headers().get(&STATE).map_or(b"", HeaderValue::as_bytes),
            page: page.as_ref(),
            reason: reason.as_ref(),
            bytes: body_bytes(&request.method, response),
        };
        self.put(request, &response, is_rejected);
    }

    /// Logs a request that was served from the memory cache.
    pub(crate) fn log_hit(&self, request: &RequestInfo, hit: &Hit<'_>) {
        let response = ResponseInfo {
            status: hit.status(),
            state: State::Hit.as_str().as_bytes(),
            page: hit.page(),
            reason: None,
            bytes: u64::try_from(hit.body().len()).ok(),
        };
        self.put(request, &response, false);
    }

    /// Formats a line and puts it into the buffer, unless the request is not in the sample. This is cheaper than sending the
    /// parts of the line to another thread, and allocates nothing.
    fn put(&self, request: &RequestInfo, response: &ResponseInfo<'_>, is_rejected: bool) {
        if !is_rejected && !response.status.is_server_error() && !self.sampler.selects_next() {
            return;
        }
        let micros = u64::try_from(request.started.elapsed().as_micros()).unwrap_or(u64::MAX);
        FORMATTER.with_borrow_mut(|formatter| {
            let line = formatter.format(self.lines.is_json(), SystemClock.now(), request, response, micros);
            self.lines.put(line);
        });
    }
}

/// Returns the length of the body, if it is known before the body is sent.
fn body_bytes<B: Body>(method: &Method, response: &Response<B>) -> Option<u64> {
    let is_empty = *method == Method::HEAD || response.status() == StatusCode::NOT_MODIFIED;
    if is_empty { Some(0) } else { response.body().size_hint().exact() }
}

impl Formatter {
    fn format(
        &mut self,
        is_json: bool,
        at: Timestamp,
        request: &RequestInfo,
        response: &ResponseInfo<'_>,
        micros: u64,
    ) -> &[u8] {
        let line = line_of(self.timestamp.format(at), request, response, micros);
        self.line.clear();
        self.line.shrink_to(MAX_KEPT_BYTES);
        if is_json {
            line.add_json(&mut self.line)
        } else {
            line.add_human(&mut self.line)
        }
        &self.line
    }
}

#[expect(clippy::cast_precision_loss, reason = "no request takes 2^53 microseconds")]
fn line_of<'a>(
    timestamp: &'a str,
    request: &'a RequestInfo,
    response: &ResponseInfo<'a>,
    micros: u64,
) -> AccessLine<'a> {
    let rejected = response.reason.and_then(|reason| reason.rejected.as_ref());
    let (method, host, path) = match rejected {
        Some(RejectedRequest { method, path }) => {
            let method = method.as_ref().map_or(UNREADABLE, Method::as_str);
            (method, Cow::Borrowed(UNREADABLE), path.as_deref().unwrap_or(UNREADABLE))
        }
        None => {
            let authority = request.uri.authority().map(|authority| authority.as_str().as_bytes());
            let host = authority.or_else(|| request.host.as_ref().map(HeaderValue::as_bytes));
            let host = String::from_utf8_lossy(host.unwrap_or_default());
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
        state: String::from_utf8_lossy(response.state),
        page: response.page,
        tenant: response.page.and_then(PageKey::tenant),
        reason: response.reason.map(|reason| reason.reason),
        bytes: response.bytes,
        duration_ms: micros as f64 / 1000.0,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::log::buffer::{Output, Style};

    fn request(host: &[u8]) -> RequestInfo {
        let host = HeaderValue::from_bytes(host).expect("a value");
        let request = http::Request::get("/a?token=secret").header(HOST, host);
        let (request, ()) = request.body(()).expect("a request").into_parts();
        RequestInfo::new(&request, IpAddr::from([127, 0, 0, 1]))
    }

    fn response(page: &PageKey) -> ResponseInfo<'_> {
        ResponseInfo { status: StatusCode::OK, state: b"hit", page: Some(page), reason: None, bytes: Some(7) }
    }

    fn formatted(is_json: bool, request: &RequestInfo, response: &ResponseInfo<'_>, micros: u64) -> String {
        let at = Timestamp::from_millis(0);
        let line = Formatter::default().format(is_json, at, request, response, micros).to_vec();
        String::from_utf8(line).expect("a text")
    }

    #[tokio::test]
    async fn attack_61_control_characters_do_not_end_a_line() {
        let page = PageKey::new("default::a/{*rest}?rest=\u{85}\n2026 forged").expect("a page");
        let (request, response) = (request(b"a\tb\xff"), response(&page));
        let human = formatted(false, &request, &response, 1234);
        assert_eq!(
            human,
            "1970-01-01T00:00:00.000Z 127.0.0.1 GET a\\u{9}b\u{fffd} /a 200 hit 7B 1.2ms \
             default::a/{*rest}?rest=\\u{85}\\u{a}2026\\u{20}forged\n"
        );
        assert!(!human.contains("secret"), "a query may contain secrets");
        let json = formatted(true, &request, &response, 1234);
        assert_eq!(json.matches('\n').count(), 1);
        let line: serde_json::Value = serde_json::from_str(&json).expect("JSON");
        assert_eq!(line["key"], "default::a/{*rest}?rest=\u{85}\n2026 forged");
    }

    #[tokio::test]
    async fn a_line_has_all_parts_in_both_formats() {
        let page = PageKey::new("default::a/b").expect("a page");
        let (request, whole) = (request(b"a.example"), response(&page));
        assert_eq!(
            formatted(true, &request, &whole, 1234),
            "{\"timestamp\":\"1970-01-01T00:00:00.000Z\",\"level\":\"INFO\",\"message\":\"request\",\
             \"peer\":\"127.0.0.1\",\"method\":\"GET\",\"host\":\"a.example\",\"path\":\"/a\",\"status\":200,\
             \"state\":\"hit\",\"key\":\"default::a/b\",\"tenant\":null,\"bytes\":7,\"duration_ms\":1.234}\n"
        );
        let reason = ResponseReason { reason: "too slow", rejected: Some(RejectedRequest::default()) };
        let rejected = ResponseInfo {
            status: StatusCode::REQUEST_TIMEOUT,
            state: b"",
            page: None,
            reason: Some(&reason),
            bytes: None,
        };
        assert_eq!(
            formatted(true, &request, &rejected, 0),
            "{\"timestamp\":\"1970-01-01T00:00:00.000Z\",\"level\":\"INFO\",\"message\":\"request\",\
             \"peer\":\"127.0.0.1\",\"method\":\"-\",\"host\":\"-\",\"path\":\"-\",\"status\":408,\
             \"state\":\"\",\"key\":null,\"tenant\":null,\"reason\":\"too slow\",\"bytes\":null,\
             \"duration_ms\":0.0}\n"
        );
        assert_eq!(
            formatted(false, &request, &rejected, 0),
            "1970-01-01T00:00:00.000Z 127.0.0.1 - - - 408 - -B 0.0ms -: too slow\n"
        );
    }

    #[tokio::test]
    async fn a_logged_request_allocates_nothing() {
        for style in [Style::Json, Style::Human { colours: false }] {
            let output = Output::start(std::io::sink(), style).expect("a thread");
            let log = AccessLog::new(output.lines(), LogSample::default());
            let page = PageKey::new("default::a/b").expect("a page");
            let (request, response) = (request(b"a.example"), response(&page));
            // The buffers grow until they are large enough, so the best of several lines counts.
            let allocations =
                || allocation_counter::measure(|| log.put(&request, &response, false)).count_total;
            assert_eq!((0..10).map(|_| allocations()).min(), Some(0), "{style:?}");
        }
    }
}
