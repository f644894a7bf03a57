//! Which directives count for a shared cache: those of a field that is meant for it, else those for everyone.

use std::time::Duration;

use http::HeaderMap;
use http::header::{CACHE_CONTROL, PRAGMA};

use crate::http::semantics::cache_control::{CacheControl, Scope};
use crate::http::semantics::targeted;

/// What an origin says to us of how its response is kept.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ResponseDirectives {
    pub(crate) control: CacheControl,
    /// Whether it is said in a field that is meant for caches like us, so that `Expires` says nothing (RFC 9213 §2.1).
    pub(crate) targeted: bool,
}

/// How stale a response may be when it is used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Tolerance {
    /// It may not be.
    None,
    /// Within the windows of RFC 5861 that its origin itself sets. `s-maxage` means what `proxy-revalidate` says, unless the
    /// same origin says beside it for how long not: frameworks send both together, and mean both.
    Granted,
    /// Nothing forbids it.
    Any,
}

impl ResponseDirectives {
    /// What the headers of a response say.
    pub(crate) fn of(headers: &HeaderMap) -> Self {
        match targeted::said(headers) {
            Some(control) => ResponseDirectives { control, targeted: true },
            None => ResponseDirectives { control: CacheControl::of(headers), targeted: false },
        }
    }

    /// What the response may be used for once it is stale, without asking the origin before (RFC 9111 §4.2.4).
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

/// What a visitor says of what it accepts.
pub(crate) fn asked(headers: &HeaderMap) -> CacheControl {
    let mut asked = CacheControl::of(headers);
    // An old word for the same, which counts where the new one is silent (RFC 9111 §5.4).
    if !headers.contains_key(CACHE_CONTROL) {
        let mut lines = headers.get_all(PRAGMA).iter().filter_map(|line| line.to_str().ok());
        let says_so = |line: &str| line.split(',').any(|word| word.trim().eq_ignore_ascii_case("no-cache"));
        if lines.any(says_so) {
            asked.no_cache = Some(Scope::All);
        }
    }
    // Nothing is younger than this, so it is what whoever reloads a page means by it.
    if asked.max_age == Some(Duration::ZERO) {
        asked.no_cache = Some(Scope::All);
    }
    asked
}

#[cfg(test)]
mod tests {
    use super::*;
    use http::header::{HeaderName, HeaderValue};

    fn headers(lines: &[(&'static str, &'static str)]) -> HeaderMap {
        let pair = |(name, value): &(&'static str, &'static str)| {
            (HeaderName::from_static(name), HeaderValue::from_static(value))
        };
        lines.iter().map(pair).collect()
    }

    #[test]
    fn rfc9213_2_1_a_targeted_field_outweighs_cache_control() {
        let said = ResponseDirectives::of(&headers(&[
            ("cache-control", "no-store"),
            ("cdn-cache-control", "max-age=60"),
        ]));
        assert!(said.targeted && !said.control.no_store);
        let said = ResponseDirectives::of(&headers(&[
            ("cache-control", "no-store"),
            ("cdn-cache-control", "max-age = 60"),
        ]));
        assert!(!said.targeted && said.control.no_store, "what cannot be read is not there");
    }

    #[test]
    fn rfc9111_4_2_4_three_directives_forbid_stale_answers_and_one_limits_them() {
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
    fn rfc9111_3_5_three_directives_share_what_was_authorized() {
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
    fn rfc9111_5_4_pragma_counts_where_cache_control_is_silent() {
        assert!(asked(&headers(&[("pragma", "x, No-Cache")])).no_cache.is_some());
        assert!(asked(&headers(&[("pragma", "x")])).no_cache.is_none());
        assert!(asked(&headers(&[("pragma", "no-cache"), ("cache-control", "x")])).no_cache.is_none());
    }
}
