//! GcOptions on every store of bodies, S3 on a real server among them.

mod fixture;
mod lively;
mod property;
mod story;
#[path = "../support/mod.rs"]
mod support;
