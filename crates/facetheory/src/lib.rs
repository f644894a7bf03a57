//! What a cached page is, and how it is renewed by exactly one worker.

mod attribute;
mod body;
mod cache_key;
mod collection;
mod diff;
mod environment;
mod epoch;
mod error;
mod freshness;
mod generation;
mod history;
#[cfg(feature = "http")]
mod http;
mod invalidate;
mod isr;
mod key;
mod lease;
mod lifetime;
#[cfg(test)]
mod model;
mod object;
mod pages;
mod policy;
mod probe;
mod publish;
mod reason;
mod render;
mod request;
mod row;
#[cfg(feature = "s3")]
mod s3;
mod state;
mod store;
mod sweep;
mod version_id;

#[cfg(feature = "http")]
pub use self::http::{
    Drafts, Hint, Hit, IsrBody, IsrLayer, IsrService, OnBehalf, Params, Query, Route, Routes, TenantFrom,
    is_host, remove_hops,
};
pub use body::{Bodies, Body, StoredBody};
pub use cache_key::CacheKey;
pub use collection::{Collected, Collection};
pub use diff::{BodyDiff, Diff, FieldDiff, Side};
pub use environment::Environment;
pub use epoch::{Epoch, Tag};
pub use error::{Error, Kind, Result};
pub use freshness::Freshness;
pub use generation::{Content, Generation};
pub use invalidate::Strength;
pub use isr::{Answer, Bypass, CachedPage, Incident, Isr, IsrBuilder, Phase, Served};
pub use key::{KeyScheme, MAX_CACHE_KEY_BYTES, PageKey, Tenant};
pub use lease::{Acquire, Lease, LeaseTerms};
pub use lifetime::Lifetimes;
pub use pages::{Outcome, Pages};
pub use policy::{Contention, Mode, OtherDeployment, Policy};
pub use probe::{Probe, Shortcoming};
pub use publish::{Guards, Publication};
pub use reason::Reason;
pub use render::{NoAnswer, Render, RenderContext, RenderError, Rendered};
pub use request::{Claim, RequestTerms};
pub use row::{Lock, Meta, Request, RequestStatus, Version};
pub use state::State;
pub use store::{
    Begin, Entry, EpochTerms, Invalidated, Keep, Listed, Listing, PageStore, Published, Refresh, RolledBack,
    View,
};
pub use sweep::Retention;
pub use version_id::VersionId;
