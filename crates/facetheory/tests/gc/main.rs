//! Garbage collection with every store of bodies, including S3 on a real server.

mod concurrent;
mod fixture;
mod property;
mod rules;
#[path = "../support/mod.rs"]
mod support;
