//! The log, as whoever runs the program reads it.

use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::process::Stdio;

use serde_json::Value;

use crate::process::{Gateway, Origin, facetheory, refusal};

/// What a gateway says on the standard error while it serves these visits.
fn said(arguments: &[&str], visits: &[&str]) -> String {
    let origin = Origin::start();
    let gateway = Gateway::with(&origin, facetheory().stderr(Stdio::piped()), arguments);
    for path in visits {
        gateway.visit(path);
    }
    gateway.end()
}

#[test]
fn where_no_terminal_is_every_line_is_json_and_every_request_has_one() {
    let said = said(&[], &["/a?secret=1", "/a?secret=1", "/none/%2e%2e"]);
    let lines: Vec<Value> = said
        .lines()
        .map(|line| serde_json::from_str(line).unwrap_or_else(|error| panic!("{error}: {line}")))
        .collect();
    let requests: Vec<&Value> = lines.iter().filter(|line| line["message"] == "request").collect();
    let told: Vec<_> = requests
        .iter()
        .map(|line| {
            (line["method"].as_str(), line["path"].as_str(), line["status"].as_u64(), line["state"].as_str())
        })
        .collect();
    assert_eq!(
        told,
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
    assert!(requests[2]["key"].is_null(), "a request that is refused is for no page");
    assert!(requests[0]["bytes"].as_u64().is_some_and(|bytes| bytes > 10));
    assert!(requests[0]["duration_ms"].as_f64().is_some_and(|time| time > 0.0));
    assert!(
        lines
            .iter()
            .any(|line| line["message"].as_str().is_some_and(|message| message.starts_with("shutting down")))
    );
}

#[test]
fn what_is_in_a_query_is_not_told_unless_the_rule_lists_it() {
    let rules = r#"
        [routes]
        "/**" = { isr = "60s" }
        "/listed/**" = { query = ["page"] }
        "/kept/**" = { cache = "origin" }"#;
    for form in ["json", "human"] {
        let command = &mut facetheory();
        let gateway = Gateway::by(rules, &Origin::start(), command.stderr(Stdio::piped()), &["--log", form]);
        for path in
            ["/a?token=secret", "/a?token=secret", "/kept/b?token=secret", "/listed/c?page=2&token=secret"]
        {
            gateway.visit(path);
        }
        let said = gateway.end();
        assert!(!said.contains("secret"), "{said}");
        assert!(said.contains("?rest=a&…"), "that there was one is told: {said}");
        assert!(said.contains("?rest=c&page=2"), "what tells pages apart by rule is told: {said}");
    }
}

#[test]
fn a_request_that_is_refused_is_told_of_as_far_as_it_can_be_read_and_with_the_reason() {
    let gateway = Gateway::with(&Origin::start(), facetheory().stderr(Stdio::piped()), &[]);
    for (bytes, _) in REFUSED {
        let mut visitor = TcpStream::connect(&gateway.site).expect("a connection");
        visitor.write_all(bytes.as_bytes()).expect("it is sent");
        visitor.read_to_end(&mut Vec::new()).expect("an answer, and its end");
    }
    let said = gateway.end();
    let lines = said.lines().map(|line| serde_json::from_str::<Value>(line).expect("JSON"));
    let told = lines.filter(|line| line["message"] == "request").map(|line| {
        let text = |name: &str| line[name].as_str().unwrap_or("none").to_owned();
        format!("{} {} {} {}", text("method"), text("path"), line["status"], text("reason"))
    });
    assert_eq!(told.collect::<Vec<_>>(), REFUSED.map(|(_, expected)| expected));
}

/// What is refused on the wire, and what the log tells of it.
const REFUSED: [(&str, &str); 4] = [
    ("GET /a?b HTTP/1.1\r\nHost: a\r\nHost: b\r\n\r\n", "GET /a 400 more than one Host header"),
    ("HEAD /a HTTP/1.1\r\n\r\n", "HEAD /a 400 missing Host header"),
    ("\u{16}\u{3}\u{1}", "- - 400 control character in a line"),
    (
        "POST /a HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\nConnection: close\r\n\r\nx\r\n",
        "POST /a 400 malformed chunk size",
    ),
];

#[test]
fn what_goes_wrong_with_a_page_is_told_without_its_query() {
    let origin = Origin::gone();
    let gateway = Gateway::with(&origin, facetheory().stderr(Stdio::piped()), &[]);
    gateway.visit("/a?token=secret");
    let said = gateway.end();
    assert!(said.contains("an incident") && said.contains("?rest=a&…"), "{said}");
    assert!(!said.contains("secret"), "{said}");
}

#[test]
fn people_read_one_line_a_request() {
    let said = said(&["--log", "human"], &["/a"]);
    let line = said.lines().find(|line| line.contains(" GET ")).expect("a line");
    assert!(line.contains(" /a 200 miss "), "{line}");
}

#[test]
fn what_is_not_wanted_is_not_told() {
    let quiet = said(&["--no-access-log"], &["/a"]);
    assert!(!quiet.contains("\"request\"") && quiet.contains("shutting down"), "{quiet}");
    assert_eq!(said(&["--log", "off"], &["/a"]), "");
    let levels = said(&["--log-level", "error", "--no-access-log"], &["/a"]);
    assert_eq!(levels, "");
    let detailed = said(&["--log-level", "debug", "--log", "json"], &["/a"]);
    assert!(detailed.contains("\"level\":\"DEBUG\""));
}

#[test]
fn a_level_that_is_none_is_explained() {
    let mut command = facetheory();
    command.args(["serve", "--origin", "http://127.0.0.1:1", "--log-level", "facetheory=loud"]);
    let said = refusal(&mut command);
    assert!(said.contains("`facetheory=loud` is no level of the log"), "{said}");
    let mut command = facetheory();
    command.args(["serve", "--origin", "http://127.0.0.1:1"]).env("FACETHEORY_LOG", "a=b=c");
    assert!(refusal(&mut command).contains("is no level of the log"));
}
