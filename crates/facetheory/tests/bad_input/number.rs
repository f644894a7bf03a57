//! Extreme numbers in rows, and the freshness of the page.

use facetheory::protocol::{Freshness, Meta};
use tabletheory::{Item, Timestamp, Value};

use crate::{NOW, assert_documented, describe};

fn number(text: &str) -> Value {
    Value::N(text.parse().expect("a number"))
}

/// The times at which the page is fresh.
fn fresh(item: &Item) -> String {
    describe(Meta::read(item), |meta| {
        let is_fresh = |now: i64| meta.freshness(Timestamp::from_seconds(now)) == Freshness::Fresh;
        let moments = [
            ("a year ago", NOW - 31_536_000),
            ("an hour ago", NOW - 3600),
            ("now", NOW),
            ("in a minute", NOW + 60),
            ("in an hour", NOW + 3600),
            ("in a year", NOW + 31_536_000),
            ("at the end of time", i64::MAX / 1000),
        ];
        let fresh: Vec<&str> =
            moments.into_iter().filter(|(_, now)| is_fresh(*now)).map(|(name, _)| name).collect();
        if fresh.is_empty() { "never fresh".into() } else { format!("fresh {}", fresh.join(", ")) }
    })
}

#[test]
fn numbers_in_rows_are_extreme() {
    let with = |generated_at: Value, interval: Value| {
        fresh(&Item::from([
            ("s3_key", Value::from("a.html")),
            ("generated_at", generated_at),
            ("revalidate_seconds", interval),
        ]))
    };
    let interval = |value: Value| with(NOW.into(), value);
    let generated = |value: Value| with(value, 60.into());
    let cases = [
        ("`revalidate_seconds` 60", interval(60.into())),
        ("`revalidate_seconds` 0", interval(0.into())),
        ("`revalidate_seconds` -1", interval((-1).into())),
        ("`revalidate_seconds` -1E100", interval(number("-1E100"))),
        ("`revalidate_seconds` 0.9", interval(number("0.9"))),
        ("`revalidate_seconds` 60.9", interval(number("60.9"))),
        ("`revalidate_seconds` 1E-100", interval(number("1E-100"))),
        ("`revalidate_seconds` 9223372036854775807", interval(i64::MAX.into())),
        ("`revalidate_seconds` 1E100", interval(number("1E100"))),
        ("`revalidate_seconds` \"60\"", interval("60".into())),
        ("`generated_at` in milliseconds", generated((NOW * 1000).into())),
        ("`generated_at` a minute ahead", generated((NOW + 60).into())),
        ("`generated_at` an hour ahead", generated((NOW + 3600).into())),
        ("`generated_at` a year ahead", generated((NOW + 31_536_000).into())),
        ("`generated_at` 0", generated(0.into())),
        ("`generated_at` -1E100", generated(number("-1E100"))),
        ("`generated_at` 1E100", generated(number("1E100"))),
        ("`generated_at` 1E100, `revalidate_seconds` 1E100", with(number("1E100"), number("1E100"))),
    ];
    let cases: Vec<Vec<String>> =
        cases.into_iter().map(|(name, result)| vec![name.to_owned(), result]).collect();
    assert_documented("Numbers", &cases);
}
