//! GcOptions on every store of bodies, S3 on a real server among them.

mod concurrent;
mod fixture;
mod property;
mod rules;
#[path = "../support/mod.rs"]
mod support;
