//! Whole configuration files.

mod property;
mod rule;

use super::gc::{Grace, Interval};
use super::section::{RULE, TOP};
use super::suggestion::RENAMED;
use super::*;
use facetheory::KeyScheme;

/// Returns the errors of an invalid configuration, one per line.
fn errors(text: &str) -> String {
    Config::parse(text).expect_err("an invalid configuration").to_string()
}

fn valid(text: &str) -> Config {
    Config::parse(text).expect("a valid configuration")
}

#[test]
fn all_keys_are_read() {
    let config = valid(
        r#"
        origin = "https://app.internal:8443"
        listen = "0.0.0.0:80"
        hand_over = "run/hand-over.sock"
        hosts = ["Example.com", "example.org:8080"]
        tenant_headers = ["x-customer"]
        trusted_proxies = ["10.0.0.0/8", "127.0.0.1"]
        log = "json"
        log_sample = 0.25
        [admin]
        listen = "127.0.0.1:9000"
        token_file = "secrets/token"
        [store]
        table = "dynamodb:pages"
        bodies = "s3://bucket/isr"
        memory = "1GiB"
        deployment = "2024-05-01"
        max_bytes = "200MB"
        max_pages = 5000
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
        lame_duck = "10s"
        [limits]
        headers = 50
        body_bytes = 0
        page_bytes = 1000
        "#,
    );
    assert_eq!(config.origin.map(|origin| origin.to_string()).as_deref(), Some("https://app.internal:8443"));
    assert_eq!(config.listen.map(|address| address.port()), Some(80));
    assert_eq!(config.hand_over.as_deref(), Some(Path::new("run/hand-over.sock")));
    assert_eq!(config.hosts, ["example.com", "example.org:8080"]);
    assert!(config.trusted_proxies[0].contains([10, 1, 2, 3].into()));
    assert_eq!(config.log.format, Some(LogFormat::Json));
    assert_eq!(config.log.sample, LogSample(0.25));
    assert_eq!(config.admin.token_file.as_deref(), Some(Path::new("secrets/token")));
    assert_eq!(config.store.table.as_deref(), Some("dynamodb:pages"));
    assert_eq!((config.store.memory, config.store.metadata_max_age), (1 << 30, Duration::from_millis(250)));
    assert_eq!((config.store.max_bytes, config.store.max_pages), (Some(200_000_000), Some(5000)));
    assert_eq!(config.tls.map(|tls| tls.key), Some(PathBuf::from("site.key")));
    assert_eq!(
        config.timeouts,
        Timeouts {
            connect: Duration::from_secs(1),
            total: None,
            tunnel_idle: Some(Duration::from_secs(300)),
            keep_alive: Duration::ZERO,
            table: Duration::from_secs(20),
            bodies: Duration::from_secs(60),
            lame_duck: Duration::from_secs(10),
            ..Timeouts::default()
        }
    );
    assert_eq!(config.limits, Limits { headers: 50, body_bytes: 0, page_bytes: 1000, ..Limits::default() });
}

#[test]
fn keys_may_be_those_of_a_typescript_store() {
    let config = valid(
        r#"
        site = "www.example.com"
        [store]
        keys = "raw"
        key_prefix = "PAGE#"
        key_form = "facetheory-ts"
        pointers = "relative"
        [routes]
        "/docs/**" = false
        "/docs/{page*}" = { isr = "60s" }
        "/news/{slug}" = { isr = "60s" }
        "#,
    );
    assert_eq!(config.store.key_scheme().expect("a prefix"), KeyScheme::raw("PAGE#").expect("a prefix"));
    assert_eq!(facetheory::Pointers::from(config.store.pointers), facetheory::Pointers::Relative);
    assert_eq!(facetheory::Pointers::from(valid("").store.pointers), facetheory::Pointers::Absolute);
    let routes = config.routes().expect("routes");
    let route =
        |path: &str| routes.find(path).map(|(route, _)| (route.pattern().to_owned(), route.is_bypass()));
    assert_eq!(route("/docs"), Some(("/docs/{page*}".to_owned(), false)));
    assert_eq!(route("/docs/a/b"), Some(("/docs/{page*}".to_owned(), false)));
    assert_eq!(route("/docs/"), Some(("/docs/".to_owned(), true)));
    assert_eq!(valid("").store.key_scheme().expect("a scheme"), KeyScheme::Hashed);
    let default = valid("[store]\nkeys = \"raw\"").store.key_scheme();
    assert_eq!(default.expect("a prefix"), KeyScheme::raw("CACHE#").expect("a prefix"));
}

#[test]
fn invalid_key_settings_are_errors() {
    for (text, expected) in [
        (
            "[store]\nkeys = \"plain\"",
            "line 2: `keys`: \"plain\" is not allowed; write one of \"hashed\", \"raw\"",
        ),
        (
            "[store]\npointers = \"s3\"",
            "line 2: `pointers`: \"s3\" is not allowed; write one of \"absolute\", \"relative\"",
        ),
        (
            "log_sample = 2",
            "line 1: `log_sample`: 2 is not allowed; write a number from 0 to 1, such as 0.01",
        ),
        (
            "log_sample = nan",
            "line 1: `log_sample`: nan is not allowed; write a number from 0 to 1, such as 0.01",
        ),
        (
            "[store]\nkey_form = \"ts\"",
            "line 2: `key_form`: \"ts\" is not allowed; write one of \"default\", \"facetheory-ts\"",
        ),
        (
            "[store]\nkey_prefix = \"PAGE#\"",
            "line 2: `key_prefix` is used only with keys = \"raw\"; set that, or remove the prefix",
        ),
        (
            "[store]\nkeys = \"raw\"\nkey_prefix = \"TAG#\"",
            "line 3: `key_prefix`: with the raw prefix \"TAG#\" a cache key could name rows that begin with TAG#; use CACHE#",
        ),
        (
            "[store]\nkey_form = \"facetheory-ts\"",
            "line 1: key_form = \"facetheory-ts\": the keys of TypeScript services have no host, so pages of all hosts would \
             be the same; serve one host: set `site`",
        ),
        (
            "site = \"a.example\"\n[store]\nkey_form = \"facetheory-ts\"\n[routes]\n\"/docs/**\" = { isr = \"60s\" }",
            "line 1: key_form = \"facetheory-ts\": invalid routes:\n- `/docs/{*rest}`: the keys of TypeScript services contain \
             the pattern; write the rest of the path as the service does, `{name+}` or `{name*}`",
        ),
    ] {
        assert_eq!(errors(text), format!("- {expected}"), "{text}");
    }
}

#[test]
fn an_empty_file_means_defaults() {
    assert_eq!(Config::parse(""), Ok(Config::default()));
    assert_eq!(Config::parse("[limits]\n[timeouts]\n[store]\n[routes]\n[admin]"), Ok(Config::default()));
}

#[test]
fn all_errors_are_reported_with_their_lines() {
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
    let expected = r#"- line 1: unknown key `orgin`; did you mean `origin`? keys of the file: origin, listen, hand_over, hosts, site, tenant_headers, trusted_proxies, client_cache_control, cache_control_clients, log, log_sample, default, strip_tags, tag_headers, admin, store, tls, timeouts, limits, lambda, purge, routes, gc
- line 2: `listen`: `8080` is not an address to listen on; write an IP address and a port, such as 127.0.0.1:8080
- line 3: `log`: "loud" is not allowed; write one of "human", "json", "off"
- line 5: unknown key `headrs`; did you mean `headers`? keys of [limits]: header_bytes, headers, uri_bytes, body_bytes, page_bytes, origin_bytes, client_bytes_per_second, connections, connections_per_address, origin_connections, origin_queue, upload_buffers, new_pages_per_second, variants_per_page, forced_regenerations_per_page, forced_regenerations_per_address
- line 6: `page_bytes`: `1.5MB` is not a size; write a whole number of bytes, or one with a unit: `16KiB`, `8MB`, `1GiB`
- line 7: `uri_bytes`: "1MB" is not allowed; write a size from 16 to 65534
- line 9: `connect`: 5 has no unit; did you mean "5s"? Units are ms, s, m, h and d
- line 11: `blocking` and `stale_while_revalidate` contradict each other; remove one of them
- line 11: unknown key `revalidate`; did you mean `isr`? keys of a rule: isr, cache, ignore_origin_cache_control, stale_while_revalidate, blocking, stale_if_error, negative_ttl, tags, query, headers, cookies, forward_headers, versions, retention, lease, render_timeout, wait_timeout, early_refresh, tenant
- line 12: `blog/**`: a pattern must begin with `/`
- line 12: `isr`: 60 has no unit; did you mean "60s"? Units are ms, s, m, h and d
- line 13: `/x/**/y`: nothing may follow `**`; for one segment, write `*`
- line 13: `/x/**/y`: true is not a rule; write a table such as { isr = "60s" }, or `false` to pass these paths through
- line 14: `/y`: the header cookie cannot be listed: list the cookies that distinguish pages
- line 15: `/z/**`: its tenant parameter `q` is not in the pattern
- line 15: `isr`: "500ms" is not a whole number of seconds"#;
    assert_eq!(errors(text), expected);
}

#[test]
fn an_old_key_is_an_error_that_names_the_new_key() {
    for (table, old, new) in RENAMED {
        let (text, line) = match table {
            TOP => (format!("[{old}]"), 1),
            RULE => (format!("[routes]\n\"/a\" = {{ isr = \"1s\", {old} = 1 }}"), 2),
            section => (format!("{section}\n{old} = 1"), 2),
        };
        assert_eq!(errors(&text), format!("- line {line}: `{old}` was renamed: write `{new}` instead"));
        let parsed = Config::parse(&text.replace(old, new));
        assert!(
            !parsed.is_err_and(|errors| errors.to_string().contains("unknown key")),
            "{new} is a key of {table}"
        );
    }
}

#[test]
fn toml_syntax_errors_are_reported_with_their_lines() {
    let printed = errors("listen = \norigin = \"x\"\n\norigin = \"y\"\n");
    assert!(printed.contains("- line 1: ") && printed.contains("- line 4: "), "{printed}");
}

#[test]
fn a_token_in_the_file_is_rejected_with_the_reason() {
    let printed = errors("[admin]\ntoken = \"secret\"");
    assert!(
        printed.starts_with("- line 2: the token must not be in this file") && !printed.contains("secret"),
        "{printed}"
    );
}

#[test]
fn keys_that_exclude_each_other_are_rejected() {
    for (text, expected) in [
        ("site = \"a.b\"\nhosts = [\"a.b\"]", "- line 1: `site` and `hosts` exclude each other"),
        ("[store]\ndata = \"d\"\ntable = \"memory:\"", "- line 3: `data` and `table` exclude each other"),
        ("[store]\ndata = \"d\"\nbodies = \"memory:\"", "- line 3: `data` and `bodies` exclude each other"),
        ("[tls]\nkey = \"k\"", "- line 1: [tls] needs both a `certificate` and a `key`"),
        (
            "origin = \"http://[::1]:80\"\nlisten = \"[::1]:80\"",
            "- line 1: `origin` is the address of `listen`",
        ),
        (
            "site = \"a.b\"\n[routes]\n\"/\" = { isr = \"1s\", tenant = { subdomain = \"a.b\" } }",
            "- line 1: `/` identifies tenants by host",
        ),
    ] {
        let printed = errors(text);
        assert!(printed.starts_with(expected), "{text}: {printed}");
    }
}

#[test]
fn a_gc_grace_that_is_shorter_than_a_lease_is_rejected() {
    let printed = errors("[gc]\ngrace = \"608s\"\ninterval = \"0s\"\n");
    let expected = "- line 2: `grace`: \"608s\" is too short; the minimum is 609s: the longest lease, `metadata_max_age` and ten \
                    minutes for requests in progress\n\
                    - line 3: `interval`: \"0s\" is too short; the minimum is 1s; write \"auto\" for the default, or \
                    `false` to disable gc";
    assert_eq!(printed, expected);
    let with =
        |rest: &str| Config::parse(&format!("[routes]\n\"/a\" = {{ isr = \"1s\", lease = \"2d\" }}\n{rest}"));
    assert!(with("[gc]\ngrace = \"2d\"").is_err(), "a rule may have a longer lease");
    let seconds = Duration::from_secs;
    let grace = |text: &str| {
        let config = Config::parse(text).expect("a valid configuration");
        [true, false].map(|is_embedded| config.gc_grace(is_embedded).as_secs())
    };
    assert_eq!(grace(""), [900, 86_400], "a quarter of an hour in the embedded store");
    assert_eq!(grace("[gc]\ngrace = \"auto\""), [900, 86_400]);
    assert_eq!(grace("[gc]\ngrace = \"1h\""), [3600, 3600]);
    let long = grace("[routes]\n\"/a\" = { isr = \"1s\", lease = \"2d\" }");
    assert_eq!(long, [2 * 86_400 + 601; 2], "never less than is safe");
    let off = valid("[gc]\ninterval = false\ngrace = \"609s\"\nreplaced = false").gc;
    let expected = Gc { interval: Interval::Never, grace: Grace::For(seconds(609)), replaced: None };
    assert_eq!(off, expected);
}

#[test]
fn replaced_bodies_stay_for_ten_minutes_and_as_long_as_readers_may_need_them() {
    let replaced = |text: &str| valid(text).gc.replaced.map(|time| time.as_secs());
    assert_eq!(replaced(""), Some(600));
    assert_eq!(replaced("[gc]\nreplaced = \"21s\""), Some(21));
    assert_eq!(replaced("[gc]\nreplaced = false"), None);
    assert_eq!(replaced("[timeouts]\nbodies = \"15m\""), Some(900 + 11), "never less than is safe");
    let expected = "- line 2: `replaced`: \"20s\" is too short; the minimum is 21s: the longest lease, `metadata_max_age` and \
                    the timeouts of table and bodies; write `false` to leave replaced bodies to gc";
    assert_eq!(errors("[gc]\nreplaced = \"20s\""), expected);
}

#[test]
fn gc_runs_by_default_only_in_the_embedded_store() {
    let every = |text: &str| {
        let interval = valid(text).gc.interval;
        (
            interval.resolve(true).map(|time| time.as_secs()),
            interval.resolve(false).map(|time| time.as_secs()),
        )
    };
    assert_eq!(every(""), (Some(3600), None));
    assert_eq!(every("[gc]\ninterval = \"auto\""), (Some(3600), None));
    assert_eq!(every("[gc]\ninterval = \"12h\""), (Some(43_200), Some(43_200)));
    assert_eq!(every("[gc]\ninterval = false"), (None, None));
}

#[test]
fn invalid_values_are_rejected() {
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
        "[store]\npolicy_version = \"\"",
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
        "[gc]\nreplaced = true",
        "[gc]\nreplaced = \"1s\"",
        "[limits]\nconnections = 0",
        "[limits]\nconnections = 1.5",
        "[limits]\nheaders = 99999999999999999999",
    ] {
        let printed = errors(text);
        let line = text.lines().count();
        assert!(
            printed.starts_with(&format!("- line {line}: `")) && printed.lines().count() == 1,
            "{text}: {printed}"
        );
    }
}

#[test]
fn a_queue_is_a_standard_queue() {
    let config = |url: &str| format!("[lambda]\ninvoke_mode = \"buffered\"\nqueue_url = \"{url}\"\n");
    let lambda = valid(&config("https://sqs.eu-central-1.amazonaws.com/123456789012/pages")).lambda;
    let url = lambda.queue_url.expect("a URL");
    assert_eq!((lambda.invoke_mode, url.is_https()), (InvokeMode::Buffered, true));
    assert_eq!(url.endpoint(), "https://sqs.eu-central-1.amazonaws.com/");
    assert_eq!(url.to_string(), "https://sqs.eu-central-1.amazonaws.com/123456789012/pages");
    for invalid in
        ["pages", "https://sqs.eu-central-1.amazonaws.com/", "arn:aws:sqs:eu-central-1:1:pages", ""]
    {
        assert!(errors(&config(invalid)).contains("write it like https://sqs."), "{invalid}");
    }
    assert!(errors(&config("https://sqs.a.amazonaws.com/1/pages.fifo")).contains("standard queue"));
}

#[test]
fn a_fetch_that_follows_the_origin_may_take_longer_than_the_total_timeout() {
    let fetch = |text: &str| valid(text).timeouts.fetch();
    assert!(fetch("") > Duration::from_secs(60 * 60));
    assert!(fetch("[timeouts]\ntotal = \"2d\"") > Duration::from_secs(2 * 86_400));
    assert_eq!(fetch("[timeouts]\ntotal = false"), Duration::MAX);
}

#[test]
fn the_number_of_printed_errors_is_limited() {
    let many: String = (0..60).map(|n| format!("server_name_{n} = {n}\n")).collect();
    let printed = errors(&many);
    assert_eq!(printed.lines().count(), 51);
    assert!(printed.ends_with("- and 10 more"), "{printed}");
}

/// The reference page of the configuration.
const DOCS: &str = include_str!("../../../../docs/reference/configuration.md");

/// Returns the example in the reference page.
fn example() -> &'static str {
    let (_, rest) = DOCS.split_once("```toml\n").expect("an example");
    rest.split_once("```").expect("its end").0
}

#[test]
fn the_example_in_the_docs_is_valid() {
    let config = valid(example());
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
    let rule = valid("[routes]\n\"/a\" = { isr = \"1s\" }");
    let rule = rule.rules.of_route("/a").and_then(|found| found.rule).expect("a rule");
    let settings = serde_json::to_value(rule).expect("a value");
    let keys = [
        "origin",
        "listen",
        "hosts",
        "site",
        "tenant_headers",
        "trusted_proxies",
        "client_cache_control",
        "cache_control_clients",
        "log",
        "log_sample",
        "token_file",
    ];
    let keys = keys.into_iter().chain([
        "data",
        "table",
        "bodies",
        "memory",
        "max_bytes",
        "max_pages",
        "deployment",
        "policy_version",
        "metadata_max_age",
        "feed",
    ]);
    let keys =
        keys.chain(["certificate", "key", "blocking", "cache", "default", "strip_tags", "tag_headers"]);
    let keys = keys.chain(["invoke_mode", "queue_url"]);
    let keys = keys.chain(["from", "token_header", "dialects", "mode", "on_unknown"]);
    for key in settings.as_object().expect("a table").keys().map(String::as_str).chain(keys) {
        assert!(DOCS.contains(&format!("\n| `{key}` |")), "docs/reference/configuration.md lacks `{key}`");
    }
}
