//! The age of a response (RFC 9111 §4.2.3).

use http::HeaderMap;
use http::header::{AGE, DATE};
use tabletheory::Timestamp;

use crate::http::semantics::cache_control::seconds;
use crate::http::semantics::date::date_of;

/// Returns the age of a response when it was requested, in seconds.
///
/// The standard adds the response delay to the age. The time of a page starts when it was requested, so the delay is included
/// already: the current age is this age plus the time since the request.
pub(crate) fn initial_age(headers: &HeaderMap, requested: Timestamp, received: Timestamp) -> i64 {
    let delay = received.seconds().saturating_sub(requested.seconds()).max(0);
    let apparent = date_of(headers, &DATE)
        .map_or(0, |date| received.seconds().saturating_sub(date.seconds()).max(0))
        .saturating_sub(delay);
    age_header(headers).max(apparent)
}

/// Returns the first value of `Age`, or 0 if it is not a number (RFC 9111 §5.1).
fn age_header(headers: &HeaderMap) -> i64 {
    let line = headers.get(AGE).and_then(|line| line.to_str().ok()).unwrap_or_default();
    let first = line.split(',').next().unwrap_or_default().trim();
    seconds(Some(first)).map_or(0, |age| i64::try_from(age.as_secs()).unwrap_or(i64::MAX))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::http::semantics::date::format_date;
    use http::HeaderValue;
    use proptest::prelude::*;

    const NOW: i64 = 1_700_000_000;

    fn at(seconds: i64) -> Timestamp {
        Timestamp::from_seconds(NOW + seconds)
    }

    fn age(lines: &[&str], date: Option<i64>, delay: i64) -> i64 {
        let mut headers = HeaderMap::new();
        for line in lines {
            headers.append(AGE, HeaderValue::from_str(line).expect("a value"));
        }
        if let Some(date) = date {
            let date = format_date(at(date)).expect("a date");
            headers.insert(DATE, HeaderValue::try_from(date).expect("a value"));
        }
        initial_age(&headers, at(-delay), at(0))
    }

    #[test]
    fn rfc9111_4_2_3_the_higher_age_of_age_and_date_counts() {
        assert_eq!(age(&[], None, 0), 0);
        assert_eq!(age(&["30"], Some(0), 0), 30);
        assert_eq!(age(&["30"], Some(-40), 0), 40);
        assert_eq!(age(&["30"], Some(40), 0), 30, "a date of the future makes nothing younger");
        assert_eq!(age(&[], Some(-10), 4), 6, "the delay is counted from the request on");
        assert_eq!(age(&["7"], Some(0), 4), 7);
    }

    #[test]
    fn rfc9111_5_1_the_first_value_of_age_counts_and_an_invalid_one_does_not() {
        for (lines, expected) in [
            (&["7200, 0"][..], 7200),
            (&["0, 7200"], 0),
            (&["7200", "0"], 7200),
            (&["abc"], 0),
            (&["-7200"], 0),
            (&["7200.0"], 0),
            (&["7200;a=b"], 0),
            (&[""], 0),
            (&["99999999999999999999999"], 1 << 31),
        ] {
            assert_eq!(age(lines, None, 0), expected, "{lines:?}");
        }
    }

    proptest! {
        #[test]
        fn the_current_age_equals_the_formulas_of_the_standard(
            header in 0i64..100_000, date in -100_000i64..1000, delay in 0i64..100, resident in 0i64..100_000,
        ) {
            let apparent_age = (-date).max(0);
            let corrected_age_value = header + delay;
            let current_age = apparent_age.max(corrected_age_value) + resident;
            let ours = age(&[&header.to_string()], Some(date), delay) + delay + resident;
            prop_assert_eq!(ours, current_age);
        }

        #[test]
        fn any_input_is_handled_without_panic(line in "[ -~]{0,20}", requested: i64, received: i64) {
            let headers = [(AGE, HeaderValue::from_str(&line).expect("a value"))].into_iter().collect();
            let (requested, received) = (Timestamp::from_millis(requested), Timestamp::from_millis(received));
            prop_assert!(initial_age(&headers, requested, received) >= 0);
        }
    }
}
