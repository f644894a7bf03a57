//! The protocol on every embedded table, with controlled clocks and faults; with rows of other services on DynamoDB too.

mod cost;
mod damage;
mod diff;
mod epochs;
mod extend;
mod feed;
mod fixture;
mod freshness;
mod invalidate;
mod listing;
mod pages;
mod pointer;
mod publish;
mod request;
mod rollback;
mod scripted;
#[path = "../support/mod.rs"]
mod support;
mod tag;
mod ttl;
