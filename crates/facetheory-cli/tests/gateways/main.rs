//! Several gateways on one DynamoDB and one S3.

mod burst;
mod cost;
mod crowd;
mod denied_writes;
mod failures;
mod feed;
mod invalidation;
mod materialise;
mod meter;
mod pair;
mod pointers;
mod policy;
#[path = "../support/mod.rs"]
mod support;
mod table;
mod takeover;
