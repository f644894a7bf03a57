//! Lines: which bytes may be in them, and how a header line falls into its name and its value.

use memchr::memchr;

use super::refusal::Refusal;

/// A header line, or a line of the trailers.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Field<'a> {
    pub(super) name: &'a [u8],
    /// Without the blanks around it.
    pub(super) value: &'a [u8],
}

impl<'a> Field<'a> {
    /// Reads a line that has lost its CRLF and is not empty.
    pub(super) fn read(line: &'a [u8]) -> Result<Self, Refusal> {
        let end = line.iter().position(|&byte| !is(NAME, byte)).unwrap_or(line.len());
        match line.get(end) {
            Some(b':') if end > 0 => {}
            found => return Err(misnamed(end, found.copied())),
        }
        let value = &line[end + 1..];
        if has_control(value) {
            return Err(Refusal::bad("a header value has a control character"));
        }
        Ok(Field { name: &line[..end], value: trimmed(value) })
    }

    /// Whether this is the name, which is given in lower case.
    pub(super) fn is(&self, name: &[u8]) -> bool {
        self.name.eq_ignore_ascii_case(name)
    }
}

/// What is wrong with a name that ends at this byte.
fn misnamed(end: usize, found: Option<u8>) -> Refusal {
    Refusal::bad(match found {
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
/// `searched` bytes are known to have no line feed.
pub(super) fn first(bytes: &[u8], searched: usize) -> Result<Option<(&[u8], usize)>, Refusal> {
    let Some(feed) = memchr(b'\n', &bytes[searched..]) else { return Ok(None) };
    let feed = searched + feed;
    match bytes[..feed].split_last() {
        Some((b'\r', line)) => Ok(Some((line, feed + 1))),
        _ => Err(Refusal::bad("a line ends with a line feed alone")),
    }
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

/// Whether a control character is among these bytes, other than a tab. It has no branches, so that it is compiled to
/// instructions that look at many bytes at once.
pub(super) fn has_control(bytes: &[u8]) -> bool {
    let found = bytes.iter().fold(0_u8, |found, &byte| {
        found | (u8::from(byte < b' ') & u8::from(byte != b'\t')) | u8::from(byte == 0x7f)
    });
    found != 0
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
            for place in 0..40 {
                let mut text = [b'a'; 40];
                text[place] = byte;
                let expected = byte.is_ascii_control() && byte != b'\t';
                assert_eq!(has_control(&text), expected, "{byte} at {place}");
            }
        }
    }

    #[test]
    fn a_line_ends_with_a_carriage_return_and_a_line_feed() {
        assert_eq!(first(b"ab", 0), Ok(None));
        assert_eq!(first(b"ab\r", 0), Ok(None));
        assert_eq!(first(b"ab\r\ncd", 0), Ok(Some((&b"ab"[..], 4))));
        assert_eq!(first(b"ab\r\ncd", 3), Ok(Some((&b"ab"[..], 4))));
        assert!(first(b"ab\n", 0).is_err());
        assert!(first(b"\n", 0).is_err());
    }
}
