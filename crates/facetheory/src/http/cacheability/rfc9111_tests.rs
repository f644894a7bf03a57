//! Decisions where the origin's headers say how a response is cached.

use super::matrix::{NOW, response};
use super::*;
use crate::http::semantics::date::format_date;
use crate::http::test_support::header_map as map;

fn result(received: Received<'_>) -> Result<Storable, UncacheableReason> {
    match received.decide() {
        StoreDecision::Store(storable) => Ok(storable),
        StoreDecision::Decline(reason) => Err(reason),
        StoreDecision::Fail(reason) => panic!("failed: {reason}"),
    }
}

fn stored(
    method: &Method,
    request: &[(&'static str, &str)],
    status: u16,
    lines: &[(&'static str, &str)],
) -> Result<Storable, UncacheableReason> {
    let (route, request, headers) = (Route::follow_origin("/"), map(request), map(lines));
    let status = StatusCode::from_u16(status).expect("a status");
    result(Received { method, status, ..response(&route, &headers, &request) })
}

fn get(status: u16, lines: &[(&'static str, &str)]) -> Result<Storable, UncacheableReason> {
    stored(&Method::GET, &[], status, lines)
}

fn control(line: &str) -> Result<Storable, UncacheableReason> {
    get(200, &[("cache-control", line)])
}

#[test]
fn rfc9111_3_only_responses_to_get_are_stored() {
    for method in [Method::HEAD, Method::POST, Method::PUT, Method::OPTIONS] {
        assert_eq!(
            stored(&method, &[], 200, &[("cache-control", "max-age=60")]),
            Err(UncacheableReason::Method),
            "{method}"
        );
    }
}

#[test]
fn rfc9111_3_any_final_status_with_explicit_freshness_is_stored() {
    for status in [200, 203, 204, 299, 301, 302, 303, 307, 308, 404, 410, 499, 500, 502, 503, 504, 599] {
        assert!(get(status, &[("cache-control", "max-age=60")]).is_ok(), "{status}");
    }
    for status in [400, 406, 408, 411, 412, 413, 414, 415, 416, 417, 421, 426, 428, 429, 431, 501] {
        let reason = UncacheableReason::Status(StatusCode::from_u16(status).expect("a status"));
        assert_eq!(get(status, &[("cache-control", "max-age=60")]), Err(reason));
    }
    assert_eq!(get(101, &[("cache-control", "max-age=60")]), Err(UncacheableReason::Informational));
    assert_eq!(get(304, &[("cache-control", "max-age=60")]), Err(UncacheableReason::NotModified));
}

#[test]
fn rfc9111_3_3_a_part_is_not_stored_as_the_whole() {
    assert_eq!(get(206, &[("cache-control", "max-age=60")]), Err(UncacheableReason::Partial));
}

#[test]
fn rfc9111_5_2_2_5_no_store_is_never_stored() {
    assert_eq!(control("max-age=60, No-Store"), Err(UncacheableReason::NoStore));
    assert_eq!(control("no-store=\"x\", public, max-age=60"), Err(UncacheableReason::NoStore));
}

#[test]
fn rfc9111_5_2_2_7_private_is_not_stored_even_for_some_fields_only() {
    assert_eq!(control("max-age=60, private"), Err(UncacheableReason::Private));
    assert_eq!(control("max-age=60, private=\"x-a\""), Err(UncacheableReason::Private));
}

#[test]
fn rfc9111_5_2_2_3_must_understand_overrides_no_store_for_a_known_status() {
    let line = [("cache-control", "max-age=60, must-understand, no-store")];
    assert!(get(200, &line).is_ok());
    assert!(matches!(get(599, &line), Err(UncacheableReason::Status(_))));
    assert!(matches!(
        get(599, &[("cache-control", "max-age=60, must-understand")]),
        Err(UncacheableReason::Status(_))
    ));
}

#[test]
fn rfc9111_3_5_an_authorized_response_is_stored_only_if_it_may_be_shared() {
    let authorized = |line: &str| {
        stored(&Method::GET, &[("authorization", "x")], 200, &[("cache-control", line)]).map(|_| ())
    };
    assert_eq!(authorized("max-age=60"), Err(UncacheableReason::Authorization));
    for line in ["max-age=60, public", "max-age=60, must-revalidate", "s-maxage=60"] {
        assert_eq!(authorized(line), Ok(()), "{line}");
    }
}

#[test]
fn rfc9111_7_3_a_response_that_sets_a_cookie_is_never_stored() {
    let lines = [("cache-control", "public, max-age=60"), ("set-cookie", "a=1")];
    assert_eq!(get(200, &lines), Err(UncacheableReason::SetCookie));
}

#[test]
fn rfc9111_4_2_a_response_without_freshness_and_validator_is_not_stored() {
    assert_eq!(get(200, &[]), Err(UncacheableReason::NeverFresh));
    assert_eq!(control("max-age=0"), Err(UncacheableReason::NeverFresh));
    assert_eq!(control("no-cache"), Err(UncacheableReason::NeverFresh));
    assert_eq!(
        get(200, &[("cache-control", "max-age=60"), ("age", "60")]),
        Err(UncacheableReason::NeverFresh)
    );
    let validated = get(200, &[("etag", "\"a\"")]).expect("it can be validated");
    assert_eq!(validated.fresh_for, Some(Duration::ZERO));
    assert!(matches!(get(201, &[("etag", "\"a\"")]), Err(UncacheableReason::Status(_))), "nothing allows it");
    assert!(control("max-age=0, stale-while-revalidate=60").is_ok());
    assert_eq!(
        control("max-age=0, stale-while-revalidate=60, must-revalidate"),
        Err(UncacheableReason::NeverFresh)
    );
}

#[test]
fn rfc9111_4_2_2_a_response_to_a_cookie_needs_explicit_directives_to_be_stored() {
    let (cookie, later) = ([("cookie", "sid=alice")], format_date(NOW + Duration::from_secs(60)));
    let with_cookie = |lines: &[(&'static str, &str)]| stored(&Method::GET, &cookie, 200, lines);
    let (modified, later) = (("last-modified", "Sun, 06 Nov 1994 08:49:37 GMT"), later.expect("a date"));
    for silent in [
        &[("etag", "\"a\"")][..],
        &[modified],
        &[modified, ("cache-control", "must-revalidate")],
        &[modified, ("vary", "cookie")],
        &[modified, ("expires", &later), ("cdn-cache-control", "must-revalidate")],
    ] {
        assert!(get(200, silent).is_ok(), "{silent:?}");
        assert_eq!(with_cookie(silent), Err(UncacheableReason::Credentials), "{silent:?}");
    }
    for header in [
        ("cache-control", "max-age=60"),
        ("cache-control", "s-maxage=60"),
        ("cache-control", "public"),
        ("cdn-cache-control", "max-age=60"),
        ("expires", &later),
    ] {
        assert!(with_cookie(&[modified, header]).is_ok(), "{header:?}");
    }
}

#[test]
fn a_response_to_credentials_with_lifetime_zero_is_not_stored() {
    let etag = ("etag", "\"a\"");
    for name in ["cookie", "authorization", "x-api-key", "x-auth-token"] {
        for header in [
            ("cache-control", "public, max-age=0"),
            ("cache-control", "public, no-cache"),
            ("cache-control", "public, s-maxage=0, max-age=60"),
            ("cache-control", "public, max-age=0, stale-while-revalidate=60"),
            ("expires", "Sun, 06 Nov 1994 08:49:37 GMT"),
            ("expires", "0"),
        ] {
            assert!(get(200, &[etag, header]).is_ok(), "{header:?}");
            let stored = stored(&Method::GET, &[(name, "alice")], 200, &[etag, header]);
            assert!(
                matches!(stored, Err(UncacheableReason::Credentials | UncacheableReason::Authorization)),
                "{name} {header:?}"
            );
        }
    }
}

#[test]
fn rfc9111_5_2_2_4_no_cache_is_stored_and_revalidated_at_every_use() {
    let lines = [("cache-control", "no-cache, max-age=60"), ("etag", "\"a\"")];
    assert_eq!(get(200, &lines).expect("stored").fresh_for, Some(Duration::ZERO));
}

#[test]
fn rfc9111_4_2_3_the_initial_age_reduces_the_lifetime() {
    let storing = get(200, &[("cache-control", "max-age=60"), ("age", "20")]).expect("stored");
    assert_eq!((storing.initial_age, storing.fresh_for), (Some(20), Some(Duration::from_secs(40))));
    let date = format_date(NOW - Duration::from_secs(50)).expect("a date");
    let storing = get(200, &[("cache-control", "max-age=60"), ("date", &date)]).expect("stored");
    assert_eq!((storing.initial_age, storing.fresh_for), (Some(50), Some(Duration::from_secs(10))));
}

#[test]
fn rfc9111_4_1_vary_star_is_not_stored_and_other_variants_have_a_digest() {
    assert_eq!(
        get(200, &[("cache-control", "max-age=60"), ("vary", "a, *")]),
        Err(UncacheableReason::VaryAnything)
    );
    let lines = [("cache-control", "max-age=60"), ("vary", "foo")];
    let of = |value| stored(&Method::GET, &[("foo", value)], 200, &lines).expect("stored").variant;
    assert!(of("1").is_some() && of("1") == of("1") && of("1") != of("2"));
    assert_eq!(control("max-age=60").expect("stored").variant, None);
}

#[test]
fn rfc9111_3_1_headers_are_stored_except_hop_by_hop_headers() {
    let lines = [
        ("cache-control", "max-age=60"),
        ("connection", "x-hop"),
        ("x-hop", "1"),
        ("keep-alive", "1"),
        ("content-length", "5"),
        ("age", "1"),
        ("date", "x"),
        ("expires", "y"),
        ("etag", "\"a\""),
        ("clear-site-data", "\"cache\""),
    ];
    let headers = get(200, &lines).expect("stored").headers;
    let names: Vec<&str> = headers.iter().map(|(name, _)| name.as_str()).collect();
    assert_eq!(names, ["cache-control", "date", "expires", "etag", "clear-site-data"]);
}

#[test]
fn event_streams_and_responses_over_the_limits_are_not_stored() {
    let lines = [("cache-control", "max-age=60"), ("content-type", "Text/Event-Stream; charset=utf-8")];
    assert_eq!(get(200, &lines), Err(UncacheableReason::NeverFresh));
    let (route, request, headers) = (Route::follow_origin("/"), HeaderMap::new(), map(&lines[..1]));
    let long = Received { bytes: Some(101), ..response(&route, &headers, &request) };
    assert_eq!(result(long), Err(UncacheableReason::TooLong { limit: 100 }));
    let limits = Limits { max_bytes: 1000, allows_new: false };
    assert_eq!(result(Received { limits, ..long }), Err(UncacheableReason::TooManyPages));
}

#[test]
fn rfc9111_4_3_3_a_server_error_fails_while_a_usable_response_is_stored() {
    let (route, request, headers) =
        (Route::follow_origin("/"), HeaderMap::new(), map(&[("cache-control", "max-age=60")]));
    let status = StatusCode::SERVICE_UNAVAILABLE;
    let error = Received { status, ..response(&route, &headers, &request) };
    assert!(matches!(error.decide(), StoreDecision::Store(_)));
    let decision = Received { has_usable_stored: true, ..error }.decide();
    assert_eq!(decision, StoreDecision::Fail(UncacheableReason::ServerError(status)));
}
