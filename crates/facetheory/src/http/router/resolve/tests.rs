use super::*;
use crate::http::router::preview::Preview;
use crate::http::test_support::header_map;
use crate::pages::policy::Policy;
use crate::protocol::cache_key::CacheKey;
use http::header::COOKIE;
use http::{HeaderMap, HeaderName, Request};
use proptest::prelude::*;
use std::sync::LazyLock;
use std::time::Duration;

const NOW: Timestamp = Timestamp::from_seconds(1_700_000_000);

fn route(pattern: &str) -> Route {
    Route::new(pattern, Policy::every(Duration::from_secs(60)))
}

/// Routes of all kinds.
static ROUTES: LazyLock<Routes> = LazyLock::new(|| {
    Routes::new([
        route("/"),
        route("/news/{slug}"),
        route("/list/{b}/{a}").query(Query::only(["page", "a"])),
        route("/plain/{*rest}").query(Query::None),
        route("/wide/{slug}").headers(["accept-language", "x-kind"]).cookies(["theme", "lang"]),
        route("/mine").headers(["authorization"]),
        route("/t/{tenant}/{slug}").tenant(TenantFrom::Param("tenant".into())),
        route("/h/{slug}").tenant(TenantFrom::TrustedHeader("x-tenant-id".into())),
        route("/s/{slug}").tenant(TenantFrom::Subdomain("example.com".into())),
    ])
    .expect("the routes are right")
});

/// Some of them, for one site.
static ROUTES_OF_ONE_SITE: LazyLock<Routes> = LazyLock::new(|| {
    let routes = Routes::new([
        route("/news/{slug}"),
        route("/list/{b}/{a}").query(Query::only(["page", "a"])),
        route("/wide/{slug}").headers(["accept-language", "x-kind"]).cookies(["theme", "lang"]),
    ]);
    routes.and_then(|routes| routes.of_one_site("www.example.com")).expect("the routes are right")
});

/// Some of them, with the keys of TypeScript services.
static ROUTES_OF_TYPESCRIPT: LazyLock<Routes> = LazyLock::new(|| {
    let routes = Routes::new([
        route("/news/{slug}"),
        route("/list/{b}/{a}").query(Query::only(["page", "a"])),
        route("/plain/{rest+}").query(Query::None),
        route("/wide/{slug}").headers(["authorization"]).cookies(["theme", "lang"]),
        route("/t/{tenant}/{rest*}").tenant(TenantFrom::Param("tenant".into())),
        route("/h/{slug}").tenant(TenantFrom::TrustedHeader("x-tenant-id".into())),
    ]);
    let routes =
        routes.and_then(|routes| routes.of_one_site("www.example.com")).expect("the routes are right");
    routes.facetheory_ts_keys(http::uri::Scheme::HTTPS).expect("keys without a host")
});

fn client(uri: &str, lines: &[(&str, &str)]) -> Parts {
    let mut request = Request::builder().uri(uri);
    for (name, value) in lines {
        request = request.header(*name, *value);
    }
    request.body(()).expect("a request").into_parts().0
}

fn resolve(routes: &Routes, parts: &Parts) -> Resolution {
    routes.resolve(parts, &KeyScheme::Hashed, || NOW)
}

fn page_of(routes: &Routes, parts: &Parts) -> Option<ResolvedPage> {
    match resolve(routes, parts) {
        Resolution::Page(page) => Some(page),
        Resolution::PassThrough(_) | Resolution::Rejected(_) => None,
    }
}

/// The key, or why there is none.
fn key_of(routes: &Routes, parts: &Parts) -> String {
    match resolve(routes, parts) {
        Resolution::Page(page) => page.key.cache_key().to_owned(),
        Resolution::PassThrough(reason) => format!("pass: {}", reason.as_str()),
        Resolution::Rejected(rejection) => format!("{}: {}", rejection.status.as_u16(), rejection.text),
    }
}

fn key_for(uri: &str, lines: &[(&str, &str)]) -> String {
    let mut all = vec![("host", "example.com")];
    all.extend(lines);
    key_of(&ROUTES, &client(uri, &all))
}

#[test]
fn a_key_has_the_input_that_distinguishes_a_page() {
    for (uri, expected) in [
        ("/", "default::example.com/?"),
        ("/?", "default::example.com/?"),
        ("/?b=2&a=1", "default::example.com/?b=2&a=1"),
        ("/news/hello", "default::example.com/news/{slug}?slug=hello"),
        ("/news/a%20b?x", "default::example.com/news/{slug}?slug=a%20b&x"),
        ("/news/a&page=2", "default::example.com/news/{slug}?slug=a%%26page%%3D2"),
        ("/list/1/2?page=3&utm=x&a=4&page=5", "default::example.com/list/{b}/{a}?a=2&b=1&a=4&page=3&page=5"),
        ("/list/1/2?utm=x", "default::example.com/list/{b}/{a}?a=2&b=1"),
        ("/list/1/2?p%61ge=3", "default::example.com/list/{b}/{a}?a=2&b=1"),
        ("/list/1/2?utm=a;page=3", "default::example.com/list/{b}/{a}?a=2&b=1"),
        ("/plain/a/b?c", "default::example.com/plain/{*rest}?rest=a%2Fb"),
        ("/t/acme/x", "acme::example.com/t/{tenant}/{slug}?slug=x&tenant=acme"),
        ("/missing", "pass: no-route"),
        ("/news/..%2fadmin", "400: the path has a dot segment"),
        ("/news/%00", "400: the path has an encoded control character"),
        ("/t/%61cme/x", "400: the tenant in a path must not be percent-encoded"),
        ("/s/x", "400: the host must be <tenant>.example.com"),
        ("/h/x", "400: the header x-tenant-id must name one tenant"),
    ] {
        assert_eq!(key_for(uri, &[]), expected, "{uri}");
    }
    assert_eq!(key_of(&ROUTES, &client("/", &[("host", "A.Example:80")])), "default::a.example:80/?");
    assert_eq!(key_for("/h/x", &[("x-tenant-id", "acme")]), "acme::example.com/h/{slug}?slug=x");
}

#[test]
fn a_query_that_no_route_lists_is_redacted() {
    for (uri, expected) in [
        ("/news/a?token=x&b", "token=x&b"),
        ("/wide/a?token=x", "token=x"),
        ("/news/a", ""),
        ("/list/1/2?page=3&token=x", ""),
        ("/plain/a?token=x", ""),
    ] {
        let parts = client(uri, &[("host", "example.com"), ("accept-language", "de")]);
        let key = page_of(&ROUTES, &parts).expect("a page").key;
        let hidden = if expected.is_empty() {
            key.cache_key().to_owned()
        } else {
            key.cache_key().replace(expected, "…")
        };
        assert_eq!(key.redacted().to_string(), hidden, "{uri}");
    }
}

#[test]
fn other_requests_are_passed_through_or_rejected() {
    for (lines, expected) in [
        (&[("authorization", "Bearer x")][..], "pass: authorization"),
        (&[("content-length", "5")], "pass: body"),
        (&[("content-length", "0")], "default::example.com/?"),
        (&[("transfer-encoding", "chunked")], "pass: body"),
        (&[("upgrade", "WebSocket")], "pass: upgrade"),
        (&[("upgrade", "h2c")], "default::example.com/?"),
        (&[("host", "b")], "400: the request has more than one Host"),
        (&[("cookie", "a=1"), ("x-forwarded-host", "evil")], "default::example.com/?"),
    ] {
        assert_eq!(key_for("/", lines), expected, "{lines:?}");
    }
    for name in ["x-tenant-id", "x-facetheory-tenant"] {
        assert!(key_for("/", &[(name, "acme"), ("authorization", "x")]).starts_with("400: the header "));
    }
    let customers = ROUTES.clone().tenant_headers(["x-customer"]).expect("a header");
    let parts = client("/", &[("host", "a"), ("x-customer", "acme")]);
    assert!(key_of(&customers, &parts).starts_with("400: the header x-customer"));
    let (mut post, ()) = http::Request::new(()).into_parts();
    post.method = Method::POST;
    assert_eq!(key_of(&ROUTES, &post), "pass: method");
    let long = format!("/?{}", "x".repeat(60_000));
    assert!(key_for(&long, &[]).starts_with("default::"));
}

#[test]
fn a_request_with_a_preview_cookie_is_passed_through() {
    let preview = Preview::new([7; 32]).expect("a secret");
    let cookie =
        format!("a=1; {}={}", Preview::COOKIE, preview.cookie(NOW + Duration::from_secs(1), Some("/news")));
    let routes = ROUTES.clone().preview(preview);
    let resolve = |uri| key_of(&routes, &client(uri, &[("host", "a"), ("cookie", &cookie)]));
    assert_eq!(resolve("/news/x"), "pass: preview");
    assert_eq!(resolve("/"), "default::a/?");
    assert!(key_for("/news/x", &[("cookie", &cookie)]).starts_with("default::"), "without a preview secret");
}

#[test]
fn authorization_distinguishes_pages_only_where_the_route_lists_it() {
    let key = |value: &str| key_for("/mine", &[("authorization", value)]);
    assert_ne!(key("a"), key("b"));
    assert!(key("a").starts_with("default::example.com/mine?#auth="));
    assert_eq!(key_for("/mine", &[]), "default::example.com/mine?");
}

#[test]
fn the_renderer_sees_only_what_the_route_lists() {
    let routes = &*ROUTES;
    let mut parts = client(
        "http://Example.com/wide/x?q=1",
        &[
            ("accept-language", "de"),
            ("accept-language", "en"),
            ("cookie", "theme=dark; session=secret"),
            ("cookie", "lang=de"),
            ("x-forwarded-host", "evil"),
            ("accept-encoding", "br"),
            ("range", "bytes=0-1"),
            ("if-none-match", "*"),
            ("x-tenant", "acme"),
        ],
    );
    parts.method = Method::HEAD;
    parts.extensions.insert("who is connected");
    let page = page_of(routes, &parts).expect("a page");
    let request = routes.keyed_request(routes.at(page.route), &parts).expect("a request");
    assert_eq!(request.method(), Method::GET);
    assert_eq!(request.uri(), "/wide/x?q=1");
    assert!(request.extensions().is_empty());
    let [de, en] = ["de", "en"].map(|language| ("accept-language", language));
    let keyed = header_map(&[de, en, ("cookie", "lang=de; theme=dark"), ("host", "example.com")]);
    assert_eq!(*request.headers(), keyed);
}

#[test]
fn one_site_is_served_under_every_host() {
    let routes = &*ROUTES_OF_ONE_SITE;
    for host in ["a.example", "B.example:8080"] {
        let parts = client("/news/x", &[("host", host)]);
        let page = page_of(routes, &parts).expect("a page");
        assert_eq!(page.key.cache_key(), "default::/news/{slug}?slug=x");
        let request = routes.keyed_request(routes.at(page.route), &parts).expect("a request");
        assert_eq!(request.headers()["host"], "www.example.com");
    }
    assert_eq!(key_of(routes, &client("/news/x", &[])), "default::/news/{slug}?slug=x");
}

/// The path, the query, the host and the other headers of a request.
type Words = (String, Option<String>, &'static str, Vec<(&'static str, String)>);

/// A request from a small vocabulary, so that two requests are often equal in parts.
fn words() -> impl Strategy<Value = Words> {
    let path = prop_oneof![
        "/(news|wide|plain|h|s)/(a|b|%26|&|a/b|a%2Fb|=|%3D|a&b=c){1,2}",
        "/(list|t)/(a|b|a&b=c)/(a|b|c|&a=b)",
        "/(mine)?",
    ];
    let query = proptest::option::of("((a|A|page|b|%61)?(=|%3D)?(1|2|&|;|a=1|\\+|%20|%2B)?&?){0,3}");
    let hosts = ["x.example.com", "X.example.com", "y.example.com", "y.example.com:1"];
    let names = [
        "accept-language",
        "x-kind",
        "cookie",
        "authorization",
        "x-tenant-id",
        "user-agent",
        "x-forwarded-host",
    ];
    let value =
        prop_oneof!["(a|b|c)?", "(theme|lang|x)=(1|2|1=1|%31|\"1\"|%)?(; ?(theme|lang|x)=(1|2|%25)?){0,2}"];
    let lines = proptest::collection::vec((proptest::sample::select(names.to_vec()), value), 0..4);
    (path, query, proptest::sample::select(hosts.to_vec()), lines)
}

fn request_of((path, query, host, lines): &Words) -> Parts {
    let uri = query.as_ref().map_or(path.clone(), |query| format!("{path}?{query}"));
    let mut all = vec![("host", *host)];
    all.extend(lines.iter().map(|(name, value)| (*name, value.as_str())));
    client(&uri, &all)
}

fn request() -> impl Strategy<Value = Parts> {
    words().prop_map(|words| request_of(&words))
}

/// Two requests that have some of their parts in common.
fn relatives() -> impl Strategy<Value = (Parts, Parts)> {
    (words(), words(), any::<[bool; 4]>()).prop_map(|(one, other, common)| {
        let mut relative = one.clone();
        if !common[0] {
            relative.0 = other.0;
        }
        if !common[1] {
            relative.1 = other.1;
        }
        if !common[2] {
            relative.2 = other.2;
        }
        if !common[3] {
            relative.3 = other.3;
        }
        (request_of(&one), request_of(&relative))
    })
}

type Seen = (Option<Tenant>, Uri, HeaderMap);

/// The key of a page, and everything that the renderer sees.
fn seen(routes: &Routes, parts: &Parts) -> Option<(String, Seen)> {
    let page = page_of(routes, parts)?;
    let request = routes.keyed_request(routes.at(page.route), parts).expect("it can be forwarded");
    let key = page.key.cache_key().to_owned();
    Some((key, (page.key.tenant().cloned(), request.uri().clone(), request.headers().clone())))
}

proptest! {
    #[test]
    fn keys_differ_exactly_if_the_renderer_sees_a_difference((one, other) in relatives()) {
        for routes in [&*ROUTES, &ROUTES_OF_ONE_SITE, &ROUTES_OF_TYPESCRIPT] {
            if let (Some((key, page)), Some((other_key, other_page))) = (seen(routes, &one), seen(routes, &other)) {
                prop_assert_eq!(key == other_key, page == other_page, "{} and {}", key, other_key);
            }
        }
    }

    #[test]
    fn input_that_is_not_listed_changes_nothing(
        parts in request(),
        name in "(x-[a-z]{1,8}|user-agent|accept|referer|origin|x-original-url|rsc)", value in "[ -~]{0,10}",
        cookie in "[a-z]{1,3}",
    ) {
        prop_assume!(!["x-kind", "x-tenant-id"].contains(&name.as_str()));
        let routes = &*ROUTES;
        let mut more = parts.clone();
        more.headers.append(HeaderName::try_from(name).expect("a name"), HeaderValue::try_from(value).expect("a value"));
        more.headers.append(COOKIE, HeaderValue::try_from(format!("zz{cookie}=1")).expect("a value"));
        more.method = Method::HEAD;
        prop_assert_eq!(seen(routes, &parts), seen(routes, &more));
    }

    // Without a slash: services in other languages decode `%2F`, and cannot distinguish it.
    #[test]
    fn a_key_equals_that_of_services_in_other_languages(
        slug in "s[a-zA-Z é&=%+.!~*'()_-]{0,9}", lang in proptest::option::of("[a-z]{0,3}"),
        kinds in proptest::collection::vec("[a-z]{0,3}", 0..3), theme in proptest::option::of("[a-z]{0,3}"),
        page in proptest::option::of("[a-z é&=]{0,5}"),
    ) {
        let encoded = |text: &str| {
            let key = CacheKey::route("").param("x", text).to_string();
            key.strip_prefix("default::?x=").expect("a value").to_owned()
        };
        let segment = encoded(&slug);
        let mut expected = CacheKey::route("/wide/{slug}").param("slug", slug);
        let mut uri = format!("/wide/{segment}");
        if let Some(page) = &page {
            expected = expected.query("page", page.as_str());
            uri.push_str(&format!("?page={}", encoded(page)));
        }
        let mut lines: Vec<(&str, String)> = Vec::new();
        for kind in kinds {
            expected = expected.auth("x-kind", kind.as_str());
            lines.push(("x-kind", kind));
        }
        if let Some(lang) = lang {
            expected = expected.auth("accept-language", lang.as_str()).cookie("lang", lang.as_str());
            lines.push(("cookie", format!("other=1; lang={lang}")));
            lines.push(("accept-language", lang));
        }
        if let Some(theme) = theme {
            expected = expected.cookie("theme", theme.as_str());
            lines.push(("cookie", format!("theme={theme}")));
        }
        let lines: Vec<(&str, &str)> = lines.iter().map(|(name, value)| (*name, value.as_str())).collect();
        prop_assert_eq!(key_of(&ROUTES_OF_ONE_SITE, &client(&uri, &lines)), expected.to_string());
    }

    #[test]
    fn any_request_is_resolved_without_panic(path in "\\PC{0,30}", host in "[!-~]{0,12}", cookie in "[ -~]{0,20}") {
        let request = Request::builder().uri(format!("/{path}")).header("host", host).header("cookie", cookie).body(());
        if let Ok(request) = request {
            let routes = Routes::new([route("/{*all}").cookies(["a"])]).expect("a route");
            let _ = seen(&routes, &request.into_parts().0);
        }
    }
}

#[test]
fn a_bypass_route_wins_over_less_specific_routes_only() {
    let routes = Routes::new([
        route("/{*all}"),
        Route::bypass("/account/{*rest}"),
        route("/account/help/{page}"),
        Route::bypass("/account/help/me"),
    ])
    .expect("the routes are right");
    for (uri, expected) in [
        ("/account", "default::example.com/{*all}?all=account"),
        ("/account/orders", "pass: route"),
        ("/account/orders/../x", "pass: route"),
        ("/account/help/faq", "default::example.com/account/help/{page}?page=faq"),
        ("/account/help/me", "pass: route"),
    ] {
        assert_eq!(key_of(&routes, &client(uri, &[("host", "example.com")])), expected, "{uri}");
    }
    let named = [("host", "example.com"), ("x-tenant-id", "acme")];
    assert_eq!(key_of(&routes, &client("/account/orders", &named)), "pass: route", "it is not cached");
}

#[test]
fn https_has_its_own_pages_only_if_the_server_says_so() {
    let keyed = |uri: &str, secure: bool| {
        let mut parts = client(uri, &[("host", "example.com"), ("x-forwarded-proto", "https")]);
        if secure {
            parts.extensions.insert(http::uri::Scheme::HTTPS);
        }
        parts
    };
    let plain = "default::example.com/{*rest}?rest=a";
    let secure = "default::https://example.com/{*rest}?rest=a";
    let routes = Routes::new([route("/{*rest}")]).expect("routes");
    assert_eq!(key_of(&routes, &keyed("/a", false)), plain);
    assert_eq!(key_of(&routes, &keyed("https://example.com/a", false)), plain, "any client can claim it");
    assert_eq!(key_of(&routes, &keyed("/a", true)), secure);
    let one = routes.of_one_site("example.com").expect("one site");
    assert_eq!(key_of(&one, &keyed("/a", false)), "default::/{*rest}?rest=a");
    let why = "the origin gets the scheme, and may redirect from one to the other";
    assert_eq!(key_of(&one, &keyed("/a", true)), "default::https:///{*rest}?rest=a", "{why}");
}

#[test]
fn the_origin_sees_only_what_the_key_of_a_typescript_service_distinguishes() {
    let routes = &*ROUTES_OF_TYPESCRIPT;
    let of = |uri: &str, lines: &[(&str, &str)], secure: bool| {
        let mut parts = client(uri, lines);
        if secure {
            parts.extensions.insert(http::uri::Scheme::HTTPS);
        }
        let page = page_of(routes, &parts).expect("a page");
        let (key, (_, uri, headers)) = seen(routes, &parts).expect("a page");
        routes.fix_scheme(routes.at(page.route), &mut parts.extensions);
        let line = |name: &str| headers.get(name).map(|value| value.to_str().expect("a text").to_owned());
        (
            key,
            uri.to_string(),
            line("host"),
            line("cookie"),
            parts.extensions.get::<http::uri::Scheme>().cloned(),
        )
    };
    let https = Some(http::uri::Scheme::HTTPS);
    let one =
        of("/wide/a?B=1&q=x+y&a", &[("host", "a.example"), ("cookie", "lang=\"%C3%A9\"; lang=d")], false);
    assert_eq!(one.1, "/wide/a?a=&B=1&q=x%20y");
    assert_eq!((one.2.as_deref(), one.3.as_deref()), (Some("www.example.com"), Some("lang=d")));
    assert_eq!(one.4, https);
    let other = of("/wide/a?q=x%20y&%61=&B=1", &[("host", "b.example"), ("cookie", "lang=%64")], true);
    assert_eq!(one, other, "two requests with one key look the same");
}

#[test]
fn routes_that_the_keys_of_typescript_services_cannot_express_are_rejected() {
    let routes = [
        route("/a").headers(["accept-language", "x-api-key"]),
        route("/b/{*rest}"),
        Route::follow_origin("/c/{*rest}"),
        Route::bypass("/d/{*rest}"),
    ];
    let one_site = |routes: Routes| routes.of_one_site("example.com");
    let keys = |routes: Routes| routes.facetheory_ts_keys(http::uri::Scheme::HTTPS);
    let error = Routes::new(routes).and_then(one_site).and_then(keys).expect_err("invalid routes");
    assert_eq!(
        error.to_string(),
        "invalid routes:\n- `/a`: the keys of TypeScript services cannot contain the header accept-language; only \
         authorization, x-amz-security-token, x-api-key can be listed\n- `/b/{*rest}`: the keys of TypeScript services \
         contain the pattern; write the rest of the path as the service does, `{name+}` or `{name*}`"
    );
    let no_host = "the keys of TypeScript services have no host, so pages of all hosts would be the same; serve one host: \
                   set `site`";
    let of = || Routes::new([route("/a")]).expect("a route");
    assert_eq!(keys(of()).expect_err("any host").to_string(), no_host);
    let both = |routes: Routes| routes.of_sites(["a.example", "b.example"]);
    assert_eq!(both(of()).and_then(keys).expect_err("two hosts").to_string(), no_host);
    assert_eq!(one_site(of()).and_then(keys).and_then(both).expect_err("two hosts").to_string(), no_host);
    assert!(of().of_sites(["a.example"]).and_then(keys).is_ok());
}

#[test]
fn an_address_that_does_not_fit_into_a_raw_key_is_rejected() {
    let raw = KeyScheme::raw("CACHE#").expect("a prefix");
    let resolve = |routes: &Routes, uri: String| {
        let parts = client(&uri, &[]);
        match routes.resolve(&parts, &raw, || NOW) {
            Resolution::Page(page) => Ok(page.key.pk().len()),
            Resolution::Rejected(rejection) => Err((rejection.status.as_u16(), rejection.text)),
            Resolution::PassThrough(_) => panic!("the path has a route"),
        }
    };
    let too_long = || Err((414, "the address is longer than the 2042 bytes of a cache key".to_owned()));
    let others = "CACHE#default::/news/{slug}?slug=".len();
    let path = |slug: usize| resolve(&ROUTES_OF_ONE_SITE, format!("/news/{}", "x".repeat(slug)));
    assert_eq!(path(2048 - others), Ok(2048));
    assert_eq!(path(2049 - others), too_long());
    // The empty pairs are not in the key; the query alone may be as long as a key, or longer.
    let query =
        |value: usize| resolve(&ROUTES_OF_TYPESCRIPT, format!("/news/a?&&&&%71={}", "x".repeat(value)));
    assert_eq!(query(2048 - others - "a&q=".len()), Ok(2048));
    assert_eq!(query(2049 - others - "a&q=".len()), too_long());
    assert_eq!(query(3000), too_long());
}
