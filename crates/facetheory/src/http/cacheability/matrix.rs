//! Method, status, headers and request against the decision of a rule: one row each.

use super::*;
use crate::http::headers::TAG_HEADERS;
use crate::pages::policy::Policy;

/// Method, status, headers of the response (separated by `;;`), request and route, and the decision.
///
/// The route lists `accept-language` and a cookie where the fourth column says `keyed`, and `authorization` where it says
/// `partitioned`; it has a fixed interval where it says `fixed`. The body is `<p>hello</p>`, unless the fourth column says
/// otherwise.
const ROWS: &[(&str, u16, &str, &str, &str)] = &[
    // Methods.
    ("GET", 200, "", "", "store"),
    ("HEAD", 200, "", "", "store"),
    ("POST", 200, "", "", "decline: only responses to GET and HEAD are cached"),
    ("PUT", 200, "", "", "decline: only responses to GET and HEAD are cached"),
    ("DELETE", 200, "", "", "decline: only responses to GET and HEAD are cached"),
    ("OPTIONS", 200, "", "", "decline: only responses to GET and HEAD are cached"),
    ("PATCH", 404, "", "", "decline: only responses to GET and HEAD are cached"),
    ("POST", 500, "", "", "fail: the origin failed with status 500"),
    // Statuses.
    ("GET", 101, "", "", "fail: the origin sent no final response (1xx)"),
    ("GET", 103, "", "", "fail: the origin sent no final response (1xx)"),
    ("GET", 201, "", "", "decline: responses with status 201 are not cached"),
    ("GET", 203, "", "", "store"),
    ("GET", 204, "", "empty", "decline: responses with status 204 are not cached"),
    ("GET", 205, "", "empty", "decline: responses with status 205 are not cached"),
    ("GET", 206, "", "", "fail: the origin sent a part (206) of the page"),
    ("GET", 300, "location: /b", "", "decline: responses with status 300 are not cached"),
    ("GET", 301, "location: /b", "", "store"),
    ("GET", 301, "location: /b", "empty", "store"),
    ("GET", 302, "location: /b", "empty", "store"),
    ("GET", 303, "location: /b", "empty", "store"),
    ("GET", 304, "", "empty", "fail: the origin sent 304 to a request without a condition"),
    ("GET", 307, "location: /b", "empty", "store"),
    ("GET", 308, "location: /b", "empty", "store"),
    ("GET", 302, "", "", "decline: the redirect has no Location"),
    ("GET", 308, "", "empty", "decline: the redirect has no Location"),
    ("GET", 400, "", "", "decline: responses with status 400 are not cached"),
    ("GET", 401, "", "", "decline: responses with status 401 are not cached"),
    ("GET", 403, "", "", "decline: responses with status 403 are not cached"),
    ("GET", 404, "", "", "store for 10 s"),
    ("GET", 404, "", "empty", "store for 10 s"),
    ("HEAD", 410, "", "", "store for 10 s"),
    ("GET", 404, "cache-control: s-maxage=3", "", "store for 3 s"),
    ("GET", 404, "cache-control: no-store", "", "decline: the response says no-store"),
    ("GET", 429, "", "", "fail: the origin limits the request rate (429)"),
    ("GET", 451, "", "", "decline: responses with status 451 are not cached"),
    ("GET", 500, "", "", "fail: the origin failed with status 500"),
    ("GET", 500, "cache-control: public, s-maxage=60", "", "fail: the origin failed with status 500"),
    ("GET", 502, "", "", "fail: the origin failed with status 502"),
    ("GET", 503, "", "empty", "fail: the origin failed with status 503"),
    ("GET", 504, "", "", "fail: the origin failed with status 504"),
    // Cache-Control.
    ("GET", 200, "cache-control: public", "", "store"),
    ("GET", 200, "cache-control: max-age=5", "", "store"),
    ("GET", 200, "cache-control: max-age=0, must-revalidate", "", "store"),
    ("GET", 200, "cache-control: s-maxage=5", "", "store for 5 s"),
    ("GET", 200, "cache-control: max-age=9;;cache-control: S-MAXAGE=\"5\"", "", "store for 5 s"),
    ("GET", 200, "cache-control: s-maxage=5", "fixed", "store"),
    ("GET", 404, "cache-control: s-maxage=5", "fixed", "store for 10 s"),
    ("GET", 200, "cache-control: s-maxage=0", "fixed", "decline: the response is never fresh"),
    ("GET", 200, "cache-control: s-maxage=0", "", "decline: the response is never fresh"),
    ("GET", 200, "cache-control: s-maxage=-1", "", "decline: the response is never fresh"),
    ("GET", 200, "cache-control: no-store", "", "decline: the response says no-store"),
    ("GET", 200, "cache-control: public, s-maxage=9, No-Store", "", "decline: the response says no-store"),
    ("GET", 200, "cache-control: must-understand, no-store", "", "decline: the response says no-store"),
    ("HEAD", 200, "cache-control: no-store", "", "decline: the response says no-store"),
    ("GET", 301, "location: /b;;cache-control: no-store", "", "decline: the response says no-store"),
    ("GET", 200, "cache-control: private", "", "decline: the response says private"),
    ("GET", 200, "cache-control: public;;cache-control: PRIVATE", "", "decline: the response says private"),
    ("GET", 200, "cache-control: private=\"x-name\"", "", "decline: the response says private"),
    ("GET", 200, "cache-control: no-cache", "", "decline: the response says no-cache"),
    ("GET", 200, "cache-control: no-cache=\"set-cookie\"", "", "decline: the response says no-cache"),
    ("GET", 200, "cache-control: nonsense, =, max-age", "", "store"),
    ("GET", 200, "expires: 0;;pragma: no-cache", "", "store"),
    // Cookies.
    ("GET", 200, "set-cookie: a=1", "", "decline: the response sets a cookie"),
    (
        "GET",
        200,
        "set-cookie: a=1;;cache-control: public, s-maxage=9",
        "",
        "decline: the response sets a cookie",
    ),
    ("HEAD", 200, "set-cookie: a=1", "", "decline: the response sets a cookie"),
    ("GET", 404, "set-cookie: a=1", "", "decline: the response sets a cookie"),
    ("GET", 302, "location: /b;;set-cookie: a=1", "", "decline: the response sets a cookie"),
    ("GET", 503, "set-cookie: a=1", "", "fail: the origin failed with status 503"),
    ("GET", 200, "set-cookie: a=1", "keyed", "decline: the response sets a cookie"),
    // Authorization.
    ("GET", 200, "", "authorization", AUTHORIZATION),
    ("HEAD", 200, "", "authorization", AUTHORIZATION),
    ("GET", 404, "", "authorization", AUTHORIZATION),
    ("GET", 200, "cache-control: public, s-maxage=60", "authorization", AUTHORIZATION),
    ("GET", 200, "", "authorization partitioned", "store"),
    ("GET", 200, "cache-control: private", "authorization partitioned", "decline: the response says private"),
    ("GET", 200, "vary: authorization", "authorization partitioned", "store"),
    (
        "GET",
        200,
        "vary: authorization",
        "",
        "decline: the response varies on authorization; list that header in the route to cache it",
    ),
    ("GET", 500, "", "authorization", "fail: the origin failed with status 500"),
    // Vary.
    ("GET", 200, "vary: Accept-Encoding, Host", "", "store"),
    ("GET", 200, "vary: *", "", "decline: the response varies on everything (Vary: *)"),
    (
        "GET",
        200,
        "vary: accept-encoding;;vary: *",
        "keyed",
        "decline: the response varies on everything (Vary: *)",
    ),
    ("GET", 200, "vary: Accept-Language", "keyed", "store"),
    ("GET", 200, "vary: Cookie", "keyed", "store"),
    (
        "GET",
        200,
        "vary: Cookie",
        "",
        "decline: the response varies on cookie; list that header in the route to cache it",
    ),
    (
        "GET",
        200,
        "vary: user-agent",
        "keyed",
        "decline: the response varies on user-agent; list that header in the route to cache it",
    ),
    // Bodies.
    ("GET", 200, "", "empty", "decline: the page is empty"),
    ("HEAD", 200, "", "empty", "decline: the page is empty"),
    ("GET", 200, "content-length: 12", "", "store"),
    ("GET", 200, "content-length: 13", "", TRUNCATED),
    ("GET", 200, "content-length: nonsense", "", TRUNCATED),
    ("GET", 200, "", "long", "decline: the page is longer than 100 bytes"),
    (
        "GET",
        200,
        "content-encoding: gzip",
        "",
        "decline: the response has a Content-Encoding that was not requested",
    ),
    ("GET", 200, "content-encoding: identity", "", "store"),
    // Cache hints.
    ("GET", 200, "", "hint", "store for 7 s"),
    ("GET", 200, "cache-control: s-maxage=9", "hint", "store for 7 s"),
    ("GET", 200, "cache-control: s-maxage=9", "hint fixed", "store for 7 s"),
    ("GET", 404, "", "hint", "store for 7 s"),
    ("GET", 200, "", "never", "decline: the cache hint says that it is never cached"),
    ("GET", 200, "cache-control: no-store", "hint", "decline: the response says no-store"),
];

const AUTHORIZATION: &str =
    "decline: the request has Authorization; list that header in the route to cache a page for each value";
const TRUNCATED: &str = "fail: the body is shorter or longer than its Content-Length, or was cut off";

pub(super) const NOW: Timestamp = Timestamp::from_seconds(1_700_000_000);

/// A response with status 200 to a GET request.
pub(super) fn response<'a>(route: &'a Route, headers: &'a HeaderMap, request: &'a HeaderMap) -> Received<'a> {
    Received {
        route,
        method: &Method::GET,
        request,
        status: StatusCode::OK,
        headers,
        hint: None,
        bytes: Some(5),
        requested: NOW,
        received: NOW,
        has_usable_stored: false,
        is_revalidated: false,
        limits: Limits { max_bytes: 100, allows_new: true },
        tag_headers: &TAG_HEADERS,
    }
}

fn route() -> Route {
    let mut policy = Policy::every(Duration::from_secs(60));
    policy.negative_ttl = Duration::from_secs(10);
    Route::new("/", policy)
}

fn headers_of(lines: &[(HeaderName, &[u8])]) -> HeaderMap {
    let value = |bytes: &[u8]| HeaderValue::from_bytes(bytes).expect("a valid value");
    lines.iter().map(|(name, bytes)| (name.clone(), value(bytes))).collect()
}

fn decision(row: &(&str, u16, &str, &str, &str)) -> String {
    let (method, status, headers, request, _) = *row;
    let line = |line: &str| {
        let (name, value) = line.split_once(": ").expect("a header");
        (HeaderName::try_from(name).expect("a name"), HeaderValue::try_from(value).expect("a value"))
    };
    let headers: HeaderMap = headers.split(";;").filter(|text| !text.is_empty()).map(line).collect();
    let mut route = route();
    if request.contains("keyed") {
        route = route.headers(["accept-language"]).cookies(["theme"]);
    }
    if request.contains("partitioned") {
        route = route.headers(["authorization"]);
    }
    if request.contains("fixed") {
        route = route.fixed_interval();
    }
    let hint = match request {
        "hint" | "hint fixed" => Some(CacheHint::new().fresh_for(Duration::from_secs(7))),
        "never" => Some(CacheHint::new().never_cached()),
        _ => None,
    };
    let is_authorized = request.contains("authorization");
    let sent = if is_authorized {
        headers_of(&[(http::header::AUTHORIZATION, b"Bearer x")])
    } else {
        HeaderMap::new()
    };
    let received = Received {
        method: &Method::try_from(method).expect("a method"),
        status: StatusCode::from_u16(status).expect("a status"),
        hint: hint.as_ref(),
        bytes: Some(match request {
            "empty" => 0,
            "long" => 101,
            _ => 12,
        }),
        ..response(&route, &headers, &sent)
    };
    match received.decide() {
        StoreDecision::Store(Storable { fresh_for: None, .. }) => "store".to_owned(),
        StoreDecision::Store(Storable { fresh_for: Some(time), .. }) => {
            format!("store for {} s", time.as_secs())
        }
        StoreDecision::Decline(reason) => format!("decline: {reason}"),
        StoreDecision::Fail(reason) => format!("fail: {reason}"),
    }
}

/// `cargo test -p facetheory --all-features --lib matrix -- --nocapture` prints the table.
#[test]
fn the_matrix_of_a_rule_says_what_is_cached() {
    assert!(ROWS.len() >= 60, "{} rows", ROWS.len());
    println!(
        "{:<8} {:<6} {:<52} {:<26} decision",
        "method", "status", "response headers", "request and route"
    );
    for row in ROWS {
        let (method, status, headers, request, expected) = *row;
        println!("{method:<8} {status:<6} {headers:<52} {request:<26} {expected}");
        assert_eq!(decision(row), expected, "{row:?}");
    }
}

#[test]
fn tags_come_from_headers_and_hints_each_once_and_up_to_the_limit() {
    let tagged = |lines: &[(HeaderName, &str)], hint: Option<&CacheHint>| {
        let lines: Vec<(HeaderName, &[u8])> =
            lines.iter().map(|(name, value)| (name.clone(), value.as_bytes())).collect();
        let (route, headers, request) = (route(), headers_of(&lines), HeaderMap::new());
        let received = Received { hint, ..response(&route, &headers, &request) };
        let StoreDecision::Store(storable) = received.decide() else { panic!("not stored") };
        assert!(storable.headers.is_empty(), "tags are for the cache, not for clients");
        let names: Vec<String> = storable.tags.iter().map(|tag| tag.as_str().to_owned()).collect();
        (names, storable.ignored_tags)
    };
    let hint = CacheHint::new().tag(Tag::new("typed").expect("a tag"));
    let (tags, ignored) = tagged(
        &[
            (HeaderName::from_static("surrogate-key"), "a b  typed"),
            (HeaderName::from_static("cache-tag"), "b, c d,,e,path=/x"),
        ],
        Some(&hint),
    );
    assert_eq!(tags, ["typed", "a", "b", "c", "d", "e", "t:path=/x"]);
    assert_eq!(ignored, 0);
    for name in &TAG_HEADERS {
        let (tags, _) = tagged(&[(name.clone(), "a, b\tc"), (name.clone(), "d")], None);
        assert_eq!(tags, ["a", "b", "c", "d"], "{name}");
    }
    let many: Vec<String> = (0..MAX_TAGS + 3).map(|n| n.to_string()).collect();
    let (tags, ignored) = tagged(&[(HeaderName::from_static("cache-tag"), &many.join(","))], None);
    assert_eq!((tags.len(), ignored), (MAX_TAGS, 3));
    let long = "x".repeat(Tag::MAX_BYTES + 1);
    assert_eq!(tagged(&[(HeaderName::from_static("surrogate-key"), &long)], None), (vec![], 1));
}

#[test]
fn a_page_with_headers_that_a_row_cannot_hold_is_not_cached() {
    let (route, headers) = (route(), headers_of(&[(http::header::LINK, b"\xff")]));
    assert_eq!(
        response(&route, &headers, &HeaderMap::new()).decide(),
        StoreDecision::Decline(UncacheableReason::UnreadableHeader(http::header::LINK))
    );
}

#[test]
fn an_overriding_rule_ignores_cache_control_but_never_a_cookie() {
    let headers = |line: &'static str| headers_of(&[(http::header::CACHE_CONTROL, line.as_bytes())]);
    let decision = |headers: &HeaderMap, overrides| {
        let route = if overrides { route().overriding() } else { route() };
        response(&route, headers, &HeaderMap::new()).decide()
    };
    for line in ["no-store", "private", "no-cache", "s-maxage=0", "private, no-cache, no-store, max-age=0"] {
        assert!(matches!(decision(&headers(line), false), StoreDecision::Decline(_)), "{line}");
        let StoreDecision::Store(storable) = decision(&headers(line), true) else { panic!("{line}") };
        assert_eq!(storable.fresh_for, None, "{line}");
    }
    let mut cookie = headers("no-store");
    cookie.insert(SET_COOKIE, HeaderValue::from_static("a=1"));
    assert_eq!(decision(&cookie, true), StoreDecision::Decline(UncacheableReason::SetCookie));
}
