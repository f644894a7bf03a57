//! The log.

use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::process::Stdio;

use serde_json::Value;

use crate::process::{Gateway, Origin, error_of, facetheory};

/// Returns the log of a gateway that serves these requests.
fn log_of(arguments: &[&str], paths: &[&str]) -> String {
    let origin = Origin::start();
    let gateway = Gateway::with(&origin, facetheory().stderr(Stdio::piped()), arguments);
    for path in paths {
        gateway.client_get(path);
    }
    gateway.shut_down()
}

#[test]
fn without_a_terminal_every_line_is_json_and_every_request_is_logged() {
    let log = log_of(&[], &["/a?secret=1", "/a?secret=1", "/none/%2e%2e"]);
    let lines: Vec<Value> = log
        .lines()
        .map(|line| serde_json::from_str(line).unwrap_or_else(|error| panic!("{error}: {line}")))
        .collect();
    let requests: Vec<&Value> = lines.iter().filter(|line| line["message"] == "request").collect();
    let logged: Vec<_> = requests
        .iter()
        .map(|line| {
            (line["method"].as_str(), line["path"].as_str(), line["status"].as_u64(), line["state"].as_str())
        })
        .collect();
    assert_eq!(
        logged,
        [
            (Some("GET"), Some("/a"), Some(200), Some("miss")),
            (Some("GET"), Some("/a"), Some(200), Some("hit")),
            (Some("GET"), Some("/none/%2e%2e"), Some(400), Some("bypass")),
        ]
    );
    assert!(
        requests[1]["key"].as_str().is_some_and(|key| key.starts_with("default::127.0.0.1:")),
        "{}",
        requests[1]
    );
    assert!(requests[2]["key"].is_null(), "a rejected request has no cache key");
    assert!(requests[0]["bytes"].as_u64().is_some_and(|bytes| bytes > 10));
    assert!(requests[0]["duration_ms"].as_f64().is_some_and(|time| time > 0.0));
    let is_shutdown =
        |line: &Value| line["message"].as_str().is_some_and(|it| it.starts_with("shutting down"));
    assert!(lines.iter().any(is_shutdown), "events are logged, too");
}

#[test]
fn query_parameters_are_not_logged_unless_the_rule_lists_them() {
    let rules = r#"
        [routes]
        "/**" = { isr = "60s" }
        "/listed/**" = { query = ["page"] }
        "/kept/**" = { cache = "origin" }"#;
    for format in ["json", "human"] {
        let command = &mut facetheory();
        let gateway =
            Gateway::with_config(rules, &Origin::start(), command.stderr(Stdio::piped()), &["--log", format]);
        for path in
            ["/a?token=secret", "/a?token=secret", "/kept/b?token=secret", "/listed/c?page=2&token=secret"]
        {
            gateway.client_get(path);
        }
        let log = gateway.shut_down();
        assert!(!log.contains("secret"), "{log}");
        assert!(log.contains("?rest=a&…"), "the log shows that there is a query: {log}");
        assert!(log.contains("?rest=c&page=2"), "parameters of the rule are logged: {log}");
    }
}

#[test]
fn a_rejected_request_is_logged_with_the_reason() {
    let gateway = Gateway::with(&Origin::start(), facetheory().stderr(Stdio::piped()), &[]);
    for (bytes, _) in REJECTED {
        let mut client = TcpStream::connect(&gateway.site).expect("a connection");
        client.write_all(bytes.as_bytes()).expect("a request");
        client.read_to_end(&mut Vec::new()).expect("a response");
    }
    let log = gateway.shut_down();
    let lines = log.lines().map(|line| serde_json::from_str::<Value>(line).expect("JSON"));
    let logged = lines.filter(|line| line["message"] == "request").map(|line| {
        let text = |name: &str| line[name].as_str().unwrap_or("none").to_owned();
        format!("{} {} {} {}", text("method"), text("path"), line["status"], text("reason"))
    });
    assert_eq!(logged.collect::<Vec<_>>(), REJECTED.map(|(_, expected)| expected));
}

/// Requests that the HTTP parser rejects, and their log lines.
const REJECTED: [(&str, &str); 4] = [
    ("GET /a?b HTTP/1.1\r\nHost: a\r\nHost: b\r\n\r\n", "GET /a 400 more than one Host header"),
    ("HEAD /a HTTP/1.1\r\n\r\n", "HEAD /a 400 missing Host header"),
    ("\u{16}\u{3}\u{1}", "- - 400 control character in a line"),
    (
        "POST /a HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\nConnection: close\r\n\r\nx\r\n",
        "POST /a 400 malformed chunk size",
    ),
];

#[test]
fn errors_and_rejected_requests_are_logged_whatever_the_sample_is() {
    let config = "log_sample = 0\n[routes]\n\"/**\" = { isr = \"60s\" }";
    let gateway = Gateway::with_config(
        config,
        &Origin::start(),
        facetheory().stderr(Stdio::piped()),
        &["--log", "json"],
    );
    for path in ["/a", "/a", "/none/%2e%2e"] {
        gateway.client_get(path);
    }
    let mut client = TcpStream::connect(&gateway.site).expect("a connection");
    client.write_all(b"GET /b HTTP/1.1\r\n\r\n").expect("a request");
    client.read_to_end(&mut Vec::new()).expect("a response");
    let log = gateway.shut_down();
    let lines = log.lines().map(|line| serde_json::from_str::<Value>(line).expect("JSON"));
    let logged = lines.filter(|line| line["message"] == "request");
    let logged: Vec<_> = logged.map(|line| format!("{} {}", line["path"], line["status"])).collect();
    assert_eq!(logged, ["\"/none/%2e%2e\" 400", "\"/b\" 400"]);
    let gateway = Gateway::with_config(
        config,
        &Origin::down(),
        facetheory().stderr(Stdio::piped()),
        &["--log", "json"],
    );
    gateway.client_get("/a");
    let log = gateway.shut_down();
    assert!(log.contains("\"message\":\"request\"") && log.contains("\"status\":502"), "{log}");
}

#[test]
fn an_error_is_logged_without_the_query() {
    let origin = Origin::down();
    let gateway = Gateway::with(&origin, facetheory().stderr(Stdio::piped()), &[]);
    gateway.client_get("/a?token=secret");
    let log = gateway.shut_down();
    assert!(log.contains("\"phase\"") && log.contains("?rest=a&…"), "{log}");
    assert!(!log.contains("secret"), "{log}");
}

#[test]
fn the_human_format_has_one_line_per_request() {
    let log = log_of(&["--log", "human"], &["/a"]);
    let line = log.lines().find(|line| line.contains(" GET ")).expect("a line");
    assert!(line.contains(" /a 200 miss "), "{line}");
}

#[test]
fn options_reduce_the_log() {
    let quiet = log_of(&["--no-access-log"], &["/a"]);
    assert!(!quiet.contains("\"request\"") && quiet.contains("shutting down"), "{quiet}");
    assert_eq!(log_of(&["--log", "off"], &["/a"]), "");
    let levels = log_of(&["--log-level", "error", "--no-access-log"], &["/a"]);
    assert_eq!(levels, "");
    let detailed = log_of(&["--log-level", "debug", "--log", "json"], &["/a"]);
    assert!(detailed.contains("\"level\":\"DEBUG\""));
}

#[test]
fn an_invalid_log_level_is_an_error() {
    let mut command = facetheory();
    command.args(["serve", "--origin", "http://127.0.0.1:1", "--log-level", "facetheory=loud"]);
    let log = error_of(&mut command);
    assert!(log.contains("`facetheory=loud` is not a log level"), "{log}");
    let mut command = facetheory();
    command.args(["serve", "--origin", "http://127.0.0.1:1"]).env("FACETHEORY_LOG", "a=b=c");
    assert!(error_of(&mut command).contains("is not a log level"));
}
