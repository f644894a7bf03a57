//! Durations as people write them: `10s`, `5m`, `250ms`.

use std::time::Duration;

/// The units, the longest first, each with its length in milliseconds.
const UNITS: [(&str, u64); 5] =
    [("d", 24 * 60 * 60 * 1000), ("h", 60 * 60 * 1000), ("m", 60 * 1000), ("s", 1000), ("ms", 1)];

/// The longest duration: anything above is a slip, and times in seconds stay far from the end of their range.
const LONGEST_DAYS: u64 = 36_500;

/// The forms that are understood, for errors.
const FORMS: &str = "write a whole number and a unit: `250ms`, `10s`, `5m`, `1h` or `2d`";

/// The duration of a text, or what is wrong with it.
pub(crate) fn parse(text: &str) -> Result<Duration, String> {
    let digits = text.bytes().take_while(u8::is_ascii_digit).count();
    let (number, unit) = text.split_at(digits);
    if number.is_empty() {
        return Err(format!("`{text}` is no duration; {FORMS}"));
    }
    if unit.is_empty() {
        return Err(format!("`{text}` has no unit; did you mean `{text}s`? {FORMS}"));
    }
    let Some((_, length)) = UNITS.into_iter().find(|(name, _)| *name == unit) else {
        return Err(format!("`{text}` is no duration; {FORMS}"));
    };
    let milliseconds = number.parse::<u64>().ok().and_then(|number| number.checked_mul(length));
    milliseconds
        .map(Duration::from_millis)
        .filter(|duration| *duration <= longest())
        .ok_or_else(|| format!("`{text}` is too long; at most {LONGEST_DAYS}d are allowed"))
}

/// A duration in the largest unit that tells it exactly; what is shorter than a millisecond is left out.
pub(crate) fn print(duration: Duration) -> String {
    let milliseconds = duration.as_millis();
    let exact = |(_, length): &(&str, u64)| milliseconds.is_multiple_of(u128::from(*length));
    match UNITS.into_iter().find(exact) {
        Some((unit, length)) if milliseconds > 0 => format!("{}{unit}", milliseconds / u128::from(length)),
        _ => "0s".to_owned(),
    }
}

/// The longest duration that is understood.
fn longest() -> Duration {
    Duration::from_secs(LONGEST_DAYS * 24 * 60 * 60)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn durations_are_numbers_with_a_unit() {
        for (text, milliseconds) in [
            ("250ms", 250),
            ("10s", 10_000),
            ("5m", 300_000),
            ("1h", 3_600_000),
            ("2d", 172_800_000),
            ("0s", 0),
            ("007s", 7_000),
        ] {
            assert_eq!(parse(text), Ok(Duration::from_millis(milliseconds)), "{text}");
        }
        assert_eq!(print(Duration::from_secs(90)), "90s");
        assert_eq!(print(Duration::from_secs(7200)), "2h");
        assert_eq!(print(Duration::ZERO), "0s");
    }

    #[test]
    fn what_is_no_duration_is_told_with_the_forms_that_are() {
        for text in ["", "s", "-1s", "+1s", "1.5s", "1 s", "1S", "1w", "1s ", "1h30m", "\u{661}s", "1\u{b5}s"]
        {
            let fault = parse(text).expect_err(text);
            assert!(fault.starts_with(&format!("`{text}` is no duration; write")), "{fault}");
        }
        let fault = parse("60").expect_err("no unit");
        assert!(fault.starts_with("`60` has no unit; did you mean `60s`?"), "{fault}");
        let digits = format!("{}s", "9".repeat(400));
        for text in ["36501d", "18446744073709551615d", "18446744073709551616ms", &digits] {
            assert!(parse(text).is_err_and(|fault| fault.contains("is too long")), "{text}");
        }
        assert_eq!(parse("36500d"), Ok(longest()));
    }

    proptest! {
        #[test]
        fn a_duration_is_read_as_it_was_printed(milliseconds in 0u64..=36_500 * 86_400_000) {
            let duration = Duration::from_millis(milliseconds);
            prop_assert_eq!(parse(&print(duration)), Ok(duration));
        }

        #[test]
        fn a_number_counts_its_unit(number in 0u64..36_500, unit in 0..UNITS.len()) {
            let (name, length) = UNITS[unit];
            prop_assert_eq!(parse(&format!("{number}{name}")), Ok(Duration::from_millis(number * length)));
        }

        #[test]
        fn no_text_is_too_strange(text in "\\PC{0,12}|[0-9]{0,30}(ms|s|m|h|d)?") {
            if let Ok(duration) = parse(&text) {
                prop_assert_eq!(parse(&print(duration)), Ok(duration));
            }
        }
    }
}
