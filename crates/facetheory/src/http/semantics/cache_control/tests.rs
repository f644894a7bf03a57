use super::*;
use crate::pages::policy::Policy;
use proptest::prelude::*;

fn read(lines: &[&str]) -> CacheControl {
    let value = |line: &&str| HeaderValue::from_bytes(line.as_bytes()).expect("a header value");
    CacheControl::of(&lines.iter().map(|line| (CACHE_CONTROL, value(line))).collect())
}

fn secs(seconds: u64) -> Option<Duration> {
    Some(Duration::from_secs(seconds))
}

#[test]
fn every_directive_is_read_in_any_case_and_spacing() {
    let control = read(&[
        " Public ,MAX-AGE=1,\ts-maxage = \"2\" ,must-revalidate,proxy-revalidate,must-understand,no-transform",
        "immutable, stale-while-revalidate=3; stale-if-error=4",
        "No-Store, No-Cache, Private, only-if-cached, min-fresh=5, max-stale=6",
    ]);
    for directive in [
        Directive::NoStore,
        Directive::NoCache,
        Directive::Private,
        Directive::Public,
        Directive::MustRevalidate,
        Directive::ProxyRevalidate,
        Directive::MustUnderstand,
        Directive::NoTransform,
        Directive::OnlyIfCached,
    ] {
        assert!(control.has(directive), "{directive:?}");
    }
    assert_eq!((control.max_age, control.s_maxage), (secs(1), secs(2)));
    assert_eq!((control.stale_while_revalidate, control.stale_if_error), (secs(3), secs(4)));
    assert_eq!((control.min_fresh, control.max_stale), (secs(5), secs(6)));
    assert!(!control.targeted);
}

#[test]
fn numbers_have_their_strictest_interpretation() {
    for (line, expected) in [
        ("max-age=60", 60),
        ("max-age=\"60\"", 60),
        ("max-age=60, max-age=30, max-age=90", 30),
        ("max-age=007", 7),
        ("max-age", 0),
        ("max-age=", 0),
        ("max-age=-1", 0),
        ("max-age=+1", 0),
        ("max-age=1.5", 0),
        ("max-age=1e3", 0),
        ("max-age=0x10", 0),
        ("max-age=sixty", 0),
        ("max-age=60 seconds", 0),
        ("max-age=60, max-age=junk", 0),
        ("max-age=2147483648", MAX_SECONDS),
        ("max-age=99999999999999999999999999", MAX_SECONDS),
    ] {
        assert_eq!(read(&[line]).max_age, secs(expected), "{line}");
    }
}

#[test]
fn no_store_is_found_in_malformed_lines() {
    for line in [
        "no-store",
        "NO-STORE",
        "public, no-store, max-age=9",
        "no-store=1",
        "no-store=\"x\"",
        ",,;no-store",
        "private=\"a, no-store",
        "foo=\"bar, no-store",
        "foo=\"a,b\" junk, no-store",
        "max-age=\"1, no-store",
        "public; no-store; max-age=1",
        "=,no-store",
    ] {
        assert!(read(&[line]).has(Directive::NoStore), "{line}");
    }
    assert!(!read(&["foo=\"no-store, x\", xno-store, no-storex, no store"]).has(Directive::NoStore));
}

#[test]
fn directives_that_name_fields_count_for_the_whole_response() {
    assert!(read(&["private=\"Set-Cookie, X-a\", private=b"]).has(Directive::Private));
    assert!(read(&["no-cache=\"a\", no-cache"]).has(Directive::NoCache));
    assert!(read(&["no-cache, no-cache=\"a\""]).has(Directive::NoCache));
    assert!(read(&["no-cache=\"\""]).has(Directive::NoCache));
}

#[test]
fn request_directives_are_parsed() {
    assert_eq!(read(&["max-stale"]).max_stale, Some(Duration::MAX));
    assert_eq!(read(&["max-stale, max-stale=5"]).max_stale, secs(5));
    assert_eq!(read(&["max-stale=5, max-stale"]).max_stale, secs(5));
    assert_eq!(read(&["max-stale=x"]).max_stale, secs(0));
    assert_eq!(read(&["min-fresh=5, min-fresh=9, min-fresh=x"]).min_fresh, secs(9));
}

#[test]
fn clients_get_the_policy() {
    let mut policy = Policy::every(Duration::from_secs(60));
    let sent = |policy: Policy, stale_age, line: &str| {
        let value = for_clients(&Route::new("/", policy), 60, stale_age, &read(&[line]));
        value.to_str().expect("a text").to_owned()
    };
    assert_eq!(sent(policy, None, ""), "public, max-age=0, s-maxage=60");
    assert_eq!(sent(policy, Some(70), ""), "public, max-age=0, s-maxage=60", "stale by its age");
    assert_eq!(sent(policy, Some(20), ""), "public, max-age=0, s-maxage=20", "stale by a tag");
    let personal = |names: &[&str]| {
        for_clients(&Route::new("/", policy).headers(names), 60, None, &CacheControl::default())
    };
    assert_eq!(personal(&["accept-language"]), "public, max-age=0, s-maxage=60");
    let value = personal(&["Authorization"]);
    assert_eq!(value, "private, max-age=0", "caches in front of us do not check Authorization");
    policy.stale_while_revalidate = Some(Duration::from_secs(30));
    policy.stale_if_error = Some(Duration::from_secs(300));
    let text = sent(policy, None, "must-revalidate, no-transform, proxy-revalidate, max-age=9");
    assert_eq!(
        text,
        "public, max-age=0, s-maxage=60, stale-while-revalidate=30, stale-if-error=300, must-revalidate, \
         proxy-revalidate, no-transform"
    );
    let text = sent(policy.blocking(), None, "");
    assert_eq!(text, "public, max-age=0, s-maxage=60, stale-if-error=300", "it is not served stale");
}

/// Lines of directives and noise.
fn line() -> impl Strategy<Value = String> {
    let part = prop_oneof![
        "[a-z\",;= 0-9]{0,8}",
        "\\PC{0,6}",
        proptest::sample::select(vec![
            "no-store",
            "private",
            "max-age=",
            "s-maxage=",
            "no-cache=",
            "\"",
            ",",
            "=",
            " ",
        ])
        .prop_map(str::to_owned),
    ];
    proptest::collection::vec(part, 0..8).prop_map(|parts| parts.concat())
}

proptest! {
    #[test]
    fn no_input_removes_a_restriction(before in line(), after in line()) {
        let control = read(&[&before, "no-store, private, no-cache, max-age=5", &after]);
        prop_assert!(control.has(Directive::NoStore) && control.has(Directive::Private) && control.has(Directive::NoCache));
        prop_assert!(control.max_age <= secs(5) && control.max_age.is_some());
    }

    #[test]
    fn repeating_a_line_changes_nothing(line in line()) {
        prop_assert_eq!(read(&[&line]), read(&[&line, &line]));
    }

    #[test]
    fn the_value_for_clients_is_parsed_back(
        interval in 0i64..1 << 40, stale_age in proptest::option::of(0i64..1 << 40),
        swr in proptest::option::of(0u64..1 << 40),
    ) {
        let mut policy = Policy::every(Duration::from_secs(interval.unsigned_abs()));
        policy.stale_while_revalidate = swr.map(Duration::from_secs);
        let value = for_clients(&Route::new("/", policy), interval, stale_age, &CacheControl::default());
        let control = read(&[value.to_str().expect("a text")]);
        prop_assert!(control.has(Directive::Public) && !control.has(Directive::NoStore));
        let shared = control.s_maxage.expect("a lifetime");
        if let Some(age) = stale_age.map(i64::unsigned_abs).filter(|age| *age < MAX_SECONDS) {
            prop_assert!(shared.as_secs() <= age, "a stale page is stale for clients");
        }
        prop_assert_eq!(
            control.stale_while_revalidate.map(|time| time.as_secs()),
            swr.map(|time| time.min(MAX_SECONDS))
        );
    }
}
