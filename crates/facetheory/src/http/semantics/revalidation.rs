//! How a revalidation updates a stored response (RFC 9111 §3.2, §4.3.4 and §4.3.5).

use http::HeaderMap;
use http::header::{
    CONTENT_ENCODING, CONTENT_LENGTH, CONTENT_RANGE, ETAG, HeaderName, LAST_MODIFIED, SET_COOKIE,
};

use crate::http::headers::remove_hop_by_hop_headers;
use crate::http::semantics::conditional::EntityTag;

/// Headers that describe the stored body. A response without a body cannot change them.
const ABOUT_BODY: [HeaderName; 6] = [
    CONTENT_LENGTH,
    CONTENT_ENCODING,
    CONTENT_RANGE,
    HeaderName::from_static("content-md5"),
    ETAG,
    SET_COOKIE,
];

/// Returns the headers of a stored response after a revalidation: new values replace old ones.
pub(crate) fn updated(stored: &HeaderMap, response: &HeaderMap) -> HeaderMap {
    let (mut updated, mut received) = (stored.clone(), response.clone());
    remove_hop_by_hop_headers(&mut received);
    for name in received.keys().filter(|name| !ABOUT_BODY.contains(name)) {
        updated.remove(name);
        for value in received.get_all(name) {
            updated.append(name.clone(), value.clone());
        }
    }
    // A response without an entity tag gets one.
    if let (false, Some(etag)) = (stored.contains_key(ETAG), received.get(ETAG)) {
        updated.insert(ETAG, etag.clone());
    }
    updated
}

/// Whether a 304 has a strong entity tag that differs from the stored one. A tag that became weak on the way, as compressing
/// servers make it, is the same.
pub(crate) fn has_another_tag(stored: &HeaderMap, response: &HeaderMap) -> bool {
    let known = stored.get(ETAG).and_then(|tag| EntityTag::of_page(tag.to_str().ok()?));
    let received = response.get(ETAG).and_then(|tag| EntityTag::of_page(tag.to_str().ok()?));
    known.zip(received).is_some_and(|(known, received)| !received.weak && received.opaque != known.opaque)
}

/// Whether the response to a HEAD is about the stored response: no validator and no length differs.
pub(crate) fn is_about(stored: &HeaderMap, stored_bytes: u64, response: &HeaderMap) -> bool {
    let same = |name: HeaderName| match (stored.get(&name), response.get(&name)) {
        (Some(known), Some(received)) => known == received,
        (_, received) => received.is_none(),
    };
    let length = response.get(CONTENT_LENGTH).map(|length| length.to_str().ok()?.parse::<u64>().ok());
    same(ETAG) && same(LAST_MODIFIED) && length.is_none_or(|length| length == Some(stored_bytes))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::http::test_support::header_map as headers;

    #[test]
    fn rfc9111_3_2_new_values_replace_old_ones_and_the_rest_stays() {
        let stored = headers(&[("a", "1"), ("a", "2"), ("b", "1"), ("content-type", "text/plain")]);
        let response = headers(&[("a", "3"), ("c", "1"), ("c", "2"), ("content-type", "text/html")]);
        let expected =
            headers(&[("a", "3"), ("b", "1"), ("c", "1"), ("c", "2"), ("content-type", "text/html")]);
        assert_eq!(updated(&stored, &response), expected);
    }

    #[test]
    fn rfc9111_3_2_headers_about_the_body_or_the_connection_are_not_updated() {
        let stored = headers(&[("content-encoding", "gzip"), ("etag", "\"a\"")]);
        let response = headers(&[
            ("content-encoding", "br"),
            ("content-length", "9"),
            ("content-range", "bytes 0-1/2"),
            ("content-md5", "x"),
            ("transfer-encoding", "chunked"),
            ("connection", "x-hop"),
            ("x-hop", "1"),
            ("keep-alive", "1"),
            ("set-cookie", "a=1"),
            ("etag", "\"b\""),
        ]);
        assert_eq!(updated(&stored, &response), stored);
    }

    #[test]
    fn rfc9111_4_3_4_a_strong_tag_differs_unless_the_stored_tag_matches_weakly() {
        for (known, received, another) in [
            ("\"a\"", "\"a\"", false),
            ("\"a\"", "\"b\"", true),
            ("\"a\"", "W/\"b\"", false),
            ("W/\"a\"", "\"a\"", false),
            ("W/\"a\"", "\"b\"", true),
            ("a", "\"a\"", false),
        ] {
            let (stored, response) = (headers(&[("etag", known)]), headers(&[("etag", received)]));
            assert_eq!(has_another_tag(&stored, &response), another, "{known} and {received}");
        }
        assert!(!has_another_tag(&headers(&[]), &headers(&[("etag", "\"a\"")])), "it had none");
        assert!(!has_another_tag(&headers(&[("etag", "\"a\"")]), &headers(&[])), "the 304 has none");
    }

    #[test]
    fn rfc9111_4_3_5_a_head_is_about_the_stored_response_unless_a_validator_differs() {
        let stored = headers(&[("etag", "\"a\""), ("last-modified", "x")]);
        for (lines, same) in [
            (&[][..], true),
            (&[("etag", "\"a\"")], true),
            (&[("etag", "\"b\"")], false),
            (&[("last-modified", "y")], false),
            (&[("content-length", "5")], true),
            (&[("content-length", "6")], false),
            (&[("content-length", "five")], false),
        ] {
            assert_eq!(is_about(&stored, 5, &headers(lines)), same, "{lines:?}");
        }
        assert!(!is_about(&headers(&[]), 5, &headers(&[("etag", "\"a\"")])), "it was not known before");
    }
}
