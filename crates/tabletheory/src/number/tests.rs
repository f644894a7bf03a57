use super::*;
use proptest::prelude::*;

fn number(text: &str) -> Number {
    text.parse().expect(text)
}

#[test]
fn equal_numbers_have_one_text_form() {
    for (text, normal) in [
        ("1E2", "100"),
        ("1.50", "1.5"),
        ("-0", "0"),
        ("0.000", "0"),
        ("00012", "12"),
        (".5", "0.5"),
        ("5.", "5"),
        ("+7", "7"),
        ("1e-3", "0.001"),
        ("-12.340E1", "-123.4"),
        ("99999999999999999999999999999999999999", "99999999999999999999999999999999999999"),
        ("1000000000000000000000000000000000000000000", "1000000000000000000000000000000000000000000"),
    ] {
        assert_eq!(number(text).to_string(), normal, "{text}");
    }
}

#[test]
fn invalid_and_out_of_range_texts_are_rejected() {
    for text in [
        "",
        "-",
        "+",
        ".",
        "e5",
        "1e",
        "1e+",
        "1_0",
        " 1",
        "1 ",
        "NaN",
        "Infinity",
        "0x1",
        "1.2.3",
        "--1",
        "١",
        "1E126",
        "1E-131",
        "1E999999999999",
        "100000000000000000000000000000000000001",
    ] {
        assert!(text.parse::<Number>().is_err(), "{text:?}");
    }
    assert!("1".repeat(600).parse::<Number>().is_err());
    // Longer texts are not parsed at all.
    assert!("0".repeat(512).parse::<Number>().is_ok());
    assert!("0".repeat(513).parse::<Number>().is_err());
    assert!(Number::try_from(f64::NAN).is_err());
}

#[test]
fn a_sum_of_more_than_38_digits_is_an_error_and_cancellation_is_exact() {
    assert!(number("1E100").checked_add(&number("1")).is_err());
    assert!(number("9.9E125").checked_add(&number("9E125")).is_err());
    let big = number("180000000000000000000000000000000000000");
    let less = number("-99999999999999999999999999999999999999");
    assert_eq!(
        big.checked_add(&less).expect("38 digits").to_string(),
        "80000000000000000000000000000000000001"
    );
    assert_eq!(number("0.1").checked_add(&number("-0.1")).expect("zero"), Number::ZERO);
}

#[test]
fn sizes_match_dynamodb_local() {
    for (text, size) in [
        ("0", 1),
        ("1", 2),
        ("99", 2),
        ("100", 2),
        ("101", 3),
        ("123", 3),
        ("-123", 4),
        ("1.5", 3),
        ("0.05", 2),
        ("0.012", 3),
        ("12000", 3),
        ("1E125", 2),
        ("12345678901234567890123456789012345678", 20),
        ("-1234567890123456789012345678901234567.8", 21),
    ] {
        assert_eq!(number(text).size(), size, "{text}");
    }
}

proptest! {
    // A failure prints its case; no file of failed cases is written to the source tree.
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn order_and_sums_agree_with_integers(left: i64, right: i64, scale in -20_i32..20) {
        let scaled = |value: i64| number(&format!("{value}E{scale}"));
        prop_assert_eq!(scaled(left).cmp(&scaled(right)), left.cmp(&right));
        let sum = i128::from(left) + i128::from(right);
        prop_assert_eq!(
            scaled(left).checked_add(&scaled(right)).expect("fits"),
            number(&format!("{sum}E{scale}"))
        );
    }

    #[test]
    fn numbers_survive_a_round_trip_through_text(digits in "[1-9][0-9]{0,37}", exponent in -90_i32..80, negative: bool) {
        let sign = if negative { "-" } else { "" };
        let first = number(&format!("{sign}{digits}E{exponent}"));
        prop_assert_eq!(number(&first.to_string()), first);
    }

    #[test]
    fn the_whole_part_is_the_text_before_the_point(digits in "[0-9]{1,30}", exponent in -40_i32..40, negative: bool) {
        let number = number(&format!("{}{digits}E{exponent}", if negative { "-" } else { "" }));
        let text = number.to_string();
        let whole: i128 = text.split('.').next().unwrap_or_default().parse().unwrap_or(if negative { i128::MIN } else { i128::MAX });
        let saturated = whole.clamp(i64::MIN.into(), i64::MAX.into());
        prop_assert_eq!(i128::from(number.whole()), saturated, "{}", text);
    }

    #[test]
    fn integers_survive_conversion(value: i64, unsigned: u64) {
        prop_assert_eq!(i64::try_from(&Number::from(value)).expect("i64"), value);
        prop_assert_eq!(u64::try_from(&Number::from(unsigned)).expect("u64"), unsigned);
    }

    #[test]
    fn no_text_panics(text in ".{0,60}") {
        let _ = text.parse::<Number>();
    }
}
