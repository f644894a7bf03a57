//! Several gateways on one DynamoDB and one S3: what they do together, whatever becomes of one of them.

mod burst;
mod invalidation;
mod pair;
#[path = "../support/mod.rs"]
mod support;
mod takeover;
