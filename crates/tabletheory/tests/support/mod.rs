//! The DynamoDB server for tests.

use std::path::Path;

use aws_sdk_dynamodb::Client;
use aws_sdk_dynamodb::config::{BehaviorVersion, Config, Credentials, Region};

/// Returns the endpoint of a DynamoDB for tests.
///
/// # Panics
/// If there is none, so that a test that cannot run does not pass.
pub(crate) fn dynamodb_endpoint() -> String {
    const NAME: &str = "FACETHEORY_TEST_DYNAMODB_ENDPOINT";
    if let Ok(endpoint) = std::env::var(NAME) {
        return endpoint;
    }
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../.local-aws/env");
    let lines = std::fs::read_to_string(file).unwrap_or_default();
    let set = lines.lines().filter_map(|line| line.split_once('=')).find(|(name, _)| name.trim() == NAME);
    match set {
        Some((_, endpoint)) => endpoint.trim().to_owned(),
        None => {
            panic!("no DynamoDB for tests; run `scripts/local-aws start` or `./scripts/test`")
        }
    }
}

/// Returns a client with credentials that any test server accepts, without an endpoint.
pub(crate) fn dynamodb_client() -> Client {
    let credentials = Credentials::new("test", "test", None, None, "tests");
    let config = Config::builder()
        .behavior_version(BehaviorVersion::latest())
        .region(Region::new("us-east-1"))
        .credentials_provider(credentials);
    Client::from_conf(config.build())
}
