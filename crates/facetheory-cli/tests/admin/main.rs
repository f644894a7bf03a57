//! The admin listener and the logs, through the real binary.

mod access;
mod api;
mod document;
mod health;
mod log;
mod process;
