//! The pages that an unsafe request invalidates (RFC 9111 §4.4).

use http::header::{CONTENT_LOCATION, HeaderValue, LOCATION};
use http::uri::PathAndQuery;
use http::{HeaderMap, Method, StatusCode, Uri};

/// Returns the paths of this host that a request invalidates: its own target, and those that its response names.
pub(crate) fn targets(
    method: &Method,
    target: &Uri,
    host: &str,
    status: StatusCode,
    headers: &HeaderMap,
) -> Vec<PathAndQuery> {
    if method.is_safe() || !(status.is_success() || status.is_redirection()) {
        return Vec::new();
    }
    let own = target.path_and_query().cloned();
    let named = [LOCATION, CONTENT_LOCATION].into_iter().filter_map(|name| headers.get(name));
    let mut targets: Vec<PathAndQuery> = Vec::new();
    for found in own.into_iter().chain(named.filter_map(|value| of_this_host(value, target.path(), host))) {
        if !targets.contains(&found) {
            targets.push(found);
        }
    }
    targets
}

/// Returns the path that a header names, if it is on this host: a response must not invalidate pages of other hosts.
fn of_this_host(value: &HeaderValue, base: &str, host: &str) -> Option<PathAndQuery> {
    let text = value.to_str().ok()?.split('#').next()?.trim();
    if let Some(rest) = text.strip_prefix("//") {
        return of_this_host(&HeaderValue::try_from(format!("http://{rest}")).ok()?, base, host);
    }
    if text.starts_with('/') {
        return text.parse().ok();
    }
    if text.contains("://") {
        let address: Uri = text.parse().ok()?;
        let same = address.authority().is_some_and(|authority| authority.as_str().eq_ignore_ascii_case(host));
        return same.then(|| address.path_and_query().cloned()).flatten();
    }
    if text.is_empty() {
        return None;
    }
    // Relative to the directory of the target (RFC 3986 §5.2).
    let (path, query) = text.split_at(text.find('?').unwrap_or(text.len()));
    let path = if path.is_empty() { base.to_owned() } else { merged(base, path) };
    format!("{path}{query}").parse().ok()
}

/// Resolves a relative path against the directory of `base`, and removes dot segments.
fn merged(base: &str, path: &str) -> String {
    let directory = base.rsplit_once('/').map_or("", |(directory, _)| directory);
    let mut segments: Vec<&str> = directory.split('/').skip(1).collect();
    for segment in path.split('/') {
        match segment {
            "." => {}
            ".." => drop(segments.pop()),
            other => segments.push(other),
        }
    }
    // A path that ends in dots names a directory.
    if matches!(path.rsplit('/').next(), Some("." | "..")) {
        segments.push("");
    }
    format!("/{}", segments.join("/"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn after(method: &str, status: u16, lines: &[(http::HeaderName, &'static str)]) -> Vec<String> {
        let headers =
            lines.iter().map(|(name, value)| (name.clone(), HeaderValue::from_static(value))).collect();
        let method = Method::from_bytes(method.as_bytes()).expect("a method");
        let status = StatusCode::from_u16(status).expect("a status");
        let target = Uri::from_static("/a/b?c=1");
        let found = targets(&method, &target, "example.com:81", status, &headers);
        found.iter().map(ToString::to_string).collect()
    }

    #[test]
    fn rfc9111_4_4_a_successful_unsafe_method_invalidates_its_target() {
        for method in ["POST", "PUT", "DELETE", "PATCH", "M-SEARCH"] {
            assert_eq!(after(method, 200, &[]), ["/a/b?c=1"]);
            assert_eq!(after(method, 303, &[]), ["/a/b?c=1"]);
            for status in [400, 404, 500, 503] {
                assert!(after(method, status, &[]).is_empty(), "{method} {status}");
            }
        }
        for method in ["GET", "HEAD", "OPTIONS", "TRACE"] {
            assert!(after(method, 200, &[]).is_empty(), "{method}");
        }
    }

    #[test]
    fn rfc9111_4_4_locations_of_the_same_origin_are_invalidated() {
        for (value, expected) in [
            ("/x?y", "/x?y"),
            ("http://example.com:81/x", "/x"),
            ("https://EXAMPLE.com:81/x#f", "/x"),
            ("//example.com:81/x", "/x"),
            ("x", "/a/x"),
            ("./x", "/a/x"),
            ("../x", "/x"),
            ("../../../x/./y", "/x/y"),
            ("..", "/"),
            ("?d=2", "/a/b?d=2"),
        ] {
            for name in [LOCATION, CONTENT_LOCATION] {
                let found = after("POST", 201, &[(name, value)]);
                assert_eq!(found.get(1).map(String::as_str), Some(expected), "{value}");
            }
        }
        for value in ["http://example.com/x", "http://evil/x", "//evil/x", ""] {
            for name in [LOCATION, CONTENT_LOCATION] {
                assert_eq!(after("POST", 201, &[(name, value)]).len(), 1, "{value}");
            }
        }
        let both = after("POST", 201, &[(LOCATION, "/x"), (CONTENT_LOCATION, "/y")]);
        assert_eq!(both, ["/a/b?c=1", "/x", "/y"]);
    }
}
