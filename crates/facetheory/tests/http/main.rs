//! The layer: what visitors get over HTTP in every state, and what the renderer sees of them.

mod coding;
mod conditional;
mod fixture;
mod invalidation;
mod keeping;
mod passing;
mod regeneration;
mod resolve_once;
mod router;
mod shared;
mod state;
