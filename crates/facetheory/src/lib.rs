//! What a cached page is, and how it is renewed by exactly one worker.

// Some crate-private operations are used by the HTTP layer alone; builds with it find code that nothing uses.
#![cfg_attr(not(feature = "http"), allow(dead_code, unused_imports))]

mod bodies;
mod engine;
mod environment;
mod error;
mod gc;
#[cfg(feature = "http")]
mod http;
#[cfg(test)]
mod model;
mod pages;
pub mod protocol;
mod store;
#[cfg(feature = "testing")]
#[doc(hidden)]
pub mod testing;

#[cfg(feature = "http")]
pub use self::http::{
    CacheHint, Hit, IsrBody, IsrLayer, IsrService, Params, Preview, Query, RequestOrigin, ResolvedRequest,
    Route, Routes, TenantFrom, is_valid_host, remove_hop_by_hop_headers,
};
pub use bodies::probe::{Probe, ProbeFailure};
pub use bodies::{Bodies, Body, StoredBody};
pub use engine::{BypassReason, CachedPage, GetResult, Incident, Isr, IsrBuilder, Phase, Served, State};
pub use environment::Environment;
pub use error::{Error, Kind, Result};
pub use gc::{GcOptions, GcReport};
pub use pages::diff::{BodyDiff, Diff, FieldDiff, Side};
pub use pages::policy::{Contention, Mode, OtherDeployment, Policy};
pub use pages::reason::RegenerateReason;
pub use pages::render::{OriginUnreachable, Render, RenderContext, RenderError, Rendered};
pub use pages::{Outcome, Pages};
pub use protocol::cache_key::CacheKey;
pub use protocol::invalidate::{Invalidated, InvalidationMode};
pub use protocol::key::{KeyScheme, PageKey, Tenant};
pub use protocol::publish::History;
pub use protocol::request::IdempotentRequest;
pub use protocol::retention::Retention;
pub use protocol::rollback::RolledBack;
pub use protocol::tag::Tag;
pub use store::{Entry, Listed, Listing, PageStore};
