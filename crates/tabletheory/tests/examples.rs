//! Every example succeeds on every backend.

#[path = "support/mod.rs"]
mod support;

use std::path::PathBuf;
use std::process::Command;

use support::{dynamodb_client, dynamodb_endpoint};
use tabletheory::{DynamoSettings, DynamoTable, Random, SystemRandom};

const EXAMPLES: [&str; 4] = ["freshness", "publish", "pointer_swap", "idempotent_finish"];

/// Returns the path of an example, which cargo builds before it runs tests.
fn program(example: &str) -> PathBuf {
    let test = std::env::current_exe().expect("the path of the test");
    let profile = test.ancestors().nth(2).expect("the profile's directory");
    profile.join("examples").join(example)
}

fn run_all(address: &str, environment: &[(&str, &str)]) {
    for example in EXAMPLES {
        let output = Command::new(program(example))
            .arg(address)
            .envs(environment.iter().copied())
            .output()
            .unwrap_or_else(|error| {
                panic!("{example} cannot be run, build it with `cargo build --examples`: {error}")
            });
        let stdout = String::from_utf8_lossy(&output.stdout);
        assert!(output.status.success(), "{example}: {stdout}{}", String::from_utf8_lossy(&output.stderr));
        assert!(stdout.lines().count() >= 3, "{example} prints what happens: {stdout}");
    }
}

#[test]
fn the_examples_run_in_memory() {
    run_all("memory:", &[]);
}

#[test]
fn the_examples_run_on_a_file() {
    let directory = tempfile::tempdir().expect("a directory");
    run_all(&format!("sqlite:{}/table.db", directory.path().display()), &[]);
}

#[tokio::test]
async fn the_examples_run_on_dynamodb() {
    let endpoint = dynamodb_endpoint();
    let name = format!("tabletheory-examples-{:x}", SystemRandom.next_u64());
    let settings = DynamoSettings::default().endpoint(&endpoint);
    let table = DynamoTable::new(&dynamodb_client(), &name, settings).expect("valid name and settings");
    table.create_table_if_missing().await.expect("a new table");
    let environment = [
        ("AWS_ENDPOINT_URL_DYNAMODB", endpoint.as_str()),
        ("AWS_REGION", "us-east-1"),
        ("AWS_ACCESS_KEY_ID", "test"),
        ("AWS_SECRET_ACCESS_KEY", "test"),
    ];
    run_all(&format!("dynamodb:{name}"), &environment);
    table.delete_table_and_all_rows().await.expect("deleted");
}
