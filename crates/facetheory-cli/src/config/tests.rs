//! The file as a whole.

mod property;
mod rule;

use super::gc::Interval;
use super::section::{RENAMED, RULE, TOP};
use super::*;

/// What is wrong with a text, one line each.
fn faults(text: &str) -> String {
    Config::parse(text).expect_err("it is wrong").to_string()
}

#[test]
fn a_file_says_all_there_is_to_say() {
    let config = Config::parse(
        r#"
        origin = "https://app.internal:8443"
        listen = "0.0.0.0:80"
        hosts = ["Example.com", "example.org:8080"]
        tenant_headers = ["x-customer"]
        trusted_proxies = ["10.0.0.0/8", "127.0.0.1"]
        log = "json"
        [admin]
        listen = "127.0.0.1:9000"
        token_file = "secrets/token"
        [store]
        table = "dynamodb:pages"
        bodies = "s3://bucket/isr"
        memory = "1GiB"
        deployment = "2024-05-01"
        metadata_max_age = "250ms"
        [tls]
        certificate = "site.pem"
        key = "site.key"
        [timeouts]
        connect = "1s"
        total = false
        tunnel_idle = "5m"
        keep_alive = "0s"
        table = "20s"
        bodies = "1m"
        [limits]
        headers = 50
        body_bytes = 0
        page_bytes = 1000
        "#,
    )
    .expect("it is right");
    assert_eq!(config.origin.map(|origin| origin.to_string()).as_deref(), Some("https://app.internal:8443"));
    assert_eq!(config.listen.map(|address| address.port()), Some(80));
    assert_eq!(config.hosts, ["example.com", "example.org:8080"]);
    assert!(config.trusted_proxies[0].contains([10, 1, 2, 3].into()));
    assert_eq!(config.log, Some(Log::Json));
    assert_eq!(config.admin.token_file.as_deref(), Some(Path::new("secrets/token")));
    assert_eq!(config.store.table.as_deref(), Some("dynamodb:pages"));
    assert_eq!((config.store.memory, config.store.metadata_max_age), (1 << 30, Duration::from_millis(250)));
    assert_eq!(config.tls.map(|tls| tls.key), Some(PathBuf::from("site.key")));
    let usual = Timeouts::default();
    assert_eq!(
        config.timeouts,
        Timeouts {
            connect: Duration::from_secs(1),
            total: None,
            tunnel_idle: Some(Duration::from_secs(300)),
            keep_alive: Duration::ZERO,
            table: Duration::from_secs(20),
            bodies: Duration::from_secs(60),
            ..usual
        }
    );
    assert_eq!(config.limits, Limits { headers: 50, body_bytes: 0, page_bytes: 1000, ..Limits::default() });
}

#[test]
fn an_empty_file_leaves_everything_as_it_is_by_default() {
    assert_eq!(Config::parse(""), Ok(Config::default()));
    assert_eq!(Config::parse("[limits]\n[timeouts]\n[store]\n[routes]\n[admin]"), Ok(Config::default()));
}

#[test]
fn all_that_is_wrong_is_told_at_once_with_its_line() {
    let text = r#"orgin = "http://127.0.0.1:3000"
listen = "8080"
log = "loud"
[limits]
headrs = 4
page_bytes = "1.5MB"
uri_bytes = "1MB"
[timeouts]
connect = 5
[routes]
"/**" = { revalidate = 60, isr = "5s", stale_while_revalidate = true, blocking = true }
"blog/**" = { isr = 60 }
"/x/**/y" = true
"/y" = { headers = ["cookie"], isr = "5s" }
"/z/**" = { isr = "500ms", tenant = { param = "q" } }
"#;
    let expected = r#"- line 1: `orgin` is no key of the file; did you mean `origin`? known keys: origin, listen, hosts, site, tenant_headers, trusted_proxies, log, default, strip_tags, admin, store, tls, timeouts, limits, routes, gc
- line 2: `listen`: `8080` is no address to listen on; write an IP address and a port, such as 127.0.0.1:8080
- line 3: `log`: write "human", "json" or "off"
- line 5: `headrs` is no key of [limits]; did you mean `headers`? known keys: header_bytes, uri_bytes, body_bytes, page_bytes, origin_bytes, connections, connections_per_address, new_pages_per_second, variants_per_page, headers
- line 6: `page_bytes`: `1.5MB` is no size; write a whole number of bytes, or one with a unit: `16KiB`, `8MB`, `1GiB`
- line 7: `uri_bytes`: "1MB" is not allowed; write a size from 16 to 65534
- line 9: `connect`: 5 has no unit; did you mean "5s"? Units are ms, s, m, h and d
- line 11: `blocking` and `stale_while_revalidate` contradict each other; say one of them: visitors of a stale page either wait for the new one, or do not
- line 11: `revalidate` is no key of a rule; did you mean `isr`? known keys: isr, cache, ignore_origin_cache_control, stale_while_revalidate, blocking, stale_if_error, negative_ttl, tags, query, headers, cookies, versions, lease, render_timeout, wait_timeout, early_refresh, tenant
- line 12: `blog/**`: a pattern begins with `/`
- line 12: `isr`: 60 has no unit; did you mean "60s"? Units are ms, s, m, h and d
- line 13: `/x/**/y`: nothing may follow `**`; for one segment, write `*`
- line 13: `/x/**/y`: true is no rule; write a table such as { isr = "60s" }, or `false` to pass these paths by
- line 14: `/y`: the header cookie cannot tell pages apart: list the cookies that matter
- line 15: `/z/**`: its tenant is in the parameter `q`, which the pattern does not have
- line 15: `isr`: "500ms" is not a number of whole seconds, in which pages tell their times"#;
    assert_eq!(faults(text), expected);
}

#[test]
fn an_old_key_is_an_error_that_names_the_new_key() {
    for (table, old, new) in RENAMED {
        let (text, line) = match table {
            TOP => (format!("[{old}]"), 1),
            RULE => (format!("[routes]\n\"/a\" = {{ isr = \"1s\", {old} = 1 }}"), 2),
            section => (format!("{section}\n{old} = 1"), 2),
        };
        assert_eq!(faults(&text), format!("- line {line}: `{old}` was renamed: write `{new}` instead"));
        let parsed = Config::parse(&text.replace(old, new));
        assert!(
            !parsed.is_err_and(|faults| faults.to_string().contains(" key")),
            "{new} is a key of {table}"
        );
    }
}

#[test]
fn what_is_no_toml_is_told_with_its_lines() {
    let told = faults("listen = \norigin = \"x\"\n\norigin = \"y\"\n");
    assert!(told.contains("- line 1: ") && told.contains("- line 4: "), "{told}");
}

#[test]
fn a_token_in_the_file_is_refused_with_the_reason() {
    let told = faults("[admin]\ntoken = \"secret\"");
    assert!(
        told.starts_with("- line 2: a token does not belong in this file") && !told.contains("secret"),
        "{told}"
    );
}

#[test]
fn what_excludes_each_other_is_not_said_together() {
    for (text, expected) in [
        ("site = \"a.b\"\nhosts = [\"a.b\"]", "- line 1: `site` is one site whatever the host"),
        (
            "[store]\ndata = \"d\"\ntable = \"memory:\"",
            "- line 3: `data` is a place for everything, so `table`",
        ),
        (
            "[store]\ndata = \"d\"\nbodies = \"memory:\"",
            "- line 3: `data` is a place for everything, so `bodies`",
        ),
        ("[tls]\nkey = \"k\"", "- line 1: [tls] needs both a `certificate` and a `key`"),
        (
            "origin = \"http://[::1]:80\"\nlisten = \"[::1]:80\"",
            "- line 1: it is the address that `listen` says",
        ),
        (
            "site = \"a.b\"\n[routes]\n\"/\" = { isr = \"1s\", tenant = { subdomain = \"a.b\" } }",
            "- line 1: `/` tells tenants apart by the host",
        ),
    ] {
        let told = faults(text);
        assert!(told.starts_with(expected), "{text}: {told}");
    }
}

#[test]
fn a_grace_that_is_shorter_than_a_lease_and_what_readers_go_by_is_refused() {
    let told = faults("[gc]\ngrace = \"630s\"\ninterval = \"0s\"\n");
    let expected = "- line 2: `grace`: \"630s\" is too short; at least 631s is needed: the longest lease, `metadata_max_age` and ten \
                    minutes for requests in progress\n\
                    - line 3: `interval`: \"0s\" is too short; at least 1s is needed; write \"auto\" for the default, or \
                    `false` to disable gc";
    assert_eq!(told, expected);
    let with =
        |rest: &str| Config::parse(&format!("[routes]\n\"/a\" = {{ isr = \"1s\", lease = \"2d\" }}\n{rest}"));
    assert!(with("[gc]\ngrace = \"2d\"").is_err(), "a rule may give longer leases");
    let day = Duration::from_secs(86_400);
    let least = Duration::from_secs(601);
    assert_eq!(with("").expect("nothing is said").gc.grace, 2 * day + least);
    let off = Config::parse("[gc]\ninterval = false\ngrace = \"631s\"").expect("it is right").gc;
    assert_eq!(off, Gc { interval: Interval::Never, grace: Duration::from_secs(631) });
    assert_eq!(Config::default().gc, Gc { interval: Interval::Auto, grace: day });
}

#[test]
fn nothing_is_deleted_unasked_where_others_may_keep_something() {
    let every = |text: &str| {
        let interval = Config::parse(text).expect("it is right").gc.interval;
        (
            interval.resolve(true).map(|time| time.as_secs()),
            interval.resolve(false).map(|time| time.as_secs()),
        )
    };
    assert_eq!(every(""), (Some(86_400), None));
    assert_eq!(every("[gc]\ninterval = \"auto\""), (Some(86_400), None));
    assert_eq!(every("[gc]\ninterval = \"12h\""), (Some(43_200), Some(43_200)));
    assert_eq!(every("[gc]\ninterval = false"), (None, None));
}

#[test]
fn values_of_a_wrong_kind_are_told() {
    for text in [
        "origin = 1",
        "origin = \"ftp://a\"",
        "hosts = \"a.b\"",
        "hosts = []",
        "hosts = [1]",
        "hosts = [\"https://a.b\"]",
        "site = \"a b\"",
        "tenant_headers = [\"x y\"]",
        "default = \"cache\"",
        "default = false",
        "strip_tags = \"news\"",
        "trusted_proxies = [\"10.0.0.1/8\"]",
        "admin = 1",
        "routes = []",
        "tls = true",
        "[store]\ntable = \"nowhere:x\"",
        "[store]\nbodies = \"x\"",
        "[store]\nmemory = \"1KiB\"",
        "[store]\nmemory = -1",
        "[store]\ndeployment = \"\"",
        "[store]\ndata = \"\"",
        "[timeouts]\nconnect = \"0s\"",
        "[timeouts]\nshutdown = false",
        "[timeouts]\ntable = \"0ms\"",
        "[timeouts]\ntable = \"dynamodb:pages\"",
        "[timeouts]\nbodies = false",
        "[gc]\ninterval = \"0s\"",
        "[gc]\ninterval = true",
        "[gc]\ninterval = 60",
        "[gc]\ngrace = \"10m\"",
        "[gc]\ngrace = false",
        "[limits]\nconnections = 0",
        "[limits]\nconnections = 1.5",
        "[limits]\nheaders = 99999999999999999999",
    ] {
        let told = faults(text);
        let line = text.lines().count();
        assert!(
            told.starts_with(&format!("- line {line}: `")) && told.lines().count() == 1,
            "{text}: {told}"
        );
    }
}

#[test]
fn pages_that_follow_their_origin_may_take_as_long_as_its_time_outs_allow() {
    let fetch = |text: &str| Config::parse(text).expect("a configuration").timeouts.fetch();
    assert!(fetch("") > Duration::from_secs(60 * 60));
    assert!(fetch("[timeouts]\ntotal = \"2d\"") > Duration::from_secs(2 * 86_400));
    assert_eq!(fetch("[timeouts]\ntotal = false"), Duration::MAX);
}

#[test]
fn a_file_of_another_kind_is_told_in_few_lines() {
    let many: String = (0..60).map(|n| format!("server_name_{n} = {n}\n")).collect();
    let told = faults(&many);
    assert_eq!(told.lines().count(), 51);
    assert!(told.ends_with("- and 10 more"), "{told}");
}

/// The page about the configuration.
const DOCS: &str = include_str!("../../../../docs/reference/configuration.md");

/// The example in it.
fn example() -> &'static str {
    let (_, rest) = DOCS.split_once("```toml\n").expect("an example");
    rest.split_once("```").expect("its end").0
}

#[test]
fn the_example_of_the_docs_is_right() {
    let config = Config::parse(example()).expect("the example is right");
    assert!(config.rules.len() > 5);
}

#[test]
fn the_docs_name_every_key_and_its_default() {
    let config = serde_json::to_value(Config::default()).expect("a value");
    for table in ["timeouts", "limits", "gc"] {
        for (key, value) in config[table].as_object().expect("a table") {
            let value = value.as_str().map_or(value.to_string(), str::to_owned);
            let row = format!("| `{key}` | `{value}` |");
            assert!(DOCS.contains(&row), "docs/reference/configuration.md lacks the row {row}");
        }
    }
    let rule = Config::parse("[routes]\n\"/a\" = { isr = \"1s\" }").expect("it is right");
    let rule = rule.rules.of_route("/a").and_then(|found| found.rule).expect("a rule").settings();
    let settings = serde_json::to_value(rule).expect("a value");
    let keys =
        ["origin", "listen", "hosts", "site", "tenant_headers", "trusted_proxies", "log", "token_file"];
    let keys =
        keys.into_iter().chain(["data", "table", "bodies", "memory", "deployment", "metadata_max_age"]);
    let keys = keys.chain(["certificate", "key", "blocking", "cache", "default", "strip_tags"]);
    for key in settings.as_object().expect("a table").keys().map(String::as_str).chain(keys) {
        assert!(DOCS.contains(&format!("\n| `{key}` |")), "docs/reference/configuration.md lacks `{key}`");
    }
}
