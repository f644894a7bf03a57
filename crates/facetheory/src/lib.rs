//! Incremental static regeneration: a page is rendered once, cached, served to everyone, and regenerated when it is stale, by
//! exactly one worker at a time no matter how many machines serve it.
//!
//! - [`Isr`] is the engine: it serves pages from memory and regenerates them. Feature `http`: [`IsrLayer`] puts it in front of
//!   a `tower` service, with [`Route`]s and a [`Policy`] each.
//! - [`Pages`] regenerates, reads, compares and garbage-collects pages without an engine. [`PageStore`] holds their rows in a
//!   table, [`Bodies`] their bytes.
//! - [`protocol`] has the steps underneath, for programs with their own loop: leases, publications, requests, rows.

// Some crate-private operations are used by the HTTP layer alone; builds with it find code that nothing uses.
#![cfg_attr(not(feature = "http"), allow(dead_code, unused_imports))]

#[macro_use]
mod setters;

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
    CacheHint, ClientAddress, Hit, IgnoreDirectives, IsrBody, IsrLayer, IsrService, Params, Preview, Query,
    QueuedRegeneration, RegenerationQueue, Rejected, RequestOrigin, ResolvedRequest, Route, Routes,
    TenantFrom, is_valid_host, remove_hop_by_hop_headers,
};
#[cfg(feature = "s3")]
pub use bodies::lifecycle::UnsafeLifecycleRule;
pub use bodies::pointer::Pointers;
pub use bodies::probe::{Probe, ProbeFailure};
pub use bodies::{Bodies, Body, StoredBody};
#[cfg(feature = "dynamodb")]
pub use engine::DynamoMetrics;
pub use engine::{
    BypassReason, CachedPage, FailedStore, Feed, GetResult, Incident, Isr, IsrBuilder, LastWrite, Phase,
    Served, State,
};
pub use environment::Environment;
pub use error::{Error, Kind, Result};
pub use gc::{EvictionReport, GcOptions, GcReport};
pub use pages::diff::{BodyDiff, Compared, Diff, FieldDiff, Side};
pub use pages::policy::{Contention, Mode, OtherDeployment, Policy};
pub use pages::reason::RegenerateReason;
pub use pages::render::{OriginUnreachable, Render, RenderContext, RenderError, Rendered};
pub use pages::{Outcome, Pages};
pub use protocol::cache_key::CacheKey;
pub use protocol::invalidate::{Invalidated, InvalidationMode};
pub use protocol::key::{KeyScheme, PageKey, Tenant};
pub use protocol::publish::History;
pub use protocol::quota::{Demand, FileSystem, Quota, StoreUsage};
pub use protocol::request::IdempotentRequest;
pub use protocol::retention::Retention;
pub use protocol::rollback::RolledBack;
pub use protocol::tag::Tag;
pub use store::{Entry, Listed, Listing, PageStore};
