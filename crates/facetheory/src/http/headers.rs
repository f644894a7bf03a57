//! Which headers of a response are stored with a page, and hop-by-hop headers.

use http::header::{self, CONNECTION, HeaderName, UPGRADE};
use http::{HeaderMap, HeaderValue};

use crate::http::cacheability::UncacheableReason;

/// `x-facetheory-isr`: the [state](crate::State) of the response.
pub(crate) const STATE: HeaderName = HeaderName::from_static("x-facetheory-isr");
/// `cache-status`, RFC 9211.
pub(crate) const CACHE_STATUS: HeaderName = HeaderName::from_static("cache-status");
/// `x-request-id`.
pub(crate) const REQUEST_ID: HeaderName = HeaderName::from_static("x-request-id");
/// The headers of responses that name tags, for caches and CDNs of several products.
pub(crate) static TAG_HEADERS: [HeaderName; 12] = [
    HeaderName::from_static("surrogate-key"),
    HeaderName::from_static("cache-tag"),
    HeaderName::from_static("xkey"),
    HeaderName::from_static("x-cache-tags"),
    HeaderName::from_static("x-tags"),
    HeaderName::from_static("cache-tags"),
    HeaderName::from_static("purge-cache-tags"),
    HeaderName::from_static("x-drupal-cache-tags"),
    HeaderName::from_static("x-magento-tags"),
    HeaderName::from_static("edge-cache-tag"),
    HeaderName::from_static("netlify-cache-tag"),
    HeaderName::from_static("vercel-cache-tag"),
];
/// `x-forwarded-host`: the host of the client's request to a proxy.
pub(crate) const FORWARDED_HOST: HeaderName = HeaderName::from_static("x-forwarded-host");

/// The conditions of a client, which the cache evaluates itself.
pub(crate) const CONDITIONS: [HeaderName; 4] =
    [header::IF_MATCH, header::IF_NONE_MATCH, header::IF_MODIFIED_SINCE, header::IF_UNMODIFIED_SINCE];

/// The most headers that are stored with a page.
pub(crate) const MAX_HEADERS: usize = 100;
/// The most bytes of names and values that are stored with a page: a row holds at most 400 KB in all.
pub(crate) const MAX_HEADER_BYTES: usize = 32 * 1024;

/// Returns the end-to-end headers of a response, in order, without those that the cache sets for each response. Where the
/// origin decides about caching, its dates and tags stay.
pub(crate) fn storable_headers(
    headers: &HeaderMap,
    follows_origin: bool,
) -> Result<Vec<(String, String)>, UncacheableReason> {
    let hops = named_by_connection(headers);
    let is_stored = |name: &HeaderName| is_stored(name, follows_origin) && !hops.contains(name);
    let mut stored: Vec<(String, String)> = Vec::new();
    let mut bytes = 0;
    for (name, value) in headers.iter().filter(|(name, _)| is_stored(name)) {
        // A row holds text. The header might be one that protects the client, so the page is not cached without it.
        let Ok(text) = std::str::from_utf8(value.as_bytes()) else {
            return Err(UncacheableReason::UnreadableHeader(name.clone()));
        };
        bytes += name.as_str().len() + text.len();
        if stored.len() == MAX_HEADERS || bytes > MAX_HEADER_BYTES {
            return Err(UncacheableReason::TooManyHeaders);
        }
        stored.push((name.as_str().to_owned(), text.to_owned()));
    }
    Ok(stored)
}

/// Returns the headers that are stored with a page. Headers that no cached response may have are left out: other software
/// may have written the row.
pub(crate) fn restored(stored: &[(String, String)], follows_origin: bool) -> HeaderMap {
    let mut headers = HeaderMap::with_capacity(stored.len());
    for (name, value) in stored.iter().take(MAX_HEADERS) {
        let (Ok(name), Ok(value)) =
            (HeaderName::from_bytes(name.as_bytes()), HeaderValue::from_bytes(value.as_bytes()))
        else {
            continue;
        };
        if is_stored(&name, follows_origin) {
            headers.append(name, value);
        }
    }
    headers
}

/// Removes hop-by-hop headers, also those that `Connection` names, as a proxy must (RFC 9110 §7.6.1).
///
/// `Host` and `Cookie` stay even if `Connection` names them: a client must not remove what identifies it and the site. `Trailer`
/// stays for servers that forward trailers.
///
/// ```
/// use http::{HeaderMap, HeaderValue, header};
///
/// let mut headers = HeaderMap::new();
/// for name in ["connection", "x-own", "keep-alive", "host", "trailer"] {
///     headers.insert(name, HeaderValue::from_static("x-own, host"));
/// }
/// facetheory::remove_hop_by_hop_headers(&mut headers);
/// let mut left: Vec<&str> = headers.keys().map(header::HeaderName::as_str).collect();
/// left.sort();
/// assert_eq!(left, ["host", "trailer"]);
/// ```
pub fn remove_hop_by_hop_headers(headers: &mut HeaderMap) {
    remove_named_hops(headers);
    for name in HOP_BY_HOP.iter().filter(|name| **name != header::TRAILER) {
        headers.remove(name);
    }
}

/// Removes headers that are hop-by-hop only because `Connection` names them. They do not reach the origin, so they must not
/// select a response.
pub(crate) fn remove_named_hops(headers: &mut HeaderMap) {
    for name in named_hops(headers) {
        headers.remove(name);
    }
}

/// Whether [`remove_named_hops`] would remove a header.
pub(crate) fn has_named_hops(headers: &HeaderMap) -> bool {
    named_hops(headers).next().is_some()
}

fn named_hops(headers: &HeaderMap) -> impl Iterator<Item = HeaderName> + use<> {
    let names = named_by_connection(headers).into_iter();
    names.filter(|name| *name != header::HOST && *name != header::COOKIE && !is_hop_by_hop(name))
}

/// Whether a request offers an upgrade other than h2c (some clients always offer h2c).
pub(crate) fn offers_upgrade(headers: &HeaderMap) -> bool {
    let is_other = |value: &HeaderValue| !value.as_bytes().to_ascii_lowercase().starts_with(b"h2c");
    headers.get_all(UPGRADE).iter().any(is_other) && named_by_connection(headers).contains(&UPGRADE)
}

/// Whether a header is hop-by-hop.
pub(crate) fn is_hop_by_hop(name: &HeaderName) -> bool {
    HOP_BY_HOP.contains(name)
}

/// Whether a header of this name may be stored with a page.
fn is_stored(name: &HeaderName, follows_origin: bool) -> bool {
    let is_excluded = if follows_origin {
        NOT_STORED_BY_ORIGIN.contains(name)
    } else {
        NOT_STORED_BY_RULE.contains(name) || TAG_HEADERS.contains(name)
    };
    !is_hop_by_hop(name) && !is_excluded
}

/// Returns the headers that `Connection` names.
fn named_by_connection(headers: &HeaderMap) -> Vec<HeaderName> {
    let lines = headers.get_all(CONNECTION).iter().filter_map(|line| line.to_str().ok());
    lines
        .flat_map(|line| line.split(','))
        .filter_map(|name| HeaderName::from_bytes(name.trim().as_bytes()).ok())
        .take(MAX_HEADERS)
        .collect()
}

static HOP_BY_HOP: [HeaderName; 10] = [
    CONNECTION,
    HeaderName::from_static("keep-alive"),
    header::PROXY_AUTHENTICATE,
    HeaderName::from_static("proxy-authentication-info"),
    header::PROXY_AUTHORIZATION,
    HeaderName::from_static("proxy-connection"),
    header::TE,
    header::TRAILER,
    header::TRANSFER_ENCODING,
    UPGRADE,
];

/// Headers that are not stored with a page that is cached by rule, besides those of tags: they are for one client, set by the cache for each
/// response, or stored in their own attribute.
const NOT_STORED_BY_RULE: [HeaderName; 16] = [
    header::SET_COOKIE,
    HeaderName::from_static("set-cookie2"),
    HeaderName::from_static("clear-site-data"),
    header::CONTENT_LENGTH,
    header::CONTENT_RANGE,
    header::ACCEPT_RANGES,
    header::DATE,
    header::AGE,
    header::EXPIRES,
    header::PRAGMA,
    CACHE_STATUS,
    STATE,
    REQUEST_ID,
    // For the cache, not for clients.
    HeaderName::from_static("surrogate-control"),
    // Rows have attributes for these.
    header::CONTENT_TYPE,
    header::ETAG,
];

/// Headers that are not stored with a page whose origin decides about caching: they belong to one response.
const NOT_STORED_BY_ORIGIN: [HeaderName; 5] =
    [header::SET_COOKIE, header::CONTENT_LENGTH, header::AGE, STATE, REQUEST_ID];

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn headers(lines: &[(&'static str, &[u8])]) -> HeaderMap {
        let value = |bytes: &[u8]| HeaderValue::from_bytes(bytes).expect("a header value");
        lines.iter().map(|(name, bytes)| (HeaderName::from_static(name), value(bytes))).collect()
    }

    fn stored(headers: &HeaderMap) -> Result<Vec<(String, String)>, UncacheableReason> {
        storable_headers(headers, false)
    }

    #[test]
    fn end_to_end_headers_are_stored_in_order_and_restored() {
        let response = headers(&[
            ("location", b"/elsewhere"),
            ("link", b"</a.css>; rel=preload"),
            ("link", b"</b.css>; rel=preload"),
            ("content-security-policy", b"default-src 'self'"),
            ("content-disposition", "inline; filename=\"é\"".as_bytes()),
            ("cache-control", b"public, no-transform"),
        ]);
        let headers = stored(&response).expect("all are readable");
        assert_eq!(headers.len(), 6);
        assert_eq!(headers[1], ("link".into(), "</a.css>; rel=preload".into()));
        assert_eq!(restored(&headers, false), response);
    }

    #[test]
    fn headers_of_one_response_or_one_connection_are_not_stored() {
        let response = headers(&[
            ("connection", b"close, X-Hop"),
            ("x-hop", b"1"),
            ("keep-alive", b"timeout=5"),
            ("transfer-encoding", b"chunked"),
            ("upgrade", b"h2c"),
            ("set-cookie", b"session=1"),
            ("content-length", b"5"),
            ("date", b"now"),
            ("age", b"5"),
            ("cache-status", b"Other; hit"),
            ("x-facetheory-isr", b"hit"),
            ("x-request-id", b"1"),
            ("surrogate-key", b"a b"),
            ("cache-tag", b"a,b"),
            ("x-end", b"2"),
        ]);
        assert_eq!(stored(&response), Ok(vec![("x-end".into(), "2".into())]));
    }

    #[test]
    fn headers_that_cannot_be_stored_are_an_error() {
        let response = headers(&[("x-name", b"caf\xe9")]);
        assert_eq!(
            stored(&response),
            Err(UncacheableReason::UnreadableHeader(HeaderName::from_static("x-name")))
        );
        let long = vec![b'x'; MAX_HEADER_BYTES];
        assert_eq!(stored(&headers(&[("x-long", &long)])), Err(UncacheableReason::TooManyHeaders));
        let many: HeaderMap = (0..=MAX_HEADERS)
            .map(|n| (HeaderName::try_from(format!("x-{n}")).expect("a name"), HeaderValue::from_static("1")))
            .collect();
        assert_eq!(stored(&many), Err(UncacheableReason::TooManyHeaders));
    }

    #[test]
    fn forbidden_headers_of_a_row_are_not_restored() {
        let row: Vec<(String, String)> = [
            ("set-cookie", "a=1"),
            ("Transfer-Encoding", "chunked"),
            ("x\r\ny", "1"),
            ("x-split", "a\r\nset-cookie: b=1"),
            ("", ""),
            ("X-Fine", "1"),
        ]
        .map(|(name, value)| (name.to_owned(), value.to_owned()))
        .to_vec();
        assert_eq!(restored(&row, false), headers(&[("x-fine", b"1")]));
    }

    proptest! {
        #[test]
        fn stored_headers_survive_being_restored_and_stored_again(
            lines in proptest::collection::vec(("(x-[a-c]|date|set-cookie|connection|link)", "[ -~é]{0,9}"), 0..12),
        ) {
            let response: HeaderMap = lines.iter()
                .map(|(name, value)| (
                    HeaderName::try_from(name.as_str()).expect("a name"),
                    HeaderValue::from_bytes(value.as_bytes()).expect("a value"),
                ))
                .collect();
            let once = stored(&response).expect("readable");
            prop_assert!(once.iter().all(|(name, _)| name != "set-cookie" && name != "date" && name != "connection"));
            prop_assert_eq!(stored(&restored(&once, false)).expect("readable"), once);
        }

        #[test]
        fn any_row_is_restored_without_panic(row in proptest::collection::vec(("\\PC{0,9}", "\\PC{0,9}"), 0..5)) {
            let _ = restored(&row, false);
        }
    }
}
