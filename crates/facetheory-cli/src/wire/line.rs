//! Lines: which bytes may be in them, and how a header line falls into its name and its value.

use super::rejection::Rejection;

/// A header line, or a line of the trailers.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Field<'a> {
    pub(super) name: &'a [u8],
    /// Without the blanks around it.
    pub(super) value: &'a [u8],
}

impl<'a> Field<'a> {
    /// Reads a line that has lost its CRLF, is not empty, and has no control characters but tabs.
    pub(super) fn read(line: &'a [u8]) -> Result<Self, Rejection> {
        let end = line.iter().position(|&byte| !is(NAME, byte)).unwrap_or(line.len());
        match line.get(end) {
            Some(b':') if end > 0 => {}
            found => return Err(misnamed(end, found.copied())),
        }
        Ok(Field { name: &line[..end], value: trimmed(&line[end + 1..]) })
    }

    /// Whether this is the name, which is given in lower case.
    #[inline]
    pub(super) fn is(&self, name: &[u8]) -> bool {
        self.name.eq_ignore_ascii_case(name)
    }
}

/// What is wrong with a name that ends at this byte.
fn misnamed(end: usize, found: Option<u8>) -> Rejection {
    Rejection::bad(match found {
        Some(b' ' | b'\t') if end == 0 => "a header line is folded, or begins with a blank",
        Some(b' ' | b'\t') => "a header name is followed by a blank",
        Some(b':') => "a header has no name",
        Some(b'_') => "a header name has an underscore",
        Some(_) => "a header name has a character that no name has",
        None => "a header line has no colon",
    })
}

/// The first line of some bytes, without its CRLF, and where the next one begins; `None` if it has no end yet.
///
/// `searched` bytes are known to have no control character, and no control character is looked at from `limit` on:
/// a line that gets there is too long, whatever is in it.
pub(super) fn first(bytes: &[u8], searched: usize, limit: usize) -> Result<Line<'_>, Rejection> {
    let Some(end) = control(bytes, searched) else { return Ok(Line::Open { searched: bytes.len() }) };
    if end >= limit {
        return Ok(Line::TooLong);
    }
    match bytes[end..] {
        [b'\r', b'\n', ..] if end + 2 > limit => Ok(Line::TooLong),
        [b'\r', b'\n', ..] => Ok(Line::Whole { line: &bytes[..end], next: end + 2 }),
        [b'\r'] => Ok(Line::Open { searched: end }),
        [b'\n', ..] => Err(Rejection::bad("a line ends with a line feed alone")),
        _ => Err(Rejection::bad("a line has a control character")),
    }
}

/// What the first line of some bytes is.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Line<'a> {
    Whole {
        line: &'a [u8],
        next: usize,
    },
    /// It has no end yet, and there is none in so many bytes.
    Open {
        searched: usize,
    },
    TooLong,
}

/// Where the first control character is, from a place on, if it is not a tab. In a line that is right, this is its end.
///
/// Eight bytes are looked at together, as the digits of one number: a digit that is less than another borrows from the
/// next one, and that shows in its highest bit. What is found beyond the first such digit means nothing.
fn control(bytes: &[u8], from: usize) -> Option<usize> {
    const ONES: u64 = u64::from_le_bytes([1; 8]);
    const HIGH: u64 = ONES << 7;
    let mut at = from;
    while let Some(eight) = bytes.get(at..).and_then(|rest| rest.first_chunk()) {
        let eight = u64::from_le_bytes(*eight);
        let below_blank = eight.wrapping_sub(ONES * u64::from(b' ')) & !eight;
        let delete = eight ^ (ONES * 0x7f);
        let is_delete = delete.wrapping_sub(ONES) & !delete;
        let found = (below_blank | is_delete) & HIGH;
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

/// What is left without blanks at the beginning and the end.
pub(super) fn trimmed(mut text: &[u8]) -> &[u8] {
    while let [b' ' | b'\t', rest @ ..] = text {
        text = rest;
    }
    while let [rest @ .., b' ' | b'\t'] = text {
        text = rest;
    }
    text
}

/// May be in the name of a header: what a token is made of, without the underscore that some servers take for a hyphen.
pub(super) const NAME: u8 = 1;
/// May be in a method: what a token is made of.
pub(super) const TOKEN: u8 = 2;
/// May be in a path as it is sent. What is missing here is refused by the parser of addresses too.
pub(super) const PATH: u8 = 4;
/// May be in a query as it is sent.
pub(super) const QUERY: u8 = 8;

/// Whether a byte is of a class.
pub(super) fn is(class: u8, byte: u8) -> bool {
    CLASSES[usize::from(byte)] & class != 0
}

/// Whether all bytes are of a class.
pub(super) fn all(class: u8, bytes: &[u8]) -> bool {
    bytes.iter().fold(class, |all, &byte| all & CLASSES[usize::from(byte)]) != 0
}

static CLASSES: [u8; 256] = classes();

const fn classes() -> [u8; 256] {
    let mut classes = [0; 256];
    let mut byte = 0_u8;
    while byte < 0x80 {
        let token = byte.is_ascii_alphanumeric()
            || matches!(
                byte,
                b'!' | b'#'
                    | b'$'
                    | b'%'
                    | b'&'
                    | b'\''
                    | b'*'
                    | b'+'
                    | b'-'
                    | b'.'
                    | b'^'
                    | b'_'
                    | b'`'
                    | b'|'
                    | b'~'
            );
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

    #[test]
    fn a_line_is_a_name_and_a_value_without_blanks() {
        let field = Field::read(b"Content-Type: \t text/html\t").expect("a field");
        assert_eq!(field, Field { name: b"Content-Type", value: b"text/html" });
        assert!(field.is(b"content-type"));
        assert_eq!(Field::read(b"a:").expect("a field").value, b"");
    }

    #[test]
    fn every_control_character_but_the_tab_is_found_wherever_it_is() {
        for byte in 0..=255_u8 {
            for (length, place) in (0..40).flat_map(|length| (0..length).map(move |place| (length, place))) {
                let mut text = vec![b'a'; length];
                text[place] = byte;
                let expected = (byte.is_ascii_control() && byte != b'\t').then_some(place);
                assert_eq!(control(&text, 0), expected, "{byte} at {place} of {length}");
                assert_eq!(control(&text, place), expected, "{byte} at {place} of {length}");
                assert_eq!(control(&text, place + 1), None, "{byte} at {place} of {length}");
            }
        }
    }

    #[test]
    fn the_first_control_character_is_found_whatever_is_around_it() {
        for first in 0..=255_u8 {
            for second in 0..=255_u8 {
                let text = [b'a', first, second, 0xff, 0x80, b'\t', b' ', b'~', b'\r'];
                let expected = text.iter().position(|byte| byte.is_ascii_control() && *byte != b'\t');
                assert_eq!(control(&text, 0), expected, "{first} {second}");
            }
        }
    }

    #[test]
    fn a_line_ends_with_a_carriage_return_and_a_line_feed() {
        let line = |bytes: &'static str| first(bytes.as_bytes(), 0, 100);
        assert_eq!(line("ab"), Ok(Line::Open { searched: 2 }));
        assert_eq!(line("ab\r"), Ok(Line::Open { searched: 2 }));
        assert_eq!(line("ab\r\ncd"), Ok(Line::Whole { line: b"ab", next: 4 }));
        assert!(line("ab\n").is_err());
        assert!(line("\n").is_err());
        assert!(line("ab\rc").is_err());
    }

    #[test]
    fn a_line_that_is_too_long_is_not_looked_at_further() {
        for (bytes, limit) in [("ab\r\n", 3), ("abc\n", 3), ("ab\0", 2)] {
            assert_eq!(first(bytes.as_bytes(), 0, limit), Ok(Line::TooLong), "{bytes:?}");
        }
        assert_eq!(first(b"ab\r\n", 0, 4), Ok(Line::Whole { line: b"ab", next: 4 }));
    }
}
