//! The protocol on every embedded table, with controlled clocks and faults.

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
