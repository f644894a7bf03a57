//! The cookies of a request, byte for byte.

use http::HeaderMap;
use http::header::COOKIE;

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

#[cfg(test)]
mod tests {
    use super::*;
    use http::HeaderValue;

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
