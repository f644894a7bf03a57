//! Paths: which are rejected, and how a path segment is written into a cache key.
//!
//! A path is never rewritten: the origin gets the bytes that are in the key. Spellings that an origin may treat as equal
//! (`/a`, `/%61`, `/a/`, `//a`) are different pages. Spellings that an origin may resolve to another path are rejected.

use sha2::{Digest, Sha256};

/// Returns why a path is rejected, or `None` if it is valid.
///
/// Dot segments, also encoded, and backslashes may lead to another path than the one that matched the route. Incomplete
/// escapes and encoded control characters mean different things to different origins.
pub(crate) fn path_error(path: &str) -> Option<&'static str> {
    let bytes = path.as_bytes();
    let mut at = 0;
    while at < bytes.len() {
        match bytes[at] {
            b'\\' => return Some("a backslash"),
            b'%' => match escaped(&bytes[at..]) {
                None => return Some("a percent sign without two hexadecimal digits"),
                Some(byte) if byte.is_ascii_control() => return Some("an encoded control character"),
                Some(_) => at += 3,
            },
            byte if byte.is_ascii_control() || byte == b' ' => return Some("a control character or a space"),
            _ => at += 1,
        }
    }
    // Some origins decode a path before they split it, so an encoded slash or backslash ends a segment.
    let may_be_dots = path.contains("/.") || path.contains('%');
    (may_be_dots && has_dot_segment(bytes)).then_some("a dot segment")
}

/// Whether a segment is `.` or `..` after decoding, also with segment parameters (`..;x`).
fn has_dot_segment(path: &[u8]) -> bool {
    let mut rest = path;
    // The number of dots in the segment so far; `None` once it contains anything else.
    let mut dots = None;
    while let [first, after @ ..] = rest {
        let (byte, after) = match escaped(rest) {
            Some(byte) => (byte, &rest[3..]),
            None => (*first, after),
        };
        dots = match (byte, dots) {
            (b'/' | b'\\', Some(1 | 2)) | (b';', Some(1 | 2)) => return true,
            (b'/' | b'\\', _) => Some(0),
            (b'.', Some(dots)) => Some(dots + 1),
            _ => None,
        };
        rest = after;
    }
    matches!(dots, Some(1 | 2))
}

/// Decodes the escape at the start of a text.
fn escaped(text: &[u8]) -> Option<u8> {
    let [b'%', high, low, ..] = text else { return None };
    let digit = |byte: &u8| char::from(*byte).to_digit(16).and_then(|digit| u8::try_from(digit).ok());
    Some(digit(high)? * 16 + digit(low)?)
}

/// Writes a path parameter, such as `hello%20world`, into a cache key. Different parameters have different forms there.
///
/// A parameter in the form of JavaScript's `encodeURIComponent` is written unchanged: services in other languages, which
/// decode and encode it again, get the same key. Segments are separated by `%2F`. Any other spelling is marked with a second
/// percent sign, which no path has that passed [`path_error`].
pub(crate) fn push_part(key: &mut String, part: &str) {
    let bytes = part.as_bytes();
    let mut at = 0;
    while at < bytes.len() {
        let byte = bytes[at];
        at += 1;
        match byte {
            b'/' => key.push_str("%2F"),
            b'%' if bytes[at..].starts_with(b"2F") => {
                key.push_str("%%2F");
                at += 2;
            }
            byte if byte == b'%' || is_plain(byte) => key.push(char::from(byte)),
            byte => {
                key.push_str("%%");
                push_hex(key, byte, b"0123456789ABCDEF");
            }
        }
    }
}

/// Whether JavaScript's `encodeURIComponent` leaves a byte unchanged.
fn is_plain(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || b"-_.!~*'()".contains(&byte)
}

fn push_hex(text: &mut String, byte: u8, digits: &[u8; 16]) {
    text.push(char::from(digits[usize::from(byte >> 4)]));
    text.push(char::from(digits[usize::from(byte & 15)]));
}

/// Adds the first twelve bytes of a digest in hexadecimal digits.
pub(crate) fn push_short_digest(text: &mut String, digest: Sha256) {
    digest.finalize().iter().take(12).for_each(|byte| push_hex(text, *byte, b"0123456789abcdef"));
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn spelt(part: &str) -> String {
        let mut key = String::new();
        push_part(&mut key, part);
        key
    }

    #[test]
    fn paths_that_may_resolve_elsewhere_are_rejected() {
        for (expected, paths) in [
            (
                None,
                &[
                    "/",
                    "/a/b",
                    "/a/",
                    "//a",
                    "/a//b",
                    "/.well-known/x",
                    "/...",
                    "/a.b/..c",
                    "/a%20b",
                    "/a%2fb",
                    "/caf\u{e9}",
                    "/a;b=c",
                ][..],
            ),
            (
                Some("a dot segment"),
                &[
                    "/.",
                    "/a/..",
                    "/a/../b",
                    "/a/./b",
                    "/a/%2e%2E/b",
                    "/a/.%2e",
                    "/a/..%2fb",
                    "/a%2f..%2fb",
                    "/a%5c..%5cb",
                    "/a/..;x/b",
                ],
            ),
            (Some("a backslash"), &["/a\\b"]),
            (Some("an encoded control character"), &["/a%00", "/a%0d%0aset-cookie:x", "/a%7F"]),
            (Some("a percent sign without two hexadecimal digits"), &["/a%", "/a%4", "/a%zz", "/%%41"]),
            (Some("a control character or a space"), &["/a b"]),
        ] {
            for path in paths {
                assert_eq!(path_error(path), expected, "{path}");
            }
        }
    }

    #[test]
    fn usual_spellings_are_unchanged_and_others_are_distinct() {
        for (part, expected) in [
            ("hello%20world", "hello%20world"),
            ("a/b", "a%2Fb"),
            ("a%2Fb", "a%%2Fb"),
            ("a%2fb", "a%2fb"),
            ("a&b=c", "a%%26b%%3Dc"),
            ("a%26b", "a%26b"),
            ("\u{e9}", "%%C3%%A9"),
            ("%C3%A9", "%C3%A9"),
        ] {
            assert_eq!(spelt(part), expected);
        }
    }

    proptest! {
        #[test]
        fn two_parts_are_never_spelt_alike(one in "(%2F|%2f|%26|[/&=2Fa]){0,5}", other in "(%2F|%2f|%26|[/&=2Fa]){0,5}") {
            prop_assert!(path_error(&one).is_none() && path_error(&other).is_none());
            prop_assert_eq!(spelt(&one) == spelt(&other), one == other);
        }

        #[test]
        fn a_part_has_nothing_that_ends_it(part in "\\PC{0,20}") {
            prop_assert!(!spelt(&part).contains(['&', '=', '#', '?', '/', ':']));
        }

        #[test]
        fn dot_segments_are_found_as_by_decoding_everything(path in "(/|%2f|%5C|\\.|%2e|%2E|a|;){0,8}") {
            let path = format!("/{path}");
            let decoded = path.to_ascii_lowercase().replace("%2f", "/").replace("%5c", "/").replace("%2e", ".");
            let naive = decoded.split('/')
                .any(|segment| [".", ".."].contains(&segment.split(';').next().unwrap_or_default()));
            prop_assert_eq!(path_error(&path) == Some("a dot segment"), naive, "{}", path);
        }
    }
}
