//! Hostile inputs against the gateway binary over raw sockets: every row of `docs/internals/attacks.md`, with its
//! number in the names of its tests.
//!
//! All inputs of a row are tested, each at a path that was not requested before.

mod assertions;
mod broken_origin;
mod cacheability;
mod collision;
mod document;
mod file;
mod flood;
mod forced_regeneration;
mod framing;
mod host;
mod http2;
mod key;
mod memory;
mod sharing;
mod size;
mod slow_client;
mod slow_store;
mod stream;
#[path = "../support/mod.rs"]
mod support;
