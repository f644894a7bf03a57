//! HTTP: decisions from header values to what is served, kept and told, without I/O and without a clock; and the layer
//! that carries them out.

mod behalf;
mod body;
mod cache_control;
mod conditional;
mod cookie;
mod date;
mod draft;
mod encoding;
mod header;
mod hint;
mod host;
mod layer;
mod newcomer;
mod path;
mod pattern;
mod prepared;
mod range;
mod refusal;
mod render;
mod renderer;
mod reply;
mod route;
mod routes;
mod shared;
mod status;
mod storable;
mod tenant;
mod vary;
mod visit;

pub use behalf::OnBehalf;
pub use body::IsrBody;
pub use draft::Drafts;
pub use header::remove_hops;
pub use hint::Hint;
pub use host::is_host;
pub use layer::{IsrLayer, IsrService};
pub use prepared::Hit;
pub use route::{Query, Route};
pub use routes::{Params, Routes};
pub use tenant::TenantFrom;

pub(crate) use cache_control::CacheControl;
pub(crate) use encoding::{Coding, is_worth_coding};
pub(crate) use header::{restored, restored_by_origin};
pub(crate) use shared::{Stored, variant_key};
