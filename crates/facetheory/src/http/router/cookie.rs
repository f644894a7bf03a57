//! The cookies of a request, byte for byte.

use http::HeaderMap;
use http::header::COOKIE;

use crate::protocol::javascript::{push_encoded, sort_by_name};

/// Returns the names and values of the cookies of all `Cookie` lines, in their order and without surrounding white space.
///
/// Pairs without `=` are ignored.
pub(crate) fn cookies(headers: &HeaderMap) -> impl Iterator<Item = (&[u8], &[u8])> {
    headers.get_all(COOKIE).iter().flat_map(|line| line.as_bytes().split(|byte| *byte == b';')).filter_map(
        |pair| {
            let equals = pair.iter().position(|byte| *byte == b'=')?;
            Some((pair[..equals].trim_ascii(), pair[equals + 1..].trim_ascii()))
        },
    )
}

/// Returns the cookies with these names, sorted by name. The order of cookies with the same name does not change.
pub(crate) fn listed<'h>(headers: &'h HeaderMap, names: &[String]) -> Vec<(&'h [u8], &'h [u8])> {
    if names.is_empty() {
        return Vec::new();
    }
    let is_listed = |name: &[u8]| names.iter().any(|listed| listed.as_bytes() == name);
    let mut listed: Vec<_> = cookies(headers).filter(|(name, _)| is_listed(name)).collect();
    listed.sort_by_key(|(name, _)| *name);
    listed
}

/// Returns the cookies with these names as TypeScript services read them, sorted by name: without quotation marks, decoded,
/// and only the last one of a name.
pub(crate) fn listed_decoded(headers: &HeaderMap, names: &[String]) -> Vec<(String, String)> {
    let mut listed: Vec<(String, String)> = Vec::new();
    if names.is_empty() {
        return listed;
    }
    for line in headers.get_all(COOKIE) {
        let line = latin1(line.as_bytes());
        for (name, value) in line.split(';').filter_map(|pair| trim(pair).split_once('=')) {
            let (name, value) = (trim(name), trim(value));
            if !names.iter().any(|listed| listed == name) {
                continue;
            }
            let inner = value.strip_prefix('"').and_then(|value| value.strip_suffix('"')).unwrap_or(value);
            let value = decode(inner).unwrap_or_else(|| inner.to_owned());
            match listed.iter_mut().find(|(known, _)| known == name) {
                Some((_, known)) => *known = value,
                None => listed.push((name.to_owned(), value)),
            }
        }
    }
    sort_by_name(listed)
}

/// Returns a decoded cookie for the `Cookie` header of a request. Equal values have equal forms.
pub(crate) fn encoded(name: &str, value: &str) -> Vec<u8> {
    let plain = |byte: u8| byte.is_ascii_graphic() && !b"\"%,;\\".contains(&byte);
    let mut pair = format!("{name}=");
    if value.bytes().all(plain) {
        pair.push_str(value);
    } else {
        push_encoded(&mut pair, value);
    }
    pair.into_bytes()
}

/// Returns the value of a header as Node.js reads it: each byte is a character.
pub(crate) fn latin1(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| char::from(*byte)).collect()
}

/// Removes white space as JavaScript's `trim` does, of which a header can contain these characters.
fn trim(text: &str) -> &str {
    text.trim_matches(['\t', '\u{b}', '\u{c}', ' ', '\u{a0}'])
}

/// Decodes as `decodeURIComponent` does; `None` if an escape is malformed.
fn decode(text: &str) -> Option<String> {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text;
    while let Some(at) = rest.find('%') {
        bytes.extend_from_slice(&rest.as_bytes()[..at]);
        let digits =
            rest.get(at + 1..at + 3).filter(|digits| digits.bytes().all(|byte| byte.is_ascii_hexdigit()))?;
        bytes.push(u8::from_str_radix(digits, 16).ok()?);
        rest = &rest[at + 3..];
    }
    bytes.extend_from_slice(rest.as_bytes());
    String::from_utf8(bytes).ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use http::HeaderValue;

    #[test]
    fn cookies_of_a_typescript_service_are_decoded_and_the_last_one_counts() {
        let of = |line: &[u8]| {
            let headers: HeaderMap =
                [(COOKIE, HeaderValue::from_bytes(line).expect("a line"))].into_iter().collect();
            let listed = listed_decoded(&headers, &["a".to_owned(), "B".to_owned()]);
            let sent: Vec<String> = listed
                .iter()
                .map(|(name, value)| String::from_utf8_lossy(&encoded(name, value)).into_owned())
                .collect();
            (listed.into_iter().map(|(_, value)| value).collect::<Vec<_>>(), sent.join("; "))
        };
        for (line, values, sent) in [
            (&b"B=2; a=1; c=3"[..], &["1", "2"][..], "a=1; B=2"),
            (b"a=1; a=2", &["2"], "a=2"),
            (b"a=\"dark\"", &["dark"], "a=dark"),
            (b"a=%C3%A9", &["\u{e9}"], "a=%C3%A9"),
            (b"a=\xe9", &["\u{e9}"], "a=%C3%A9"),
            (b"a=%zz", &["%zz"], "a=%25zz"),
            (b"a=%ff", &["%ff"], "a=%25ff"),
            (b"a=x=y; =z; a", &["x=y"], "a=x=y"),
            (b"a=\"", &["\""], "a=%22"),
            (b" a =  ", &[""], "a="),
            (b"a=%C3\xa9x", &["%C3\u{a9}x"], "a=%25C3%C2%A9x"),
        ] {
            let values: Vec<String> = values.iter().map(|value| (*value).to_owned()).collect();
            assert_eq!(of(line), (values, sent.to_owned()), "{}", String::from_utf8_lossy(line));
        }
    }

    #[test]
    fn cookies_are_read_from_all_lines_in_order() {
        let lines = ["b=2; a=\"1\";;  c ; =x; b= 3 ", "a=x=y"];
        let headers: HeaderMap = lines.iter().map(|line| (COOKIE, HeaderValue::from_static(line))).collect();
        let text = |pairs: Vec<(&[u8], &[u8])>| -> Vec<String> {
            let show = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
            pairs.into_iter().map(|(name, value)| format!("{}={}", show(name), show(value))).collect()
        };
        assert_eq!(text(cookies(&headers).collect()), ["b=2", "a=\"1\"", "=x", "b=3", "a=x=y"]);
        let names = ["b".to_owned(), "a".to_owned(), "absent".to_owned()];
        assert_eq!(text(listed(&headers, &names)), ["a=\"1\"", "a=x=y", "b=2", "b=3"]);
        assert!(listed(&headers, &[]).is_empty());
        assert!(listed(&headers, &["A".to_owned()]).is_empty(), "cookie names are case-sensitive");
    }
}
