//! `facetheory check-config`, through the real binary.

use std::path::Path;
use std::process::{Command, Output};

fn check(directory: &Path, arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_facetheory"))
        .arg("check-config")
        .args(arguments)
        .current_dir(directory)
        // CI may force colours.
        .env_remove("CLICOLOR_FORCE")
        .output()
        .expect("the binary runs")
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// Creates a directory with this `facetheory.toml`.
fn site(config: &str) -> tempfile::TempDir {
    let directory = tempfile::tempdir().expect("a directory");
    std::fs::write(directory.path().join("facetheory.toml"), config).expect("a file");
    directory
}

const BLOG: &str = r#"origin = "http://127.0.0.1:3000"
hosts = ["example.com"]

[routes]
"/**" = { isr = "10m", stale_if_error = "1d" }
"/blog/**" = { isr = "30s", tags = ["blog"] }
"/*/hello" = { stale_while_revalidate = "1h" }
"/cart/**" = false
"#;

#[test]
fn a_valid_file_is_reported_as_valid() {
    let site = site(BLOG);
    let output = check(site.path(), &[]);
    assert_eq!(text(&output.stdout), "facetheory.toml is valid: 4 rules\n");
    assert!(output.status.success() && output.stderr.is_empty());
}

#[test]
fn the_rules_of_a_url_are_listed_from_the_least_to_the_most_specific() {
    let site = site(BLOG);
    let urls = ["--url", "/blog/hello?page=2", "--url", "https://example.org/cart/1"];
    let output = check(site.path(), &urls);
    let expected = r#"facetheory.toml is valid: 4 rules

/blog/hello?page=2
  route: /blog/{*rest}
  rules, from the least to the most specific:
    line 5: "/**" = { isr = "10m", stale_if_error = "1d" }
    line 6: "/blog/**" = { isr = "30s", tags = ["blog"] }
  effective settings:
    isr = "30s"
    ignore_origin_cache_control = false
    stale_while_revalidate = true
    stale_if_error = "1d"
    negative_ttl = "10s"
    headers = []
    cookies = []
    versions = 0
    lease = "8s"
    render_timeout = "30s"
    wait_timeout = "10s"
    early_refresh = 0.0
    retention = "30d"
    tags = ["blog"]
    query = true
    tenant = false
  rules that match, but do not apply, because another one is more specific:
    line 7: "/*/hello" = { stale_while_revalidate = "1h" }

https://example.org/cart/1
  rejected with 421: example.org is not one of `hosts`
  route: /cart/{*rest}
  rules, from the least to the most specific:
    line 5: "/**" = { isr = "10m", stale_if_error = "1d" }
    line 8: "/cart/**" = false
  result: passed through without caching
"#;
    assert_eq!(text(&output.stdout), expected);
    assert!(output.status.success(), "{}", text(&output.stderr));
}

#[test]
fn the_default_action_of_a_url_without_a_rule_is_shown() {
    for (default, action) in [
        ("", "cached as the origin's headers say (default = \"origin\")"),
        ("default = \"pass\"\n", "passed through without caching (default = \"pass\")"),
    ] {
        let site = site(&format!("{default}[routes]\n\"/a\" = {{ isr = \"1s\" }}\n"));
        let output = check(site.path(), &["--url", "/b"]);
        let expected = format!("1 rule\n\n/b\n  no rule matches: {action}\n");
        assert!(text(&output.stdout).ends_with(&expected), "{}", text(&output.stdout));
    }
}

#[test]
fn all_errors_are_printed_with_their_lines() {
    let site = site("orgin = \"http://127.0.0.1:3000\"\n\n[routes]\n\"/a\" = { ttl = 5 }\n");
    let output = check(site.path(), &[]);
    assert_eq!(output.status.code(), Some(1));
    let printed = text(&output.stderr);
    assert!(
        printed.starts_with("facetheory: facetheory.toml is invalid:\n- line 1: unknown key `orgin`"),
        "{printed}"
    );
    assert!(printed.contains("\n- line 4: unknown key `ttl`; did you mean `isr`?"), "{printed}");
    assert!(output.stdout.is_empty());
}

#[test]
fn json_is_printed_for_valid_and_invalid_files() {
    let json = |output: &Output| -> serde_json::Value {
        serde_json::from_slice(&output.stdout).expect("one object")
    };
    let valid = check(site(BLOG).path(), &["--json", "--url", "/blog"]);
    let report = json(&valid);
    assert_eq!((&report["valid"], &report["rules"]), (&true.into(), &4.into()));
    assert_eq!(report["settings"]["limits"]["headers"], 100);
    assert_eq!(report["urls"][0]["route"], "/blog");
    assert_eq!(report["urls"][0]["rules"][1]["line"], 6);
    assert_eq!(report["urls"][0]["effective"]["stale_if_error"], "1d");

    let invalid = check(site("log = 1").path(), &["--json"]);
    let report = json(&invalid);
    assert_eq!((&report["valid"], &report["errors"][0]["line"]), (&false.into(), &1.into()));
    assert_eq!(invalid.status.code(), Some(1));
}

#[test]
fn a_missing_file_and_an_invalid_url_are_errors() {
    let site = site(BLOG);
    let missing = check(site.path(), &["--config", "other.toml"]);
    assert_eq!(missing.status.code(), Some(1));
    assert!(text(&missing.stderr).starts_with("facetheory: cannot open other.toml\n  because: "));
    let nonsense = check(site.path(), &["--url", "no address"]);
    assert!(text(&nonsense.stderr).contains("`no address` is not a URL; write one such as"));
    assert_eq!(nonsense.status.code(), Some(1));
    let help = text(&check(site.path(), &["--help"]).stdout);
    assert!(help.contains("--url <URL>") && help.contains("Examples:\n  facetheory check-config "), "{help}");
}

#[test]
fn a_lease_that_outlasts_the_wait_for_it_is_a_warning() {
    let config = "[routes]\n\"/a\" = { isr = \"1m\", lease = \"30s\" }\n\"/b\" = { isr = \"1m\", lease = \"9s\" }\n\
                  \"/c\" = { isr = \"1m\", wait_timeout = \"5s\" }\n\"/d\" = { isr = \"1m\" }\n";
    let site = site(config);
    let output = check(site.path(), &[]);
    assert!(output.status.success(), "the file is valid");
    let printed = text(&output.stdout);
    let lines: Vec<&str> = printed.lines().collect();
    assert_eq!(lines.len(), 3, "{printed}");
    let expected = "warning: line 2: `/a`: `lease` (30s) is not at least a second shorter than `wait_timeout` (10s): if a process \
                    dies while it renders a page, requests for the page give up before another process may take over; \
                    shorten `lease` or extend `wait_timeout`";
    assert_eq!(lines[1], expected);
    assert!(lines[2].starts_with("warning: line 4: `/c`: `lease` (8s)"), "{printed}");
    let json: serde_json::Value =
        serde_json::from_slice(&check(site.path(), &["--json"]).stdout).expect("JSON");
    assert_eq!(json["warnings"][0]["line"], 2);
    assert_eq!(json["valid"], true);
}

#[test]
fn to_rely_on_the_change_feed_with_the_keys_of_services_that_do_not_write_it_is_a_warning() {
    for (keys, warns) in [
        ("key_form = \"facetheory-ts\"", true),
        ("keys = \"raw\"", true),
        ("keys = \"hashed\"", false),
        ("key_form = \"facetheory-ts\"\nfeed = \"mixed\"", false),
    ] {
        let feed = if keys.contains("feed") { "" } else { "\nfeed = \"exclusive\"" };
        let site = site(&format!("site = \"example.com\"\n[store]\n{keys}{feed}\n"));
        let output = check(site.path(), &[]);
        assert!(output.status.success(), "the file is valid: {}", text(&output.stderr));
        let printed = text(&output.stdout);
        let expected = format!("warning: line 4: `feed = \"exclusive\"` with `{keys}`: these are the keys");
        assert_eq!(printed.contains(&expected), warns, "{printed}");
        assert_eq!(printed.contains("warning"), warns, "{printed}");
    }
}
