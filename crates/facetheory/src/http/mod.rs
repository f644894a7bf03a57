//! HTTP as decisions: from header values to what is served, kept and told, without I/O and without a clock.

mod cache_control;
mod conditional;
mod cookie;
mod draft;
mod encoding;
mod header;
mod hint;
mod host;
mod path;
mod pattern;
mod range;
mod refusal;
mod route;
mod routes;
mod status;
mod storable;
mod tenant;
mod vary;
mod visit;

pub use draft::Drafts;
pub use hint::Hint;
pub use route::{Query, Route};
pub use routes::{Params, Routes};
pub use tenant::TenantFrom;
