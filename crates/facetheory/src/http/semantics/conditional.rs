//! Conditional requests and entity tags (RFC 9110 §13).

use http::HeaderMap;
use http::header::{HeaderName, IF_MATCH, IF_MODIFIED_SINCE, IF_NONE_MATCH, IF_UNMODIFIED_SINCE};
use tabletheory::Timestamp;

use crate::http::compression::Coding;
use crate::http::semantics::date::date_of;

/// The result of the conditions of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Condition {
    /// Send the page.
    Send,
    /// The client has the page: 304.
    NotModified,
    /// The page is not in the state that the client requires: 412.
    Failed,
}

/// The validators of a page.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Validators<'a> {
    /// The entity tag, see [`EntityTag::of_page`].
    pub(crate) etag: Option<EntityTag<'a>>,
    /// The value of `Last-Modified`.
    pub(crate) last_modified: Option<Timestamp>,
    /// Whether the entity tag identifies one coding, because the origin chose both.
    pub(crate) exact: bool,
}

impl Validators<'_> {
    /// Whether a client's tag matches that of the page.
    fn have(&self, client: EntityTag<'_>, strongly: bool) -> bool {
        self.etag.is_some_and(|own| {
            let is_same = if self.exact { own.opaque == client.opaque } else { own.is_of_page(client) };
            is_same && !(strongly && (own.weak || client.weak))
        })
    }
}

/// Evaluates the conditions of a request in the order of RFC 9110 §13.2.2.
///
/// An invalid condition never leads to 304. Conditions apply to successful responses only: errors and redirects are sent
/// whatever they say.
pub(crate) fn evaluate(headers: &HeaderMap, status: u16, page: &Validators<'_>, now: Timestamp) -> Condition {
    if !(200..300).contains(&status) {
        return Condition::Send;
    }
    let unmodified_since = |name| {
        let date = date_of(headers, &name)?;
        Some(page.last_modified?.seconds() <= date.seconds())
    };
    if headers.contains_key(IF_MATCH) {
        if !any_tag(headers, &IF_MATCH, |tag| page.have(tag, true)) {
            return Condition::Failed;
        }
    } else if unmodified_since(IF_UNMODIFIED_SINCE) == Some(false) {
        return Condition::Failed;
    }
    let not_modified = if headers.contains_key(IF_NONE_MATCH) {
        any_tag(headers, &IF_NONE_MATCH, |tag| page.have(tag, false))
    } else {
        // A date in the future is a mistake, and would hide every change until then.
        date_of(headers, &IF_MODIFIED_SINCE).is_some_and(|date| date.seconds() <= now.seconds())
            && unmodified_since(IF_MODIFIED_SINCE) == Some(true)
    };
    if not_modified { Condition::NotModified } else { Condition::Send }
}

/// An entity tag without its quotes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct EntityTag<'a> {
    pub(crate) weak: bool,
    pub(crate) opaque: &'a str,
}

impl<'a> EntityTag<'a> {
    /// Parses the entity tag of a row. Services in other languages may write it without quotes.
    pub(crate) fn of_page(text: &'a str) -> Option<Self> {
        match EntityTag::first_of(text) {
            Some((tag, "")) => Some(tag),
            _ if text.is_empty() || !text.bytes().all(is_opaque) => None,
            _ => Some(EntityTag { weak: false, opaque: text }),
        }
    }

    /// Parses the entity tag at the start of a text. Returns it and the rest.
    fn first_of(text: &'a str) -> Option<(Self, &'a str)> {
        // Lower-case `w/` is invalid, but common.
        let (weak, quoted) = match text.strip_prefix("W/").or_else(|| text.strip_prefix("w/")) {
            Some(quoted) => (true, quoted),
            None => (false, text),
        };
        let (opaque, rest) = quoted.strip_prefix('"')?.split_once('"')?;
        opaque.bytes().all(is_opaque).then_some((EntityTag { weak, opaque }, rest))
    }

    /// Returns the tag of a page in this coding. Each coding has its own (RFC 9110 §8.8.3.3).
    pub(crate) fn in_coding(self, coding: Coding) -> String {
        let weak = if self.weak { "W/" } else { "" };
        format!("{weak}\"{}{}\"", self.opaque, coding.etag_suffix())
    }

    /// Whether a client's tag strongly matches this page in this coding.
    pub(crate) fn strongly_is(self, client: EntityTag<'_>, coding: Coding) -> bool {
        let same = client.opaque.strip_suffix(coding.etag_suffix()) == Some(self.opaque);
        !self.weak && !client.weak && same
    }

    /// Whether a client's tag matches this page in any coding: a client that has one of them has the page.
    fn is_of_page(self, client: EntityTag<'_>) -> bool {
        Coding::ALL.iter().any(|coding| client.opaque.strip_suffix(coding.etag_suffix()) == Some(self.opaque))
    }
}

/// Whether a byte may be part of an entity tag.
fn is_opaque(byte: u8) -> bool {
    byte == b'!' || (b'#'..=b'~').contains(&byte) || byte >= 0x80
}

/// The most entity tags of a request that are compared.
const MAX_TAGS: usize = 100;

/// Whether `*`, or any tag in the lines of this name, satisfies a condition. A line is read up to its first error.
fn any_tag(headers: &HeaderMap, name: &HeaderName, wanted: impl Fn(EntityTag<'_>) -> bool) -> bool {
    let mut left = MAX_TAGS;
    for line in headers.get_all(name) {
        let Ok(mut rest) = std::str::from_utf8(line.as_bytes()) else { continue };
        if rest.trim() == "*" {
            return true;
        }
        while left > 0 {
            rest = rest.trim_start_matches([',', ' ', '\t']);
            let Some((tag, after)) = EntityTag::first_of(rest) else { break };
            let ends = after.trim_start_matches([' ', '\t']);
            if !ends.is_empty() && !ends.starts_with(',') {
                break;
            }
            if wanted(tag) {
                return true;
            }
            rest = ends;
            left -= 1;
        }
    }
    false
}

/// Parses a header with exactly one tag, such as `If-Range`.
pub(crate) fn single_tag(text: &str) -> Option<EntityTag<'_>> {
    EntityTag::first_of(text.trim()).filter(|(_, rest)| rest.is_empty()).map(|(tag, _)| tag)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::http::semantics::date::parse_date;
    use http::HeaderValue;
    use proptest::prelude::*;

    const NOW: Timestamp = Timestamp::from_seconds(1_700_000_000);
    const EARLIER: &str = "Tue, 14 Nov 2023 22:13:19 GMT";

    fn request(lines: &[(HeaderName, &str)]) -> HeaderMap {
        let value = |text: &str| HeaderValue::from_bytes(text.as_bytes()).expect("a header value");
        lines.iter().map(|(name, text)| (name.clone(), value(text))).collect()
    }

    /// The page `"x"`, modified a second ago.
    fn condition_for(lines: &[(HeaderName, &str)]) -> Condition {
        let page = Validators {
            etag: EntityTag::of_page("\"x\""),
            last_modified: parse_date(EARLIER),
            exact: false,
        };
        evaluate(&request(lines), 200, &page, NOW)
    }

    fn assert_conditions(name: HeaderName, expected: Condition, values: &[&str]) {
        for value in values {
            assert_eq!(condition_for(&[(name.clone(), value)]), expected, "{name}: {value}");
        }
    }

    #[test]
    fn a_client_that_has_the_page_gets_304() {
        assert_conditions(
            IF_NONE_MATCH,
            Condition::NotModified,
            &[
                "\"x\"",
                "W/\"x\"",
                "w/\"x\"",
                "\"a\", \"x\"",
                "\"a\",W/\"x\" ,",
                ",, \"x\"",
                "*",
                " * ",
                "\"x-br\"",
                "\"x-zstd\"",
                "W/\"x-gzip\"",
            ],
        );
        assert_conditions(
            IF_NONE_MATCH,
            Condition::Send,
            &[
                "\"x-deflate\"",
                "\"x-br-br\"",
                "\"\"",
                "\"X\"",
                "x",
                "'x'",
                "\"x",
                "\"a\" \"x\"",
                "\"a\"; \"x\"",
                "*, \"a\"",
                "",
                "\"a b\", \"x\"",
            ],
        );
        assert_eq!(
            condition_for(&[(IF_NONE_MATCH, "\"a\""), (IF_NONE_MATCH, "\"x\"")]),
            Condition::NotModified
        );
    }

    #[test]
    fn dates_have_three_formats_and_invalid_ones_are_ignored() {
        assert_conditions(
            IF_MODIFIED_SINCE,
            Condition::NotModified,
            &[
                EARLIER,
                "Tuesday, 14-Nov-23 22:13:19 GMT",
                "Tue Nov 14 22:13:19 2023",
                "Tue, 14 Nov 2023 22:13:20 GMT",
            ],
        );
        assert_conditions(
            IF_MODIFIED_SINCE,
            Condition::Send,
            &[
                "Tue, 14 Nov 2023 22:13:18 GMT",
                "Tuesday, 14-Nov-94 22:13:19 GMT",
                "Tuesday, 14-Nov-68 22:13:19 GMT",
                "Tue, 14 Nov 2023 22:13:21 GMT",
                "Fri, 31 Dec 9999 23:59:59 GMT",
                "2023-11-14T22:13:19Z",
                "1700000000",
                "",
            ],
        );
        let twice = [(IF_MODIFIED_SINCE, EARLIER), (IF_MODIFIED_SINCE, EARLIER)];
        assert_eq!(condition_for(&twice), Condition::Send);
    }

    #[test]
    fn if_none_match_takes_precedence_over_dates_even_if_it_is_invalid() {
        for tags in ["\"other\"", "junk", ""] {
            let lines = [(IF_NONE_MATCH, tags), (IF_MODIFIED_SINCE, EARLIER)];
            assert_eq!(condition_for(&lines), Condition::Send, "{tags}");
        }
    }

    #[test]
    fn a_page_in_another_state_gets_412() {
        for (name, value, expected) in [
            (IF_MATCH, "\"x\"", Condition::Send),
            (IF_MATCH, "*", Condition::Send),
            (IF_MATCH, "\"x-br\"", Condition::Send),
            (IF_MATCH, "W/\"x\"", Condition::Failed),
            (IF_MATCH, "\"other\"", Condition::Failed),
            (IF_MATCH, "junk", Condition::Failed),
            (IF_UNMODIFIED_SINCE, EARLIER, Condition::Send),
            (IF_UNMODIFIED_SINCE, "Tue, 14 Nov 2023 22:13:18 GMT", Condition::Failed),
            (IF_UNMODIFIED_SINCE, "junk", Condition::Send),
        ] {
            assert_eq!(condition_for(&[(name.clone(), value)]), expected, "{name}: {value}");
        }
        // If-Match outweighs the date, and is weighed before If-None-Match.
        let old = "Tue, 14 Nov 2000 22:13:18 GMT";
        assert_eq!(condition_for(&[(IF_MATCH, "\"x\""), (IF_UNMODIFIED_SINCE, old)]), Condition::Send);
        assert_eq!(condition_for(&[(IF_MATCH, "\"y\""), (IF_NONE_MATCH, "\"x\"")]), Condition::Failed);
        assert_eq!(condition_for(&[(IF_MATCH, "\"x\""), (IF_NONE_MATCH, "\"x\"")]), Condition::NotModified);
    }

    #[test]
    fn conditions_apply_to_successful_responses_only() {
        let page = Validators { etag: EntityTag::of_page("x"), last_modified: None, exact: false };
        let headers = request(&[(IF_NONE_MATCH, "\"x\"")]);
        assert_eq!(evaluate(&headers, 200, &page, NOW), Condition::NotModified);
        for status in [301, 404, 410] {
            assert_eq!(evaluate(&headers, status, &page, NOW), Condition::Send);
        }
        let nothing = Validators::default();
        assert_eq!(evaluate(&headers, 200, &nothing, NOW), Condition::Send, "a page without a tag");
    }

    #[test]
    fn a_row_may_have_an_entity_tag_without_quotes() {
        let read = |text| EntityTag::of_page(text).map(|tag| tag.in_coding(Coding::Brotli));
        assert_eq!(read("abc").as_deref(), Some("\"abc-br\""));
        assert_eq!(read("\"abc\"").as_deref(), Some("\"abc-br\""));
        assert_eq!(read("W/\"abc\"").as_deref(), Some("W/\"abc-br\""));
        for wrong in ["", "a b", "a\"b", "\"a", "\"a\" ", "a\r\nb"] {
            assert_eq!(read(wrong), None, "{wrong:?}");
        }
    }

    proptest! {
        #[test]
        fn a_client_with_any_coding_of_a_page_gets_304(
            opaque in "[!#-~é]{0,12}", weak: bool, coding in proptest::sample::select(Coding::ALL.to_vec()),
            noise in proptest::collection::vec("(W/)?\"[!#-~]{0,5}\"", 0..5),
        ) {
            let own = format!("{}\"{opaque}\"", if weak { "W/" } else { "" });
            let tag = EntityTag::of_page(&own).expect("a tag");
            let mut list = noise;
            list.push(tag.in_coding(coding));
            let headers = request(&[(IF_NONE_MATCH, &list.join(", "))]);
            let page = Validators { etag: Some(tag), last_modified: None, exact: false };
            prop_assert_eq!(evaluate(&headers, 200, &page, NOW), Condition::NotModified);
        }

        #[test]
        fn only_the_tag_itself_leads_to_304(line in "[x\"W/,* a-]{0,12}") {
            let headers = request(&[(IF_NONE_MATCH, &line)]);
            let page = Validators { etag: EntityTag::of_page("\"x\""), last_modified: None, exact: false };
            let sent = evaluate(&headers, 200, &page, NOW) == Condition::Send;
            prop_assert!(sent || line.contains("\"x\"") || line.trim() == "*", "{}", line);
        }
    }
}
