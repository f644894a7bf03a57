//! The admin listener and the logs, through the real binary.

mod access;
mod api;
mod health;
mod keys;
mod log;
mod openapi;
mod process;
mod resolve_once;
