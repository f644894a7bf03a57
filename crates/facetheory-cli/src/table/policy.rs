//! The IAM actions of a gateway and of `facetheory table check`.

/// Actions without which a gateway still serves and stores pages: gc and lists of pages need them.
pub(super) const OPTIONAL: [&str; 1] = ["dynamodb:Scan"];

/// The actions on the bucket: reading, storing and deleting bodies, listing them, and reading the lifecycle rules.
/// `tests/gateways/policy.rs` compares them with the requests of the binary.
#[cfg(test)]
const BUCKET: [&str; 5] =
    ["s3:DeleteObject", "s3:GetLifecycleConfiguration", "s3:GetObject", "s3:ListBucket", "s3:PutObject"];

/// All actions that the policy of a gateway allows.
#[cfg(test)]
pub(super) fn actions() -> impl Iterator<Item = &'static str> {
    use tabletheory::dynamodb::{OPERATIONS, Purpose};
    let needed =
        OPERATIONS.iter().filter(|operation| matches!(operation.purpose, Purpose::Data | Purpose::Inspect));
    needed.flat_map(|operation| operation.actions).copied().chain(BUCKET)
}
