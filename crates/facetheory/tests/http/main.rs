//! The tower layer: the responses that clients get, and the requests that the renderer gets.

mod cacheability;
mod compression;
mod conditional;
mod fixture;
mod follow_origin;
mod invalidation;
mod key_form;
mod pass_through;
mod pending;
mod queue;
mod regeneration;
mod resolve_once;
mod router;
mod state;
