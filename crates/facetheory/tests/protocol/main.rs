//! The protocol on every embedded table, with the clock and the luck that a story needs.

mod cost;
mod diff;
mod fixture;
mod history;
mod invalidate;
mod lifetime;
mod listing;
mod pages;
mod publish;
mod request;
mod rule;
mod scripted;
mod tag;
