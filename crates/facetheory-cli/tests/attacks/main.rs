//! Hostile inputs against the real gateway, over raw sockets: every row of `docs/internals/attacks.md`, with its number in the name
//! of its tests.
//!
//! A row that has several inputs has all of them tried, each at a path that nobody has asked for before.

mod assertions;
mod cacheability;
mod document;
mod file;
mod framing;
mod host;
mod http2;
mod key;
mod resources;
mod size;
mod stream;
#[path = "../support/mod.rs"]
mod support;
