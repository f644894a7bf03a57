//! The protocol on every embedded table, with the clock and the luck that a story needs.

mod cost;
mod diff;
mod fixture;
mod freshness;
mod invalidate;
mod listing;
mod pages;
mod publish;
mod request;
mod rollback;
mod scripted;
mod tag;
mod ttl;
