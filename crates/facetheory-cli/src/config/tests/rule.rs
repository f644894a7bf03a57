//! How rules refine each other, and the routes they become.

use super::*;
use facetheory::{History, Mode};

fn config(rules: &str) -> Config {
    valid(&format!("[routes]\n{rules}"))
}

/// Describes how a path is cached: its route, the lines of its rules, and some settings.
fn at(config: &Config, path: &str) -> String {
    let routes = config.routes().expect("valid routes");
    let (route, _) = routes.find(path).expect("paths without a rule follow the origin");
    let Some(found) = config.rules.of_route(route.pattern()) else { return "no rule".to_owned() };
    assert_eq!(route.is_bypass(), found.rule.is_none());
    let lines: Vec<usize> = found.chain.iter().map(|rule| rule.line - 1).collect();
    match found.rule {
        None => format!("{} {lines:?} passed through", route.pattern()),
        Some(rule) => {
            assert_eq!(route.follows_origin(), rule.policy().is_none());
            assert!(rule.policy().is_none_or(|policy| route.policy() == policy));
            let settings = serde_json::to_value(rule).expect("a value");
            let freshness = if settings["cache"] == "origin" {
                "by origin".to_owned()
            } else {
                format!("isr={}", settings["isr"])
            };
            format!("{} {lines:?} {freshness} tags={}", route.pattern(), settings["tags"])
        }
    }
}

#[test]
fn more_specific_rules_refine_those_that_cover_them() {
    let config = config(
        r#""/blog/today" = { tags = ["today"] }
        "/**" = { isr = "10m", tags = ["site"] }
        "/blog/**" = { isr = "1m" }
        "/blog/*" = { tags = ["post"] }"#,
    );
    for (path, expected) in [
        ("/", r#"/ [2] isr="10m" tags=["site"]"#),
        ("/about", r#"/{*rest} [2] isr="10m" tags=["site"]"#),
        ("/blog", r#"/blog [2, 3] isr="1m" tags=["site"]"#),
        ("/blog/", r#"/blog/ [2, 3] isr="1m" tags=["site"]"#),
        ("/blog/a/b", r#"/blog/{*rest} [2, 3] isr="1m" tags=["site"]"#),
        ("/blog/a", r#"/blog/{part} [2, 3, 4] isr="1m" tags=["post"]"#),
        ("/blog/today", r#"/blog/today [2, 3, 4, 1] isr="1m" tags=["today"]"#),
    ] {
        assert_eq!(at(&config, path), expected, "{path}");
    }
}

#[test]
fn false_ends_caching_and_a_table_below_it_starts_over() {
    let config = config(
        r#""/**" = { isr = "10m", tags = ["site"] }
        "/shop/**" = false
        "/shop/help/**" = { isr = "1h" }
        "/shop/help/me" = false"#,
    );
    for (path, expected) in [
        ("/shop", "/shop [1, 2] passed through"),
        ("/shop/cart/1", "/shop/{*rest} [1, 2] passed through"),
        ("/shop/help/faq", r#"/shop/help/{*rest} [1, 2, 3] isr="1h" tags=[]"#),
        ("/shop/help/me", "/shop/help/me [1, 2, 3, 4] passed through"),
        ("/shopping", r#"/{*rest} [1] isr="10m" tags=["site"]"#),
    ] {
        assert_eq!(at(&config, path), expected, "{path}");
    }
    assert_eq!(at(&self::config("\"/a\" = false"), "/b"), "no rule");
}

#[test]
fn of_two_rules_with_the_same_paths_the_later_refines_the_earlier() {
    let config = config(
        r#""/blog/*" = { isr = "1m", tags = ["a"] }
        "/blog/{slug}" = { tags = ["b"] }"#,
    );
    assert_eq!(at(&config, "/blog/x"), r#"/blog/{slug} [1, 2] isr="1m" tags=["b"]"#);
    let printed = errors("[routes]\n\"/blog/*\" = {}\n\"/blog/{slug}\" = { isr = \"1m\" }");
    assert!(
        printed.starts_with("- line 2: `/blog/*`: how long are its pages fresh?")
            && printed.lines().count() == 1,
        "{printed}"
    );
}

#[test]
fn a_rest_pattern_refines_the_double_star_that_covers_it() {
    let config = config(
        r#""/blog/{*post}" = { tags = ["post"] }
        "/blog/**" = { isr = "1m", tags = ["blog"] }"#,
    );
    assert_eq!(at(&config, "/blog/x/y"), r#"/blog/{*post} [2, 1] isr="1m" tags=["post"]"#);
    assert_eq!(at(&config, "/blog/"), r#"/blog/ [2] isr="1m" tags=["blog"]"#);
}

#[test]
fn rules_that_overlap_without_covering_are_not_merged() {
    let config = config(
        r#""/*/hello" = { isr = "1m", tags = ["hello"] }
        "/blog/*" = { isr = "2m" }"#,
    );
    assert_eq!(at(&config, "/blog/hello"), r#"/blog/{part} [2] isr="2m" tags=[]"#);
    assert_eq!(config.rules.matching("/blog/hello").len(), 2);
}

#[test]
fn a_rule_needs_an_interval_from_somewhere() {
    let missing = "how long are its pages fresh?";
    for rules in ["\"/a\" = {}", "\"/a\" = { isr = true }", "\"/**\" = false\n\"/a\" = { tags = [\"x\"] }"] {
        let printed = errors(&format!("[routes]\n{rules}"));
        assert!(printed.contains(missing) && printed.lines().count() == 1, "{rules}: {printed}");
    }
    assert_eq!(
        at(&config("\"/**\" = { isr = \"1m\" }\n\"/a\" = { isr = true }"), "/a"),
        r#"/a [1, 2] isr="1m" tags=[]"#
    );
}

#[test]
fn a_rule_becomes_a_policy() {
    let config = config(
        r#""/a" = { isr = "1m", stale_while_revalidate = "1h", stale_if_error = false, negative_ttl = "5s", versions = 3, retention = "2d", lease = "20s", render_timeout = "250ms", wait_timeout = "2s", early_refresh = true }
        "/b" = { isr = "1m", blocking = true }
        "/c" = { isr = "0s", stale_while_revalidate = false, early_refresh = 0.5, versions = 0 }"#,
    );
    let policy = |route| {
        *config.rules.of_route(route).and_then(|found| found.rule?.policy()).expect("a rule with an interval")
    };
    let a = policy("/a");
    let kept = (a.lease, a.versions, a.history);
    assert_eq!(kept, (Some(Duration::from_secs(20)), Some(3), History::Versions));
    assert_eq!(a.stale_while_revalidate, Some(Duration::from_secs(3600)));
    assert_eq!(a.stale_if_error, Some(Duration::ZERO));
    assert_eq!(
        (a.retention, policy("/b").retention),
        (Some(Duration::from_secs(2 * 86_400)), Some(Duration::from_secs(30 * 86_400)))
    );
    assert_eq!((a.negative_ttl, a.wait), (Duration::from_secs(5), Duration::from_secs(2)));
    assert_eq!((a.render_timeout, a.early_refresh), (Duration::from_millis(250), Some(1.0)));
    assert_eq!((a.mode, policy("/b").mode, policy("/c").mode), (Mode::Swr, Mode::Blocking, Mode::Blocking));
    assert_eq!(policy("/c").early_refresh, Some(0.5));
    assert_eq!(policy("/c").history, History::Latest);
}

#[test]
fn an_interval_and_cache_origin_replace_each_other_in_more_specific_rules() {
    let config = config(
        r#""/**" = { isr = "10m", tags = ["site"], headers = ["accept-language"] }
        "/own/**" = { cache = "origin" }
        "/own/tagged/**" = { tags = ["own"] }
        "/own/not/**" = { isr = "1m" }
        "/own/same/**" = { isr = true }"#,
    );
    for (path, expected) in [
        ("/a", r#"/{*rest} [1] isr="10m" tags=["site"]"#),
        ("/own/a", r#"/own/{*rest} [1, 2] by origin tags=["site"]"#),
        ("/own/tagged/a", r#"/own/tagged/{*rest} [1, 2, 3] by origin tags=["own"]"#),
        ("/own/not/a", r#"/own/not/{*rest} [1, 2, 4] isr="1m" tags=["site"]"#),
        ("/own/same/a", r#"/own/same/{*rest} [1, 2, 5] by origin tags=["site"]"#),
    ] {
        assert_eq!(at(&config, path), expected, "{path}");
    }
}

#[test]
fn cache_origin_excludes_keys_that_the_headers_of_the_origin_decide() {
    for key in [
        "isr = \"1m\"",
        "stale_while_revalidate = true",
        "headers = [\"rsc\"]",
        "ignore_origin_cache_control = true",
        "lease = \"5s\"",
    ] {
        let printed = errors(&format!("[routes]\n\"/a\" = {{ cache = \"origin\", {key} }}"));
        let name = key.split(' ').next().expect("a name");
        assert!(
            printed.starts_with(&format!("- line 2: `{name}` and `cache = \"origin\"` exclude each other")),
            "{printed}"
        );
        assert_eq!(printed.lines().count(), 1, "{printed}");
    }
    assert!(
        Config::parse("[routes]\n\"/a\" = { cache = \"origin\", tags = [\"a\"], query = false }").is_ok()
    );
}

#[test]
fn paths_without_a_rule_follow_the_origin_by_default() {
    let is_followed = |text: &str| {
        let routes = valid(text).routes().expect("routes");
        routes.find("/a").is_some_and(|(route, _)| route.follows_origin())
    };
    assert!(is_followed("") && is_followed("default = \"origin\""));
    assert!(!is_followed("default = \"pass\""));
}

#[test]
fn a_more_specific_rule_can_reset_inherited_settings() {
    let config = config(
        r#""/**" = { isr = "1m", blocking = true, query = ["page"], tenant = { subdomain = "example.com" } }
        "/open/**" = { stale_while_revalidate = "1h", query = true, tenant = false }"#,
    );
    let rule = config.rules.of_route("/open").and_then(|found| found.rule).expect("a rule");
    let settings = serde_json::to_value(rule).expect("a value");
    assert_eq!(
        (&settings["stale_while_revalidate"], &settings["query"], &settings["tenant"]),
        (&"1h".into(), &true.into(), &false.into())
    );
    assert_eq!(rule.policy().map(|policy| policy.mode), Some(Mode::Swr));
}

#[test]
fn errors_in_rules_are_reported() {
    for (rule, expected) in [
        ("\"60s\"", "`/a`: a rule is a table or `false`; write { isr = \"60s\" }"),
        (
            "{ cache = false }",
            "`cache`: to pass paths through without caching, write `false` instead of the table",
        ),
        ("{ cache = \"always\" }", "`cache`: \"always\" is not allowed; write \"origin\""),
        (
            "{ isr = \"1m\", ignore_origin_cache_control = 1 }",
            "`ignore_origin_cache_control`: 1 is neither `true` nor `false`",
        ),
        (
            "{ isr = false }",
            "`isr`: to pass paths through without caching, write `false` instead of the table",
        ),
        ("{ isr = \"1m\", lease = \"0s\" }", "`lease`: \"0s\" is too short; the minimum is 1s"),
        ("{ isr = \"1m\", query = \"page\" }", "`query`: \"page\" is not allowed"),
        ("{ isr = \"1m\", early_refresh = -1 }", "`early_refresh`: -1 is not allowed"),
        ("{ isr = \"1m\", early_refresh = nan }", "`early_refresh`: nan is not allowed"),
        ("{ isr = \"1m\", retention = \"91d\" }", "`retention`: \"91d\" is too long; the maximum is 90d"),
        (
            "{ isr = \"1m\", versions = -1 }",
            "`versions`: -1 is not allowed; write a whole number from 0 to 10000",
        ),
        ("{ isr = \"1m\", tenant = \"x\" }", "`tenant`: \"x\" is not allowed; write { subdomain"),
        ("{ isr = \"1m\", tenant = {} }", "`tenant`: name exactly one source of the tenant"),
        ("{ isr = \"1m\", tenant = { parm = \"x\" } }", "unknown key `parm`; did you mean `param`?"),
        ("{ isr = \"1m\", tags = \"x\" }", "`tags`: \"x\" is not a list; write it in brackets"),
        ("{ isr = \"1m\", tags = [\"path=/x\"] }", "`/a`: the tag `path=/x` "),
        ("{ isr = \"1m\", maxAge = 5 }", "unknown key `maxAge`; did you mean `isr`?"),
    ] {
        let printed = errors(&format!("[routes]\n\"/a\" = {rule}"));
        assert!(printed.contains(&format!("- line 2: {expected}")), "{rule}: {printed}");
    }
    let many: String = (0..2001).map(|n| format!("\"/{n}\" = false\n")).collect();
    assert!(errors(&format!("[routes]\n{many}")).contains("there are 2001 rules; the maximum is 2000"));
}

#[test]
fn a_tenant_header_of_one_rule_is_a_tenant_header_everywhere() {
    let config = config(
        r#""/a" = { isr = "1m", tenant = { header = "x-customer" } }
        "/b" = { isr = "1m" }"#,
    );
    let known = format!("{:?}", config.routes().expect("routes"));
    assert!(
        known.contains("tenant_headers: [\"x-tenant-id\", \"x-facetheory-tenant\", \"x-customer\"]"),
        "{known}"
    );
}
