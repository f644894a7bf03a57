//! Durations and sizes as they are written in the file: `10s`, `250ms`, `16KiB`, `8MB`.

use std::time::Duration;

use serde::{Serialize as _, Serializer};

/// Units of durations, the longest first, in milliseconds.
const DURATIONS: [(&str, u64); 5] =
    [("d", 24 * 60 * 60 * 1000), ("h", 60 * 60 * 1000), ("m", 60 * 1000), ("s", 1000), ("ms", 1)];
/// The longest duration. A larger value is a typing error, and sums of durations cannot overflow.
const MAX_DAYS: u64 = 36_500;
const DURATION_FORMS: &str = "write a whole number and a unit: `250ms`, `10s`, `5m`, `1h` or `2d`";

/// Units of sizes, the largest first, in bytes.
const SIZES: [(&str, u64); 7] = [
    ("GiB", 1 << 30),
    ("GB", 1_000_000_000),
    ("MiB", 1 << 20),
    ("MB", 1_000_000),
    ("KiB", 1 << 10),
    ("kB", 1000),
    ("B", 1),
];
const SIZE_FORMS: &str = "write a whole number of bytes, or one with a unit: `16KiB`, `8MB`, `1GiB`";

/// Parses a duration.
pub(crate) fn parse_duration(text: &str) -> Result<Duration, String> {
    let (number, unit) = split(text);
    if unit.is_empty() && !number.is_empty() {
        return Err(format!("`{text}` has no unit; did you mean `{text}s`? {DURATION_FORMS}"));
    }
    let unit = DURATIONS.into_iter().find(|(name, _)| *name == unit);
    let (false, Some((_, length))) = (number.is_empty(), unit) else {
        return Err(format!("`{text}` is not a duration; {DURATION_FORMS}"));
    };
    let duration = multiply(number, length).map(Duration::from_millis);
    duration
        .filter(|duration| *duration <= longest())
        .ok_or_else(|| format!("`{text}` is too long; the maximum is {MAX_DAYS}d"))
}

/// Formats a duration in the largest unit that represents it exactly, ignoring fractions of a millisecond.
pub(crate) fn format_duration(duration: Duration) -> String {
    let milliseconds = u64::try_from(duration.as_millis()).unwrap_or(u64::MAX);
    in_largest_unit(milliseconds, DURATIONS).unwrap_or_else(|| "0s".to_owned())
}

/// Parses a number of bytes. The case of units does not matter.
pub(crate) fn parse_size(text: &str) -> Result<u64, String> {
    let (number, unit) = split(text);
    let unit = if unit.is_empty() { "B" } else { unit };
    let unit = SIZES.into_iter().find(|(name, _)| name.eq_ignore_ascii_case(unit));
    let (false, Some((_, length))) = (number.is_empty(), unit) else {
        return Err(format!("`{text}` is not a size; {SIZE_FORMS}"));
    };
    // TOML integers are signed: a larger value could not be written back.
    multiply(number, length)
        .filter(|bytes| i64::try_from(*bytes).is_ok())
        .ok_or_else(|| format!("`{text}` is too large; {SIZE_FORMS}"))
}

/// Formats a number of bytes in the largest binary unit that represents it exactly.
pub(crate) fn format_size(bytes: u64) -> String {
    let binary = SIZES.into_iter().filter(|(unit, _)| unit.contains('i'));
    in_largest_unit(bytes, binary).unwrap_or_else(|| bytes.to_string())
}

pub(crate) fn serialize_duration<S: Serializer>(
    duration: &Duration,
    serializer: S,
) -> Result<S::Ok, S::Error> {
    serializer.serialize_str(&format_duration(*duration))
}

/// Writes a duration, or `false` for none.
pub(crate) fn serialize_optional_duration<S: Serializer>(
    duration: &Option<Duration>,
    serializer: S,
) -> Result<S::Ok, S::Error> {
    let Some(duration) = duration else { return serializer.serialize_bool(false) };
    serialize_duration(duration, serializer)
}

pub(crate) fn serialize_size<S: Serializer>(bytes: &u64, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_str(&format_size(*bytes))
}

/// Writes a size, or null for none.
pub(crate) fn serialize_optional_size<S: Serializer>(
    bytes: &Option<u64>,
    serializer: S,
) -> Result<S::Ok, S::Error> {
    bytes.map(format_size).serialize(serializer)
}

/// Splits a text after its leading digits.
fn split(text: &str) -> (&str, &str) {
    text.split_at(text.bytes().take_while(u8::is_ascii_digit).count())
}

fn multiply(number: &str, factor: u64) -> Option<u64> {
    number.parse::<u64>().ok()?.checked_mul(factor)
}

fn in_largest_unit<'u>(value: u64, units: impl IntoIterator<Item = (&'u str, u64)>) -> Option<String> {
    let (unit, length) = units.into_iter().find(|(_, length)| value.is_multiple_of(*length))?;
    (value > 0).then(|| format!("{}{unit}", value / length))
}

fn longest() -> Duration {
    Duration::from_secs(MAX_DAYS * 24 * 60 * 60)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn a_duration_is_a_number_and_a_unit() {
        for (text, milliseconds) in [
            ("250ms", 250),
            ("10s", 10_000),
            ("5m", 300_000),
            ("1h", 3_600_000),
            ("2d", 172_800_000),
            ("0s", 0),
            ("007s", 7_000),
        ] {
            assert_eq!(parse_duration(text), Ok(Duration::from_millis(milliseconds)), "{text}");
        }
        assert_eq!(format_duration(Duration::from_secs(90)), "90s");
        assert_eq!(format_duration(Duration::from_secs(7200)), "2h");
        assert_eq!(format_duration(Duration::ZERO), "0s");
    }

    #[test]
    fn an_invalid_duration_is_an_error_that_lists_the_valid_forms() {
        for text in ["", "s", "-1s", "+1s", "1.5s", "1 s", "1S", "1w", "1s ", "1h30m", "\u{661}s", "1\u{b5}s"]
        {
            let error = parse_duration(text).expect_err(text);
            assert!(error.starts_with(&format!("`{text}` is not a duration; write")), "{error}");
        }
        let error = parse_duration("60").expect_err("no unit");
        assert!(error.starts_with("`60` has no unit; did you mean `60s`?"), "{error}");
        let digits = format!("{}s", "9".repeat(400));
        for text in ["36501d", "18446744073709551615d", "18446744073709551616ms", &digits] {
            assert!(parse_duration(text).is_err_and(|error| error.contains("is too long")), "{text}");
        }
        assert_eq!(parse_duration("36500d"), Ok(longest()));
    }

    #[test]
    fn a_size_is_a_number_with_an_optional_unit() {
        for (text, bytes) in [
            ("0", 0),
            ("1000", 1000),
            ("7B", 7),
            ("16KiB", 16_384),
            ("16kib", 16_384),
            ("8MB", 8_000_000),
            ("10MiB", 10_485_760),
            ("1GiB", 1_073_741_824),
            ("2kB", 2000),
        ] {
            assert_eq!(parse_size(text), Ok(bytes), "{text}");
        }
        assert_eq!(format_size(16_384), "16KiB");
        assert_eq!(format_size(1000), "1000");
        assert_eq!(format_size(0), "0");
    }

    #[test]
    fn an_invalid_size_is_an_error_that_lists_the_valid_forms() {
        for text in ["", "KiB", "-1", "+1", "1.5MB", "1 MB", "1K", "1TiB", "1_000", "\u{661}MB"] {
            let error = parse_size(text).expect_err(text);
            assert!(error.starts_with(&format!("`{text}` is not a size; write")), "{error}");
        }
        for text in [
            "9223372036854775808",
            "18446744073709551616",
            "8589934592GiB",
            "17179869185GiB",
            "99999999999999999999GB",
        ] {
            assert!(parse_size(text).is_err_and(|error| error.contains("is too large")), "{text}");
        }
    }

    proptest! {
        #[test]
        fn a_formatted_duration_parses_to_the_same_duration(milliseconds in 0u64..=36_500 * 86_400_000) {
            let duration = Duration::from_millis(milliseconds);
            prop_assert_eq!(parse_duration(&format_duration(duration)), Ok(duration));
        }

        #[test]
        fn a_duration_is_its_number_times_its_unit(number in 0u64..36_500, unit in 0..DURATIONS.len()) {
            let (name, length) = DURATIONS[unit];
            let expected = Duration::from_millis(number * length);
            prop_assert_eq!(parse_duration(&format!("{number}{name}")), Ok(expected));
        }

        #[test]
        fn a_formatted_size_parses_to_the_same_size(bytes in 0..=i64::MAX as u64) {
            prop_assert_eq!(parse_size(&format_size(bytes)), Ok(bytes));
        }

        #[test]
        fn no_text_makes_the_duration_parser_panic(text in "\\PC{0,12}|[0-9]{0,30}(ms|s|m|h|d)?") {
            if let Ok(duration) = parse_duration(&text) {
                prop_assert_eq!(parse_duration(&format_duration(duration)), Ok(duration));
            }
        }

        #[test]
        fn no_text_makes_the_size_parser_panic(text in "\\PC{0,12}|[0-9]{0,30}([kKmMgG]i?[bB])?") {
            if let Ok(bytes) = parse_size(&text) {
                prop_assert_eq!(parse_size(&format_size(bytes)), Ok(bytes));
            }
        }
    }
}
