//! Targeted cache control (RFC 9213): fields for some caches only, in the syntax of structured fields (RFC 8941).

use http::HeaderMap;
use http::header::HeaderName;
use sfv::{BareItem, Dictionary, ListEntry, Parser, Version};

use crate::http::semantics::cache_control::CacheControl;

/// The field for this cache, then the one for all CDN caches.
const FIELDS: [HeaderName; 2] =
    [HeaderName::from_static("facetheory-cache-control"), HeaderName::from_static("cdn-cache-control")];

/// The longest field that is parsed.
const MAX_BYTES: usize = 4096;

/// An older field for caches in front of an origin. Only what it forbids counts.
const SURROGATE_CONTROL: HeaderName = HeaderName::from_static("surrogate-control");

/// Returns the directives for this cache: those of the first targeted field that is present and valid, else those of
/// `Cache-Control`. `Surrogate-Control` may forbid to store or to reuse the response besides.
pub(crate) fn parse(headers: &HeaderMap) -> CacheControl {
    let valid = FIELDS.iter().find_map(|name| valid_field(headers, name));
    let mut control = valid.unwrap_or_else(|| CacheControl::of(headers));
    control.forbid_as(&CacheControl::of_field(headers, &SURROGATE_CONTROL));
    control
}

/// Returns the directives of `Cache-Control`, and what any field for caches forbids: for a rule, which decides otherwise.
pub(crate) fn parse_strictly(headers: &HeaderMap) -> CacheControl {
    let mut control = CacheControl::of(headers);
    for name in FIELDS.iter().chain([&SURROGATE_CONTROL]) {
        control.forbid_as(&CacheControl::of_field(headers, name));
    }
    control
}

fn valid_field(headers: &HeaderMap, name: &HeaderName) -> Option<CacheControl> {
    let mut text = String::new();
    for line in headers.get_all(name) {
        text.push_str(if text.is_empty() { "" } else { ", " });
        text.push_str(line.to_str().ok()?);
    }
    if text.len() > MAX_BYTES {
        return None;
    }
    let mut control = parse_field(&text).or_else(|| parse_field(&with_plain_words(&text)))?;
    control.targeted = true;
    Some(control)
}

/// Writes directives without a value as a dictionary has them: `"No-Store"` is invalid, but it is clear what its origin means.
fn with_plain_words(text: &str) -> String {
    let plain = |member: &str| match member.contains('=') {
        true => member.to_owned(),
        false => member.trim().trim_matches('"').to_ascii_lowercase(),
    };
    text.split(',').map(plain).collect::<Vec<_>>().join(", ")
}

/// Parses a dictionary with at least one member. A directive with a value of the wrong type makes the field invalid.
fn parse_field(text: &str) -> Option<CacheControl> {
    let members: Dictionary = Parser::new(text).with_version(Version::Rfc8941).parse().ok()?;
    let mut control = CacheControl::default();
    for (key, member) in &members {
        let value = match member {
            ListEntry::Item(item) => Some(&item.bare_item),
            ListEntry::InnerList(_) => None,
        };
        match (key.as_str(), value) {
            (_, Some(BareItem::Boolean(false))) => {}
            (name @ ("max-age" | "s-maxage" | "stale-while-revalidate" | "stale-if-error"), value) => {
                let Some(BareItem::Integer(seconds)) = value else { return None };
                let seconds = u64::try_from(i64::from(*seconds)).ok()?;
                control.add_directive(name, Some(&seconds.to_string()));
            }
            (name @ ("no-cache" | "private"), Some(BareItem::String(fields))) => {
                control.add_directive(name, Some(fields.as_str()));
            }
            (name, _) => control.add_directive(name, None),
        }
    }
    (!members.is_empty()).then_some(control)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::http::semantics::cache_control::Directive;
    use http::HeaderValue;
    use proptest::prelude::*;
    use std::time::Duration;

    fn max_age(text: &str) -> Option<Option<u64>> {
        Some(parse_field(text)?.max_age.as_ref().map(Duration::as_secs))
    }

    #[test]
    fn rfc8941_4_2_2_dictionaries_are_parsed_strictly() {
        for (text, expected) in [
            ("max-age=60", Some(Some(60))),
            ("  max-age=60  ", Some(Some(60))),
            ("foo, max-age=60", Some(Some(60))),
            ("max-age=60;a=1;b=\"x\";c", Some(Some(60))),
            ("a=(1 2);b, c=:YQ==:, d=?1, e=tok/en, max-age=60", Some(Some(60))),
            ("max-age=1, max-age=60", Some(Some(60))),
            ("max-age=2147483648", Some(Some(1 << 31))),
            ("max-age=99999999999", Some(Some(1 << 31))),
            ("no-store", Some(None)),
            ("max-age=?0", Some(None)),
            ("", None),
            ("Max-Age=60", None),
            ("max-age =60", None),
            ("max-age= 60", None),
            ("max-age=60,", None),
            ("max-age=60 no-store", None),
            ("max-age=60,,a", None),
            ("max-age=9999999999999999", None),
            ("\"max-age\"=60", None),
            ("max-age=60;", None),
            ("a=\"\\x\", max-age=60", None),
        ] {
            assert_eq!(max_age(text), expected, "{text}");
        }
    }

    #[test]
    fn rfc9213_2_2_a_number_of_another_type_makes_the_field_invalid() {
        for text in
            ["max-age=\"60\"", "max-age=60.0", "max-age=-60", "max-age=abc", "max-age", "max-age=(60)"]
        {
            assert_eq!(max_age(text), None, "{text}");
        }
    }

    #[test]
    fn rfc9213_2_1_the_first_valid_field_of_the_list_counts() {
        let max_age_of = |ours: &'static str, cdn: &'static str| {
            let lines = FIELDS.into_iter().zip([ours, cdn].map(HeaderValue::from_static));
            parse(&lines.collect()).max_age.map(|time| time.as_secs())
        };
        assert_eq!(max_age_of("max-age=1", "max-age=2"), Some(1));
        assert_eq!(max_age_of("max-age =1", "max-age=2"), Some(2));
        assert_eq!(max_age_of("", "max-age=2"), Some(2));
        assert_eq!(max_age_of("", ""), None);
    }

    #[test]
    fn a_quoted_directive_and_an_older_field_forbid_what_they_mean() {
        for (name, text) in [
            ("cdn-cache-control", "\"no-store\""),
            ("cdn-cache-control", "max-age=60, \"no-store\""),
            ("cdn-cache-control", "No-Store"),
            ("facetheory-cache-control", "\"no-store, private\""),
            ("surrogate-control", "no-store"),
            ("surrogate-control", "max-age=60, content=\"ESI/1.0\", no-store"),
        ] {
            let headers: HeaderMap = [
                (HeaderName::from_static(name), HeaderValue::from_static(text)),
                (http::header::CACHE_CONTROL, HeaderValue::from_static("max-age=60")),
            ]
            .into_iter()
            .collect();
            let parsed = [parse(&headers), parse_strictly(&headers)];
            assert!(parsed.iter().all(|control| control.has(Directive::NoStore)), "{name}: {text}");
        }
        let both: HeaderMap = [
            (FIELDS[0].clone(), HeaderValue::from_static("max-age=60")),
            (FIELDS[1].clone(), HeaderValue::from_static("no-store")),
        ]
        .into_iter()
        .collect();
        assert!(!parse(&both).has(Directive::NoStore), "the field for this cache decides");
        assert!(parse_strictly(&both).has(Directive::NoStore), "under a rule any field can forbid it");
    }

    proptest! {
        #[test]
        fn any_text_is_parsed_without_panic(text in "\\PC{0,60}", odd in "[a-z0-9=,;:\"?() .\\\\-]{0,40}") {
            let _ = (parse_field(&text), parse_field(&odd));
        }

        #[test]
        fn a_valid_field_equals_cache_control(age in 0u32.., stale in 0u32.., flag: bool) {
            let text = format!("max-age={age}, stale-if-error={stale}{}", if flag { ", no-store" } else { "" });
            let value = HeaderValue::try_from(text.as_str()).expect("a value");
            let plain = CacheControl::of(&[(http::header::CACHE_CONTROL, value)].into_iter().collect());
            prop_assert_eq!(parse_field(&text), Some(plain));
        }
    }
}
