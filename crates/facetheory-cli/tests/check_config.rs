//! `facetheory check-config`, through the real binary.

use std::path::Path;
use std::process::{Command, Output};

fn check(directory: &Path, arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_facetheory"))
        .arg("check-config")
        .args(arguments)
        .current_dir(directory)
        // A CI may want colours also where nobody sees them.
        .env_remove("CLICOLOR_FORCE")
        .output()
        .expect("the binary runs")
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// A directory with this `facetheory.toml`.
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
fn a_file_that_is_right_is_said_to_be_right() {
    let site = site(BLOG);
    let output = check(site.path(), &[]);
    assert_eq!(text(&output.stdout), "facetheory.toml is right: 4 rules.\n");
    assert!(output.status.success() && output.stderr.is_empty());
}

#[test]
fn the_rules_of_an_address_are_shown_in_the_order_in_which_they_refine_each_other() {
    let site = site(BLOG);
    let urls = ["--url", "/blog/hello?page=2", "--url", "https://example.org/cart/1"];
    let output = check(site.path(), &urls);
    let expected = r#"facetheory.toml is right: 4 rules.

/blog/hello?page=2
  route: /blog/{*rest}
  rules, each of which refines the one before:
    line 5: "/**" = { isr = "10m", stale_if_error = "1d" }
    line 6: "/blog/**" = { isr = "30s", tags = ["blog"] }
  which comes to:
    isr = "30s"
    ignore_origin_cache_control = false
    stale_while_revalidate = true
    stale_if_error = "1d"
    negative_ttl = "10s"
    tags = ["blog"]
    query = true
    headers = []
    cookies = []
    versions = 0
    lease = "30s"
    render_timeout = "30s"
    wait_timeout = "10s"
    early_refresh = 0.0
    tenant = false
  rules that have it, too, and are not followed, since the route is another's:
    line 7: "/*/hello" = { stale_while_revalidate = "1h" }

https://example.org/cart/1
  refused with 421: example.org is none of the hosts that are served
  route: /cart/{*rest}
  rules, each of which refines the one before:
    line 5: "/**" = { isr = "10m", stale_if_error = "1d" }
    line 8: "/cart/**" = false
  which comes to: it is passed on, and nothing is kept
"#;
    assert_eq!(text(&output.stdout), expected);
    assert!(output.status.success(), "{}", text(&output.stderr));
}

#[test]
fn what_becomes_of_an_address_without_a_rule_is_said() {
    for (default, said) in
        [("", "it is kept as the origin's own headers say"), ("default = \"pass\"\n", "it is passed on")]
    {
        let site = site(&format!("{default}[routes]\n\"/a\" = {{ isr = \"1s\" }}\n"));
        let output = check(site.path(), &["--url", "/b"]);
        let expected = format!("1 rule.\n\n/b\n  no rule has it: {said}\n");
        assert!(text(&output.stdout).ends_with(&expected), "{}", text(&output.stdout));
    }
}

#[test]
fn all_that_is_wrong_is_told_with_its_lines() {
    let site = site("orgin = \"http://127.0.0.1:3000\"\n\n[routes]\n\"/a\" = { ttl = 5 }\n");
    let output = check(site.path(), &[]);
    assert_eq!(output.status.code(), Some(1));
    let told = text(&output.stderr);
    assert!(
        told.starts_with("facetheory: facetheory.toml is wrong:\n- line 1: `orgin` is no key of the file"),
        "{told}"
    );
    assert!(told.contains("\n- line 4: `ttl` is no key of a rule; did you mean `isr`?"), "{told}");
    assert!(output.stdout.is_empty());
}

#[test]
fn programs_get_json_whether_it_is_right_or_wrong() {
    let json = |output: &Output| -> serde_json::Value {
        serde_json::from_slice(&output.stdout).expect("one object")
    };
    let right = check(site(BLOG).path(), &["--json", "--url", "/blog"]);
    let report = json(&right);
    assert_eq!((&report["right"], &report["rules"]), (&true.into(), &4.into()));
    assert_eq!(report["settings"]["limits"]["headers"], 100);
    assert_eq!(report["urls"][0]["route"], "/blog");
    assert_eq!(report["urls"][0]["rules"][1]["line"], 6);
    assert_eq!(report["urls"][0]["resolved"]["stale_if_error"], "1d");

    let wrong = check(site("log = 1").path(), &["--json"]);
    let report = json(&wrong);
    assert_eq!((&report["right"], &report["faults"][0]["line"]), (&false.into(), &1.into()));
    assert_eq!(wrong.status.code(), Some(1));
}

#[test]
fn what_cannot_be_checked_is_explained() {
    let site = site(BLOG);
    let missing = check(site.path(), &["--config", "other.toml"]);
    assert_eq!(missing.status.code(), Some(1));
    assert!(text(&missing.stderr).starts_with("facetheory: other.toml cannot be opened\n  because: "));
    let nonsense = check(site.path(), &["--url", "no address"]);
    assert!(text(&nonsense.stderr).contains("`no address` is no address; write one such as"));
    assert_eq!(nonsense.status.code(), Some(1));
    let help = text(&check(site.path(), &["--help"]).stdout);
    assert!(help.contains("--url <URL>") && help.contains("Examples:\n  facetheory check-config "), "{help}");
}
