//! The requests and connections that reach an origin which fails or is slow, also while clients leave or send slowly, and
//! while a store fails.

mod blip;
mod connections;
mod listening;
mod log;
#[path = "../support/mod.rs"]
mod support;
