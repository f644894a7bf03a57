//! HTTP: decisions from header values to what is served, kept and told, without I/O and without a clock; and the layer
//! that carries them out.

mod body;
mod cacheability;
mod cacheability_rfc9111;
mod compression;
mod fetch;
mod fetch_rfc9111;
mod headers;
mod hint;
mod new_page_limiter;
mod parsed_page;
mod renderer;
mod request_origin;
mod respond;
mod respond_rfc9111;
mod response_cache;
mod router;
mod semantics;
mod service;
mod variant_limiter;
mod variants;

pub use body::IsrBody;
pub use headers::remove_hop_by_hop_headers;
pub use hint::CacheHint;
pub use request_origin::RequestOrigin;
pub use response_cache::Hit;
pub use router::host::is_valid_host;
pub use router::preview::Preview;
pub use router::resolve::ResolvedRequest;
pub use router::route::{Query, Route};
pub use router::routes::{Params, Routes};
pub use router::tenant::TenantFrom;
pub use service::{IsrLayer, IsrService};
