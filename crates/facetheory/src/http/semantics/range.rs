//! Range requests: one range of bytes, or the whole page (RFC 9110 §14).

use std::ops::RangeInclusive;

use http::HeaderMap;
use http::header::{IF_RANGE, RANGE};

use crate::http::compression::Coding;
use crate::http::semantics::conditional::{Validators, single_tag};
use crate::http::semantics::date::parse_date;

/// The part of a page that is sent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Part {
    /// The whole page: 200.
    Whole,
    /// These bytes: 206.
    Bytes(RangeInclusive<usize>),
    /// The range is outside of the page: 416.
    None,
}

impl Part {
    /// Returns the part that a request selects of a page that has this length in this coding.
    ///
    /// A single range is served. The response to several ranges or to an invalid range is the whole page, as RFC 9110 §14.2
    /// permits; so is the response to a range of another version than the one that the client has a part of.
    pub(crate) fn of(headers: &HeaderMap, page: &Validators<'_>, coding: Coding, length: usize) -> Part {
        let mut lines = headers.get_all(RANGE).iter();
        let (Some(line), None) = (lines.next(), lines.next()) else { return Part::Whole };
        let part = line.to_str().ok().and_then(|line| Part::parse(line, length));
        part.filter(|_| is_same_version(headers, page, coding)).unwrap_or(Part::Whole)
    }

    /// Parses the range of a page of this length. Returns `None` if it is invalid or not in bytes.
    fn parse(text: &str, length: usize) -> Option<Part> {
        let (unit, range) = text.split_once('=')?;
        let (first, last) = range.trim().split_once('-')?;
        let (first, last) = match (first.trim_end(), last.trim_start()) {
            ("", count) => (length.saturating_sub(number(count)?), usize::MAX),
            (first, "") => (number(first)?, usize::MAX),
            (first, last) => (number(first)?, number(last)?),
        };
        if !unit.trim().eq_ignore_ascii_case("bytes") || first > last {
            return None;
        }
        Some(if first < length { Part::Bytes(first..=last.min(length - 1)) } else { Part::None })
    }

    /// The value of `Content-Range`, if the response has one.
    pub(crate) fn content_range(&self, length: usize) -> Option<String> {
        match self {
            Part::Whole => None,
            Part::Bytes(bytes) => Some(format!("bytes {}-{}/{length}", bytes.start(), bytes.end())),
            Part::None => Some(format!("bytes */{length}")),
        }
    }
}

/// Parses digits. A number that does not fit is as good as the largest: no page is that long.
fn number(text: &str) -> Option<usize> {
    let plain = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    plain.then(|| text.parse().unwrap_or(usize::MAX))
}

/// Whether `If-Range` is absent or names the version that would be sent.
fn is_same_version(headers: &HeaderMap, page: &Validators<'_>, coding: Coding) -> bool {
    let mut lines = headers.get_all(IF_RANGE).iter();
    let Some(line) = lines.next() else { return true };
    let (Ok(text), None) = (std::str::from_utf8(line.as_bytes()), lines.next()) else { return false };
    match single_tag(text) {
        // Parts of different codings, or of weakly equivalent pages, do not fit together.
        Some(tag) => page.etag.is_some_and(|own| own.strongly_is(tag, coding)),
        // A date must be exactly the one that was sent with this version. It counts only for uncompressed pages, since it
        // does not identify the coding.
        None => {
            coding == Coding::Identity
                && page.last_modified.is_some()
                && parse_date(text) == page.last_modified
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::http::semantics::conditional::EntityTag;
    use http::HeaderValue;
    use proptest::prelude::*;

    const MODIFIED: &str = "Tue, 14 Nov 2023 22:13:19 GMT";

    fn part_for(range: &str, if_range: Option<&str>, coding: Coding, length: usize) -> Part {
        let value = |text: &str| HeaderValue::from_bytes(text.as_bytes()).expect("a header value");
        let mut headers = HeaderMap::new();
        headers.insert(RANGE, value(range));
        if let Some(text) = if_range {
            headers.insert(IF_RANGE, value(text));
        }
        let page = Validators {
            etag: EntityTag::of_page("\"x\""),
            last_modified: parse_date(MODIFIED),
            exact: false,
        };
        Part::of(&headers, &page, coding, length)
    }

    #[test]
    fn one_range_is_served_and_anything_else_gets_the_whole_page() {
        for (range, expected) in [
            ("bytes=0-0", Part::Bytes(0..=0)),
            ("bytes=0-9", Part::Bytes(0..=9)),
            ("bytes=5-100", Part::Bytes(5..=9)),
            ("bytes=5-", Part::Bytes(5..=9)),
            ("bytes=-3", Part::Bytes(7..=9)),
            ("bytes=-100", Part::Bytes(0..=9)),
            ("Bytes=0-0", Part::Bytes(0..=0)),
            ("bytes= 0 - 0 ", Part::Bytes(0..=0)),
            ("bytes=9-9223372036854775808", Part::Bytes(9..=9)),
            ("bytes=0-99999999999999999999999", Part::Bytes(0..=9)),
            ("bytes=10-", Part::None),
            ("bytes=10-20", Part::None),
            ("bytes=99999999999999999999999-", Part::None),
            ("bytes=-0", Part::None),
            ("bytes=0-0,2-3", Part::Whole),
            ("bytes=0-0,", Part::Whole),
            ("bytes=3-2", Part::Whole),
            ("bytes=", Part::Whole),
            ("bytes=-", Part::Whole),
            ("bytes=--1", Part::Whole),
            ("bytes=+1-2", Part::Whole),
            ("bytes=0x0-1", Part::Whole),
            ("bytes=a-b", Part::Whole),
            ("bytes 0-1", Part::Whole),
            ("lines=0-1", Part::Whole),
            ("0-1", Part::Whole),
        ] {
            assert_eq!(part_for(range, None, Coding::Identity, 10), expected, "{range}");
        }
        assert_eq!(part_for("bytes=0-", None, Coding::Identity, 0), Part::None, "an empty page has no bytes");
    }

    #[test]
    fn a_range_of_another_version_gets_the_whole_page() {
        for (if_range, coding, same) in [
            ("\"x\"", Coding::Identity, true),
            ("\"x-br\"", Coding::Brotli, true),
            ("\"x\"", Coding::Brotli, false),
            ("\"x-br\"", Coding::Identity, false),
            ("W/\"x\"", Coding::Identity, false),
            ("\"y\"", Coding::Identity, false),
            ("\"x\", \"y\"", Coding::Identity, false),
            ("*", Coding::Identity, false),
            ("", Coding::Identity, false),
            (MODIFIED, Coding::Identity, true),
            (MODIFIED, Coding::Brotli, false),
            ("Tue, 14 Nov 2023 22:13:20 GMT", Coding::Identity, false),
        ] {
            let expected = if same { Part::Bytes(0..=0) } else { Part::Whole };
            assert_eq!(part_for("bytes=0-0", Some(if_range), coding, 10), expected, "{if_range}");
        }
    }

    #[test]
    fn content_range_names_the_part() {
        assert_eq!(Part::Whole.content_range(10), None);
        assert_eq!(Part::Bytes(2..=3).content_range(10).as_deref(), Some("bytes 2-3/10"));
        assert_eq!(Part::None.content_range(10).as_deref(), Some("bytes */10"));
    }

    proptest! {
        #[test]
        fn a_part_is_always_within_the_page(range in "bytes=[0-9, -]{0,12}", length in 0usize..1000) {
            if let Part::Bytes(bytes) = part_for(&range, None, Coding::Identity, length) {
                prop_assert!(bytes.start() <= bytes.end() && *bytes.end() < length, "{range} of {length}");
            }
        }

        #[test]
        fn a_well_formed_range_selects_what_slicing_selects(first in 0usize..20, last in 0usize..20, length in 1usize..20) {
            let all: Vec<usize> = (0..length).collect();
            let wanted: Vec<usize> = all.iter().copied().filter(|byte| (first..=last).contains(byte)).collect();
            let got = match part_for(&format!("bytes={first}-{last}"), None, Coding::Identity, length) {
                Part::Whole => { prop_assert!(first > last); return Ok(()); }
                Part::Bytes(bytes) => bytes.collect(),
                Part::None => Vec::new(),
            };
            prop_assert_eq!(got, wanted);
            let tail = match part_for(&format!("bytes=-{last}"), None, Coding::Identity, length) {
                Part::Bytes(bytes) => bytes.collect(),
                _ => Vec::new(),
            };
            let skip = length.saturating_sub(last);
            prop_assert_eq!(&tail[..], &all[skip..]);
        }

        #[test]
        fn any_input_is_handled_without_panic(range in "\\PC{0,40}", if_range in "\\PC{0,20}", length: usize) {
            let _ = part_for(&range, Some(&if_range), Coding::Gzip, length);
        }
    }
}
