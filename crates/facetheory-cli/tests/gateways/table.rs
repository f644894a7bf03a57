//! `facetheory table`, and the verification of the table when a gateway starts.

use std::net::SocketAddr;
use std::path::Path;
use std::process::{Command, Output};
use std::sync::atomic::{AtomicUsize, Ordering};

use serde_json::Value;
use tempfile::TempDir;

use crate::meter::{Meter, dynamodb_error};
use crate::support::gateway::{Gateway, StartError};
use crate::support::origin::{Origin, ScriptedResponse};
use crate::support::site::{LONG_TIMEOUTS, get};
use crate::support::store::{Store, s3_endpoint, server_variable};
use crate::support::wait_for;

const PAGES: &str = "[routes]\n\"/**\" = { isr = \"1h\" }\n";

/// Runs the command on a store, in an empty directory.
pub(crate) fn facetheory(store: &Store, arguments: &[&str]) -> Output {
    let directory = tempfile::tempdir().expect("a directory");
    facetheory_in(directory.path(), store, arguments)
}

fn facetheory_in(directory: &Path, store: &Store, arguments: &[&str]) -> Output {
    command(store).args(arguments).current_dir(directory).output().expect("the binary runs")
}

/// The command with the environment of a store.
pub(crate) fn command(store: &Store) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_facetheory"));
    command.envs(store.environment.iter().map(|(name, value)| (name, value)));
    command
}

pub(crate) fn stdout(output: &Output) -> String {
    String::from_utf8_lossy(&output.stdout).into_owned()
}

pub(crate) fn stderr(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

fn json(output: &Output) -> Value {
    serde_json::from_slice(&output.stdout).unwrap_or_else(|error| panic!("{error}: {}", stderr(output)))
}

/// DynamoDB and S3 without the table.
fn without_table() -> Store {
    Store::at(&server_variable("FACETHEORY_TEST_DYNAMODB_ENDPOINT"), &s3_endpoint())
}

fn name(store: &Store) -> &str {
    store.table.trim_start_matches("dynamodb:")
}

/// The result of a check in the output of `--json`.
fn status<'c>(report: &'c Value, check: &str) -> &'c str {
    let checks = report["checks"].as_array().expect("checks");
    let found = checks.iter().find(|found| found["name"] == check);
    found.and_then(|found| found["status"].as_str()).unwrap_or("missing")
}

fn check(store: &Store, more: &[&str]) -> (bool, Value) {
    let mut arguments = vec!["table", "check", "--json", "--table", &store.table, "--bodies", &store.bodies];
    arguments.extend(more);
    let output = facetheory(store, &arguments);
    let report = json(&output);
    (output.status.success(), report)
}

/// Starts a gateway that may fail to start.
fn try_start(
    store: &Store,
    directory: &TempDir,
    origin: SocketAddr,
    config: &str,
) -> Result<Gateway, StartError> {
    let arguments = ["--table", &store.table, "--bodies", &store.bodies];
    Gateway::try_start_in(&store.environment, directory.path(), origin, config, &arguments)
}

#[test]
fn a_table_is_created_once_and_passes_the_check() {
    let store = without_table();
    let create = ["table", "create", "--table", &store.table];
    let created = facetheory(&store, &create);
    assert!(created.status.success(), "{}", stderr(&created));
    let text = stdout(&created);
    for step in ["created the table", "enabled TTL", "enabled deletion protection"] {
        assert!(text.contains(step), "{text}");
    }
    // DynamoDB Local has no point-in-time recovery.
    assert!(text.contains("skipped point-in-time recovery"), "{text}");

    let again = facetheory(&store, &["table", "create", "--json", "--table", name(&store)]);
    let report = json(&again);
    assert_eq!((again.status.success(), &report["created"]), (true, &Value::Bool(false)), "{report}");

    let (passed, report) = check(&store, &["--strict"]);
    assert!(passed && report["ok"] == true, "{report}");
    for checked in
        ["table", "keys", "ttl", "permissions", "billing", "deletion protection", "bodies", "lifecycle"]
    {
        assert_eq!(status(&report, checked), "ok", "{checked}: {report}");
    }
    assert_eq!(status(&report, "point-in-time recovery"), "skipped", "{report}");
}

#[test]
fn a_missing_table_and_a_table_with_other_keys_are_reported_with_a_remedy() {
    let store = without_table();
    let (passed, report) = check(&store, &[]);
    assert_eq!((passed, status(&report, "table")), (false, "failed"), "{report}");
    assert!(
        report.to_string().contains(&format!("facetheory table create --table {}", store.table)),
        "{report}"
    );

    store.create_table_with_key("id");
    let (passed, report) = check(&store, &[]);
    assert_eq!((passed, status(&report, "keys")), (false, "failed"), "{report}");
    let create = facetheory(&store, &["table", "create", "--table", &store.table]);
    assert!(!create.status.success());
    assert!(stderr(&create).contains("the partition key is `id` of type S"), "{}", stderr(&create));
}

#[test]
fn a_denied_creation_and_missing_credentials_say_what_to_do() {
    let proxy = Meter::start(&server_variable("FACETHEORY_TEST_DYNAMODB_ENDPOINT"));
    proxy.deny(&["CreateTable"]);
    let store = without_table().through(&proxy.endpoint(), &s3_endpoint());
    let denied = facetheory(&store, &["table", "create", "--table", &store.table]);
    assert!(!denied.status.success());
    assert!(stderr(&denied).contains("is denied; grant this identity"), "{}", stderr(&denied));

    let anonymous = Command::new(env!("CARGO_BIN_EXE_facetheory"))
        .args(["table", "create", "--table", "pages"])
        .env_clear()
        .env("AWS_EC2_METADATA_DISABLED", "true")
        .env("AWS_REGION", "us-east-1")
        .output()
        .expect("the binary runs");
    assert!(stderr(&anonymous).contains("AWS_ACCESS_KEY_ID"), "{}", stderr(&anonymous));
    let nowhere = Command::new(env!("CARGO_BIN_EXE_facetheory"))
        .args(["table", "create", "--table", "pages"])
        .env_clear()
        .env("AWS_EC2_METADATA_DISABLED", "true")
        .output()
        .expect("the binary runs");
    assert!(stderr(&nowhere).contains("AWS_REGION"), "{}", stderr(&nowhere));
}

#[test]
fn the_check_names_denied_actions_and_lifecycle_rules_that_delete_bodies() {
    let (table, bodies) =
        (Meter::start(&server_variable("FACETHEORY_TEST_DYNAMODB_ENDPOINT")), Meter::start(&s3_endpoint()));
    let store = Store::on_servers().through(&table.endpoint(), &bodies.endpoint());
    table.deny(&["PutItem", "DescribeContinuousBackups"]);
    bodies.replace(|method, path| {
        let rule = "<LifecycleConfiguration><Rule><ID>cleanup</ID><Status>Enabled</Status><Filter/>\
                    <Expiration><Days>30</Days></Expiration></Rule></LifecycleConfiguration>";
        (method == "GET" && path.ends_with("?lifecycle")).then(|| (200, rule.to_owned()))
    });
    let (passed, report) = check(&store, &[]);
    let results =
        ["permissions", "lifecycle", "bodies", "point-in-time recovery"].map(|name| status(&report, name));
    assert_eq!((passed, results), (false, ["failed", "failed", "ok", "warning"]), "{report}");
    let text = report.to_string();
    assert!(text.contains("dynamodb:PutItem") && text.contains("`cleanup`"), "{text}");
    assert!(!text.contains("dynamodb:GetItem"), "an allowed action is not named: {text}");
}

#[test]
fn a_gateway_without_its_table_says_in_one_message_how_to_create_it() {
    let (store, origin) = (without_table(), Origin::start());
    let directory = tempfile::tempdir().expect("a directory");
    let config = format!(
        "{PAGES}{LONG_TIMEOUTS}[store]\ntable = \"{}\"\nbodies = \"{}\"\n",
        store.table, store.bodies
    );
    let error = try_start(&store, &directory, origin.address, &config).err().expect("it does not start");
    assert!(!error.status.success());
    let command = format!("facetheory table create --table {}", store.table);
    let messages: Vec<&str> = error.errors.lines().filter(|line| line.starts_with("facetheory:")).collect();
    assert_eq!((messages.len(), messages[0].contains(&command)), (1, true), "{}", error.errors);

    // `check-config --stores` reports the missing table with the same command, without serving.
    let stores = ["check-config", "--stores"];
    let checked = facetheory_in(directory.path(), &store, &stores);
    assert!(!checked.status.success() && stdout(&checked).contains(&command), "{}", stdout(&checked));

    let created = facetheory(&store, &command.split(' ').skip(1).collect::<Vec<_>>());
    assert!(created.status.success(), "{}", stderr(&created));
    let checked = facetheory_in(directory.path(), &store, &stores);
    assert!(checked.status.success(), "{}{}", stdout(&checked), stderr(&checked));
    let gateway = try_start(&store, &directory, origin.address, &config).expect("it starts now");
    assert!(!gateway.log().contains("\"check\""), "no warning about the table: {}", gateway.log());
}

#[test]
fn a_gateway_starts_without_the_permission_to_describe_its_table_and_warns() {
    let proxy = Meter::start(&server_variable("FACETHEORY_TEST_DYNAMODB_ENDPOINT"));
    proxy.deny(&["DescribeTable"]);
    let store = Store::on_servers().through(&proxy.endpoint(), &s3_endpoint());
    let (directory, origin) = (tempfile::tempdir().expect("a directory"), Origin::start());
    let config = format!("{PAGES}{LONG_TIMEOUTS}");
    let gateway = try_start(&store, &directory, origin.address, &config).expect("it starts");
    wait_for("a warning", || gateway.log().contains("dynamodb:DescribeTable").then_some(()));
    origin.respond("/page", ScriptedResponse::page(&[], "<p>a page</p>"));
    assert_eq!(gateway.exchange(get("/page", "")).state(), "miss");
}

#[test]
fn a_gateway_that_may_not_write_names_the_actions_that_it_needs() {
    let proxy = Meter::start(&server_variable("FACETHEORY_TEST_DYNAMODB_ENDPOINT"));
    proxy.deny(&["PutItem", "DeleteItem"]);
    let store = Store::on_servers().through(&proxy.endpoint(), &s3_endpoint());
    let (directory, origin) = (tempfile::tempdir().expect("a directory"), Origin::start());
    let error = try_start(&store, &directory, origin.address, &format!("{PAGES}{LONG_TIMEOUTS}"));
    let errors = error.err().expect("it does not start").errors;
    assert!(errors.contains("dynamodb:PutItem, dynamodb:DeleteItem"), "{errors}");
    assert!(errors.contains("facetheory table template"), "{errors}");
}

#[test]
fn a_gateway_starts_while_its_table_does_not_respond() {
    let store = Store::at("http://127.0.0.1:1", &s3_endpoint());
    let (directory, origin) = (tempfile::tempdir().expect("a directory"), Origin::start());
    let config = format!("{PAGES}[timeouts]\ntable = \"200ms\"\n");
    let gateway = try_start(&store, &directory, origin.address, &config).expect("it starts");
    wait_for("a warning", || gateway.log().contains("did not respond within").then_some(()));
}

#[test]
fn requests_retries_throttles_and_capacity_of_dynamodb_are_metrics() {
    let proxy = Meter::start(&server_variable("FACETHEORY_TEST_DYNAMODB_ENDPOINT"));
    let store = Store::on_servers().through(&proxy.endpoint(), &s3_endpoint());
    let (directory, origin) = (tempfile::tempdir().expect("a directory"), Origin::start());
    let config = format!("{PAGES}{LONG_TIMEOUTS}");
    let gateway = try_start(&store, &directory, origin.address, &config).expect("it starts");
    let throttles = AtomicUsize::new(2);
    proxy.replace(move |operation, _| {
        let is_next = |left: usize| left.checked_sub(1);
        let throttle = operation == "Query"
            && throttles.fetch_update(Ordering::SeqCst, Ordering::SeqCst, is_next).is_ok();
        throttle.then(|| (400, dynamodb_error("ThrottlingException")))
    });
    origin.respond("/page", ScriptedResponse::page(&[], "<p>a page</p>"));
    assert_eq!(gateway.exchange(get("/page", "")).state(), "miss");

    let metric = |name: &str| gateway.metric(&format!("facetheory_dynamodb_{name}")).unwrap_or_default();
    assert!((metric("requests_total{operation=\"Query\",outcome=\"throttled\"}") - 2.0).abs() < f64::EPSILON);
    assert!((metric("retries_total{operation=\"Query\"}") - 2.0).abs() < f64::EPSILON);
    assert!(metric("requests_total{operation=\"Query\",outcome=\"ok\"}") >= 1.0);
    assert!(metric("request_duration_seconds_count{operation=\"Query\"}") >= 3.0);
    wait_for("the page is published", || {
        (metric("capacity_units_sum{operation=\"TransactWriteItems\"}") > 0.0).then_some(())
    });
}
