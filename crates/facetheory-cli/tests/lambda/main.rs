//! `facetheory lambda`: the real binary between a local runtime API, a local SQS, a scripted origin and real stores.

#[path = "../support/mod.rs"]
mod support;

mod bad_input;
mod connections;
mod events;
mod fixture;
mod freeze;
mod function;
mod gc;
mod http;
mod queue;
mod runtime_api;
mod start;
