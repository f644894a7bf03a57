//! Each dialect in pure form: which purge a request means.

use facetheory::InvalidationMode;
use facetheory::InvalidationMode::{Hard, Soft};
use http::request::Parts;
use http::{HeaderValue, Request};

use super::dialect::Rules;
use super::*;
use crate::config::{Config, OnUnknown};

fn rules() -> Rules {
    let config = Config::parse("tag_headers = [\"X-Own-Tags\"]").expect("a configuration");
    let dialects = [config.purge.dialects.clone(), vec![Dialect::NginxHelper]].concat();
    Rules { dialects, ..Rules::from(&config) }
}

fn request(method: &str, target: &str, headers: &[(&str, &str)]) -> Parts {
    let request = Request::builder().method(method).uri(target).header("host", "www.example.com");
    let request = headers.iter().fold(request, |request, (name, value)| request.header(*name, *value));
    request.body(()).expect("a request").into_parts().0
}

fn url(target: &str) -> Scope {
    Scope::Url { host: Some("www.example.com".to_owned()), target: target.to_owned() }
}

fn tags(tags: &[&str]) -> Scope {
    Scope::Tags(tags.iter().map(|tag| (*tag).to_owned()).collect())
}

fn below(path: &str) -> Scope {
    Scope::Prefix(path.to_owned())
}

/// A request, and the purge that it means.
type Row<'a> = (&'a str, &'a str, &'a [(&'a str, &'a str)], Scope, InvalidationMode);

#[test]
fn each_request_of_a_product_means_what_the_product_means() {
    let fos = [("x-host", ".*"), ("x-content-type", ".*")];
    let with =
        |tags: &'static str, url: &'static str| [fos[0], fos[1], ("x-cache-tags", tags), ("x-url", url)];
    let rows: &[Row<'_>] = &[
        ("PURGE", "/a?b=c", &[], url("/a?b=c"), Hard),
        ("PURGE", "/a", &[("x-purge-method", "default")], url("/a"), Hard),
        ("PURGE", "/a", &[("fastly-soft-purge", "1")], url("/a"), Soft),
        ("PURGE", "http://www.example.com/a", &[], url("/a"), Hard),
        ("PURGE", "/.*", &[("x-purge-method", "regex")], Scope::Everything, Hard),
        ("PURGE", "/.*", &[], Scope::Everything, Hard),
        ("PURGE", "/a/b/.*", &[("x-purge-method", "regex")], below("/a/b"), Hard),
        ("PURGE", "/a/b.*", &[("x-purge-method", "regex")], below("/a"), Hard),
        ("PURGE", "/a/b/", &[("x-purge-method", "regex")], below("/a/b"), Hard),
        ("PURGE", "/a/(b|c)/.*", &[], below("/a"), Hard),
        ("PURGE", "/a/b*", &[], below("/a"), Hard),
        ("PURGE", "/a?b=*", &[], below("/a"), Hard),
        ("PURGE", "/purgeall", &[], Scope::Everything, Hard),
        ("PURGE", "/", &[("clear-cache", "true")], Scope::Everything, Hard),
        ("PURGE", "/", &[("xkey", "a b")], tags(&["a", "b"]), Hard),
        ("PURGE", "/", &[("xkey", "a"), ("xkey", "b, c")], tags(&["a", "b", "c"]), Hard),
        ("PURGE", "/", &[("xkey", "a(b")], Scope::Everything, Hard),
        ("PURGE", "/", &[("cache-tags", "(^|,)(a)(,|$)")], tags(&["(^|", ")(a)(", "a", "|$)"]), Hard),
        ("PURGE", "/", &[("surrogate-key", "a, b")], tags(&["a", "b"]), Hard),
        ("PURGE", "/", &[("surrogate-key", "a b"), ("fastly-soft-purge", "1")], tags(&["a", "b"]), Soft),
        ("PURGE", "/", &[("key", "a b")], tags(&["a", "b"]), Hard),
        ("PURGE", "/", &[("key", "ez-all")], Scope::Everything, Hard),
        ("PURGEKEYS", "/", &[("xkey-softpurge", "a b")], tags(&["a", "b"]), Soft),
        ("PURGEKEYS", "/", &[("xkey-purge", "a b")], tags(&["a", "b"]), Hard),
        ("PURGEKEYS", "/", &[("xkey-purge", "a"), ("xkey-softpurge", "b")], tags(&["a", "b"]), Hard),
        ("PURGETAGS", "/", &[("x-cache-tags", "a,b")], tags(&["a", "b"]), Hard),
        ("PURGE", "/", &[("x-magento-tags-pattern", "((^|,)a(,|$))|((^|,)b(,|$))")], tags(&["a", "b"]), Hard),
        ("PURGE", "/", &[("x-magento-tags-pattern", ".*")], Scope::Everything, Hard),
        ("PURGE", "/", &[("x-pool", "one.*")], Scope::Everything, Hard),
        ("BAN", "/", &[("x-cache-tags", "(^|,)(a\\-b|c)(,|$)")], tags(&["a-b", "c"]), Hard),
        ("BAN", "/", &with("(^|,)(a)(,|$)", ".*"), tags(&["a"]), Hard),
        ("BAN", "/", &with(".*", "^/blog/.*"), below("/blog"), Hard),
        ("BAN", "/", &with(".*", "/blog/.*"), Scope::Everything, Hard),
        ("BAN", "/", &with(".*", ".*"), Scope::Everything, Hard),
        (
            "BAN",
            "/",
            &[("apiplatform-ban-regex", "(/books/1|/books)($|\\,)")],
            tags(&["/books", "/books/1"]),
            Hard,
        ),
        ("BAN", "/", &[("cache-tags", "node:1|node:2")], tags(&["node:1", "node:2"]), Hard),
        ("BAN", "/", &[("cache-tags", "a.b"), ("x-cache-tags", "c")], tags(&["c", "a.b"]), Hard),
        ("BAN", "/tags", &[("cache-tags", "a b c")], tags(&["a", "b", "c"]), Hard),
        ("BAN", "/path/*", &[], below("/path"), Hard),
        ("BAN", "/site", &[], Scope::Everything, Hard),
        ("BAN", "/", &[], Scope::Everything, Hard),
        ("BAN", "/", &[("x-ban-tags", "pageId_7")], tags(&["pageId_7"]), Hard),
        ("BAN", "/", &[("x-ban-all", "1")], Scope::Everything, Hard),
        ("BAN", "/", &[("xkey", "a b")], tags(&["a", "b"]), Hard),
        ("BAN", "/", &[("cache-tags", "cat_[0-9]+")], Scope::Everything, Hard),
        ("BAN", "/somewhere", &[], Scope::Everything, Hard),
        ("PURGE", "/purge/a?b", &[], url("/a?b"), Hard),
        ("PURGE", "/", &[("apiplatform-ban-regex", "(a|b)($|\\,)")], tags(&["a", "b"]), Hard),
        (
            "PURGE",
            "/",
            &[("x-magento-tags-pattern", "((^|,)a(,|$))"), ("x-magento-tags-pattern", "((^|,)b(,|$))")],
            tags(&["a", "b"]),
            Hard,
        ),
        ("PURGE", "/", &[("x-magento-tags-pattern", "(a)"), ("xkey", "b")], tags(&["a", "b"]), Hard),
        ("BAN", "/", &[("cache-tags", "a"), ("x-own-tags", "b")], tags(&["a", "b"]), Hard),
        ("PURGEKEYS", "/", &[("x-magento-tags-pattern", "(a)")], tags(&["a"]), Hard),
        ("PURGE", "/", &[("x-url", "^/blog/.*")], below("/blog"), Hard),
    ];
    for (method, target, headers, scope, mode) in rows {
        let parsed = rules().parse(&request(method, target, headers)).expect("a purge");
        let expected = Ok(Purge { scope: scope.clone(), mode: *mode });
        assert_eq!(parsed.purge, expected, "{method} {target} {headers:?}");
    }
}

#[test]
fn a_header_for_tags_is_never_ignored() {
    const LISTS: &[&str] = &[
        "xkey",
        "surrogate-key",
        "cache-tag",
        "x-tags",
        "x-cache-tags",
        "cache-tags",
        "purge-cache-tags",
        "x-drupal-cache-tags",
        "x-magento-tags",
        "edge-cache-tag",
        "netlify-cache-tag",
        "vercel-cache-tag",
        "x-own-tags",
    ];
    for (method, name) in
        ["PURGE", "BAN"].into_iter().flat_map(|method| LISTS.iter().map(move |name| (method, name)))
    {
        let parsed = rules().parse(&request(method, "/", &[(name, "a")])).expect("a purge");
        assert_eq!(parsed.purge, Ok(Purge { scope: tags(&["a"]), mode: Hard }), "{method} {name}");
    }
    let others = ["x-magento-tags-pattern", "apiplatform-ban-regex", "xkey-softpurge", "x-pool"];
    for (method, name) in ["PURGE", "BAN"]
        .into_iter()
        .flat_map(|method| LISTS.iter().chain(&others).map(move |name| (method, name)))
    {
        let mut unreadable = request(method, "/a", &[]);
        unreadable.headers.insert(*name, HeaderValue::from_bytes(b"a\xff").expect("a value"));
        let parsed = rules().parse(&unreadable).expect("a purge");
        assert!(parsed.is_widened, "{method} {name}: {:?}", parsed.purge);
        assert_eq!(parsed.purge.map(|purge| purge.scope), Ok(Scope::Everything), "{method} {name}");
    }
}

#[test]
fn a_request_without_tags_is_incomplete() {
    for (method, target, headers) in [
        ("PURGEKEYS", "/", &[][..]),
        ("PURGETAGS", "/", &[]),
        ("PURGE", "/", &[("xkey", " , ")]),
        ("BAN", "/tags", &[]),
    ] {
        let parsed = rules().parse(&request(method, target, headers)).expect("a purge");
        assert_eq!(parsed.purge, Err(Refusal::Incomplete), "{method} {target} {headers:?}");
    }
}

#[test]
fn a_pattern_that_is_not_understood_is_widened_or_refused() {
    let unknown = request("BAN", "/", &[("cache-tags", "cat_[0-9]+")]);
    let parsed = rules().parse(&unknown).expect("a purge");
    assert!(parsed.is_widened);
    let strict = Rules { on_unknown: OnUnknown::Refuse, ..rules() };
    assert_eq!(strict.parse(&unknown).expect("a purge").purge, Err(Refusal::Unknown));
    let many = (0..2000).map(|tag| tag.to_string()).collect::<Vec<_>>().join(" ");
    let long = request("PURGE", "/", &[("xkey", &many)]);
    let parsed = rules().parse(&long).expect("a purge");
    assert!(parsed.is_widened);
    assert_eq!(parsed.purge, Ok(Purge { scope: Scope::Everything, mode: Hard }));
    assert_eq!(strict.parse(&long).expect("a purge").purge, Err(Refusal::TooLong));
    let files = vec!["https://www.example.com/a"; 501];
    for (body, refusal) in [
        (serde_json::json!({ "files": files }), Refusal::TooLong),
        (serde_json::json!({ "hosts": ["www.example.com"] }), Refusal::OfHost),
    ] {
        let parse = |rules: &Rules| {
            let body = body.to_string();
            let parsed =
                Endpoint::Cloudflare.parse(rules, None, &long.headers, body.as_bytes()).expect("it is on");
            parsed.into_iter().map(|parsed| (parsed.purge, parsed.is_widened)).collect::<Vec<_>>()
        };
        assert_eq!(parse(&strict), [(Err(refusal), false)]);
        assert_eq!(parse(&rules()), [(Ok(Purge { scope: Scope::Everything, mode: Hard }), true)]);
    }
}

#[test]
fn a_dialect_that_is_off_and_the_mode_of_a_plain_purge_are_heeded() {
    let soft = Rules { dialects: vec![Dialect::Url], mode: Soft, ..rules() };
    let parsed = soft.parse(&request("PURGE", "/a", &[])).expect("a purge");
    assert_eq!(parsed.purge, Ok(Purge { scope: url("/a"), mode: Soft }));
    assert_eq!(soft.parse(&request("PURGE", "/", &[("xkey", "a")])), None);
    assert_eq!(soft.parse(&request("BAN", "/", &[])), None);
    assert_eq!(soft.parse_nginx_helper(&request("GET", "/purge/a", &[])), None);
    let all = rules();
    let helper = all.parse_nginx_helper(&request("GET", "/purge/a?b=c", &[])).expect("a purge");
    assert_eq!(helper.purge, Ok(Purge { scope: url("/a?b=c"), mode: Hard }));
    assert_eq!(all.parse_nginx_helper(&request("GET", "/purges/a", &[])), None);
    let helper = all.parse_nginx_helper(&request("GET", "/purge/a/b*", &[])).expect("a purge");
    assert_eq!(helper.purge, Ok(Purge { scope: below("/a"), mode: Hard }));
}

#[test]
fn each_request_to_an_api_means_what_the_api_means() {
    let of = |path: &str, query: Option<&str>, headers: &[(&str, &str)], body: &str| {
        let request = request("POST", "/", headers);
        let endpoint = Endpoint::at(path).expect("an endpoint");
        let parsed = endpoint.parse(&rules(), query, &request.headers, body.as_bytes()).expect("it is on");
        parsed.into_iter().map(|parsed| parsed.purge).collect::<Vec<_>>()
    };
    let ok = |scope, mode| vec![Ok(Purge { scope, mode })];
    let soft = [("fastly-soft-purge", "1")];
    let keys = r#"{"surrogate_keys":["a","b"]}"#;
    assert_eq!(of("/service/x/purge", None, &[], keys), ok(tags(&["a", "b"]), Hard));
    assert_eq!(of("/service/x/purge", None, &soft, keys), ok(tags(&["a", "b"]), Soft));
    assert_eq!(of("/service/x/purge", None, &[("surrogate-key", "a b")], ""), ok(tags(&["a", "b"]), Hard));
    assert_eq!(of("/service/x/purge/node%3A1+", None, &[], ""), ok(tags(&["node:1+"]), Hard));
    assert_eq!(of("/service/x/purge_all", None, &soft, ""), ok(Scope::Everything, Hard));
    assert_eq!(of("/purge/www.example.com/a", Some("b=c"), &[], ""), ok(url("/a?b=c"), Hard));
    assert_eq!(of("/service/x/purge", None, &[], ""), [Err(Refusal::Incomplete)]);
    let zone = "/client/v4/zones/z/purge_cache";
    let files =
        r#"{"files":["https://www.example.com/a",{"url":"http://www.example.com/b?c","headers":{}}]}"#;
    assert_eq!(of(zone, None, &[], files), [ok(url("/a"), Hard), ok(url("/b?c"), Hard)].concat());
    assert_eq!(of(zone, None, &[], r#"{"tags":["a","b"]}"#), ok(tags(&["a", "b"]), Hard));
    assert_eq!(of(zone, None, &[], r#"{"prefixes":["www.example.com/a/b"]}"#), ok(below("/a/b"), Hard));
    assert_eq!(of(zone, None, &[], r#"{"hosts":["www.example.com"]}"#), ok(Scope::Everything, Hard));
    assert_eq!(of(zone, None, &[], r#"{"purge_everything":true}"#), ok(Scope::Everything, Hard));
    assert_eq!(of(zone, None, &[], "{}"), [Err(Refusal::Incomplete)]);
    assert_eq!(of(zone, None, &[], r#"{"files":["/a"]}"#), [Err(Refusal::MalformedUrl)]);
    assert_eq!(of("/purge//a", None, &[], ""), [Err(Refusal::MalformedUrl)]);
    assert_eq!(
        of("/v1/edge-cache/invalidate-by-tags", None, &[], r#"{"tags":"a,b"}"#),
        ok(tags(&["a", "b"]), Soft)
    );
    let delete = "/v1/edge-cache/dangerously-delete-by-tags";
    assert_eq!(of(delete, None, &[], r#"{"tags":["a"],"target":"production"}"#), ok(tags(&["a"]), Hard));
    for other in ["/", "/service", "/service/x", "/api/v1/invalidate", "/client/v4/zones/z", "/v1/edge-cache"]
    {
        assert_eq!(Endpoint::at(other), None, "{other}");
    }
}
