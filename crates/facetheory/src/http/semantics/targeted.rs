//! Fields that are meant for some caches only (RFC 9213): dictionaries of structured fields (RFC 8941), with types.

use http::HeaderMap;
use http::header::HeaderName;

use crate::http::semantics::cache_control::CacheControl;

/// Ours first, then the one for all caches on the way.
const FIELDS: [HeaderName; 2] =
    [HeaderName::from_static("facetheory-cache-control"), HeaderName::from_static("cdn-cache-control")];

/// The longest field that is read, in bytes.
const MAX_BYTES: usize = 4096;

/// What the first of these fields says that is there and can be read; none where there is none.
pub(crate) fn said(headers: &HeaderMap) -> Option<CacheControl> {
    FIELDS.iter().find_map(|name| {
        let mut text = String::new();
        for line in headers.get_all(name) {
            let separator = if text.is_empty() { "" } else { ", " };
            text.push_str(separator);
            text.push_str(line.to_str().ok()?);
        }
        if text.len() > MAX_BYTES {
            return None;
        }
        read(&text)
    })
}

/// A dictionary with at least one member, each directive of its type; none for anything else.
fn read(text: &str) -> Option<CacheControl> {
    let mut rest = Rest(text.trim_matches(' '));
    let mut said = CacheControl::default();
    let mut members: Vec<(&str, Value<'_>)> = Vec::new();
    while !rest.0.is_empty() {
        let key = rest.key()?;
        let value = if rest.take("=") { rest.value()? } else { Value::Boolean(true) };
        rest.parameters()?;
        // The last of several with one name counts (RFC 8941 §4.2.2).
        members.retain(|(known, _)| *known != key);
        members.push((key, value));
        rest.skip(&[' ', '\t']);
        if rest.0.is_empty() {
            break;
        }
        if !rest.take(",") {
            return None;
        }
        rest.skip(&[' ', '\t']);
        if rest.0.is_empty() {
            return None;
        }
    }
    for (key, value) in &members {
        match (*key, value) {
            (_, Value::Boolean(false)) => {}
            (
                "max-age" | "s-maxage" | "stale-while-revalidate" | "stale-if-error",
                Value::Integer(number),
            ) => {
                said.note(key, Some(number));
            }
            ("max-age" | "s-maxage" | "stale-while-revalidate" | "stale-if-error", _) => return None,
            ("no-cache" | "private", Value::Text(fields)) => said.note(key, Some(fields)),
            (_, _) => said.note(key, None),
        }
    }
    (!members.is_empty()).then_some(said)
}

/// The value of a member, as far as its type matters to a directive.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Value<'a> {
    Boolean(bool),
    Integer(&'a str),
    Text(&'a str),
    Other,
}

/// What is left to be read.
struct Rest<'a>(&'a str);

impl<'a> Rest<'a> {
    fn take(&mut self, text: &str) -> bool {
        let after = self.0.strip_prefix(text);
        self.0 = after.unwrap_or(self.0);
        after.is_some()
    }

    fn skip(&mut self, characters: &[char]) {
        self.0 = self.0.trim_start_matches(characters);
    }

    fn while_is(&mut self, is: impl Fn(char) -> bool) -> &'a str {
        let end = self.0.find(|c| !is(c)).unwrap_or(self.0.len());
        let (taken, rest) = self.0.split_at(end);
        self.0 = rest;
        taken
    }

    /// RFC 8941 §4.2.3.3: in lower case only.
    fn key(&mut self) -> Option<&'a str> {
        if !self.0.starts_with(|c: char| c.is_ascii_lowercase() || c == '*') {
            return None;
        }
        Some(self.while_is(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || "_-.*".contains(c)))
    }

    fn value(&mut self) -> Option<Value<'a>> {
        if !self.take("(") {
            return self.item();
        }
        loop {
            self.skip(&[' ']);
            if self.take(")") {
                return Some(Value::Other);
            }
            self.item()?;
            self.parameters()?;
            if !self.0.starts_with([' ', ')']) {
                return None;
            }
        }
    }

    /// RFC 8941 §4.2.3.1.
    fn item(&mut self) -> Option<Value<'a>> {
        match self.0.chars().next()? {
            '-' | '0'..='9' => self.number(),
            '"' => self.text(),
            ':' => {
                self.take(":");
                self.while_is(|c| c.is_ascii_alphanumeric() || "+/=".contains(c));
                self.take(":").then_some(Value::Other)
            }
            '?' => {
                let value = self.0.get(..2)?;
                self.take(value);
                match value {
                    "?1" => Some(Value::Boolean(true)),
                    "?0" => Some(Value::Boolean(false)),
                    _ => None,
                }
            }
            c if c.is_ascii_alphabetic() || c == '*' => {
                self.while_is(|c| c.is_ascii_alphanumeric() || "!#$%&'*+-.^_`|~:/".contains(c));
                Some(Value::Other)
            }
            _ => None,
        }
    }

    /// RFC 8941 §4.2.4: at most fifteen digits, or twelve and a fraction of three.
    fn number(&mut self) -> Option<Value<'a>> {
        let negative = self.take("-");
        let digits = self.while_is(|c| c.is_ascii_digit());
        if digits.is_empty() || digits.len() > 15 {
            return None;
        }
        if self.take(".") {
            let fraction = self.while_is(|c| c.is_ascii_digit());
            return ((1..=3).contains(&fraction.len()) && digits.len() <= 12).then_some(Value::Other);
        }
        Some(if negative { Value::Other } else { Value::Integer(digits) })
    }

    /// RFC 8941 §4.2.5. Lists of fields need no escapes, so they are read past and not undone.
    fn text(&mut self) -> Option<Value<'a>> {
        let inside = self.0.strip_prefix('"')?;
        let mut escaped = false;
        for (at, c) in inside.char_indices() {
            match c {
                _ if escaped => {
                    escaped = false;
                    if c != '"' && c != '\\' {
                        return None;
                    }
                }
                '\\' => escaped = true,
                '"' => {
                    self.0 = &inside[at + 1..];
                    return Some(Value::Text(&inside[..at]));
                }
                ' '..='~' => {}
                _ => return None,
            }
        }
        None
    }

    /// RFC 8941 §4.2.3.2. They say nothing here, but must be well formed.
    fn parameters(&mut self) -> Option<()> {
        while self.take(";") {
            self.skip(&[' ']);
            self.key()?;
            if self.take("=") {
                self.item()?;
            }
        }
        Some(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use http::HeaderValue;
    use proptest::prelude::*;
    use std::time::Duration;

    fn max_age(text: &str) -> Option<Option<u64>> {
        Some(read(text)?.max_age.as_ref().map(Duration::as_secs))
    }

    #[test]
    fn rfc8941_4_2_2_dictionaries_are_read_by_their_grammar() {
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
    fn rfc9213_2_1_the_first_field_of_the_list_that_can_be_read_counts() {
        let said_by = |ours: &'static str, cdn: &'static str| {
            let lines = FIELDS.into_iter().zip([ours, cdn].map(HeaderValue::from_static));
            said(&lines.collect()).and_then(|said| said.max_age).map(|time| time.as_secs())
        };
        assert_eq!(said_by("max-age=1", "max-age=2"), Some(1));
        assert_eq!(said_by("max-age =1", "max-age=2"), Some(2));
        assert_eq!(said_by("", "max-age=2"), Some(2));
        assert_eq!(said_by("", ""), None);
    }

    proptest! {
        #[test]
        fn nothing_is_too_strange(text in "\\PC{0,60}", odd in "[a-z0-9=,;:\"?() .\\\\-]{0,40}") {
            let _ = (read(&text), read(&odd));
        }

        #[test]
        fn what_is_read_says_the_same_as_cache_control(age in 0u32.., stale in 0u32.., flag: bool) {
            let text = format!("max-age={age}, stale-if-error={stale}{}", if flag { ", no-store" } else { "" });
            let value = HeaderValue::try_from(text.as_str()).expect("a value");
            let plain = CacheControl::of(&[(http::header::CACHE_CONTROL, value)].into_iter().collect());
            prop_assert_eq!(read(&text), Some(plain));
        }
    }
}
