//! Responses that one client can make the gateway show to another: with personal data, and pages that the origin rendered for
//! input that the cache key does not contain.

use crate::assertions::assert_not_cached;
use crate::support::origin::{Request, ScriptedResponse};
use crate::support::site::Site;

/// The headers that identify Alice.
const CREDENTIALS: [&str; 4] =
    ["Cookie: sid=alice", "Authorization: Bearer alice", "X-Api-Key: alice", "X-Auth-Token: alice"];

/// A page for the client that the request names.
fn account(request: &Request, lines: &[&str]) -> ScriptedResponse {
    let is_alice = request.headers.iter().any(|(_, value)| value.contains("alice"));
    ScriptedResponse::page(lines, if is_alice { "the account of alice" } else { "please log in" })
}

/// Whether a page is stored at this path.
fn is_stored(site: &Site, path: &str) -> bool {
    let entry = site.gateway.admin_get(&format!("/api/v1/entry?url=http://www.example.com{path}"));
    assert_eq!(entry.status, 200, "{}", entry.text());
    !entry.text().contains("\"state\":\"absent\"")
}

/// Lines that make a response stale at once.
const WITHOUT_LIFETIME: [&str; 5] = [
    "cache-control: public, max-age=0",
    "cache-control: public, no-cache",
    "cache-control: public, max-age=0, stale-while-revalidate=600",
    "expires: Thu, 01 Jan 1970 00:00:00 GMT",
    "x-lifetime: none",
];

#[test]
fn row_76_a_response_to_credentials_with_lifetime_zero_is_not_stored() {
    let site = Site::start("client_cache_control = \"obey\"\n");
    for (index, line) in WITHOUT_LIFETIME.into_iter().enumerate() {
        for (number, credentials) in CREDENTIALS.iter().enumerate() {
            let path = format!("/row-76-{index}-{number}");
            site.origin.script(&path, move |request| account(request, &["etag: \"a\"", line]));
            let alice = site.get_with(&path, &format!("{credentials}\r\n"));
            assert_eq!(alice.text(), "the account of alice");
            let case = format!("{line} for {credentials}");
            assert!(!is_stored(&site, &path), "{case}");
            let bob = site.get_with(&path, "Cache-Control: max-stale\r\n");
            assert_eq!(bob.text(), "please log in", "{case}");
            let own = format!("{path}-own");
            site.origin.script(&own, move |request| account(request, &["etag: \"a\"", line]));
            assert_eq!(site.get(&own).text(), "please log in");
            assert!(is_stored(&site, &own), "{case}: the page of a client without credentials is stored");
        }
    }
    let path = "/row-76-unchanged";
    site.origin.script(path, |request| match request.has("if-none-match") {
        true => ScriptedResponse::with("304 Not Modified", &["etag: \"a\"", "x-token: of alice"], ""),
        false => ScriptedResponse::page(&["etag: \"a\"", "cache-control: max-age=0"], "the page"),
    });
    assert_eq!(site.get(path).text(), "the page");
    assert_eq!(site.get_with(path, "Cookie: sid=alice\r\n").text(), "the page");
    let bob = site.get_with(path, "Cache-Control: max-stale\r\n");
    assert_eq!((bob.text().as_str(), bob.header("x-token")), ("the page", None));
}

#[test]
fn row_77_the_origin_gets_the_host_that_the_key_has() {
    let site = Site::start("[routes]\n\"/rule/**\" = { isr = \"60s\" }\n");
    for path in ["/row-77", "/rule/row-77"] {
        site.origin.script(path, |request| match request.header("host") {
            Some("www.example.com") => ScriptedResponse::page(&["cache-control: max-age=60"], "the page"),
            _ => ScriptedResponse::with("404 Not Found", &["cache-control: max-age=60"], "no such site"),
        });
        for target in [path.to_owned(), format!("http://WWW.Example.COM{path}")] {
            let attack = format!("GET {target} HTTP/1.1\r\nHost: WWW.Example.COM\r\n\r\n");
            assert_eq!(site.gateway.exchange(attack).status, 200, "{target}");
        }
        assert_eq!((site.get(path).status, site.get(path).state()), (200, "hit"));
        for request in site.origin.requests_for(path) {
            assert_eq!(request.header("x-forwarded-host"), Some("www.example.com"));
        }
    }
}

#[test]
fn row_77_the_origin_gets_the_query_that_the_key_has() {
    let site = Site::start("[routes]\n\"/rule/**\" = { isr = \"60s\" }\n");
    for path in ["/row-77", "/rule/row-77"] {
        let attack = format!("{path}?");
        site.origin.respond(
            &attack,
            ScriptedResponse::with("301 Moved", &["cache-control: max-age=60", "location: /evil"], ""),
        );
        site.origin.respond(path, ScriptedResponse::page(&["cache-control: max-age=60"], "the page"));
        assert_eq!(site.get(&attack).text(), "the page");
        assert_eq!(site.get(path).text(), "the page");
        assert!(site.origin.requests_for(&attack).is_empty(), "the key has no query");
    }
}

/// A page that is stale when it is sent. A response to HEAD makes it fresh, and says which query the origin got.
fn updated_by_head(request: &Request) -> ScriptedResponse {
    let query = request.target.split_once('?').map_or("none", |(_, query)| query);
    let note = format!("x-query: {query}");
    let lines = ["cache-control: max-age=60, must-revalidate", "etag: \"a\"", &note];
    if request.method == "HEAD" {
        ScriptedResponse::raw(format!("HTTP/1.1 200 OK\r\n{}\r\n\r\n", lines.join("\r\n")))
    } else {
        ScriptedResponse::page(&[&lines[..], &["age: 100"]].concat(), "the page")
    }
}

#[test]
fn row_78_a_head_with_an_unkeyed_query_changes_no_page() {
    let site = Site::start(
        "[routes]\n\"/none/**\" = { cache = \"origin\", query = false }\n\
         \"/listed/**\" = { cache = \"origin\", query = [\"page\"] }\n",
    );
    for path in ["/none/row-78", "/listed/row-78"] {
        site.origin.script(path, updated_by_head);
        assert_eq!(site.get(path).header("x-query"), Some("none"));
        let head = site.request("HEAD", &format!("{path}?x=evil"), "");
        assert_eq!(head.header("x-query"), Some("none"));
        assert_eq!((site.get(path).state(), site.get(path).header("x-query")), ("hit", Some("none")));
        assert!(!site.origin.received("evil"), "{path}");
    }
}

#[test]
fn row_78_the_cache_status_of_a_head_is_not_stored() {
    let site = Site::start("");
    site.origin.script("/row-78", updated_by_head);
    site.get("/row-78");
    let head = site.request("HEAD", "/row-78", "");
    assert_eq!(head.header("cache-status").map(|status| status.contains("detail=head")), Some(true));
    let page = site.get("/row-78");
    assert_eq!(page.state(), "hit", "it was updated");
    let lines = page.headers.iter().filter(|(name, _)| name == "cache-status");
    assert_eq!(lines.count(), 1, "{:?}", page.headers);
}

#[test]
fn row_79_errors_that_a_request_may_have_provoked_are_not_stored() {
    let site = Site::start("[routes]\n\"/rule/**\" = { isr = \"60s\" }\n");
    let statuses = [400, 408, 411, 412, 413, 414, 415, 416, 417, 421, 429, 431];
    for status in statuses {
        for path in [format!("/row-79-{status}"), format!("/rule/row-79-{status}")] {
            site.origin.script(&path, move |request| {
                match request.has("x-provoke") || request.has("range") {
                    true => {
                        let lines = ["cache-control: public, max-age=600, s-maxage=600"];
                        ScriptedResponse::with(&format!("{status} Refused"), &lines, "refused")
                    }
                    false => ScriptedResponse::page(&["cache-control: max-age=60"], "the page"),
                }
            });
            let provoked = site.get_with(&path, "X-Provoke: 1\r\nRange: bytes=900-\r\n");
            assert!([status, 200, 416].contains(&provoked.status), "{}", provoked.status);
            assert_eq!(
                (site.get(&path).status, site.get(&path).text().as_str()),
                (200, "the page"),
                "{path}"
            );
            // Also if every request gets one.
            let always = format!("{path}-always");
            let lines = ["cache-control: public, max-age=600, s-maxage=600"];
            let refused = ScriptedResponse::with(&format!("{status} Refused"), &lines, "refused");
            site.origin.respond(&always, refused);
            site.get(&always);
            assert!(!is_stored(&site, &always), "{always}");
        }
    }
}

#[test]
fn row_80_a_render_is_not_taken_for_a_local_request() {
    let site = Site::start("[routes]\n\"/rule/**\" = { isr = \"60s\" }\n");
    site.origin.script("/rule/row-80", |request| {
        let is_local = |address: &str| address.starts_with("127.") || address.starts_with("for=127.");
        let addresses = ["x-forwarded-for", "forwarded"].map(|name| request.header(name));
        match addresses.iter().all(|address| address.is_some_and(|address| !is_local(address))) {
            true => ScriptedResponse::page(&[], "the page"),
            false => ScriptedResponse::page(&[], "internal notes"),
        }
    });
    for _ in 0..2 {
        assert_eq!(site.get("/rule/row-80").text(), "the page");
    }
    let render = site.origin.requests_for("/rule/row-80").remove(0);
    assert_eq!(render.header("x-forwarded-for"), Some("192.0.2.1"));
    assert_eq!(render.header("forwarded"), Some("for=192.0.2.1;host=\"www.example.com\";proto=http"));
}

/// Headers that say who and where the user is, or where the site is mounted.
const OF_PROXIES: [&str; 21] = [
    "X-Forwarded-User",
    "X-Forwarded-Email",
    "X-Forwarded-Groups",
    "X-Forwarded-Access-Token",
    "X-Forwarded-Client-Cert",
    "X-Forwarded-Tls-Client-Cert",
    "X-Forwarded-Prefix",
    "X-Script-Name",
    "X-Auth-Request-User",
    "X-Authenticated-User",
    "X-Remote-User",
    "Remote-User",
    "SSL-Client-S-DN",
    "Cf-Access-Jwt-Assertion",
    "CF-IPCountry",
    "CloudFront-Viewer-Country",
    "X-ARR-ClientCert",
    "X-Client-Verify",
    "X-Client-DN",
    "X-Vouch-User",
    "X-MS-Token-AAD-Id-Token",
];

/// Headers that nobody may send to an origin.
const OF_NOBODY: [&str; 24] = [
    "X-Forwarded-Protocol",
    "X-Forwarded-Ssl",
    "X-Forwarded-Anything",
    "Front-End-Https",
    "X-HTTP-Host-Override",
    "X-HTTP-Path-Override",
    "X-Original-Method",
    "X-Original-Anything",
    "X-Rewrite-Path",
    "X-Envoy-Original-Path",
    "X-Envoy-Internal",
    "X-Sendfile-Type",
    "X-Accel-Mapping",
    "X-Matched-Path",
    "X-Middleware-Prefetch",
    "X-Middleware-Anything",
    "Path-Info",
    "Script-Name",
    "X-Scheme",
    "CF-Visitor",
    "CloudFront-Forwarded-Proto",
    "X-ARR-SSL",
    "Fastly-SSL",
    "X-Forward-For",
];

/// The names of these headers that the origin gets for a page and for a passed-through path.
fn reach_origin<'n>(site: &Site, names: &[&'n str]) -> Vec<&'n str> {
    let lines: String = names.iter().map(|name| format!("{name}: evil\r\n")).collect();
    let mut reached = Vec::new();
    for path in ["/row-81", "/pass/row-81"] {
        site.origin.respond(path, ScriptedResponse::page(&["cache-control: max-age=60"], "the page"));
        assert_eq!(site.get_with(path, &lines).status, 200);
        let request = site.origin.requests_for(path).pop().expect("a request reaches the origin");
        reached.extend(names.iter().filter(|name| request.has(&name.to_ascii_lowercase())));
    }
    reached
}

#[test]
fn row_81_headers_of_proxies_are_believed_only_from_trusted_proxies() {
    let routes = "[routes]\n\"/pass/**\" = false\n";
    let site = Site::start(routes);
    assert_eq!(reach_origin(&site, &[&OF_PROXIES[..], &OF_NOBODY].concat()), [""; 0]);
    assert!(!site.origin.received("evil"));
    let own = Site::start(&format!("trusted_proxies = [\"127.0.0.1\"]\n{routes}"));
    assert_eq!(reach_origin(&own, &OF_NOBODY), [""; 0], "proxies pass headers of their clients on");
    let own = Site::start(&format!("trusted_proxies = [\"127.0.0.1\"]\n{routes}"));
    assert_eq!(reach_origin(&own, &OF_PROXIES), [OF_PROXIES, OF_PROXIES].concat());
}

#[test]
fn row_81_headers_of_proxies_select_pages_only_if_a_trusted_proxy_sent_them() {
    const ROUTES: &str = "[routes]\n\"/users/**\" = { isr = \"60s\", headers = [\"x-forwarded-user\"] }\n\
                          \"/org/**\" = { isr = \"60s\", tenant = { header = \"x-tenant-id\" } }\n";
    let user = |request: &Request| {
        ScriptedResponse::page(
            &[],
            &format!("for {}", request.header("x-forwarded-user").unwrap_or("nobody")),
        )
    };
    let alice = |site: &Site| {
        site.origin.script("/users/row-81", user);
        site.get_with("/users/row-81", "X-Forwarded-User: alice\r\n").text()
    };
    let acme = |site: &Site| site.get_with("/org/row-81", "X-Tenant-Id: acme\r\n").status;
    let site = Site::start(ROUTES);
    assert_eq!((alice(&site).as_str(), acme(&site)), ("for nobody", 400));
    assert!(!site.origin.received("acme") && !site.origin.received("alice"));
    let behind_proxy = Site::start(&format!("trusted_proxies = [\"127.0.0.1\"]\n{ROUTES}"));
    assert_eq!((alice(&behind_proxy).as_str(), acme(&behind_proxy)), ("for alice", 200));
}

#[test]
fn row_82_a_route_may_list_the_headers_that_reach_its_origin() {
    let site = Site::start(
        "[routes]\n\"/**\" = { cache = \"origin\", forward_headers = [\"accept\", \"cookie\"] }\n",
    );
    let lines = "X-New-Override: /evil\r\nAccept: text/html\r\nCookie: a=1\r\nUser-Agent: evil\r\nRange: bytes=0-1\r\nVia: 1.1 proxy\r\n";
    for (path, control) in [("/row-82", "max-age=60"), ("/row-82-private", "private, no-store")] {
        site.origin
            .respond(path, ScriptedResponse::page(&[&format!("cache-control: {control}")], "the page"));
        for _ in 0..2 {
            site.get_with(path, lines);
        }
        for request in site.origin.requests_for(path) {
            let seen = ["accept", "cookie", "host", "x-forwarded-for", "via"].map(|name| request.has(name));
            assert_eq!(seen, [true; 5], "{:?}", request.headers);
        }
    }
    assert!(!site.origin.received("evil"));
    assert!(site.origin.received("1.1 proxy"), "without it, a loop is not detected");
}

/// Headers by which a client would choose whether it gets a fresh page from the cache.
const DIRECTIVES: [(&str, &str); 6] = [
    ("cache-control", "no-cache"),
    ("cache-control", "max-age=0"),
    ("cache-control", "no-store"),
    ("cache-control", "min-fresh=100000"),
    ("cache-control", "max-age=0, max-stale=0, stale-if-error=0"),
    ("pragma", "no-cache"),
];

/// How many of these requests for a fresh page reach the origin, and how many clients get a stale or no response because of
/// their directives.
fn obeyed(config: &str, lines: &str) -> (usize, usize) {
    let site = Site::start(config);
    site.origin.script("/fresh", |_| ScriptedResponse::page(&["cache-control: max-age=3600"], "the page"));
    assert_eq!(site.get("/fresh").state(), "miss");
    for (name, directive) in DIRECTIVES {
        site.get_with("/fresh", &format!("{name}: {directive}\r\n{lines}"));
    }
    let forced = site.origin.requests_for("/fresh").len() - 1;
    site.origin.script("/stale", |request| {
        let lines = ["cache-control: max-age=60", "age: 100", "etag: \"a\""];
        ScriptedResponse::page(&lines, if request.has("if-none-match") { "new" } else { "old" })
    });
    assert_eq!(site.get("/stale").text(), "old");
    let stale = site.get_with("/stale", &format!("cache-control: max-stale\r\n{lines}"));
    let missing = site.get_with("/missing", &format!("cache-control: only-if-cached\r\n{lines}"));
    (forced, usize::from(stale.text() == "old") + usize::from(missing.status == 504))
}

#[test]
fn row_83_directives_of_clients_are_ignored_unless_they_are_trusted() {
    const IGNORED: (usize, usize) = (0, 0);
    const OBEYED: (usize, usize) = (6, 2);
    let proxy = "trusted_proxies = [\"127.0.0.1\"]\n";
    let listed = "cache_control_clients = [\"192.0.2.0/24\"]\n";
    let of_client = "X-Forwarded-For: 192.0.2.7\r\n";
    for (config, lines, expected) in [
        (String::new(), "", IGNORED),
        (String::new(), of_client, IGNORED),
        (listed.to_owned(), of_client, IGNORED),
        ("cache_control_clients = [\"127.0.0.1\"]\n".to_owned(), "", OBEYED),
        (proxy.to_owned(), "", OBEYED),
        (format!("{proxy}client_cache_control = \"ignore\"\n"), "", IGNORED),
        (proxy.to_owned(), of_client, IGNORED),
        (proxy.to_owned(), "X-Forwarded-For: \u{e9}, 192.0.2.7\r\n", IGNORED),
        (format!("{proxy}{listed}"), of_client, OBEYED),
        ("client_cache_control = \"obey\"\n".to_owned(), "", OBEYED),
    ] {
        assert_eq!(obeyed(&config, lines), expected, "{config}{lines}");
    }
}

#[test]
fn row_84_values_that_an_origin_distinguishes_select_different_variants() {
    let site = Site::start("");
    let origin =
        ("Origin", "https://app.test", ["https://app.test,", ",https://app.test", "https://app.test, "]);
    let agent = ("User-Agent", "Bot (a, like b)", ["Bot (a,like b)", "Bot (a, like b),", "Bot (a ,like b)"]);
    for (name, value, attacks) in [origin, agent] {
        for (index, attack) in attacks.iter().enumerate() {
            let path = format!("/row-84-{name}-{index}");
            site.origin.script(&path, move |request| {
                let is_known = request.header(&name.to_ascii_lowercase()) == Some(value);
                let lines = ["cache-control: max-age=60", &format!("vary: {name}")];
                ScriptedResponse::page(&lines, if is_known { "the page" } else { "refused" })
            });
            // The parser removes white space at the end, which is no part of a value.
            site.get_with(&path, &format!("{name}: {attack}x\r\n"));
            site.get_with(&path, &format!("{name}: {attack}\r\n"));
            assert_eq!(site.get_with(&path, &format!("{name}: {value}\r\n")).text(), "the page", "{attack}");
        }
        let path = format!("/row-84-{name}-lines");
        site.origin.script(&path, move |request| {
            let is_known = request.header(&name.to_ascii_lowercase()) == Some(value);
            let lines = ["cache-control: max-age=60", &format!("vary: {name}")];
            ScriptedResponse::page(&lines, if is_known { "the page" } else { "refused" })
        });
        let (first, rest) = value.split_once(", ").unwrap_or((value, ""));
        site.get_with(&path, &format!("{name}: {first}\r\n{name}: {rest}\r\n"));
        assert_eq!(site.get_with(&path, &format!("{name}: {value}\r\n")).text(), "the page", "{name}");
    }
}

#[test]
fn row_85_every_field_for_caches_can_forbid_storing() {
    let site = Site::start("[routes]\n\"/rule/**\" = { isr = \"60s\" }\n");
    for (index, line) in [
        "surrogate-control: no-store",
        "surrogate-control: max-age=60, content=\"ESI/1.0\", no-store",
        "cdn-cache-control: no-store",
        "cdn-cache-control: \"no-store\"",
        "cdn-cache-control: max-age=60, No-Store",
        "cdn-cache-control: \"private\", max-age=60",
        "facetheory-cache-control: \"no-store\"",
        "cache-control: \"no-store\"",
        "cache-control: max-age=60, \"no-store, private\"",
    ]
    .iter()
    .enumerate()
    {
        for path in [format!("/row-85-{index}"), format!("/rule/row-85-{index}")] {
            let fallback =
                if line.starts_with("cache-control") { "x-own: 1" } else { "cache-control: max-age=60" };
            site.origin.respond(&path, ScriptedResponse::page(&[line, fallback], "the page"));
            assert_eq!(site.get(&path).text(), "the page");
            assert_not_cached(&site, &path);
        }
    }
}

#[test]
fn row_86_other_users_cannot_read_the_stored_pages() {
    use std::os::unix::fs::PermissionsExt as _;
    let site = Site::start("[routes]\n\"/**\" = { isr = \"60s\" }\n");
    assert_eq!(site.get("/row-86").state(), "miss");
    let data = crate::support::gateway::data(site.directory.path());
    for directory in [data.clone(), data.join("bodies")] {
        let mode = std::fs::metadata(&directory).expect("a directory").permissions().mode();
        assert_eq!(mode & 0o777, 0o700, "{}", directory.display());
    }
}

#[test]
fn row_87_a_flood_of_variants_evicts_no_variant_that_is_used() {
    let site = Site::start("[routes]\n\"/rule/**\" = { isr = \"1h\", headers = [\"accept-language\"] }\n");
    for path in ["/row-87", "/rule/row-87"] {
        let lines = ["cache-control: max-age=3600", "vary: accept-language"];
        site.origin.respond(path, ScriptedResponse::page(&lines, "the page"));
        let state_of = |language: &str| {
            let response = site.get_with(path, &format!("Accept-Language: {language}\r\n"));
            assert_eq!(response.status, 200);
            response.state().to_owned()
        };
        state_of("junk");
        assert_eq!([state_of("de"), state_of("de")], ["miss", "hit"]);
        for number in 0..100 {
            assert_eq!(state_of(&format!("x-{number}")), "miss", "{path}");
        }
        assert_eq!(state_of("de"), "hit", "{path}: it was used");
        assert_eq!([state_of("en"), state_of("en")], ["miss", "hit"], "{path}: new ones are cached");
        assert_eq!(state_of("x-0"), "miss", "{path}: the flood replaces itself");
    }
}
