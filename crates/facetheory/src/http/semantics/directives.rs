//! The directives for a shared cache: those of a targeted field (RFC 9213), else those of `Cache-Control`.

use std::time::Duration;

use http::HeaderMap;
use http::header::{CACHE_CONTROL, PRAGMA};

use crate::http::semantics::cache_control::{CacheControl, Scope};
use crate::http::semantics::targeted;

/// The origin's directives for this cache.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ResponseDirectives {
    pub(crate) control: CacheControl,
    /// Whether they are from a targeted field, so that `Expires` is ignored (RFC 9213 §2.1).
    pub(crate) targeted: bool,
}

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

impl ResponseDirectives {
    /// Parses the headers of a response.
    pub(crate) fn of(headers: &HeaderMap) -> Self {
        match targeted::parse(headers) {
            Some(control) => ResponseDirectives { control, targeted: true },
            None => ResponseDirectives { control: CacheControl::of(headers), targeted: false },
        }
    }

    /// Whether the response may be served stale without contacting the origin (RFC 9111 §4.2.4).
    pub(crate) fn tolerance(&self) -> Tolerance {
        let said = &self.control;
        if said.must_revalidate || said.proxy_revalidate || said.no_cache.is_some() {
            Tolerance::None
        } else if said.s_maxage.is_some() {
            Tolerance::Granted
        } else {
            Tolerance::Any
        }
    }

    /// Whether a response to a request with `Authorization` may be shared (RFC 9111 §3.5).
    pub(crate) fn shares_authorized(&self) -> bool {
        let said = &self.control;
        said.public || said.must_revalidate || said.s_maxage.is_some()
    }
}

/// Parses the directives of a request.
pub(crate) fn of_request(headers: &HeaderMap) -> CacheControl {
    let mut control = CacheControl::of(headers);
    // The older equivalent, which counts only without `Cache-Control` (RFC 9111 §5.4).
    if !headers.contains_key(CACHE_CONTROL) {
        let mut lines = headers.get_all(PRAGMA).iter().filter_map(|line| line.to_str().ok());
        let is_no_cache =
            |line: &str| line.split(',').any(|word| word.trim().eq_ignore_ascii_case("no-cache"));
        if lines.any(is_no_cache) {
            control.no_cache = Some(Scope::All);
        }
    }
    // Browsers send it to reload a page.
    if control.max_age == Some(Duration::ZERO) {
        control.no_cache = Some(Scope::All);
    }
    control
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::http::test_support::header_map as headers;

    #[test]
    fn rfc9213_2_1_a_targeted_field_overrides_cache_control() {
        let said = ResponseDirectives::of(&headers(&[
            ("cache-control", "no-store"),
            ("cdn-cache-control", "max-age=60"),
        ]));
        assert!(said.targeted && !said.control.no_store);
        let said = ResponseDirectives::of(&headers(&[
            ("cache-control", "no-store"),
            ("cdn-cache-control", "max-age = 60"),
        ]));
        assert!(!said.targeted && said.control.no_store, "an invalid field is ignored");
    }

    #[test]
    fn rfc9111_4_2_4_three_directives_forbid_stale_responses_and_one_limits_them() {
        for (line, tolerance) in [
            ("max-age=1", Tolerance::Any),
            ("max-age=1, must-revalidate", Tolerance::None),
            ("max-age=1, proxy-revalidate", Tolerance::None),
            ("s-maxage=1", Tolerance::Granted),
            ("s-maxage=1, must-revalidate", Tolerance::None),
            ("no-cache", Tolerance::None),
            ("no-cache=\"a\"", Tolerance::None),
        ] {
            assert_eq!(
                ResponseDirectives::of(&headers(&[("cache-control", line)])).tolerance(),
                tolerance,
                "{line}"
            );
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
                ResponseDirectives::of(&headers(&[("cache-control", line)])).shares_authorized(),
                shared,
                "{line}"
            );
        }
    }

    #[test]
    fn rfc9111_5_4_pragma_counts_only_without_cache_control() {
        assert!(of_request(&headers(&[("pragma", "x, No-Cache")])).no_cache.is_some());
        assert!(of_request(&headers(&[("pragma", "x")])).no_cache.is_none());
        assert!(of_request(&headers(&[("pragma", "no-cache"), ("cache-control", "x")])).no_cache.is_none());
    }
}
