use super::*;
use crate::http::semantics::date::format_date;
use http::HeaderValue;
use http::header::CACHE_CONTROL;
use proptest::prelude::*;

const NOW: i64 = 1_700_000_000;

fn date(seconds: i64) -> String {
    format_date(Timestamp::from_seconds(NOW + seconds)).expect("a date")
}

fn of(status: u16, lines: &[(HeaderName, &str)]) -> Lifetime {
    let value = |text: &str| HeaderValue::from_str(text).expect("a value");
    let headers: HeaderMap = lines.iter().map(|(name, text)| (name.clone(), value(text))).collect();
    let status = StatusCode::from_u16(status).expect("a status");
    lifetime(status, &headers, &CacheControl::of_response(&headers), Timestamp::from_seconds(NOW))
}

fn explicit(seconds: u64) -> Lifetime {
    Lifetime::Explicit(Duration::from_secs(seconds))
}

#[test]
fn rfc9111_4_2_1_s_maxage_wins_over_max_age_and_max_age_over_expires() {
    let later = date(7);
    let lines = [(CACHE_CONTROL, "max-age=2, s-maxage=1"), (EXPIRES, &*later), (DATE, &*date(0))];
    assert_eq!(of(200, &lines), explicit(1));
    let lines = [(CACHE_CONTROL, "max-age=2"), (EXPIRES, &*later), (DATE, &*date(0))];
    assert_eq!(of(200, &lines), explicit(2));
    assert_eq!(of(200, &lines[1..]), explicit(7));
    assert_eq!(of(200, &lines[1..2]), explicit(7), "without a Date, since its arrival");
}

#[test]
fn rfc9111_4_2_1_the_lowest_of_conflicting_values_counts() {
    assert_eq!(of(200, &[(CACHE_CONTROL, "max-age=60, max-age=5")]), explicit(5));
    assert_eq!(of(200, &[(CACHE_CONTROL, "max-age=5"), (CACHE_CONTROL, "max-age=60")]), explicit(5));
}

#[test]
fn rfc9111_5_3_an_invalid_expires_is_in_the_past() {
    for wrong in ["0", "-1", "soon", "", "Thu, 18 Aug 2050 02:01:18", "Thu, 18 Aug 2050 02:01:18 AEST"] {
        assert_eq!(of(200, &[(EXPIRES, wrong)]), explicit(0), "{wrong}");
    }
    assert_eq!(
        of(200, &[(EXPIRES, &*date(5)), (EXPIRES, &*date(5))]),
        explicit(0),
        "a repeated header is invalid"
    );
    assert_eq!(of(200, &[(EXPIRES, &*date(5)), (DATE, "today")]), explicit(5), "counted from its arrival");
    assert_eq!(of(200, &[(EXPIRES, &*date(-5))]), explicit(0));
}

#[test]
fn rfc9110_5_6_7_dates_have_three_formats() {
    for text in
        ["Tue, 14 Nov 2023 22:13:30 GMT", "Tuesday, 14-Nov-23 22:13:30 GMT", "Tue Nov 14 22:13:30 2023"]
    {
        assert_eq!(of(200, &[(EXPIRES, text)]), explicit(10), "{text}");
    }
    assert_eq!(of(200, &[(EXPIRES, "Monday, 14-Nov-94 22:13:30 GMT")]), explicit(0), "of the last century");
}

#[test]
fn rfc9111_4_2_2_the_heuristic_lifetime_is_a_tenth_of_the_time_since_modification() {
    let guess = |status, control: &str, since: i64| {
        of(status, &[(LAST_MODIFIED, &*date(-since)), (DATE, &*date(0)), (CACHE_CONTROL, control)])
    };
    assert_eq!(guess(200, "", 1000), Lifetime::Heuristic(Duration::from_secs(100)));
    assert_eq!(guess(200, "", 100_000_000), Lifetime::Heuristic(MAX_HEURISTIC));
    assert_eq!(guess(200, "", -10), Lifetime::Heuristic(Duration::ZERO), "changed in the future");
    for status in [200, 203, 204, 300, 301, 308, 404, 405, 410, 414, 501] {
        assert_ne!(guess(status, "", 1000), Lifetime::Unknown, "{status}");
    }
    for status in [201, 202, 302, 303, 307, 403, 500, 502, 503, 504, 599] {
        assert_eq!(guess(status, "", 1000), Lifetime::Unknown, "{status}");
    }
    assert_ne!(guess(599, "public", 1000), Lifetime::Unknown, "its origin allows it");
    assert_eq!(guess(200, "max-age=3", 1000), explicit(3), "an explicit lifetime overrides the heuristic");
    assert_eq!(of(200, &[]), Lifetime::Unknown);
}

#[test]
fn rfc9213_2_1_expires_is_ignored_beside_a_targeted_field() {
    let cdn = HeaderName::from_static("cdn-cache-control");
    assert_eq!(of(200, &[(cdn.clone(), "max-age=9"), (EXPIRES, &*date(-5))]), explicit(9));
    assert_eq!(of(200, &[(cdn, "foo"), (EXPIRES, &*date(5))]), Lifetime::Unknown);
}

/// A second implementation from the text of the standard, independent of the code under test.
fn independently(
    status: u16,
    control: &[(&str, u64)],
    expires: Option<i64>,
    dated: i64,
    modified: Option<i64>,
) -> u64 {
    let least =
        |name: &str| control.iter().filter(|(known, _)| *known == name).map(|(_, value)| *value).min();
    let cap = |seconds: u64| seconds.min(2_147_483_648);
    if let Some(seconds) = least("s-maxage") {
        return cap(seconds);
    }
    if let Some(seconds) = least("max-age") {
        return cap(seconds);
    }
    if let Some(expires) = expires {
        return if expires > dated { (expires - dated).unsigned_abs() } else { 0 };
    }
    let is_heuristic = [200, 203, 204, 300, 301, 308, 404, 405, 410, 414, 501].contains(&status);
    match modified {
        Some(modified) if is_heuristic && modified < dated => {
            ((dated - modified).unsigned_abs() / 10).min(86_400)
        }
        _ => 0,
    }
}

proptest! {
    #[test]
    fn rfc9111_4_2_1_two_independent_computations_agree(
        status in proptest::sample::select(vec![200u16, 201, 203, 204, 301, 302, 404, 410, 500, 501, 503, 599]),
        control in proptest::collection::vec(
            (proptest::sample::select(vec!["max-age", "s-maxage", "x"]), 0u64..5_000_000_000), 0..4),
        upper: bool, quoted: bool,
        expires in proptest::option::of(-100_000i64..100_000),
        dated in -1000i64..1000,
        modified in proptest::option::of(-10_000_000i64..1000),
    ) {
        let directive = |(name, value): &(&str, u64)| {
            let name = if upper { name.to_uppercase() } else { (*name).to_owned() };
            if quoted { format!("{name}=\"{value}\"") } else { format!("{name}={value}") }
        };
        let line = control.iter().map(directive).collect::<Vec<_>>().join(" , ");
        let dates = [(EXPIRES, expires), (DATE, Some(dated)), (LAST_MODIFIED, modified)];
        let texts: Vec<(HeaderName, String)> =
            dates.into_iter().filter_map(|(name, at)| Some((name, date(at?)))).chain([(CACHE_CONTROL, line)]).collect();
        let lines: Vec<(HeaderName, &str)> = texts.iter().map(|(name, text)| (name.clone(), text.as_str())).collect();
        let expected = independently(status, &control, expires, dated, modified);
        prop_assert_eq!(of(status, &lines).time().as_secs(), expected);
    }

    #[test]
    fn nothing_is_too_strange(control in "[ -~]{0,30}", expires in "[ -~]{0,30}", modified in "[ -~]{0,30}") {
        let lines = [(CACHE_CONTROL, &*control), (EXPIRES, &*expires), (LAST_MODIFIED, &*modified)];
        prop_assert!(of(200, &lines).time().as_secs() <= MAX_SECONDS);
    }
}
