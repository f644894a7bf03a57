//! `Vary`: the request headers that a response depends on (RFC 9110 §12.5.5).

use http::header::{ACCEPT_ENCODING, COOKIE, HeaderName, VARY};
use http::{HeaderMap, HeaderValue};

use crate::http::router::route::Route;

/// The most names. A response that depends on more would hardly ever be reused.
const MAX_NAMES: usize = 64;

/// Parses all `Vary` lines. Returns the names, each once and in order, or `None` for `*` or an invalid value.
pub(crate) fn names(headers: &HeaderMap) -> Option<Vec<HeaderName>> {
    let mut names: Vec<HeaderName> = Vec::new();
    for line in headers.get_all(VARY) {
        for member in line.to_str().ok()?.split(',').map(str::trim).filter(|member| !member.is_empty()) {
            // `*` is a valid header name, but has another meaning here.
            let name = HeaderName::from_bytes(member.as_bytes()).ok().filter(|_| member != "*")?;
            if !names.contains(&name) {
                names.push(name);
            }
        }
    }
    Some(names).filter(|names| names.len() <= MAX_NAMES)
}

/// Returns the `Vary` of a page for clients and caches in front of us, or `None` if it depends on no header.
///
/// It has the origin's names, the headers and cookies that the route lists, and `Accept-Encoding` if the page has compressed
/// forms.
pub(crate) fn for_clients(stored: &HeaderMap, route: &Route, coded: bool) -> Option<HeaderValue> {
    let Some(mut names) = names(stored) else { return Some(HeaderValue::from_static("*")) };
    let cookie = (!route.cookies.is_empty()).then_some(COOKIE);
    let coding = coded.then_some(ACCEPT_ENCODING);
    let own = route.headers.iter().chain(&route.tenant_header).cloned();
    for name in own.chain(cookie).chain(coding) {
        if !names.contains(&name) {
            names.push(name);
        }
    }
    let names: Vec<&str> = names.iter().map(HeaderName::as_str).collect();
    if names.is_empty() { None } else { HeaderValue::try_from(names.join(", ")).ok() }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::http::router::tenant::TenantFrom;
    use crate::pages::policy::Policy;
    use proptest::prelude::*;
    use std::time::Duration;

    fn read(lines: &[&str]) -> Option<Vec<HeaderName>> {
        let value = |line: &&str| HeaderValue::from_bytes(line.as_bytes()).expect("a header value");
        names(&lines.iter().map(|line| (VARY, value(line))).collect())
    }

    fn on(names: &[&'static str]) -> Option<Vec<HeaderName>> {
        Some(names.iter().map(|name| HeaderName::from_static(name)).collect())
    }

    #[test]
    fn lines_accumulate_and_names_are_case_insensitive() {
        assert_eq!(read(&[]), on(&[]));
        assert_eq!(read(&["", " , "]), on(&[]));
        assert_eq!(read(&["Accept-Encoding"]), on(&["accept-encoding"]));
        assert_eq!(read(&["Accept , COOKIE,accept", "x-a"]), on(&["accept", "cookie", "x-a"]));
    }

    #[test]
    fn a_star_or_an_invalid_name_means_anything() {
        for lines in
            [&["*"][..], &["accept, *"], &["accept", " * "], &["a b"], &["acc\u{e9}pt"], &["\"accept\""]]
        {
            assert_eq!(read(lines), None, "{lines:?}");
        }
        let many: Vec<String> = (0..=MAX_NAMES).map(|n| format!("x-{n}")).collect();
        assert_eq!(read(&[&many.join(",")]), None);
        assert!(read(&[&many[1..].join(",")]).is_some_and(|names| names.len() == MAX_NAMES));
    }

    #[test]
    fn clients_get_the_headers_that_distinguish_pages() {
        let route = || Route::new("/", Policy::every(Duration::ZERO));
        let tell = |vary: &str, route: &Route, coded| {
            let stored: HeaderMap =
                [(VARY, HeaderValue::try_from(vary).expect("a header value"))].into_iter().collect();
            for_clients(&stored, route, coded).map(|value| value.to_str().expect("a text").to_owned())
        };
        assert_eq!(tell("", &route(), false), None);
        assert_eq!(tell("", &route(), true).as_deref(), Some("accept-encoding"));
        assert_eq!(tell("Accept-Encoding", &route(), true).as_deref(), Some("accept-encoding"));
        assert_eq!(tell("*", &route(), false).as_deref(), Some("*"));
        let wide = route()
            .headers(["accept-language"])
            .cookies(["theme"])
            .tenant(TenantFrom::TrustedHeader("x-tenant-id".into()));
        assert_eq!(
            tell("Host", &wide, true).as_deref(),
            Some("host, accept-language, x-tenant-id, cookie, accept-encoding")
        );
    }

    proptest! {
        #[test]
        fn the_distribution_of_names_over_lines_does_not_matter(
            names in proptest::collection::vec("[a-zA-Z-]{1,6}", 0..8), split in 0usize..8,
        ) {
            let (left, right) = names.split_at(split.min(names.len()));
            prop_assert_eq!(read(&[&names.join(",")]), read(&[&left.join(" , "), &right.join(",")]));
        }

        #[test]
        fn a_star_is_never_missed(before in "\\PC{0,20}", after in "\\PC{0,20}") {
            prop_assert_eq!(read(&[&format!("{before}, * ,{after}")]), None);
        }
    }
}
