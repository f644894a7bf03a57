//! Where the servers are that tests need.

/// A setting of the servers: from the environment, or from `scripts/local-aws start`.
///
/// # Panics
/// When there is none: a test that cannot run must not look as if it had passed.
pub(crate) fn setting(name: &str) -> String {
    if let Ok(value) = std::env::var(name) {
        return value;
    }
    let file = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../../.local-aws/env");
    let lines = std::fs::read_to_string(file).unwrap_or_default();
    let set = lines.lines().filter_map(|line| line.split_once('=')).find(|(key, _)| *key == name);
    match set {
        Some((_, value)) => value.to_owned(),
        None => panic!("{name} is not set; run `scripts/local-aws start` or `./scripts/test`"),
    }
}
