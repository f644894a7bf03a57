//! The directives for a shared cache: those of a targeted field (RFC 9213), else those of `Cache-Control`.

use std::time::Duration;

use http::HeaderMap;
use http::header::{CACHE_CONTROL, HeaderValue, PRAGMA};

use crate::http::semantics::cache_control::{CacheControl, Directive};
use crate::http::semantics::targeted;

/// Whether a response may be served stale.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Tolerance {
    /// Never.
    None,
    /// Within the windows of RFC 5861 that the origin sets. `s-maxage` implies `proxy-revalidate`, but frameworks send it
    /// together with `stale-while-revalidate`, and mean both.
    Granted,
    /// No directive forbids it.
    Any,
}

impl CacheControl {
    /// Parses the directives of a response for this cache.
    pub(crate) fn of_response(headers: &HeaderMap) -> Self {
        targeted::parse(headers)
    }

    /// Parses the directives of a response under a rule, which decides how long it is fresh: `Cache-Control`, and what fields
    /// for caches forbid.
    pub(crate) fn of_response_by_rule(headers: &HeaderMap) -> Self {
        targeted::parse_strictly(headers)
    }

    /// Parses the directives of a request.
    pub(crate) fn of_request(headers: &HeaderMap) -> Self {
        let mut control = CacheControl::of(headers);
        // The older equivalent, which counts only without `Cache-Control` (RFC 9111 §5.4).
        let is_no_cache = |line: &HeaderValue| {
            let mut words = line.to_str().unwrap_or_default().split(',');
            words.any(|word| word.trim().eq_ignore_ascii_case("no-cache"))
        };
        let by_pragma =
            !headers.contains_key(CACHE_CONTROL) && headers.get_all(PRAGMA).iter().any(is_no_cache);
        // Browsers send `max-age=0` to reload a page.
        if by_pragma || control.max_age == Some(Duration::ZERO) {
            control.add(Directive::NoCache);
        }
        control
    }

    /// Whether the response may be served stale without contacting the origin (RFC 9111 §4.2.4).
    pub(crate) fn tolerance(&self) -> Tolerance {
        if self.has(Directive::MustRevalidate)
            || self.has(Directive::ProxyRevalidate)
            || self.has(Directive::NoCache)
        {
            Tolerance::None
        } else if self.s_maxage.is_some() {
            Tolerance::Granted
        } else {
            Tolerance::Any
        }
    }

    /// Whether a response to a request with `Authorization` may be shared (RFC 9111 §3.5).
    pub(crate) fn shares_authorized(&self) -> bool {
        self.has(Directive::Public) || self.has(Directive::MustRevalidate) || self.s_maxage.is_some()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::http::test_support::header_map as headers;

    #[test]
    fn rfc9213_2_1_a_targeted_field_overrides_cache_control() {
        let control = CacheControl::of_response(&headers(&[
            ("cache-control", "no-store"),
            ("cdn-cache-control", "max-age=60"),
        ]));
        assert!(control.targeted && !control.has(Directive::NoStore));
        let control = CacheControl::of_response(&headers(&[
            ("cache-control", "no-store"),
            ("cdn-cache-control", "max-age = 60"),
        ]));
        assert!(!control.targeted && control.has(Directive::NoStore), "an invalid field is ignored");
    }

    #[test]
    fn rfc9111_4_2_4_three_directives_forbid_stale_responses_and_one_limits_them() {
        let tolerance = |line| CacheControl::of_response(&headers(&[("cache-control", line)])).tolerance();
        assert_eq!(tolerance("max-age=1"), Tolerance::Any);
        assert_eq!(tolerance("s-maxage=1"), Tolerance::Granted);
        for line in [
            "max-age=1, must-revalidate",
            "max-age=1, proxy-revalidate",
            "s-maxage=1, must-revalidate",
            "no-cache",
            "no-cache=\"a\"",
        ] {
            assert_eq!(tolerance(line), Tolerance::None, "{line}");
        }
    }

    #[test]
    fn rfc9111_3_5_three_directives_permit_sharing_of_authorized_responses() {
        for (line, shared) in [
            ("max-age=1", false),
            ("public", true),
            ("must-revalidate", true),
            ("s-maxage=1", true),
            ("proxy-revalidate", false),
        ] {
            assert_eq!(
                CacheControl::of_response(&headers(&[("cache-control", line)])).shares_authorized(),
                shared,
                "{line}"
            );
        }
    }

    #[test]
    fn rfc9111_5_4_pragma_counts_only_without_cache_control() {
        assert!(CacheControl::of_request(&headers(&[("pragma", "x, No-Cache")])).has(Directive::NoCache));
        assert!(!CacheControl::of_request(&headers(&[("pragma", "x")])).has(Directive::NoCache));
        assert!(
            !CacheControl::of_request(&headers(&[("pragma", "no-cache"), ("cache-control", "x")]))
                .has(Directive::NoCache)
        );
    }
}
