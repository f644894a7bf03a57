//! Several gateways on one DynamoDB and one S3.

mod burst;
mod cost;
mod invalidation;
mod meter;
mod pair;
#[path = "../support/mod.rs"]
mod support;
mod takeover;
