use super::*;
use crate::bodies::Body;
use crate::http::forced_regenerations::ForcedRegenerations;
use crate::http::test_support::header_map as map;
use crate::protocol::key::PageKey;
use crate::protocol::row::Meta;

const NOW: i64 = 1_700_000_000;

/// A response that was requested now, with this initial age.
fn stored(age: i64, lines: &[(&str, &str)]) -> CachedPage {
    stored_for(age, lines, &[])
}

fn stored_for(age: i64, lines: &[(&str, &str)], request: &[(&'static str, &str)]) -> CachedPage {
    let stored: Vec<(String, String)> =
        lines.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect();
    let headers = crate::http::headers::restored(&stored, true);
    let control = CacheControl::of_response(&headers);
    let lifetime = lifetime(StatusCode::OK, &headers, &control, Timestamp::from_seconds(NOW)).time();
    let fresh = i64::try_from(lifetime.as_secs()).expect("a time") - age;
    let fresh = if control.has(Directive::NoCache) { 0 } else { fresh.max(0) };
    let mut generation = Generation::new("a", NOW, fresh);
    generation.content.headers = stored;
    generation.content.initial_age = Some(age);
    generation.content.variant = variants::digest(&variants::names(&headers).expect("names"), &map(request));
    CachedPage::new(Meta::of(generation), Body::default())
}

fn parts(lines: &[(&'static str, &str)]) -> Parts {
    let mut parts = http::Request::new(()).into_parts().0;
    parts.headers = map(lines);
    parts
}

/// The decision about a page after this many seconds.
fn after(seconds: i64, page: &CachedPage, request: &[(&'static str, &str)]) -> ServeDecision {
    decide_after(seconds, page, request, false)
}

fn decide_after(
    seconds: i64,
    page: &CachedPage,
    request: &[(&'static str, &str)],
    invalidated: bool,
) -> ServeDecision {
    let entry = EntryView { invalidated, ..entry_after(seconds, page) };
    RequestDirectives::of(&parts(request)).decide(&entry)
}

/// A page that was not invalidated, as it is looked up after this many seconds.
fn entry_after(seconds: i64, page: &CachedPage) -> EntryView<'_> {
    let now = Timestamp::from_seconds(NOW + seconds);
    let (meta, freshness) = (page.meta(), page.meta().freshness(now));
    EntryView { meta, page: Some(page), freshness, invalidated: false, deployment: None, now }
}

fn stale(while_revalidate: bool, if_error: bool) -> ServeDecision {
    ServeDecision::Stale { reason: RegenerateReason::Stale, while_revalidate, if_error, if_unreachable: true }
}

/// It must be revalidated before it is served.
fn must_revalidate() -> ServeDecision {
    ServeDecision::Stale {
        reason: RegenerateReason::Stale,
        while_revalidate: false,
        if_error: false,
        if_unreachable: false,
    }
}

/// It has to be validated although it is fresh.
fn again() -> ServeDecision {
    ServeDecision::Stale {
        reason: RegenerateReason::RequestDirective(NOW),
        while_revalidate: false,
        if_error: false,
        if_unreachable: false,
    }
}

#[test]
fn rfc9111_4_2_a_fresh_response_is_used_and_a_stale_one_is_revalidated() {
    let page = stored(0, &[("cache-control", "max-age=60")]);
    assert_eq!(after(59, &page, &[]), ServeDecision::Fresh);
    assert_eq!(after(60, &page, &[]), stale(false, false));
    let page = stored(50, &[("cache-control", "max-age=60")]);
    assert_eq!(after(9, &page, &[]), ServeDecision::Fresh);
    assert_eq!(after(10, &page, &[]), stale(false, false));
}

#[test]
fn rfc9111_5_2_1_4_a_client_may_require_revalidation() {
    let page = stored(0, &[("cache-control", "max-age=60, stale-while-revalidate=60")]);
    assert_eq!(after(1, &page, &[("cache-control", "no-cache")]), again());
    assert_eq!(after(1, &page, &[("pragma", "no-cache")]), again());
    assert_eq!(after(0, &page, &[("cache-control", "max-age=0")]), again(), "a reload");
    assert_eq!(after(61, &page, &[("cache-control", "no-cache")]), must_revalidate());
}

#[test]
fn over_the_limit_of_forced_regenerations_the_directives_of_a_request_count_as_absent() {
    let limits = ForcedRegenerations::new(1, 100);
    let (key, page) = (PageKey::new("/").expect("a page"), stored(0, &[("cache-control", "max-age=60")]));
    let decide = |seconds: i64, directive: &str| {
        let (request, now) = (parts(&[("cache-control", directive)]), Timestamp::from_seconds(NOW + seconds));
        let (meta, freshness) = (page.meta(), page.meta().freshness(now));
        let entry =
            EntryView { meta, page: Some(&page), freshness, invalidated: false, deployment: None, now };
        let directives = RequestDirectives::of(&request).limited(ForcePermit::new(&limits, &key, None));
        let decision = directives.decide(&entry);
        assert_eq!(directives.decide(&entry), decision, "a request is decided once");
        (decision, directives.reached_limit().is_some())
    };
    assert_eq!(decide(1, "max-age=10"), (ServeDecision::Fresh, false), "it forces nothing");
    assert_eq!(decide(1, "no-cache"), (again(), false));
    for directive in ["no-cache", "max-age=0", "min-fresh=1000"] {
        assert_eq!(decide(2, directive), (ServeDecision::Fresh, true), "{directive}");
    }
    assert_eq!(decide(60, "no-cache"), (must_revalidate(), false), "a stale response is revalidated anyway");
}

#[test]
fn rfc9111_5_2_1_1_and_5_2_1_3_a_client_may_limit_the_age() {
    let page = stored(10, &[("cache-control", "max-age=60, stale-while-revalidate=60")]);
    assert_eq!(after(5, &page, &[("cache-control", "max-age=15")]), ServeDecision::Fresh);
    assert_eq!(after(6, &page, &[("cache-control", "max-age=15")]), again());
    assert_eq!(after(5, &page, &[("cache-control", "min-fresh=45")]), ServeDecision::Fresh);
    assert_eq!(after(6, &page, &[("cache-control", "min-fresh=45")]), again());
    assert_eq!(after(51, &page, &[("cache-control", "max-age=1000")]), must_revalidate());
}

#[test]
fn rfc9111_5_2_1_2_a_client_may_accept_stale_responses_unless_the_origin_forbids_it() {
    let page = stored(100, &[("cache-control", "max-age=60")]);
    assert_eq!(after(0, &page, &[("cache-control", "max-stale=40")]), ServeDecision::Fresh);
    assert_eq!(after(0, &page, &[("cache-control", "max-stale=39")]), stale(false, false));
    assert_eq!(after(9000, &page, &[("cache-control", "max-stale")]), ServeDecision::Fresh);
    for word in ["must-revalidate", "proxy-revalidate", "no-cache", "s-maxage=60"] {
        let page = stored(100, &[("cache-control", &format!("max-age=60, {word}"))]);
        assert_eq!(after(0, &page, &[("cache-control", "max-stale")]), must_revalidate(), "{word}");
    }
}

#[test]
fn rfc5861_3_and_4_stale_responses_are_served_within_their_windows() {
    let page = stored(0, &[("cache-control", "max-age=10, stale-while-revalidate=20, stale-if-error=30")]);
    assert_eq!(after(29, &page, &[]), stale(true, true));
    assert_eq!(after(30, &page, &[]), stale(false, true));
    assert_eq!(after(40, &page, &[]), stale(false, false));
    for word in ["must-revalidate", "proxy-revalidate", "no-cache"] {
        let line = format!("max-age=10, stale-while-revalidate=20, stale-if-error=30, {word}");
        assert_eq!(after(11, &stored(0, &[("cache-control", &line)]), &[]), must_revalidate(), "{word}");
    }
}

#[test]
fn rfc9111_5_2_2_10_s_maxage_permits_only_explicit_stale_windows() {
    let usable = |while_revalidate, if_error| ServeDecision::Stale {
        reason: RegenerateReason::Stale,
        while_revalidate,
        if_error,
        if_unreachable: false,
    };
    let page = stored(0, &[("cache-control", "s-maxage=10, stale-while-revalidate=20, stale-if-error=30")]);
    for request in [&[][..], &[("cache-control", "max-stale, stale-if-error=1000")]] {
        assert_eq!(after(9, &page, request), ServeDecision::Fresh);
        assert_eq!(after(29, &page, request), usable(true, true));
        assert_eq!(after(30, &page, request), usable(false, true));
        assert_eq!(after(40, &page, request), must_revalidate());
    }
    let line = "s-maxage=10, must-revalidate, stale-while-revalidate=20, stale-if-error=30";
    assert_eq!(after(11, &stored(0, &[("cache-control", line)]), &[]), must_revalidate());
}

#[test]
fn rfc5861_4_a_client_may_prefer_a_stale_response_to_an_error() {
    let page = stored(0, &[("cache-control", "max-age=10")]);
    assert_eq!(after(29, &page, &[("cache-control", "stale-if-error=20")]), stale(false, true));
    assert_eq!(after(30, &page, &[("cache-control", "stale-if-error=20")]), stale(false, false));
}

#[test]
fn rfc9111_4_4_an_invalidated_response_is_revalidated_before_use() {
    let page = stored(0, &[("cache-control", "max-age=10, stale-while-revalidate=20, stale-if-error=30")]);
    for seconds in [0, 11] {
        assert_eq!(decide_after(seconds, &page, &[("cache-control", "max-stale")], true), must_revalidate());
    }
}

#[test]
fn rfc9111_4_1_a_variant_for_other_headers_is_not_used() {
    let lines = [("cache-control", "max-age=10"), ("vary", "foo")];
    let page = stored_for(0, &lines, &[("foo", "1")]);
    assert_eq!(after(0, &page, &[("foo", "1"), ("bar", "2")]), ServeDecision::Fresh);
    assert_eq!(after(0, &page, &[("foo", "2")]), ServeDecision::OtherVariant);
    assert_eq!(after(0, &page, &[]), ServeDecision::OtherVariant);
    let request = parts(&[("foo", "2")]);
    let variant = RequestDirectives::of(&request).of_variant();
    assert_eq!(
        variant.decide(&entry_after(0, &page)),
        ServeDecision::Unusable(RegenerateReason::OtherVariant(NOW)),
        "its place is taken by another"
    );
    assert!(!variant.matches(&page));
}

#[test]
fn a_page_of_a_rule_is_not_taken_for_one_that_follows_its_origin() {
    let page = CachedPage::new(Meta::of(Generation::new("a", NOW, 60)), Body::default());
    assert_eq!(after(0, &page, &[]), ServeDecision::Unusable(RegenerateReason::OtherPolicy(NOW)));
}

#[test]
fn rfc9111_4_2_4_a_stale_response_is_served_for_a_day_while_the_origin_is_unreachable() {
    let page = stored(0, &[("cache-control", "max-age=10")]);
    let silence =
        |seconds| matches!(after(seconds, &page, &[]), ServeDecision::Stale { if_unreachable: true, .. });
    assert!(silence(10) && silence(86_409) && !silence(86_410));
}

#[test]
fn directives_of_a_request_may_be_ignored() {
    let page = stored(0, &[("cache-control", "max-age=60")]);
    let entry = entry_after(0, &page);
    for line in [("cache-control", "no-cache, no-store, only-if-cached"), ("pragma", "no-cache")] {
        let mut request = parts(&[line]);
        assert_ne!(RequestDirectives::of(&request).decide(&entry), ServeDecision::Fresh, "{line:?}");
        request.extensions.insert(IgnoreDirectives);
        let directives = RequestDirectives::of(&request);
        assert_eq!(directives.decide(&entry), ServeDecision::Fresh, "{line:?}");
        assert_eq!(directives.control, CacheControl::default(), "{line:?}");
    }
}
