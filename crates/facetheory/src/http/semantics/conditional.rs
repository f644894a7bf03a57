//! Conditional requests: entity tags, and whether a page has to be sent at all (RFC 9110 §13).

use http::HeaderMap;
use http::header::{HeaderName, IF_MATCH, IF_MODIFIED_SINCE, IF_NONE_MATCH, IF_UNMODIFIED_SINCE};
use tabletheory::Timestamp;

use crate::http::compression::Coding;
use crate::http::semantics::date::date_of;

/// Whether a page has to be sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Condition {
    /// Send it.
    Send,
    /// The client has it already: 304.
    NotModified,
    /// The client has asked for another state of it: 412.
    Failed,
}

/// What a page is recognised by.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Validators<'a> {
    /// Its entity tag, as [`EntityTag::of_page`] reads it.
    pub(crate) etag: Option<EntityTag<'a>>,
    /// When its renderer said that it was modified last.
    pub(crate) last_modified: Option<Timestamp>,
    /// Whether the tag is that of one coding alone, because its origin chose both.
    pub(crate) exact: bool,
}

impl Validators<'_> {
    fn strongly_are(&self, client: EntityTag<'_>) -> bool {
        self.etag.is_some_and(|own| !own.weak && !client.weak && self.tag_is(own, client))
    }

    fn weakly_are(&self, client: EntityTag<'_>) -> bool {
        self.etag.is_some_and(|own| self.tag_is(own, client))
    }

    fn tag_is(&self, own: EntityTag<'_>, client: EntityTag<'_>) -> bool {
        if self.exact { own.opaque == client.opaque } else { own.is_of_page(client) }
    }
}

/// Weighs the conditions of a request in the order of RFC 9110 §13.2.2.
///
/// What cannot be read is never a reason for 304. Conditions are for successful answers only: a page that says
/// that there is none, or that sends the client elsewhere, is sent whatever they say.
pub(crate) fn evaluate(headers: &HeaderMap, status: u16, page: &Validators<'_>, now: Timestamp) -> Condition {
    if !(200..300).contains(&status) {
        return Condition::Send;
    }
    let unmodified_since = |name| {
        let date = date_of(headers, &name)?;
        Some(page.last_modified?.seconds() <= date.seconds())
    };
    if headers.contains_key(IF_MATCH) {
        if !any_tag(headers, &IF_MATCH, |tag| page.strongly_are(tag)) {
            return Condition::Failed;
        }
    } else if unmodified_since(IF_UNMODIFIED_SINCE) == Some(false) {
        return Condition::Failed;
    }
    let not_modified = if headers.contains_key(IF_NONE_MATCH) {
        any_tag(headers, &IF_NONE_MATCH, |tag| page.weakly_are(tag))
    } else {
        // A date that has not come yet is a mistake, and would hide every change until then.
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
    /// The tag of a page as its row has it. Services in other languages may have left out the quotes.
    pub(crate) fn of_page(text: &'a str) -> Option<Self> {
        let bare = || {
            let plain = !text.is_empty() && text.bytes().all(is_opaque);
            plain.then_some(EntityTag { weak: false, opaque: text })
        };
        match EntityTag::first_of(text) {
            Some((tag, "")) => Some(tag),
            _ => bare(),
        }
    }

    /// The tag at the beginning of a text, and the rest.
    fn first_of(text: &'a str) -> Option<(Self, &'a str)> {
        // Lower-case `w/` is wrong, and common.
        let (weak, quoted) = match text.strip_prefix("W/").or_else(|| text.strip_prefix("w/")) {
            Some(quoted) => (true, quoted),
            None => (false, text),
        };
        let (opaque, rest) = quoted.strip_prefix('"')?.split_once('"')?;
        opaque.bytes().all(is_opaque).then_some((EntityTag { weak, opaque }, rest))
    }

    /// The tag under which a page is sent in this coding: another one for each, as RFC 9110 §8.8.3.3 wants.
    pub(crate) fn in_coding(self, coding: Coding) -> String {
        let weak = if self.weak { "W/" } else { "" };
        format!("{weak}\"{}{}\"", self.opaque, coding.etag_suffix())
    }

    /// Whether a client's tag is that of this page in this very coding, byte for byte.
    pub(crate) fn strongly_is(self, client: EntityTag<'_>, coding: Coding) -> bool {
        let same = client.opaque.strip_suffix(coding.etag_suffix()) == Some(self.opaque);
        !self.weak && !client.weak && same
    }

    /// Whether a client's tag is that of this page in any coding: whoever has one has the page.
    fn is_of_page(self, client: EntityTag<'_>) -> bool {
        Coding::ALL.iter().any(|coding| client.opaque.strip_suffix(coding.etag_suffix()) == Some(self.opaque))
    }
}

/// What may stand between the quotes of an entity tag.
fn is_opaque(byte: u8) -> bool {
    byte == b'!' || (b'#'..=b'~').contains(&byte) || byte >= 0x80
}

/// The most entity tags of a request that are looked at: nobody has more copies of one page.
const MAX_TAGS: usize = 100;

/// Whether `*`, or a tag of a list in all lines of this name, satisfies a condition. A line is read up to what is
/// wrong with it.
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

/// The one tag of a header such as `If-Range`; none where it is anything else.
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
    fn ask(lines: &[(HeaderName, &str)]) -> Condition {
        let page = Validators {
            etag: EntityTag::of_page("\"x\""),
            last_modified: parse_date(EARLIER),
            exact: false,
        };
        evaluate(&request(lines), 200, &page, NOW)
    }

    #[test]
    fn a_client_that_has_the_page_is_told_so() {
        for (tags, expected) in [
            ("\"x\"", Condition::NotModified),
            ("W/\"x\"", Condition::NotModified),
            ("w/\"x\"", Condition::NotModified),
            ("\"a\", \"x\"", Condition::NotModified),
            ("\"a\",W/\"x\" ,", Condition::NotModified),
            (",, \"x\"", Condition::NotModified),
            ("*", Condition::NotModified),
            (" * ", Condition::NotModified),
            ("\"x-br\"", Condition::NotModified),
            ("\"x-zstd\"", Condition::NotModified),
            ("W/\"x-gzip\"", Condition::NotModified),
            ("\"x-deflate\"", Condition::Send),
            ("\"x-br-br\"", Condition::Send),
            ("\"\"", Condition::Send),
            ("\"X\"", Condition::Send),
            ("x", Condition::Send),
            ("'x'", Condition::Send),
            ("\"x", Condition::Send),
            ("\"a\" \"x\"", Condition::Send),
            ("\"a\"; \"x\"", Condition::Send),
            ("*, \"a\"", Condition::Send),
            ("", Condition::Send),
            ("\"a b\", \"x\"", Condition::Send),
        ] {
            assert_eq!(ask(&[(IF_NONE_MATCH, tags)]), expected, "{tags}");
        }
        assert_eq!(ask(&[(IF_NONE_MATCH, "\"a\""), (IF_NONE_MATCH, "\"x\"")]), Condition::NotModified);
    }

    #[test]
    fn dates_come_in_three_formats_and_a_wrong_one_counts_for_nothing() {
        for (date, expected) in [
            (EARLIER, Condition::NotModified),
            ("Tuesday, 14-Nov-23 22:13:19 GMT", Condition::NotModified),
            ("Tue Nov 14 22:13:19 2023", Condition::NotModified),
            ("Tue, 14 Nov 2023 22:13:20 GMT", Condition::NotModified),
            ("Tue, 14 Nov 2023 22:13:18 GMT", Condition::Send),
            ("Tuesday, 14-Nov-94 22:13:19 GMT", Condition::Send),
            ("Tuesday, 14-Nov-68 22:13:19 GMT", Condition::Send),
            ("Tue, 14 Nov 2023 22:13:21 GMT", Condition::Send),
            ("Fri, 31 Dec 9999 23:59:59 GMT", Condition::Send),
            ("2023-11-14T22:13:19Z", Condition::Send),
            ("1700000000", Condition::Send),
            ("", Condition::Send),
        ] {
            assert_eq!(ask(&[(IF_MODIFIED_SINCE, date)]), expected, "{date}");
        }
        let twice = [(IF_MODIFIED_SINCE, EARLIER), (IF_MODIFIED_SINCE, EARLIER)];
        assert_eq!(ask(&twice), Condition::Send);
    }

    #[test]
    fn a_tag_outweighs_a_date_also_when_it_cannot_be_read() {
        for tags in ["\"other\"", "junk", ""] {
            let lines = [(IF_NONE_MATCH, tags), (IF_MODIFIED_SINCE, EARLIER)];
            assert_eq!(ask(&lines), Condition::Send, "{tags}");
        }
    }

    #[test]
    fn another_state_than_the_one_asked_for_is_not_sent() {
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
            assert_eq!(ask(&[(name.clone(), value)]), expected, "{name}: {value}");
        }
        // If-Match outweighs the date, and is weighed before If-None-Match.
        let old = "Tue, 14 Nov 2000 22:13:18 GMT";
        assert_eq!(ask(&[(IF_MATCH, "\"x\""), (IF_UNMODIFIED_SINCE, old)]), Condition::Send);
        assert_eq!(ask(&[(IF_MATCH, "\"y\""), (IF_NONE_MATCH, "\"x\"")]), Condition::Failed);
        assert_eq!(ask(&[(IF_MATCH, "\"x\""), (IF_NONE_MATCH, "\"x\"")]), Condition::NotModified);
    }

    #[test]
    fn conditions_are_for_successful_answers() {
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
    fn a_row_of_another_language_may_have_a_tag_without_quotes() {
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
        fn whoever_has_a_page_in_any_coding_has_it(
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
        fn nothing_but_the_tag_itself_makes_a_304(line in "[x\"W/,* a-]{0,12}") {
            let headers = request(&[(IF_NONE_MATCH, &line)]);
            let page = Validators { etag: EntityTag::of_page("\"x\""), last_modified: None, exact: false };
            let sent = evaluate(&headers, 200, &page, NOW) == Condition::Send;
            prop_assert!(sent || line.contains("\"x\"") || line.trim() == "*", "{}", line);
        }
    }
}
