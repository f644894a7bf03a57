//! Sizes in bytes as people write them: `16KiB`, `8MB`, `1000`.

/// The units, the largest first, each with its number of bytes.
const UNITS: [(&str, u64); 7] = [
    ("GiB", 1 << 30),
    ("GB", 1_000_000_000),
    ("MiB", 1 << 20),
    ("MB", 1_000_000),
    ("KiB", 1 << 10),
    ("kB", 1000),
    ("B", 1),
];

/// The forms that are understood, for errors.
const FORMS: &str = "write a whole number of bytes, or one with a unit: `16KiB`, `8MB`, `1GiB`";

/// The number of bytes of a text, or what is wrong with it. Units may be in any case: nobody counts bits here.
pub(crate) fn parse(text: &str) -> Result<u64, String> {
    let digits = text.bytes().take_while(u8::is_ascii_digit).count();
    let (number, unit) = text.split_at(digits);
    let length = match unit {
        "" => Some(1),
        _ => UNITS.into_iter().find(|(name, _)| name.eq_ignore_ascii_case(unit)).map(|(_, length)| length),
    };
    let (false, Some(length)) = (number.is_empty(), length) else {
        return Err(format!("`{text}` is no size; {FORMS}"));
    };
    let bytes = number.parse::<u64>().ok().and_then(|number| number.checked_mul(length));
    // TOML's numbers have a sign, so a larger one could not be printed as it was read.
    bytes
        .filter(|bytes| i64::try_from(*bytes).is_ok())
        .ok_or_else(|| format!("`{text}` is too large; {FORMS}"))
}

/// A number of bytes in the largest binary unit that tells it exactly.
pub(crate) fn print(bytes: u64) -> String {
    let exact = |(unit, length): &(&str, u64)| unit.contains('i') && bytes.is_multiple_of(*length);
    match UNITS.into_iter().find(exact) {
        Some((unit, length)) if bytes > 0 => format!("{}{unit}", bytes / length),
        _ => bytes.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn sizes_are_numbers_perhaps_with_a_unit() {
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
            assert_eq!(parse(text), Ok(bytes), "{text}");
        }
        assert_eq!(print(16_384), "16KiB");
        assert_eq!(print(1000), "1000");
        assert_eq!(print(0), "0");
    }

    #[test]
    fn what_is_no_size_is_told_with_the_forms_that_are() {
        for text in ["", "KiB", "-1", "+1", "1.5MB", "1 MB", "1K", "1TiB", "1_000", "\u{661}MB"] {
            let fault = parse(text).expect_err(text);
            assert!(fault.starts_with(&format!("`{text}` is no size; write")), "{fault}");
        }
        for text in [
            "9223372036854775808",
            "18446744073709551616",
            "8589934592GiB",
            "17179869185GiB",
            "99999999999999999999GB",
        ] {
            assert!(parse(text).is_err_and(|fault| fault.contains("is too large")), "{text}");
        }
    }

    proptest! {
        #[test]
        fn a_size_is_read_as_it_was_printed(bytes in 0..=i64::MAX as u64) {
            prop_assert_eq!(parse(&print(bytes)), Ok(bytes));
        }

        #[test]
        fn no_text_is_too_strange(text in "\\PC{0,12}|[0-9]{0,30}([kKmMgG]i?[bB])?") {
            if let Ok(bytes) = parse(&text) {
                prop_assert_eq!(parse(&print(bytes)), Ok(bytes));
            }
        }
    }
}
