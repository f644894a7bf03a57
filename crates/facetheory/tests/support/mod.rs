//! The addresses of the servers that tests need.

/// A variable with the address or the credentials of a server: from the environment, or from `scripts/local-aws start`.
///
/// # Panics
/// If it is not set: a test that cannot run must not pass.
pub(crate) fn server_variable(name: &str) -> String {
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
