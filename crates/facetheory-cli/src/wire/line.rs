//! Lines of a request head: allowed bytes, line ends, header names and values.

use super::rejection::Rejection;

/// A header line or a trailer line.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Field<'a> {
    pub(super) name: &'a [u8],
    /// Without the white space around it.
    pub(super) value: &'a [u8],
}

impl<'a> Field<'a> {
    /// Reads a line without its CRLF, which is not empty and has no control characters but tabs.
    pub(super) fn read(line: &'a [u8]) -> Result<Self, Rejection> {
        let end = line.iter().position(|&byte| !is(NAME, byte)).unwrap_or(line.len());
        match line.get(end) {
            Some(b':') if end > 0 => {}
            found => return Err(invalid_name(end, found.copied())),
        }
        Ok(Field { name: &line[..end], value: line[end + 1..].trim_ascii() })
    }

    /// Whether the field has this name, given in lower case.
    #[inline]
    pub(super) fn is(&self, name: &[u8]) -> bool {
        self.name.eq_ignore_ascii_case(name)
    }
}

/// The rejection of a name that ends at `end` with an unexpected byte.
fn invalid_name(end: usize, found: Option<u8>) -> Rejection {
    Rejection::bad(match found {
        Some(b' ' | b'\t') if end == 0 => "folded header line, or white space before a header name",
        Some(b' ' | b'\t') => "white space between a header name and its colon",
        Some(b':') => "empty header name",
        Some(b'_') => "underscore in a header name",
        Some(_) => "invalid character in a header name",
        None => "header line without a colon",
    })
}

/// Returns the first line without its CRLF, and its length with it; `None` if it is incomplete.
///
/// The first `searched` bytes are known not to contain the end of the line; updated for the next call. A line longer than
/// `limit` is rejected as `too_long` whatever it contains, so the outcome does not depend on how much of it has arrived.
pub(super) fn first<'a>(
    bytes: &'a [u8],
    searched: &mut usize,
    limit: usize,
    too_long: Rejection,
) -> Result<Option<(&'a [u8], usize)>, Rejection> {
    let end = control(bytes, *searched).unwrap_or(bytes.len());
    *searched = end;
    match bytes[end..] {
        [] if end <= limit => Ok(None),
        [b'\r'] if end < limit => Ok(None),
        [b'\r', b'\n', ..] if end + 2 <= limit => {
            *searched = 0;
            Ok(Some((&bytes[..end], end + 2)))
        }
        [b'\r', b'\n', ..] | [] => Err(too_long),
        _ if end >= limit => Err(too_long),
        [b'\n', ..] => Err(Rejection::bad("a line ends with LF instead of CRLF")),
        _ => Err(Rejection::bad("control character in a line")),
    }
}

/// Finds the first control character from `from` on, except tabs. In a valid line it is the line's end.
///
/// Checks eight bytes at once (SWAR): subtracting from a byte that is too small sets its highest bit. Only the first such
/// byte is meaningful, because the subtraction borrows from the following ones.
fn control(bytes: &[u8], from: usize) -> Option<usize> {
    const ONES: u64 = u64::from_le_bytes([1; 8]);
    const HIGH: u64 = ONES << 7;
    let mut at = from;
    while let Some(eight) = bytes.get(at..).and_then(|rest| rest.first_chunk()) {
        let eight = u64::from_le_bytes(*eight);
        let below_space = eight.wrapping_sub(ONES * u64::from(b' ')) & !eight;
        let delete = eight ^ (ONES * 0x7f);
        let is_delete = delete.wrapping_sub(ONES) & !delete;
        let found = (below_space | is_delete) & HIGH;
        if found == 0 {
            at += 8;
            continue;
        }
        at += usize::try_from(found.trailing_zeros() / 8).unwrap_or(0);
        if bytes[at] != b'\t' {
            return Some(at);
        }
        at += 1;
    }
    let rest = bytes.get(at..)?;
    rest.iter().position(|&byte| byte.is_ascii_control() && byte != b'\t').map(|found| at + found)
}

/// Header names: token characters without the underscore, which some servers treat as a hyphen.
pub(super) const NAME: u8 = 1;
/// Methods: token characters.
pub(super) const TOKEN: u8 = 2;
/// Paths. The URI parser rejects all other characters too.
pub(super) const PATH: u8 = 4;
/// Queries.
pub(super) const QUERY: u8 = 8;

/// Whether a byte belongs to a class.
pub(super) fn is(class: u8, byte: u8) -> bool {
    CLASSES[usize::from(byte)] & class != 0
}

/// Whether all bytes belong to a class.
pub(super) fn all(class: u8, bytes: &[u8]) -> bool {
    bytes.iter().fold(class, |all, &byte| all & CLASSES[usize::from(byte)]) != 0
}

static CLASSES: [u8; 256] = classes();

const fn classes() -> [u8; 256] {
    let mut classes = [0; 256];
    let mut byte = 0_u8;
    while byte < 0x80 {
        let token = byte.is_ascii_alphanumeric()
            || matches!(byte, b'!' | b'#'..=b'\'' | b'*' | b'+' | b'-' | b'.')
            || matches!(byte, b'^'..=b'`' | b'|' | b'~');
        let mut class = 0;
        if token {
            class |= TOKEN;
        }
        if token && byte != b'_' {
            class |= NAME;
        }
        if byte.is_ascii_graphic() && !matches!(byte, b'#' | b'\\' | b'<' | b'>') {
            if byte != b'`' {
                class |= PATH;
            }
            if byte != b'"' {
                class |= QUERY;
            }
        }
        classes[byte as usize] = class;
        byte += 1;
    }
    classes
}

#[cfg(test)]
mod tests {
    use super::*;

    const TOO_LONG: Rejection = Rejection::bad("too long");

    #[test]
    fn a_header_line_is_split_into_name_and_trimmed_value() {
        let field = Field::read(b"Content-Type: \t text/html\t").expect("a field");
        assert_eq!(field, Field { name: b"Content-Type", value: b"text/html" });
        assert!(field.is(b"content-type"));
        assert_eq!(Field::read(b"a:").expect("a field").value, b"");
    }

    #[test]
    fn every_control_character_but_the_tab_is_found_at_every_position() {
        for byte in 0..=255_u8 {
            for (length, position) in
                (0..40).flat_map(|length| (0..length).map(move |position| (length, position)))
            {
                let mut text = vec![b'a'; length];
                text[position] = byte;
                let expected = (byte.is_ascii_control() && byte != b'\t').then_some(position);
                assert_eq!(control(&text, 0), expected, "{byte} at {position} of {length}");
                assert_eq!(control(&text, position), expected, "{byte} at {position} of {length}");
                assert_eq!(control(&text, position + 1), None, "{byte} at {position} of {length}");
            }
        }
    }

    #[test]
    fn the_first_control_character_is_found_among_any_other_bytes() {
        for first in 0..=255_u8 {
            for second in 0..=255_u8 {
                let text = [b'a', first, second, 0xff, 0x80, b'\t', b' ', b'~', b'\r'];
                let expected = text.iter().position(|byte| byte.is_ascii_control() && *byte != b'\t');
                assert_eq!(control(&text, 0), expected, "{first} {second}");
            }
        }
    }

    #[test]
    fn a_line_ends_with_crlf() {
        let line = |bytes: &'static str| {
            let mut searched = 0;
            first(bytes.as_bytes(), &mut searched, 100, TOO_LONG).map(|line| (line, searched))
        };
        assert_eq!(line("ab"), Ok((None, 2)));
        assert_eq!(line("ab\r"), Ok((None, 2)));
        assert_eq!(line("ab\r\ncd"), Ok((Some((&b"ab"[..], 4)), 0)));
        assert!(line("ab\n").is_err());
        assert!(line("\n").is_err());
        assert!(line("ab\rc").is_err());
    }

    #[test]
    fn bytes_beyond_the_limit_are_not_checked() {
        for (bytes, limit) in [("ab\r\n", 3), ("abc\n", 3), ("ab\0", 2), ("abc", 2), ("ab\r", 2)] {
            assert_eq!(first(bytes.as_bytes(), &mut 0, limit, TOO_LONG), Err(TOO_LONG), "{bytes:?}");
        }
        assert_eq!(first(b"ab\r\n", &mut 0, 4, TOO_LONG), Ok(Some((&b"ab"[..], 4))));
    }
}
