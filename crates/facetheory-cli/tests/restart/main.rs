//! Restarts of the gateway binary without a refused connection: socket activation, hand-over to a new process, and a shutdown
//! that is announced.

mod activation;
mod hand_over;
mod lame_duck;
mod load;
mod notifications;
mod rolling;
#[path = "../support/mod.rs"]
mod support;

/// The configuration of the tests: pages below `/cached` are cached, others are passed through.
const CONFIG: &str = "default = \"pass\"\n[routes]\n\"/cached/**\" = { isr = \"1h\" }\n";
