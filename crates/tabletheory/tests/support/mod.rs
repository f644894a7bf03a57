//! Where the servers are that tests need.

use std::path::Path;

/// The address of a DynamoDB to test with.
///
/// # Panics
/// When there is none: a test that cannot run must not look as if it had passed.
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
            panic!("there is no DynamoDB to test with; run `scripts/local-aws start` or `./scripts/test`")
        }
    }
}
