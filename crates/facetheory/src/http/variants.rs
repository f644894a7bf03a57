//! Variants: the stored responses of one address that request headers select (RFC 9111 §4.1).

use http::HeaderMap;
use http::header::{ACCEPT, ACCEPT_CHARSET, ACCEPT_ENCODING, ACCEPT_LANGUAGE, COOKIE, HeaderName};
use sha2::{Digest, Sha256};

use crate::http::headers::FORWARDED_HOST;
use crate::http::router::path::push_short_digest;
use crate::http::semantics::vary;

/// Headers that change the response of some frameworks without being named in `Vary`. A client that sends them must not choose
/// the response of others.
const ALWAYS_SELECTING: [HeaderName; 6] = [
    HeaderName::from_static("rsc"),
    HeaderName::from_static("x-nextjs-data"),
    HeaderName::from_static("x-original-uri"),
    // An origin may trust them as the host and the path of the site, and write them into links.
    FORWARDED_HOST,
    HeaderName::from_static("x-forwarded-prefix"),
    HeaderName::from_static("x-script-name"),
];

/// Returns the request headers that a response varies on, sorted, or `None` for `Vary: *`.
pub(crate) fn names(response: &HeaderMap) -> Option<Vec<HeaderName>> {
    let mut names = vary::names(response)?;
    names.sort_by(|one, other| one.as_str().cmp(other.as_str()));
    Some(names)
}

/// Returns a digest of the values of these headers in a request, or `None` if there are no such headers. Headers that always
/// select count if the request has them.
///
/// Two requests have the same digest if all values are equal, whatever their distribution over lines and their spacing.
pub(crate) fn digest(names: &[HeaderName], request: &HeaderMap) -> Option<String> {
    let always = ALWAYS_SELECTING;
    let always = always.iter().filter(|name| request.contains_key(*name) && !names.contains(name));
    let mut names = names.iter().chain(always).peekable();
    names.peek()?;
    let mut digest = Sha256::new();
    for name in names {
        digest.update(name.as_str());
        match normalised(name, request) {
            Some(value) => {
                digest.update(b"=");
                digest.update((value.len() as u64).to_le_bytes());
                digest.update(&value);
            }
            None => digest.update(b"!"),
        }
        digest.update(b"\n");
    }
    let mut hex = String::with_capacity(24);
    push_short_digest(&mut hex, digest);
    Some(hex)
}

/// Returns the digest that selects a variant of a page which first existed after this time.
pub(crate) fn digest_since(digest: &str, since: i64) -> String {
    let mut hex = String::with_capacity(24);
    push_short_digest(&mut hex, Sha256::new().chain_update(digest).chain_update(since.to_be_bytes()));
    hex
}

/// Headers that are lists (RFC 9110 §12.5), so that lines, spaces and empty elements do not matter.
const LISTS: [HeaderName; 4] = [ACCEPT, ACCEPT_CHARSET, ACCEPT_ENCODING, ACCEPT_LANGUAGE];

/// Returns the value of a header, the same for values that no origin distinguishes. Returns `None` if it is absent.
///
/// Origins distinguish `Origin: https://app.test,` and `Origin: https://app.test`, so only known lists are normalised, and
/// lists of words in any header: their spaces and lines do not matter (RFC 9110 §5.3).
fn normalised(name: &HeaderName, request: &HeaderMap) -> Option<Vec<u8>> {
    let mut lines = request.get_all(name).iter().peekable();
    lines.peek()?;
    // `Cookie` is not a list: a comma is part of a value, and lines are joined as the origin sees them (RFC 9113 §8.2.3).
    if *name == COOKIE {
        let lines: Vec<&[u8]> = lines.map(|line| line.as_bytes().trim_ascii()).collect();
        return Some(lines.join(&b"; "[..]));
    }
    let lines: Vec<&[u8]> = lines.map(|line| line.as_bytes().trim_ascii()).collect();
    let members = lines.iter().flat_map(|line| line.split(|byte| *byte == b',')).map(<[u8]>::trim_ascii);
    let is_list = LISTS.contains(name);
    let has_quotes = lines.iter().any(|line| line.contains(&b'"'));
    if has_quotes || !(is_list || members.clone().all(is_word)) {
        // A line has no line feed, so one line never equals several.
        return Some(lines.join(&b"\n"[..]));
    }
    let mut members: Vec<Vec<u8>> = members.filter(|member| !member.is_empty()).map(<[u8]>::to_vec).collect();
    if is_list && *name != ACCEPT {
        for member in &mut members {
            member.make_ascii_lowercase();
            member.retain(|byte| !byte.is_ascii_whitespace());
        }
        // Weights express the preference, not the order (RFC 9110 §12.4.2).
        members.sort_unstable();
    }
    Some(members.join(&b","[..]))
}

/// Whether a member of a list is a word (`token`), and not empty.
fn is_word(member: &[u8]) -> bool {
    HeaderName::from_bytes(member).is_ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::http::test_support::header_map as request;
    use http::HeaderValue;
    use http::header::VARY;
    use proptest::prelude::*;

    fn selected(vary: &[&'static str], lines: &[(&'static str, &str)]) -> Option<String> {
        let response = vary.iter().map(|line| (VARY, HeaderValue::from_static(line))).collect();
        digest(&names(&response).expect("names"), &request(lines))
    }

    #[test]
    fn rfc9111_4_1_a_response_is_selected_by_all_headers_in_vary() {
        let same = |one: &[(&'static str, &str)], other: &[(&'static str, &str)]| {
            selected(&["Foo, Bar"], one) == selected(&["Foo, Bar"], other)
        };
        assert!(same(&[("foo", "1"), ("bar", "2")], &[("bar", "2"), ("foo", "1"), ("baz", "3")]));
        assert!(!same(&[("foo", "1"), ("bar", "2")], &[("foo", "1"), ("bar", "3")]));
        assert!(!same(&[("foo", "1"), ("bar", "2")], &[("foo", "1")]));
        assert!(!same(&[("foo", "1"), ("bar", "")], &[("foo", "1")]), "an empty header is present");
        assert!(!same(&[("foo", "1")], &[("bar", "1")]));
        assert_eq!(selected(&[], &[("foo", "1")]), None);
    }

    #[test]
    fn rfc9111_4_1_lines_of_vary_accumulate_in_any_case_and_order() {
        let lines = [("foo", "1"), ("bar", "2")];
        assert_eq!(selected(&["Foo", "bar"], &lines), selected(&["BAR,foo, foo"], &lines));
        let anything: HeaderMap = [(VARY, HeaderValue::from_static("a, *"))].into_iter().collect();
        assert_eq!(names(&anything), None);
    }

    #[test]
    fn rfc9111_4_1_values_are_compared_without_lines_and_spaces() {
        let same = |name: &'static str, one: &[&str], other: &[&str]| {
            let of = |values: &[&str]| {
                let lines: Vec<(&'static str, &str)> = values.iter().map(|value| (name, *value)).collect();
                digest(&[HeaderName::from_static(name)], &request(&lines))
            };
            of(one) == of(other)
        };
        assert!(same("foo", &["1, 2"], &["1", "2"]));
        assert!(same("foo", &["1,2"], &[" 1 ,  2 "]));
        assert!(!same("foo", &["1, 2"], &["2, 1"]));
        assert!(!same("foo", &["a"], &["A"]));
        assert!(!same("foo", &["\"a,b\""], &["\"a, b\""]));
        assert!(same("accept", &["text/html, */*;q=0.5"], &["text/html,,", "*/*;q=0.5"]));
        assert!(!same("accept", &["a/b;x=\"1,2\""], &["a/b;x=\"1, 2\""]));
        for (one, other) in [
            ("https://app.test", "https://app.test,"),
            ("https://app.test", ",https://app.test"),
            ("1,2", "1,,2"),
            ("1", "1,"),
            ("1", ",1"),
            ("", ","),
            ("(KHTML, like Gecko)", "(KHTML,like Gecko)"),
        ] {
            assert!(!same("origin", &[one], &[other]), "{one} {other}");
        }
        assert!(!same("user-agent", &["a b, c"], &["a b", "c"]), "an origin may read the first line only");
        assert!(same("cookie", &["a=1; b=2"], &["a=1", "b=2"]));
        assert!(!same("cookie", &["a=1,b=2"], &["a=1", "b=2"]));
        assert!(!same("cookie", &["a=1,b=2"], &["a=1, b=2"]));
        assert!(same("accept-language", &["en, de"], &["De,eN"]));
        assert!(!same("accept-language", &["en, de;q=0.5"], &["en;q=0.5, de"]));
        assert!(same("accept-encoding", &["gzip, br"], &["br,gzip"]));
    }

    #[test]
    fn headers_of_frameworks_select_a_variant_without_vary() {
        for name in ["rsc", "x-nextjs-data", "x-original-uri"] {
            assert!(selected(&[], &[(name, "1")]).is_some(), "{name}");
            assert_ne!(selected(&["foo"], &[(name, "1")]), selected(&["foo"], &[]), "{name}");
            assert_ne!(selected(&["RSC"], &[(name, "1")]), selected(&["RSC"], &[]), "{name}");
        }
    }

    proptest! {
        #[test]
        fn different_values_have_different_digests(one in "[!-+--~]{0,9}", other in "[!-+--~]{0,9}") {
            let name = [HeaderName::from_static("foo")];
            let same = digest(&name, &request(&[("foo", &one)])) == digest(&name, &request(&[("foo", &other)]));
            prop_assert_eq!(same, one == other);
        }
    }
}
